//! Restore of a table from a backup.
//!
//! Invariants
//!  R1  The backup is not trusted: the resulting table satisfies T1 (table.rs), and an error names
//!      the line and the field that break it.
//!  R2  Unique ids are new ones unless those of the backup are requested: two disks with the same
//!      ids would be taken for one.

use super::attributes::bits_of;
use super::backup::{Backup, OP, Saved, Source};
use super::error::{PartError, PartErrorKind as K};
use super::params::Create;
use super::table::{Entry, Media, Scheme, SchemeData, Table};
use super::types::{Guid, Kind};
use super::{bsd, ebr, mbr};

/// Least slots that a GPT is made with; one of fewer gets space for so many.
const GPT_SLOTS: u32 = 128;

/// Parts taken from a backup in addition to the partitions themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Labels, where the scheme has them.
    pub labels: bool,
    /// Unique ids of the disk and of the partitions.
    pub ids: bool,
}

fn bad(kind: K, at: String) -> PartError {
    PartError::new(kind, OP, at)
}

impl Source {
    /// The scheme.
    ///
    /// # Errors
    /// `BadValue` for one that is not known.
    pub fn scheme(&self) -> Result<Scheme, PartError> {
        let name = &self.backup.scheme;
        Scheme::by_name(name)
            .ok_or_else(|| bad(K::BadValue, format!("{}, scheme {name:?}", self.head())))
    }

    /// Blocks of chance that [`Source::table`] wants: one for the disk, one a partition.
    pub fn random_blocks(&self) -> usize {
        self.backup.partitions.len().saturating_add(1)
    }

    /// The table on `media`. `random` become unique ids; missing ones are zero.
    ///
    /// # Errors
    /// `BadMedia`, `BadValue`, `BadType`, `BadLabel`, `BadAttribute`, `IndexTaken`, `Overlap`,
    /// `OutOfRange`, each naming the line and the field.
    pub fn table(
        &self,
        media: Media,
        take: RestoreOptions,
        random: &[[u8; 16]],
    ) -> Result<Table, PartError> {
        let mut table = self.empty(media, take, random.first().copied().unwrap_or_default())?;
        for (at, saved) in self.backup.partitions.iter().enumerate() {
            let chance = random.get(at.saturating_add(1)).copied().unwrap_or_default();
            let entry = self.entry(&table, at, saved, take, chance)?;
            table.entries.push(entry);
        }
        table.entries.sort_unstable_by_key(|entry| entry.index);
        let sound = table.check();
        sound.map_err(|why| bad(K::OutOfRange, format!("{}, {why}", self.head())))?;
        Ok(table)
    }

    /// The table without its partitions, with space for them.
    fn empty(
        &self,
        media: Media,
        take: RestoreOptions,
        random: [u8; 16],
    ) -> Result<Table, PartError> {
        let backup = &self.backup;
        let scheme = self.scheme()?;
        let head = |what: String| bad(K::BadValue, format!("{}, {what}", self.head()));
        if backup.sector_bytes.is_some_and(|size| size != media.sector_size) {
            let size = backup.sector_bytes.unwrap_or(0);
            let what =
                format!("sector_bytes {size}: the disk has sectors of {}", media.sector_size);
            return Err(head(what));
        }
        let slots = backup.entries;
        let entries = match scheme {
            Scheme::Gpt => slots.map(|n| n.max(GPT_SLOTS)),
            Scheme::Bsd => slots.map(|n| n.max(bsd::SLOTS_MIN)),
            Scheme::Mbr | Scheme::Ebr => None,
        };
        let wrong = slots == Some(0) || (scheme == Scheme::Mbr && slots.is_some_and(|n| n != 4));
        let random = match (take.ids, &backup.id) {
            (true, Some(_)) if scheme == Scheme::Mbr => backup.serial().ok_or_else(|| {
                head(format!("id {:?}: 0x and eight digits", backup.id.as_deref().unwrap_or("")))
            })?,
            _ => random,
        };
        if wrong {
            return Err(head(format!("number of entries {}", slots.unwrap_or(0))));
        }
        let created = Table::create(media, &Create { scheme, entries }, random);
        let mut table = created.map_err(|e| bad(e.kind, format!("{}, {}", self.head(), e.at)))?;
        self.range(&mut table);
        if let SchemeData::Gpt(gpt) = &mut table.scheme_data {
            table.capacity = slots.unwrap_or(table.capacity).min(table.capacity);
            if let (true, Some(id)) = (take.ids, &backup.id) {
                gpt.disk_guid = Guid::parse(id).ok_or_else(|| head(format!("id {id:?}")))?;
            }
            for name in &backup.attributes {
                if !gpt.set_pmbr_attribute(&name.to_ascii_lowercase(), true) {
                    let at = format!("{}, attributes {name:?}", self.head());
                    return Err(bad(K::BadAttribute, at));
                }
            }
        }
        Ok(table)
    }

