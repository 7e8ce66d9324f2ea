//! The comparisons that the project's seeds make, made again on this machine: one file a seed.
//!
//! * `aoe`: the throughput of a link of the diskless file server. In virtual time.
//! * `fileserver`: the same server as its clients see it: reading ahead, dumps, a far leg. In
//!   virtual time.
//! * `sched`: whose request a disk gets next, in a modelled disk.
//! * `scst`: commands in threads, and one system call a command.
//! * `trim`: three ways of passing deletions to a disk. In virtual time: exact, and the same on
//!   every machine.

mod aoe;
mod fileserver;
mod sched;
mod scst;
mod trim;

use crate::error::Error;
use crate::options::{Options, Seed};
use crate::progress::Progress;
use crate::report::Report;

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    match options.seed.unwrap_or_default() {
        Seed::Fileserver => fileserver::measure(options, report, progress),
        Seed::Aoe => aoe::measure(options, report, progress),
        Seed::Sched => sched::measure(options, report, progress),
        Seed::Scst => scst::measure(options, report, progress),
        Seed::Trim => trim::measure(options, report, progress),
    }
}
