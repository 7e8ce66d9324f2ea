//! Commits: what changed in memory becomes durable, as a whole.
//!
//! ```text
//!   slack behind the cached blocks:   | head | blocks ... |
//!   head: magic, number, header before and after, of each block its place and checksum, notes;
//!         sealed
//! ```
//! Head and blocks are written together and flushed; they count when every checksum fits. Then each
//! block is written to its place, and those are flushed before the next commit begins. Another
//! program knows nothing of the slack, and always writes the time into the header when it opens an
//! image. So a log counts only beside the header that it knows. Notes are what this program would
//! have to look for without them; who does not read them loses nothing but a few addresses.

use bio::{Seg, Segs};
use wire::iscsi::crc32c;

use super::Image;
use super::format::{BLOCK, FIRST, HEADER, Tag, path, put_u64, set_tag, u64_at};
use super::state::ImageState;
use crate::fault::{Addr, Fault};
use crate::medium::Medium;
use crate::turn_budget::PART_BYTES;

const MAGIC: u64 = u64::from_le_bytes(*b"ASHCWLOG");
/// Behind the fixed part of a head.
const LIST: usize = 32 + 2 * HEADER;
/// Bytes of a block in a head.
const ITEM: usize = 12;
/// Spare addresses that a head notes.
pub(super) const SPARE: usize = 255;
/// Where the notes are: the last number of a file, how many spare addresses, those, and where more
/// of them are. Heads of older programs have one more in its place.
const NOTES: usize = BLOCK - 4 - 8 * (3 + SPARE);
/// See [`NOTES`].
const NODES: usize = NOTES + 8 * (2 + SPARE);
/// Bits of the head's fourth word: it has notes; the tree is tidy, ...
const HAS_NOTES: u64 = 1;
/// See [`HAS_NOTES`].
const IS_TIDY: u64 = 2;
/// More spare addresses are stored in nodes.
const HAS_NODES: u64 = 4;
/// Blocks of a commit that a head can name, and those that one without notes could.
const BLOCKS_MAX: u64 = ((NOTES - LIST) / ITEM) as u64;
/// See [`BLOCKS_MAX`].
const BLOCKS_ONCE: u64 = ((BLOCK - LIST - 4) / ITEM) as u64;
/// Fewer make no log: an operation changes so many.
const BLOCKS_MIN: u64 = 256;
/// Blocks of one write.
const AT_ONCE: usize = PART_BYTES / BLOCK;
/// Parts of the log: a commit is behind by as many as clients have filled since it began. So one
/// that begins when half of the log is full ends before the other half is.
const LOG_PARTS: usize = 8;

/// How many blocks a commit may have where the slack has so many.
pub fn log_capacity(slack: u64) -> Option<u64> {
    // One place is the head's, and a commit has the header beside what an operation changed.
    let log_blocks = slack.saturating_sub(2).min(BLOCKS_MAX - 1);
    (log_blocks >= BLOCKS_MIN).then_some(log_blocks)
}

/// The notes of a head beside its commit; see [`State`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The tree is tidy.
    pub tidy: bool,
    /// The last number that was given to a file.
    pub qid: u64,
    /// Addresses that are free, and on no list.
    pub spare: Vec<Addr>,
    /// The last node of further ones; 0: there is none.
    pub folded: Addr,
}

impl Notes {
    pub(super) fn of(state: &ImageState) -> Notes {
        let spare = state.spare.iter().copied().take(SPARE).collect();
        Notes { tidy: state.is_tidy(), qid: state.qid, spare, folded: state.folded }
    }

    fn write(&self, b: &mut [u8]) {
        let bit = |is, bit| if is { bit } else { 0 };
        let nodes = bit(self.folded != 0, HAS_NODES);
        put_u64(b, 24, HAS_NOTES | bit(self.tidy, IS_TIDY) | nodes);
        put_u64(b, NOTES, self.qid);
        put_u64(b, NOTES + 8, self.spare.len() as u64);
        for (i, addr) in self.spare.iter().enumerate() {
            put_u64(b, NOTES + 16 + 8 * i, *addr);
        }
        if self.folded != 0 {
            put_u64(b, NODES, self.folded);
        }
    }

