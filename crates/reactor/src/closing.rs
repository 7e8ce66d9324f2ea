//! Files that are closed on other threads: close(2) hangs while a network file system does not
//! answer.
//!
//! ```text
//!   last handle dropped --on an ordinary thread--> closed
//!                       --on one that may not block--> queue --a closing thread--> closed
//! ```
//!
//! Invariants
//!  X1  A thread that has called [`close_elsewhere`] closes no file of the kernel itself.
//!  X2  At most [`THREADS_MAX`] threads close files. While all of them hang, further files stay
//!      open and wait for one.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bio::sync::{Condvar, Mutex};

/// Threads at once.
const THREADS_MAX: usize = 64;

thread_local! {
    static ELSEWHERE: Cell<bool> = const { Cell::new(false) };
}

/// A file that is not closed yet.
struct Closing {
    path: PathBuf,
    /// [`wait_closed`] has returned its path.
    is_reported: bool,
}

struct ClosingFiles {
    by_id: BTreeMap<u64, Closing>,
    queue: VecDeque<(u64, Box<dyn FnOnce() + Send>)>,
    threads: usize,
    last_id: u64,
}

static STATE: Mutex<ClosingFiles> = Mutex::new(ClosingFiles {
    by_id: BTreeMap::new(),
    queue: VecDeque::new(),
    threads: 0,
    last_id: 0,
});

/// A file has been closed.
static CLOSED: Condvar = Condvar::new();

/// This thread must not block: files whose last handle it drops are closed on other threads.
pub fn close_elsewhere() {
    ELSEWHERE.set(true);
}

/// Waits until the files of [`close_elsewhere`] are closed, at most for `limit`. Returns the paths
/// of those that are not closed, each once: later calls do not wait for them.
pub fn wait_closed(limit: Duration) -> Vec<PathBuf> {
    let is_awaited = |state: &mut ClosingFiles| state.by_id.values().any(|file| !file.is_reported);
    let mut state = CLOSED.wait_timeout_while(STATE.lock(), limit, is_awaited);
    let left = state.by_id.values_mut().filter(|file| !file.is_reported);
    let report = |file: &mut Closing| {
        file.is_reported = true;
        file.path.clone()
    };
    left.map(report).collect()
}

/// Whether no file that was opened at `path` is being closed; waits for that at most for `limit`.
pub fn is_closed_within(path: &Path, limit: Duration) -> bool {
    let is_closing = |state: &mut ClosingFiles| state.by_id.values().any(|file| file.path == path);
    let mut state = CLOSED.wait_timeout_while(STATE.lock(), limit, is_closing);
    !is_closing(&mut state)
}

/// Closes a descriptor that was opened at `path`, by dropping it (X1).
pub(crate) fn close(path: &Path, descriptor: impl Send + 'static) {
    match ELSEWHERE.get() {
        true => enqueue(path, Box::new(move || drop(descriptor))),
        false => drop(descriptor),
    }
}

fn enqueue(path: &Path, close: Box<dyn FnOnce() + Send>) {
    let mut state = STATE.lock();
    state.last_id += 1;
    let id = state.last_id;
    state.by_id.insert(id, Closing { path: path.to_owned(), is_reported: false });
    state.queue.push_back((id, close));
    if state.threads >= THREADS_MAX {
        return;
    }
    let thread = std::thread::Builder::new().name("ashlar-close".into());
    // If no thread can start, that of a later file closes this one too. A thread takes the lock
    // first, which is held here.
    state.threads += usize::from(thread.spawn(close_queued).is_ok());
}

/// A thread: closes files until none is left.
fn close_queued() {
    loop {
        let mut state = STATE.lock();
        let Some((id, close)) = state.queue.pop_front() else {
            state.threads -= 1;
            return;
        };
        drop(state);
        close();
        STATE.lock().by_id.remove(&id);
        CLOSED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use super::*;
    use crate::file::File;

    /// A wait that is over when it fails.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    #[cfg(not(miri))]
    fn x1_file_that_hangs_is_reported_once_and_others_are_closed() {
        let (slow, other) = (Path::new("closing-slow"), Path::new("closing-other"));
        let (release, released) = mpsc::channel::<()>();
        enqueue(
            slow,
            Box::new(move || {
                let _ = released.recv();
            }),
        );
        assert_eq!(wait_closed(Duration::ZERO), [slow]);
        let (mut reader, writer) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            close_elsewhere();
            drop(File::of(writer.into(), "closing-other"));
        });
        // The end of the stream: its peer is closed, though another file hangs.
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
        assert!(is_closed_within(other, LONG));
        assert!(!is_closed_within(slow, Duration::ZERO));
        assert!(wait_closed(LONG).is_empty(), "it is reported once");
        drop(release);
        assert!(is_closed_within(slow, LONG));
    }
}
