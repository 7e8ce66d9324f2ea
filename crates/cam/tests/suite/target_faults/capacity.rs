//! Disks with unusable READ CAPACITY data.

use wire::scsi::{Capacity, read_capacity16};

use super::target::{OWN, Reply, Target};
use super::{MS, S, bus, portal, ways};
use crate::world::World;

fn whys(w: &World) -> Vec<(String, String)> {
    w.buses[0].troubles().into_iter().map(|t| (t.why, t.action)).collect()
}

/// READ CAPACITY(16) data of a disk with this last block and these blocks.
fn capacity_data(last: u64, block_len: u32) -> Vec<u8> {
    let mut data = read_capacity16(&Capacity { blocks: 1, block_len, ..Capacity::default() });
    data[..8].copy_from_slice(&last.to_be_bytes());
    data.to_vec()
}

fn look(w: &mut World, until: impl Fn(&World) -> bool) {
    let end = w.now() + 20 * S;
    while !until(w) {
        assert!(w.now() < end, "{:?}", whys(w));
        w.turn(20 * MS);
        w.cam.clone().take_update_results(&mut w.control);
    }
}

#[test]
fn a_disk_is_reported_while_its_capacity_is_unusable() {
    const BLOCKS: &str = "blocks must be a power of two from 512 to 65536 bytes";
    const END: &str = "the end is beyond the largest file offset";
    for (last, block_len, why) in [
        (63, 0, BLOCKS),
        (63, 3, BLOCKS),
        (63, 520, BLOCKS),
        (63, 1 << 20, BLOCKS),
        (1 << 63, 512, END),
        (u64::MAX, 512, END),
        (u64::MAX - 1, 512, END),
    ] {
        let mut w = World::with(1, &[]);
        let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
        target.capacity(Some(capacity_data(last, block_len)));
        let at = bus(&mut w, 10, 16);
        w.scan(at);
        look(&mut w, |w| whys(w).iter().any(|(words, _)| words.contains(why)));
        let troubles = whys(&w);
        assert_eq!(troubles.len(), 1, "{troubles:?}");
        let place = "at scbus0 target 0 lun 0 on bus iscsi0 (iqn.2026-11.test.ashlar:peer,";
        for part in [place, "is not offered", &format!(" of {block_len} bytes")] {
            assert!(troubles[0].0.contains(part), "{part}: {troubles:?}");
        }
        assert!(troubles[0].1.contains("`ashlar cam rescan 0`"), "{troubles:?}");
        let listed = w.verb("devlist", "", &serde_json::json!({})).unwrap();
        assert!(listed["text"].as_str().unwrap().contains(why), "{listed}");
        assert!(w.control.topology.find("da0").is_none());
        target.capacity(None);
        w.scan(at);
        look(&mut w, |w| w.has("da0"));
        assert_eq!(whys(&w), []);
    }
}

#[test]
fn a_disk_that_fails_read_capacity_is_reported() {
    let mut w = World::with(2, &[]);
    let target = Target::start(&w.core, portal(), OWN, 2, ways(8));
    let sense = (4, 0x44, 0);
    target.reply(Reply { sense, ..super::table::reply(0x9e, None, u32::MAX, 2) });
    let at = bus(&mut w, 10, 16);
    look(&mut w, |w| !w.buses[at].devices().is_empty());
    let troubles = whys(&w);
    let words = "is not offered: the capacity is not reported";
    assert!(troubles.len() == 1 && troubles[0].0.contains(words), "{troubles:?}");
    target.calm();
    w.scan(at);
    look(&mut w, |w| w.has("da0"));
    assert_eq!(whys(&w), []);
}

#[test]
fn a_removed_unit_is_no_longer_reported() {
    let mut w = World::with(3, &[]);
    let target = Target::start(&w.core, portal(), OWN, 3, ways(8));
    target.has_luns(3);
    target.capacity(Some(capacity_data(63, 520)));
    let at = bus(&mut w, 10, 16);
    w.scan(at);
    look(&mut w, |w| whys(w).len() == 3);
    target.has_luns(1);
    w.scan(at);
    look(&mut w, |w| whys(w).len() == 1);
}
