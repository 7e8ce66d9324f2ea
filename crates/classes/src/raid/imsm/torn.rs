//! Remains of a record torn by a power cut: its first sector, which is the old one.
//!
//! ```text
//!   rest of the record, in part the new one (flushed before ...) | first sector, still the old
//! ```
//!
//! The sector gives the disk's array, the generation up to which the disk was with it, and that it
//! was a member. Its state and the other members are only in the others' records.

use super::codec::Cursor;
use super::record::{self, HEADER, NEWEST, attribute};
use crate::probe::{ProbeStop, Reason, Sectors, Step, le32};

/// Bytes of a disk's entry.
pub(super) const DISK: usize = 48;

/// A record whose first sector does not match the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// As [`super::Record::set`].
    pub set: u32,
    /// Of the first sector: all records up to it were whole.
    pub generation: u32,
    /// The first sector itself.
    pub first: Vec<u8>,
}

/// Look for a record of several sectors that does not fit together, or of which all but the first
/// sector cannot be read, on the disk with this serial number (as [`super::serial_of`] has it).
pub fn torn(sectors: &Sectors, serial: &str) -> Step<Torn> {
    probe(sectors, serial).into()
}

fn probe(sectors: &Sectors, serial: &str) -> Result<Torn, ProbeStop> {
    const FIELD: &str = "torn Intel record";
    let (at, anchor) = super::anchor(sectors)?;
    let refuse = |reason| ProbeStop::no(reason, at, FIELD);
    let bytes = record::size(anchor).map_err(|fault| ProbeStop::No(fault.to_probe_error(at)))?;
    if bytes <= anchor.len() {
        return Err(refuse(Reason::Checksum));
    }
    let unknown = le32(anchor, 52) & !attribute::KNOWN != 0;
    if anchor.get(24..30).is_none_or(|version| version > NEWEST.as_slice()) || unknown {
        return Err(refuse(Reason::Value));
    }
    match super::rest(sectors, at, bytes) {
        Ok(rest) => {
            let mut all = anchor.to_vec();
            all.extend_from_slice(rest);
            all.truncate(bytes);
            if record::checksum(&all) == le32(anchor, 32) {
                // The record is intact, so it is invalid for another reason.
                return Err(refuse(Reason::Value));
            }
        }
        Err(ProbeStop::No(why)) if why.reason == Reason::Unreadable => {}
        Err(stop) => return Err(stop),
    }
    let (family, original) = (le32(anchor, 40), le32(anchor, 64));
    if !is_listed(anchor, serial) {
        return Err(refuse(Reason::Foreign));
    }
    let set = if original == 0 { family } else { original };
    Ok(Torn { set, generation: le32(anchor, 44), first: anchor.to_vec() })
}

/// Whether a disk is among those that the first sector lists; more may follow behind it.
fn is_listed(anchor: &[u8], serial: &str) -> bool {
    let mut from = Cursor::new(anchor, 56);
    let Ok(count) = from.u8("total disks") else { return false };
    let mut own = [0; 16];
    crate::probe::put(&mut own, 0, serial.as_bytes());
    let capacity = anchor.len().saturating_sub(HEADER) / DISK;
    let listed = usize::from(count).min(capacity);
    let is_own =
        |nth: usize| anchor.get(HEADER + nth * DISK..).is_some_and(|d| d.starts_with(&own));
    serial.len() <= own.len() && (usize::from(count) > capacity || (0..listed).any(is_own))
}
