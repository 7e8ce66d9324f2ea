//! GUID partition table: making, moving and writing it. Layout and invariants G are in gpt.rs,
//! W in plan.rs.
//!
//! Order of a commit (W2: the copy in force is written last, after a flush of the other):
//! ```text
//!  backup in force:  primary as before -> flush -+      (only after damage)
//!                                                v
//!  backup table + header in the last sector -> flush -> primary table + header -> flush
//!     -> protective MBR -> flush
//! ```
//! A cut while the backup is written leaves the old primary; one while the primary is written
//! leaves the new backup or a whole primary. The protective MBR is written last, so that a new disk
//! is recognized by other tools only when both copies are complete.

use super::bootcode;
use super::error::{PartError, PartErrorKind};
use super::gpt::{ENTRY, GptData, HEADER, SIGNATURE, Source, TABLE_BYTES_MAX};
use super::mbr::{self, Slot};
use super::table::{Media, SchemeData, Table};
use super::types::{Guid, Kind};
use crate::crc::crc32;
use crate::probe::put;
use crate::write_plan::WritePlan;

/// Entries of a table made here, unless another number is requested.
const ENTRIES: u32 = 128;
/// Most entries of a table made here; more is refused.
const ENTRIES_MAX: u32 = 4096;
/// The usable range of a table made here starts and ends at multiples of this many bytes.
const ROUND: u64 = 4096;

/// MBR type of the second entry that makes a hybrid.
const APPLE_HFS: u8 = 0xaf;

/// Sectors that a table of `count` entries takes.
pub(crate) fn table_sectors(media: &Media, count: u32, entry_size: u32) -> u64 {
    let bytes = u64::from(count).saturating_mul(u64::from(entry_size));
    bytes.div_ceil(u64::from(media.sector_size).max(1))
}

/// An empty table.
pub(crate) fn create(
    media: Media,
    entries: Option<u32>,
    random: [u8; 16],
) -> Result<Table, PartError> {
    const OP: &str = "create";
    let count = entries.unwrap_or(ENTRIES);
    if !(ENTRIES..=ENTRIES_MAX).contains(&count) {
        let at = format!("{count} entries, {ENTRIES} to {ENTRIES_MAX} are possible");
        return Err(PartError::new(PartErrorKind::BadValue, OP, at));
    }
    let size = media.sector_size;
    let length = table_sectors(&media, count, ENTRY as u32);
    let sound = size >= 512 && size.is_power_of_two() && media.sectors > 2 * length + 3;
    let at = || format!("{} sectors of {size} bytes", media.sectors);
    if !sound {
        return Err(PartError::new(PartErrorKind::BadMedia, OP, at()));
    }
    let round = (ROUND / u64::from(size)).max(1);
    let first = (2 + length).next_multiple_of(round);
    let limit = media.sectors - 1 - length;
    let last = (limit - limit % round).saturating_sub(1);
    if first >= last {
        return Err(PartError::new(PartErrorKind::BadMedia, OP, at()));
    }
    Ok(Table {
        media,
        first,
        last,
        entries: Vec::new(),
        capacity: count,
        damage: Vec::new(),
        scheme_data: SchemeData::Gpt(GptData {
            disk_guid: Guid::random(random),
            entry_size: ENTRY as u32,
            table_at: 2,
            backup_at: media.sectors - 1,
            source: Source::Primary,
            pmbr: protective(&media),
            present: Vec::new(),
        }),
    })
}

/// A fresh protective MBR.
fn protective(media: &Media) -> Vec<u8> {
    let mut sector = vec![0; media.sector_size as usize];
    let slot = Slot { flag: 0, kind: mbr::PROTECTIVE, start: 1, sectors: covered(media) };
    slot.write(&mut sector, 0, 0);
    // By the specification from 0/0/2 on, to the end of what can be named.
    put(&mut sector, 447, &[0, 2, 0]);
    put(&mut sector, 451, &[0xff; 3]);
    mbr::sign(&mut sector);
    sector
}

fn covered(media: &Media) -> u32 {
    u32::try_from(media.sectors.saturating_sub(1)).unwrap_or(u32::MAX)
}

