//! A DELETE of several ranges on its way down. It stays one request where all layers below support
//! that, is cut where one does not, and never covers more than its ranges.

use std::ops::Range;

use bio::{Bio, Errno, Op};
use geom::{Access, Create, Deletes as Limits, Edge};
use serde_json::{Value, json};

use super::late::{Deletes, LateDisk};
use super::{K, MS, SIZE};
use crate::sim::life::Life;

fn world(ranges: u32) -> (Life, LateDisk) {
    let mut life = Life::with(1, 2, classes::all());
    let disk = LateDisk::of_ranges(SIZE, 1, Deletes::Take(MS), ranges);
    disk.attach(&mut life.control.topology, "d0", 4096);
    life.settle();
    (life, disk)
}

/// Status and bytes done.
fn delete(life: &mut Life, edge: Edge, ranges: &[Range<u64>]) -> (Result<(), Errno>, u64) {
    let ranges = ranges.to_vec();
    life.control
        .run_on_core("test", move |core| {
            Box::pin(async move {
                let ask = |b: &mut Bio| assert!(b.delete_ranges(&ranges), "in order");
                let done = core.io(edge, ask).await;
                (done.status, done.completed)
            })
        })
        .expect("a core")
}

fn took(disk: &LateDisk) -> (u64, Vec<Range<u64>>) {
    let mut inside = disk.lock();
    (std::mem::take(&mut inside.commands), std::mem::take(&mut inside.seen))
}

const THREE: [Range<u64>; 3] = [4096..8192, 16384..32768, 65536..69632];

/// X2, and D1 and D5 for each range.
/// X2 of bio/src/scatter.rs.
#[test]
fn a_list_of_ranges_is_cut_to_the_limit_of_the_layer_below() {
    for (most, commands) in [(1, 3), (2, 2), (3, 1), (64, 1)] {
        let (mut life, disk) = world(most);
        let (_, edge) = life.open("d0", Access::WRITE).expect("open");
        assert_eq!(delete(&mut life, edge, &THREE), (Ok(()), 24 * K));
        assert_eq!(took(&disk), (commands, THREE.to_vec()), "of {most}");
        let odd = [0..512, 1024..1500];
        assert_eq!(delete(&mut life, edge, &odd).0, Err(Errno::Inval), "misaligned");
        let behind = [SIZE - 4096..SIZE - 2048, SIZE - 1024..SIZE + 4096, SIZE + 8192..SIZE + 9216];
        assert_eq!(delete(&mut life, edge, &behind), (Ok(()), 3072), "cut at the end");
        assert_eq!(took(&disk).1, [SIZE - 4096..SIZE - 2048, SIZE - 1024..SIZE]);
        let beyond = [SIZE + 512..SIZE + 1024, SIZE + 2048..SIZE + 4096];
        assert_eq!(delete(&mut life, edge, &beyond).0, Err(Errno::Io));
        assert_eq!(took(&disk), (0, vec![]));
    }
}

/// X2: a member that is to have zeroes instead gets them one range at a time.
#[test]
fn write_zeroes_with_a_list_zeroes_only_its_ranges() {
    let (mut life, _) = world(64);
    let (_, edge) = life.open("d0", Access::WRITE).expect("open");
    life.write(edge, 0, vec![9; 96 << 10]).expect("write");
    let done = life.control.run_on_core("test", move |core| {
        Box::pin(async move {
            let ask = |b: &mut Bio| {
                assert!(b.delete_ranges(&THREE), "in order");
                b.op = Op::WriteZeroes;
            };
            let done = core.io(edge, ask).await;
            (done.status, done.completed)
        })
    });
    assert_eq!(done.expect("a core"), (Ok(()), 24 * K));
    let bytes = life.read(edge, 0, 96 << 10).expect("read");
    for (at, byte) in bytes.iter().enumerate() {
        let zeroed = THREE.iter().any(|r| r.contains(&(at as u64)));
        assert_eq!(*byte, if zeroed { 0 } else { 9 }, "byte {at}");
    }
}

#[test]
fn pass_through_classes_forward_a_list_whole() {
    let (mut life, disk) = world(64);
    make(&mut life, "nop", "n", &["d0"], json!({ "offset": 8192 }));
    make(&mut life, "sched", "s", &["n"], json!({}));
    let (_, edge) = life.open("s", Access::WRITE).expect("open");
    assert_eq!(delete(&mut life, edge, &THREE), (Ok(()), 24 * K));
    let moved: Vec<_> = THREE.iter().map(|r| r.start + 8192..r.end + 8192).collect();
    assert_eq!(took(&disk), (1, moved), "moved, and still one");
    let below = limits(&life, "s");
    assert_eq!((below.granule, below.offset, below.ranges), (4096, Some(0), 64));
}

