//! Master boot record: one sector with four partitions.
//!
//! ```text
//! byte 0 440 boot code | 440 4 serial | 446 4 x 16 entries | 510 2  55 AA
//! entry 0 flag (80 active) | 1 3 CHS of the start | 4 type | 5 3 CHS of the end | 8 4 start
//!       | 12 4 sectors
//! ```
//! The table is one sector, so that every change of it is atomic (plan.rs, W4).

use super::bootcode;
use super::error::{PartError, PartErrorKind};
use super::table::{Entry, Media, Scheme, SchemeData, Table};
use super::types::{EBR_TYPES, Guid, Kind};
use crate::probe::{Allowed, ProbeStop, Reason, Sectors, array, byte, le16, le32, put, span};
use crate::write_plan::WritePlan;

/// Bytes of boot code, the serial number among them.
const CODE: usize = ENTRIES_AT;
const SERIAL_AT: usize = 440;
const ENTRIES_AT: usize = 446;
const ENTRY: usize = 16;
/// Entries of a record.
pub(crate) const SLOTS: usize = 4;
/// Bytes of the record itself, for any sector size.
const SECTOR: usize = 512;
pub(crate) const SIGNATURE_AT: usize = 510;
pub(crate) const SIGNATURE: [u8; 2] = [0x55, 0xaa];
/// Sectors of a track and heads of a cylinder in the conventional geometry.
pub(crate) const TRACK: u64 = 63;
const HEADS: u64 = 255;
/// Cylinders that the three bytes can name; beyond it they are all ones.
const CYLINDERS: u64 = 1024;
pub(crate) const ACTIVE: u8 = 0x80;
/// Type of the entry that protects a GPT.
pub(crate) const PROTECTIVE: u8 = 0xee;

/// What an MBR keeps besides its entries: the sector as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MbrData {
    pub(crate) sector: Vec<u8>,
}

impl MbrData {
    pub(crate) fn serial(&self) -> u32 {
        le32(&self.sector, SERIAL_AT)
    }
}

/// One 16-byte entry as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slot {
    pub(crate) flag: u8,
    pub(crate) kind: u8,
    pub(crate) start: u32,
    pub(crate) sectors: u32,
}

impl Slot {
    pub(crate) fn read(record: &[u8], slot: usize) -> Slot {
        let at = ENTRIES_AT + slot * ENTRY;
        Slot {
            flag: byte(record, at),
            kind: byte(record, at + 4),
            start: le32(record, at + 8),
            sectors: le32(record, at + 12),
        }
    }

    /// Is it a partition? Type 0 and the protective type are not, nor is one without a place.
    pub(crate) fn used(&self) -> bool {
        self.kind != 0 && self.kind != PROTECTIVE && self.start != 0 && self.sectors != 0
    }

    /// Nothing at all.
    pub(crate) fn is_blank(record: &[u8], slot: usize) -> bool {
        span(record, ENTRIES_AT + slot * ENTRY, ENTRY).iter().all(|&byte| byte == 0)
    }

    /// Store it, `base` being added to the start for the CHS fields. CHS bytes of an entry
    /// whose place does not change are kept.
    pub(crate) fn write(self, record: &mut [u8], slot: usize, base: u64) {
        let at = ENTRIES_AT + slot * ENTRY;
        let old = Slot::read(record, slot);
        if old.start != self.start || old.sectors != self.sectors {
            let start = base.saturating_add(u64::from(self.start));
            let end = start.saturating_add(u64::from(self.sectors)).saturating_sub(1);
            put(record, at + 1, &chs(start));
            put(record, at + 5, &chs(end));
        }
        put(record, at, &[self.flag]);
        put(record, at + 4, &[self.kind]);
        put(record, at + 8, &self.start.to_le_bytes());
        put(record, at + 12, &self.sectors.to_le_bytes());
    }

    pub(crate) fn clear(record: &mut [u8], slot: usize) {
        put(record, ENTRIES_AT + slot * ENTRY, &[0; ENTRY]);
    }
}

/// Cylinder, head and sector of a sector number, in the packed form.
pub(crate) fn chs(sector: u64) -> [u8; 3] {
    let cylinder = sector / (TRACK * HEADS);
    if cylinder >= CYLINDERS {
        return [0xff; 3];
    }
    let head = sector / TRACK % HEADS;
    let within = sector % TRACK + 1;
    // All three are below 1024, 255 and 64 by construction.
    let high = (cylinder >> 8) << 6;
    [head.to_le_bytes()[0], (within | high).to_le_bytes()[0], cylinder.to_le_bytes()[0]]
}

/// Is `55 AA` where it must be?
pub(crate) fn signed(record: &[u8]) -> bool {
    array::<2>(record, SIGNATURE_AT) == Some(SIGNATURE)
}

pub(crate) fn sign(record: &mut [u8]) {
    put(record, SIGNATURE_AT, &SIGNATURE);
}

