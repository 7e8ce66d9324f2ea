//! Contents of files and addresses of names, read ahead for a thread that must not block: a file
//! system or a resolver may hang.
//!
//! ```text
//!   a thread that may block --record--> ReadAhead --replay--> the thread that must not
//! ```
//!
//! Invariants
//!  H1  A read in [`ReadAhead::replay`] returns the recorded result, and reads no file again. All
//!      reads of one file in [`ReadAhead::record`] return the same bytes.
//!  H2  A thread that has called [`must_not_block`] waits at most [`UNRECORDED_LIMIT`] for a read
//!      that was not recorded: another thread makes it.
//!  H3  At most [`THREADS_MAX`] such reads are under way. A further one fails at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Read, Result};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::regular_file::open_regular;

/// Longest wait of a thread that must not block for a read that was not recorded.
const UNRECORDED_LIMIT: Duration = Duration::from_millis(250);

/// Such reads at once, those that hang among them.
const THREADS_MAX: usize = 64;

/// Bytes of a file that are recorded at least: a later read may ask for more than the first one.
const RECORDED_BYTES_MIN: u64 = 1 << 20;

/// The beginning of a file, and the bits of its mode.
#[derive(Clone, PartialEq, Eq)]
pub struct Contents {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Type and permissions (`st_mode`).
    pub mode: u32,
}

impl Contents {
    fn truncated(mut self, max: u64) -> Contents {
        self.bytes.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        self
    }
}

/// An error that can be returned several times.
#[derive(Clone)]
struct Failure {
    code: Option<i32>,
    kind: ErrorKind,
    text: String,
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure { code: e.raw_os_error(), kind: e.kind(), text: e.to_string() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure.code {
            Some(code) => Error::from_raw_os_error(code),
            None => Error::new(failure.kind, failure.text),
        }
    }
}

/// A recorded result.
type Recorded<T> = std::result::Result<T, Failure>;

/// The beginning of a file as it was read, and the most bytes that the read asked for.
#[derive(Clone)]
struct RecordedFile {
    max: u64,
    read: Recorded<Contents>,
}

impl RecordedFile {
    /// The result of a read of at most `max` bytes, as far as this one shows it.
    fn result(&self, max: u64) -> Option<Recorded<Contents>> {
        let is_whole = |read: &Contents| (read.bytes.len() as u64) < self.max;
        match &self.read {
            Ok(read) if max > self.max && !is_whole(read) => None,
            read => Some(read.clone().map(|read| read.truncated(max))),
        }
    }
}

/// See the module.
#[derive(Clone, Default)]
pub struct ReadAhead {
    files: BTreeMap<PathBuf, RecordedFile>,
    /// By the text that names them.
    addresses: BTreeMap<String, Recorded<Vec<SocketAddr>>>,
}

/// The reads of a thread.
struct ThreadReads {
    recorded: Option<ReadAhead>,
    replayed: Option<ReadAhead>,
    must_not_block: bool,
}

impl ThreadReads {
    const NONE: ThreadReads = ThreadReads { recorded: None, replayed: None, must_not_block: false };

    /// Everything that was read before.
    fn known(&self) -> impl Iterator<Item = &ReadAhead> {
        self.replayed.iter().chain(&self.recorded)
    }
}

thread_local! {
    static READS: RefCell<ThreadReads> = const { RefCell::new(ThreadReads::NONE) };
}

/// This thread must not block: H2 holds for its reads from now on.
pub fn must_not_block() {
    READS.with_borrow_mut(|reads| reads.must_not_block = true);
}

impl ReadAhead {
    /// Runs `read`, and records the files that it reads and the names that it looks up.
    pub fn record<T>(read: impl FnOnce() -> T) -> (T, ReadAhead) {
        let begin = |reads: &mut ThreadReads| reads.recorded.replace(ReadAhead::default());
        let outer = READS.with_borrow_mut(begin);
        let result = read();
        let end = |reads: &mut ThreadReads| std::mem::replace(&mut reads.recorded, outer);
        (result, READS.with_borrow_mut(end).unwrap_or_default())
    }

    /// Runs `act`, whose reads return what was recorded (H1).
    pub fn replay<T>(self, act: impl FnOnce() -> T) -> T {
        let outer = READS.with_borrow_mut(|reads| reads.replayed.replace(self));
        let result = act();
        READS.with_borrow_mut(|reads| reads.replayed = outer);
        result
    }
}

/// At most the first `max` bytes of a regular file that a configuration names, and its mode.
///
/// # Errors
/// As [`open_regular`]; `TimedOut` on a thread that must not block, if the file was not recorded
/// and does not answer.
pub fn read_source(path: &Path, max: u64) -> Result<Contents> {
    let known =
        |reads: &ThreadReads| reads.known().find_map(|known| known.files.get(path)?.result(max));
    if let Some(known) = READS.with_borrow(known) {
        return known.map_err(Error::from);
    }
    if READS.with_borrow(|reads| reads.recorded.is_none()) {
        let own = path.to_owned();
        return in_time(move || contents(&own, max));
    }
    let most = max.max(RECORDED_BYTES_MIN);
    let read = contents(path, most).map_err(Failure::from);
    let file = RecordedFile { max: most, read: read.clone() };
    READS.with_borrow_mut(|reads| {
        if let Some(recorded) = &mut reads.recorded {
            recorded.files.insert(path.to_owned(), file);
        }
    });
    read.map(|read| read.truncated(max)).map_err(Error::from)
}

