//! The log on standard error, written by a thread of its own: a slow reader does not delay the
//! threads that serve requests.
//!
//! Invariants
//!  L1  A thread that logs never waits. A line that finds no space or cannot be written is dropped
//!      and counted, and the count is in the log before the next line.
//!  L2  At most [`LINES_MAX`] lines wait, of at most [`LINE_BYTES_MAX`] bytes each.
//!  L3  A line is one line, and a terminal obeys nothing in it.

use crate::log_form::LogForm;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The log of this process, from when it serves.
static DAEMON_LOG: OnceLock<LogQueue> = OnceLock::new();

/// Whether this process is a daemon: it has begun to serve.
pub fn is_daemon() -> bool {
    DAEMON_LOG.get().is_some()
}

/// Has the daemon's log written as far as it is, not waiting for long.
pub fn flush_log() {
    if let Some(lines) = DAEMON_LOG.get() {
        lines.flush();
    }
}

/// Lines that wait for the reader; further ones are dropped.
const LINES_MAX: usize = 4096;

/// Longest line, bytes; of a longer one the end is lost.
pub(crate) const LINE_BYTES_MAX: usize = 8192;

/// Pause between two looks for space, and how long the end of the daemon waits for the reader.
const PAUSE: Duration = Duration::from_millis(5);
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum LogItem {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// A way into the log; clones are the same.
#[derive(Clone)]
pub(crate) struct LogQueue {
    sender: SyncSender<LogItem>,
    dropped: Arc<AtomicU64>,
}

impl LogQueue {
    /// Starts the thread that writes to `sink`. `form`: that of warnings of the log itself.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(sink: impl Write + Send + 'static, form: LogForm) -> io::Result<LogQueue> {
        let (to, from) = sync_channel(LINES_MAX);
        let dropped = Arc::<AtomicU64>::default();
        let counted = dropped.clone();
        let thread = std::thread::Builder::new().name("ashlar-log".into());
        thread.spawn(move || write_all(&from, &counted, sink, form))?;
        Ok(LogQueue { sender: to, dropped })
    }

    /// This process serves from now on, and logs here.
    pub fn set_daemon_log(&self) {
        // A second daemon in one process (tests) logs to the first one's.
        let _ = DAEMON_LOG.set(self.clone());
    }

    /// Logs a line that has its final form.
    pub(crate) fn push(&self, line: Vec<u8>) {
        if self.sender.try_send(LogItem::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits a short time until the logged lines are written.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        let start = Instant::now();
        let mut item = LogItem::Flush(done);
        while let Err(TrySendError::Full(back)) = self.sender.try_send(item) {
            if start.elapsed() > FLUSH_TIMEOUT {
                return;
            }
            item = back;
            std::thread::park_timeout(PAUSE);
        }
        // Times out when the log has no reader.
        let _ = written.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// One call is one line.
impl Write for LogQueue {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let cut = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
        let text = String::from_utf8_lossy(cut.strip_suffix(b"\n").unwrap_or(cut));
        let mut line = crate::text::escape_line(&text).into_owned().into_bytes();
        line.push(b'\n');
        self.push(line);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(from: &Receiver<LogItem>, dropped: &AtomicU64, mut sink: impl Write, form: LogForm) {
    for item in from {
        match item {
            LogItem::Line(line) => {
                let n = dropped.swap(0, Ordering::Relaxed);
                if n > 0 {
                    let why = "the reader is too slow, or the log cannot be written";
                    let text = format!("{n} lines of the log are dropped: {why}");
                    if sink.write_all(&form.warning(text)).is_err() {
                        dropped.fetch_add(n, Ordering::Relaxed);
                    }
                }
                if sink.write_all(&line).is_err() {
                    dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            LogItem::Flush(done) => {
                let _ = sink.flush();
                let _ = done.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;
    use std::sync::{Condvar, Mutex, PoisonError};

    /// A reader that reads on demand.
    struct Slow {
        gate: Arc<(Mutex<bool>, Condvar)>,
        got: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (open, opened) = &*self.gate;
            let open = open.lock().unwrap_or_else(PoisonError::into_inner);
            drop(opened.wait_while(open, |open| !*open));
            let _ = self.got.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A log on a disk that is full for some writes.
    struct Full {
        failures: u64,
        got: Sender<Vec<u8>>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.failures > 0 {
                self.failures -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            let _ = self.got.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn l1_line_that_cannot_be_written_is_counted() {
        let (got, from) = std::sync::mpsc::channel();
        // One line fails, then the warning about it and another line.
        let lines = LogQueue::start(Full { failures: 3, got }, LogForm::Text).expect("a thread");
        for n in 0..3 {
            lines.push(format!("line {n}\n").into_bytes());
        }
        lines.flush();
        let all: Vec<String> =
            from.try_iter().map(|l| String::from_utf8_lossy(&l).into_owned()).collect();
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("2 lines of the log are dropped"), "{all:?}");
        assert_eq!(all[1], "line 2\n");
    }

    /// L2.
    #[test]
    fn l1_l2_unread_log_does_not_block_its_writers() {
        const ALL: u64 = 100_000;
        let gate = Arc::<(Mutex<bool>, Condvar)>::default();
        let (got, from) = std::sync::mpsc::channel();
        let sink = Slow { gate: gate.clone(), got };
        let lines = LogQueue::start(sink, LogForm::Text).expect("a thread");
        let start = Instant::now();
        let mut longest = Duration::ZERO;
        let mut log = lines.clone();
        for n in 0..ALL {
            let at = Instant::now();
            assert!(log.write(format!("line {n}\n").as_bytes()).is_ok());
            longest = longest.max(at.elapsed());
        }
        println!("{ALL} lines in {:?}, the longest took {longest:?}", start.elapsed());
        *gate.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        gate.1.notify_all();
        lines.flush();
        assert!(log.write(&[b'x'; 3 * LINE_BYTES_MAX]).is_ok());
        lines.flush();
        let all: Vec<String> =
            from.try_iter().map(|l| String::from_utf8_lossy(&l).into_owned()).collect();
        let written: Vec<&String> = all.iter().filter(|l| l.starts_with("line ")).collect();
        let numbers = all.iter().filter(|l| l.contains("dropped"));
        let numbers = numbers.filter_map(|l| l.split(' ').next()?.parse::<u64>().ok());
        assert_eq!(written.len() as u64 + numbers.sum::<u64>(), ALL, "each is written or counted");
        assert!((LINES_MAX..LINES_MAX + 10).contains(&written.len()), "{}", written.len());
        assert_eq!(written[0], "line 0\n");
        assert!(all.iter().all(|l| l.len() <= LINE_BYTES_MAX + 1));
    }
}
