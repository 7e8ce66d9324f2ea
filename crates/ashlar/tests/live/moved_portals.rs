//! `listen` of a target is widened, narrowed and moved on one port, while a session reads and
//! writes and new ones log in: over iSCSI, NBD and NVMe/TCP. No initiator here logs in again.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use testkit::iscsi::initiator::Client as Initiator;
use testkit::nbd::Client as NbdClient;
use testkit::nvme::{Names, Queue};
use wire::nbd::Form;
use wire::nbd::codes::kind;
use wire::nvme::Status;

use crate::fixture::rounds::Rounds;
use crate::fixture::{Fixture, IQN, file_disk};

const DISK_BYTES: u64 = 16 << 20;
/// Bytes and blocks of a request.
const BYTES: usize = 4096;
const BLOCKS: u64 = 8;

/// An address for documentation (RFC 5737): no machine has it.
const FOREIGN: &str = "192.0.2.77";

/// A transport: its target, a load over one session, and whether an address accepts a session.
struct Transport {
    driver: &'static str,
    target: &'static str,
    load: fn(SocketAddr) -> Rounds,
    accepts: fn(SocketAddr) -> bool,
}

const NQN: &str = "nqn.2026-11.test.ashlar:moved";

const ISCSI: Transport = Transport {
    driver: "iscsi",
    target: IQN,
    load: iscsi_load,
    // A name of its own, so that the session under load is not reinstated.
    accepts: |at| Initiator::session(at, "iqn.2026-11.test:probe", IQN).is_ok(),
};

const NBD: Transport = Transport {
    driver: "nbd",
    target: "moved",
    load: nbd_load,
    accepts: |at| NbdClient::try_enter(at, "0").is_ok_and(|entered| entered.is_ok()),
};

const NVME: Transport = Transport {
    driver: "nvme_tcp",
    target: NQN,
    load: nvme_load,
    accepts: |at| TcpStream::connect(at).is_ok() && Queue::refusal(at, &names()).is_none(),
};

fn names() -> Names {
    Names { subsystem: NQN.into(), host: "nqn.2026-11.test:host".into() }
}

/// First block and data of a round.
fn request(round: u64) -> (u64, Vec<u8>) {
    let block = round * BLOCKS % (DISK_BYTES / 512);
    (block, round.to_le_bytes().repeat(BYTES / 8))
}

fn same(round: u64, wrote: &[u8], read: &[u8]) -> Result<(), String> {
    if wrote == read { Ok(()) } else { Err(format!("round {round}: other data")) }
}

fn iscsi_load(at: SocketAddr) -> Rounds {
    let mut initiator = Initiator::session(at, "iqn.2026-11.test:host", IQN).unwrap();
    initiator.must(&[0; 6], 0);
    Rounds::start(move |round| {
        let (block, data) = request(round);
        let [a, b, c, d] = (block as u32).to_be_bytes();
        let wrote = initiator.scsi(&[0x2A, 0, a, b, c, d, 0, 0, BLOCKS as u8, 0], 0, &data);
        let status = wrote.map_err(|e| e.to_string())?.status;
        if status != 0 {
            return Err(format!("round {round}: status {status:02x}"));
        }
        let cdb = [0x28, 0, a, b, c, d, 0, 0, BLOCKS as u8, 0];
        let read = initiator.scsi(&cdb, BYTES as u32, &[]).map_err(|e| e.to_string())?;
        same(round, &data, &read.data)
    })
}

fn nbd_load(at: SocketAddr) -> Rounds {
    let mut client = NbdClient::enter(at, Form::Simple, "0");
    Rounds::start(move |round| {
        let (block, data) = request(round);
        let (offset, len) = (block * 512, BYTES as u64);
        let wrote = client.ask(kind::WRITE, 0, offset, len, &data);
        if wrote.error.is_some() {
            return Err(format!("round {round}: {wrote:?}"));
        }
        same(round, &data, &client.ask(kind::READ, 0, offset, len, &[]).bytes(offset))
    })
}

fn nvme_load(at: SocketAddr) -> Rounds {
    let admin = Queue::admin(at, &names());
    let mut queue = admin.io(1);
    Rounds::start(move |round| {
        // The controller ends with its admin queue.
        let _admin = &admin;
        let (block, data) = request(round);
        let wrote = queue.write(1, block, &data);
        let (read, bytes) = queue.read(1, block, BLOCKS as u32);
        if (wrote, read) != (Status::SUCCESS, Status::SUCCESS) {
            return Err(format!("round {round}: {wrote:?}, {read:?}"));
        }
        same(round, &data, &bytes)
    })
}

