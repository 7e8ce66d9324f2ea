//! Growth of a partition under a label at its end, with a power cut at each step. The label is
//! found at the partition's end according to the table on the media, or `relocate` finds it within.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde_json::json;

use super::disk::Disk;
use super::life::{Life, PowerCut};

const DISK: u64 = 96 << 10;
const PART: u64 = 24 << 10;

/// Two disks with one partition each, and a geom on both partitions, whose name is returned.
fn partitioned(class: &str, scheme: &str) -> (Life, BTreeMap<String, Disk>, [String; 2]) {
    let disk = |i: u64| (format!("d{i}"), Disk::new(DISK, i));
    let disks: BTreeMap<String, Disk> = (0..2).map(disk).collect();
    let mut life = Life::new(1, 2);
    disks.iter().for_each(|(name, disk)| life.plug(name, disk));
    life.settle();
    let (kind, suffix) = if scheme == "gpt" { ("linux-data", "p1") } else { ("freebsd", "s1") };
    let parts = ["d0", "d1"].map(|name| {
        life.verb("part", "create", name, json!({ "scheme": scheme })).expect("a table");
        let with = json!({ "kind": kind, "size": { "bytes": PART } });
        life.verb("part", "add", name, with).expect("a partition");
        format!("{name}{suffix}")
    });
    let mut with = json!({ "members": parts });
    if class == "raid" {
        (with["format"], with["level"]) = (json!("Intel"), json!("RAID1"));
        with["assume_same"] = json!(true);
    }
    if class == "stripe" {
        with["strip"] = json!(4096);
    }
    life.verb(class, "label", "w", with).expect("labelled");
    life.settle();
    (life, disks, parts)
}

/// The provider over the partitions, if it is up.
fn volume(life: &Life, class: &str) -> Option<String> {
    let mut all = life.geoms(class).into_iter().flat_map(|g| g.providers);
    all.next().map(|p| p.name)
}

fn recovers_after_each_cut(class: &str, scheme: &str, how: fn(&mut Life, &str)) {
    let mut brought = 0;
    for fuse in 0.. {
        let (mut life, disks, parts) = partitioned(class, scheme);
        life.fuse.set(fuse);
        let done = catch_unwind(AssertUnwindSafe(|| how(&mut life, "d1")));
        let cut = match done {
            Ok(()) => false,
            Err(why) if why.is::<PowerCut>() => true,
            Err(why) => resume_unwind(why),
        };
        drop(life);
        let mut life = Life::new(2, 2);
        disks.values().for_each(Disk::power_cut);
        disks.iter().for_each(|(name, disk)| life.plug(name, disk));
        life.settle();
        let used = |life: &Life| {
            let all = life.geoms(class).into_iter().flat_map(|g| g.consumers);
            all.filter_map(|c| c.provider).any(|p| p == parts[1])
        };
        if !used(&life) {
            let follow = json!({ "member": parts[1], "force": true });
            let done = life.verb(class, "relocate", "", follow);
            done.unwrap_or_else(|e| {
                panic!("{class} {scheme}, fuse {fuse}: {e}\n{}", life.dump_state())
            });
            brought += 1;
        }
        assert!(used(&life), "{class} {scheme}, fuse {fuse}\n{}", life.dump_state());
        let up = life.until(20, |_| true) && volume(&life, class).is_some();
        assert!(up, "{class} {scheme}, fuse {fuse}\n{}", life.dump_state());
        if !cut {
            assert!(fuse > 20, "{fuse}");
            assert!(brought > 0, "{class} {scheme}: the label moved before the table");
            return;
        }
    }
}

const CLASSES: [&str; 4] = ["stripe", "concat", "mirror", "raid"];

#[test]
fn a_label_is_found_after_a_power_cut_while_its_partition_grows() {
    for class in CLASSES {
        for scheme in ["gpt", "mbr"] {
            recovers_after_each_cut(class, scheme, |life, on| {
                life.verb("part", "resize", on, json!({ "index": 1 })).expect("resized");
            });
        }
    }
}

/// Layers above do not see an uncommitted change: it may be undone.
#[test]
fn layers_above_see_the_larger_size_after_the_commit() {
    for class in CLASSES {
        let (mut life, disks, parts) = partitioned(class, "gpt");
        let size = |life: &Life| {
            let on = life.control.topology.find(&parts[1]).expect("a partition");
            life.control.topology.limits(on).expect("limits").media_bytes
        };
        let larger = json!({ "index": 1, "no_commit": true });
        life.verb("part", "resize", "d1", larger.clone()).expect("resized");
        life.settle();
        assert_eq!(size(&life), PART, "{class}");
        life.verb("part", "undo", "d1", json!({})).expect("undone");
        life.settle();
        assert_eq!(size(&life), PART, "{class}");
        drop(life);
        disks.values().for_each(Disk::power_cut);
        let mut life = Life::new(2, 2);
        disks.iter().for_each(|(name, disk)| life.plug(name, disk));
        life.settle();
        assert!(volume(&life, class).is_some(), "{class}\n{}", life.dump_state());
        life.verb("part", "resize", "d1", larger).expect("resized");
        life.verb("part", "commit", "d1", json!({})).expect("committed");
        life.settle();
        assert!(size(&life) > PART, "{class}");
    }
}
