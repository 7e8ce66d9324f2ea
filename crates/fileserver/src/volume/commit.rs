//! Commits: what changed in memory becomes durable, as a whole.
//!
//! ```text
//!   capture (no wait): dirty frames, slots given up, the point
//!   write blocks to free slots -> flush -> write the record -> flush
//!   apply: the table records where blocks are now; slots that held them before are free
//! ```
//! Operations continue meanwhile; a frame that they change is copied first (F2).

use std::ops::Range;

use bio::{Errno, Seg, Segs};
use wire::iscsi::crc32c;

use super::journal::Record;
use super::point::{Dump, Point};
use super::table::Slot;
use super::worm;
use super::{AddrMap, COMMIT_BLOCKS, Volume, state};
use crate::fault::{Addr, Fault};
use crate::turn_budget::PART_BYTES;

/// Entries of the table looked up or changed between two chances for others.
const ENTRIES: usize = 256;
/// The ring is emptied when so many thousandths are taken.
const CHECKPOINT_AT: u64 = 500;
/// Slots emptied ahead when few are free.
const EMPTY_AHEAD: usize = 1024;
/// Slots examined for that between two chances for others.
const EXAMINED: usize = 1 << 14;

struct Captured {
    dirty: Vec<(Addr, Seg)>,
    clears: Vec<u32>,
    fills: Vec<(u32, Slot)>,
    point: Point,
    dump: Option<Dump>,
    seq: u64,
    /// Slots for the blocks: first and how many.
    runs: Vec<(u32, usize)>,
}

impl Volume {
    /// Blocks of one write.
    fn blocks_at_once(&self) -> usize {
        (PART_BYTES / self.block()).max(1)
    }

    /// A part of a commit's work is done: others have their turn after some of them.
    async fn part_done(&self) {
        self.bytes_done(PART_BYTES).await;
    }

    /// The same for a part of so many bytes.
    async fn bytes_done(&self, bytes: usize) {
        let behind = self.0.state.borrow().frames.dirty() / COMMIT_BLOCKS;
        if self.0.budget.spend(bytes, behind) {
            self.0.reactor.yield_now().await;
        }
    }

    /// Begins a commit in a task of its own: its waiters may be dropped.
    pub(super) fn begin_commit(&self) {
        if self.0.committing.replace(true) {
            return;
        }
        let volume = self.clone();
        self.0.reactor.spawn("fs-commit", async move {
            volume.0.begun.set(volume.0.begun.get() + 1);
            let fault = volume.commit().await.err();
            if let Some(fault) = fault {
                let fault = volume.refuse(fault);
                volume.0.fault.borrow_mut().get_or_insert(fault);
            }
            volume.0.ended.set(volume.0.begun.get());
            volume.0.committing.set(false);
            volume.0.committed.notify_all();
        });
    }

    async fn commit(&self) -> Result<(), Fault> {
        if let Some(why) = &self.0.state.borrow().refused {
            return Err(why.clone());
        }
        self.checkpoint_if_needed().await?;
        let Some(c) = self.capture()? else { return Ok(()) };
        let mut blocks = self.summed(&c.dirty).await;
        let mut point = c.point.clone();
        if let Some(dump) = &c.dump {
            self.add_dump(dump, &mut blocks, &mut point).await?;
        }
        let sets = self.write_blocks(&c.runs, &blocks).await?;
        let mut clears = c.clears.clone();
        for some in blocks.chunks(ENTRIES) {
            {
                let state = self.0.state.borrow();
                clears.extend(some.iter().filter_map(|(addr, ..)| state.table.slot(*addr)));
            }
            self.part_done().await;
        }
        self.renew().await?;
        let all = sets.iter().chain(&c.fills).copied().collect();
        let record =
            Record { seq: c.seq, tail: self.tail(), sets: all, clears, point: point.clone() };
        self.write_record(&record).await?;
        self.apply(&c, &sets, &point).await;
        Ok(())
    }

