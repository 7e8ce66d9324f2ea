//! Extended boot records: the chain of logical partitions inside one MBR partition.
//!
//! ```text
//!  sector 0 of the extended partition
//!  +-----------+        +-----------+
//!  | 1: data --+--> ... | 1: data --+--> ...     data: relative to this record
//!  | 2: link --+------->| 2: link   |  = empty   link: relative to sector 0
//!  +-----------+        +-----------+
//! ```
//! A record without data in entry 1 is valid at sector 0 only; its link may be in entry 1 or 2.
//!
//! Invariants
//!  E1  A walk visits no sector twice and at most [`LOGICALS_MAX`] records.
//!  E2  A record not yet in the chain is written and flushed before it is linked. One edit then
//!      becomes visible by the change of one sector. Sizes in links follow afterwards: no data
//!      depends on them.

use super::error::{PartError, PartErrorKind};
use super::mbr::{self, Slot, TRACK};
use super::table::{Damage, Entry, Media, Scheme, SchemeData, Table};
use super::types::{Guid, Kind};
use crate::probe::{ProbeStop, Reason, Sectors};
use crate::write_plan::WritePlan;
use std::collections::BTreeMap;

/// Logical partitions of one chain; a longer chain is cut there and reported as damaged.
pub const LOGICALS_MAX: u32 = 256;

/// Parts of a chain besides its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EbrData {
    /// Records in chain order as (sector, the sector's bytes). The first is sector 0.
    pub(crate) records: Vec<(u64, Vec<u8>)>,
}

/// Sectors between record and data for partitions aligned to `align` sectors.
pub(crate) fn lead(align: u64) -> u64 {
    TRACK.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX)
}

/// The index of a record at sector `at`: its track, counted from 1; the next free one where
/// another partition has it.
pub(crate) fn index_at(at: u64, others: &[Entry]) -> u32 {
    let track = u32::try_from(at / TRACK).unwrap_or(u32::MAX - 1 - LOGICALS_MAX);
    let mut index = track.saturating_add(1);
    while others.iter().any(|entry| entry.index == index) {
        index = index.saturating_add(1);
    }
    index
}

/// Look for a chain on an extended partition.
pub(crate) fn probe(sectors: &Sectors) -> Result<Table, ProbeStop> {
    let size = sectors.sector_size();
    if !(512..=4096).contains(&size) {
        return Err(ProbeStop::no(Reason::Media, 0, "extended boot record"));
    }
    let media = Media::plain(sectors.media_sectors(), size);
    let mut walk =
        ChainWalk { media, entries: Vec::new(), records: Vec::new(), damage: Vec::new() };
    let head = sectors.need(0, size as usize, "extended boot record")?;
    if !mbr::signed(head) {
        return Err(ProbeStop::no(Reason::Signature, 510, "extended boot record (55 AA)"));
    }
    let mut at = 0;
    while let Some(next) = walk.record(sectors, at)? {
        if walk.records.iter().any(|(seen, _)| *seen == next) {
            walk.damage.push(Damage::ChainLoop(next));
            break;
        }
        if walk.records.len() >= LOGICALS_MAX as usize {
            walk.damage.push(Damage::ChainBroken(next));
            break;
        }
        at = next;
    }
    walk.entries.sort_unstable_by_key(|entry| entry.index);
    Ok(Table {
        media,
        first: 0,
        last: mbr::last_usable(media.sectors),
        entries: walk.entries,
        capacity: LOGICALS_MAX,
        damage: walk.damage,
        scheme_data: SchemeData::Ebr(EbrData { records: walk.records }),
    })
}

struct ChainWalk {
    media: Media,
    entries: Vec<Entry>,
    records: Vec<(u64, Vec<u8>)>,
    damage: Vec<Damage>,
}

impl ChainWalk {
    /// Take in the record at sector `at`; answers the sector of the next one.
    fn record(&mut self, sectors: &Sectors, at: u64) -> Result<Option<u64>, ProbeStop> {
        let size = self.media.sector_size as usize;
        let held = if at >= self.media.sectors {
            None
        } else {
            sectors.get(self.media.offset(at), size)?
        };
        let Some(sector) = held.filter(|sector| mbr::signed(sector)) else {
            self.damage.push(Damage::ChainBroken(at));
            return Ok(None);
        };
        self.records.push((at, sector.to_vec()));
        if (2..mbr::SLOTS).any(|slot| !Slot::is_blank(sector, slot)) {
            self.damage.push(Damage::ChainReserved(at));
        }
        let (data, link) = (Slot::read(sector, 0), Slot::read(sector, 1));
        let pure_link = at == 0 && mbr::is_extended(data.kind) && Slot::is_blank(sector, 1);
        if pure_link {
            return Ok(Some(u64::from(data.start)));
        }
        if data.used() && !mbr::is_extended(data.kind) {
            let start = at.saturating_add(u64::from(data.start));
            let index = index_at(at, &self.entries);
            self.entries.push(Entry {
                index,
                start: at,
                end: start.saturating_add(u64::from(data.sectors)).saturating_sub(1),
                data: start,
                kind: Kind::Byte(data.kind),
                guid: Guid::ZERO,
                attributes: u64::from(data.flag & mbr::ACTIVE),
                name: Vec::new(),
                tail: Vec::new(),
            });
        } else if at != 0 {
            // The first empty entry ends the chain.
            return Ok(None);
        }
        let linked = link.used() && mbr::is_extended(link.kind);
        Ok(linked.then(|| u64::from(link.start)))
    }
}

