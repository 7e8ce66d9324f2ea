//! Two portals, each of a target of its own, as paths of one multipath device: what one of them
//! does to its path, and where writes go.

use std::net::SocketAddr;
use std::sync::Arc;

use bio::{Errno, Flags, Op};
use classes::multipath::MultipathClass;
use geom::{Class, Edge, Error};
use serde_json::{Value, json};
use wire::iscsi::RejectReason;

use super::hang::{attach_at, whys};
use super::table::reply;
use super::target::{Disk, MUTE, ODD, OTHER, OWN, Reply, Target};
use super::{BUSY, MS, S, portal, ways};
use crate::iscsi::peer::{Odd, SECTOR};
use crate::world::{World, range};

fn second() -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1], 3260))
}

fn create(w: &mut World) -> Result<Value, Error> {
    let class = Arc::new(MultipathClass::default());
    w.control.topology.load(class.clone()).unwrap();
    class.verb(&mut w.control, "create", "m", &json!({ "members": ["da0", "da1"] }))
}

/// Two targets with the same disk, as far as it says.
fn two(w: &mut World, disks: [Disk; 2]) -> [Target; 2] {
    let [a, b] = disks;
    let own = Target::start(&w.core, portal(), a, 1, ways(8));
    let other = Target::start(&w.core, second(), b, 2, ways(8));
    let bounds = json!({ "timeout_s": 5, "request_deadline_s": 12 });
    attach_at(w, ("iscsi0", portal(), "da0"), &bounds);
    attach_at(w, ("iscsi1", second(), "da1"), &bounds);
    [own, other]
}

fn device(w: &mut World) -> ([Target; 2], Edge) {
    let targets = two(w, [OWN, OWN]);
    create(w).unwrap();
    // The record is on both: as if it were one disk.
    let bytes = targets[0].peer.bytes.borrow().clone();
    targets[1].peer.bytes.borrow_mut().copy_from_slice(&bytes);
    w.turn(100 * MS);
    let edge = w.open("multipath/m").1;
    w.write(edge, 0, &[1; SECTOR], Flags::NONE).unwrap();
    (targets, edge)
}

fn unsupported() -> Odd {
    Odd::Reject(RejectReason::Protocol)
}

/// What happens to the first path.
enum Row {
    Reply(&'static str, Reply),
    /// It restarts with this disk.
    Restart(&'static str, Disk),
    /// It ends for good.
    End(&'static str),
    /// Logins are refused, or sent to a dead portal.
    Busy(&'static str),
    Moved(&'static str),
}

const fn write(status: u8) -> Reply {
    reply(0x2a, None, u32::MAX, status)
}

const fn sense(key: u8, asc: u8, ascq: u8) -> Reply {
    Reply { sense: (key, asc, ascq), ..write(2) }
}

const ROWS: &[Row] = &[
    Row::Reply("busy", write(BUSY)),
    Row::Reply("full", write(0x28)),
    Row::Reply("no answer", write(MUTE)),
    Row::Reply("rejected", Reply { odd: unsupported, ..write(ODD) }),
    Row::Reply("target failure", Reply { odd: || Odd::Failure(1), ..write(ODD) }),
    Row::Reply("the session ends", Reply { odd: || Odd::Drop, ..write(ODD) }),
    Row::Reply("no sense data", Reply { odd: || Odd::Status(2, Vec::new()), ..write(ODD) }),
    Row::Reply("transition", sense(2, 4, 0x0a)),
    Row::Reply("standby", sense(2, 4, 0x0b)),
    Row::Reply("unavailable", sense(2, 4, 0x0c)),
    Row::Reply("hardware error", sense(4, 0x44, 0)),
    Row::Reply("aborted", sense(0x0b, 0x47, 3)),
    Row::Restart("restart", OWN),
    Row::Restart("restart, another disk", OTHER),
    Row::Restart("restart, another serial number", Disk { serial: "X", ..OWN }),
    Row::Restart("restart, another NAA name", Disk { naa: OTHER.naa, ..OWN }),
    Row::End("it ends"),
    Row::Busy("logins refused"),
    Row::Moved("sent to a dead portal"),
];

fn run(row: &Row) {
    let mut w = World::with(1, &[]);
    let ([own, other], edge) = device(&mut w);
    let (name, foreign) = match row {
        Row::Reply(name, reply) => {
            own.reply(reply.clone());
            (*name, false)
        }
        Row::Restart(name, disk) => {
            own.stop();
            let is_other = *disk != OWN;
            if is_other {
                own.exchange(disk.clone(), vec![0; disk.sectors * SECTOR]);
            }
            own.open();
            (*name, is_other)
        }
        Row::End(name) => {
            own.stop();
            (*name, false)
        }
        Row::Busy(name) => {
            own.peer.busy.set(true);
            own.peer.kill();
            (*name, false)
        }
        Row::Moved(name) => {
            own.peer.moved.set(Some((portal(), SocketAddr::from(([10, 0, 0, 9], 3260)))));
            own.peer.kill();
            (*name, false)
        }
    };
    let began = w.now();
    for tag in 0..8 {
        let data = w.buffer(SECTOR);
        data.fill(0, SECTOR, 9);
        w.start(edge, tag, |bio| range(bio, Op::Write, (8 + tag) * SECTOR as u64, data));
    }
    let mut ended = Vec::new();
    while ended.len() < 8 {
        assert!(w.now() - began < 30 * S, "{name}: {} ended", ended.len());
        w.turn(20 * MS);
        ended.extend(w.ended());
    }
    assert!(ended.iter().all(|end| end.status == Ok(())), "{name}");
    (0..100).for_each(|_| w.turn(20 * MS));
    let is_on = |target: &Target, sector: usize| {
        target.peer.bytes.borrow()[sector * SECTOR..][..SECTOR] == [9; SECTOR]
    };
    for sector in 8..16 {
        assert!(is_on(&own, sector) || is_on(&other, sector), "{name}: sector {sector}");
    }
    if foreign {
        assert!(own.peer.bytes.borrow().iter().all(|b| *b == 0), "{name}: it is another disk");
        assert!(whys(&w).iter().any(|(why, _)| why.contains("another disk")), "{name}");
    }
}

#[test]
fn what_one_path_does_is_made_good_by_the_other() {
    ROWS.iter().for_each(run);
}

#[test]
fn a_reservation_conflict_on_one_path_is_the_answer_of_the_disk() {
    let mut w = World::with(1, &[]);
    let ([own, other], edge) = device(&mut w);
    own.reply(write(0x18));
    other.reply(write(0x18));
    assert_eq!(w.write(edge, 0, &[2; SECTOR], Flags::NONE), Err(Errno::Conflict));
}

/// Page 83h: two disks are not one.
#[test]
fn a_path_to_a_disk_of_another_name_is_refused() {
    for (disk, is_refused) in [(OWN, false), (Disk { naa: OTHER.naa, ..OWN }, true), (OTHER, true)]
    {
        let mut w = World::with(1, &[]);
        let _targets = two(&mut w, [OWN, disk]);
        let said = create(&mut w);
        assert_eq!(said.is_err(), is_refused, "{said:?}");
    }
}