fn configure(fixture: &Fixture, transport: &Transport, hosts: &[&str], more: &str) {
    let (port, Transport { driver, target, .. }) = (fixture.portal().port(), transport);
    let listen: Vec<String> = hosts.iter().map(|host| format!("\"{host}:{port}\"")).collect();
    let text = format!(
        "{}\n[[target]]\ndriver = \"{driver}\"\nname = \"{target}\"\nlisten = [{}]\n\n\
         [[access]]\ntarget = \"{target}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"good\" }}\n{more}",
        file_disk("good", "good.img"),
        listen.join(", ")
    );
    fixture.write("ashlar.toml", &text);
}

fn answers(fixture: &Fixture, transport: &Transport, host: &str) -> bool {
    let mut at = fixture.portal();
    at.set_ip(host.parse::<IpAddr>().unwrap());
    (transport.accepts)(at)
}

fn moves_under_load(name: &str, transport: &Transport) {
    let mut fixture = Fixture::alone(name);
    fixture.image("good.img", DISK_BYTES);
    configure(&fixture, transport, &["127.0.0.1"], "");
    fixture.start();
    let mut load = (transport.load)(fixture.portal());
    let both: &[&str] = &["0.0.0.0", "[::]"];
    // Where it listens, and whether 127.0.0.2 and ::1 are reached there.
    for (hosts, other, v6) in [
        (&["0.0.0.0"][..], true, false),
        (&["127.0.0.1"], false, false),
        (&["[::]"], true, true),
        (&["127.0.0.1"], false, false),
        (both, true, true),
        (&["[::]"], true, true),
        (both, true, true),
        (&["0.0.0.0"], true, false),
        (&["127.0.0.1", "[::1]"], false, true),
        (&["127.0.0.1", FOREIGN], false, false),
        (&["127.0.0.1", "127.0.0.2"], true, false),
    ] {
        configure(&fixture, transport, hosts, "");
        fixture.ashlar(&["plan"]).ends(6).prints(&["change target", "safe"]);
        fixture.ashlar(&["apply"]).ends(0);
        load.wait_for_rounds();
        assert!(answers(&fixture, transport, "127.0.0.1"), "{hosts:?}");
        assert_eq!(answers(&fixture, transport, "127.0.0.2"), other, "{hosts:?}");
        assert_eq!(answers(&fixture, transport, "::1"), v6, "{hosts:?}");
    }
    println!("{} rounds meanwhile", load.finish());
    fixture.assert_alive();
    fixture.stop();
    // Both are opened by a start as well.
    configure(&fixture, transport, both, "");
    fixture.start();
    let reached = ["127.0.0.1", "::1"].map(|host| answers(&fixture, transport, host));
    assert_eq!(reached, [true, true]);
    fixture.stop();
}

#[test]
fn listen_addresses_change_on_one_port_without_ending_sessions() {
    for transport in [ISCSI, NBD, NVME] {
        moves_under_load(&format!("moved-{}", transport.driver), &transport);
    }
}

#[test]
fn addresses_in_use_by_others_are_refused() {
    let mut fixture = Fixture::alone("taken-portals");
    fixture.image("good.img", DISK_BYTES);
    configure(&fixture, &ISCSI, &["127.0.0.1"], "");
    fixture.start();
    let port = fixture.portal().port();
    let taken = TcpListener::bind(("127.0.0.3", port)).unwrap();
    configure(&fixture, &ISCSI, &["0.0.0.0"], "");
    fixture.ashlar(&["plan"]).ends(1).prints(&["change target", "0.0.0.0", "in use"]);
    fixture.ashlar(&["apply"]).ends(1).complains(&["0.0.0.0"]);
    assert!(answers(&fixture, &ISCSI, "127.0.0.1") && !answers(&fixture, &ISCSI, "127.0.0.2"));
    drop(taken);
    let nbd =
        format!("\n[[target]]\ndriver = \"nbd\"\nname = \"n\"\nlisten = [\"127.0.0.2:{port}\"]\n");
    configure(&fixture, &ISCSI, &["0.0.0.0"], &nbd);
    fixture.ashlar(&["apply"]).ends(2).complains(&["overlaps", "another driver"]);
    assert!(answers(&fixture, &ISCSI, "127.0.0.1") && !answers(&fixture, &ISCSI, "127.0.0.2"));
    configure(&fixture, &ISCSI, &["127.0.0.1", FOREIGN], "");
    fixture.ashlar(&["doctor", "ports"]).ends(3).prints(&["warn", FOREIGN, "no interface"]);
    fixture.ashlar(&["apply"]).ends(0);
    fixture.ashlar(&["doctor", "ports"]).ends(3).prints(&["warn", FOREIGN, "no interface"]);
    fixture.assert_alive();
    fixture.stop();
}
