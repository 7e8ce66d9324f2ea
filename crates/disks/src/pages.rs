//! Sparse memory that all cores share, in chunks that are allocated at their first write.
//!
//! Invariants
//!  M1  A chunk that does not exist reads as zeroes.
//!  M2  A lock covers one chunk or one directory slot; none is held while another is waited for.
//!  M3  `used` is the number of bytes in chunks that exist, and never more than the bound.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};

use bio::sync::RwLock;
use bio::{Arena, BLOCK_BYTES, Block, Errno, Segs};

/// Bytes allocated and freed at a time. Large enough that a terabyte's directory is small, small
/// enough that scattered 4 KiB writes waste at most three quarters.
pub(crate) const CHUNK_BYTES: usize = BLOCK_BYTES;

/// Chunks in one directory, which is allocated as a whole.
const CHUNKS_A_DIR: usize = 512;

type Chunk = RwLock<Option<Block>>;

/// The chunks of all memory disks: many small disks share a region of it.
static ARENA: LazyLock<Arena> = LazyLock::new(Arena::default);

/// The memory.
pub(crate) struct Pages {
    dirs: Vec<OnceLock<Box<[Chunk]>>>,
    used: AtomicU64,
    used_max: u64,
}

/// Part of a request within one chunk.
struct Piece {
    chunk: u64,
    start: usize,
    len: usize,
    /// Bytes of the request before it.
    done: usize,
}

impl Pages {
    /// `size` bytes of zeroes of which at most `used_max` may be allocated.
    pub(crate) fn new(size: u64, used_max: u64) -> Pages {
        let dir = (CHUNK_BYTES * CHUNKS_A_DIR) as u64;
        let dirs = (0..size.div_ceil(dir)).map(|_| OnceLock::new()).collect();
        Pages { dirs, used: AtomicU64::new(0), used_max }
    }

    /// Bytes allocated.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Copies from `offset` into all of `to`.
    pub(crate) fn read(&self, offset: u64, to: &Segs) {
        let mut segs = to.iter().map(|s| (s, s.len()));
        let Some((mut seg, mut left)) = segs.next() else { return };
        for piece in pieces(offset, to.len() as u64) {
            self.look(piece.chunk, |bytes| {
                let (mut at, end) = (piece.start, piece.start + piece.len);
                while at < end {
                    if left == 0 {
                        let Some(next) = segs.next() else { return };
                        (seg, left) = next;
                    }
                    let n = left.min(end - at);
                    let place = seg.len() - left;
                    match bytes.and_then(|b| b.get(at..at + n)) {
                        Some(from) => {
                            seg.copy_from(place, from);
                        }
                        None => seg.zero(place, n),
                    }
                    at += n;
                    left -= n;
                }
            });
        }
    }

    /// Stores all of `from` at `offset`. `NoSpc` when the bound is reached or the system has no
    /// memory: the data before the chunk that did not fit is stored.
    pub(crate) fn write(&self, offset: u64, from: &Segs) -> Result<(), Errno> {
        for piece in pieces(offset, from.len() as u64) {
            self.edit(&piece, |bytes| {
                from.copy_to(piece.done, bytes);
            })?;
        }
        Ok(())
    }

    /// Zeroes a range and allocates all of it. `NoSpc` as for [`Pages::write`].
    pub(crate) fn fill_zero(&self, offset: u64, len: u64) -> Result<(), Errno> {
        pieces(offset, len).try_for_each(|piece| self.edit(&piece, |bytes| bytes.fill(0)))
    }

    /// Zeroes a range; whole chunks are freed.
    pub(crate) fn clear(&self, offset: u64, len: u64) {
        for piece in pieces(offset, len) {
            let Some(chunk) = self.existing(piece.chunk) else { continue };
            let mut place = chunk.write();
            if piece.len == CHUNK_BYTES {
                if place.take().is_some() {
                    self.used.fetch_sub(CHUNK_BYTES as u64, Ordering::Relaxed);
                }
            } else if let Some(bytes) = place.as_mut() {
                bytes[piece.start..piece.start + piece.len].fill(0);
            }
        }
    }

    /// Whether the chunk at `offset` exists, and for how many of `len` bytes that holds.
    pub(crate) fn run_at(&self, offset: u64, len: u64) -> (bool, u64) {
        let mut first = None;
        let mut run = 0;
        for piece in pieces(offset, len) {
            let mut present = false;
            self.look(piece.chunk, |bytes| present = bytes.is_some());
            if *first.get_or_insert(present) != present {
                break;
            }
            run += piece.len as u64;
        }
        (first.unwrap_or(false), run)
    }

    fn existing(&self, chunk: u64) -> Option<&Chunk> {
        let dir = self.dirs.get((chunk / CHUNKS_A_DIR as u64) as usize)?.get()?;
        dir.get((chunk % CHUNKS_A_DIR as u64) as usize)
    }

    fn look(&self, chunk: u64, f: impl FnOnce(Option<&[u8]>)) {
        match self.existing(chunk) {
            None => f(None),
            Some(c) => f(c.read().as_deref()),
        }
    }

