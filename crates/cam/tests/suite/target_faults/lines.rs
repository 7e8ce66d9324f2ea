//! Faults between a target and the initiator, temporary or permanent: digests, the command window,
//! redirections, refused logins. The tests check the result for the disk's user and the state of
//! the bus.

use std::net::SocketAddr;

use serde_json::json;

use super::hang::{attach_at, whys};
use super::host::{Host, Status, status};
use super::table::{GONE, LATE};
use super::target::{Disk, OTHER, OWN, Target};
use super::{MS, S, portal, ways};
use crate::iscsi::peer::{SECTOR, Ways};
use crate::world::World;

fn nowhere() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], 3260))
}

#[derive(Clone, Copy)]
enum LinkFault {
    HeaderDigests(u32),
    DataDigests(u32),
    /// No command may be sent.
    Window,
    Moved,
    Busy,
    Deaf,
}

struct Row {
    name: &'static str,
    fault: LinkFault,
    /// How long it lasts; 0: as many PDUs as it counts, `u64::MAX`: for ever.
    lasts_ns: u64,
    after: Disk,
    /// Status that a host gets for a WRITE and a READ.
    host_status: &'static str,
    /// The text of `status` while it lasts; empty: nothing.
    status_text: &'static str,
    /// Lines of `status` afterwards, the last error of the disk after them.
    remains: &'static [&'static str],
    /// Its word then.
    severity: &'static str,
    within_s: u64,
}

const EXCHANGED: &[&str] = &["a different disk answers"];

const fn row(name: &'static str, what: LinkFault, lasts_ns: u64, says: &'static str) -> Row {
    let (gets, remains) = ("GOOD", &[]);
    Row {
        name,
        fault: what,
        lasts_ns,
        after: OWN,
        host_status: gets,
        status_text: says,
        remains,
        severity: "OK",
        within_s: 12,
    }
}

const fn lost(name: &'static str, what: LinkFault, says: &'static str, remains: Remains) -> Row {
    let word = "FAILED";
    Row {
        host_status: GONE,
        remains,
        severity: word,
        within_s: 15,
        ..row(name, what, u64::MAX, says)
    }
}

const fn other_disk_row(
    name: &'static str,
    what: LinkFault,
    lasts_ns: u64,
    says: &'static str,
) -> Row {
    let (after, word) = (OTHER, "FAILED");
    Row {
        after,
        host_status: GONE,
        remains: EXCHANGED,
        severity: word,
        ..row(name, what, lasts_ns, says)
    }
}

type Remains = &'static [&'static str];

const HEADER: &str = "HeaderDigest does not match its bytes";
const DATA: &str = "DataDigest does not match its bytes";
const REFUSED: &str = "Connection refused";
const SERVICE: &str = "login refused: the service is not available now";

const ROWS: &[Row] = &[
    row("one header digest", LinkFault::HeaderDigests(1), 0, HEADER),
    row("five header digests", LinkFault::HeaderDigests(5), 0, HEADER),
    row("one data digest", LinkFault::DataDigests(1), 0, DATA),
    row("five data digests", LinkFault::DataDigests(5), 0, DATA),
    other_disk_row("one header digest, another disk", LinkFault::HeaderDigests(1), 0, HEADER),
    other_disk_row("one data digest, another disk", LinkFault::DataDigests(1), 0, DATA),
    row("a closed window for 5 s", LinkFault::Window, 5 * S, ""),
    Row {
        host_status: LATE,
        remains: &["is not answered; requests fail after 60 s", "the command timed out, timed out"],
        severity: "DEGRADED",
        within_s: 61,
        ..row("a closed window for ever", LinkFault::Window, u64::MAX, "is not answered")
    },
    row("sent to a dead portal for 4 s", LinkFault::Moved, 4 * S, REFUSED),
    other_disk_row("sent to a dead portal for 4 s, another disk", LinkFault::Moved, 4 * S, REFUSED),
    lost("sent to a dead portal for ever", LinkFault::Moved, REFUSED, &[REFUSED]),
    row("logins refused for 4 s", LinkFault::Busy, 4 * S, SERVICE),
    other_disk_row("logins refused for 4 s, another disk", LinkFault::Busy, 4 * S, SERVICE),
    lost("logins refused for ever", LinkFault::Busy, SERVICE, &[SERVICE]),
    row("silent for 4 s", LinkFault::Deaf, 4 * S, ""),
    lost(
        "silent for ever",
        LinkFault::Deaf,
        "the target is silent",
        &["the login is not answered"],
    ),
];

