//! A stripe of four memory disks beside the same disks one after the other. One core does the work
//! of all of them, so the disks' sum is the rate without any layer in between.

use bio::Op;
use serde_json::json;

use super::drive::Drive;
use super::{Figure, with_memory};
use crate::error::Error;
use crate::options::Length;
use crate::report::{Goal, Of, Series};

const DISKS: usize = 4;
const DISK_BYTES: u64 = 32 << 20;
/// A request: two strips.
const REQUEST: usize = 128 << 10;
const STRIP: u64 = 64 << 10;
/// Requests a round: all of the disks eight times.
const REQUESTS: u64 = 8 * (DISKS as u64) * DISK_BYTES / REQUEST as u64;
/// Goal: 0.95 of the disks' sum, as time.
const TIME: f64 = 1.0 / 0.95;

pub(super) fn measure(case: &str, length: Length) -> Result<Vec<Figure>, Error> {
    let (op, case) = match case {
        "stripe-read-128k" => (Op::Read, "stripe-read-128k"),
        _ => (Op::Write, "stripe-write-128k"),
    };
    // The same disks twice: those below the stripe are its own.
    let mut bed = with_memory(2 * DISKS, DISK_BYTES)?;
    let names: Vec<String> = (0..DISKS).map(|n| format!("d{n}")).collect();
    bed.verb("stripe", "create", "s", &json!({ "members": names, "strip": STRIP }))?;
    let stripe = bed.open("stripe/s")?;
    let bare = (DISKS..2 * DISKS).map(|n| bed.open(&format!("d{n}")));
    let bare = bare.collect::<Result<Vec<_>, Error>>()?;
    let mut drive = Drive::new(&bed, 16, REQUEST)?;
    let (request, requests) = (REQUEST as u64, length.scaled(REQUESTS));
    // Disks and stripe contain data everywhere: blocks that were never written are cheaper to read.
    let places = DISKS as u64 * DISK_BYTES / request - DISKS as u64;
    let one = DISK_BYTES / request - 1;
    let mut series = Series::default();
    for round in 0..=length.rounds {
        for write in [true, false] {
            let op = if round == 0 && write { Op::Write } else { op };
            if round > 0 && write {
                continue;
            }
            let ours = drive.run(
                &mut bed,
                (op, false),
                |n| (stripe, n % places * request),
                |_, n| n < requests,
            )?;
            let theirs = drive.run(
                &mut bed,
                (op, false),
                |n| (bare[n as usize % DISKS], n / DISKS as u64 % one * request),
                |_, n| n < requests,
            )?;
            if round > 0 {
                series.ours.push(ours.cpu() / 1e3);
                series.theirs.push(theirs.cpu() / 1e3);
            }
        }
    }
    let word = if op == Op::Read { "read" } else { "written" };
    Ok(vec![Figure {
        case,
        label: (format!("128 KiB {word} one behind the other"), "us"),
        series,
        peer: Some("disks"),
        goal: Some(Goal { of: Of::Ratio, at_most: TIME }),
    }])
}
