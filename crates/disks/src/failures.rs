//! Failed requests of a disk, for `list disks` and `status`: their number, and the last one.
//!
//! Only a failed request takes the lock.

use bio::sync::Mutex;
use bio::{Attr, Bio, Errno, Op};
use geom::{ProviderId, Topology};

/// The attribute that counts failed requests.
const COUNT: &str = "DISK::failed";
/// The attribute with the time of the last failure, ns of the cores' clock.
const TIME: &str = "DISK::failed_at";
/// The attribute that describes the last failed request and its error.
const TEXT: &str = "DISK::failure";

/// A failed request.
#[derive(Clone, Copy)]
struct Failure {
    op: Op,
    offset: u64,
    length: u64,
    error: Errno,
    at_ns: u64,
    /// Failed requests up to this one.
    count: u64,
}

impl Failure {
    fn text(&self) -> String {
        let range = match self.op.has_range() {
            true => format!(" of {} bytes at {}", self.length, self.offset),
            false => String::new(),
        };
        format!("{}{range}: {}", self.op.name(), self.error.text())
    }
}

/// See the module. Shared by the disk's data path and its geom.
#[derive(Default)]
pub(crate) struct Failures {
    last: Mutex<Option<Failure>>,
}

impl Failures {
    /// Records a request that ended with `error` at `now`, ns of the cores' clock. Requests that
    /// the disk cannot do or that were cancelled are no failures. A lack of space and a read-only
    /// file system are troubles of their own.
    #[cold]
    pub(crate) fn record(&self, bio: &Bio, error: Errno, now: u64) {
        use Errno::{Again, NoAttr, NoSpc, NotSup, RoFs};
        if matches!(error, Again | NoAttr | NoSpc | NotSup | RoFs) {
            return;
        }
        let (op, offset, length) = (bio.op, bio.offset, bio.length);
        let mut last = self.last.lock();
        let count = last.map_or(0, |failure| failure.count) + 1;
        *last = Some(Failure { op, offset, length, error, at_ns: now, count });
    }

    /// An attribute of the disk's provider.
    pub(crate) fn attr(&self, name: &str) -> Option<Attr> {
        let read: fn(Failure) -> Attr = match name {
            COUNT => |failure: Failure| Attr::Int(failure.count),
            TIME => |failure: Failure| Attr::Int(failure.at_ns),
            TEXT => |failure: Failure| Attr::Text(failure.text()),
            _ => return None,
        };
        self.last.lock().map(read)
    }
}

/// The last failed request of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastError {
    pub description: String,
    /// When it ended, ns of the cores' clock.
    pub at_ns: u64,
    /// Failed requests since the disk was opened.
    pub count: u64,
}

impl LastError {
    /// Of the provider of a disk; `None`: no request has failed.
    pub fn of(topology: &Topology, disk: ProviderId) -> Option<LastError> {
        let number = |name| match topology.attr(disk, name)? {
            Attr::Int(number) => Some(number),
            _ => None,
        };
        let Attr::Text(description) = topology.attr(disk, TEXT)? else { return None };
        Some(LastError { description, at_ns: number(TIME)?, count: number(COUNT)? })
    }
}
