//! NTFS: the boot sector leads to the master file table, whose record 3 holds the name.
//!
//! ```text
//! boot   3 8 "NTFS    " | 11 2 bytes a sector | 13 1 sectors a cluster | 48 8 cluster of the MFT
//!        64 1 clusters a record, or minus the exponent of its bytes | 72 8 serial
//! record 0 4 "FILE" | 4 2 place and 6 2 count of the fix-up words | 20 2 first attribute
//! attribute  0 4 type (60 name, ffffffff end) | 4 4 length | 8 1 resident 0 | 16 4 and 20 2
//!        length and place of the value
//! ```

use super::Volume;
use crate::probe::{ProbeStop, Reason, Sectors, byte, le16, le32, le64, put, span};

/// Record of the volume's name.
const RECORD: u64 = 3;
/// Attributes looked at in a record; a name behind them is not found.
const ATTRIBUTES_MAX: usize = 64;
/// Largest record; a larger one is refused.
const RECORD_BYTES_MAX: u64 = 64 << 10;

pub(crate) fn probe(sectors: &Sectors) -> Result<Volume, ProbeStop> {
    const FIELD: &str = "NTFS boot sector";
    let boot = super::magic(sectors, 0, 512, (3, b"NTFS    "), FIELD)?;
    let (at, len) = record_place(boot).ok_or(ProbeStop::no(Reason::Value, 11, FIELD))?;
    let serial = le64(boot, 72);
    let id = (serial != 0).then(|| format!("{serial:016X}"));
    // A volume whose record cannot be read still has its serial number.
    let record = sectors.get(at, len)?.map(<[u8]>::to_vec);
    let label = record.and_then(|record| name(fixed(record)?)).unwrap_or_default();
    Ok(Volume::of_media(sectors, label.as_bytes(), id))
}

fn record_place(boot: &[u8]) -> Option<(u64, usize)> {
    let sector = u64::from(le16(boot, 11));
    let cluster = match byte(boot, 13) {
        count @ 1..=128 => sector.checked_mul(u64::from(count))?,
        // Large clusters are given as minus the exponent of their sectors.
        other => sector.checked_mul(1_u64.checked_shl(256 - u32::from(other))?)?,
    };
    let record = match byte(boot, 64) {
        count @ 1..=127 => cluster.checked_mul(u64::from(count))?,
        other => 1_u64.checked_shl(256 - u32::from(other))?,
    };
    let sane = sector.is_power_of_two()
        && (256..=4096).contains(&sector)
        && (512..=RECORD_BYTES_MAX).contains(&record);
    if !sane {
        return None;
    }
    let mft = le64(boot, 48).checked_mul(cluster)?;
    let at = mft.checked_add(record.checked_mul(RECORD)?)?;
    Some((at, usize::try_from(record).ok()?))
}

/// The record with the last word of every 512 bytes put back; none when one does not match.
fn fixed(mut record: Vec<u8>) -> Option<Vec<u8>> {
    if span(&record, 0, 4) != b"FILE" {
        return None;
    }
    let (place, count) = (usize::from(le16(&record, 4)), usize::from(le16(&record, 6)));
    let mark = le16(&record, place);
    for block in 1..count {
        let end = block.checked_mul(512)?.checked_sub(2)?;
        let word: [u8; 2] = crate::probe::array(&record, place + block * 2)?;
        if end + 2 > record.len() || le16(&record, end) != mark {
            return None;
        }
        put(&mut record, end, &word);
    }
    Some(record)
}

fn name(record: Vec<u8>) -> Option<String> {
    let mut at = usize::from(le16(&record, 20));
    for _ in 0..ATTRIBUTES_MAX {
        let attribute = record.get(at..)?;
        let (kind, len) = (le32(attribute, 0), usize::try_from(le32(attribute, 4)).ok()?);
        if kind == u32::MAX || len < 24 {
            return None;
        }
        if kind == 0x60 && byte(attribute, 8) == 0 {
            let size = usize::try_from(le32(attribute, 16)).ok()?;
            let value = span(attribute, usize::from(le16(attribute, 20)), size);
            let units: Vec<u16> = value.chunks_exact(2).map(|unit| le16(unit, 0)).collect();
            return Some(String::from_utf16_lossy(&units));
        }
        at = at.checked_add(len)?;
    }
    None
}
