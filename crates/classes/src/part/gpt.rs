//! GUID partition table: reading both copies and choosing one.
//!
//! ```text
//! sector 0    1               2 ..            first .. last        ..        the last sector
//! PMBR   primary header  primary table   |  partitions  |   backup table  backup header
//! header 0 8 "EFI PART" | 8 4 revision | 12 4 size | 16 4 CRC | 24 8 own sector
//!        32 8 other header | 40 8 first | 48 8 last usable | 56 16 disk GUID
//!        72 8 table | 80 4 entries | 84 4 bytes an entry | 88 4 CRC of the table
//! entry  0 16 type | 16 16 unique id | 32 8 first | 40 8 last | 48 8 attributes | 56 72 name
//! ```
//!
//! Invariants
//!  G1  The primary copy counts when its header and table are good; else the backup, if whole.
//!      Neither whole: no table.
//!  G2  The backup is looked for where a good primary header points, then in the last sector.
//!  G3  Anything short of two good, agreeing copies with the backup in the last sector makes
//!      the table damaged: usable, and not editable until recovered.
//!  G4  Number and size of entries and the place of the table are the header's.
//!  G5  The usable range is the header's without the sectors of headers and entries, unless a
//!      partition has such a sector: then the table is damaged.
//!  G6  A primary copy of a larger disk counts when there is no backup that fits this one. There
//!      must be no sign that this disk is a member of a larger whole. Its partitions are read only.

use super::gpt_fit::{BadField, plausible, usable};
use super::mbr::{self, Slot};
use super::table::{Damage, Entry, Health, Media, SchemeData, Table};
use super::types::{Guid, Kind};
use crate::crc::crc32;
use crate::inspect;
use crate::probe::{ProbeError, ProbeStop, Reason, Sectors, array, le16, le32, le64, span};

pub(crate) use super::gpt_write::{
    create, destroy, plan, put_code, sector_zero, settle, table_sectors,
};

/// UTF-16 units that a name may have.
pub(crate) const NAME_UNITS: usize = 36;
/// Bytes of an entry that are defined.
pub(crate) const ENTRY: usize = 128;
/// Bytes of a header that are defined.
pub(crate) const HEADER: usize = 92;
/// Bytes of one table; a larger one is refused as too large to be examined.
pub(crate) const TABLE_BYTES_MAX: usize = 1 << 20;
pub(crate) const SIGNATURE: [u8; 8] = *b"EFI PART";

/// Which copy of the table is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Primary,
    Secondary,
}

/// Parts of a GPT besides its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GptData {
    pub(crate) disk_guid: Guid,
    pub(crate) entry_size: u32,
    pub(crate) table_at: u64,
    pub(crate) backup_at: u64,
    pub(crate) source: Source,
    /// Sector 0 as it was; zeros where it could not be read.
    pub(crate) pmbr: Vec<u8>,
    /// Headers that are there in some form, to be wiped by `destroy`.
    pub(crate) present: Vec<u64>,
}

impl GptData {
    pub(crate) fn tail_len(&self) -> usize {
        (self.entry_size as usize).saturating_sub(ENTRY)
    }
}

/// A header whose checksum and values are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) own: u64,
    pub(crate) alternate: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) disk_guid: Guid,
    pub(crate) table: u64,
    pub(crate) count: u32,
    pub(crate) entry_size: u32,
    pub(crate) table_crc: u32,
}

impl Header {
    pub(crate) fn table_bytes(&self) -> usize {
        (self.count as usize).saturating_mul(self.entry_size as usize)
    }

    pub(crate) fn table_sectors(&self, media: &Media) -> u64 {
        table_sectors(media, self.count, self.entry_size)
    }

    /// The table's first sector and the one behind it.
    fn table_range(&self, media: &Media) -> (u64, u64) {
        (self.table, self.table.saturating_add(self.table_sectors(media)))
    }

    fn agrees(&self, other: &Header) -> bool {
        let key = |h: &Header| (h.first, h.last, h.disk_guid, h.count, h.entry_size, h.table_crc);
        key(self) == key(other) && self.alternate == other.own && self.own == other.alternate
    }
}

/// One copy as found.
struct Found {
    header: Result<Header, Health>,
    table: Result<Vec<u8>, Health>,
    /// Why the header is `Invalid`.
    bad: Option<BadField>,
    /// The header is that of a larger disk.
    larger: bool,
}

impl Found {
    fn valid(&self) -> Option<(&Header, &[u8])> {
        Some((self.header.as_ref().ok()?, self.table.as_ref().ok()?))
    }
}

/// The content of sector 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A protective MBR: the disk is a GPT's.
    Protected,
    /// Anything else: an MBR there is stronger.
    Open,
}

