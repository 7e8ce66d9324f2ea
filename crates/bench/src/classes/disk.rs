//! Disks that keep records and nothing else at the requested rate.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bio::sync::Mutex;
use bio::{Bio, Errno, Op};
use geom::{Core, Flow, Layer};

/// Bytes at the end that are kept: where the classes have their records, DDF's too.
const KEPT_BYTES: u64 = 64 << 20;
const SECTOR: u64 = 512;

/// How long a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Nothing: it is answered at once.
    Instant,
    /// One request after the other, each so many ns and one more for so many bytes.
    OneByOne { request_ns: u64, bytes_a_ns: u64 },
}

/// See the module. A read before the kept end returns the former contents of the buffer.
pub(super) struct Hollow {
    kept_from: u64,
    kept: Mutex<BTreeMap<u64, [u8; SECTOR as usize]>>,
    pace: Pace,
    /// When the last request begun so far ends.
    free_ns: AtomicU64,
}

impl Hollow {
    /// Of so many bytes.
    pub fn new(media_bytes: u64, pace: Pace) -> Hollow {
        Hollow {
            kept_from: media_bytes.saturating_sub(KEPT_BYTES),
            kept: Mutex::default(),
            pace,
            free_ns: AtomicU64::new(0),
        }
    }

    fn record(&self, bio: &Bio) {
        let mut kept = self.kept.lock();
        let mut sector = [0; SECTOR as usize];
        for nth in 0..bio.length / SECTOR {
            let (at, done) = (bio.offset / SECTOR + nth, (nth * SECTOR) as usize);
            match bio.op {
                Op::Read => {
                    let bytes = kept.get(&at).copied().unwrap_or([0; SECTOR as usize]);
                    bio.data.copy_from(done, &bytes);
                }
                _ => {
                    bio.data.copy_to(done, &mut sector);
                    kept.insert(at, sector);
                }
            }
        }
    }
}

impl Layer for Hollow {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        match bio.op {
            Op::Read | Op::Write if bio.offset >= self.kept_from => self.record(bio),
            Op::Map => return Flow::Done(Err(Errno::NotSup)),
            Op::GetAttr => return Flow::Done(Err(Errno::NoAttr)),
            _ => {}
        }
        let Pace::OneByOne { request_ns, bytes_a_ns } = self.pace else {
            return Flow::Done(Ok(()));
        };
        if !matches!(bio.op, Op::Read | Op::Write) {
            return Flow::Done(Ok(()));
        }
        let now = core.reactor().fresh_now();
        let takes = request_ns + bio.length / bytes_a_ns.max(1);
        let end = self.free_ns.load(Relaxed).max(now) + takes;
        self.free_ns.store(end, Relaxed);
        core.after(end - now, bio.ticket(), Flow::Done(Ok(())));
        Flow::Wait
    }
}