/// Put the backup in the last sector and let the usable range grow with the media. It never
/// shrinks below what partitions use.
pub(crate) fn settle(table: &mut Table, op: &'static str) -> Result<(), PartError> {
    let media = table.media;
    let SchemeData::Gpt(body) = &mut table.scheme_data else {
        return Ok(());
    };
    let length = table_sectors(&media, table.capacity, body.entry_size);
    let refuse = |at: String| PartError::new(PartErrorKind::OutOfRange, op, at);
    let too_small = || refuse(format!("{} sectors, {} for the table", media.sectors, length));
    let end = media.sectors.checked_sub(1).ok_or_else(too_small)?;
    let limit = end.checked_sub(length).ok_or_else(too_small)?;
    let used = table.entries.iter().map(|entry| entry.end).max().unwrap_or(0);
    if used >= limit {
        let what = "the backup of the table needs sectors";
        return Err(refuse(format!("a partition ends in sector {used}; {what} {limit} to {end}")));
    }
    let lowest = table.entries.iter().map(|entry| entry.start).min().unwrap_or(u64::MAX);
    if lowest < length.saturating_add(2) {
        let (what, last) = ("the table needs sectors 1", length + 1);
        return Err(refuse(format!("a partition begins in sector {lowest}; {what} to {last}")));
    }
    if body.backup_at != end {
        let round = (ROUND / u64::from(media.sector_size).max(1)).max(1);
        table.last = (limit - limit % round).saturating_sub(1).max(used);
    }
    body.backup_at = end;
    // The primary table is in front of the usable range; where it cannot, after the header.
    let fits = |at: u64| at.checked_add(length).is_some_and(|to| to <= table.first);
    if !fits(body.table_at) {
        body.table_at = 2;
    }
    if !fits(body.table_at) || table.first > table.last || table.last >= limit {
        return Err(too_small());
    }
    cover_media(&mut body.pmbr, &media);
    Ok(())
}

/// Keep the size in a plain protective MBR right; a missing one is made, another is kept.
fn cover_media(pmbr: &mut Vec<u8>, media: &Media) {
    if !mbr::signed(pmbr) && (0..mbr::SLOTS).all(|slot| Slot::is_blank(pmbr, slot)) {
        let code: Vec<u8> = pmbr.iter().take(446).copied().collect();
        *pmbr = protective(media);
        put(pmbr, 0, &code);
    }
    let slots: Vec<Slot> = (0..mbr::SLOTS).map(|slot| Slot::read(pmbr, slot)).collect();
    let alone = !slots.iter().any(Slot::used);
    let place = slots.iter().position(|slot| slot.kind == mbr::PROTECTIVE && slot.start == 1);
    if let (true, true, Some(place)) = (alone, mbr::signed(pmbr), place) {
        // The CHS end stays: it means "beyond what can be named" regardless of the size.
        put(pmbr, 446 + place * 16 + 12, &covered(media).to_le_bytes());
    }
}

/// Other boot code in sector 0. Where that is blank, it becomes a protective MBR: code in a sector
/// without a signature would never run.
pub(crate) fn put_code(
    media: &Media,
    body: &mut GptData,
    code: &[u8],
    take_serial: bool,
) -> Result<(), PartError> {
    cover_media(&mut body.pmbr, media);
    if !mbr::signed(&body.pmbr) {
        return Err(bootcode::bad("sector 0 has entries and no signature (55 AA)"));
    }
    mbr::put_code(&mut body.pmbr, code, take_serial)
}