/// An empty chain.
pub(crate) fn create(media: Media) -> Result<Table, PartError> {
    if !(512..=4096).contains(&media.sector_size) || media.sectors <= TRACK {
        let at = format!("{} sectors of {} bytes", media.sectors, media.sector_size);
        return Err(PartError::new(PartErrorKind::BadMedia, "create", at));
    }
    let mut sector = vec![0; media.sector_size as usize];
    mbr::sign(&mut sector);
    Ok(Table {
        media,
        first: 0,
        last: mbr::last_usable(media.sectors),
        entries: Vec::new(),
        capacity: LOGICALS_MAX,
        damage: Vec::new(),
        scheme_data: SchemeData::Ebr(EbrData { records: vec![(0, sector)] }),
    })
}

/// The order of the chain for `entries`: as it was, without records no longer needed, and with
/// new ones put behind the last that is before them. Sector 0 always leads.
pub(crate) fn chain(body: &EbrData, entries: &[Entry]) -> Vec<u64> {
    let mut order: Vec<u64> = body
        .records
        .iter()
        .map(|(at, _)| *at)
        .filter(|at| *at == 0 || entries.iter().any(|entry| entry.start == *at))
        .collect();
    if order.first() != Some(&0) {
        order.insert(0, 0);
    }
    let mut fresh: Vec<u64> =
        entries.iter().map(|entry| entry.start).filter(|at| !order.contains(at)).collect();
    fresh.sort_unstable();
    for at in fresh {
        let before = order.iter().rposition(|other| *other < at).unwrap_or(0);
        order.insert(before + 1, at);
    }
    order
}

/// The bytes of every record of `table`, in chain order.
pub(crate) fn encode(table: &Table, body: &EbrData) -> Result<Vec<(u64, Vec<u8>)>, PartError> {
    let order = chain(body, &table.entries);
    let base = table.media.stripe_offset / u64::from(table.media.sector_size).max(1);
    let size = table.media.sector_size as usize;
    let mut records = Vec::with_capacity(order.len());
    for (place, &at) in order.iter().enumerate() {
        let old = body.records.iter().find(|(other, _)| *other == at);
        let mut sector = old.map_or_else(|| vec![0; size], |(_, bytes)| bytes.clone());
        sector.resize(size, 0);
        let far = || {
            PartError::new(PartErrorKind::OutOfRange, "commit", format!("record at sector {at}"))
        };
        let entry = table.entries.iter().find(|entry| entry.start == at);
        match entry {
            Some(entry) => {
                let slot = mbr::slot_of(entry, at).ok_or_else(far)?;
                slot.write(&mut sector, 0, base.saturating_add(at));
            }
            None => Slot::clear(&mut sector, 0),
        }
        let next = order.get(place + 1);
        match next.and_then(|next| table.entries.iter().find(|entry| entry.start == *next)) {
            Some(next) => {
                let old = Slot::read(&sector, 1).kind;
                let sectors = next.end.saturating_sub(next.start).saturating_add(1);
                let link = Slot {
                    flag: 0,
                    kind: if mbr::is_extended(old) { old } else { 0x05 },
                    start: u32::try_from(next.start).map_err(|_| far())?,
                    sectors: u32::try_from(sectors).map_err(|_| far())?,
                };
                link.write(&mut sector, 1, base);
            }
            None => Slot::clear(&mut sector, 1),
        }
        for slot in 2..mbr::SLOTS {
            Slot::clear(&mut sector, slot);
        }
        mbr::sign(&mut sector);
        records.push((at, sector));
    }
    Ok(records)
}

/// The writes that turn `before` (the table on the media) into `after`.
pub(crate) fn plan(
    before: Option<&Table>,
    after: &Table,
    body: &EbrData,
) -> Result<WritePlan, PartError> {
    let mut held = BTreeMap::new();
    if let Some(Table { scheme_data: SchemeData::Ebr(old), .. }) = before {
        held.extend(old.records.iter().map(|(at, bytes)| (*at, bytes)));
    }
    let wanted = encode(after, body)?;
    let mut plan = WritePlan::default();
    // E2: first what nothing points to yet.
    for (at, bytes) in &wanted {
        if !held.contains_key(at) && *at != 0 {
            plan.write(after.media.offset(*at), bytes.clone());
        }
    }
    plan.flush();
    // Then the records of the chain. Those whose meaning changes precede those in which only the
    // size in the link does, and the end of the chain precedes its beginning.
    let mut late = Vec::new();
    for (at, bytes) in wanted.iter().rev() {
        match held.get(at) {
            Some(old) if *old == bytes => {}
            Some(old) if same_meaning(old, bytes) => late.push((at, bytes)),
            None if *at != 0 => {}
            _ => {
                plan.write(after.media.offset(*at), bytes.clone());
                plan.flush();
            }
        }
    }
    for (at, bytes) in late {
        plan.write(after.media.offset(*at), bytes.clone());
    }
    plan.flush();
    Ok(plan)
}

/// Do two records have the same data range and the same next record?
fn same_meaning(old: &[u8], new: &[u8]) -> bool {
    let (a, b) = (Slot::read(old, 1), Slot::read(new, 1));
    Slot::read(old, 0) == Slot::read(new, 0)
        && (a.start, a.kind) == (b.start, b.kind)
        && a.used() == b.used()
}

/// Whether a chain may be in a partition of this scheme and type.
pub(crate) fn fits(parent: Option<Scheme>, kind: Option<Kind>) -> bool {
    let extended = matches!(kind, Some(Kind::Byte(byte)) if mbr::is_extended(byte));
    parent == Some(Scheme::Mbr) && extended
}