/// Is this the boot sector of a FAT or NTFS volume? Such a sector has `55 AA` too. But its entries
/// are no partitions: they are blank or remains of the tool that made the volume. mkfs.fat makes an
/// entry that begins in sector 0.
fn boot_sector(record: &[u8]) -> bool {
    let size = le16(record, 11);
    let cluster = byte(record, 13);
    let sane = matches!(size, 128 | 256 | 512 | 1024 | 2048 | 4096);
    let jump = matches!(byte(record, 0), 0xeb | 0xe9);
    let blank = (0..SLOTS).all(|slot| Slot::is_blank(record, slot));
    let volume = sane && cluster.is_power_of_two() && (jump || le16(record, 14) != 0);
    let unused = !(0..SLOTS).any(|slot| Slot::read(record, slot).used());
    (blank && volume) || (unused && is_fat(record))
}

/// Are all values of a FAT volume's boot sector right? Its texts and its jump are not looked at.
pub(crate) fn is_fat(record: &[u8]) -> bool {
    const CLUSTERS_MAX: u64 = 0x0fff_fff6;
    const DIRECTORY_ENTRY: u64 = 32;
    let unit = u64::from(le16(record, 11));
    let cluster = u64::from(byte(record, 13));
    let either = |short: u16, long: u32| if short != 0 { u64::from(short) } else { long.into() };
    let (reserved, fats) = (u64::from(le16(record, 14)), u64::from(byte(record, 16)));
    let table = either(le16(record, 22), le32(record, 36)).saturating_mul(fats);
    let total = either(le16(record, 19), le32(record, 32));
    let root = u64::from(le16(record, 17)).saturating_mul(DIRECTORY_ENTRY);
    let root = root.checked_div(unit).unwrap_or(0);
    let data = total.checked_sub(reserved.saturating_add(table).saturating_add(root));
    let clusters = data.and_then(|data| data.checked_div(cluster)).unwrap_or(0);
    unit.is_power_of_two()
        && (512..=4096).contains(&unit)
        && cluster.is_power_of_two()
        && reserved != 0
        && (1..=4).contains(&fats)
        && matches!(byte(record, 21), 0xf0 | 0xf8..)
        && table != 0
        && (1..=CLUSTERS_MAX).contains(&clusters)
}

/// The first usable sector of a table whose first partition begins at `lowest`.
pub(crate) fn first(lowest: Option<u64>) -> u64 {
    if lowest.is_some_and(|lowest| lowest < TRACK) { 1 } else { TRACK }
}

pub(crate) fn last_usable(sectors: u64) -> u64 {
    sectors.min(u64::from(u32::MAX)).saturating_sub(1)
}

/// Look for an MBR. `parent` is the scheme of the table that the media is a partition of.
pub(crate) fn probe(sectors: &Sectors, parent: Option<Scheme>) -> Result<Table, ProbeStop> {
    const FIELD: &str = "master boot record";
    let size = sectors.sector_size();
    if !(512..=4096).contains(&size) {
        return Err(ProbeStop::no(Reason::Media, 0, FIELD));
    }
    if matches!(parent, Some(Scheme::Mbr | Scheme::Ebr)) {
        return Err(ProbeStop::no(Reason::Nesting, 0, FIELD));
    }
    let sector = sectors.need(0, size as usize, FIELD)?;
    if !signed(sector) {
        return Err(ProbeStop::no(Reason::Signature, 510, "master boot record (55 AA)"));
    }
    let slots: Vec<Slot> = (0..SLOTS).map(|slot| Slot::read(sector, slot)).collect();
    let odd = (446..).step_by(ENTRY).zip(&slots).find(|(_, s)| s.flag != 0 && s.flag != ACTIVE);
    if let Some((at, slot)) = odd {
        let allowed = Allowed::Text("0 or 128");
        return Err(ProbeStop::value(at, "flag of an MBR entry", slot.flag.into(), allowed));
    }
    if boot_sector(sector) {
        return Err(ProbeStop::no(Reason::Foreign, 0, "boot sector of a file system"));
    }
    if slots.iter().any(|slot| slot.kind == PROTECTIVE) && !slots.iter().any(Slot::used) {
        return Err(ProbeStop::no(
            Reason::Foreign,
            446,
            "protective MBR of a GPT that is not there",
        ));
    }
    let entries: Vec<Entry> = (1..)
        .zip(&slots)
        .filter(|(_, slot)| slot.used())
        .map(|(index, slot)| entry(index, *slot))
        .collect();
    let lowest = entries.iter().map(|entry: &Entry| entry.start).min();
    let media = Media::plain(sectors.media_sectors(), size);
    Ok(Table {
        media,
        first: first(lowest),
        last: last_usable(media.sectors),
        entries,
        capacity: 4,
        damage: Vec::new(),
        scheme_data: SchemeData::Mbr(MbrData { sector: sector.to_vec() }),
    })
}

