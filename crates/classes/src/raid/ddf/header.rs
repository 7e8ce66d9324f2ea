//! The header: anchor in the last sector, primary and secondary at its places.
//!
//! ```text
//! 0 4 de11de11 | 4 4 CRC | 8 24 GUID | 32 8 revision | 40 4 sequence | 44 4 time | 48 1 open
//! 49 1 foreign | 50 1 grouping | 96 8 primary | 104 8 secondary | 112 1 type | 116 4 workspace
//! length | 120 8 workspace | 128 2 disks | 130 2 volumes | 132 2 partitions | 134 2 record
//! sectors | 136 2 elements | 192 8 x (4 offset, 4 length) sections
//! ```

use super::codec::{Block, Order};
use crate::probe::{Reason, array};
use crate::raid::Fault;

/// First word of every header.
pub const SIGNATURE: u32 = 0xde11_de11;

/// Whether a header begins here, in either byte order.
pub(crate) fn is_signature(bytes: &[u8]) -> bool {
    [SIGNATURE.to_be_bytes(), SIGNATURE.to_le_bytes()].iter().any(|word| bytes.starts_with(word))
}
/// Bytes of a header; the rest of its sector is not used.
pub(super) const HEADER: usize = 512;
/// "There is none", as a place or a number.
pub(super) const NONE: u64 = u64::MAX;
/// Sectors of one section; a longer one is refused.
pub const SECTION_SECTORS_MAX: u32 = 7000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Copy {
    /// Contains the places of the others.
    Anchor,
    /// The first copy.
    Primary,
    /// The second.
    Secondary,
}

/// Number of entries of each kind that fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub disks: u16,
    pub volumes: u16,
    /// Configuration records on a disk, besides one for a spare.
    pub partitions: u16,
    pub record_sectors: u16,
    /// Disks of a basic volume.
    pub elements: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self { disks: 255, volumes: 63, partitions: 16, record_sectors: 3, elements: 64 }
    }
}

/// A section's place: sectors from the header, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Sectors from the header.
    pub offset: u32,
    /// Sectors.
    pub length: u32,
}

/// Sections in the order of the header.
pub(super) const CONTROLLER: usize = 0;
pub(super) const DISKS: usize = 1;
pub(super) const VOLUMES: usize = 2;
pub(super) const CONFIGS: usize = 3;
pub(super) const DATA: usize = 4;
pub(super) const BAD: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Byte order of everything.
    pub order: Order,
    /// The identity of the set.
    pub guid: [u8; 24],
    pub revision: [u8; 8],
    /// Counts up with each write.
    pub sequence: u32,
    /// Seconds since 1980.
    pub time: u32,
    /// Whether a write was under way.
    pub open: bool,
    pub primary: u64,
    /// Sector of the secondary header; all ones: there is none.
    pub secondary: u64,
    /// Sectors of the workspace, and where it starts.
    pub workspace: (u32, u64),
    /// Number of entries that fit.
    pub limits: Limits,
    /// The sections: controller, disks, volumes, configurations, disk data, bad blocks,
    /// diagnostics, vendor logs.
    pub sections: [Section; 8],
    /// All 512 bytes as read, for fields without a meaning here.
    pub(super) base: Vec<u8>,
}

/// The byte order given by a header's first word, if it is one.
pub(super) fn order_of(sector: &[u8]) -> Option<Order> {
    match array::<4>(sector, 0) {
        Some(word) if word == SIGNATURE.to_be_bytes() => Some(Order::BIG),
        Some(word) if word == SIGNATURE.to_le_bytes() => Some(Order::LITTLE),
        _ => None,
    }
}

