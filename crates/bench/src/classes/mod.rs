//! Cost of the classes with members: beside the bare disks below them, beside copied memory, beside
//! a layer that does nothing; and the cost of schedulers. In this process, on one core; one file
//! for each family of cases.

mod disk;
mod dispatch;
pub(crate) mod drive;
mod mirror;
mod parity;
mod rebuild;
mod sched;
mod stripe;

use serde_json::json;

use crate::bed::{Bed, failed};
use crate::error::Error;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Report, Series};

/// Every case; `--case` takes a part of a name.
pub(crate) const CASES: &[&str] = &[
    "stripe-read-128k",
    "stripe-write-128k",
    "mirror-members",
    "mirror-cpu",
    "parity-raid5",
    "parity-raid6",
    "stripe-write-raid5",
    "stripe-write-raid6",
    "dispatch",
    "sched",
    "rebuild",
];

/// One figure of a case: its words, its rounds, the name of the other side, its goal.
pub(super) struct Figure {
    pub case: &'static str,
    pub label: (String, &'static str),
    pub series: Series,
    pub peer: Option<&'static str>,
    pub goal: Option<Goal>,
}

/// Measures the cases that are wanted.
pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let wanted: Vec<&str> = CASES.iter().copied().filter(|c| options.wants(c)).collect();
    for (done, case) in wanted.iter().enumerate() {
        let (done, of) = (done as u32, wanted.len() as u32);
        progress(Progress { done, of, step: format!("classes: {case}") });
        let length = options.length();
        let figures = match *case {
            "stripe-read-128k" | "stripe-write-128k" => stripe::measure(case, length),
            "mirror-members" => mirror::members(length),
            "mirror-cpu" => mirror::cpu(length),
            "parity-raid5" | "parity-raid6" => parity::sums(case, length),
            "stripe-write-raid5" | "stripe-write-raid6" => parity::volume(case, length),
            "dispatch" => dispatch::measure(length),
            "sched" => sched::measure(length),
            _ => rebuild::measure(length),
        };
        for figure in figures.map_err(|e| e.within(case))? {
            let Figure { case, label: what, series, peer, goal } = figure;
            let row = series.row(case, (&what.0, what.1), peer);
            report.add(options, "classes", row, goal);
        }
    }
    Ok(())
}

/// A graph with every class and so many memory disks `d0`, `d1` ...
fn with_memory(disks: usize, bytes: u64) -> Result<Bed, Error> {
    let mut bed = with_classes()?;
    let class = disks::DiskClass::new(bed.inbox.clone(), 1);
    for n in 0..disks {
        let (name, params) = (format!("d{n}"), json!({ "size": bytes }));
        let made = bed.control.call(|t| class.add(t, "memory", &name, &params));
        made.map_err(failed)?;
    }
    Ok(bed)
}

/// A graph with every class.
fn with_classes() -> Result<Bed, Error> {
    let mut bed = Bed::start()?;
    let (inbox, every) = (bed.inbox.clone(), classes::all());
    bed.load(std::sync::Arc::new(disks::DiskClass::new(inbox, 1)))?;
    every.into_iter().try_for_each(|class| bed.load(class))?;
    Ok(bed)
}
