//! Lessons about TRIM: a file of 1 GiB is deleted, while others use the disk, in the seed's three
//! ways. A TRIM of the disk takes 50 ms, independent of its size:
//!
//! 1. each block of 32 KiB by a command of its own, free when that has ended;
//! 2. each extent by a command, free when that has ended; the file has extents of some 15 MB;
//! 3. ours: each block is deleted as above, but through class trim: free at once.
//!
//! The disk takes ATA's commands: 64 entries of 65,535 sectors.

mod flash;
mod lab;

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use bio::{Bio, Op};
use geom::{Core, Edge};

use crate::bed::failed;
use crate::error::Error;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use flash::{Asked, Flash};
use lab::{Crowd, Lab};
use reactor::clock::S;

const BLOCK: u64 = 32 << 10;
const FILE: u64 = 1 << 30;
/// Blocks of an extent: 15 MB.
const EXTENT: u64 = 457;
/// The first approach deletes so much only: all of it would take 27 minutes.
const PART: u64 = 32 << 20;
/// Time of the load without any deletion, for comparison.
const ALONE_NS: u64 = 30 * S;

/// The seed's figures of the first two approaches.
const SEED: [(&str, f64); 2] = [("trim-blocks", 0.6), ("trim-extents", 300.0)];
/// At most so many commands may 1 GiB take in the third: the seed's 32 entries of 32 MiB are one,
/// and a file in pieces has more.
const COMMANDS: f64 = 2.0;
const AT_ONCE_MS: f64 = 1.0;
/// Foreground's 99th percentile, over that without deletions.
const P99: f64 = 1.2;
/// Of the device's time, percent.
const SHARE: f64 = 5.0;

/// How deletions are sent to the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Blocks,
    Extents,
    Queue,
}

/// One case in one round.
#[derive(Default)]
struct Outcome {
    /// Until everything that was deleted could be used again, ns; bytes of it.
    reusable_ns: u64,
    bytes: u64,
    /// Until the disk knew of all, ns.
    reported_ns: u64,
    asked: Asked,
    /// 99th percentile and longest of the others, us, and the same without deletions.
    late: (f64, f64),
    alone: (f64, f64),
}

/// The extents of the file: a block of another file is between two of them.
fn file() -> Vec<Range<u64>> {
    let (mut out, mut at, mut left) = (Vec::new(), BLOCK, FILE / BLOCK);
    while left > 0 {
        let n = left.min(EXTENT);
        out.push(at..at + n * BLOCK);
        at += (n + 1) * BLOCK;
        left -= n;
    }
    out
}

fn blocks(extents: &[Range<u64>]) -> Vec<Range<u64>> {
    let each = |e: &Range<u64>| (e.start..e.end).step_by(BLOCK as usize).map(|b| b..b + BLOCK);
    extents.iter().flat_map(each).collect()
}

#[derive(Default)]
struct Deletion {
    over: Cell<bool>,
    /// Requests that failed.
    wrong: Cell<u64>,
    /// When the last one was answered.
    free_at: Cell<u64>,
    /// Extra time of a write to a place just deleted, compared with any other place, ns.
    longer: Cell<u64>,
}

/// Deletes one range after the other; then `again`, when given, is written at once.
async fn delete(
    core: Rc<Core>,
    edge: Edge,
    what: Vec<Range<u64>>,
    again: Option<u64>,
    tell: Rc<Deletion>,
) {
    let count = |failed: bool| tell.wrong.set(tell.wrong.get() + u64::from(failed));
    for range in what {
        let ask = |bio: &mut Bio| {
            (bio.op, bio.offset, bio.length) = (Op::Delete, range.start, range.end - range.start);
        };
        count(core.io(edge, ask).await.status.is_err());
    }
    tell.free_at.set(core.reactor().fresh_now());
    if let Some(again) = again {
        let mut times = Vec::new();
        for place in [again, 0] {
            let begun = core.reactor().fresh_now();
            count(core.write(edge, place, &[1; BLOCK as usize]).await.is_err());
            times.push(core.reactor().fresh_now().saturating_sub(begun));
        }
        if let [there, elsewhere] = times[..] {
            tell.longer.set(there.saturating_sub(elsewhere));
        }
    }
    tell.over.set(true);
}

fn run_case(way: Way, seed: u64) -> Result<Outcome, Error> {
    let mut lab = Lab::new(seed)?;
    let flash = Flash::new(seed).map_err(failed)?;
    lab.disk("flash", flash.provider("flash"))?;
    let on = match way {
        Way::Queue => {
            lab.verb("trim", "create", "flash")?;
            "flash.trim"
        }
        _ => "flash",
    };
    let edge = lab.open(on)?;
    let extents = file();
    let end = extents.last().map_or(0, |e| e.end) + BLOCK;
    let mut out = Outcome::default();
    let alone = Crowd::begin(&lab.core, edge, seed, end);
    lab.pass(ALONE_NS);
    alone.stop();
    lab.pass(S);
    out.alone = alone.late()?;

    let what = match way {
        Way::Blocks => blocks(&extents).into_iter().take((PART / BLOCK) as usize).collect(),
        Way::Extents => extents,
        Way::Queue => blocks(&extents),
    };
    out.bytes = what.iter().map(|r| r.end - r.start).sum();
    let first = what.first().map_or(0, |r| r.start);
    let crowd = Crowd::begin(&lab.core, edge, seed ^ 1, end);
    lab.pass(S);
    let began = lab.now();
    let deletion = Rc::<Deletion>::default();
    let again = (way == Way::Queue).then_some(first);
    let task = delete(lab.core.clone(), edge, what, again, deletion.clone());
    drop(lab.core.reactor().spawn("delete", task));
    let watch = deletion.clone();
    if !lab.until(3600, || watch.over.get()) || deletion.wrong.get() > 0 {
        return Err(failed(format!("{} deletions failed", deletion.wrong.get())));
    }
    out.reusable_ns = deletion.free_at.get().saturating_sub(began) + deletion.longer.get();
    let all = out.bytes - if way == Way::Queue { BLOCK } else { 0 };
    let observed = flash.clone();
    if !lab.until(3600, || observed.asked().bytes >= all && observed.asked().ended > 0) {
        return Err(failed("the disk was never sent all deletes"));
    }
    lab.pass(S);
    crowd.stop();
    let quiet = crowd.clone();
    if !lab.until(60, || quiet.is_done()) {
        return Err(failed("requests do not end"));
    }
    out.asked = flash.asked();
    out.reported_ns = out.asked.ended.saturating_sub(began);
    out.late = crowd.late()?;
    Ok(out)
}

