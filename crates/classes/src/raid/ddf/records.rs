//! Records of the sections: disks, volumes, configurations, spares, disk data, bad blocks.

use super::codec::{Block, Order};
use super::header::Limits;
use crate::probe::Reason;
use crate::raid::Fault;

pub(super) const CONTROLLER: u32 = 0xad11_1111;
pub(super) const DISKS: u32 = 0x2222_2222;
pub(super) const VOLUMES: u32 = 0xdddd_dddd;
pub(super) const CONFIG: u32 = 0xeeee_eeee;
pub(super) const VENDOR: u32 = 0x8888_8888;
pub(super) const SPARE: u32 = 0x5555_5555;
pub(super) const DATA: u32 = 0x3333_3333;
pub(super) const BAD: u32 = 0xabad_b10c;

/// Bytes before the first entry of the disks' and the volumes' section, and of an entry.
const ENTRY: usize = 64;

/// Bits of [`DiskEntry::kind`].
pub mod kind {
    /// The GUID was not made from the disk.
    pub const FORCED: u16 = 1;
    /// In a volume.
    pub const PARTICIPATING: u16 = 2;
    /// Spare for any volume.
    pub const GLOBAL_SPARE: u16 = 4;
    /// Spare for the volumes that its own spare record names.
    pub const CONFIG_SPARE: u16 = 8;
}

/// Bits of [`DiskEntry::state`].
pub mod disk_state {
    /// Works.
    pub const ONLINE: u16 = 1;
    pub const FAILED: u16 = 2;
    /// Being filled.
    pub const REBUILD: u16 = 4;
    /// Not there.
    pub const MISSING: u16 = 0x40;
    /// Warnings that are kept: about to fail, could not read.
    pub const WARNINGS: u16 = 0x30;
}

/// A disk as every disk of the set lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskEntry {
    /// Its identity.
    pub guid: [u8; 24],
    /// The number that configurations name it by.
    pub reference: u32,
    /// See [`kind`]; bits 12 to 15 are the interface.
    pub kind: u16,
    /// See [`disk_state`].
    pub state: u16,
    /// Sectors that volumes may use.
    pub sectors: u64,
    /// Bytes 40 to 63: path, block size.
    pub rest: [u8; 24],
}

/// A volume as every disk of the set lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeEntry {
    /// Its identity.
    pub guid: [u8; 24],
    pub number: u16,
    /// Type bits.
    pub kind: u16,
    /// Low half of the CRC of the controller's GUID.
    pub controller: u16,
    /// Low three bits: 0 optimal, 1 degraded, 2 deleted, 3 missing, 4 failed, 5 partial, 6
    /// offline; 8 morphing; 0x10 dirty.
    pub state: u8,
    /// Low two bits: 0 not initialised, 1 under way, 2 done; high two: access rights.
    pub init: u8,
    /// Bytes 34 to 47.
    pub rest: [u8; 14],
    /// Name, filled up with zeros or blanks.
    pub name: [u8; 16],
}

/// One basic volume, as its disks record it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The volume.
    pub guid: [u8; 24],
    /// Seconds since 1980.
    pub time: u32,
    /// Counts up with each change of this record.
    pub sequence: u32,
    /// Strip: sector size shifted left by this.
    pub strip: u8,
    /// Level and qualifier (67, 68).
    pub level: (u8, u8),
    /// Basic volumes of the volume, this one's place, and the level over them.
    pub secondary: (u8, u8, u8),
    pub sectors: u64,
    pub volume: u64,
    /// Reference and first sector of each disk, in order.
    pub elements: Vec<(u32, u64)>,
    /// First 512 bytes as read, for fields without a meaning here; ones in place of known fields.
    pub(super) base: Vec<u8>,
}

/// The volumes that a spare disk serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spare {
    /// Bits: 1 dedicated, 2 revertible, 4 active, 8 the same enclosure only.
    pub kind: u8,
    /// Seconds since 1980.
    pub time: u32,
    /// Volumes and basic volumes served, when dedicated.
    pub serves: Vec<([u8; 24], u16)>,
}

/// What ties a disk to its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskData {
    /// The disk's identity.
    pub guid: [u8; 24],
    /// Its number.
    pub reference: u32,
    /// Bytes 36 to 69: forced flags and vendor's scratch.
    pub rest: [u8; 34],
}

/// A range that was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadBlocks {
    /// First sector that is bad.
    pub first: u64,
    /// Where the replacement is, from the first spare sector.
    pub spare: u32,
    /// Sectors.
    pub count: u16,
}