fn set(target: &Target, what: LinkFault, on: bool) {
    let peer = &target.peer;
    match what {
        LinkFault::HeaderDigests(n) => peer.spoils[0].set(if on { n } else { 0 }),
        LinkFault::DataDigests(n) => peer.spoils[1].set(if on { n } else { 0 }),
        LinkFault::Window => peer.ways.borrow_mut().window = if on { 0 } else { 8 },
        LinkFault::Moved => peer.moved.set(on.then(|| (portal(), nowhere()))),
        LinkFault::Busy => peer.busy.set(on),
        LinkFault::Deaf => peer.deaf.set(on),
    }
    if on && matches!(what, LinkFault::Moved | LinkFault::Busy) {
        peer.kill();
    }
}

fn run(n: usize, row: &Row) {
    let mut w = World::with(n as u64, &[]);
    let ways = Ways { digests: true, ..ways(8) };
    let target = Target::start(&w.core, portal(), OWN, n as u64, ways);
    attach_at(&mut w, ("iscsi0", portal(), "da0"), &json!({}));
    let host = Host::login(&mut w, "da0");
    assert_eq!(host.write(&mut w, 0, 1).words(), "GOOD");
    if let LinkFault::Window = row.fault {
        target.peer.ways.borrow_mut().window = 0;
        // The command window that was granted to the initiator is used up.
        for _ in 0..8 {
            assert_eq!(host.read(&mut w, 0).words(), "GOOD");
        }
    }
    let old = (row.after != OWN)
        .then(|| target.exchange(row.after.clone(), vec![0; OTHER.sectors * SECTOR]));
    set(&target, row.fault, true);
    if old.is_some() {
        // No session continues over the exchange.
        target.peer.kill();
    }
    let began = w.now();
    let tags = [host.send_write(9, 9), host.send_read(0)];
    let (mut ended, mut reasons) = (Vec::new(), Vec::new());
    let mut lasts = row.lasts_ns > 0;
    while ended.len() < tags.len() {
        let took = w.now() - began;
        assert!(took < row.within_s * S, "{}: {} ended in time", row.name, ended.len());
        w.turn(20 * MS);
        ended.extend(host.ended());
        reasons.extend(whys(&w).into_iter().map(|(why, _)| why));
        if lasts && took >= row.lasts_ns {
            set(&target, row.fault, false);
            lasts = false;
        }
    }
    for end in &ended {
        assert_eq!(end.words(), row.host_status, "{}: {}", row.name, end.tag);
        assert!(end.words() != "GOOD" || end.tag == tags[0] || end.data == [1; SECTOR]);
    }
    (0..100).for_each(|_| w.turn(20 * MS));
    let says = reasons.iter().any(|why| why.contains(row.status_text));
    assert!(
        if row.status_text.is_empty() { reasons.is_empty() } else { says },
        "{}: {reasons:?}",
        row.name
    );
    let Status { severity: word, troubles: now } = status(&mut w);
    assert_eq!(word, row.severity, "{}: {now:?}", row.name);
    let fits = now.iter().zip(row.remains).all(|(now, wanted)| now.contains(wanted));
    assert!(fits && now.len() == row.remains.len(), "{}: {now:?}", row.name);
    let now = target.peer.bytes.borrow().clone();
    let written = now[9 * SECTOR..10 * SECTOR] == [9; SECTOR];
    assert_eq!(written, row.host_status == "GOOD", "{}", row.name);
    if let Some(old) = old {
        assert!(now.iter().all(|b| *b == 0) && old[0] == 1, "{}", row.name);
        return;
    }
    // It is as it was once that is over, by itself.
    set(&target, row.fault, false);
    if row.host_status == GONE {
        target.peer.cut();
    }
    let end = w.now() + 60 * S;
    while w.buses_at_work() < 1 {
        assert!(w.now() < end, "{}: the disk comes back", row.name);
        w.turn(100 * MS);
        w.cam.clone().take_update_results(&mut w.control);
    }
}

impl World {
    /// Disks that are in the graph and not lost.
    fn buses_at_work(&self) -> usize {
        let devices = self.cam.buses().into_iter().flat_map(|bus| bus.devices());
        devices.filter(|(unit, _, name)| !name.is_empty() && !unit.inspect(|d| d.is_lost())).count()
    }
}

#[test]
fn network_faults_have_the_effects_listed_in_the_table() {
    ROWS.iter().enumerate().for_each(|(n, row)| run(n, row));
}