/// The addresses of `HOST:PORT`, best first. A text that is an address is not looked up.
///
/// # Errors
/// Those of the resolver; `TimedOut` on a thread that must not block, if the name was not recorded
/// and the resolver does not answer.
pub fn socket_addresses(text: &str) -> Result<Vec<SocketAddr>> {
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let known =
        |reads: &ThreadReads| reads.known().find_map(|known| known.addresses.get(text).cloned());
    if let Some(known) = READS.with_borrow(known) {
        return known.map_err(Error::from);
    }
    let own = text.to_owned();
    let found = in_time(move || Ok(own.to_socket_addrs()?.collect::<Vec<_>>()));
    let found = found.map_err(Failure::from);
    READS.with_borrow_mut(|reads| {
        if let Some(recorded) = &mut reads.recorded {
            recorded.addresses.insert(text.to_owned(), found.clone());
        }
    });
    found.map_err(Error::from)
}

fn contents(path: &Path, max: u64) -> Result<Contents> {
    let (file, about) = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(Contents { bytes, mode: about.mode() })
}

/// A read that another thread makes, until it is dropped (H3).
struct CountedRead;

/// Their number.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

impl CountedRead {
    /// One more, and the number of those before.
    fn begin() -> (CountedRead, usize) {
        (CountedRead, UNDER_WAY.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for CountedRead {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of a read; on a thread that must not block, that of another thread, if it is there in
/// time.
fn in_time<T: Send + 'static>(read: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    if !READS.with_borrow(|reads| reads.must_not_block) {
        return read();
    }
    let (counted, before) = CountedRead::begin();
    if before >= THREADS_MAX {
        let why = format!("{THREADS_MAX} reads hang, the most at a time");
        return Err(Error::new(ErrorKind::TimedOut, why));
    }
    let (to, answer) = mpsc::sync_channel(1);
    let run = move || {
        let result = read();
        drop(counted);
        // The reader may have gone.
        let _ = to.send(result);
    };
    std::thread::Builder::new().name("ashlar-files".into()).spawn(run)?;
    let late = |_| {
        let why = format!("does not answer ({} ms, the limit)", UNRECORDED_LIMIT.as_millis());
        Err(Error::new(ErrorKind::TimedOut, why))
    };
    answer.recv_timeout(UNRECORDED_LIMIT).unwrap_or_else(late)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn h1_replayed_read_returns_the_recorded_bytes_of_a_replaced_file() {
        let path = std::env::temp_dir().join(format!("bio-ahead-{}", std::process::id()));
        let read = |max| read_source(&path, max).map(|read| read.bytes);
        std::fs::write(&path, "first").expect("a scratch file");
        let ((), files) = ReadAhead::record(|| {
            assert_eq!(read(3).expect("readable"), b"fir");
            std::fs::write(&path, "second").expect("a scratch file");
            assert_eq!(read(9).expect("readable"), b"first", "all reads see one file");
        });
        std::fs::remove_file(&path).expect("the scratch file");
        let replayed = files.replay(|| (read(9).expect("recorded"), read(2).expect("recorded")));
        assert_eq!(replayed, (b"first".to_vec(), b"fi".to_vec()));
        assert_eq!(read(9).expect_err("absent").kind(), ErrorKind::NotFound);
    }

    #[test]
    fn h1_replayed_error_is_that_of_the_file_when_it_was_read() {
        let path = std::env::temp_dir().join(format!("bio-absent-{}", std::process::id()));
        let (first, files) = ReadAhead::record(|| read_source(&path, 1));
        std::fs::write(&path, "x").expect("a scratch file");
        let second = files.replay(|| read_source(&path, 1));
        std::fs::remove_file(&path).expect("the scratch file");
        for error in [first, second].map(|read| read.err().expect("there was no file")) {
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }

    #[test]
    fn h2_thread_that_must_not_block_gives_a_hanging_read_up() {
        let (release, released) = mpsc::channel::<()>();
        let waits = std::thread::spawn(move || {
            must_not_block();
            let late = in_time(move || Ok(released.recv().is_err())).expect_err("it hangs");
            (late.kind(), in_time(|| Ok(7)).expect("it answers"))
        });
        assert_eq!(waits.join().expect("no panic"), (ErrorKind::TimedOut, 7));
        drop(release);
    }

    #[test]
    fn h1_name_is_looked_up_once_and_an_address_never() {
        let address: SocketAddr = "192.0.2.1:7".parse().expect("an address");
        assert_eq!(socket_addresses("192.0.2.1:7").expect("an address"), [address]);
        let addresses = BTreeMap::from([("no.such.host.invalid:7".to_owned(), Ok(vec![address]))]);
        let recorded = ReadAhead { addresses, ..ReadAhead::default() };
        let found = recorded.replay(|| socket_addresses("no.such.host.invalid:7"));
        assert_eq!(found.expect("recorded"), [address]);
    }
}
