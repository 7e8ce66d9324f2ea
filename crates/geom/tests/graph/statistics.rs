//! Exact counters: operations, bytes, errors, time busy; per consumer and provider, also when
//! layers are inserted and consumers leave.

use bio::{Errno, Op};
use geom::{Access, Limits, Reading};

use crate::common::{Lab, Leaf, MS, Manner, Mode, SECTOR};

fn totals(r: &Reading) -> (u64, u64) {
    (r.ops.iter().sum(), r.bytes.iter().sum())
}

#[test]
fn each_operation_is_counted_once_with_its_bytes() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let (a, b) = (lab.writer("a", disk), lab.writer("b", disk));
    let before = lab.stats(disk);
    assert_eq!(totals(&before), (0, 0));
    for i in 0..5 {
        lab.io(lab.edge(a), Op::Write, i * SECTOR, SECTOR);
    }
    lab.io(lab.edge(a), Op::Flush, 0, 0);
    lab.io(lab.edge(b), Op::Read, (1 << 20) - SECTOR, 4 * SECTOR);
    lab.io(lab.edge(b), Op::Delete, 0, 8 * SECTOR);
    // Refused before the layer: it adds no time and no count.
    lab.io(lab.edge(b), Op::Read, 1, SECTOR);
    lab.io(lab.edge(b), Op::Read, 1 << 20, SECTOR);
    leaf.set(Mode::Fail(Errno::Io));
    lab.io(lab.edge(b), Op::WriteZeroes, 0, SECTOR);
    let (ra, rb, all) = (lab.consumer_stats(a), lab.consumer_stats(b), lab.stats(disk));
    let of = |r: &Reading, op: Op| (r.ops[op as usize], r.bytes[op as usize]);
    assert_eq!(of(&ra, Op::Write), (5, 5 * SECTOR));
    assert_eq!(of(&ra, Op::Flush), (1, 0));
    assert_eq!(of(&rb, Op::Read), (1, SECTOR), "what was done, not what was asked");
    assert_eq!(of(&rb, Op::Delete), (1, 8 * SECTOR));
    assert_eq!(of(&rb, Op::WriteZeroes), (1, 0));
    assert_eq!((ra.errors, rb.errors, all.errors), (0, 1, 1));
    assert_eq!(totals(&all), (9, 14 * SECTOR));
    assert_eq!((all.in_flight, ra.in_flight, rb.in_flight), (0, 0, 0));
    assert_eq!(all.read_latency.iter().sum::<u64>(), 1);
    assert_eq!(all.write_latency.iter().sum::<u64>(), 8);
}

#[test]
fn busy_time_is_the_union_and_latency_the_sum() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let (a, b) = (lab.writer("a", disk), lab.writer("b", disk));
    let zero = lab.stats(disk);
    leaf.set(Mode::Hold);
    let core = lab.cores[0].clone();
    lab.spin(MS);
    let t0 = core.now();
    let x = lab.send(lab.edge(a), Op::Read, 0, SECTOR);
    lab.spin(MS);
    let t1 = core.now();
    let y = lab.send(lab.edge(b), Op::Write, 0, SECTOR);
    lab.spin(3 * MS);
    let open = lab.stats(disk);
    assert_eq!(open.in_flight, 2);
    assert_eq!(open.busy_ns, lab.world.now() - t0, "the open interval counts up to now");
    leaf.release(&lab.cores);
    lab.spin(MS);
    let (ex, ey) = (lab.ended(x).unwrap().at_ns, lab.ended(y).unwrap().at_ns);
    lab.spin(7 * MS);
    let (all, ra, rb) = (lab.stats(disk), lab.consumer_stats(a), lab.consumer_stats(b));
    assert_eq!(all.busy_ns - zero.busy_ns, ex.max(ey) - t0);
    assert_eq!((ra.busy_ns, rb.busy_ns), (ex - t0, ey - t1));
    assert_eq!((all.read_latency_ns, all.write_latency_ns), (ex - t0, ey - t1));
    assert_eq!(all.in_flight, 0);
}

#[test]
fn a_split_request_counts_as_the_pieces_that_the_disk_sees() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::shaped(Limits {
        media_bytes: 1 << 20,
        sector_bytes: 512,
        io_max_bytes: 1024,
        delete_max_bytes: 0,
    });
    let disk = lab.disk("d0", &leaf);
    let top = lab.pass_through("s", disk, "");
    let c = lab.writer("u", top);
    lab.io(lab.edge(c), Op::Write, 0, 10 * SECTOR);
    assert_eq!(totals(&lab.stats(top)), (1, 10 * SECTOR));
    assert_eq!(totals(&lab.consumer_stats(c)), (1, 10 * SECTOR));
    assert_eq!(totals(&lab.stats(disk)), (5, 10 * SECTOR));
}

#[test]
fn a_request_sent_again_for_want_of_memory_counts_once() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let c = lab.writer("u", disk);
    leaf.set(Mode::NoMem(5));
    lab.io(lab.edge(c), Op::Write, 0, SECTOR);
    assert_eq!(totals(&lab.stats(disk)), (1, SECTOR));
    assert_eq!((lab.stats(disk).in_flight, lab.stats(disk).errors), (0, 0));
}

#[test]
fn a_providers_sums_outlive_its_consumers() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let mut sum = 0;
    for i in 0..5 {
        let c = lab.writer("u", disk);
        for _ in 0..=i {
            lab.io(lab.edge(c), Op::Write, 0, SECTOR);
            sum += 1;
        }
        let g = lab.control.topology.find_geom("user", "u").unwrap();
        lab.control.topology.leave(c);
        lab.control.topology.wither_geom(g, Errno::NxIo);
        lab.control.settle().unwrap();
        assert_eq!(totals(&lab.stats(disk)), (sum, sum * SECTOR));
    }
}

#[test]
fn inserted_layer_starts_at_zero_and_the_disk_keeps_its_totals() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let c = lab.writer("u", disk);
    let edge = lab.edge(c);
    let go = |lab: &Lab, n: u64| {
        for _ in 0..n {
            lab.io(edge, Op::Write, 0, SECTOR);
        }
    };
    go(&lab, 3);
    let shim = lab.insert("s", disk, "").unwrap();
    let above = lab.control.topology.providers_of(shim)[0];
    assert_eq!(totals(&lab.stats(above)), (0, 0), "a new provider starts at zero");
    assert_eq!(totals(&lab.stats(disk)), (3, 3 * SECTOR));
    go(&lab, 4);
    assert_eq!(totals(&lab.stats(above)), (4, 4 * SECTOR));
    assert_eq!(totals(&lab.stats(disk)), (7, 7 * SECTOR));
    assert_eq!(totals(&lab.consumer_stats(c)), (7, 7 * SECTOR), "the consumer's go with it");
    lab.control.remove(shim).unwrap();
    go(&lab, 5);
    assert_eq!(totals(&lab.stats(disk)), (12, 12 * SECTOR));
    assert_eq!(totals(&lab.consumer_stats(c)), (12, 12 * SECTOR));
    lab.open(c, Access::WRITE.inverse()).unwrap();
}

#[test]
fn counters_of_all_cores_are_summed() {
    let mut lab = Lab::with_cores(1, 3);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let c = lab.user("u", disk, Manner::default());
    lab.open(c, Access::WRITE).unwrap();
    for core in 0..3 {
        for _ in 0..=core {
            let tag = lab.send_on(core, lab.edge(c), Op::Read, 0, SECTOR, bio::Flags::NONE);
            lab.finish(tag);
        }
    }
    assert_eq!(totals(&lab.stats(disk)), (6, 6 * SECTOR));
}
