//! A partition table as a value, and the edits that make a new value of it.
//!
//! Invariants
//!  T1  Entries never overlap, lie within `first ..= last`, and have distinct indexes; they are
//!      kept in index order. A table of which this does not hold is never made.
//!  T2  A damaged table admits only `recover` and `destroy`.
//!  T3  An edit changes only the parts that it names: names, attributes, unique ids, boot code and
//!      entries of unknown type are kept.

use super::bsd::BsdData;
use super::ebr::EbrData;
use super::error::{PartError, PartErrorKind};
use super::gpt::GptData;
use super::mbr::MbrData;
use super::types::{Guid, Kind};
use crate::probe::{Allowed, ProbeError, Reason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kinds of partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// GUID partition table (UEFI 2.10 chapter 5).
    Gpt,
    /// Master boot record, four primary partitions.
    Mbr,
    /// The chain of logical partitions inside an MBR partition of type `ebr`.
    Ebr,
    /// BSD disklabel.
    Bsd,
}

impl Scheme {
    /// The name in upper case, as `show` prints it and as `PART::scheme` answers.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Gpt => "GPT",
            Scheme::Mbr => "MBR",
            Scheme::Ebr => "EBR",
            Scheme::Bsd => "BSD",
        }
    }

    /// The scheme of that name, in upper or lower case.
    pub fn by_name(name: &str) -> Option<Scheme> {
        let all = [Scheme::Gpt, Scheme::Mbr, Scheme::Ebr, Scheme::Bsd];
        all.into_iter().find(|scheme| scheme.name().eq_ignore_ascii_case(name))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Media {
    pub sectors: u64,
    pub sector_size: u32,
    /// Preferred alignment in bytes; 0 when not known.
    pub stripe_size: u64,
    /// Bytes from a stripe boundary to the start of the media.
    pub stripe_offset: u64,
}

impl Media {
    /// Media without a known stripe.
    pub fn plain(sectors: u64, sector_size: u32) -> Self {
        Self { sectors, sector_size, stripe_size: 0, stripe_offset: 0 }
    }

    /// Byte offset of a sector; saturates, and such an offset is beyond every media.
    pub(crate) fn offset(&self, sector: u64) -> u64 {
        sector.saturating_mul(u64::from(self.sector_size))
    }
}

/// Something wrong with a table that can be used all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// GPT: the header in sector 1.
    PrimaryHeader(Health),
    /// GPT: the table that the primary header points to.
    PrimaryTable(Health),
    /// GPT: the backup header.
    SecondaryHeader(Health),
    /// GPT: the table that the backup header points to.
    SecondaryTable(Health),
    /// GPT: both copies are whole, and differ; the primary one counts.
    CopiesDisagree,
    /// GPT: the backup is whole but not in the last sector, as on a disk that has grown.
    BackupNotLast {
        /// Where it is.
        at: u64,
    },
    /// GPT: the table was written when the disk had more sectors.
    Shrunk {
        /// So many.
        was: u64,
    },
    /// GPT: a partition has sectors of the headers or of the entries.
    TableCovered,
    /// A partition overlaps another or leaves the media, and checking was switched off.
    Integrity,
    /// EBR: the chain returns to a record at this sector.
    ChainLoop(u64),
    /// EBR: the chain points to this sector, which holds no record or is outside.
    ChainBroken(u64),
    /// EBR: the third or fourth entry of the record at this sector is not empty.
    ChainReserved(u64),
}

