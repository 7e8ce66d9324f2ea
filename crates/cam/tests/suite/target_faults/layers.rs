//! Unreadable blocks of a medium below each class of layers: the block that hosts get in sense
//! data.
//!
//! INFORMATION of sense data is a block of the disk that answers. A layer passes it on as the byte
//! of the request, where each byte of the request is on one member. So hosts get the block of their
//! own disk. Where a byte is made of several members (class `raid` with copies or parity), it is
//! left out.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::hang::attach_at;
use super::host::Host;
use super::target::{Disk, OTHER, OWN, Target};
use super::{MS, ways};
use crate::iscsi::peer::SECTOR;
use crate::world::World;

const SECTORS: usize = 8192;
/// Blocks of a read or write.
const COUNT: u8 = 24;

struct Row {
    /// A verb of a class, the name that it is given, and its parameters: each in turn.
    verbs: fn() -> Vec<(&'static str, &'static str, &'static str, Value)>,
    provider: &'static str,
    /// Disks that it is made of.
    disks: usize,
    /// The first block of requests.
    from: u64,
    /// Blocks that are lost, each by itself.
    lost: &'static [u64],
    /// Whether hosts get the block number: of a READ, of a WRITE.
    reports_block: (bool, bool),
}

fn two() -> Value {
    json!(["da0", "da1"])
}

fn volume(level: &str, members: &Value) -> Value {
    json!({
        "format": "Intel", "level": level, "members": members, "strip": 4096,
        "size": 1 << 20, "assume_same": true,
    })
}

/// A disk without a layer.
const DISK: Row = Row {
    verbs: Vec::new,
    provider: "da0",
    disks: 1,
    from: 8,
    lost: &[8, 13, 31],
    reports_block: (true, true),
};
/// Two disks in strips of eight blocks.
const STRIPED: Row = Row { disks: 2, from: 4, lost: &[4, 7, 8, 15, 16, 23, 27], ..DISK };

const ROWS: &[Row] = &[
    DISK,
    Row {
        verbs: || {
            let part = json!({ "kind": "linux-data" });
            vec![
                ("part", "create", "da0", json!({ "scheme": "gpt" })),
                ("part", "add", "da0", part),
            ]
        },
        provider: "da0p1",
        ..DISK
    },
    Row {
        verbs: || vec![("sched", "create", "", json!({ "disks": ["da0"] }))],
        provider: "da0.sched.",
        lost: &[13],
        ..DISK
    },
    Row {
        verbs: || vec![("concat", "create", "c", json!({ "members": two() }))],
        provider: "concat/c",
        disks: 2,
        // Of both members.
        from: SECTORS as u64 - 12,
        lost: &[SECTORS as u64 - 12, SECTORS as u64 - 1, SECTORS as u64, SECTORS as u64 + 11],
        ..DISK
    },
    Row {
        verbs: || vec![("stripe", "create", "s", json!({ "members": two(), "strip": 4096 }))],
        provider: "stripe/s",
        ..STRIPED
    },
    Row {
        verbs: || vec![("mirror", "label", "m", json!({ "members": two(), "assume_same": true }))],
        provider: "mirror/m",
        disks: 2,
        reports_block: (true, false),
        ..DISK
    },
    Row {
        verbs: || vec![("raid", "label", "r", volume("RAID0", &two()))],
        provider: "raid/r",
        ..STRIPED
    },
    Row {
        verbs: || vec![("raid", "label", "r", volume("RAID1", &two()))],
        provider: "raid/r",
        disks: 2,
        lost: &[13],
        reports_block: (false, false),
        ..DISK
    },
    Row {
        verbs: || vec![("raid", "label", "r", volume("RAID5", &json!(["da0", "da1", "da2"])))],
        provider: "raid/r",
        disks: 3,
        from: 4,
        lost: &[7, 16],
        reports_block: (false, false),
    },
];

/// The row's provider, exported.
fn make(w: &mut World, row: &Row) -> (Vec<Target>, Host) {
    let mut targets = Vec::new();
    for n in 0..row.disks {
        let at = SocketAddr::from(([10, 0, n as u8, 1], 3260));
        let (own, serial) = if n == 0 { (OWN, "OWN") } else { (OTHER, ["B", "C"][n - 1]) };
        let disk = Disk { sectors: SECTORS, serial, naa: own.naa + n as u64, ..own };
        targets.push(Target::start(&w.core, at, disk, n as u64, ways(8)));
        attach_at(w, (&format!("iscsi{n}"), at, &format!("da{n}")), &json!({}));
    }
    let classes: Vec<_> = classes::all();
    classes.iter().for_each(|class| w.control.topology.load(class.clone()).unwrap());
    for (class, verb, on, params) in (row.verbs)() {
        let class = classes.iter().find(|c| c.name() == class).unwrap();
        class.verb(&mut w.control, verb, on, &params).unwrap();
        (0..50).for_each(|_| w.turn(20 * MS));
    }
    let name = match row.provider {
        "raid/r" => w.provider_of("raid"),
        name => name.into(),
    };
    let host = Host::login(w, &name);
    (targets, host)
}

impl World {
    fn provider_of(&mut self, class: &str) -> String {
        let view = self.control.topology.view(0);
        let mut all = view.iter().filter(|g| g.class == class).flat_map(|g| &g.providers);
        all.next().unwrap().name.clone()
    }
}

/// Where a block is, on each disk.
fn places(target: &Target, byte: u8) -> Vec<u64> {
    let bytes = target.peer.bytes.borrow();
    let sectors = bytes.chunks(SECTOR).enumerate();
    let here = sectors.filter(|(_, sector)| sector.iter().all(|b| *b == byte));
    here.map(|(at, _)| at as u64).collect()
}

#[test]
fn medium_errors_name_the_block_of_the_disk_that_the_host_sees() {
    for row in ROWS {
        for lost in row.lost {
            for (is_read, tells) in [(true, row.reports_block.0), (false, row.reports_block.1)] {
                let name = format!("{}: block {lost}, read: {is_read}", row.provider);
                let mut w = World::with(*lost, &[]);
                let (targets, host) = make(&mut w, row);
                assert_eq!(host.write(&mut w, *lost, 0xa7).words(), "GOOD", "{name}");
                let places: Vec<Vec<u64>> = targets.iter().map(|t| places(t, 0xa7)).collect();
                assert!(places.iter().any(|places| !places.is_empty()), "{name}: it is somewhere");
                targets.iter().zip(places).for_each(|(target, places)| target.loses(places));
                let answer = match is_read {
                    true => host.read_blocks(&mut w, row.from, COUNT),
                    false => host.write_blocks(&mut w, row.from, COUNT, 0x11),
                };
                let code = if is_read { "03/11/00" } else { "03/0c/00" };
                let at = if tells { format!("{code} at {lost}") } else { code.into() };
                assert_eq!(answer.words(), at, "{name}");
            }
        }
    }
}
