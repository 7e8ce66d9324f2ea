//! A running load on a thread of its own, and the state shared by the thread and its owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::spec::Outcome;
use crate::cpu_affinity::pin;
use crate::error::{Error, Kind};

/// Longest wait for sessions to begin, and for a server's word.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// State shared by the load's thread and its owner.
#[derive(Default)]
pub(crate) struct LoadShared {
    pub recording: AtomicBool,
    /// No new requests; log out.
    pub stop: AtomicBool,
    /// Sessions that have begun their work.
    pub ready: AtomicU32,
    /// Requests that ended well.
    pub requests: AtomicU64,
}

/// A load under way. Dropping it stops it.
pub struct Running {
    shared: Arc<LoadShared>,
    thread: Option<JoinHandle<Result<Outcome, Error>>>,
}

impl Running {
    /// Starts `work` on a thread that is kept on `core`; answers when so many sessions have begun.
    pub(crate) fn begin(
        core: Option<usize>,
        sessions: u32,
        work: impl FnOnce(Arc<LoadShared>) -> Result<Outcome, Error> + Send + 'static,
    ) -> Result<Running, Error> {
        let shared = Arc::new(LoadShared::default());
        let its = shared.clone();
        let thread = std::thread::Builder::new().name("load".into());
        let thread = thread.spawn(move || {
            core.map_or(Ok(()), pin)?;
            work(its)
        });
        let thread = thread.map_err(|e| Error::system("start a thread", e))?;
        let mut running = Running { shared, thread: Some(thread) };
        let begun = Instant::now();
        while running.shared.ready.load(Relaxed) < sessions {
            if running.is_finished() {
                running.join_thread()?;
                return Err(Error::new(Kind::Protocol, "the load ended before it began"));
            }
            if begun.elapsed() > WAIT {
                return Err(Error::new(Kind::Timeout, "the sessions did not begin in time"));
            }
            sleep(Duration::from_millis(1));
        }
        Ok(running)
    }

    /// Requests that have ended well so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Relaxed)
    }

    /// Begins or ends the recording of latencies.
    pub fn record(&self, yes: bool) {
        self.shared.recording.store(yes, Relaxed);
    }

    /// Whether it has ended, by itself or with an error.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it: no new requests, the answers outstanding, logout.
    pub fn stop(self) -> Result<Outcome, Error> {
        self.shared.stop.store(true, Relaxed);
        self.join()
    }

    /// Waits for the end.
    pub fn join(mut self) -> Result<Outcome, Error> {
        self.join_thread()
    }

    fn join_thread(&mut self) -> Result<Outcome, Error> {
        let Some(thread) = self.thread.take() else { return Ok(Outcome::default()) };
        let panicked = |_| Error::new(Kind::System, "the load's thread panicked");
        thread.join().map_err(panicked)?
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        let _ = self.join_thread();
    }
}