    fn read(b: &[u8]) -> Option<Notes> {
        let (flags, n) = (u64_at(b, 24), u64_at(b, NOTES + 8));
        let nodes = flags & HAS_NODES != 0;
        let most = if nodes { SPARE } else { SPARE + 1 };
        (flags & HAS_NOTES != 0 && n <= most as u64).then(|| Notes {
            tidy: flags & IS_TIDY != 0,
            qid: u64_at(b, NOTES),
            spare: (0..n as usize).map(|i| u64_at(b, NOTES + 16 + 8 * i)).collect(),
            folded: if nodes { u64_at(b, NODES) } else { 0 },
        })
    }
}

/// The head of a log.
pub struct Head {
    /// Its number.
    pub seq: u64,
    before: Vec<u8>,
    after: Vec<u8>,
    /// Place and checksum of each block.
    pub blocks: Vec<(Addr, u32)>,
    /// None: an older program wrote it.
    pub notes: Option<Notes>,
}

impl Head {
    fn write(&self, b: &mut [u8]) {
        b.fill(0);
        put_u64(b, 0, MAGIC);
        put_u64(b, 8, self.seq);
        put_u64(b, 16, self.blocks.len() as u64);
        b[32..32 + HEADER].copy_from_slice(&self.before);
        b[32 + HEADER..LIST].copy_from_slice(&self.after);
        for (i, (at, crc)) in self.blocks.iter().enumerate() {
            put_u64(b, LIST + ITEM * i, *at);
            let end = LIST + ITEM * (i + 1);
            b[end - 4..end].copy_from_slice(&crc.to_le_bytes());
        }
        if let Some(notes) = &self.notes {
            notes.write(b);
        }
        let sum = crc32c(&b[..BLOCK - 4]);
        b[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
    }

    /// None: there is no head.
    pub fn read(b: &[u8]) -> Option<Head> {
        let sum = crc32c(b.get(..BLOCK - 4)?).to_le_bytes();
        let n = u64_at(b, 16);
        if b[BLOCK - 4..] != sum || u64_at(b, 0) != MAGIC {
            return None;
        }
        let notes = Notes::read(b);
        if n > if notes.is_some() { BLOCKS_MAX } else { BLOCKS_ONCE } {
            return None;
        }
        let item = |i: usize| {
            let mut crc = [0; 4];
            crc.copy_from_slice(&b[LIST + ITEM * i + 8..LIST + ITEM * (i + 1)]);
            (u64_at(b, LIST + ITEM * i), u32::from_le_bytes(crc))
        };
        Some(Head {
            seq: u64_at(b, 8),
            before: b[32..32 + HEADER].to_vec(),
            after: b[32 + HEADER..LIST].to_vec(),
            blocks: (0..n as usize).map(item).collect(),
            notes,
        })
    }

    /// The header is the one that this commit made: it was done as a whole, or will be.
    pub fn matches_new_header(&self, header: &[u8]) -> bool {
        header.get(..HEADER) == Some(&self.after[..])
    }

    /// The header is one that this commit found or made.
    pub fn matches_header(&self, header: &[u8]) -> bool {
        let h = header.get(..HEADER);
        h == Some(&self.before[..]) || h == Some(&self.after[..])
    }
}

impl Image {
    /// Begins a commit in a task of its own: its waiters may be dropped.
    pub(super) fn begin_commit(&self) {
        if self.0.committing.replace(true) {
            return;
        }
        let image = self.clone();
        self.0.reactor.spawn("image-commit", async move {
            image.0.begun.set(image.0.begun.get() + 1);
            if let Err(fault) = image.commit().await {
                image.refuse(fault);
            }
            // It had nothing to take.
            image.0.captured.set(image.0.begun.get());
            image.0.ended.set(image.0.begun.get());
            image.0.committing.set(false);
            image.0.committed.notify_all();
        });
    }

