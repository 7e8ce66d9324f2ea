//! Two portals, each of a target of its own, as paths of one multipath device: the effect of faults
//! of one on its path, and the targets of writes.

use std::net::SocketAddr;
use std::sync::Arc;

use classes::multipath::MultipathClass;
use geom::{Class, Error};
use serde_json::{Value, json};
use wire::iscsi::RejectReason;

use super::hang::attach_at;
use super::host::{Host, Status, status};
use super::table::reply;
use super::target::{Disk, MUTE, ODD, OTHER, OWN, Reply, Target};
use super::{BUSY, MS, S, portal, ways};
use crate::iscsi::peer::{Odd, SECTOR};
use crate::world::World;

fn second() -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1], 3260))
}

fn create(w: &mut World) -> Result<Value, Error> {
    let class = Arc::new(MultipathClass::default());
    w.control.topology.load(class.clone()).unwrap();
    class.verb(&mut w.control, "create", "m", &json!({ "members": ["da0", "da1"] }))
}

/// Two targets with the same disk by its identity.
fn two(w: &mut World, disks: [Disk; 2]) -> [Target; 2] {
    let [a, b] = disks;
    let own = Target::start(&w.core, portal(), a, 1, ways(8));
    let other = Target::start(&w.core, second(), b, 2, ways(8));
    let bounds = json!({ "timeout_s": 5, "request_deadline_s": 12 });
    attach_at(w, ("iscsi0", portal(), "da0"), &bounds);
    attach_at(w, ("iscsi1", second(), "da1"), &bounds);
    [own, other]
}

/// The multipath device, and a host of it.
fn device(w: &mut World) -> ([Target; 2], Host) {
    let targets = two(w, [OWN, OWN]);
    create(w).unwrap();
    // The record is on both: as if it were one disk.
    let bytes = targets[0].peer.bytes.borrow().clone();
    targets[1].peer.bytes.borrow_mut().copy_from_slice(&bytes);
    w.turn(100 * MS);
    let host = Host::login(w, "multipath/m");
    assert_eq!(host.write(w, 0, 1).words(), "GOOD");
    assert_eq!(status(w), Status::ok(&[]));
    (targets, host)
}

fn unsupported() -> Odd {
    Odd::Reject(RejectReason::Protocol)
}

/// What happens to the first path.
enum PathFault {
    Reply(Reply),
    /// It restarts with this disk.
    Restart(Disk),
    /// It ends for good.
    End,
    /// Logins are refused, or sent to a dead portal.
    Busy,
    Moved,
}

struct Row {
    name: &'static str,
    fault: PathFault,
    /// The text of `status` afterwards about that path, the last error of its disk behind it.
    remains: &'static [&'static str],
    /// Its word.
    severity: &'static str,
}

const fn write(status: u8) -> Reply {
    reply(0x2a, None, u32::MAX, status)
}

const fn sense(key: u8, asc: u8, ascq: u8) -> Reply {
    Reply { sense: (key, asc, ascq), ..write(2) }
}

const fn odd(make: fn() -> Odd) -> Reply {
    Reply { odd: make, ..write(ODD) }
}

type Remains = &'static [&'static str];

const fn row(name: &'static str, what: PathFault, remains: Remains) -> Row {
    let word = if remains.is_empty() { "OK" } else { "FAILED" };
    Row { name, fault: what, remains, severity: word }
}

/// An error alone is history.
const fn answer(name: &'static str, reply: Reply, remains: Remains) -> Row {
    Row { severity: "OK", ..row(name, PathFault::Reply(reply), remains) }
}

const EXCHANGED: Remains = &["a different disk answers"];

