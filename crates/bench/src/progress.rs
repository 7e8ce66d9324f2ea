//! Progress of a run, and its stop.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Kind};

/// Where a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: u32,
    /// Steps in all.
    pub of: u32,
    /// The step that is measured now.
    pub step: String,
}

/// Set by a signal: the process has one run.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Ends the run of this process at its next step.
pub fn stop() {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Whether [`stop`] was called.
pub fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// An error when the run is to end.
pub(crate) fn check_stopped() -> Result<(), Error> {
    if stopped() { Err(Error::new(Kind::Stopped, "stopped")) } else { Ok(()) }
}
