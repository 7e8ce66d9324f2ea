//! A thread that is always busy on a core that is measured, as another program would be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use crate::cpu_affinity::pin;
use crate::error::{Error, Kind};

/// The thread. It ends when this is dropped.
pub(crate) struct BusyCore {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BusyCore {
    /// Keeps a core busy; without one, that of the kernel's choice.
    pub fn start(core: Option<usize>) -> Result<BusyCore, Error> {
        let is_over = Arc::<AtomicBool>::default();
        let (over, (report, pinned)) = (is_over.clone(), mpsc::channel());
        let work = move || {
            let done = core.map_or(Ok(()), pin);
            let is_pinned = done.is_ok();
            // The receiver waits for it.
            let _ = report.send(done);
            while is_pinned && !over.load(Relaxed) {
                std::hint::spin_loop();
            }
        };
        let thread = Builder::new().name("busy".into()).spawn(work);
        let thread = thread.map_err(|e| Error::system("start a busy thread", e))?;
        let busy = BusyCore { is_over, thread: Some(thread) };
        let ended = |_| Error::new(Kind::System, "the busy thread panicked");
        pinned.recv().map_err(ended)??;
        Ok(busy)
    }
}

impl Drop for BusyCore {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_costs::cores;

    #[test]
    fn busy_thread_ends_with_its_handle() {
        let busy = BusyCore::start(cores().first().copied()).unwrap();
        let over = busy.is_over.clone();
        drop(busy);
        assert!(over.load(Relaxed));
        assert_eq!(Arc::strong_count(&over), 1, "the thread has dropped its copy");
        assert!(BusyCore::start(Some(usize::MAX)).is_err() || cores().len() >= 1024);
    }
}
