//! Cost of a scheduler for a request on a disk that answers at once, less the disk itself: every
//! algorithm in one run, in turns.

use std::sync::Arc;

use bio::Op;
use geom::Edge;
use serde_json::json;

use super::disk::{Hollow, Pace};
use super::drive::Drive;
use super::{Figure, with_classes};
use crate::error::Error;
use crate::options::Length;
use crate::report::{Goal, Of, Series};

const DISK_BYTES: u64 = 1 << 30;
const REQUEST: usize = 4096;
const REQUESTS: u64 = 100_000;

/// Goals, ns a request.
const ALGORITHMS: [(&str, f64); 5] =
    [("rr", 150.0), ("as", 150.0), ("fifo", 40.0), ("deadline", 150.0), ("fair", 150.0)];

pub(super) fn measure(length: Length) -> Result<Vec<Figure>, Error> {
    let mut bed = with_classes()?;
    let disk = |bed: &mut crate::bed::Bed, name: &str| {
        bed.disk(name, Arc::new(Hollow::new(DISK_BYTES, Pace::Instant)), DISK_BYTES)
    };
    disk(&mut bed, "bare")?;
    let bare = bed.open("bare")?;
    let mut all: Vec<((&str, f64), Edge, Series)> = Vec::new();
    for (name, goal) in ALGORITHMS {
        disk(&mut bed, name)?;
        let params = json!({ "disks": [name], "algorithm": name });
        bed.verb("sched", "insert", "", &params)?;
        all.push(((name, goal), bed.open(name)?, Series::default()));
    }
    let mut drive = Drive::new(&bed, 1, REQUEST)?;
    let requests = length.scaled(REQUESTS);
    let mut run = |edge: Edge| {
        let place = |n: u64| (edge, n % 65_536 * 4096);
        drive.run(&mut bed, (Op::Read, false), place, |_, n| n < requests)
    };
    for round in 0..=length.rounds {
        for (_, edge, series) in &mut all {
            let (disk, with) = (run(bare)?.cpu(), run(*edge)?.cpu());
            if round > 0 {
                series.ours.push(with - disk);
            }
        }
    }
    let figure = |((name, at_most), _, series)| Figure {
        case: "sched",
        label: (format!("{name}: CPU besides the disk's"), "ns"),
        series,
        peer: None,
        goal: Some(Goal { of: Of::Ours, at_most }),
    };
    Ok(all.into_iter().map(figure).collect())
}