/// A section that must start with `signature` and have a right checksum.
pub(super) fn section(
    order: Order,
    bytes: &[u8],
    signature: u32,
    field: &'static str,
) -> Result<Block, Fault> {
    let block = Block::new(order, bytes);
    if block.u32(0) != signature {
        return Err(Fault::new(Reason::Signature, field, "does not start as one"));
    }
    match block.has_valid_crc() {
        true => Ok(block),
        false => Err(Fault::new(Reason::Checksum, field, "has a checksum that does not match")),
    }
}

fn unused(guid: &[u8; 24]) -> bool {
    *guid == [0xff; 24]
}

/// Entries of a list section, at most `max` of them.
fn entries(block: &Block, max: u16) -> impl Iterator<Item = Block> + '_ {
    let count = (block.bytes.len() / ENTRY).saturating_sub(1).min(usize::from(max));
    (1..=count).map(|at| block.part(at * ENTRY, ENTRY))
}

pub(super) fn disks(block: &Block, limits: &Limits) -> Result<Vec<DiskEntry>, Fault> {
    let mut all: Vec<DiskEntry> = Vec::new();
    for entry in entries(block, limits.disks) {
        let found = DiskEntry {
            guid: entry.array(0),
            reference: entry.u32(24),
            kind: entry.u16(28),
            state: entry.u16(30),
            sectors: entry.u64(32),
            rest: entry.array(40),
        };
        if found.reference == u32::MAX || unused(&found.guid) {
            continue;
        }
        if all.iter().any(|other| other.reference == found.reference) {
            let what = format!("{:08x} is that of two disks", found.reference);
            return Err(Fault::new(Reason::Integrity, "DDF disk reference", what));
        }
        all.push(found);
    }
    Ok(all)
}

pub(super) fn volumes(block: &Block, limits: &Limits) -> Result<Vec<VolumeEntry>, Fault> {
    let mut all: Vec<VolumeEntry> = Vec::new();
    for entry in entries(block, limits.volumes) {
        let found = VolumeEntry {
            guid: entry.array(0),
            number: entry.u16(24),
            kind: entry.u16(28),
            controller: entry.u16(30),
            state: entry.u8(32),
            init: entry.u8(33),
            rest: entry.array(34),
            name: entry.array(48),
        };
        if unused(&found.guid) {
            continue;
        }
        if all.iter().any(|other| other.guid == found.guid) {
            return Err(Fault::new(Reason::Integrity, "DDF volume GUID", "is that of two volumes"));
        }
        all.push(found);
    }
    Ok(all)
}

/// A list section of `len` bytes with space for `max` entries.
fn list(order: Order, len: usize, signature: u32, max: u16, all: &[Block]) -> Vec<u8> {
    let mut block = Block::all_ones(order, len);
    block.put32(0, signature);
    block.put16(8, u16::try_from(all.len()).unwrap_or(u16::MAX));
    block.put16(10, max);
    for (at, entry) in all.iter().enumerate() {
        block.put((at + 1) * ENTRY, &entry.bytes);
    }
    block.with_crc()
}

pub(super) fn put_disks(order: Order, len: usize, max: u16, all: &[DiskEntry]) -> Vec<u8> {
    let entry = |disk: &DiskEntry| {
        let mut block = Block::all_ones(order, ENTRY);
        block.put(0, &disk.guid);
        block.put32(24, disk.reference);
        block.put16(28, disk.kind);
        block.put16(30, disk.state);
        block.put64(32, disk.sectors);
        block.put(40, &disk.rest);
        block
    };
    list(order, len, DISKS, max, &all.iter().map(entry).collect::<Vec<_>>())
}

pub(super) fn put_volumes(order: Order, len: usize, max: u16, all: &[VolumeEntry]) -> Vec<u8> {
    let entry = |volume: &VolumeEntry| {
        let mut block = Block::all_ones(order, ENTRY);
        block.put(0, &volume.guid);
        block.put16(24, volume.number);
        block.put16(28, volume.kind);
        block.put16(30, volume.controller);
        block.put8(32, volume.state);
        block.put8(33, volume.init);
        block.put(34, &volume.rest);
        block.put(48, &volume.name);
        block
    };
    list(order, len, VOLUMES, max, &all.iter().map(entry).collect::<Vec<_>>())
}

