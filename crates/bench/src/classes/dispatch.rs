//! Cost of a class for a request: on disks that answer at once, less the disk itself. Beside it is
//! the figure of the graph itself, a layer that moves an offset.

use std::ops::Range;
use std::sync::Arc;

use bio::Op;
use geom::Edge;
use serde_json::json;

use super::disk::{Hollow, Pace};
use super::drive::Drive;
use super::{Figure, with_classes};
use crate::bed::{Bed, failed};
use crate::error::Error;
use crate::layers::{BIOS, layers};
use crate::options::Length;
use crate::report::{Goal, Of, Series};

const DISK_BYTES: u64 = 1 << 30;
const REQUEST: usize = 4096;
const REQUESTS: u64 = 100_000;
/// Goal: time of a layer of the graph itself, ns.
const LAYER_NS: f64 = 15.0;
/// Depths between which the foundation's layer is measured.
const DEPTHS: [u32; 2] = [1, 10];

/// Place of the nth request.
type OffsetFn = fn(u64) -> u64;

/// Destinations of requests.
const PLACES: u64 = 65_536;
/// One behind the other.
const IN_ORDER: OffsetFn = |n| n % PLACES * REQUEST as u64;
/// Not sequential for any reader: the odd factor makes it a permutation of the places.
const SCATTERED: OffsetFn = |n| n.wrapping_mul(40_503) % PLACES * REQUEST as u64;

/// A measured case.
struct Kind {
    name: &'static str,
    edge: Edge,
    op: Op,
    place: OffsetFn,
    /// One layer to one disk, for a sequential reader.
    has_goal: bool,
    series: Series,
}

impl Kind {
    fn read(name: &'static str, edge: Edge) -> Kind {
        let (op, place, series) = (Op::Read, IN_ORDER, Series::default());
        Kind { name, edge, op, place, has_goal: true, series }
    }

    fn scattered(name: &'static str, edge: Edge) -> Kind {
        Kind { place: SCATTERED, has_goal: false, ..Kind::read(name, edge) }
    }
}

fn created(bed: &mut Bed, class: &str, members: [&str; 2]) -> Result<Edge, Error> {
    bed.verb(class, "create", "x", &json!({ "members": members }))?;
    bed.open(&format!("{class}/x"))
}

fn raid(bed: &mut Bed, level: &str, members: Range<usize>) -> Result<Edge, Error> {
    let members: Vec<String> = members.map(|n| format!("h{n}")).collect();
    let params = json!({
        "format": "Intel", "name": level, "level": level, "members": members,
        "assume_same": true, "force": true,
    });
    let answer = bed.verb("raid", "label", level, &params)?;
    let provider = answer["provider"].as_str().ok_or_else(|| failed("no provider of an array"))?;
    bed.open(provider)
}

fn kinds(bed: &mut Bed) -> Result<Vec<Kind>, Error> {
    let mirror = created(bed, "mirror", ["h4", "h5"])?;
    let multipath = created(bed, "multipath", ["h6", "h7"])?;
    let raid1 = raid(bed, "RAID1", 10..12)?;
    Ok(vec![
        Kind::read("concat", created(bed, "concat", ["h0", "h1"])?),
        Kind::read("stripe", created(bed, "stripe", ["h2", "h3"])?),
        Kind::read("mirror, read", mirror),
        Kind::scattered("mirror, read at random places", mirror),
        Kind { op: Op::Write, has_goal: false, ..Kind::read("mirror of 2, write", mirror) },
        Kind::read("multipath", multipath),
        Kind::scattered("multipath, read at random places", multipath),
        Kind::read("raid RAID0", raid(bed, "RAID0", 8..10)?),
        Kind::read("raid RAID1, read", raid1),
        Kind::scattered("raid RAID1, read at random places", raid1),
        Kind::read("raid RAID5, read", raid(bed, "RAID5", 12..15)?),
    ])
}

pub(super) fn measure(length: Length) -> Result<Vec<Figure>, Error> {
    let mut bed = with_classes()?;
    for n in 0..16 {
        let layer = Arc::new(Hollow::new(DISK_BYTES, Pace::Instant));
        bed.disk(&format!("h{n}"), layer, DISK_BYTES)?;
    }
    let bare = bed.open("h15")?;
    let mut all = kinds(&mut bed)?;
    let mut drive = Drive::new(&bed, 1, REQUEST)?;
    let requests = length.scaled(REQUESTS);
    let bios = length.scaled(u64::from(BIOS)) as u32;
    for round in 0..=length.rounds {
        let steps = layers(&DEPTHS, 1, bios)?;
        let ns: Vec<f64> = steps.iter().filter_map(|row| row.ns.first().copied()).collect();
        let [low, high] = ns[..] else { return Err(failed("no figure of a layer")) };
        let layer = (high - low) / f64::from(DEPTHS[1] - DEPTHS[0]);
        for kind in &mut all {
            let (op, place) = (kind.op, kind.place);
            let mut run = |edge: Edge| {
                drive.run(&mut bed, (op, false), |n| (edge, place(n)), |_, n| n < requests)
            };
            let (disk, with) = (run(bare)?.cpu(), run(kind.edge)?.cpu());
            if round > 0 {
                kind.series.ours.push(with - disk);
                kind.series.theirs.push(layer);
            }
        }
    }
    let figure = |kind: Kind| Figure {
        case: "dispatch",
        label: (format!("{}: CPU besides the disk's", kind.name), "ns"),
        series: kind.series,
        peer: Some("layer"),
        goal: kind.has_goal.then_some(Goal { of: Of::Ours, at_most: LAYER_NS }),
    };
    Ok(all.into_iter().map(figure).collect())
}
