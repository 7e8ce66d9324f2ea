//! Edits of a table: each takes a table and returns a new one, or the reason for a refusal.

use super::error::{PartError, PartErrorKind as K};
use super::params::{Add, Create, Modify, Resize};
use super::space::{self, Alignment, Gap, SpaceRequest};
use super::table::{Entry, Media, Scheme, SchemeData, Table};
use super::types::{EBR_TYPES, Guid, Kind};
use super::{bsd, ebr, gpt, mbr};
use std::collections::BTreeSet;

impl Table {
    /// An empty table on media that holds none. `random` becomes its unique id.
    ///
    /// # Errors
    /// `BadMedia` when too small or with a sector size not supported; `BadValue` for a number
    /// of entries that the scheme cannot have.
    pub fn create(media: Media, spec: &Create, random: [u8; 16]) -> Result<Table, PartError> {
        if spec.entries.is_some() && !matches!(spec.scheme, Scheme::Gpt | Scheme::Bsd) {
            let at = format!("number of entries of {}", spec.scheme.name());
            return Err(PartError::new(K::BadValue, "create", at));
        }
        match spec.scheme {
            Scheme::Gpt => gpt::create(media, spec.entries, random),
            Scheme::Mbr => mbr::create(media, random),
            Scheme::Ebr => ebr::create(media),
            Scheme::Bsd => bsd::create(media, spec.entries),
        }
    }

    /// A new partition; answers the new table and the index. `random` becomes its unique id.
    ///
    /// # Errors
    /// `Corrupt`, `BadType`, `BadLabel`, `BadValue`, `IndexTaken`, `TableFull`, `NoSpace`,
    /// `Overlap`, `OutOfRange`.
    pub fn add(&self, spec: &Add, random: [u8; 16]) -> Result<(Table, u32), PartError> {
        const OP: &str = "add";
        self.editable(OP)?;
        let kind = Kind::parse(self.scheme(), &spec.kind, OP)?;
        let name = self.encode_label(spec.label.as_deref().unwrap_or(""), OP)?;
        self.one_extended(kind, None, OP)?;
        let place = self.place(spec)?;
        let lead = self.lead(spec.align.as_ref().map(|a| self.sectors(a, OP)).transpose()?);
        let data = place.start.saturating_add(lead);
        if data > place.end {
            return Err(PartError::new(K::NoSpace, OP, "a logical partition needs two tracks"));
        }
        let index = self.free_index(spec.index, place.start)?;
        let guid = match kind {
            Kind::Guid(_) => Guid::random(random),
            Kind::Byte(_) | Kind::Bsd(_) => Guid::ZERO,
        };
        let tail = match &self.scheme_data {
            SchemeData::Gpt(gpt) => vec![0; gpt.tail_len()],
            SchemeData::Mbr(_) | SchemeData::Ebr(_) | SchemeData::Bsd(_) => Vec::new(),
        };
        let (start, end) = (place.start, place.end);
        let entry = Entry { index, start, end, data, kind, guid, attributes: 0, name, tail };
        let mut table = self.clone();
        table.entries.push(entry);
        table.entries.sort_unstable_by_key(|entry| entry.index);
        Ok((table, index))
    }

    /// Without one partition. `open` holds the indexes that are in use.
    ///
    /// # Errors
    /// `Corrupt`, `NoSuchIndex`, `Busy`.
    pub fn delete(&self, index: u32, open: &BTreeSet<u32>) -> Result<Table, PartError> {
        const OP: &str = "delete";
        self.editable(OP)?;
        self.find(index, OP)?;
        if open.contains(&index) {
            return Err(PartError::new(K::Busy, OP, format!("index {index}")));
        }
        let mut table = self.clone();
        table.entries.retain(|entry| entry.index != index);
        Ok(table)
    }

    /// With another type or name of one partition; an open one may be changed.
    ///
    /// # Errors
    /// `Corrupt`, `NoSuchIndex`, `BadType`, `BadLabel`, `BadValue` when nothing is set.
    pub fn modify(&self, spec: &Modify) -> Result<Table, PartError> {
        const OP: &str = "modify";
        self.editable(OP)?;
        let old = self.find(spec.index, OP)?.clone();
        if spec.kind.is_none() && spec.label.is_none() {
            return Err(PartError::new(K::BadValue, OP, "neither a type nor a label is given"));
        }
        let mut new = old;
        if let Some(kind) = &spec.kind {
            new.kind = Kind::parse(self.scheme(), kind, OP)?;
            self.one_extended(new.kind, Some(spec.index), OP)?;
        }
        if let Some(label) = &spec.label {
            new.name = self.encode_label(label, OP)?;
        }
        Ok(self.replaced(new))
    }