const ROWS: &[Row] = &[
    answer("busy", write(BUSY), &[]),
    answer("full", write(0x28), &[]),
    Row {
        severity: "DEGRADED",
        ..answer(
            "no answer",
            write(MUTE),
            &[
                "WRITE is not answered; requests fail after 12 s",
                "the command timed out, timed out",
            ],
        )
    },
    answer("rejected", odd(unsupported), &["rejected by the target: protocol error"]),
    answer("target failure", odd(|| Odd::Failure(1)), &["target failure (iSCSI response 01)"]),
    answer("the session ends", odd(|| Odd::Drop), &["the nexus to the device was lost"]),
    answer(
        "no sense data",
        odd(|| Odd::Status(2, Vec::new())),
        &["CHECK CONDITION without sense data (SCSI status 02)"],
    ),
    answer("transition", sense(2, 4, 0x0a), &[]),
    answer("standby", sense(2, 4, 0x0b), &[]),
    answer("unavailable", sense(2, 4, 0x0c), &[]),
    answer("hardware error", sense(4, 0x44, 0), &["INTERNAL TARGET FAILURE (4/44/00)"]),
    answer("aborted", sense(0x0b, 0x47, 3), &["additional sense (b/47/03)"]),
    row("restart", PathFault::Restart(OWN), &[]),
    row("restart, another disk", PathFault::Restart(OTHER), EXCHANGED),
    row(
        "restart, another serial number",
        PathFault::Restart(Disk { serial: "X", ..OWN }),
        EXCHANGED,
    ),
    row("restart, another NAA name", PathFault::Restart(Disk { naa: OTHER.naa, ..OWN }), EXCHANGED),
    row("it ends", PathFault::End, &["the target has closed the connection"]),
    row("logins refused", PathFault::Busy, &["login refused: the service is not available now"]),
    row("sent to a dead portal", PathFault::Moved, &["Connection refused"]),
];

fn run(row: &Row) {
    let mut w = World::with(1, &[]);
    let ([own, other], host) = device(&mut w);
    let name = row.name;
    match &row.fault {
        PathFault::Reply(reply) => own.reply(reply.clone()),
        PathFault::Restart(disk) => {
            own.stop();
            if *disk != OWN {
                own.exchange(disk.clone(), vec![0; disk.sectors * SECTOR]);
            }
            own.open();
        }
        PathFault::End => own.stop(),
        PathFault::Busy => {
            own.peer.busy.set(true);
            own.peer.kill();
        }
        PathFault::Moved => {
            own.peer.moved.set(Some((portal(), SocketAddr::from(([10, 0, 0, 9], 3260)))));
            own.peer.kill();
        }
    }
    let began = w.now();
    for sector in 8..16 {
        host.send_write(sector, 9);
    }
    let mut ended = Vec::new();
    while ended.len() < 8 {
        assert!(w.now() - began < 30 * S, "{name}: {} ended", ended.len());
        w.turn(20 * MS);
        ended.extend(host.ended());
    }
    assert!(ended.iter().all(|end| end.words() == "GOOD"), "{name}: {ended:?}");
    (0..100).for_each(|_| w.turn(20 * MS));
    let is_on = |target: &Target, sector: usize| {
        target.peer.bytes.borrow()[sector * SECTOR..][..SECTOR] == [9; SECTOR]
    };
    for sector in 8..16 {
        assert!(is_on(&own, sector) || is_on(&other, sector), "{name}: sector {sector}");
    }
    if row.remains == EXCHANGED {
        assert!(own.peer.bytes.borrow().iter().all(|b| *b == 0), "{name}: it is another disk");
    }
    let Status { severity: word, troubles: now } = status(&mut w);
    assert_eq!(word, row.severity, "{name}: {now:?}");
    let fits = now.iter().zip(row.remains).all(|(now, wanted)| now.contains(wanted));
    assert!(fits && now.len() == row.remains.len(), "{name}: {now:?}");
}

#[test]
fn faults_of_one_path_are_recovered_on_the_other() {
    ROWS.iter().for_each(run);
}

#[test]
fn a_reservation_conflict_is_returned_to_the_host() {
    let mut w = World::with(1, &[]);
    let ([own, other], host) = device(&mut w);
    own.reply(write(0x18));
    other.reply(write(0x18));
    assert_eq!(host.write(&mut w, 0, 2).words(), "RESERVATION CONFLICT");
}

/// Page 83h: two disks are not one.
#[test]
fn a_path_to_a_disk_of_another_name_is_refused() {
    for (disk, is_refused) in [(OWN, false), (Disk { naa: OTHER.naa, ..OWN }, true), (OTHER, true)]
    {
        let mut w = World::with(1, &[]);
        let _targets = two(&mut w, [OWN, disk]);
        let result = create(&mut w);
        assert_eq!(result.is_err(), is_refused, "{result:?}");
    }
}