    /// The usable range: as it was on a disk of the same size; else wide enough for the
    /// partitions, as far as the scheme can.
    fn range(&self, table: &mut Table) {
        let backup = &self.backup;
        let lowest = backup.partitions.iter().map(|p| p.start).min();
        let ends = backup.partitions.iter().map(|p| p.start.saturating_add(p.count));
        let highest = ends.max().map(|end| end.saturating_sub(1));
        match &table.scheme_data {
            SchemeData::Gpt(gpt) => {
                let sectors =
                    super::gpt::table_sectors(&table.media, table.capacity, gpt.entry_size);
                let lead = gpt.table_at.saturating_add(sectors);
                let end = table.media.sectors.saturating_sub(2).saturating_sub(sectors);
                let same = backup.sectors == Some(table.media.sectors);
                let (first, last) = (backup.first.filter(|_| same), backup.last.filter(|_| same));
                let low = lowest.map_or(table.first, |low| low.min(table.first));
                let high = highest.map_or(table.last, |high| high.max(table.last));
                table.first = first.unwrap_or(low).max(lead);
                table.last = last.unwrap_or(high).min(end);
            }
            SchemeData::Mbr(_) => table.first = mbr::first(lowest),
            SchemeData::Bsd(_) => table.first = bsd::first(&table.media, lowest),
            SchemeData::Ebr(_) => {}
        }
    }

    fn entry(
        &self,
        table: &Table,
        at: usize,
        saved: &Saved,
        take: RestoreOptions,
        random: [u8; 16],
    ) -> Result<Entry, PartError> {
        let scheme = table.scheme();
        let place = self.place(at);
        let no = |kind, what: String| bad(kind, format!("{place}, {what}"));
        let kind = Kind::parse(scheme, &saved.kind, OP).map_err(|e| no(e.kind, e.at))?;
        table.one_extended(kind, None, OP).map_err(|e| no(e.kind, e.at))?;
        let index = self.index(table, at, saved)?;
        let (start, count) = (saved.start, saved.count);
        let end = count.checked_sub(1).and_then(|n| start.checked_add(n));
        let end = end.ok_or_else(|| no(K::BadValue, format!("size {count}")))?;
        if start < table.first || start > table.last {
            let what = format!("start {start}: the disk has {} to {}", table.first, table.last);
            return Err(no(K::OutOfRange, what));
        }
        if end > table.last {
            let what = format!(
                "size {count}: it would end at {end}, and {} is the last sector",
                table.last
            );
            return Err(no(K::OutOfRange, what));
        }
        let over = |other: &Entry| start <= other.end && other.start <= end;
        if let Some(other) = table.entries.iter().position(over) {
            let other = self.place(other);
            return Err(no(K::Overlap, format!("start {start}, size {count}: as {other}")));
        }
        let usual = start.saturating_add(table.lead(None));
        let data = saved.data.unwrap_or(usual);
        let fits = start <= data && data <= end && (scheme == Scheme::Ebr || data == start);
        if !fits {
            return Err(no(K::BadValue, format!("data {data}: between start and end")));
        }
        let label = if take.labels && scheme == Scheme::Gpt { saved.label.as_str() } else { "" };
        let name = table.encode_label(label, OP).map_err(|e| no(e.kind, e.at))?;
        let mut attributes = 0;
        for word in &saved.attributes {
            let bit = bit_of(scheme, kind, word);
            attributes |= bit.ok_or_else(|| no(K::BadAttribute, format!("attribute {word:?}")))?;
        }
        let guid = match (scheme, take.ids, &saved.uuid) {
            (Scheme::Gpt, true, Some(id)) => {
                Guid::parse(id).ok_or_else(|| no(K::BadValue, format!("uuid {id:?}")))?
            }
            (Scheme::Gpt, true, None) => {
                return Err(no(K::BadValue, "the uuid is missing: text has none".to_owned()));
            }
            (Scheme::Gpt, false, _) => Guid::random(random),
            (Scheme::Mbr | Scheme::Ebr | Scheme::Bsd, ..) => Guid::ZERO,
        };
        Ok(Entry { index, start, end, data, kind, guid, attributes, name, tail: Vec::new() })
    }

