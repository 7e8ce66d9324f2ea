//! Disks of the half of a split array that the operator did not choose, and their last generations.
//!
//! Such a disk has a record that looks as right as those of the chosen half. A use of it after the
//! choice would have increased its generation: up to the known one no choice is requested again.
//!
//! They are stored in the last 8 of the 12 free bytes of the disk's entry: a mark of our own, and
//! the generation, little-endian. No other implementation reads them. If another one rewrites the
//! record, it keeps them or fills them with zeros, and then nothing is known, as before.

use super::array::key_of;
use super::record::{DiskRecord, Record};
use crate::probe::{le32, put};
use crate::raid::assemble::is_serial;

/// The mark of an entry that has a generation.
const MARK: &[u8; 4] = b"ASHL";
/// Where the mark is in the free bytes.
const MARK_AT: usize = 4;
/// Where the generation is in the free bytes.
const GENERATION_AT: usize = 8;

impl Record {
    /// The operator chose against the half of a disk, whose record has this generation.
    pub(crate) fn outrank(&mut self, key: &str, generation: u32) {
        let same = |disk: &&mut DiskRecord| is_serial(&key_of(disk), key);
        if let Some(disk) = self.disks.iter_mut().find(same) {
            put(&mut disk.rest, MARK_AT, MARK);
            put(&mut disk.rest, GENERATION_AT, &generation.to_le_bytes());
        }
    }

    /// Whether the operator chose against the half of a disk, which was not used since.
    pub(crate) fn has_outranked(&self, key: &str, generation: u32) -> bool {
        let mut known = self.disks.iter().filter(|disk| is_serial(&key_of(disk), key));
        known.any(|disk| {
            disk.rest.get(MARK_AT..GENERATION_AT) == Some(MARK.as_slice())
                && generation <= le32(&disk.rest, GENERATION_AT)
        })
    }
}