/// Look for a GPT. With `check` off a table whose partitions overlap is damaged, not refused.
pub(crate) fn probe(sectors: &Sectors, check: bool) -> Result<(Table, Claim), ProbeStop> {
    let size = sectors.sector_size() as usize;
    let media = Media::plain(sectors.media_sectors(), sectors.sector_size());
    if size < 512 || !size.is_power_of_two() || media.sectors < 6 {
        return Err(ProbeStop::no(Reason::Media, 0, "GPT"));
    }
    let end = media.sectors - 1;
    let pmbr = sectors.get(0, size)?.map_or_else(|| vec![0; size], <[u8]>::to_vec);
    let mut primary = copy_at(sectors, &media, 1)?;
    let other = primary.header.map_or(end, |header| header.alternate);
    let mut secondary = copy_at(sectors, &media, other)?;
    let mut backup_at = other;
    if secondary.valid().is_none() && other != end {
        let last = copy_at(sectors, &media, end)?;
        if last.valid().is_some() {
            (secondary, backup_at) = (last, end);
        }
    }
    // G6
    if primary.larger && secondary.valid().is_some() {
        primary.header = Err(Health::Invalid);
    }
    let was = primary.header.ok().filter(|_| primary.larger).map(|header| header.alternate);
    if was.is_some()
        && let Some(at) = inspect::membership(sectors)?
    {
        return Err(ProbeStop::no(
            Reason::Foreign,
            at,
            "GPT of a whole that this disk is a member of",
        ));
    }
    let (source, header, bytes) = match (primary.valid(), secondary.valid()) {
        (Some((header, bytes)), _) => (Source::Primary, *header, bytes),
        (None, Some((header, bytes))) => (Source::Secondary, *header, bytes),
        (None, None) => {
            return Err(ProbeStop::No(no_table_reason(&media, &primary, (&secondary, backup_at))));
        }
    };
    let claim = claim(&pmbr);
    let mut present = vec![1, backup_at];
    present.retain(|at| *at != 1 || primary.header != Err(Health::Missing));
    present.retain(|at| *at == 1 || secondary.header != Err(Health::Missing));
    let table_at = primary.header.map_or(2, |header| header.table);
    let entries = decode(&header, bytes);
    let reserved = reserved(&media, &header, table_at, (&secondary, backup_at));
    let range = usable(&header, &entries, &reserved, end);
    let mut damage = damage(&primary, &secondary, backup_at, end);
    if let Some(was) = was {
        damage.push(Damage::Shrunk { was: was.saturating_add(1) });
    }
    if range.covered {
        damage.push(Damage::TableCovered);
    }
    let mut table = Table {
        media,
        first: range.first,
        last: range.last,
        entries,
        capacity: header.count,
        damage,
        scheme_data: SchemeData::Gpt(GptData {
            disk_guid: header.disk_guid,
            entry_size: header.entry_size,
            table_at,
            backup_at,
            source,
            pmbr,
            present,
        }),
    };
    if let Err(why) = table.check() {
        if check {
            return Err(ProbeStop::No(match was {
                Some(_) => {
                    ProbeError { field: "a sector of a partition in a GPT of a larger disk", ..why }
                }
                None => why,
            }));
        }
        table.damage.push(Damage::Integrity);
    }
    Ok((table, claim))
}

/// The sectors of headers and entries, those of the backup also where it is to be written.
fn reserved(
    media: &Media,
    header: &Header,
    table_at: u64,
    (secondary, backup_at): (&Found, u64),
) -> [(u64, u64); 4] {
    let length = header.table_sectors(media);
    let first = (table_at, table_at.saturating_add(length));
    let end = media.sectors.saturating_sub(1);
    let last = match &secondary.header {
        Ok(header) => header.table_range(media),
        Err(_) => (end.saturating_sub(length), end),
    };
    let at = if secondary.header.is_ok() { backup_at } else { end };
    [(1, 2), first, (at, at.saturating_add(1)), last]
}

fn claim(pmbr: &[u8]) -> Claim {
    let protective = |slot| Slot::read(pmbr, slot).kind == mbr::PROTECTIVE;
    match mbr::signed(pmbr) && (0..mbr::SLOTS).any(protective) {
        true => Claim::Protected,
        false => Claim::Open,
    }
}

/// Why there is no table, in the most telling words.
fn no_table_reason(
    media: &Media,
    primary: &Found,
    (secondary, backup_at): (&Found, u64),
) -> ProbeError {
    let at = media.offset(1);
    let missing = |found: &Found| found.header == Err(Health::Missing);
    if missing(primary) && missing(secondary) {
        return ProbeError::new(Reason::Signature, at, "GPT header (EFI PART), primary or backup,");
    }
    match (primary.bad, secondary.bad) {
        (Some(bad), _) => return bad.to_probe_error(at),
        (None, Some(bad)) => return bad.to_probe_error(media.offset(backup_at)),
        (None, None) => {}
    }
    match (&primary.header, &primary.table) {
        (Ok(header), _) => {
            let at = media.offset(header.table);
            ProbeError::new(Reason::Checksum, at, "GPT table (backup no better)")
        }
        _ => ProbeError::new(Reason::Checksum, at, "both copies of the GPT"),
    }
}

