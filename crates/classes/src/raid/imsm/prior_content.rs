//! Overwriting of a record: after a power cut there is either record, or a torn one that is
//! recognized as torn.
//!
//! The checksum is a sum. Sectors of the next record that arrive behind the first sector of the old
//! one can match its checksum, as when two slots change places. The mixture would be
//! believed. Then the old record is torn first, on purpose:
//!
//! ```text
//! old --> [the same first sector with a checksum that no mixture has] --> rest --> first sector
//!         only if a mixture adds up, or if the rest is not known
//! ```

use super::record::{Record, size};
use crate::probe::{le32, put};

/// Changed sectors of which all mixtures are looked at; of more it is taken that some add up.
const CHANGES_MAX: usize = 10;
/// Added to the checksum of a record whose rest is not known.
const APART: u32 = 0x9e37_79b9;
const CHECKSUM: usize = 32;

/// Present content of a disk that a record is to be written to.
#[derive(Clone, Debug)]
pub enum PriorContent {
    /// A whole record.
    Complete(Vec<u8>),
    /// The first sector of a record, or of the one that was to follow; the rest is anything.
    Torn(Vec<u8>),
}

impl PriorContent {
    /// This record, if it can be expressed.
    pub fn complete(record: &Record) -> Option<PriorContent> {
        record.encode().ok().map(PriorContent::Complete)
    }

    /// A write of the next record failed: a part of it may have arrived.
    pub fn torn(self, sector: usize) -> PriorContent {
        match self {
            PriorContent::Complete(mut bytes) => {
                bytes.resize(bytes.len().next_multiple_of(sector.max(1)), 0);
                bytes.truncate(sector);
                PriorContent::Torn(bytes)
            }
            torn @ PriorContent::Torn(_) => torn,
        }
    }

    /// The first sector that has to be on the disk before the rest of `next` is written, if not
    /// the one that is. `next` is whole sectors.
    pub(super) fn before(&self, next: &[u8], sector: usize) -> Option<Vec<u8>> {
        let (PriorContent::Complete(bytes) | PriorContent::Torn(bytes)) = self;
        let mut first = bytes.get(..sector.min(bytes.len()))?.to_vec();
        first.resize(sector, 0);
        let alone = size(&first).is_ok_and(|size| size <= sector);
        let apart = match self {
            _ if next.len() <= sector => return None,
            PriorContent::Complete(_) if alone => return None,
            // It is whole without a rest: only the next one's may have arrived.
            PriorContent::Torn(_) if alone => return Some(first),
            PriorContent::Torn(_) => APART,
            PriorContent::Complete(old) => torn_sum(&changes(old, next, sector))?,
        };
        let sum = le32(&first, CHECKSUM).wrapping_add(apart);
        put(&mut first, CHECKSUM, &sum.to_le_bytes());
        Some(first)
    }
}

/// By how much the sum of each sector of the old record's rest changes with the next one, whose
/// rest ends at the same place.
fn changes(old: &[u8], next: &[u8], sector: usize) -> Vec<u32> {
    let olds = old.chunks(sector).skip(1).rev();
    let both = olds.zip(next.chunks(sector).skip(1).rev());
    let both = both.map(|(was, now)| (was, now.get(..was.len()).unwrap_or(now)));
    let changed = both.filter(|(was, now)| was != now);
    changed.map(|(was, now)| sum(now).wrapping_sub(sum(was))).collect()
}

/// Contribution to the checksum of a part of a record that is not its first sector.
fn sum(bytes: &[u8]) -> u32 {
    bytes.as_chunks::<4>().0.iter().fold(0, |sum, word| sum.wrapping_add(u32::from_le_bytes(*word)))
}

/// If some of the changes add up to nothing: what no changes add up to.
fn torn_sum(changes: &[u32]) -> Option<u32> {
    if changes.len() > CHANGES_MAX {
        return Some(APART);
    }
    let (mut reached, mut ambiguous) = (vec![0_u32], false);
    for change in changes {
        let more: Vec<u32> = reached.iter().map(|sum| sum.wrapping_add(*change)).collect();
        ambiguous |= more.contains(&0);
        reached.extend(more);
    }
    (APART..).find(|apart| !reached.contains(apart)).filter(|_| ambiguous)
}