    fn io(&self, e: Errno) -> Fault {
        Fault::Io(e, format!("cache device {}", self.0.cache.name()))
    }

    pub(super) async fn cache_flush(&self) -> Result<(), Fault> {
        self.0.cache.flush().await.map_err(|e| self.io(e))
    }

    fn tail(&self) -> u64 {
        self.0.state.borrow().checkpoint
    }

    /// Nothing changed: none.
    fn capture(&self) -> Result<Option<Captured>, Fault> {
        let mut state = self.0.state.borrow_mut();
        let s = &mut *state;
        let moved = s.members.iter().map(|l| l.done).ne(s.written.members.iter().copied());
        let idle = s.frames.dirty() == 0
            && s.dropped.is_empty()
            && s.emptied.is_empty()
            && s.pending.is_none()
            && s.root == s.written.root
            && !std::mem::take(&mut s.moved)
            && !moved;
        if idle {
            // Blocks that were changed and dropped since may have left entries.
            s.frames.take_dirty();
            return Ok(None);
        }
        for addr in std::mem::take(&mut s.dropped) {
            // One that was given again is dirty; a load that ended too late may have read it back.
            if !s.frames.is_dirty(addr) {
                s.frames.drop_block(addr);
                s.emptied.extend(s.table.forget(addr));
            }
        }
        let runs = take_slots(s)?;
        let mut clears = std::mem::take(&mut s.emptied);
        clears.sort_unstable();
        clears.dedup();
        let fills = std::mem::take(&mut s.fills);
        // A slot may have been filled and emptied since.
        let fills = fills.into_iter().filter(|(slot, f)| s.table.slot(f.addr) == Some(*slot));
        Ok(Some(Captured {
            runs,
            fills: fills.collect(),
            clears,
            dirty: s.frames.take_dirty(),
            point: s.point(),
            dump: s.pending,
            seq: s.seq + 1,
        }))
    }

    async fn summed(&self, dirty: &[(Addr, Seg)]) -> Vec<(Addr, Seg, u32)> {
        let mut out = Vec::with_capacity(dirty.len());
        for some in dirty.chunks(self.blocks_at_once()) {
            out.extend(some.iter().map(|(addr, seg)| (*addr, seg.clone(), seg.with(crc32c))));
            self.part_done().await;
        }
        out
    }

    /// Checksums and superblock of a dump whose blocks are all on the cache device or in `blocks`.
    async fn add_dump(
        &self,
        dump: &Dump,
        blocks: &mut Vec<(Addr, Seg, u32)>,
        point: &mut Point,
    ) -> Result<(), Fault> {
        let per = self.0.state.borrow().sums_per_block();
        let mut fresh = AddrMap::with_capacity_and_hasher(blocks.len(), Default::default());
        for some in blocks.chunks(ENTRIES) {
            fresh.extend(some.iter().map(|(addr, _, crc)| (*addr, *crc)));
            self.part_done().await;
        }
        let mut blocks_to_write = Vec::new();
        for (i, at) in (dump.end..dump.next).enumerate() {
            let first = dump.sb + (i * per) as Addr;
            let covered: Range<Addr> = first..(first + per as Addr).min(dump.end);
            let body = {
                let state = self.0.state.borrow();
                let crc = |a: Addr| fresh.get(&a).copied().or_else(|| state.table.crc(a));
                worm::encode_sums(covered.map(|a| if a == dump.sb { None } else { crc(a) }))
            };
            blocks_to_write.push((at, worm::Kind::Sums, body));
            self.part_done().await;
        }
        let body = {
            let state = self.0.state.borrow();
            worm::encode_superblock(dump, &state.dumps, state.block())
        };
        point.chain = crc32c(&body);
        blocks_to_write.push((dump.sb, worm::Kind::Superblock, body));
        let volume = self.0.state.borrow().layout.volume;
        for (at, kind, body) in blocks_to_write {
            let seg = self.own_memory().await?;
            seg.with_mut(|b| worm::seal(b, kind, volume, at, &body));
            let crc = seg.with(crc32c);
            blocks.push((at, seg, crc));
            self.part_done().await;
        }
        Ok(())
    }

