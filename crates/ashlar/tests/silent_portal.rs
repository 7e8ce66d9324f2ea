//! A portal that takes connections and never says a word: whoever attaches a bus to it waits, and
//! nobody else does; it is let go of at once.

mod house;

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use house::{House, array, text};
use rig::proc::Proc;

const LIMIT: Duration = Duration::from_secs(60);

/// Takes whoever comes, for as long as the test runs.
fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((peer, _)) = listener.accept() {
            kept.push(peer);
        }
    });
    at.to_string()
}

fn asked(house: &House, words: &[&str]) -> Proc {
    let log = house.path(&format!("{}-{}.log", words[1], words.len()));
    Proc::start("ashlar", &mut house.command(words), &log).unwrap()
}

fn has_bus(house: &House) -> bool {
    let list = house.json(&["cam", "devlist"]);
    array(&list["answer"]["buses"]).iter().any(|bus| text(&bus["sim"]) == "mute0")
}

#[test]
fn nobody_waits_for_a_bus_that_somebody_else_attaches() {
    let mut house = House::new("silent");
    house.image("d0.img", 1 << 20);
    house.configure(&house::file_disk("d0", "d0.img"), "");
    house.start();
    let portals = format!("portals=[\"{}\"]", silent());
    let target = "target=iqn.2026-11.test.ashlar:mute";
    let own = "initiator=iqn.2026-11.test.ashlar:front";
    let attach = ["cam", "attach", "mute0", "kind=iscsi", &portals, target, own];
    let mut waits = asked(&house, &attach);
    house.until("the bus is there", LIMIT, || has_bus(&house));
    house.ok(&["status"]);
    house.ok(&["list"]);
    house.ok(&["cam", "attach", "mps0", "disks=1", "size=1MiB"]);
    let mut looks = asked(&house, &["cam", "rescan"]);
    house.ok(&["cam", "inquiry", "da0"]);
    assert!(waits.ended().unwrap().is_none(), "it did not wait: {}", waits.output());
    house.ok(&["cam", "detach", "mute0"]);
    assert!(!has_bus(&house));
    house.until("both have ended", LIMIT, || {
        waits.ended().unwrap().is_some() && looks.ended().unwrap().is_some()
    });
    assert!(waits.output().contains("detached"), "{}", waits.output());
    // A bus of the configuration is the start's own business: a start waits, and no longer than
    // for a scan.
    house.assert_alive();
    house.stop();
}
