//! `fileserver` (the paper on the diskless file server): reading ahead, places on a disk, the pause
//! of a dump, and a far leg, in virtual time. Ours is the volume's own code on the paper's devices.
//! Inputs are the time of a frame, the unit that its target fetches at a time. Further ones are the
//! time of a client between two blocks, and the seeks of its disks.

mod cases;
mod device;
mod lab;

use crate::error::Error;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use cases::{Disk, Order};

const WHAT: &str = "seeds fileserver";
/// The model is off the paper's ratios by so many percent at most.
const OFF: f64 = 3.0;
/// Seconds of the paper for its GiB: from the block cache, then by so many workers.
const AHEAD: (f64, [(u32, f64); 3]) = (13.72, [(1, 25.5), (10, 15.74), (20, 13.75)]);
/// The paper's disks: seek, ns; ps a byte after one, and of sequential data. MB/s by rows.
const DISKS: [(&str, Disk, f64); 3] = [
    ("layout-rows-old-disk", (15_000_000, 8_000_000_000 / 8192, 976_562), 0.3478),
    ("layout-rows-new-disk", (9_000_000, 26_000_000 / 8192, 3_173), 0.890),
    ("layout-rows", OBSERVED, 2.0),
];
/// Observed values of the new disk.
const OBSERVED: Disk = (4_070_000, 26_000_000 / 8192, 328_000_000 / 8192);
const COLUMNS: f64 = 25.0;
/// Its walk looks at each changed block, ms each.
const WALK_MS: f64 = 0.079;
/// No client waits longer for a dump, ms.
const HALT_MS: f64 = 10.0;
/// 1 MB/s in its blocks.
const FAR: f64 = 122.0;

struct Table<'a> {
    options: &'a Options,
    report: &'a mut Report,
}

impl Table<'_> {
    fn row(
        &mut self,
        case: &str,
        figure: (&str, &str),
        (ours, theirs): (Vec<f64>, Option<(f64, &str)>),
        goal: Option<(Of, f64)>,
    ) {
        let peer = theirs.map(|(_, who)| who);
        let theirs = theirs.map_or(Vec::new(), |(n, _)| vec![n; ours.len()]);
        let goal = goal.map(|(of, at_most)| Goal { of, at_most });
        let row = Series { ours, theirs }.row(case, figure, peer);
        self.report.add(self.options, WHAT, row, goal);
    }

    /// Ours beside the paper's, and how far off it is.
    fn near(&mut self, case: &str, figure: (&str, &str), ours: Vec<f64>, paper: f64, off: f64) {
        let percent = ours.iter().map(|n| (n / paper - 1.0).abs() * 100.0).collect();
        self.row(case, figure, (ours, Some((paper, "paper"))), None);
        self.row(case, ("off the paper's", "%"), (percent, None), Some((Of::Ours, off)));
    }

    fn rounds(&self) -> std::ops::Range<u64> {
        0..u64::from(self.options.rounds)
    }
}

type Case = (&'static str, fn(&mut Table<'_>, &str) -> Result<(), Error>);

const CASES: [Case; 8] = [
    ("read-ahead", read_ahead),
    ("layout", layout),
    ("dump-1-thousand", |t, case| halt(t, case, 1_000)),
    ("dump-10-thousand", |t, case| halt(t, case, 10_000)),
    ("dump-100-thousand", |t, case| halt(t, case, 100_000)),
    ("dump-1-million", |t, case| halt(t, case, 1_000_000)),
    ("far-leg", far),
    ("far-leg-rate", rate),
];

pub(super) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    for (done, (case, run)) in (0..).zip(CASES) {
        progress(Progress { done, of: CASES.len() as u32, step: format!("seeds: {case}") });
        if options.wants(case) {
            run(&mut Table { options, report }, case)?;
        }
    }
    let note = "virtual time: what processors take is not in it. What a dump costs clients on this \
                machine says `ashlar-bench files`";
    report.notes.push(note.to_owned());
    Ok(())
}

/// A round reads four GiB, and rounds differ by chance of less than a thousandth: one is played.
fn read_ahead(t: &mut Table<'_>, case: &str) -> Result<(), Error> {
    let (paper_cached, paper) = AHEAD;
    let ours = cases::read_ahead(1, &paper.map(|(workers, _)| workers))?;
    let [cached, ..] = ours[..] else { return Ok(()) };
    t.near(case, ("GiB from the block cache", "s"), vec![cached], paper_cached, OFF);
    for ((workers, theirs), took) in paper.iter().zip(&ours[1..]) {
        let what = format!("GiB, {workers} workers");
        t.row(case, (&what, "s"), (vec![*took], Some((*theirs, "paper"))), None);
        let what = format!("over the cached one, {workers} workers");
        t.near(case, (&what, ""), vec![took / cached], theirs / paper_cached, OFF);
    }
    Ok(())
}

fn layout(t: &mut Table<'_>, case: &str) -> Result<(), Error> {
    for (what, disk, paper) in DISKS {
        let ours = vec![cases::formula(Order::Rows, disk)?];
        t.near(case, (what, "MB/s"), ours, paper, OFF);
    }
    let ours = vec![cases::formula(Order::Columns, OBSERVED)?];
    t.near(case, ("layout-columns", "MB/s"), ours, COLUMNS, OFF);
    let ours: Result<Vec<f64>, Error> = t.rounds().map(|n| cases::places(n, OBSERVED)).collect();
    let (theirs, goal) = (Some((COLUMNS, "columns")), Some((Of::Inverse, 1.1)));
    t.row(case, ("the volume's own places", "MB/s"), (ours?, theirs), goal);
    Ok(())
}

/// One round: the largest writes 8 GB.
fn halt(t: &mut Table<'_>, case: &str, blocks: u64) -> Result<(), Error> {
    let (waits, whole) = cases::halt(1, blocks)?;
    let walk = Some((blocks as f64 * WALK_MS, "paper's walk"));
    let goal = Some((Of::Ours, HALT_MS));
    t.row(case, ("longest wait of a client", "ms"), (vec![waits], walk), goal);
    t.row(case, ("until it is durable", "ms"), (vec![whole], None), None);
    Ok(())
}

fn far(t: &mut Table<'_>, case: &str) -> Result<(), Error> {
    let (mut with_far, mut without) = (Vec::new(), Vec::new());
    for seed in t.rounds() {
        with_far.push(cases::copy_frozen_file(seed, true)?.p99);
        without.push(cases::copy_frozen_file(seed, false)?.p99);
    }
    let row = Series { ours: with_far, theirs: without };
    let row = row.row(case, ("p99 of a client", "us"), Some("no far leg"));
    let goal = Some(Goal { of: Of::Ratio, at_most: 1.05 });
    t.report.add(t.options, WHAT, row, goal);
    Ok(())
}

fn rate(t: &mut Table<'_>, case: &str) -> Result<(), Error> {
    let ours: Result<Vec<f64>, Error> =
        t.rounds().map(|seed| cases::copy_frozen_file(seed, true).map(|f| f.copied)).collect();
    t.near(case, ("blocks to a leg of 1 MB/s", "/s"), ours?, FAR, 5.0);
    Ok(())
}