impl Header {
    /// Read a header of the kind wanted.
    pub(super) fn decode(sector: &[u8], copy: Copy) -> Result<Self, Fault> {
        let Some(mut order) = order_of(sector) else {
            return Err(Fault::new(Reason::Signature, "DDF header", "is not there"));
        };
        let Some(bytes) = sector.get(..HEADER) else {
            return Err(Fault::new(Reason::Media, "DDF header", "is longer than the sector"));
        };
        let mut block = Block::new(order, bytes);
        if !block.has_valid_crc() {
            order.plain = true;
            block.order = order;
        }
        if !block.has_valid_crc() {
            return Err(Fault::new(Reason::Checksum, "DDF header checksum", "does not match"));
        }
        if block.u8(112) != kind(copy) {
            return Err(Fault::value("DDF header type", format!("is {}", block.u8(112))));
        }
        let revision: [u8; 8] = block.array(32);
        if !revision.starts_with(b"01.") && !revision.starts_with(b"02.") {
            let text = String::from_utf8_lossy(&revision).into_owned();
            let what = format!("{text} is not known");
            let newer = revision.first_chunk::<2>() > Some(b"02");
            let reason = if newer { Reason::Newer } else { Reason::Value };
            return Err(Fault::new(reason, "DDF revision", what));
        }
        let sections = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| {
            let at = 192 + at * 8;
            Section { offset: block.u32(at), length: block.u32(at + 4) }
        });
        let header = Header {
            order,
            guid: block.array(8),
            revision,
            sequence: block.u32(40),
            time: block.u32(44),
            open: copy != Copy::Anchor && block.u8(48) & 0x0f != 0,
            primary: block.u64(96),
            secondary: block.u64(104),
            workspace: (block.u32(116), block.u64(120)),
            limits: Limits {
                disks: block.u16(128),
                volumes: block.u16(130),
                partitions: block.u16(132),
                record_sectors: block.u16(134),
                elements: block.u16(136),
            },
            sections,
            base: block.bytes,
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), Fault> {
        for section in self.sections.iter().take(BAD + 1) {
            if section.length > SECTION_SECTORS_MAX {
                let what = format!("is {} sectors", section.length);
                return Err(Fault::value("DDF section length", what));
            }
        }
        let needed = [CONTROLLER, DISKS, VOLUMES, CONFIGS, DATA];
        if needed.iter().any(|at| self.section(*at).length == 0) {
            return Err(Fault::value(
                "DDF section length",
                "is 0 for a section that must be there",
            ));
        }
        let limits = &self.limits;
        let bytes = usize::from(limits.record_sectors) * 512;
        if limits.elements == 0 || bytes < 512 + usize::from(limits.elements) * 12 {
            let what = format!("is {} for {} elements", limits.record_sectors, limits.elements);
            return Err(Fault::value("DDF record length", what));
        }
        Ok(())
    }

    pub(super) fn section(&self, at: usize) -> Section {
        self.sections.get(at).copied().unwrap_or(Section { offset: 0, length: 0 })
    }

    /// The header as one of its copies, 512 bytes.
    pub(super) fn encode(&self, copy: Copy) -> Vec<u8> {
        let mut block = Block::new(self.order, &self.base);
        block.bytes.resize(HEADER, 0xff);
        block.put32(0, SIGNATURE);
        block.put(8, &self.guid);
        block.put(32, &self.revision);
        let anchor = copy == Copy::Anchor;
        block.put32(40, if anchor { u32::MAX } else { self.sequence });
        block.put32(44, self.time);
        block.put8(48, if anchor { 0xff } else { u8::from(self.open) });
        block.put64(96, self.primary);
        block.put64(104, self.secondary);
        block.put8(112, kind(copy));
        block.put32(116, self.workspace.0);
        block.put64(120, self.workspace.1);
        let limits = &self.limits;
        let words = [
            limits.disks,
            limits.volumes,
            limits.partitions,
            limits.record_sectors,
            limits.elements,
        ];
        for (at, word) in words.into_iter().enumerate() {
            block.put16(128 + at * 2, word);
        }
        for (at, section) in self.sections.iter().enumerate() {
            block.put32(192 + at * 8, section.offset);
            block.put32(196 + at * 8, section.length);
        }
        block.with_crc()
    }

    /// Sector of a copy; `None` when there is none.
    pub(super) fn place(&self, copy: Copy) -> Option<u64> {
        let place = match copy {
            Copy::Primary => self.primary,
            Copy::Secondary => self.secondary,
            Copy::Anchor => NONE,
        };
        (place != NONE).then_some(place)
    }
}

fn kind(copy: Copy) -> u8 {
    match copy {
        Copy::Anchor => 0,
        Copy::Primary => 1,
        Copy::Secondary => 2,
    }
}
