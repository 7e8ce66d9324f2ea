//! The layout of a device of the WORM.
//!
//! ```text
//!   | label | (unused) | seats of the fence | superblock 1 | blocks | checksums | superblock 2 |
//! ```
//! Each dump is one range: its superblock, written last of all, then its blocks, then a CRC32C for
//! each of them. A superblock names where the next one will be, and carries the checksum of the one
//! before it. A stale one of an earlier life of the medium does not continue the chain.

use wire::iscsi::crc32c;

use super::point::{DUMP_BYTES, Dump};
use super::seal::{self, Decoder, Encoder, SEAL};
use crate::fault::Addr;

/// Kinds of blocks that only a WORM has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first block: whose device it is.
    Label,
    /// One server's place in the fence.
    FenceEntry,
    /// The description of a dump.
    Superblock,
    /// Checksums of a dump's blocks.
    Sums,
}

impl Kind {
    fn magic(self) -> [u8; 4] {
        match self {
            Kind::Label => *b"ASHW",
            Kind::FenceEntry => *b"ASHF",
            Kind::Superblock => *b"ASHS",
            Kind::Sums => *b"ASHK",
        }
    }
}

/// Seals a block for `addr`.
pub fn seal(block: &mut [u8], kind: Kind, volume: u64, addr: Addr, body: &[u8]) -> bool {
    seal::seal(block, kind.magic(), volume, addr, body)
}

/// Opens a block of `addr`.
pub fn open(bytes: &[u8], kind: Kind, volume: u64, addr: Addr) -> Result<&[u8], &'static str> {
    let s = seal::open(bytes, kind.magic())?;
    if s.volume != volume {
        return Err("the device belongs to another volume");
    }
    if s.number != addr {
        return Err("the device belongs to another place");
    }
    Ok(s.body)
}

/// Checksum of a block in tables of checksums: never 0, which means no block.
pub fn sum_of(block: &[u8]) -> u32 {
    as_sum(crc32c(block))
}

fn as_sum(crc: u32) -> u32 {
    if crc == 0 { u32::MAX } else { crc }
}

/// Body of a block of checksums.
pub fn encode_sums(crcs: impl Iterator<Item = Option<u32>>) -> Vec<u8> {
    let mut body = Encoder::default();
    for crc in crcs {
        body.u32(crc.map_or(0, as_sum));
    }
    body.0
}

/// Checksum number `i` in the block of them at `addr`; `None` when the dump has no such block.
pub fn sum(bytes: &[u8], volume: u64, addr: Addr, i: usize) -> Result<Option<u32>, &'static str> {
    let body = open(bytes, Kind::Sums, volume, addr)?;
    let crc = Decoder(body.get(i * 4..).unwrap_or(&[])).u32();
    Ok((crc != 0).then_some(crc))
}

/// Body of a superblock: its dump, then as many of those before it as fit, newest first.
pub fn encode_superblock(dump: &Dump, dumps: &[Dump], block: usize) -> Vec<u8> {
    let mut body = Encoder::default();
    dump.encode(&mut body);
    let earlier = dumps.iter().rev().filter(|d| d.number < dump.number);
    let some: Vec<&Dump> = earlier.take((block - SEAL) / DUMP_BYTES - 2).collect();
    body.u32(some.len() as u32);
    for d in some {
        d.encode(&mut body);
    }
    body.0
}

/// A superblock: its dump, those before it that it knows, newest first, and its chain's checksum.
pub fn superblock(
    bytes: &[u8],
    volume: u64,
    addr: Addr,
) -> Result<(Dump, Vec<Dump>, u32), &'static str> {
    let body = open(bytes, Kind::Superblock, volume, addr)?;
    let mut t = Decoder(body);
    let dump = Dump::decode(&mut t);
    if dump.sb != addr || !dump.is_sound() {
        return Err("its dump makes no sense");
    }
    let n = t.u32() as usize;
    if t.0.len() != n.saturating_mul(DUMP_BYTES) {
        return Err("its list of dumps has another length");
    }
    let earlier: Vec<Dump> = (0..n).map(|_| Dump::decode(&mut t)).collect();
    let mut above = dump;
    for d in &earlier {
        if !d.is_sound() || d.number + 1 != above.number || d.next > above.sb {
            return Err("its list of dumps is out of order");
        }
        above = *d;
    }
    Ok((dump, earlier, crc32c(body)))
}

/// See [`superblock`].
pub fn check_superblock(bytes: &[u8], volume: u64, addr: Addr) -> Result<(), &'static str> {
    superblock(bytes, volume, addr).map(|_| ())
}

/// The contents of the first block of a WORM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its volume.
    pub volume: u64,
    /// Bytes of a block.
    pub block: u32,
    /// When it was made, ns since 1970.
    pub created_ns: u64,
}

impl Label {
    /// As a block.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Encoder::default();
        body.u32(1).u32(self.block).u64(self.created_ns);
        let mut out = vec![0; self.block as usize];
        seal(&mut out, Kind::Label, self.volume, 0, &body.0);
        out
    }

    /// From the first bytes of a device.
    pub fn decode(bytes: &[u8]) -> Result<Label, &'static str> {
        let s = seal::open(bytes, Kind::Label.magic())?;
        let mut t = Decoder(s.body);
        if t.u32() != 1 {
            return Err("a later version made it");
        }
        let label = Label { volume: s.volume, block: t.u32(), created_ns: t.u64() };
        let known = super::layout::BLOCKS.contains(&label.block);
        if known && s.number == 0 { Ok(label) } else { Err("its block size makes no sense") }
    }
}
