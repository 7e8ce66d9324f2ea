//! The comparisons that the project's seeds make, made again on this machine: one file a seed.
//!
//! * `scst`: commands in threads, and one system call a command.

mod scst;

use crate::error::Error;
use crate::options::{Options, Seed};
use crate::report::Report;
use crate::run::Progress;

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    match options.seed.unwrap_or_default() {
        Seed::Scst => scst::measure(options, report, progress),
    }
}