    /// Memory outside the block cache, for a block that is written once.
    pub(super) async fn own_memory(&self) -> Result<Seg, Fault> {
        let block = self.block();
        for _ in 0..1000 {
            if let Some(seg) = self.0.pool.get(block).and_then(|b| b.seg(0, block)) {
                return Ok(seg);
            }
            self.0.reactor.sleep(1_000_000).await;
        }
        Err(Fault::NoSpace("the core's buffers are all in use"))
    }

    async fn write_blocks(
        &self,
        runs: &[(u32, usize)],
        blocks: &[(Addr, Seg, u32)],
    ) -> Result<Vec<(u32, Slot)>, Fault> {
        let mut sets = Vec::with_capacity(blocks.len());
        let most = self.blocks_at_once();
        let slots = runs.iter().flat_map(|(first, n)| *first..*first + *n as u32);
        let mut placed = slots.zip(blocks).peekable();
        while let Some((first, block)) = placed.next() {
            let mut segs = Segs::default();
            let mut enter = |slot, (addr, seg, crc): &(Addr, Seg, u32)| {
                segs.push(seg.clone());
                sets.push((slot, Slot { addr: *addr, crc: *crc }));
            };
            enter(first, block);
            let mut n = 1;
            while n < most
                && let Some((slot, block)) = placed.next_if(|(s, _)| *s == first + n as u32)
            {
                enter(slot, block);
                n += 1;
            }
            let at = self.0.state.borrow().layout.slot_at(first);
            self.0.cache.write(at, segs).await.map_err(|e| self.io(e))?;
            // A device in memory has written at once.
            self.bytes_done(n * self.block()).await;
        }
        if !sets.is_empty() {
            self.cache_flush().await?;
        }
        Ok(sets)
    }

    async fn write_record(&self, record: &Record) -> Result<(), Fault> {
        let (layout, block) = {
            let state = self.0.state.borrow();
            (state.layout, state.block())
        };
        let bytes = record.encode(layout.format_id, block);
        let n = (bytes.len() / block) as u64;
        let moves = record.tail == record.seq && n == 1;
        let place = {
            let ring = self.0.ring.borrow();
            if moves { ring.place_last() } else { ring.place(n) }
        };
        let Some(first) = place else {
            return Err(Fault::NoSpace("the journal has no space for a record"));
        };
        self.write_bytes(layout.at(layout.ring.0 + first), &bytes).await?;
        self.cache_flush().await?;
        self.0.ring.borrow_mut().written(record.seq, first, n);
        Ok(())
    }

    /// Writes whole blocks from ordinary memory.
    pub(super) async fn write_bytes(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let block = self.block();
        let mut done = 0;
        for some in bytes.chunks(PART_BYTES.max(block)) {
            let mut segs = Segs::default();
            for one in some.chunks(block) {
                let seg = self.own_memory().await?;
                seg.copy_from(0, one);
                segs.push(seg);
            }
            self.0.cache.write(at + done, segs).await.map_err(|e| self.io(e))?;
            self.bytes_done(some.len()).await;
            done += some.len() as u64;
        }
        Ok(())
    }

    /// The record is durable: memory follows, a part at a time. Until the table has a block, its
    /// frame is not evicted (F1): no load looks for it.
    async fn apply(&self, c: &Captured, sets: &[(u32, Slot)], point: &Point) {
        for some in sets.chunks(ENTRIES) {
            {
                let mut state = self.0.state.borrow_mut();
                for (slot, held) in some {
                    if let Some(old) = state.table.set(*slot, *held) {
                        state.table.release(old);
                    }
                }
            }
            self.part_done().await;
        }
        for some in c.clears.chunks(ENTRIES) {
            {
                let mut state = self.0.state.borrow_mut();
                some.iter().for_each(|slot| state.table.release(*slot));
            }
            self.part_done().await;
        }
        for some in c.dirty.chunks(ENTRIES) {
            let written = some.iter().map(|(addr, _)| *addr);
            self.0.state.borrow_mut().frames.written(written);
            self.part_done().await;
        }
        let mut state = self.0.state.borrow_mut();
        let s = &mut *state;
        (s.ino_limit, s.change_limit) = (point.ino, point.change);
        s.seq = c.seq;
        s.written = point.clone();
        if let Some(dump) = c.dump {
            s.chain = point.chain;
            s.pending = None;
            s.dumped = dump.number;
        }
        drop(state);
        self.0.dumped.notify_all();
    }