/// Sector 0 as it must be beside these entries. Where it is the hybrid that Boot Camp makes (a
/// protective entry from sector 1, then an Apple one), its entries follow those of the table
/// that have the same number. Any other sector 0 is kept as it is.
pub(crate) fn sector_zero(table: &Table, body: &GptData) -> Vec<u8> {
    let mut sector = body.pmbr.clone();
    let (guard, apple) = (Slot::read(&sector, 0), Slot::read(&sector, 1));
    let hybrid = guard.kind == mbr::PROTECTIVE && guard.start == 1 && apple.kind == APPLE_HFS;
    if !hybrid || !mbr::signed(&sector) {
        return sector;
    }
    for slot in 0..mbr::SLOTS {
        let old = Slot::read(&sector, slot);
        let entry = table.entries.iter().find(|entry| entry.index as usize == slot + 1);
        let place = entry.and_then(|entry| {
            // The protective entry covers all up to the end of the first partition.
            let start = if slot == 0 { 1 } else { entry.start };
            let sectors = entry.end.checked_sub(start)?.checked_add(1)?;
            Some((u32::try_from(start).ok()?, u32::try_from(sectors).ok()?))
        });
        match place {
            _ if old.kind == 0 => {}
            Some((start, sectors)) => Slot { start, sectors, ..old }.write(&mut sector, slot, 0),
            None if slot == 0 => {}
            None => Slot::clear(&mut sector, slot),
        }
    }
    sector
}

impl GptData {
    /// Attributes of the protective MBR that are set.
    pub(crate) fn pmbr_attributes(&self) -> Vec<&'static str> {
        let slots = (0..mbr::SLOTS).map(|slot| (slot, Slot::read(&self.pmbr, slot)));
        let guard = slots.into_iter().find(|(_, slot)| slot.kind == mbr::PROTECTIVE);
        match guard {
            Some((place, slot)) => {
                let active = (slot.flag & mbr::ACTIVE != 0).then_some("active");
                let second = (place == 1).then_some("lenovofix");
                active.into_iter().chain(second).collect()
            }
            None => Vec::new(),
        }
    }

    /// `active` sets the flag of the protective entry, `lenovofix` puts it in the second slot.
    /// False when there is no such attribute, or the sector is not a plain protective MBR.
    pub(crate) fn set_pmbr_attribute(&mut self, name: &str, on: bool) -> bool {
        let slots: Vec<Slot> = (0..mbr::SLOTS).map(|slot| Slot::read(&self.pmbr, slot)).collect();
        let place = slots.iter().position(|slot| slot.kind == mbr::PROTECTIVE);
        let Some(place) = place.filter(|_| mbr::signed(&self.pmbr)) else {
            return false;
        };
        match name {
            "active" => {
                let flag = if on { mbr::ACTIVE } else { 0 };
                put(&mut self.pmbr, 446 + place * 16, &[flag]);
                true
            }
            "lenovofix" => {
                let target = usize::from(on);
                if place != target {
                    if !Slot::is_blank(&self.pmbr, target) {
                        return false;
                    }
                    let raw: [u8; 16] =
                        crate::probe::array(&self.pmbr, 446 + place * 16).unwrap_or_default();
                    put(&mut self.pmbr, 446 + target * 16, &raw);
                    Slot::clear(&mut self.pmbr, place);
                }
                true
            }
            _ => false,
        }
    }
}

/// Where a copy is written.
struct CopyLocation {
    header: u64,
    alternate: u64,
    table: u64,
}

/// The entries as they are stored.
fn encode(table: &Table, body: &GptData) -> Result<Vec<u8>, PartError> {
    let size = (body.entry_size as usize).max(ENTRY);
    let bytes = size.saturating_mul(table.capacity as usize);
    let refuse = |kind, at: String| PartError::new(kind, "commit", at);
    if bytes > TABLE_BYTES_MAX {
        return Err(refuse(PartErrorKind::BadValue, format!("a table of {bytes} bytes")));
    }
    let mut out = vec![0; bytes];
    for entry in &table.entries {
        let Kind::Guid(kind) = entry.kind else {
            return Err(refuse(PartErrorKind::BadType, format!("index {}", entry.index)));
        };
        let place = (entry.index as usize).checked_sub(1).and_then(|place| place.checked_mul(size));
        let slot = place.and_then(|at| out.get_mut(at..at.checked_add(size)?));
        let Some(slot) = slot else {
            return Err(refuse(PartErrorKind::TableFull, format!("index {}", entry.index)));
        };
        put(slot, 0, &kind.to_disk());
        put(slot, 16, &entry.guid.to_disk());
        put(slot, 32, &entry.start.to_le_bytes());
        put(slot, 40, &entry.end.to_le_bytes());
        put(slot, 48, &entry.attributes.to_le_bytes());
        for (at, unit) in entry.name.iter().enumerate() {
            put(slot, 56 + at * 2, &unit.to_le_bytes());
        }
        put(slot, ENTRY, &entry.tail);
    }
    Ok(out)
}