pub(super) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cases =
        [("trim-blocks", Way::Blocks), ("trim-extents", Way::Extents), ("trim-queue", Way::Queue)];
    for (done, (case, way)) in (0..).zip(cases) {
        progress(Progress { done, of: 3, step: format!("seeds: {case}") });
        if !options.wants(case) {
            continue;
        }
        let rounds = (0..u64::from(options.rounds)).map(|round| run_case(way, 1 + round));
        let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
        rows(options, report, (case, way), &rounds);
    }
    report.notes.push(
        "the seed's disk: 20 deletions a second and 0.6 MB/s by blocks, some 300 MB/s by extents; \
         virtual time, a disk whose TRIM takes 50 ms, 1000 small requests a second beside it"
            .to_owned(),
    );
    Ok(())
}

/// A figure of an outcome: its name, its unit, its value, its goal.
type Figure = (&'static str, &'static str, fn(&Outcome) -> f64, Option<Goal>);

fn rows(options: &Options, report: &mut Report, (case, way): (&str, Way), all: &[Outcome]) {
    let ours = |at_most| Some(Goal { of: Of::Ours, at_most });
    let mut figures: Vec<Figure> = match way {
        Way::Queue => vec![
            (
                "until 1 GiB can be used again",
                "ms",
                |o| o.reusable_ns as f64 / 1e6,
                ours(AT_ONCE_MS),
            ),
            ("commands to the disk", "", |o| o.asked.trims as f64, ours(COMMANDS)),
            ("the disk's time that they took", "%", share, ours(SHARE)),
            ("until the disk knew of all", "s", |o| o.reported_ns as f64 / 1e9, None),
        ],
        _ => vec![
            ("commands", "1/s", |o| o.asked.trims as f64 * 1e9 / o.reported_ns.max(1) as f64, None),
            ("deleted", "MB/s", |o| o.bytes as f64 * 1e3 / o.reusable_ns.max(1) as f64, None),
        ],
    };
    let p99 = (way == Way::Queue).then_some(Goal { of: Of::Ratio, at_most: P99 });
    figures.push(("others: 99th percentile", "us", |o| o.late.0, p99));
    figures.push(("others: longest", "us", |o| o.late.1, None));
    for (figure, unit, f, goal) in figures {
        let mut series = Series { ours: all.iter().map(f).collect(), theirs: Vec::new() };
        let mut peer = None;
        if figure.starts_with("others") {
            let alone = |o: &Outcome| if figure.contains("99") { o.alone.0 } else { o.alone.1 };
            (series.theirs, peer) = (all.iter().map(alone).collect(), Some("without"));
        } else if figure == "deleted" {
            let seed = SEED.iter().find(|(name, _)| *name == case).map(|(_, mb)| *mb);
            series.theirs = all.iter().filter_map(|_| seed).collect();
            peer = Some("seed");
        }
        let row = series.row(case, (figure, unit), peer);
        report.add(options, "seeds trim", row, goal);
    }
}

/// Percent of the time until the disk knew of all; the pause that follows the last is not counted.
fn share(o: &Outcome) -> f64 {
    (o.asked.trims * flash::TRIM_NS) as f64 * 100.0 / o.reported_ns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_file_has_one_gib_in_separate_extents() {
        let all = file();
        assert_eq!(all.iter().map(|e| e.end - e.start).sum::<u64>(), FILE);
        assert!(all.windows(2).all(|two| two[0].end < two[1].start));
        assert_eq!(blocks(&all).len() as u64, FILE / BLOCK);
    }

    /// The goals that the table shows, in one round.
    #[test]
    fn queued_trims_meet_their_goals_and_other_methods_their_rates() {
        let blocks = run_case(Way::Blocks, 1).expect("blocks");
        let rate = blocks.bytes as f64 * 1e3 / blocks.reusable_ns as f64;
        assert!((0.62..0.66).contains(&rate), "{rate} MB/s");
        let extents = run_case(Way::Extents, 1).expect("extents");
        let rate = extents.bytes as f64 * 1e3 / extents.reusable_ns as f64;
        assert!((285.0..305.0).contains(&rate), "{rate} MB/s");
        assert!(extents.late.0 > 10.0 * extents.alone.0, "others are held up: {:?}", extents.late);
        let queue = run_case(Way::Queue, 1).expect("queue");
        assert_eq!(queue.asked.trims, 2);
        assert!(queue.reusable_ns < 100_000, "at once: {} ns", queue.reusable_ns);
        assert_eq!(queue.asked.bytes, FILE - BLOCK, "all but the block that was used again");
        assert!(queue.late.0 <= P99 * queue.alone.0, "{:?} {:?}", queue.late, queue.alone);
        assert!(share(&queue) <= SHARE, "{} %", share(&queue));
    }
}
