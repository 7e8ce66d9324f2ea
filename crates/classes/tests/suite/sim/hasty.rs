//! Fail-fast requests (`Flags::FAIL_FAST`): they end at once where they would wait, because the
//! layers above have another path to the medium. A read that is sent to one member unchanged may be
//! returned by it, and is then repeated without the flag. Requests that involve several members are
//! never sent to them fail-fast, and no member is put out for a returned request.

use std::cell::Cell;
use std::rc::Rc;

use bio::{Errno, Flags, Op, Segs};
use geom::{Access, Edge};

use super::disk::SECTOR;
use super::life::Life;
use super::named::Bench;
use super::named_raid::Rig;

/// Sends a request that has the flag.
fn hasty(life: &mut Life, edge: Edge, op: Op, at: u64) -> Result<(), Errno> {
    let (ended, core) = (Rc::new(Cell::new(None)), life.cores[0].clone());
    let report = ended.clone();
    life.cores[0].reactor().spawn("user", async move {
        let data = match op {
            Op::Flush | Op::WriteZeroes => Segs::new(),
            _ => core.buffers(SECTOR as usize).await.expect("memory"),
        };
        let length = if op == Op::Flush { 0 } else { SECTOR };
        let done = core.io(edge, |bio| {
            (bio.op, bio.offset, bio.length, bio.data) = (op, at, length, data);
            bio.flags |= Flags::FAIL_FAST;
        });
        report.set(Some(done.await.status));
    });
    let seen = ended.clone();
    assert!(life.until(20, move |_| seen.get().is_some()), "{}", life.dump_state());
    ended.get().expect("it ended")
}

const OPS: [Op; 4] = [Op::Read, Op::Write, Op::WriteZeroes, Op::Flush];

fn is_served(op: Op, done: Result<(), Errno>) -> bool {
    done == Ok(()) || op == Op::Read && done == Err(Errno::Again)
}

/// W2 of volume/tasks.rs.
#[test]
fn fail_fast_requests_drop_no_member_of_an_array() {
    for (format, level, count) in [
        ("Intel", "RAID1", 2),
        ("Intel", "RAID10", 4),
        ("Intel", "RAID5", 3),
        ("DDF", "RAID6-LA", 4),
    ] {
        let mut rig = Rig::of(format, level, count);
        rig.disks.values().for_each(|disk| disk.lock().in_transition = true);
        for (op, at) in OPS.into_iter().flat_map(|op| (0..4).map(move |n| (op, n * SECTOR))) {
            let done = hasty(&mut rig.life, rig.edge, op, at);
            assert!(is_served(op, done), "{format} {level} {op:?} {done:?}");
        }
        let state = rig.life.show("raid", &rig.set, "State");
        assert_eq!(state, "OPTIMAL", "{level}\n{}", rig.life.dump_state());
    }
}

#[test]
fn fail_fast_requests_drop_no_member_of_a_mirror() {
    let mut bench = Bench::of(2);
    bench.disks.values().for_each(|disk| disk.lock().in_transition = true);
    let (_, edge) = bench.life.open("mirror/m", Access::WRITE).expect("open");
    for (op, at) in OPS.into_iter().flat_map(|op| (0..4).map(move |n| (op, n * SECTOR))) {
        let done = hasty(&mut bench.life, edge, op, at);
        assert!(is_served(op, done), "{op:?} {done:?}");
    }
    assert_eq!(["d0", "d1"].map(|d| bench.state(d)), ["ACTIVE", "ACTIVE"]);
}
