//! Reading and writing of protection information (SBC-3 4.22), which is made and checked here. The
//! state of a unit is in `unit/protection`.
//!
//! | file | what |
//! | --- | --- |
//! | `cleaning` | taking marks back |
//! | `repair` | making a unit ready: a new tail, or repair after a power cut |
//! | `growth` | where the tail of a provider is that has grown |
//!
//! Everything that reaches the blocks of a protected unit passes [`Protection`]: plain reads
//! and writes, and by [`Medium`] copies, COMPARE AND WRITE and all others.
//!
//! ```text
//!   write: turn --> mark regions (durable) --> data --> tuples --> GOOD
//!   read:  turn --> data, tuples --> check --> GOOD | 0B/10/01..03 with the LBA
//! ```
//! Invariants
//!  D1  Before the first write of a region its mark is durable. A power cut may leave data without
//!      its tuple, or a tuple without its data, in a marked region. When the unit is made ready,
//!      tuples there whose guard is wrong get the guard of the stored data. Elsewhere a wrong guard
//!      is an error.
//!  D2  A request that has begun to write is not given up by an abort.
//!  D3  The type changes only while nothing else reaches the medium (FORMAT UNIT).
//!  D4  A request never waits for memory while others wait for its turn: memory is taken before.
//!  D5  The tail stays where it is when the provider grows: the header records the provider length
//!      that it was made for. FORMAT UNIT makes one at the new end. If a provider has grown while
//!      the unit was not open, the record in the state store locates the header.
//!  D6  Marks are removed when their regions have rested, and when the unit is closed. So
//!      after a restart only the regions written last are repaired (`cleaning`).

mod cleaning;
mod growth;
mod repair;

use bio::{Flags, Op, Segs};
use wire::scsi::{Protect, ProtectionType, Status, TUPLE_LEN, asc};

use crate::job::Medium;
use crate::status::Ending;
use crate::unit::ModeBits;
use crate::unit::protection::{Facts, Marked, Protection, Want, flip, generate, generate_zeroes};
pub(crate) use cleaning::{clean_now, is_marked};
pub(crate) use growth::{TailRecord, load_tail_record, recorded_total, save_tail_record};
pub(crate) use repair::mount;

/// Most bytes of data that one step of WRITE ZEROES or DELETE covers.
const STEP_BYTES: u64 = 32 << 20;

impl Protection {
    /// Marks the regions of some blocks (D1). When too many are marked, those that rest are cleaned
    /// by the same write.
    async fn mark(
        &self,
        medium: &Medium,
        (lba, blocks): (u64, u64),
        scratch: &Segs,
    ) -> Result<Marked, Ending> {
        let size = self.layout().region_blocks();
        let (first, end) = (lba / size, lba.saturating_add(blocks).div_ceil(size));
        loop {
            if let Some(marked) = self.regions.begin(first, end) {
                self.clean_when_idle(medium);
                return Ok(marked);
            }
            let _map = self.regions.lock_map().await;
            if let Some(marked) = self.regions.begin(first, end) {
                self.clean_when_idle(medium);
                return Ok(marked);
            }
            let rested = self.regions.idle_regions(first, end, self.layout().marked_max());
            if !rested.is_empty() {
                medium.below(Op::Flush, 0, 0, Segs::new(), Flags::NONE).await?;
            }
            let mut marks = self.regions.clean(&rested);
            marks.extend(first..end);
            self.save_map(medium, &marks, part(scratch, self.layout().map().1)?).await?;
            self.regions.marked(first, end);
        }
    }

    /// Writes the map; durable when it ends.
    async fn save_map(&self, medium: &Medium, marks: &[u64], buffer: Segs) -> Result<(), Ending> {
        let (at, len) = self.layout().map();
        let mut map = vec![0u8; usize::try_from(len).unwrap_or(0)];
        for mark in marks {
            if let Some(byte) = map.get_mut(usize::try_from(mark / 8).unwrap_or(usize::MAX)) {
                *byte |= 1 << (mark % 8);
            }
        }
        put(medium, at, &map, true, buffer).await
    }