    fn index(&self, table: &Table, at: usize, saved: &Saved) -> Result<u32, PartError> {
        let index = saved.index;
        let no = |kind, what: String| bad(kind, format!("{}, index {index}{what}", self.place(at)));
        if table.entries.len() >= table.capacity as usize {
            return Err(no(K::TableFull, format!(": {} slots", table.capacity)));
        }
        if table.scheme() == Scheme::Ebr {
            // The place decides it.
            return Ok(ebr::index_at(saved.start, &table.entries));
        }
        let is_raw = table.scheme() == Scheme::Bsd && index == bsd::WHOLE;
        if index == 0 || index > table.capacity || is_raw {
            return Err(no(K::BadValue, format!(" of {}", table.capacity)));
        }
        match table.entries.iter().position(|entry| entry.index == index) {
            Some(other) => Err(no(K::IndexTaken, format!(", as {}", self.place(other)))),
            None => Ok(index),
        }
    }
}

impl Backup {
    /// The serial number of an MBR as its bytes.
    fn serial(&self) -> Option<[u8; 16]> {
        let digits = self.id.as_deref()?.strip_prefix("0x")?;
        let serial = u32::from_str_radix(digits, 16).ok()?;
        let mut out = [0; 16];
        crate::probe::put(&mut out, 0, &serial.to_le_bytes());
        Some(out)
    }
}

/// The bit that an attribute's name means.
fn bit_of(scheme: Scheme, kind: Kind, word: &str) -> Option<u64> {
    let known = bits_of(kind).iter().find(|bit| bit.name.eq_ignore_ascii_case(word));
    let bit = match known {
        Some(known) => known.bit,
        None if scheme == Scheme::Gpt => word.strip_prefix("bit")?.parse().ok()?,
        None => return None,
    };
    1_u64.checked_shl(bit)
}

/// The tables, each with one partition more, by which a chain of logical partitions is written:
/// it changes by one at a time (E2). Other tables are written as a whole.
pub(super) fn steps(table: Table) -> Vec<Table> {
    if table.scheme() != Scheme::Ebr {
        return vec![table];
    }
    let mut all = vec![Table { entries: Vec::new(), ..table.clone() }];
    let mut sorted = table.entries.clone();
    sorted.sort_unstable_by_key(|entry| entry.start);
    for upto in 1..=sorted.len() {
        let mut entries: Vec<Entry> = sorted.iter().take(upto).cloned().collect();
        entries.sort_unstable_by_key(|entry| entry.index);
        all.push(Table { entries, ..table.clone() });
    }
    all
}