/// State of one element of a GPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// No signature, or not readable.
    Missing,
    /// The checksum does not match.
    Corrupt,
    /// The checksum matches, but the values cannot be right.
    Invalid,
    /// In order.
    Good,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |health: Health| match health {
            Health::Missing => "is missing",
            Health::Corrupt => "is corrupt (checksum)",
            Health::Invalid => "holds impossible values",
            Health::Good => "is good",
        };
        match *self {
            Damage::PrimaryHeader(health) => write!(f, "primary header {}", word(health)),
            Damage::PrimaryTable(health) => write!(f, "primary table {}", word(health)),
            Damage::SecondaryHeader(health) => write!(f, "backup header {}", word(health)),
            Damage::SecondaryTable(health) => write!(f, "backup table {}", word(health)),
            Damage::CopiesDisagree => f.write_str("the two copies differ; the primary counts"),
            Damage::BackupNotLast { at } => {
                write!(f, "moved: the backup is in sector {at}, not in the last one")
            }
            Damage::Shrunk { was } => {
                write!(f, "the disk had {was} sectors and has fewer now: partitions are read-only")
            }
            Damage::TableCovered => f.write_str("a partition covers sectors of the table itself"),
            Damage::Integrity => f.write_str("partitions overlap or leave the media"),
            Damage::ChainLoop(at) => write!(f, "the chain loops back to sector {at}"),
            Damage::ChainBroken(at) => write!(f, "the chain ends without a record at sector {at}"),
            Damage::ChainReserved(at) => write!(f, "reserved entries used in sector {at}"),
        }
    }
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Index: GPT and MBR from 1; EBR a number made of the place of its record.
    pub index: u32,
    /// First sector that belongs to it (EBR: the record).
    pub start: u64,
    /// Last sector, inclusive.
    pub end: u64,
    /// First sector of the data: `start`, but for EBR.
    pub data: u64,
    /// Its purpose.
    pub kind: Kind,
    /// Unique id (GPT), else zero.
    pub guid: Guid,
    /// GPT: the 64 attribute bits. MBR, EBR: bit 7 is the active flag.
    pub attributes: u64,
    /// GPT: the name in UTF-16 units, without trailing zeros. Else empty.
    pub name: Vec<u16>,
    /// GPT: bytes of the entry behind the 128 that are defined, kept as they are.
    pub tail: Vec<u8>,
}

impl Entry {
    /// Sectors that a user of the partition sees.
    pub fn data_sectors(&self) -> u64 {
        self.end.saturating_sub(self.data).saturating_add(1)
    }

    /// The name as text, with a replacement character for invalid UTF-16. Empty if none.
    pub fn label(&self) -> String {
        String::from_utf16_lossy(&self.name)
    }

    pub fn attribute_names(&self) -> Vec<&'static str> {
        let bits = super::attributes::bits_of(self.kind);
        bits.iter().filter(|bit| self.attributes >> bit.bit & 1 != 0).map(|bit| bit.name).collect()
    }
}

/// What only one scheme has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemeData {
    Gpt(GptData),
    Mbr(MbrData),
    Ebr(EbrData),
    Bsd(BsdData),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub(crate) media: Media,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) entries: Vec<Entry>,
    pub(crate) capacity: u32,
    pub(crate) damage: Vec<Damage>,
    pub(crate) scheme_data: SchemeData,
}

impl Table {
    pub fn scheme(&self) -> Scheme {
        match self.scheme_data {
            SchemeData::Gpt(_) => Scheme::Gpt,
            SchemeData::Mbr(_) => Scheme::Mbr,
            SchemeData::Ebr(_) => Scheme::Ebr,
            SchemeData::Bsd(_) => Scheme::Bsd,
        }
    }

    pub fn media(&self) -> &Media {
        &self.media
    }

    /// With the provider's preferred alignment and its distance from a boundary, in bytes. Neither
    /// is recorded in a table on the media.
    #[must_use]
    pub fn with_stripe(mut self, size: u64, offset: u64) -> Table {
        (self.media.stripe_size, self.media.stripe_offset) = (size, offset);
        self
    }