/// G3: everything that is not as it should be.
fn damage(primary: &Found, secondary: &Found, backup_at: u64, end: u64) -> Vec<Damage> {
    let mut damage = Vec::new();
    if let Err(health) = primary.header {
        damage.push(Damage::PrimaryHeader(health));
    } else if let Err(health) = primary.table {
        damage.push(Damage::PrimaryTable(health));
    }
    match (&secondary.header, &secondary.table) {
        (Err(health), _) => damage.push(Damage::SecondaryHeader(*health)),
        (Ok(_), Err(health)) => damage.push(Damage::SecondaryTable(*health)),
        (Ok(_), Ok(_)) if backup_at != end => damage.push(Damage::BackupNotLast { at: backup_at }),
        _ => {}
    }
    if let (Some((first, _)), Some((second, _))) = (primary.valid(), secondary.valid())
        && !first.agrees(second)
    {
        damage.push(Damage::CopiesDisagree);
    }
    damage
}

fn copy_at(sectors: &Sectors, media: &Media, at: u64) -> Result<Found, ProbeStop> {
    let (mut larger, mut bad) = (false, None);
    let header = header_at(sectors, media, at)?;
    let header = header.and_then(|header| match plausible(&header, media, at) {
        Ok(of_larger) => {
            larger = of_larger;
            Ok(header)
        }
        Err(why) => {
            bad = Some(why);
            Err(Health::Invalid)
        }
    });
    let table = match &header {
        Ok(header) => table_of(sectors, media, header)?,
        Err(_) => Err(Health::Missing),
    };
    if header == Err(Health::Invalid) && bad.is_none() {
        let size = media.sector_size as usize;
        let frame = sectors.get(media.offset(at), size)?.unwrap_or(&[]);
        let (len, revision) = (le32(frame, 12).into(), le32(frame, 8).into());
        bad = Some(BadField::of_frame(len, revision, media.sector_size.into()));
    }
    Ok(Found { header, table, bad, larger })
}

/// Is this a header of a GPT with the right checksum, wherever it is?
pub(crate) fn is_header(sector: &[u8]) -> bool {
    check_header(sector).is_ok()
}

fn check_header(sector: &[u8]) -> Result<(), Health> {
    if array::<8>(sector, 0) != Some(SIGNATURE) {
        return Err(Health::Missing);
    }
    let len = le32(sector, 12) as usize;
    if le32(sector, 8) < 0x0001_0000 || !(HEADER..=sector.len()).contains(&len) {
        return Err(Health::Invalid);
    }
    let rest = span(sector, 20, len - 20);
    if crc32(&[span(sector, 0, 16), &[0; 4], rest]) != le32(sector, 16) {
        return Err(Health::Corrupt);
    }
    Ok(())
}

/// The header in sector `at`, or its state. Its values are not looked at.
fn header_at(
    sectors: &Sectors,
    media: &Media,
    at: u64,
) -> Result<Result<Header, Health>, ProbeStop> {
    let size = media.sector_size as usize;
    let Some(sector) = sectors.get(media.offset(at), size)? else {
        return Ok(Err(Health::Missing));
    };
    if let Err(health) = check_header(sector) {
        return Ok(Err(health));
    }
    let header = Header {
        own: le64(sector, 24),
        alternate: le64(sector, 32),
        first: le64(sector, 40),
        last: le64(sector, 48),
        disk_guid: Guid::from_disk(array(sector, 56).unwrap_or_default()),
        table: le64(sector, 72),
        count: le32(sector, 80),
        entry_size: le32(sector, 84),
        table_crc: le32(sector, 88),
    };
    Ok(Ok(header))
}

fn table_of(
    sectors: &Sectors,
    media: &Media,
    header: &Header,
) -> Result<Result<Vec<u8>, Health>, ProbeStop> {
    let bytes = header.table_bytes();
    if bytes > TABLE_BYTES_MAX {
        return Ok(Err(Health::Invalid));
    }
    let Some(table) = sectors.get(media.offset(header.table), bytes)? else {
        return Ok(Err(Health::Missing));
    };
    let good = crc32(&[table]) == header.table_crc;
    Ok(if good { Ok(table.to_vec()) } else { Err(Health::Corrupt) })
}

fn decode(header: &Header, bytes: &[u8]) -> Vec<Entry> {
    let slots = bytes.chunks_exact((header.entry_size as usize).max(ENTRY));
    let used = (1..).zip(slots).filter_map(|(index, slot)| Some((index, slot, kind(slot)?)));
    used.map(|(index, slot, kind)| {
        let start = le64(slot, 32);
        let mut name: Vec<u16> = (0..NAME_UNITS).map(|unit| le16(slot, 56 + unit * 2)).collect();
        name.truncate(name.iter().position(|unit| *unit == 0).unwrap_or(NAME_UNITS));
        Entry {
            index,
            start,
            end: le64(slot, 40),
            data: start,
            kind: Kind::Guid(kind),
            guid: Guid::from_disk(array(slot, 16).unwrap_or_default()),
            attributes: le64(slot, 48),
            name,
            tail: slot.get(ENTRY..).unwrap_or(&[]).to_vec(),
        }
    })
    .collect()
}

fn kind(slot: &[u8]) -> Option<Guid> {
    let guid = Guid::from_disk(array(slot, 0)?);
    (guid != Guid::ZERO).then_some(guid)
}
