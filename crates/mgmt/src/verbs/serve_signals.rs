//! Signals of the daemon: which end it in order, which reload the configuration, which do nothing.
//!
//! Invariant S1: no signal that can be handled ends the daemon without an orderly stop.

use std::io;
use std::ops::RangeInclusive;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that do nothing, though their default action would end the process: SIGUSR1, SIGUSR2,
/// SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT, SIGXCPU and SIGXFSZ (the write that is
/// too far out fails with EFBIG). SIGPIPE is ignored by the runtime.
const IGNORED: [i32; 10] = [10, 12, 14, 26, 27, 29, 30, 16, 24, 25];

/// SIGRTMIN to SIGRTMAX: their default action ends the process, too. The C library keeps the two
/// numbers below them for itself.
const REAL_TIME: RangeInclusive<i32> = 34..=64;

/// Request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// An orderly stop; the name of the signal.
    Stop(&'static str),
    /// `apply` of the configuration file.
    Reload,
}

/// Handlers of all of them. What arrives before [`Signals::next`] is called is kept.
pub(super) struct Signals {
    term: Signal,
    int: Signal,
    quit: Signal,
    hup: Signal,
    _ignored: Vec<Signal>,
}

impl Signals {
    /// Installs the handlers; within a runtime.
    ///
    /// # Errors
    /// Those of sigaction(2).
    pub fn install() -> io::Result<Signals> {
        let ignored = IGNORED.into_iter().chain(REAL_TIME);
        let ignored = ignored.map(|n| signal(SignalKind::from_raw(n)));
        Ok(Signals {
            _ignored: ignored.collect::<io::Result<_>>()?,
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one with an action.
    pub async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.term.recv() => SignalRequest::Stop("SIGTERM"),
            _ = self.int.recv() => SignalRequest::Stop("SIGINT"),
            _ = self.quit.recv() => SignalRequest::Stop("SIGQUIT"),
            _ = self.hup.recv() => SignalRequest::Reload,
        }
    }
}
