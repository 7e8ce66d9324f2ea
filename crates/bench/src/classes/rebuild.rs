//! A mirror of 8 GiB is rebuilt while a user writes: the latency of the user's slowest writes, and
//! whether the reported progress is honest. The disks keep only records. They take 20 us a request
//! and a ns for two bytes, one request after the other.

use std::sync::Arc;

use bio::Op;
use geom::Edge;
use serde_json::json;

use super::disk::{Hollow, Pace};
use super::drive::{Drive, Took};
use super::{Figure, with_classes};
use crate::bed::{Bed, failed};
use crate::error::Error;
use crate::options::Length;
use crate::report::{Goal, Of, Series};

const DISK_MIB: u64 = 8 << 10;
/// Smallest disk of a shortened round: half of it stores records.
const DISK_MIB_MIN: u64 = 128;
const REQUEST: usize = 4096;
const REQUEST_NS: u64 = 20_000;
const BYTES_A_NS: u64 = 2;
const DEPTH: u32 = 4;
/// The configured rate, bytes a second: about half of the disks' rate.
const RATE: u64 = 512 << 20;
/// How long the user is alone, ns.
const ALONE_NS: u64 = 2_000_000_000;
/// Between two looks at the progress, ns.
const LOOK_NS: u64 = 20_000_000;
const LONGEST_NS: u64 = 120_000_000_000;
/// A rebuild holds a MiB at a time: it is read, then written. A write may wait for both, twice
/// where a slab begins between its members.
const SLABS_US: f64 = 2.0 * 2.0 * (20.0 + 525.0);

/// Observed progress of a rebuild.
#[derive(Default)]
struct Seen {
    percents: Vec<u64>,
    ended: bool,
}

impl Seen {
    fn look(&mut self, bed: &Bed) {
        let shown = bed.shown("mirror", "m", "Synchronized");
        let percent = shown.and_then(|text| text.trim_end_matches('%').parse::<u64>().ok());
        self.percents.extend(percent);
        self.ended = bed.shown("mirror", "m", "State").as_deref() == Some("COMPLETE");
    }

    /// How often its progress decreased, and how far from the whole it was when last seen.
    fn faults(&self) -> (f64, f64) {
        let back = self.percents.windows(2).filter(|w| w[1] < w[0]).count();
        let last = self.percents.last().copied().unwrap_or(0);
        (back as f64, 100.0 - last as f64)
    }
}

/// The user writes until the mirror is whole.
fn rebuild(
    bed: &mut Bed,
    drive: &mut Drive,
    (edge, disk_bytes): (Edge, u64),
    rate: u64,
) -> Result<(Took, Seen), Error> {
    bed.verb("mirror", "configure", "m", &json!({ "sync_rate": rate }))?;
    bed.verb("mirror", "rebuild", "m", &json!({ "members": ["d0"] }))?;
    let (begun, mut seen) = (bed.core.reactor().fresh_now(), Seen::default());
    let mut next = begun;
    let took = drive.run(
        bed,
        (Op::Write, true),
        |n| (edge, place(n, disk_bytes)),
        |bed, _| {
            let now = bed.core.reactor().fresh_now();
            if now >= next {
                seen.look(bed);
                next = now + LOOK_NS;
            }
            !seen.ended && now - begun < LONGEST_NS
        },
    )?;
    match seen.ended {
        true => Ok((took, seen)),
        false => Err(failed("the rebuild does not end")),
    }
}

fn place(n: u64, disk_bytes: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (disk_bytes / 2 / 4096) * 4096
}

fn p99(took: &Took) -> f64 {
    took.latency.quantile(0.99).unwrap_or(0) as f64 / 1e3
}

pub(super) fn measure(length: Length) -> Result<Vec<Figure>, Error> {
    let disk_bytes = length.scaled(DISK_MIB).max(DISK_MIB_MIN) << 20;
    let mut bed = with_classes()?;
    let pace = Pace::OneByOne { request_ns: REQUEST_NS, bytes_a_ns: BYTES_A_NS };
    for name in ["d0", "d1"] {
        bed.disk(name, Arc::new(Hollow::new(disk_bytes, pace)), disk_bytes)?;
    }
    let params = json!({ "members": ["d0", "d1"], "assume_same": true, "force": true });
    bed.verb("mirror", "label", "m", &params)?;
    let edge = bed.open("mirror/m")?;
    let mut drive = Drive::new(&bed, DEPTH, REQUEST)?;
    let [mut fast, mut slow] = [Series::default(), Series::default()];
    let [mut back, mut missing, mut rate] =
        [Series::default(), Series::default(), Series::default()];
    let alone_ns = length.scaled(ALONE_NS);
    for _ in 0..length.rounds.min(3) {
        let begun = bed.core.reactor().fresh_now();
        let alone = drive.run(
            &mut bed,
            (Op::Write, true),
            |n| (edge, place(n, disk_bytes)),
            |bed, _| bed.core.reactor().fresh_now() - begun < alone_ns,
        )?;
        for (series, limit) in [(&mut fast, 0), (&mut slow, RATE)] {
            let (took, seen) = rebuild(&mut bed, &mut drive, (edge, disk_bytes), limit)?;
            series.ours.push(p99(&took));
            series.theirs.push(p99(&alone));
            let (went_back, left) = seen.faults();
            back.ours.push(went_back);
            missing.ours.push(left);
            if limit > 0 {
                rate.ours.push(disk_bytes as f64 * 1e9 / took.wall_ns as f64 / f64::from(1 << 20));
            }
        }
    }
    let most = |at_most| Some(Goal { of: Of::Ours, at_most });
    let figure = |words: &str, unit, series, goal| Figure {
        case: "rebuild",
        label: (words.to_owned(), unit),
        series,
        peer: Some("alone"),
        goal,
    };
    let limit = RATE as f64 / f64::from(1 << 20);
    Ok(vec![
        figure("p99 of a write, rebuild unlimited", "us", fast, most(SLABS_US)),
        figure("p99 of a write, rebuild at 512 MiB/s", "us", slow, most(SLABS_US)),
        figure("rebuilt a second, limit 512 MiB/s", "MiB", rate, most(limit * 1.01)),
        figure("times the progress went back", "", back, most(0.0)),
        figure("percent missing when last seen, before it ended", "", missing, most(1.0)),
    ])
}
