//! Fields of a section in either byte order, and its checksum.

use crate::crc::crc32;
use crate::probe::{array, put, span};

/// How numbers and checksums are written, the same in all of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    /// Little-endian, as some controllers have it; the standard specifies big-endian.
    pub little: bool,
    /// The checksum starts from zero and is not inverted, as in Linux; FreeBSD and dmraid use the
    /// common CRC-32.
    pub plain: bool,
}

impl Order {
    /// As the standard specifies.
    pub const BIG: Order = Order { little: false, plain: false };
    /// As some controllers do it.
    pub const LITTLE: Order = Order { little: true, plain: false };
    /// As Linux (mdadm) writes it, and insists on.
    pub const LINUX: Order = Order { little: false, plain: true };
}

/// A section or a part of one. Reading outside it gives zeros, writing there does nothing: its
/// length is checked at its source.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) order: Order,
    pub(super) bytes: Vec<u8>,
}

impl Block {
    pub(super) fn new(order: Order, bytes: &[u8]) -> Self {
        Self { order, bytes: bytes.to_vec() }
    }

    /// `len` bytes of ones: what unused space holds.
    pub(super) fn all_ones(order: Order, len: usize) -> Self {
        Self { order, bytes: vec![0xff; len] }
    }

    fn in_order<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if self.order.little {
            bytes.reverse();
        }
        bytes
    }

    pub(super) fn u8(&self, at: usize) -> u8 {
        crate::probe::byte(&self.bytes, at)
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.in_order(array(&self.bytes, at).unwrap_or_default()))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.in_order(array(&self.bytes, at).unwrap_or_default()))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.in_order(array(&self.bytes, at).unwrap_or_default()))
    }

    pub(super) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        array(&self.bytes, at).unwrap_or([0; N])
    }

    pub(super) fn part(&self, at: usize, len: usize) -> Block {
        Block::new(self.order, span(&self.bytes, at, len))
    }

    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.bytes, at, bytes);
    }

    pub(super) fn put8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    pub(super) fn put16(&mut self, at: usize, value: u16) {
        let bytes = self.in_order(value.to_be_bytes());
        self.put(at, &bytes);
    }

    pub(super) fn put32(&mut self, at: usize, value: u32) {
        let bytes = self.in_order(value.to_be_bytes());
        self.put(at, &bytes);
    }

    pub(super) fn put64(&mut self, at: usize, value: u64) {
        let bytes = self.in_order(value.to_be_bytes());
        self.put(at, &bytes);
    }

    /// The checksum: CRC-32 of all bytes, its own four taken as ones.
    pub(super) fn crc(&self) -> u32 {
        let (head, tail) = (span(&self.bytes, 0, 4), self.bytes.get(8..).unwrap_or(&[]));
        if !self.order.plain {
            return crc32(&[head, &[0xff; 4], tail]);
        }
        // Starting from zero is starting from ones with the first four bytes inverted.
        let mut start = [0; 4];
        put(&mut start, 0, head);
        start.iter_mut().for_each(|byte| *byte = !*byte);
        !crc32(&[&start, &[0xff; 4], tail])
    }

    /// True when the checksum at byte 4 is right.
    pub(super) fn has_valid_crc(&self) -> bool {
        self.bytes.len() >= 8 && self.crc() == self.u32(4)
    }

    /// Write the checksum, and be done.
    pub(super) fn with_crc(mut self) -> Vec<u8> {
        let crc = self.crc();
        self.put32(4, crc);
        self.bytes
    }
}
