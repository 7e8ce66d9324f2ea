//! Reads of a mirror: the gain of more members, and the cost of one read.

use std::sync::Arc;

use bio::Op;
use serde_json::json;

use super::disk::{Hollow, Pace};
use super::drive::Drive;
use super::{Figure, with_classes, with_memory};
use crate::error::Error;
use crate::options::Length;
use crate::report::{Goal, Of, Series};

const DISK_BYTES: u64 = 1 << 30;
const REQUEST: usize = 4096;
/// A read at a disk, ns; the next one waits for it.
const READ_NS: u64 = 100_000;
/// Reads a round and member.
const READS: u64 = 3000;
/// In flight for each member: enough that no disk is idle.
const DEPTH: u32 = 8;
/// Goal: with n members a read takes the nth part, give or take this.
const SCALES: f64 = 1.0 / 0.95;
const MEMORY_BYTES: u64 = 32 << 20;
const CPU_READS: u64 = 100_000;

/// Disks that take 100 us a read: one, and mirrors of one, two and three of them.
pub(super) fn members(length: Length) -> Result<Vec<Figure>, Error> {
    let mut bed = with_classes()?;
    let pace = Pace::OneByOne { request_ns: READ_NS, bytes_a_ns: u64::MAX };
    for name in ["bare", "a0", "b0", "b1", "c0", "c1", "c2"] {
        bed.disk(name, Arc::new(Hollow::new(DISK_BYTES, pace)), DISK_BYTES)?;
    }
    let bare = bed.open("bare")?;
    let mut edges = Vec::new();
    let sets: [(u64, &[&str]); 3] = [(1, &["a0"]), (2, &["b0", "b1"]), (3, &["c0", "c1", "c2"])];
    for (count, names) in sets {
        let name = format!("m{count}");
        bed.verb("mirror", "create", &name, &json!({ "members": names }))?;
        edges.push((count, bed.open(&format!("mirror/{name}"))?, Series::default()));
    }
    let place = |n: u64| n.wrapping_mul(0x9e37_79b9) % (DISK_BYTES / 2 / 4096) * 4096;
    let reads = length.scaled(READS);
    let mut drives = Vec::new();
    for count in 1..=3 {
        drives.push(Drive::new(&bed, DEPTH * count, REQUEST)?);
    }
    for round in 0..=length.rounds {
        let first = drives.first_mut();
        let Some(drive) = first else { break };
        let alone =
            drive.run(&mut bed, (Op::Read, false), |n| (bare, place(n)), |_, n| n < reads)?;
        for ((count, edge, series), drive) in edges.iter_mut().zip(&mut drives) {
            let (edge, many) = (*edge, reads * *count);
            let ours =
                drive.run(&mut bed, (Op::Read, false), |n| (edge, place(n)), |_, n| n < many)?;
            if round > 0 {
                series.ours.push(ours.wall() * *count as f64 / 1e3);
                series.theirs.push(alone.wall() / 1e3);
            }
        }
    }
    let figure = |(count, _, series): (u64, geom::Edge, Series)| Figure {
        case: "mirror-members",
        label: (format!("{count} members: time a read, times {count}"), "us"),
        series,
        peer: Some("disk"),
        goal: Some(Goal { of: Of::Ratio, at_most: SCALES }),
    };
    Ok(edges.into_iter().map(figure).collect())
}

/// Memory disks: a read of a mirror of two, beside one of the disk.
pub(super) fn cpu(length: Length) -> Result<Vec<Figure>, Error> {
    let mut bed = with_memory(3, MEMORY_BYTES)?;
    bed.verb("mirror", "create", "m", &json!({ "members": ["d0", "d1"] }))?;
    let (mirror, bare) = (bed.open("mirror/m")?, bed.open("d2")?);
    let mut drive = Drive::new(&bed, 1, REQUEST)?;
    let (places, reads) = (MEMORY_BYTES / 4096 - 1, length.scaled(CPU_READS));
    let place = |n: u64| n.wrapping_mul(0x9e37_79b9) % places * 4096;
    let mut series = Series::default();
    for edge in [mirror, bare] {
        drive.run(&mut bed, (Op::Write, false), |n| (edge, n * 4096), |_, n| n < places)?;
    }
    for round in 0..=length.rounds {
        let [ours, theirs] = [mirror, bare].map(|edge| {
            drive.run(&mut bed, (Op::Read, false), |n| (edge, place(n)), |_, n| n < reads)
        });
        if round > 0 {
            series.ours.push(ours?.cpu());
            series.theirs.push(theirs?.cpu());
        }
    }
    Ok(vec![Figure {
        case: "mirror-cpu",
        label: ("CPU of a 4 KiB read of two memory disks".into(), "ns"),
        series,
        peer: Some("disk"),
        goal: None,
    }])
}