impl Config {
    pub(super) fn decode(block: &Block, limits: &Limits) -> Result<Self, Fault> {
        let count = block.u16(64);
        if count == 0 || count > limits.elements {
            let what = format!("is {count}; {} is the most", limits.elements);
            return Err(Fault::value("DDF element count", what));
        }
        let starts = 512 + usize::from(limits.elements) * 4;
        let element = |at: usize| (block.u32(512 + at * 4), block.u64(starts + at * 8));
        let secondary = (block.u8(69), block.u8(70), block.u8(71));
        if secondary.0 == 0 || secondary.1 >= secondary.0 {
            let what = format!("is {} of {}", secondary.1, secondary.0);
            return Err(Fault::value("DDF secondary element", what));
        }
        let mut base = block.bytes.get(..512).unwrap_or(&[]).to_vec();
        crate::probe::put(&mut base, 0, &[0xff; 40]);
        crate::probe::put(&mut base, 64, &[0xff; 24]);
        Ok(Config {
            guid: block.array(8),
            time: block.u32(32),
            sequence: block.u32(36),
            strip: block.u8(66),
            level: (block.u8(67), block.u8(68)),
            secondary,
            sectors: block.u64(72),
            volume: block.u64(80),
            elements: (0..usize::from(count)).map(element).collect(),
            base,
        })
    }

    pub(super) fn encode(&self, order: Order, len: usize, limits: &Limits) -> Vec<u8> {
        let mut block = Block::new(order, &self.base);
        block.bytes.resize(512, 0xff);
        block.bytes.resize(len, 0xff);
        block.put32(0, CONFIG);
        block.put(8, &self.guid);
        block.put32(32, self.time);
        block.put32(36, self.sequence);
        block.put16(64, u16::try_from(self.elements.len()).unwrap_or(u16::MAX));
        let (count, place, over) = self.secondary;
        let bytes = [self.strip, self.level.0, self.level.1, count, place, over];
        block.put(66, &bytes);
        block.put64(72, self.sectors);
        block.put64(80, self.volume);
        let starts = 512 + usize::from(limits.elements) * 4;
        for (at, (reference, first)) in self.elements.iter().enumerate() {
            block.put32(512 + at * 4, *reference);
            block.put64(starts + at * 8, *first);
        }
        block.with_crc()
    }
}

impl Spare {
    pub(super) fn decode(block: &Block) -> Result<Self, Fault> {
        let count = usize::from(block.u16(20));
        if count > block.bytes.len().saturating_sub(32) / 32 {
            return Err(Fault::value("DDF spare entries", format!("are {count}: too many")));
        }
        let entry = |at: usize| (block.array(32 + at * 32), block.u16(56 + at * 32));
        let serves = (0..count).map(entry).collect();
        Ok(Spare { kind: block.u8(19), time: block.u32(8), serves })
    }

    pub(super) fn encode(&self, order: Order, len: usize) -> Vec<u8> {
        let mut block = Block::all_ones(order, len);
        block.put32(0, SPARE);
        block.put32(8, self.time);
        block.put8(19, self.kind);
        block.put16(20, u16::try_from(self.serves.len()).unwrap_or(u16::MAX));
        block.put16(22, u16::try_from(len.saturating_sub(32) / 32).unwrap_or(u16::MAX));
        for (at, (guid, element)) in self.serves.iter().enumerate() {
            block.put(32 + at * 32, guid);
            block.put16(56 + at * 32, *element);
        }
        block.with_crc()
    }
}

impl DiskData {
    pub(super) fn decode(block: &Block) -> Self {
        DiskData { guid: block.array(8), reference: block.u32(32), rest: block.array(36) }
    }

    pub(super) fn encode(&self, order: Order, len: usize) -> Vec<u8> {
        let mut block = Block::all_ones(order, len);
        block.put32(0, DATA);
        block.put(8, &self.guid);
        block.put32(32, self.reference);
        block.put(36, &self.rest);
        block.with_crc()
    }
}

pub(super) fn bad_blocks(block: &Block) -> Result<Vec<BadBlocks>, Fault> {
    let count = usize::from(block.u16(8));
    if count > block.bytes.len().saturating_sub(32) / 16 {
        return Err(Fault::value("DDF bad-block entries", format!("are {count}: too many")));
    }
    let entry = |at: usize| BadBlocks {
        first: block.u64(32 + at * 16),
        spare: block.u32(40 + at * 16),
        count: block.u16(44 + at * 16),
    };
    Ok((0..count).map(entry).collect())
}