    async fn commit(&self) -> Result<(), Fault> {
        // Addresses become spare without any block that changes.
        let has_new = |s: &ImageState| s.shape.log.is_some() && Notes::of(s) != s.noted;
        let is_due = |s: &ImageState| s.refused.is_none() && (s.frames.dirty() > 0 || has_new(s));
        if !is_due(&self.0.state.borrow()) {
            return Ok(());
        }
        // The header's block, which is in no need of the block cache: that may be full of what
        // this commit is to write.
        let own = self.own_memory().await?;
        let (mut head, dirty, log) = {
            let mut state = self.0.state.borrow_mut();
            if !is_due(&state) {
                return Ok(());
            }
            let shape = state.shape;
            let Some(log_blocks) = shape.log else {
                return Err(Fault::Invalid("something changed in an image that is read only"));
            };
            // The header on the device: only a commit changes it there.
            let before = state.written.to_vec();
            let now = ((self.0.clock)() / 1_000_000_000) as u32;
            // Never the same twice: by it the log knows whether another program was here.
            let time = now.max(state.header.time.wrapping_add(1));
            (state.header.time, state.header.toytime) = (time, time.wrapping_add(30));
            // Behind it a header's block is empty: it need not be in memory.
            let text = state.header;
            own.with_mut(|b| {
                b.fill(0);
                text.write(b);
                set_tag(b, Tag::Cache, path::SUPER);
            });
            let after = own.with(|b| b[..HEADER].to_vec());
            state.frames.swap(FIRST, own);
            let dirty = state.frames.take_dirty();
            if dirty.len() as u64 > log_blocks + 1 {
                return Err(Fault::NoSpace("a commit is larger than its log"));
            }
            state.seq += 1;
            state.written.copy_from_slice(&after);
            let notes = Notes::of(&state);
            state.noted.clone_from(&notes);
            let blocks = Vec::with_capacity(dirty.len());
            let head = Head { seq: state.seq, before, after, blocks, notes: Some(notes) };
            (head, dirty, state.header.slack(shape.first).0)
        };
        self.0.captured.set(self.0.begun.get());
        self.0.committed.notify_all();
        // This memory no longer changes: a change of a block makes a copy first.
        for some in dirty.chunks(AT_ONCE) {
            head.blocks.extend(some.iter().map(|(at, seg)| (*at, seg.with(crc32c))));
            self.bytes_done(some.len() * BLOCK).await;
        }
        let first = &*self.0.first;
        let sheet = self.own_memory().await?;
        sheet.with_mut(|b| head.write(b));
        self.write_runs(log + 1, dirty.iter().map(|(_, seg)| seg)).await?;
        write_at(first, log, sheet.clone().into()).await?;
        flush(first).await?;
        for run in dirty.chunk_by(|a, b| a.0 + 1 == b.0) {
            self.write_runs(run[0].0, run.iter().map(|(_, seg)| seg)).await?;
        }
        flush(first).await?;
        self.0.state.borrow_mut().frames.written(dirty.iter().map(|(at, _)| *at));
        Ok(())
    }

    /// So many bytes of a commit's work are done: others have their turn after some of them.
    async fn bytes_done(&self, bytes: usize) {
        let behind = {
            let state = self.0.state.borrow();
            let log_blocks = state.shape.log.map_or(usize::MAX, |blocks| blocks as usize);
            state.frames.dirty() * LOG_PARTS / log_blocks.max(1)
        };
        if self.0.budget.spend(bytes, behind) {
            self.0.reactor.yield_now().await;
        }
    }

    /// Writes blocks that follow each other. Others have their turn in between.
    async fn write_runs<'s>(
        &self,
        from: Addr,
        blocks: impl Iterator<Item = &'s Seg>,
    ) -> Result<(), Fault> {
        let all: Vec<&Seg> = blocks.collect();
        let mut at = from;
        for some in all.chunks(AT_ONCE) {
            let segs = some.iter().copied().cloned().collect();
            write_at(&*self.0.first, at, segs).await?;
            at += some.len() as Addr;
            self.bytes_done(some.len() * BLOCK).await;
        }
        Ok(())
    }

    /// Memory beside the block cache.
    pub(super) async fn own_memory(&self) -> Result<Seg, Fault> {
        super::open::memory(&self.0.pool, &self.0.reactor).await
    }
}

pub(super) async fn write_at(medium: &dyn Medium, at: Addr, data: Segs) -> Result<(), Fault> {
    let wrote = medium.write(at * BLOCK as u64, data).await;
    wrote.map_err(|e| Fault::Io(e, format!("{}: block {at}", medium.name())))
}

pub(super) async fn flush(medium: &dyn Medium) -> Result<(), Fault> {
    medium.flush().await.map_err(|e| Fault::Io(e, medium.name().to_owned()))
}
