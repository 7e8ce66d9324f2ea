//! The data path over an open file or block device: common code of `file` and `blockdev`.
//!
//! Invariants
//!  F1  Under O_DIRECT the kernel sees only buffers aligned as it wants them: others are copied.
//!      The copy hangs behind the request's own buffers while it is under way and is off again
//!      when the request ends.
//!  F2  WRITE ZEROES that the kernel cannot do is done by writing zeroes, and is not tried again.
//!  F3  A request with FUA ends when its own bytes are on stable storage; FLUSH when all are that
//!      ended before it began.
//!  F4  A write does not make a file longer that another program cut. Its length is checked before
//!      the write, unless that was done within the last millisecond and covers the write.
//!
//! ```text
//!   READ, WRITE     start --in memory--> copied ---------------------------------> ended
//!                         --aligned--> file op ---------------------------> ready: ended
//!                         --else-----> copy, file op --> ready: copy back -> ended
//!   WRITE ZEROES    start --> zero op --> ready --ok--> (FUA: sync -->) ended
//!                                           \--NotSup--> write a piece <--> ready --> ended
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bio::{Attr, Bio, Errno, Flags, HOLE, MAPPED, Op, Segs};
use geom::{Core, Flow, Layer};
use reactor::{File, Run};

use crate::deletes::DeleteBy;
use crate::watch::Watch;

/// Zeroes written at a time where the kernel cannot zero by itself, bytes.
pub(crate) const ZERO_PIECE_BYTES: u64 = 1 << 20;

/// One buffer of zeroes, which a piece repeats, bytes.
const ZERO_BUFFER_BYTES: usize = 64 * 1024;

/// Longest request to a file in memory that ends before its layer answers, bytes. A longer one, as
/// of a pass over a whole disk, leaves a turn to other requests.
const NOW_BYTES_MAX: u64 = 32 * 1024;

/// F4: how long a core believes the length that it saw, ns. A cut and a write behind it at the same
/// time have no order anyway.
const LENGTH_NS: u64 = 1_000_000;

/// F4: the length of a file as a core saw it, and when.
#[derive(Default)]
struct SeenLength {
    at_ns: AtomicU64,
    bytes: AtomicU64,
}

pub(crate) struct BackingParts {
    pub(crate) file: File,
    /// Cores that will send requests.
    pub(crate) cores: usize,
    /// How DELETE gives blocks back; None: there is none.
    pub(crate) delete: Option<DeleteBy>,
    /// Reports a loss of the medium.
    pub(crate) watch: Arc<Watch>,
}

/// The data path.
pub(crate) struct Backing {
    /// One handle a core.
    files: Vec<File>,
    direct: bool,
    /// Alignment that the kernel wants of addresses, and of offsets and lengths, bytes.
    memory_align: usize,
    length_align: usize,
    delete: Option<DeleteBy>,
    /// F4, by core. Empty for block devices, which do not grow by being written.
    seen: Vec<SeenLength>,
    /// F2, by `keep_allocated`.
    zero_refused: [AtomicBool; 2],
    watch: Arc<Watch>,
}

impl Backing {
    pub(crate) fn new(parts: BackingParts) -> Backing {
        let facts = parts.file.facts();
        let looks = if facts.is_block_device { 0 } else { parts.cores.max(1) };
        Backing {
            seen: (0..looks).map(|_| SeenLength::default()).collect(),
            files: (0..parts.cores.max(1)).map(|_| parts.file.local()).collect(),
            direct: facts.is_direct,
            memory_align: facts.memory_align.max(1) as usize,
            length_align: facts.logical_sector.max(1) as usize,
            delete: parts.delete,
            zero_refused: Default::default(),
            watch: parts.watch,
        }
    }

    fn file(&self, core: &Core) -> &File {
        self.files.get(core.id() as usize).unwrap_or(&self.files[0])
    }

    /// F1: true when the kernel takes these buffers as they are.
    fn fits(&self, data: &Segs) -> bool {
        !self.direct
            || data.iter().all(|seg| {
                seg.len().is_multiple_of(self.length_align)
                    && seg.slice(0, 0).is_some_and(|s| s.is_aligned(self.memory_align))
            })
    }

    /// F1: appends aligned buffers to the request's own and hands them out.
    fn copies(&self, bio: &mut Bio, core: &Core) -> Option<Segs> {
        let len = bio.data.len();
        let mut copies = Segs::new();
        (bio.data.grow(core.pool(), len) && bio.data.slice_into(len, len, &mut copies))
            .then_some(copies)
    }

