//! `listen` of a target is widened, narrowed and moved on one port, while a session reads and
//! writes and new ones log in.

use std::net::{IpAddr, TcpListener};

use rig::peer;

use crate::fixture::load::Load;
use crate::fixture::{Fixture, file_disk};

const DISK_BYTES: u64 = 16 << 20;

/// An address for documentation (RFC 5737): no machine has it.
const FOREIGN: &str = "192.0.2.77";

fn configure(fixture: &Fixture, hosts: &[&str], more: &str) {
    let port = fixture.portal().port();
    let listen: Vec<String> = hosts.iter().map(|host| format!("\"{host}:{port}\"")).collect();
    let text = format!(
        "{}\n[[target]]\ndriver = \"iscsi\"\nname = \"{{iqn}}\"\nlisten = [{}]\n\n\
         [[access]]\ntarget = \"{{iqn}}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"good\" }}\n{more}",
        file_disk("good", "good.img"),
        listen.join(", ")
    );
    fixture.write("ashlar.toml", &text);
}

fn answers(fixture: &Fixture, host: &str) -> bool {
    let mut at = fixture.target(0);
    at.portal.set_ip(host.parse::<IpAddr>().unwrap());
    peer::iscsi_inq(&at.url(), None).is_ok()
}

#[test]
fn listen_addresses_change_on_one_port_without_ending_sessions() {
    let mut fixture = Fixture::alone("moved-portals");
    fixture.image("good.img", DISK_BYTES);
    configure(&fixture, &["127.0.0.1"], "");
    fixture.start();
    let load = Load::start(&fixture.url(0), DISK_BYTES);
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
        configure(&fixture, hosts, "");
        fixture.ashlar(&["plan"]).ends(6).prints(&["change target", "safe"]);
        fixture.ashlar(&["apply"]).ends(0);
        load.wait_for_rounds();
        assert!(answers(&fixture, "127.0.0.1"), "{hosts:?}");
        assert_eq!(answers(&fixture, "127.0.0.2"), other, "{hosts:?}");
        assert_eq!(answers(&fixture, "::1"), v6, "{hosts:?}");
    }
    println!("{} rounds meanwhile", load.finish());
    fixture.assert_alive();
    fixture.stop();
    // Both are opened by a start as well.
    configure(&fixture, both, "");
    fixture.start();
    assert!(answers(&fixture, "127.0.0.1") && answers(&fixture, "::1"));
    fixture.stop();
}

#[test]
fn addresses_in_use_by_others_are_refused() {
    let mut fixture = Fixture::alone("taken-portals");
    fixture.image("good.img", DISK_BYTES);
    configure(&fixture, &["127.0.0.1"], "");
    fixture.start();
    let port = fixture.portal().port();
    let taken = TcpListener::bind(("127.0.0.3", port)).unwrap();
    configure(&fixture, &["0.0.0.0"], "");
    fixture.ashlar(&["plan"]).ends(1).prints(&["change target", "0.0.0.0", "in use"]);
    fixture.ashlar(&["apply"]).ends(1).complains(&["0.0.0.0"]);
    assert!(answers(&fixture, "127.0.0.1") && !answers(&fixture, "127.0.0.2"));
    drop(taken);
    let nbd =
        format!("\n[[target]]\ndriver = \"nbd\"\nname = \"n\"\nlisten = [\"127.0.0.2:{port}\"]\n");
    configure(&fixture, &["0.0.0.0"], &nbd);
    fixture.ashlar(&["apply"]).ends(2).complains(&["overlaps", "another driver"]);
    assert!(answers(&fixture, "127.0.0.1") && !answers(&fixture, "127.0.0.2"));
    configure(&fixture, &["127.0.0.1", FOREIGN], "");
    fixture.ashlar(&["doctor", "ports"]).ends(3).prints(&["warn", FOREIGN, "no interface"]);
    fixture.ashlar(&["apply"]).ends(0);
    fixture.ashlar(&["doctor", "ports"]).ends(3).prints(&["warn", FOREIGN, "no interface"]);
    fixture.assert_alive();
    fixture.stop();
}