    /// With another size of one partition. An open one may grow, not shrink.
    ///
    /// # Errors
    /// `Corrupt`, `NoSuchIndex`, `BadValue`, `Busy`, `NoSpace`.
    pub fn resize(&self, spec: &Resize, open: &BTreeSet<u32>) -> Result<Table, PartError> {
        const OP: &str = "resize";
        self.editable(OP)?;
        let old = self.find(spec.index, OP)?;
        let given = spec.align.as_ref().map(|align| self.sectors(align, OP)).transpose()?;
        let align = match given {
            Some(sectors) => Alignment::of(&self.media, sectors),
            None => Alignment::stripe(&self.media),
        };
        let size = spec.size.as_ref().map(|size| self.sectors(size, OP)).transpose()?;
        let size = size.map(|size| match given {
            Some(_) => size - size % align.sectors,
            None => size,
        });
        // A logical partition's own size is meant, not the record in front of it.
        let lead = old.data - old.start;
        let size = size.map(|size| if size == 0 { 0 } else { size.saturating_add(lead) });
        let free = space::gaps(self, Some(old.index));
        let wish = SpaceRequest { start: Some(old.start), size, align, strict: false };
        let wanted = || size.map_or("all free".to_owned(), |n: u64| n.to_string());
        let at = || format!("index {} to {} sectors", old.index, wanted());
        let place = space::fit(&free, wish).ok_or_else(|| PartError::new(K::NoSpace, OP, at()))?;
        if place.end < old.data {
            return Err(PartError::new(K::BadValue, OP, at()));
        }
        if place.end < old.end && open.contains(&old.index) {
            return Err(PartError::new(K::Busy, OP, format!("shrinking index {}", old.index)));
        }
        Ok(self.replaced(Entry { end: place.end, ..old.clone() }))
    }

    /// The table as it will be when both copies are written anew where they belong. Answers the
    /// same table when nothing is wrong.
    ///
    /// # Errors
    /// `OutOfRange` when the partitions themselves overlap or leave the media: no copy of such
    /// a table is worth writing.
    pub fn recover(&self) -> Result<Table, PartError> {
        if !self.is_corrupt() {
            return Ok(self.clone());
        }
        let mut table = self.clone();
        table.damage.clear();
        if matches!(table.scheme_data, SchemeData::Gpt(_)) {
            gpt::settle(&mut table, "recover")?;
        }
        let sound = table.check();
        sound.map_err(|why| PartError::new(K::OutOfRange, "recover", why.to_string()))?;
        Ok(table)
    }

    /// The same partitions on media that has grown or shrunk to `sectors`.
    ///
    /// # Errors
    /// `Corrupt`, or `OutOfRange` when a partition would be cut.
    pub fn media_resized(&self, sectors: u64) -> Result<Table, PartError> {
        const OP: &str = "resize of the disk";
        self.editable(OP)?;
        let mut table = self.clone();
        table.media.sectors = sectors;
        match table.scheme_data {
            SchemeData::Gpt(_) => gpt::settle(&mut table, OP)?,
            SchemeData::Mbr(_) | SchemeData::Ebr(_) | SchemeData::Bsd(_) => {
                table.last = mbr::last_usable(sectors)
            }
        }
        let sound = table.check();
        sound.map_err(|why| PartError::new(K::OutOfRange, OP, why.to_string()))?;
        Ok(table)
    }

    /// May the table be destroyed, with the partitions in it?
    ///
    /// # Errors
    /// `Busy`: a partition is open.
    pub fn may_destroy(&self, open: &BTreeSet<u32>) -> Result<(), PartError> {
        match self.entries.iter().find(|entry| open.contains(&entry.index)) {
            Some(busy) => Err(PartError::new(K::Busy, "destroy", format!("index {}", busy.index))),
            None => Ok(()),
        }
    }

    fn find(&self, index: u32, op: &'static str) -> Result<&Entry, PartError> {
        let missing = || PartError::new(K::NoSuchIndex, op, format!("index {index}"));
        self.entry(index).ok_or_else(missing)
    }

    fn replaced(&self, new: Entry) -> Table {
        let mut table = self.clone();
        for entry in &mut table.entries {
            if entry.index == new.index {
                *entry = new.clone();
            }
        }
        table
    }

    fn sectors(&self, amount: &super::params::Amount, op: &'static str) -> Result<u64, PartError> {
        amount.sectors(self.media.sector_size, op)
    }