    /// F4: whether the file ends before `end`, a place inside the medium.
    fn is_cut(&self, end: u64, core: &Core) -> bool {
        let Some(seen) = self.seen.get(core.id() as usize) else { return false };
        let now = core.now();
        let age = now.saturating_sub(seen.at_ns.load(Ordering::Relaxed));
        if age < LENGTH_NS && end <= seen.bytes.load(Ordering::Relaxed) {
            return false;
        }
        // If the length is not known, the write itself returns the error.
        let bytes = self.file(core).size_known().unwrap_or(u64::MAX);
        seen.at_ns.store(now, Ordering::Relaxed);
        seen.bytes.store(bytes, Ordering::Relaxed);
        end > bytes
    }

    fn read(&self, bio: &mut Bio, core: &Core) -> Flow {
        if self.fits(&bio.data) {
            let (file, len) = (self.file(core), bio.length);
            return match len <= NOW_BYTES_MAX && core.file_read_now(bio, file, bio.offset) {
                true => self.ready(bio, Ok(len), core),
                false => core.file_read(bio, file, bio.offset),
            };
        }
        match self.copies(bio, core) {
            Some(copies) => core.file_read_into(bio, self.file(core), bio.offset, &copies),
            None => Flow::Done(Err(Errno::NoMem)),
        }
    }

    fn write(&self, bio: &mut Bio, core: &Core) -> Flow {
        if self.is_cut(bio.offset + bio.length, core) {
            return self.failed(Errno::NxIo);
        }
        let durable = bio.flags.has(Flags::FUA);
        if self.fits(&bio.data) {
            let (file, len) = (self.file(core), bio.length);
            let is_short = len <= NOW_BYTES_MAX;
            return match is_short && core.file_write_now(bio, file, bio.offset, durable) {
                true => self.ready(bio, Ok(len), core),
                false => core.file_write(bio, file, bio.offset, durable),
            };
        }
        match self.copies(bio, core) {
            Some(copies) => {
                let own = bio.data.len() - copies.len();
                let mut at = 0;
                for seg in copies.iter() {
                    seg.with_mut(|to| bio.data.copy_to(at, to));
                    at += seg.len();
                }
                debug_assert_eq!(at, own);
                core.file_write_from(bio, self.file(core), bio.offset, &copies, durable)
            }
            None => Flow::Done(Err(Errno::NoMem)),
        }
    }

    fn zero(&self, bio: &mut Bio, core: &Core) -> Flow {
        let keep = bio.flags.has(Flags::NO_HOLE);
        bio.completed = 0;
        if self.is_cut(bio.offset + bio.length, core) {
            return self.failed(Errno::NxIo);
        }
        if self.zero_refused[usize::from(keep)].load(Ordering::Relaxed) {
            return self.write_zeroes(bio, core);
        }
        core.file_zero(bio, self.file(core), bio.offset, bio.length, keep)
    }

    /// Writes the next piece of zeroes; `completed` is the number of written bytes.
    fn write_zeroes(&self, bio: &mut Bio, core: &Core) -> Flow {
        let piece = ZERO_PIECE_BYTES.min(bio.length.saturating_sub(bio.completed));
        if self.is_cut(bio.offset + bio.completed + piece, core) {
            bio.data.clear();
            bio.completed = 0;
            return self.failed(Errno::NxIo);
        }
        if !zeroes(bio, core, piece as usize) {
            bio.data.clear();
            bio.completed = 0;
            return Flow::Done(Err(Errno::NoMem));
        }
        let (at, durable) = (bio.offset + bio.completed, bio.flags.has(Flags::FUA));
        core.file_write(bio, self.file(core), at, durable)
    }

    fn zero_ready(&self, bio: &mut Bio, result: Result<u64, Errno>, core: &Core) -> Flow {
        let keep = usize::from(bio.flags.has(Flags::NO_HOLE));
        let synced = bio.completed == bio.length;
        match result {
            Err(Errno::NotSup) if bio.data.is_empty() && !synced => {
                self.zero_refused[keep].store(true, Ordering::Relaxed);
                self.write_zeroes(bio, core)
            }
            Err(e) => {
                bio.data.clear();
                bio.completed = 0;
                self.failed(e)
            }
            Ok(_) if synced => Flow::Done(Ok(())),
            Ok(_) if bio.data.is_empty() => {
                bio.completed = bio.length;
                if bio.flags.has(Flags::FUA) {
                    return core.file_sync(bio, self.file(core));
                }
                Flow::Done(Ok(()))
            }
            Ok(_) => {
                bio.completed += bio.data.len() as u64;
                if bio.completed < bio.length {
                    return self.write_zeroes(bio, core);
                }
                bio.data.clear();
                Flow::Done(Ok(()))
            }
        }
    }