fn entry(index: u32, slot: Slot) -> Entry {
    let start = u64::from(slot.start);
    Entry {
        index,
        start,
        end: start.saturating_add(u64::from(slot.sectors)).saturating_sub(1),
        data: start,
        kind: Kind::Byte(slot.kind),
        guid: Guid::ZERO,
        attributes: u64::from(slot.flag),
        name: Vec::new(),
        tail: Vec::new(),
    }
}

/// An empty table with a serial number of the first four bytes of `random`.
pub(crate) fn create(media: Media, random: [u8; 16]) -> Result<Table, PartError> {
    const OP: &str = "create";
    let last = last_usable(media.sectors);
    if !(512..=4096).contains(&media.sector_size) || last <= TRACK {
        let at = format!("{} sectors of {} bytes", media.sectors, media.sector_size);
        return Err(PartError::new(PartErrorKind::BadMedia, OP, at));
    }
    let mut sector = vec![0; media.sector_size as usize];
    put(&mut sector, SERIAL_AT, span(&random, 0, 4));
    sign(&mut sector);
    Ok(Table {
        media,
        first: TRACK,
        last,
        entries: Vec::new(),
        capacity: 4,
        damage: Vec::new(),
        scheme_data: SchemeData::Mbr(MbrData { sector }),
    })
}

/// The slot that stores `entry`, with its start made relative to `base`.
pub(crate) fn slot_of(entry: &Entry, base: u64) -> Option<Slot> {
    let Kind::Byte(kind) = entry.kind else {
        return None;
    };
    let sectors = entry.end.checked_sub(entry.data)?.checked_add(1)?;
    Some(Slot {
        flag: if entry.attributes & u64::from(ACTIVE) != 0 { ACTIVE } else { 0 },
        kind,
        start: u32::try_from(entry.data.checked_sub(base)?).ok()?,
        sectors: u32::try_from(sectors).ok()?,
    })
}

/// The sector as it must be.
pub(crate) fn encode(table: &Table, body: &MbrData) -> Result<Vec<u8>, PartError> {
    let mut sector = body.sector.clone();
    sector.resize(table.media.sector_size as usize, 0);
    for slot in 0..SLOTS {
        let entry = table.entries.iter().find(|entry| entry.index as usize == slot + 1);
        match entry {
            Some(entry) => {
                let too_far = || {
                    let at = format!("index {}", entry.index);
                    PartError::new(PartErrorKind::OutOfRange, "commit", at)
                };
                slot_of(entry, 0).ok_or_else(too_far)?.write(&mut sector, slot, 0);
            }
            None if Slot::read(&sector, slot).used() => Slot::clear(&mut sector, slot),
            None => {}
        }
    }
    sign(&mut sector);
    Ok(sector)
}

/// Other boot code in front of the entries. A serial number other than 0 stays unless
/// `take_serial`. The two bytes behind it are the code's own (a boot manager's timeout), if it
/// is so long.
pub(crate) fn put_code(sector: &mut [u8], code: &[u8], take_serial: bool) -> Result<(), PartError> {
    if code.len() > SECTOR {
        let at = format!("bootcode of {} bytes, at most {SECTOR} are possible", code.len());
        return Err(bootcode::bad(at));
    }
    if code.len() > CODE {
        bootcode::signed(code)?;
    }
    let mut area = [0; CODE];
    put(&mut area, 0, code.get(..code.len().min(CODE)).unwrap_or(&[]));
    if !take_serial {
        let kept = if code.len() > SERIAL_AT { 4 } else { CODE - SERIAL_AT };
        if kept > 4 || le32(sector, SERIAL_AT) != 0 {
            put(&mut area, SERIAL_AT, span(sector, SERIAL_AT, kept));
        }
    }
    put(sector, 0, &area);
    Ok(())
}

/// One write of one sector.
pub(crate) fn plan(table: &Table, body: &MbrData) -> Result<WritePlan, PartError> {
    let mut plan = WritePlan::default();
    plan.write(0, encode(table, body)?);
    plan.flush();
    Ok(plan)
}

/// Zeros over the sector.
pub(crate) fn destroy(media: &Media) -> WritePlan {
    let mut plan = WritePlan::default();
    plan.write(0, vec![0; media.sector_size as usize]);
    plan.flush();
    plan
}

/// Is this the type of an extended partition?
pub(crate) fn is_extended(kind: u8) -> bool {
    EBR_TYPES.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chs_address_is_packed_and_saturates() {
        assert_eq!(chs(0), [0, 1, 0]);
        assert_eq!(chs(1), [0, 2, 0]);
        assert_eq!(chs(2048), [32, 33, 0]);
        assert_eq!(chs(63 * 255), [0, 1, 1]);
        assert_eq!(chs(63 * 255 * 1023), [0, 0xc1, 0xff]);
        assert_eq!(chs(63 * 255 * 1024), [0xff; 3]);
        assert_eq!(chs(u64::MAX), [0xff; 3]);
    }
}
