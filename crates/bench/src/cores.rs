//! Gain of a second core, without a network: the same load on one core and on two.

use std::time::Duration;

use crate::error::Error;
use crate::inproc::{Outcome, Rig, Shape, Way};
use crate::options::Options;
use crate::process_costs;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};

/// Cases: a disk for all cores, and for each core initiators at two.
pub(crate) const CASES: [(&str, u32, bool); 3] =
    [("cores-read-1", 1, false), ("cores-read-2", 2, false), ("cores-write-2", 2, true)];
/// Goal: commands a second with one core over those with two.
const ONE_OVER_TWO: f64 = 1.0 / 1.8;
/// Goal: processor time of a command with two cores over that with one: the cost of sharing between
/// the cores. This is the same promise, but other work on the machine hardly changes the figure.
const TWO_OVER_ONE: f64 = 1.0 / 0.9;

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let wanted: Vec<_> = CASES.iter().filter(|(name, ..)| options.wants(name)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    if process_costs::cores().len() < 2 {
        report.notes.push("cores: there is one core only, so nothing can be compared".into());
        return Ok(());
    }
    let of = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
    for (done, &&(name, disks, write)) in (0..).zip(&wanted) {
        progress(Progress { done, of, step: format!("cores: {name}") });
        let one = Shape { cores: 1, disks, way: Way::Direct, write, depth: 32 };
        let time = Duration::from_secs(u64::from(options.seconds));
        let (mut alone, mut pair) = (Rig::start(one)?, Rig::start(Shape { cores: 2, ..one })?);
        let (mut with_one, mut with_two) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            with_one.push(alone.run(time)?);
            with_two.push(pair.run(time)?);
        }
        let pick = |all: &[Outcome], f: fn(&Outcome) -> f64| all.iter().map(f).collect::<Vec<_>>();
        let rate =
            Series { ours: pick(&with_one, Outcome::rate), theirs: pick(&with_two, Outcome::rate) };
        let goal = Goal { of: Of::Ratio, at_most: ONE_OVER_TWO };
        let row = rate.row(name, ("commands with one core", "1/s"), Some("two cores"));
        report.add(options, "cores", row, Some(goal));
        let cost = Series {
            ours: pick(&with_two, Outcome::cpu_us),
            theirs: pick(&with_one, Outcome::cpu_us),
        };
        let goal = Goal { of: Of::Ratio, at_most: TWO_OVER_ONE };
        let figure = ("processor time a command with two cores", "us");
        let row = cost.row(name, figure, Some("one core"));
        report.add(options, "cores", row, Some(goal));
    }
    Ok(())
}
