//! Commits: what changed in memory becomes durable, as a whole.
//!
//! ```text
//!   slack behind the cached blocks:   | head | blocks ... |
//!   head: magic, number, header before and after, of each block its place and checksum; sealed
//! ```
//! Head and blocks are written together and flushed; they count when every checksum fits. Then each
//! block goes to its place, and those are flushed before the next commit begins. Another program
//! knows nothing of the slack, and always writes the time into the header when it opens an image:
//! so a log counts only beside the header that it knows.

use bio::{Seg, Segs};
use wire::iscsi::crc32c;

use super::format::{BLOCK, FIRST, HEADER, Tag, path, put_u64, set_tag, u64_at};
use super::state::State;
use super::{Image, one};
use crate::fault::{Addr, Fault};
use crate::medium::Medium;

const MAGIC: u64 = u64::from_le_bytes(*b"ASHCWLOG");
/// Behind the fixed part of a head.
const LIST: usize = 32 + 2 * HEADER;
/// Bytes of a block in a head.
const ITEM: usize = 12;
/// Blocks of a commit that a head can name.
const BLOCKS_MAX: u64 = ((BLOCK - LIST - 4) / ITEM) as u64;
/// Fewer make no log: an operation changes so many.
const BLOCKS_MIN: u64 = 256;
/// Blocks of one write.
const AT_ONCE: usize = 16;

/// How many blocks a commit may have where the slack has so many.
pub fn room(slack: u64) -> Option<u64> {
    // One place is the head's, and a commit has the header beside what an operation changed.
    let room = slack.saturating_sub(2).min(BLOCKS_MAX - 1);
    (room >= BLOCKS_MIN).then_some(room)
}

/// What a head says.
pub struct Head {
    /// Its number.
    pub seq: u64,
    before: Vec<u8>,
    after: Vec<u8>,
    /// Place and checksum of each block.
    pub blocks: Vec<(Addr, u32)>,
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
        let sum = crc32c(&b[..BLOCK - 4]);
        b[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
    }

    /// None: there is no head.
    pub fn read(b: &[u8]) -> Option<Head> {
        let sum = crc32c(b.get(..BLOCK - 4)?).to_le_bytes();
        let n = u64_at(b, 16);
        if b[BLOCK - 4..] != sum || u64_at(b, 0) != MAGIC || n > BLOCKS_MAX {
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
        })
    }

    /// The header is one that this commit found or made.
    pub fn knows(&self, header: &[u8]) -> bool {
        let h = header.get(..HEADER);
        h == Some(&self.before[..]) || h == Some(&self.after[..])
    }
}

impl Image {
    /// Begins a commit in a task of its own: whoever waits for it may go away.
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
            image.0.ended.set(image.0.begun.get());
            image.0.committing.set(false);
            image.0.committed.ring();
        });
    }

    async fn commit(&self) -> Result<(), Fault> {
        let is_due = |state: &State| state.refused.is_none() && state.frames.dirty() > 0;
        if !is_due(&self.0.state.borrow()) {
            return Ok(());
        }
        // The header's block, which is in no need of the block cache: that may be full of what
        // this commit is to write.
        let own = self.own_memory().await?;
        let (head, dirty, log) = {
            let mut state = self.0.state.borrow_mut();
            if !is_due(&state) {
                return Ok(());
            }
            let shape = state.shape;
            let Some(room) = shape.log else {
                return Err(Fault::Invalid("something changed in an image that is read only"));
            };
            // What the device has of it: a commit is the only one that changes it there.
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
            if dirty.len() as u64 > room + 1 {
                return Err(Fault::NoSpace("a commit is larger than its log"));
            }
            state.seq += 1;
            state.written.copy_from_slice(&after);
            let sums = dirty.iter().map(|(at, seg)| (*at, seg.with(crc32c))).collect();
            let head = Head { seq: state.seq, before, after, blocks: sums };
            (head, dirty, state.header.slack(shape.first).0)
        };
        let first = &*self.0.first;
        let sheet = self.own_memory().await?;
        sheet.with_mut(|b| head.write(b));
        write_runs(first, log + 1, dirty.iter().map(|(_, seg)| seg)).await?;
        write_at(first, log, one(&sheet)).await?;
        flush(first).await?;
        for run in dirty.chunk_by(|a, b| a.0 + 1 == b.0) {
            write_runs(first, run[0].0, run.iter().map(|(_, seg)| seg)).await?;
        }
        flush(first).await?;
        self.0.state.borrow_mut().frames.written(dirty.iter().map(|(at, _)| *at));
        Ok(())
    }

    /// Memory beside the block cache.
    pub(super) async fn own_memory(&self) -> Result<Seg, Fault> {
        super::open::memory(&self.0.pool, &self.0.reactor).await
    }
}

/// Writes blocks that follow each other.
async fn write_runs<'s>(
    medium: &dyn Medium,
    from: Addr,
    blocks: impl Iterator<Item = &'s Seg>,
) -> Result<(), Fault> {
    let all: Vec<&Seg> = blocks.collect();
    let mut at = from;
    for some in all.chunks(AT_ONCE) {
        let mut segs = Segs::default();
        some.iter().for_each(|seg| segs.push((*seg).clone()));
        write_at(medium, at, segs).await?;
        at += some.len() as Addr;
    }
    Ok(())
}

pub(super) async fn write_at(medium: &dyn Medium, at: Addr, data: Segs) -> Result<(), Fault> {
    let wrote = medium.write(at * BLOCK as u64, data).await;
    wrote.map_err(|e| Fault::Io(e, format!("{}: block {at}", medium.name())))
}

pub(super) async fn flush(medium: &dyn Medium) -> Result<(), Fault> {
    medium.flush().await.map_err(|e| Fault::Io(e, medium.name().to_owned()))
}