    /// Answers from the file system's allocation map; no data is read.
    fn map(&self, bio: &Bio, core: &Core) -> Flow {
        match self.file(core).is_block_device() {
            true => Flow::Done(Err(Errno::NotSup)),
            false => core.file_map(bio, self.file(core)),
        }
    }

    fn map_ready(&self, bio: &mut Bio, result: Result<u64, Errno>) -> Flow {
        let Run { is_data, len } = match result {
            Ok(found) => Run::of_result(found),
            Err(e) => return Flow::Done(Err(e)),
        };
        // The range that a file system reports need not end with a block of ours: a block that
        // holds data in part is mapped.
        let unit = self.length_align as u64;
        let aligned = if is_data { len.next_multiple_of(unit) } else { len / unit * unit };
        let (state, run) = if aligned == 0 { (MAPPED, unit) } else { (state_of(is_data), aligned) };
        bio.completed = run.min(bio.length);
        bio.value = Some(Attr::Int(state));
        Flow::Done(Ok(()))
    }

    fn data_ready(&self, bio: &mut Bio, result: Result<u64, Errno>) -> Flow {
        let own = bio.length as usize;
        let copied = bio.data.len() > own;
        if copied && bio.op == Op::Read && result == Ok(bio.length) {
            let mut copies = Segs::new();
            if bio.data.slice_into(own, own, &mut copies) {
                let mut at = 0;
                for seg in copies.iter() {
                    seg.with(|from| bio.data.copy_from(at, from));
                    at += seg.len();
                }
            }
        }
        bio.data.truncate(own);
        match result {
            Ok(n) if n < bio.length => {
                // The range was inside the medium: another program cut the file.
                self.failed(Errno::NxIo)
            }
            Ok(_) => Flow::Done(Ok(())),
            Err(e) => self.failed(e),
        }
    }

    fn failed(&self, error: Errno) -> Flow {
        if error == Errno::NxIo {
            self.watch.lost(error);
        }
        Flow::Done(Err(error))
    }
}

fn state_of(is_data: bool) -> u64 {
    if is_data { MAPPED } else { HOLE }
}

/// Makes the request's buffers `len` bytes of zeroes, one buffer over and over. False when the
/// pool is empty.
pub(crate) fn zeroes(bio: &mut Bio, core: &Core, len: usize) -> bool {
    if bio.data.len() >= len && len > 0 {
        bio.data.truncate(len);
        return true;
    }
    bio.data.clear();
    let Some(buf) = core.pool().get(len.min(ZERO_BUFFER_BYTES)) else {
        return false;
    };
    let most = buf.capacity().min(ZERO_BUFFER_BYTES);
    let Some(zeroes) = buf.seg(0, most.min(len)) else { return false };
    zeroes.with_mut(|b| b.fill(0));
    let mut left = len;
    while left > 0 {
        let n = left.min(zeroes.len());
        if let Some(part) = zeroes.slice(0, n) {
            bio.data.push(part);
        }
        left -= n;
    }
    true
}

impl Layer for Backing {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        match bio.op {
            Op::Read => self.read(bio, core),
            Op::Write => self.write(bio, core),
            Op::Delete => match self.delete {
                Some(DeleteBy::Punch) => core.file_punch(bio, self.file(core)),
                Some(DeleteBy::Discard) => core.file_discard(bio, self.file(core)),
                None => Flow::Done(Err(Errno::NotSup)),
            },
            Op::Flush => core.file_sync(bio, self.file(core)),
            Op::WriteZeroes => self.zero(bio, core),
            Op::Map => self.map(bio, core),
            Op::GetAttr => Flow::Done(Err(Errno::NoAttr)),
        }
    }

    fn ready(&self, bio: &mut Bio, result: Result<u64, Errno>, core: &Core) -> Flow {
        match result {
            Ok(_) if bio.op == Op::Write => self.watch.refuses_writes(false),
            Err(Errno::NoSpc) => self.watch.record_no_space(core.now()),
            Err(Errno::RoFs) => self.watch.refuses_writes(true),
            _ => {}
        }
        match bio.op {
            Op::Read | Op::Write => self.data_ready(bio, result),
            Op::WriteZeroes => self.zero_ready(bio, result, core),
            Op::Map => self.map_ready(bio, result),
            _ => match result {
                Ok(_) => Flow::Done(Ok(())),
                Err(e) => self.failed(e),
            },
        }
    }
}