    /// First usable sector.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Last usable sector, inclusive.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The partitions in index order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The partition of that index.
    pub fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.index == index)
    }

    /// How many entries the table can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The damage found; empty if there is none.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// True when the table must be recovered before it can be edited.
    pub fn is_corrupt(&self) -> bool {
        !self.damage.is_empty()
    }

    /// True when it was written for a disk with more sectors: its partitions are read only.
    pub fn is_of_larger_disk(&self) -> bool {
        self.damage.iter().any(|damage| matches!(damage, Damage::Shrunk { .. }))
    }

    /// Unique id of the disk (GPT).
    pub fn disk_guid(&self) -> Option<Guid> {
        match &self.scheme_data {
            SchemeData::Gpt(gpt) => Some(gpt.disk_guid),
            SchemeData::Mbr(_) | SchemeData::Ebr(_) | SchemeData::Bsd(_) => None,
        }
    }

    /// Serial number of the disk (MBR).
    pub fn disk_serial(&self) -> Option<u32> {
        match &self.scheme_data {
            SchemeData::Mbr(mbr) => Some(mbr.serial()),
            SchemeData::Gpt(_) | SchemeData::Ebr(_) | SchemeData::Bsd(_) => None,
        }
    }

    pub fn attribute_names(&self) -> Vec<&'static str> {
        match &self.scheme_data {
            SchemeData::Gpt(gpt) => gpt.pmbr_attributes(),
            SchemeData::Mbr(_) | SchemeData::Ebr(_) | SchemeData::Bsd(_) => Vec::new(),
        }
    }

    /// Suffix that turns the disk's name into the name of the partition's provider: `p1`, `s1`,
    /// `+00000001`.
    pub fn suffix(&self, entry: &Entry) -> String {
        match self.scheme() {
            Scheme::Gpt if entry.kind.alias() == Some("freebsd") => format!("s{}", entry.index),
            Scheme::Gpt => format!("p{}", entry.index),
            Scheme::Mbr => format!("s{}", entry.index),
            Scheme::Ebr => format!("+{:08}", entry.index),
            // 1 is a; there are at most 20.
            Scheme::Bsd => {
                let letters = (1..=entry.index).zip('a'..='t');
                letters.last().map(|(_, letter)| letter.to_string()).unwrap_or_default()
            }
        }
    }

    /// EBR: the number by which others know the partition: 5 for the first in the chain, and
    /// so on. `None` for other schemes.
    pub fn logical_number(&self, entry: &Entry) -> Option<u32> {
        let SchemeData::Ebr(ebr) = &self.scheme_data else {
            return None;
        };
        let chain = super::ebr::chain(ebr, &self.entries);
        let holds = |at: &u64| self.entries.iter().any(|entry| entry.start == *at);
        let place = chain.iter().filter(|at| holds(at)).position(|at| *at == entry.start)?;
        u32::try_from(place).ok()?.checked_add(5)
    }

    /// T1, for a table just read: why it cannot be accepted.
    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        let no = |at: u64, field, value, low, high| {
            let why = ProbeError::new(Reason::Integrity, self.media.offset(at), field);
            why.with(value, Allowed::Range(low, high))
        };
        let end = self.media.sectors.saturating_sub(1);
        if self.last < self.first || self.last > end {
            return Err(no(self.last, "last usable sector", self.last, self.first, end));
        }
        let mut sorted: Vec<&Entry> = self.entries.iter().collect();
        sorted.sort_unstable_by_key(|entry| entry.start);
        let mut free_from = self.first;
        for entry in sorted {
            let sound = entry.start <= entry.data && entry.data <= entry.end;
            let at = entry.start;
            if at < free_from || at > self.last {
                return Err(no(at, "first sector of a partition", at, free_from, self.last));
            }
            if !sound || entry.end > self.last {
                return Err(no(at, "last sector of a partition", entry.end, at, self.last));
            }
            free_from = entry.end.saturating_add(1);
        }
        Ok(())
    }

    pub(crate) fn editable(&self, op: &'static str) -> Result<(), PartError> {
        if let Some(damage) = self.damage.first() {
            return Err(PartError::new(PartErrorKind::Corrupt, op, damage.to_string()));
        }
        Ok(())
    }
}