#[test]
fn a_queue_accepts_a_list_and_sends_waiting_ranges_as_one_command() {
    for (most, commands) in [(1, 3), (64, 1)] {
        let (mut life, disk) = world(most);
        let params = json!({ "short": 0, "quiet_ms": 1_000, "share": 100 });
        life.verb("trim", "create", "d0", params).expect("create");
        let (_, edge) = life.open("d0.trim", Access::WRITE).expect("open");
        assert_eq!(delete(&mut life, edge, &THREE), (Ok(()), 24 * K), "acknowledged at once");
        assert_eq!(took(&disk), (0, vec![]));
        life.pass(3_000 * MS);
        assert_eq!(took(&disk), (commands, THREE.to_vec()));
    }
}

#[test]
fn a_list_passes_whole_through_a_queue_that_keeps_zeroes() {
    let (mut life, disk) = world(64);
    disk.lock().zeroes = true;
    life.verb("trim", "create", "d0", json!({ "zeroes": "keep" })).expect("create");
    let (_, edge) = life.open("d0.trim", Access::WRITE).expect("open");
    life.write(edge, 0, vec![7; 64 << 10]).expect("write");
    life.write(edge, 8192, vec![9; 8192]).expect("write");
    assert_eq!(delete(&mut life, edge, &THREE), (Ok(()), 24 * K));
    assert_eq!(took(&disk), (1, THREE.to_vec()), "as one");
    let kept = life.read(edge, 8192, 8192);
    assert_eq!(kept, Ok(vec![9; 8192]), "what lies between two ranges is nobody's to delete");
}

fn limits(life: &Life, name: &str) -> Limits {
    let t = &life.control.topology;
    t.deletes(t.find(name).expect("there"))
}

/// Each member receives its ranges in one request; adjacent ranges become one.
/// M4 of span/map.rs.
#[test]
fn each_member_receives_its_ranges_in_one_command() {
    let mut life = Life::with(1, 2, classes::all());
    let disks: Vec<LateDisk> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let disk = LateDisk::of_ranges(SIZE, 1, Deletes::Take(MS), 64);
            disk.attach(&mut life.control.topology, name, 4096);
            disk
        })
        .collect();
    life.settle();
    let all = |disks: &[LateDisk]| disks.iter().map(took).collect::<Vec<_>>();
    // Between the strips of the others: 0 to 4 and 4 to 12 KiB of a, none of c.
    let ranges = [0..4 * K, 12 * K..15 * K, 16 * K..20 * K, 24 * K..32 * K];
    make(&mut life, "stripe", "s", &["a", "b", "c"], json!({ "strip": 8192 }));
    let (user, edge) = life.open("stripe/s", Access::WRITE).expect("open");
    assert_eq!(delete(&mut life, edge, &ranges), (Ok(()), 19 * K));
    let seen = all(&disks);
    assert_eq!(seen[0], (1, vec![0..4 * K, 8 * K..16 * K]), "24 KiB is its second strip");
    assert_eq!(seen[1], (1, vec![4 * K..7 * K]));
    assert_eq!(seen[2], (1, vec![0..4 * K]));
    assert_eq!(delete(&mut life, edge, &[K..2 * K, 3 * K..5 * K]), (Ok(()), 3 * K));
    assert_eq!(all(&disks)[0], (1, vec![K..2 * K, 3 * K..5 * K]), "within one strip");
    let touch = [4 * K..8 * K, 24 * K..30 * K, 47 * K..49 * K];
    assert_eq!(delete(&mut life, edge, &touch), (Ok(()), 12 * K));
    assert_eq!(all(&disks)[0], (1, vec![4 * K..14 * K, 16 * K..17 * K]), "what touches is one");
    life.close(user);
    life.verb("stripe", "destroy", "s", json!({})).expect("destroyed");
    make(&mut life, "concat", "c", &["a", "b"], json!({}));
    let (user, edge) = life.open("concat/c", Access::WRITE).expect("open");
    let ranges = [0..K, SIZE - 4 * K..SIZE + 2 * K, SIZE + 8 * K..SIZE + 9 * K];
    assert_eq!(delete(&mut life, edge, &ranges), (Ok(()), 8 * K));
    let seen = all(&disks);
    assert_eq!(seen[0], (1, vec![0..K, SIZE - 4 * K..SIZE]));
    assert_eq!(seen[1], (1, vec![0..2 * K, 8 * K..9 * K]));
    life.close(user);
}