    /// Memory for the tail's part of a write (D4).
    async fn scratch(&self, medium: &Medium, lba: u64, blocks: u64) -> Result<Segs, Ending> {
        let (_, tuples, _) = self.layout().tuples_of(lba, blocks);
        let most = tuples.max(self.layout().map().1);
        medium.buffers(usize::try_from(most).unwrap_or(usize::MAX)).await
    }

    /// Reads and checks blocks: the data, and the tuples as an initiator receives them.
    pub async fn read(
        &self,
        medium: &Medium,
        kind: ProtectionType,
        (lba, blocks): (u64, u32),
        want: Want,
    ) -> Result<(Segs, Vec<u8>), Ending> {
        let bad = Ending::check(asc::INTERNAL_FAILURE);
        let len = u64::from(blocks) * self.layout().unit;
        let (at, tuples_len, skip) = self.layout().tuples_of(lba, u64::from(blocks));
        let (Ok(data_len), Ok(more)) = (usize::try_from(len), usize::try_from(tuples_len)) else {
            return Err(bad);
        };
        // All memory at once: otherwise two requests that each hold one part could block each
        // other.
        let all = medium.buffers(data_len + more).await?;
        let (mut data, mut tail) = (Segs::new(), Segs::new());
        if !all.slice_into(0, data_len, &mut data) || !all.slice_into(data_len, more, &mut tail) {
            return Err(bad);
        }
        drop(all);
        let flags = if want.fua { Flags::FUA } else { Flags::NONE };
        let (data, tail) = {
            let _turn = self.lock_range(lba, u64::from(blocks), false).await;
            let offset = lba * self.layout().unit;
            let data = medium.below(Op::Read, offset, len, data, flags).await?;
            (data, medium.below(Op::Read, at, tuples_len, tail, flags).await?)
        };
        let mut tuples = tail.to_vec();
        tuples.drain(..skip.min(tuples.len()));
        tuples.truncate(blocks as usize * TUPLE_LEN);
        flip(&mut tuples);
        let quiet = want.protect == 0 && medium.device().mode().has(ModeBits::DPICZ);
        if !quiet && let Some(rules) = Protect::from_field(want.protect) {
            let facts = Facts { kind, lba, tags: want.tags, rules, from_medium: true };
            facts.check(&data, self.layout().unit, &tuples)?;
        }
        Ok((data, tuples))
    }

    /// Writes whole blocks with the tuples of an initiator, which were checked, or with our own.
    pub async fn write(
        &self,
        medium: &Medium,
        kind: ProtectionType,
        (lba, data): (u64, Segs),
        tuples: Option<Vec<u8>>,
        flags: Flags,
    ) -> Result<(), Ending> {
        let blocks = data.len() as u64 / self.layout().unit;
        let mut tuples = tuples.unwrap_or_else(|| generate(kind, lba, &data, self.layout().unit));
        if blocks == 0 || tuples.len() as u64 != blocks * TUPLE_LEN as u64 {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        }
        flip(&mut tuples);
        let scratch = self.scratch(medium, lba, blocks).await?;
        let _turn = self.lock_range(lba, blocks, true).await;
        let medium = &medium.begun()?;
        let marked = self.mark(medium, (lba, blocks), &scratch).await?;
        let len = data.len() as u64;
        let mut end =
            medium.below(Op::Write, lba * self.layout().unit, len, data, flags).await.map(drop);
        if end.is_ok() {
            end = self.put_tuples(medium, lba, &tuples, flags, &scratch).await;
        }
        self.settle(medium, marked, (lba, blocks), end).await
    }

