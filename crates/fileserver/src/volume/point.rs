//! A point: the state of a volume beside its blocks. Each record of the journal ends with one.

use super::seal::{Decoder, Encoder};
use crate::fault::Addr;

/// Devices that a WORM may be mirrored on.
pub const MEMBERS_MAX: usize = 8;
/// Bytes of a [`Dump`] on disk.
pub const DUMP_BYTES: usize = 80;

/// A dump: a root of the tree that never changes, and the part of the WORM that it added.
///
/// ```text
///   sb           sb+1 ...            end        next
///   | superblock | blocks of the dump | checksums | (superblock of the dump after it)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// The first is 1.
    pub number: u32,
    /// Year, month and day as one number, 20261121.
    pub date: u32,
    /// Which of its day; the first is 0.
    pub serial: u32,
    /// Address of its superblock.
    pub sb: Addr,
    /// Behind its last block, where the checksums begin.
    pub end: Addr,
    /// Behind its checksums: where the next superblock will be.
    pub next: Addr,
    /// Root of the tree.
    pub root: Addr,
    /// When it was taken, ns since 1970.
    pub time_ns: u64,
    /// No file made before it has this number or a higher one.
    pub ino: u64,
    /// The same of the count of changes.
    pub change: u64,
    /// Owner of the volume when it was taken.
    pub epoch: u32,
    /// CRC32C of the superblock before it.
    pub chain: u32,
}

impl Dump {
    pub(super) fn encode(&self, out: &mut Encoder) {
        out.u32(self.number).u32(self.date).u32(self.serial).u32(self.epoch);
        out.u64(self.sb).u64(self.end).u64(self.next).u64(self.root);
        out.u64(self.time_ns).u64(self.ino).u64(self.change).u32(self.chain).u32(0);
    }

    pub(super) fn decode(t: &mut Decoder<'_>) -> Dump {
        let mut d = Dump::default();
        (d.number, d.date, d.serial, d.epoch) = (t.u32(), t.u32(), t.u32(), t.u32());
        (d.sb, d.end, d.next, d.root) = (t.u64(), t.u64(), t.u64(), t.u64());
        (d.time_ns, d.ino, d.change) = (t.u64(), t.u64(), t.u64());
        d.chain = t.u32();
        t.u32();
        d
    }

    /// As in `/dump`: `2026/1121`, `2026/11211` for the second of a day.
    pub fn path(&self) -> (String, String) {
        let (year, day) = (self.date / 10_000, self.date % 10_000);
        let serial = if self.serial == 0 { String::new() } else { self.serial.to_string() };
        (format!("{year:04}"), format!("{day:04}{serial}"))
    }

    /// Its parts are in order.
    pub fn is_sound(&self) -> bool {
        self.number > 0
            && self.sb < self.end
            && self.end <= self.next
            && self.root < self.end
            && self.next < u64::MAX / 2
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Root of the tree that is written.
    pub root: Addr,
    /// The next address that was never given.
    pub next: Addr,
    /// Addresses below belong to a dump, and their blocks never change.
    pub frozen: Addr,
    /// Where the next dump's superblock will be.
    pub sb: Addr,
    /// The next file's number, and no lower one will be given after a loss of power.
    pub ino: u64,
    /// The same of the count of changes.
    pub change: u64,
    /// Which owner of the WORM this is.
    pub epoch: u32,
    /// The last dump; number 0 for none.
    pub last: Dump,
    /// CRC32C of the last dump's superblock.
    pub chain: u32,
    /// For each leg, everything below is on it for good.
    pub members: Vec<Addr>,
}

impl Point {
    pub(super) fn encode(&self, out: &mut Encoder) {
        out.u64(self.root).u64(self.next).u64(self.frozen).u64(self.sb);
        out.u64(self.ino).u64(self.change).u32(self.epoch).u32(self.chain);
        self.last.encode(out);
        out.u32(self.members.len() as u32);
        for leg in &self.members {
            out.u64(*leg);
        }
    }

    pub(super) fn decode(t: &mut Decoder<'_>) -> Option<Point> {
        let mut p = Point::default();
        (p.root, p.next, p.frozen, p.sb) = (t.u64(), t.u64(), t.u64(), t.u64());
        (p.ino, p.change, p.epoch, p.chain) = (t.u64(), t.u64(), t.u32(), t.u32());
        p.last = Dump::decode(t);
        let n = t.u32() as usize;
        if n > MEMBERS_MAX {
            return None;
        }
        p.members = (0..n).map(|_| t.u64()).collect();
        let sound = p.frozen <= p.next && (p.last.number == 0 || p.last.is_sound());
        (sound && p.next < u64::MAX / 2).then_some(p)
    }
}