    /// Only one partition of an MBR may be the extended one.
    pub(super) fn one_extended(
        &self,
        kind: Kind,
        but: Option<u32>,
        op: &'static str,
    ) -> Result<(), PartError> {
        let extended = |kind| matches!(kind, Kind::Byte(byte) if EBR_TYPES.contains(&byte));
        let other = self.entries.iter().find(|e| extended(e.kind) && Some(e.index) != but);
        match other {
            Some(other) if extended(kind) => {
                let at = format!("second extended partition beside index {}", other.index);
                Err(PartError::new(K::BadType, op, at))
            }
            _ => Ok(()),
        }
    }

    /// Sectors between a logical partition's record and its data: one track, or the alignment
    /// requested if that is more.
    pub(super) fn lead(&self, align: Option<u64>) -> u64 {
        match self.scheme() {
            Scheme::Ebr => ebr::lead(align.unwrap_or(1)),
            Scheme::Gpt | Scheme::Mbr | Scheme::Bsd => 0,
        }
    }

    fn place(&self, spec: &Add) -> Result<Gap, PartError> {
        const OP: &str = "add";
        let convert = |a: &Option<_>| a.as_ref().map(|a| self.sectors(a, OP)).transpose();
        let (given, start, size) =
            (convert(&spec.align)?, convert(&spec.start)?, convert(&spec.size)?);
        if given == Some(0) || size == Some(0) {
            return Err(PartError::new(K::BadValue, OP, "an amount of 0 sectors"));
        }
        let align = match given {
            Some(sectors) => Alignment::of(&self.media, sectors),
            None => Alignment::stripe(&self.media),
        };
        let lead = self.lead(given);
        // The requested size of a logical partition does not include its record. The lead is itself
        // a multiple of a given alignment, so the sum stays aligned.
        let size = size.map(|size| match given {
            Some(_) => size - size % align.sectors,
            None => size,
        });
        let size = size.map(|size| if size == 0 { 0 } else { size.saturating_add(lead) });
        let wish = SpaceRequest { start, size, align, strict: given.is_some() };
        let free = space::gaps(self, None);
        if let Some(place) = space::fit(&free, wish) {
            return Ok(place);
        }
        let at = format!("{} sectors", size.map_or("any".to_owned(), |size| size.to_string()));
        let Some(start) = start else {
            return Err(PartError::new(K::NoSpace, OP, at));
        };
        let inside = (self.first..=self.last).contains(&start);
        let end = start.saturating_add(size.unwrap_or(1)).saturating_sub(1);
        let kind = match inside && end <= self.last {
            true if self.entries.iter().any(|e| start <= e.end && e.start <= end) => K::Overlap,
            true => K::NoSpace,
            false => K::OutOfRange,
        };
        Err(PartError::new(kind, OP, format!("sectors {start} to {end}")))
    }

    fn free_index(&self, wanted: Option<u32>, start: u64) -> Result<u32, PartError> {
        const OP: &str = "add";
        let is_raw = |index: u32| self.scheme() == Scheme::Bsd && index == bsd::WHOLE;
        let taken = |index: &u32| is_raw(*index) || self.entry(*index).is_some();
        let full = || PartError::new(K::TableFull, OP, format!("{} entries", self.capacity));
        if self.entries.len() >= self.capacity as usize {
            return Err(full());
        }
        if self.scheme() == Scheme::Ebr {
            // The place decides the index.
            let index = ebr::index_at(start, &self.entries);
            return match wanted {
                Some(wanted) if wanted != index => {
                    Err(PartError::new(K::BadValue, OP, format!("index {wanted}, not {index}")))
                }
                _ => Ok(index),
            };
        }
        match wanted {
            Some(index) if index == 0 || index > self.capacity => {
                let at = format!("index {index} of {}", self.capacity);
                Err(PartError::new(K::BadValue, OP, at))
            }
            Some(index) if taken(&index) => {
                Err(PartError::new(K::IndexTaken, OP, format!("index {index}")))
            }
            Some(index) => Ok(index),
            None => (1..=self.capacity).find(|index| !taken(index)).ok_or_else(full),
        }
    }

    pub(super) fn encode_label(
        &self,
        label: &str,
        op: &'static str,
    ) -> Result<Vec<u16>, PartError> {
        let units: Vec<u16> = label.encode_utf16().collect();
        let limit = if self.scheme() == Scheme::Gpt { gpt::NAME_UNITS } else { 0 };
        if units.len() > limit || units.contains(&0) {
            let at = format!("label {label:?}: at most {limit} UTF-16 units");
            return Err(PartError::new(K::BadLabel, op, at));
        }
        Ok(units)
    }
}