    /// DELETE or WRITE ZEROES of blocks. Blocks that may be freed are not checked afterwards.
    pub async fn range(
        &self,
        medium: &Medium,
        kind: ProtectionType,
        op: Op,
        (lba, blocks): (u64, u64),
        flags: Flags,
    ) -> Result<(), Ending> {
        let size = self.layout().region_blocks();
        let step = (STEP_BYTES / self.layout().unit).max(1).next_multiple_of(size);
        let keeps = op == Op::WriteZeroes && flags.has(Flags::NO_HOLE);
        let end = lba.saturating_add(blocks);
        let mut at = lba;
        while at < end {
            let n = (step - at % step).min(end - at);
            let tuples = match keeps {
                true => {
                    let mut tuples = generate_zeroes(kind, at, n, self.layout().unit);
                    flip(&mut tuples);
                    tuples
                }
                false => vec![0; usize::try_from(n).unwrap_or(0) * TUPLE_LEN],
            };
            let scratch = self.scratch(medium, at, n).await?;
            let _turn = self.lock_range(at, n, true).await;
            let medium = &medium.begun()?;
            let marked = self.mark(medium, (at, n), &scratch).await?;
            let (offset, len) = (at * self.layout().unit, n * self.layout().unit);
            let mut end = medium.below(op, offset, len, Segs::new(), flags).await.map(drop);
            if end.is_ok() {
                let fua = if flags.has(Flags::FUA) { Flags::FUA } else { Flags::NONE };
                end = self.put_tuples(medium, at, &tuples, fua, &scratch).await;
            }
            self.settle(medium, marked, (at, n), end).await?;
            at += n;
        }
        Ok(())
    }

    /// Stores inverted tuples without changing other tuples in their first and last block.
    async fn put_tuples(
        &self,
        medium: &Medium,
        lba: u64,
        tuples: &[u8],
        flags: Flags,
        scratch: &Segs,
    ) -> Result<(), Ending> {
        let blocks = (tuples.len() / TUPLE_LEN) as u64;
        let (at, len, skip) = self.layout().tuples_of(lba, blocks);
        let cut = skip != 0 || tuples.len() as u64 != len;
        let mut bytes = match cut {
            true => get(medium, at, len, part(scratch, len)?).await?,
            false => Vec::new(),
        };
        if cut {
            match bytes.get_mut(skip..skip + tuples.len()) {
                Some(place) => place.copy_from_slice(tuples),
                None => return Err(Ending::check(asc::INTERNAL_FAILURE)),
            }
        }
        let bytes = if cut { &bytes } else { tuples };
        put(medium, at, bytes, flags.has(Flags::FUA), part(scratch, len)?).await
    }

    /// The end of a write. After a failed write the contents are unknown: data and tuples are made
    /// to agree, or the region stays marked.
    async fn settle(
        &self,
        medium: &Medium,
        marked: Marked,
        (lba, blocks): (u64, u64),
        end: Result<(), Ending>,
    ) -> Result<(), Ending> {
        let agrees = match end {
            Ok(()) => true,
            Err(_) => self.repair(medium, lba, blocks, false).await.is_ok(),
        };
        if agrees {
            marked.done();
        }
        end
    }
}

/// The first `len` bytes of memory that was taken before.
fn part(scratch: &Segs, len: u64) -> Result<Segs, Ending> {
    let mut out = Segs::new();
    match usize::try_from(len).is_ok_and(|len| scratch.slice_into(0, len, &mut out)) {
        true => Ok(out),
        false => Err(Ending::check(asc::INTERNAL_FAILURE)),
    }
}

/// Writes bytes to the tail.
async fn put(
    medium: &Medium,
    at: u64,
    bytes: &[u8],
    fua: bool,
    buffer: Segs,
) -> Result<(), Ending> {
    if buffer.copy_from(0, bytes) != bytes.len() {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    let flags = if fua { Flags::FUA } else { Flags::NONE };
    medium.below(Op::Write, at, bytes.len() as u64, buffer, flags).await.map(drop)
}

async fn get(medium: &Medium, at: u64, len: u64, buffer: Segs) -> Result<Vec<u8>, Ending> {
    Ok(medium.below(Op::Read, at, len, buffer, Flags::NONE).await?.to_vec())
}

/// Memory; without `waits` there is some at once or an error.
async fn memory(medium: &Medium, len: u64, waits: bool) -> Result<Segs, Ending> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if waits {
        return medium.buffers(len).await;
    }
    Segs::alloc(medium.core.pool(), len).ok_or(Ending::Status(Status::Busy))
}