/// Limits of the layers below, as seen from above: a part amid a granule, a stripe, a mirror.
#[test]
fn granule_offsets_are_reported_as_seen_from_above() {
    let (mut life, disk) = world(64);
    make(&mut life, "nop", "n", &["d0"], json!({ "offset": 512 }));
    let seen = limits(&life, "n");
    assert_eq!((seen.granule, seen.offset, seen.ranges), (4096, Some(3584), 64));
    life.verb("trim", "create", "n", json!({ "as": "t" })).expect("trim");
    let queue = limits(&life, "t");
    assert_eq!((queue.granule, queue.offset, queue.ranges), (4096, Some(3584), u32::MAX));
    let (_, edge) = life.open("t", Access::WRITE).expect("open");
    assert_eq!(delete(&mut life, edge, &[0..64 * K]).0, Ok(()));
    life.verb("trim", "now", "t", json!({ "wait": true })).expect("now");
    let deletes = took(&disk).1;
    assert_eq!(deletes, [4096..65536], "whole granules of the disk, where the disk has them");
}

#[test]
fn limits_of_members_are_combined_or_reported_as_unequal() {
    let mut life = Life::with(1, 2, classes::all());
    let disks = [("a", 4096u64), ("b", 8192), ("c", 65536), ("d", 65536), ("e", 4096), ("f", 4096)];
    for (name, granule) in disks {
        let disk = LateDisk::of_ranges(SIZE, 1, Deletes::Take(MS), 64);
        disk.attach(&mut life.control.topology, name, granule);
    }
    life.settle();
    let seen = |life: &Life, name: &str| {
        let seen = limits(life, name);
        (seen.granule, seen.offset, seen.ranges)
    };
    make(&mut life, "stripe", "fits", &["a", "b"], json!({ "strip": 32768 }));
    assert_eq!(seen(&life, "stripe/fits"), (8192, Some(0), 64), "strips are whole granules");
    make(&mut life, "stripe", "wide", &["c", "d"], json!({ "strip": 16384 }));
    assert_eq!(seen(&life, "stripe/wide"), (131_072, Some(0), 64), "a granule is four rows");
    make(&mut life, "nop", "odd", &["f"], json!({ "offset": 512 }));
    make(&mut life, "concat", "apart", &["e", "odd"], json!({}));
    assert_eq!(seen(&life, "concat/apart"), (4096, None, 64), "no common first granule");
}

/// A member is added that takes less: waiting ranges are sent within its limits.
#[test]
fn a_queue_updates_its_limits_when_the_layers_below_change() {
    let mut life = Life::with(1, 2, classes::all());
    let disks = ["a", "b", "c"].map(|name| {
        let (granule, ranges) = if name == "c" { (16384, 2) } else { (4096, 64) };
        let disk = LateDisk::of_ranges(SIZE, 1, Deletes::Take(MS), ranges);
        disk.attach(&mut life.control.topology, name, granule);
        disk
    });
    life.settle();
    life.verb("mirror", "label", "m", json!({ "members": ["a", "b"] })).expect("labelled");
    life.pass(1_000 * MS);
    life.verb("trim", "create", "mirror/m", json!({ "as": "t", "short": 0, "quiet_ms": 5_000 }))
        .expect("create");
    let (_, edge) = life.open("t", Access::WRITE).expect("open");
    let text = |life: &Life, key: &str| {
        let view = life.control.topology.view(0);
        let geom = view.iter().find(|g| g.class == "trim").expect("there").show.clone();
        geom.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone()).expect("shown")
    };
    assert_eq!(
        (text(&life, "granule"), text(&life, "ranges a command")),
        ("4096".into(), "64".into())
    );
    let ranges = [0..4 * K, 16 * K..33 * K, 48 * K..64 * K, 128 * K..144 * K];
    assert_eq!(delete(&mut life, edge, &ranges), (Ok(()), 53 * K));
    life.verb("mirror", "insert", "m", json!({ "members": ["c"] })).expect("inserted");
    assert_eq!(
        (text(&life, "granule"), text(&life, "ranges a command")),
        ("16384".into(), "2".into())
    );
    disks.iter().for_each(|disk| drop(took(disk)));
    life.pass(20_000 * MS);
    let (commands, seen) = took(&disks[2]);
    assert_eq!((commands, seen), (2, vec![16 * K..32 * K, 48 * K..64 * K, 128 * K..144 * K]));
    life.verb("mirror", "remove", "m", json!({ "members": ["c"] })).expect("removed");
    life.pass(1_000 * MS);
    assert_eq!(
        (text(&life, "granule"), text(&life, "ranges a command")),
        ("4096".into(), "64".into())
    );
}

fn make(life: &mut Life, class: &str, name: &str, on: &[&str], params: Value) {
    let made = life.control.call(|t| {
        let members: Vec<_> = on.iter().map(|p| t.find(p).expect("a member")).collect();
        let class = t.class(class).expect("a class");
        class.create(t, &Create { name, members: &members, params: &params })
    });
    made.unwrap_or_else(|e| panic!("{class} {name}: {e}"));
}