fn write_copy(
    plan: &mut WritePlan,
    table: &Table,
    body: &GptData,
    place: &CopyLocation,
) -> Result<(), PartError> {
    let media = &table.media;
    let mut entries = encode(table, body)?;
    let crc = crc32(&[&entries]);
    let sector = media.sector_size as usize;
    entries.resize(entries.len().next_multiple_of(sector.max(1)), 0);
    let mut header = vec![0; sector];
    put(&mut header, 0, &SIGNATURE);
    put(&mut header, 8, &0x0001_0000_u32.to_le_bytes());
    put(&mut header, 12, &(HEADER as u32).to_le_bytes());
    put(&mut header, 24, &place.header.to_le_bytes());
    put(&mut header, 32, &place.alternate.to_le_bytes());
    put(&mut header, 40, &table.first.to_le_bytes());
    put(&mut header, 48, &table.last.to_le_bytes());
    put(&mut header, 56, &body.disk_guid.to_disk());
    put(&mut header, 72, &place.table.to_le_bytes());
    put(&mut header, 80, &table.capacity.to_le_bytes());
    put(&mut header, 84, &body.entry_size.to_le_bytes());
    put(&mut header, 88, &crc.to_le_bytes());
    let own = crc32(&[header.get(..HEADER).unwrap_or(&[])]);
    put(&mut header, 16, &own.to_le_bytes());
    plan.write(media.offset(place.table), entries);
    plan.write(media.offset(place.header), header);
    plan.flush();
    Ok(())
}

/// The writes that turn `before` (the table on the media) into `after`.
pub(crate) fn plan(
    before: Option<&Table>,
    after: &Table,
    body: &GptData,
) -> Result<WritePlan, PartError> {
    let mut plan = WritePlan::default();
    let old = before.and_then(|table| match &table.scheme_data {
        SchemeData::Gpt(old) => Some((table, old)),
        SchemeData::Mbr(_) | SchemeData::Ebr(_) | SchemeData::Bsd(_) => None,
    });
    if let Some((table, old)) = old
        && old.source == Source::Secondary
    {
        // W2: the only good copy is about to be rewritten, perhaps elsewhere. Make the primary
        // its twin first, pointing at where it is now.
        let at = CopyLocation { header: 1, alternate: old.backup_at, table: body.table_at };
        write_copy(&mut plan, table, old, &at)?;
    }
    let end = after.media.sectors.saturating_sub(1);
    let length = table_sectors(&after.media, after.capacity, body.entry_size);
    let backup = end.checked_sub(length).filter(|at| *at > after.last);
    let Some(backup) = backup else {
        let at = format!("backup behind sector {}", after.last);
        return Err(PartError::new(PartErrorKind::OutOfRange, "commit", at));
    };
    write_copy(&mut plan, after, body, &CopyLocation { header: end, alternate: 1, table: backup })?;
    let primary = CopyLocation { header: 1, alternate: end, table: body.table_at };
    write_copy(&mut plan, after, body, &primary)?;
    let sector = sector_zero(after, body);
    if old.is_none_or(|(_, old)| old.pmbr != sector) {
        plan.write(0, sector);
        plan.flush();
    }
    Ok(plan)
}

/// The writes that remove a table: first sector 0 if it protects one, so that the remains after a
/// cut are never taken for an MBR; then the existing headers.
pub(crate) fn destroy(media: &Media, body: &GptData) -> WritePlan {
    let mut plan = WritePlan::default();
    let zeros = || vec![0; media.sector_size as usize];
    let guards = (0..mbr::SLOTS).any(|slot| Slot::read(&body.pmbr, slot).kind == mbr::PROTECTIVE);
    if mbr::signed(&body.pmbr) && guards {
        plan.write(0, zeros());
        plan.flush();
    }
    for at in &body.present {
        plan.write(media.offset(*at), zeros());
    }
    plan.flush();
    plan
}
