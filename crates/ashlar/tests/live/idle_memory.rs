//! Memory that sessions needed returns to the system after they have ended.

use std::net::SocketAddr;
use std::time::Duration;

use rig::proc;
use testkit::iscsi::initiator::Client;
use testkit::nbd;
use wire::nbd::Form;
use wire::nbd::codes::kind;

use crate::fixture::{Fixture, IQN, file_disk};

const SESSIONS: usize = 256;
/// Buffers that the daemon may use: more than all sessions need.
const POOL_BYTES: u64 = 512 << 20;
/// Bytes of a write: the length that one R2T requests by default.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes of one Data-Out PDU.
const PIECE_BYTES: usize = 64 << 10;
/// PDUs of a write that is left open: all but the last one.
const OPEN_PIECES: usize = WRITE_BYTES / PIECE_BYTES - 1;
/// Data of all open writes: three times what may stay.
const DATA_BYTES: u64 = (SESSIONS * OPEN_PIECES * PIECE_BYTES) as u64;
/// Resident memory that may stay: warm buffers of each pool, and the heap between what is in use.
const LEFT_BYTES: u64 = 16 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// A session after a large write.
fn session(fixture: &Fixture, number: usize) -> Client {
    let name = format!("iqn.2026-11.test:idle-{number}");
    let mut client = Client::session(fixture.portal(), &name, IQN).unwrap();
    client.ready(0);
    let params = client.params;
    assert!(params.max_burst as usize >= WRITE_BYTES, "{params:?}");
    assert!(params.send_data_len_max as usize >= PIECE_BYTES, "{params:?}");
    assert_eq!(client.write(0, &vec![0xa5; WRITE_BYTES], PIECE_BYTES).status, 0);
    client
}

/// One more write, whose last PDU is not sent: its buffers stay in use.
fn leave_write_open(client: &mut Client) {
    let (tag, target_tag) = client.open_write(0, WRITE_BYTES as u32);
    let piece = vec![0x5a; PIECE_BYTES];
    for number in 0..OPEN_PIECES {
        let offset = number * PIECE_BYTES;
        client.data_out(tag, target_tag, number as u32, offset, &piece, false);
    }
}

/// An NBD connection with a write whose last piece is not sent.
fn nbd_write(at: SocketAddr) -> nbd::Client {
    let mut client = nbd::Client::enter(at, Form::Simple, "d0");
    let data = vec![0x5a; OPEN_PIECES * PIECE_BYTES];
    client.send(kind::WRITE, 0, 0, WRITE_BYTES as u64, &data);
    client
}

/// A daemon with one disk, which `more` exports besides iSCSI.
fn start(name: &str, more: &str) -> Fixture {
    let mut fixture = Fixture::alone(name);
    fixture.image("d0.img", 1 << 20);
    let daemon = format!("[daemon]\ncores = 2\nmemory = {POOL_BYTES}\n\n");
    fixture.configure(&format!("{daemon}{}{more}", file_disk("d0", "d0.img")), "0 = \"d0\"");
    fixture.start();
    fixture
}

/// The clients of `open` leave writes open; their memory is given back when they have disconnected.
fn expect_memory_back<T>(fixture: &Fixture, open: impl FnOnce() -> Vec<T>) {
    let resident = || proc::resident_bytes(fixture.pid()).unwrap();
    let before = resident();
    let clients = open();
    fixture.until("the data of all open writes is in memory", LIMIT, || {
        resident() >= before + DATA_BYTES / 4 * 3
    });
    let most = resident();
    drop(clients);
    fixture.until("memory of ended sessions is given back", LIMIT, || {
        resident() <= before + LEFT_BYTES
    });
    let mib = |bytes: u64| bytes >> 20;
    println!("{} MiB, then {} MiB, then {} MiB", mib(before), mib(most), mib(resident()));
}

#[test]
fn memory_of_ended_sessions_returns_to_the_system() {
    let mut fixture = start("idle-memory", "");
    // The first session uses code and tables that are not read at a start.
    drop(session(&fixture, SESSIONS));
    let open = |number| {
        let mut client = session(&fixture, number);
        leave_write_open(&mut client);
        client
    };
    expect_memory_back(&fixture, || (0..SESSIONS).map(open).collect());
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn memory_of_ended_nbd_connections_returns_to_the_system() {
    let at = SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()));
    let target = format!(
        "[[target]]\ndriver = \"nbd\"\nname = \"n\"\nlisten = [\"{at}\"]\n\
         connections_per_peer = 65536\n\
         [[access]]\ntarget = \"n\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"d0\" }}\n"
    );
    let mut fixture = start("idle-memory-nbd", &target);
    drop(nbd_write(at));
    expect_memory_back(&fixture, || (0..SESSIONS).map(|_| nbd_write(at)).collect());
    fixture.assert_alive();
    fixture.stop();
}
