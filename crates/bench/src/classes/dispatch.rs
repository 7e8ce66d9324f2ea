//! What a class adds to a request: on disks that answer at once, less the disk itself. Beside it
//! the foundation's figure, a layer that moves an offset.

use std::sync::Arc;

use bio::Op;
use geom::Edge;
use serde_json::{Value, json};

use super::disk::{Hollow, Pace};
use super::drive::Drive;
use super::{Figure, with_classes};
use crate::bed::{Bed, failed};
use crate::error::Error;
use crate::layers::layers;
use crate::report::{Goal, Of, Series};

const DISK_BYTES: u64 = 1 << 30;
const REQUEST: usize = 4096;
const REQUESTS: u64 = 100_000;
/// Goal: what a layer of the foundation may cost, ns.
const LAYER_NS: f64 = 15.0;
/// Depths between which the foundation's layer is measured.
const DEPTHS: [u32; 2] = [1, 10];

/// Name, class, verb, parameters, provider (empty: as the verb answers), operation, whether it is
/// one layer to one disk.
type Kind = (&'static str, &'static str, &'static str, Value, &'static str, Op, bool);

fn kinds() -> Vec<Kind> {
    let raid = |level: &str, count: usize, first: usize| {
        let members: Vec<String> = (first..first + count).map(|n| format!("h{n}")).collect();
        let (format, assume_same) = ("Intel", true);
        json!({
            "format": format, "label": level, "level": level, "members": members,
            "assume_same": assume_same, "force": true,
        })
    };
    let of = |members: &[&str]| json!({ "members": members });
    let mirror = of(&["h4", "h5"]);
    vec![
        ("concat", "concat", "create", of(&["h0", "h1"]), "concat/x", Op::Read, true),
        ("stripe", "stripe", "create", of(&["h2", "h3"]), "stripe/x", Op::Read, true),
        ("mirror, read", "mirror", "create", mirror.clone(), "mirror/x", Op::Read, true),
        ("mirror of 2, write", "mirror", "create", mirror, "mirror/x", Op::Write, false),
        ("multipath", "multipath", "create", of(&["h6", "h7"]), "multipath/x", Op::Read, true),
        ("raid RAID0", "raid", "label", raid("RAID0", 2, 8), "", Op::Read, true),
        ("raid RAID1, read", "raid", "label", raid("RAID1", 2, 10), "", Op::Read, true),
        ("raid RAID5, read", "raid", "label", raid("RAID5", 3, 12), "", Op::Read, true),
    ]
}

fn edge_of(bed: &mut Bed, kind: &Kind) -> Result<Edge, Error> {
    let (name, class, verb, params, provider, ..) = kind;
    if bed.control.topology.find(provider).is_some() {
        return bed.open(provider);
    }
    let on = if *class == "raid" { name.replace([' ', ','], "") } else { "x".into() };
    let answer = bed.verb(class, verb, &on, params)?;
    bed.open(answer["provider"].as_str().unwrap_or(provider))
}

pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>, Error> {
    let mut bed = with_classes()?;
    for n in 0..16 {
        let layer = Arc::new(Hollow::new(DISK_BYTES, Pace::Instant));
        bed.disk(&format!("h{n}"), layer, DISK_BYTES)?;
    }
    let bare = bed.open("h15")?;
    let mut all = Vec::new();
    for kind in kinds() {
        let edge = match kind.5 {
            Op::Write => all.iter().find(|(k, ..): &&(Kind, Edge, Series)| k.4 == kind.4),
            _ => None,
        };
        let edge = match edge {
            Some((_, edge, _)) => *edge,
            None => edge_of(&mut bed, &kind)?,
        };
        all.push((kind, edge, Series::default()));
    }
    let mut drive = Drive::new(&bed, 1, REQUEST)?;
    let place = |n: u64| n % 65_536 * 4096;
    for round in 0..=rounds {
        let steps = layers(&DEPTHS, 1)?;
        let ns: Vec<f64> = steps.iter().filter_map(|row| row.ns.first().copied()).collect();
        let [low, high] = ns[..] else { return Err(failed("no figure of a layer")) };
        let layer = (high - low) / f64::from(DEPTHS[1] - DEPTHS[0]);
        for (kind, edge, series) in &mut all {
            let (edge, op) = (*edge, kind.5);
            let mut run = |edge: Edge| {
                drive.run(&mut bed, (op, false), |n| (edge, place(n)), |_, n| n < REQUESTS)
            };
            let (disk, with) = (run(bare)?.cpu(), run(edge)?.cpu());
            if round > 0 {
                series.ours.push(with - disk);
                series.theirs.push(layer);
            }
        }
    }
    let figure = |(kind, _, series): (Kind, Edge, Series)| Figure {
        case: "dispatch",
        what: (format!("{}: CPU besides the disk's", kind.0), "ns"),
        series,
        peer: Some("layer"),
        goal: kind.6.then_some(Goal { of: Of::Ours, at_most: LAYER_NS }),
    };
    Ok(all.into_iter().map(figure).collect())
}
