//! `scst` (a posting of 2008). It compares commands processed where they arrive with commands that
//! are handed to a thread, by 4 KiB random writes to one, two and three disks. Also one system call
//! a command, which it takes for little. Both without a network, so that nothing else is measured.

use std::time::Duration;

use crate::error::Error;
use crate::inproc::{Outcome, Rig, Shape, Way};
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};

/// Cost of the posting's threads: commands a second in a thread over those without one, for one,
/// two and three disks.
const THREADS: [(u32, f64); 3] = [(1, 89.0 / 140.0), (2, 102.0 / 155.0), (3, 118.0 / 173.0)];
type Figure = fn(&Outcome) -> f64;

const WRITES: Shape = Shape { cores: 1, disks: 1, way: Way::Direct, write: true, depth: 32 };

pub(super) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cases = THREADS.map(|(disks, posted)| (disks, Way::Thread, Some(posted)));
    let cases = cases.into_iter().chain([(1, Way::Call, None)]);
    for (done, (disks, way, posted)) in (0..).zip(cases) {
        let other = match way {
            Way::Thread => "threads",
            _ => "one call each",
        };
        let case = format!("scst-{disks}-{}", if way == Way::Thread { "threads" } else { "call" });
        progress(Progress { done, of: 4, step: format!("seeds: {case}") });
        if !options.wants(&case) {
            continue;
        }
        let ours = Shape { disks, ..WRITES };
        let (ours, theirs) = both(options, ours, Shape { way, ..ours })?;
        let pick = |all: &[Outcome], f: Figure| all.iter().map(f).collect::<Vec<_>>();
        let figures: [(&str, &str, Figure); 2] = [
            ("processor time a command", "us", Outcome::cpu_us),
            ("commands", "1/s", Outcome::rate),
        ];
        for (n, (figure, unit, f)) in figures.into_iter().enumerate() {
            let series = Series { ours: pick(&ours, f), theirs: pick(&theirs, f) };
            let goal = posted.filter(|_| n == 0);
            let goal = goal.map(|at_most| Goal { of: Of::Ratio, at_most });
            let row = series.row(&case, (figure, unit), Some(other));
            report.add(options, "seeds scst", row, goal);
        }
    }
    let posted = "the posting of 2008: 140 against 89 thousand commands a second with one disk, \
                  155 against 102 with two, 173 against 118 with three";
    report.notes.push(posted.to_owned());
    Ok(())
}

/// Both in turns, round by round.
fn both(
    options: &Options,
    ours: Shape,
    theirs: Shape,
) -> Result<(Vec<Outcome>, Vec<Outcome>), Error> {
    let time = Duration::from_secs(u64::from(options.seconds));
    let (mut our_rig, mut their_rig) = (Rig::start(ours)?, Rig::start(theirs)?);
    let (mut us, mut them) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        us.push(our_rig.run(time)?);
        them.push(their_rig.run(time)?);
    }
    Ok((us, them))
}
