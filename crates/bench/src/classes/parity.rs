//! Sums of strips beside the same bytes copied. Whole stripes written through a volume, beside the
//! copies of such a write, and beside the same strips written to such disks.

use std::hint::black_box;

use bio::{Op, parity};
use serde_json::json;

use super::drive::Drive;
use super::{Figure, with_memory};
use crate::bed::thread_ns;
use crate::error::Error;
use crate::options::Length;
use crate::report::{Goal, Of, Series};

const STRIP: usize = 64 << 10;
/// Data strips of a row.
const DATA: usize = 4;
/// Rows, one behind the other: more than the inner caches hold.
const ROWS: usize = 32;
/// Times that all rows are summed in a round.
const PASSES: u64 = 16;
/// Goal for RAID5: the speed of a copy.
const COPY: f64 = 1.0;
/// Bytes of a memory disk; DDF keeps 32 MiB of it.
const DISK_BYTES: u64 = 96 << 20;
/// Bytes of each that are written.
const USED: u64 = 32 << 20;

/// P, or P and Q, of rows of four strips: time for a MiB of data, beside copying it.
pub(super) fn sums(case: &str, length: Length) -> Result<Vec<Figure>, Error> {
    let both = case == "parity-raid6";
    let data: Vec<u8> = (0..ROWS * DATA * STRIP).map(|n| ((n * 167) >> 3) as u8).collect();
    let (mut p, mut q) = (vec![0; STRIP], vec![0; STRIP]);
    let mut copy = vec![0; data.len()];
    let mut series = Series::default();
    let passes = length.scaled(PASSES);
    let mib = passes as f64 * data.len() as f64 / f64::from(1 << 20);
    for round in 0..=length.rounds {
        let start = thread_ns();
        let mut from: [(&[u8], usize); DATA] = [(&[], 0); DATA];
        for _ in 0..passes {
            for row in data.chunks_exact(DATA * STRIP) {
                let strips = row.chunks_exact(STRIP).enumerate().rev();
                for (from, (nth, strip)) in from.iter_mut().zip(strips) {
                    *from = (black_box(strip), nth);
                }
                parity::row(Some(&mut p), both.then_some(&mut q[..]), &from);
                black_box((&p, &q));
            }
        }
        let ours = thread_ns().saturating_sub(start);
        let start = thread_ns();
        for _ in 0..passes {
            copy.copy_from_slice(black_box(&data));
            black_box(&copy);
        }
        let theirs = thread_ns().saturating_sub(start);
        if round > 0 {
            series.ours.push(ours as f64 / 1e3 / mib);
            series.theirs.push(theirs as f64 / 1e3 / mib);
        }
    }
    let (case, words, goal) = match both {
        false => ("parity-raid5", "P", Some(Goal { of: Of::Ratio, at_most: COPY })),
        true => ("parity-raid6", "P and Q", None),
    };
    let gbs = |us: &[f64]| crate::report::median(us).map_or(0.0, |us| 1.048_576 / us * 1e3);
    let (sum, copied) = (gbs(&series.ours), gbs(&series.theirs));
    let what = format!("{words} of a MiB ({sum:.1} GB/s, copied {copied:.1} GB/s)");
    Ok(vec![Figure { case, label: (what, "us"), series, peer: Some("memcpy"), goal }])
}

/// Rows written whole through a volume on memory disks, beside the copies of data and parity.
pub(super) fn volume(case: &str, length: Length) -> Result<Vec<Figure>, Error> {
    let (case, format, level, disks) = match case {
        "stripe-write-raid5" => ("stripe-write-raid5", "Intel", "RAID5", 4),
        _ => ("stripe-write-raid6", "DDF", "RAID6", 5),
    };
    let width = 3;
    // The same disks twice: those below the volume are its own.
    let mut bed = with_memory(2 * disks, DISK_BYTES)?;
    let names: Vec<String> = (0..disks).map(|n| format!("d{n}")).collect();
    let params = json!({
        "format": format, "name": "v", "level": level, "members": names, "strip": STRIP,
        "assume_same": true, "force": true,
    });
    let answer = bed.verb("raid", "label", "v", &params)?;
    let edge = bed.open(answer["provider"].as_str().unwrap_or_default())?;
    let request = width * STRIP;
    let places = USED / STRIP as u64 - 1;
    let (passes, writes) = (length.scaled(PASSES), length.scaled(4 * places));
    let mut drive = Drive::new(&bed, 4, request)?;
    let from = vec![7_u8; disks * STRIP];
    let mut to = vec![0_u8; ROWS * disks * STRIP];
    let bare = (disks..2 * disks).map(|n| bed.open(&format!("d{n}")));
    let bare = bare.collect::<Result<Vec<_>, Error>>()?;
    let mut strips = Drive::new(&bed, 4, STRIP)?;
    let (mut series, mut beside) = (Series::default(), Series::default());
    for round in 0..=length.rounds {
        let alone = strips.run(
            &mut bed,
            (Op::Write, false),
            |n| (bare[n as usize % disks], n / disks as u64 % places * STRIP as u64),
            |_, n| n < writes * disks as u64,
        )?;
        let ours = drive.run(
            &mut bed,
            (Op::Write, false),
            |n| (edge, n % places * request as u64),
            |_, n| n < writes,
        )?;
        let (start, mut rows) = (thread_ns(), 0);
        for _ in 0..passes {
            for row in to.chunks_exact_mut(disks * STRIP) {
                row.copy_from_slice(black_box(&from));
                black_box(&row);
                rows += 1;
            }
        }
        let theirs = thread_ns().saturating_sub(start) as f64 / f64::from(rows);
        if round > 0 {
            series.ours.push(ours.cpu() / 1e3);
            series.theirs.push(theirs / 1e3);
            beside.ours.push(ours.cpu() / 1e3);
            beside.theirs.push(alone.cpu() * disks as f64 / 1e3);
        }
    }
    let figure = |done: &str, peer, series| {
        let what = format!("{} KiB written as a row, beside {disks} strips {done}", request >> 10);
        Figure { case, label: (what, "us"), series, peer: Some(peer), goal: None }
    };
    Ok(vec![figure("copied", "memcpy", series), figure("written", "disks", beside)])
}