    /// Pages of the table are written when the journal fills up, or may not hold the next record.
    async fn checkpoint_if_needed(&self) -> Result<(), Fault> {
        let (fill, fits) = {
            let (state, ring) = (self.0.state.borrow(), self.0.ring.borrow());
            let blocks = state.frames.dirty() + state.dump_blocks();
            let cleared = blocks + state.dropped.len() + state.emptied.len();
            let bytes = Record::bytes(blocks + state.fills.len(), cleared);
            (ring.fill(), ring.place(bytes.div_ceil(state.block()) as u64).is_some())
        };
        if fill < CHECKPOINT_AT && fits {
            return Ok(());
        }
        let pages = self.0.state.borrow().table.changed_pages();
        for (i, side) in &pages {
            let (bytes, at) = {
                let state = self.0.state.borrow();
                let l = state.layout;
                (
                    state.table.page(&l, *i, state.seq),
                    l.at(l.pages.0 + 2 * *i as u64 + u64::from(*side)),
                )
            };
            self.write_bytes(at, &bytes).await?;
        }
        self.cache_flush().await?;
        // Only a record makes those before it unneeded.
        let record = {
            let mut state = self.0.state.borrow_mut();
            state.table.pages_written(&pages);
            state.seq += 1;
            state.checkpoint = state.seq;
            let (seq, point) = (state.seq, state.written.clone());
            Record { seq, tail: seq, point, ..Record::default() }
        };
        self.write_record(&record).await?;
        self.0.ring.borrow_mut().trim(record.seq);
        Ok(())
    }

    /// Few slots are free: those of blocks that the WORM has too are given up, for the record after
    /// the next commit.
    pub(super) async fn empty_slots(&self) {
        let (mut wanted, slots) = {
            let state = self.0.state.borrow();
            let wanted = (state.table.len() / 16).clamp(1, EMPTY_AHEAD);
            if state.table.free() >= state.frames.dirty() + wanted + state.kept() {
                return;
            }
            (wanted, state.table.len())
        };
        let looks = EXAMINED.min(2 * slots);
        // Rather those that every leg has. The hand passes each slot twice: then it is cold.
        for every_leg in [true, false] {
            for _ in 0..(2 * slots).div_ceil(EXAMINED) {
                if wanted == 0 {
                    return;
                }
                {
                    let mut state = self.0.state.borrow_mut();
                    let legs = state.members.iter().map(|l| l.done);
                    let below = if every_leg { legs.min() } else { legs.max() }.unwrap_or(0);
                    if below == 0 {
                        break;
                    }
                    let gone = state.table.evict(wanted, looks, |addr| addr < below);
                    wanted -= gone.len();
                    state.emptied.extend(gone);
                }
                self.0.reactor.yield_now().await;
            }
        }
    }
}

/// Slots for everything that a commit writes.
fn take_slots(s: &mut state::VolumeState) -> Result<Vec<(u32, usize)>, Fault> {
    let mut left = s.frames.dirty() + s.dump_blocks();
    let mut runs = Vec::new();
    while left > 0 {
        let Some((first, n)) = s.table.take(left) else {
            let given = runs.iter().flat_map(|(first, n)| *first..*first + *n as u32);
            given.for_each(|slot| s.table.release(slot));
            return Err(Fault::NoSpace("the cache device has no slot left for a commit"));
        };
        runs.push((first, n));
        left -= n;
    }
    Ok(runs)
}