    fn edit(&self, piece: &Piece, f: impl FnOnce(&mut [u8])) -> Result<(), Errno> {
        let place = self.dirs.get((piece.chunk / CHUNKS_A_DIR as u64) as usize);
        let dir = place
            .ok_or(Errno::Io)?
            .get_or_init(|| (0..CHUNKS_A_DIR).map(|_| RwLock::new(None)).collect());
        let slot = dir.get((piece.chunk % CHUNKS_A_DIR as u64) as usize).ok_or(Errno::Io)?;
        let mut place = slot.write();
        let block = match &mut *place {
            Some(block) => block,
            none => none.insert(self.another()?),
        };
        f(&mut block[piece.start..piece.start + piece.len]);
        Ok(())
    }

    /// One more chunk, of zeroes.
    fn another(&self) -> Result<Block, Errno> {
        self.reserve()?;
        ARENA.take().ok_or_else(|| {
            self.used.fetch_sub(CHUNK_BYTES as u64, Ordering::Relaxed);
            Errno::NoSpc
        })
    }

    /// M3: counts one more chunk.
    fn reserve(&self) -> Result<(), Errno> {
        let more = |used: u64| {
            let next = used + CHUNK_BYTES as u64;
            (next <= self.used_max).then_some(next)
        };
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(Errno::NoSpc),
        }
    }
}

/// The parts of a range, one for each chunk.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let chunk = CHUNK_BYTES as u64;
    let mut done = 0u64;
    std::iter::from_fn(move || {
        if done >= len {
            return None;
        }
        let at = offset + done;
        let start = at % chunk;
        let n = (chunk - start).min(len - done);
        let piece = Piece {
            chunk: at / chunk,
            start: start as usize,
            len: n as usize,
            done: done as usize,
        };
        done += n;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bio::{Pool, PoolConfig};

    fn segs(pool: &Pool, bytes: &[u8]) -> Segs {
        let s = Segs::alloc(pool, bytes.len()).unwrap();
        s.copy_from(0, bytes);
        s
    }

    #[test]
    fn m1_absent_chunks_read_as_zeroes() {
        let pool = Pool::new(PoolConfig::default());
        let pages = Pages::new(1 << 30, u64::MAX);
        let out = segs(&pool, &vec![7; 100_000]);
        pages.read(12_345, &out);
        assert!(out.to_vec().iter().all(|b| *b == 0));
        assert_eq!(pages.used(), 0, "reading allocates nothing");
    }

    #[test]
    fn m3_memory_bound_holds_and_clearing_frees_chunks() {
        let pool = Pool::new(PoolConfig::default());
        let pages = Pages::new(1 << 20, 2 * CHUNK_BYTES as u64);
        let data = segs(&pool, &vec![1; 2 * CHUNK_BYTES]);
        assert_eq!(pages.write(0, &data), Ok(()));
        assert_eq!(pages.write(512 * 1024, &data), Err(Errno::NoSpc));
        assert_eq!(pages.used(), 2 * CHUNK_BYTES as u64);
        pages.clear(100, CHUNK_BYTES as u64);
        assert_eq!(pages.used(), 2 * CHUNK_BYTES as u64, "no whole chunk was cleared");
        pages.clear(CHUNK_BYTES as u64, CHUNK_BYTES as u64);
        assert_eq!(pages.used(), CHUNK_BYTES as u64);
        assert_eq!(pages.write(512 * 1024, &segs(&pool, &[2; 512])), Ok(()));
    }

    #[test]
    fn chunks_written_by_several_cores_are_counted_once() {
        let pages = Pages::new(64 << 20, u64::MAX);
        std::thread::scope(|scope| {
            for core in 0..4u64 {
                let pages = &pages;
                scope.spawn(move || {
                    let pool = Pool::new(PoolConfig::default());
                    let data = segs(&pool, &[core as u8 + 1; 512]);
                    for i in 0..2000u64 {
                        // Four cores in every chunk, a sector each; some chunks are freed.
                        pages.write(i * 2048 + core * 512, &data).unwrap();
                        if i % 50 == 49 {
                            pages.clear(16 << 20, CHUNK_BYTES as u64);
                            pages.write(16 << 20, &data).unwrap();
                        }
                    }
                });
            }
        });
        let pool = Pool::new(PoolConfig::default());
        let out = segs(&pool, &[0; 2048]);
        for i in 0..2000 {
            pages.read(i * 2048, &out);
            let found = out.to_vec();
            assert!((0..4).all(|c| found[c * 512..][..512].iter().all(|b| *b == c as u8 + 1)));
        }
        pages.clear(16 << 20, CHUNK_BYTES as u64);
        assert_eq!(pages.used(), (2000u64 * 2048).div_ceil(CHUNK_BYTES as u64) * 16384);
    }

    #[test]
    fn runs_report_allocated_and_absent_chunks() {
        let pool = Pool::new(PoolConfig::default());
        let pages = Pages::new(1 << 20, u64::MAX);
        let chunk = CHUNK_BYTES as u64;
        assert_eq!(pages.run_at(0, 1 << 20), (false, 1 << 20));
        pages.write(chunk, &segs(&pool, &[1; 512])).unwrap();
        assert_eq!(pages.run_at(512, 1 << 20), (false, chunk - 512));
        assert_eq!(pages.run_at(chunk + 512, 1 << 20), (true, chunk - 512));
        assert_eq!(pages.run_at(chunk, 1024), (true, 1024));
    }
}
