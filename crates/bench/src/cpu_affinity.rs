//! Assignment of cores: one for the server, one for the load.

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::{Error, Kind};
use crate::process_costs;
use crate::report::Report;

/// Core of the server and core of the load; None where there is one core only.
pub(crate) type Cores = (Option<usize>, Option<usize>);

/// A core for the server and one for the load, as far as there are two.
pub(crate) fn two_cores(report: &mut Report) -> Cores {
    match process_costs::cores()[..] {
        [server, load, ..] => (Some(server), Some(load)),
        _ => {
            let note = "one core only: server and load share it, and disturb each other";
            report.notes.push(note.to_owned());
            (None, None)
        }
    }
}

/// Keeps this thread on one core.
pub(crate) fn pin(core: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    set.set(core.min(CpuSet::MAX_CPU - 1));
    sched_setaffinity(None, &set).map_err(|e| Error::system("pin a thread", e.into()))
}

/// Does `work` on a thread of its own that is kept on `core`, and waits for it.
pub(crate) fn on_core<T: Send>(
    core: Option<usize>,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            core.map_or(Ok(()), pin)?;
            work()
        });
        thread.join().map_err(|_| Error::new(Kind::System, "a measuring thread panicked"))?
    })
}
