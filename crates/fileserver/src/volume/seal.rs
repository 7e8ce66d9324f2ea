//! Blocks that carry their own checksum: headers, tables, superblocks, records of the journal.
//!
//! ```text
//!   | magic 4 | crc32c 4 | volume 8 | number 8 | length 4 | pad 4 | body ... | zeros |
//! ```
//! The checksum covers everything behind it up to the body's end. The number identifies the block
//! within its kind (an address, an index, a sequence): a block in the wrong place is rejected.

use wire::iscsi::crc32c;

/// Bytes before the body.
pub const SEAL: usize = 32;

/// Seals `body` as a block; the rest of the block is zero. A body that is too long is an error of
/// the caller, answered by `false`.
pub fn seal(block: &mut [u8], magic: [u8; 4], volume: u64, number: u64, body: &[u8]) -> bool {
    if SEAL + body.len() > block.len() {
        return false;
    }
    block.fill(0);
    block[..4].copy_from_slice(&magic);
    block[8..16].copy_from_slice(&volume.to_le_bytes());
    block[16..24].copy_from_slice(&number.to_le_bytes());
    block[24..28].copy_from_slice(&(body.len() as u32).to_le_bytes());
    block[SEAL..SEAL + body.len()].copy_from_slice(body);
    let crc = crc32c(&block[8..SEAL + body.len()]);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
    true
}

/// The fields of a sealed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// Its volume.
    pub volume: u64,
    /// Which of its kind.
    pub number: u64,
    /// The body.
    pub body: &'a [u8],
}

/// Opens a sealed block; `bytes` may be longer than it. The error has the reason.
pub fn open(bytes: &[u8], magic: [u8; 4]) -> Result<Sealed<'_>, &'static str> {
    let head = bytes.get(..SEAL).ok_or("shorter than a header")?;
    if head[..4] != magic {
        return Err("the block is of another kind");
    }
    let mut at = Decoder(&head[4..]);
    let crc = at.u32();
    let (volume, number, len) = (at.u64(), at.u64(), at.u32() as usize);
    let end = SEAL.checked_add(len).ok_or("its length makes no sense")?;
    let covered = bytes.get(8..end).ok_or("it is longer than its place")?;
    if crc32c(covered) != crc {
        return Err("its checksum is wrong");
    }
    Ok(Sealed { volume, number, body: &bytes[SEAL..end] })
}

/// Little-endian fields of a body, front to back; behind the end, of which
/// [`Decoder::is_empty`] reports, there are zeros.
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    /// The next `n` bytes; none when there are not so many.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (out, rest) = self.0.split_at_checked(n).unwrap_or((&[], &[]));
        self.0 = rest;
        out
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let b = self.bytes(N);
        if b.len() == N {
            out.copy_from_slice(b);
        }
        out
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Builds a body.
#[derive(Default)]
pub struct Encoder(pub Vec<u8>);

impl Encoder {
    /// Two bytes.
    pub fn u16(&mut self, v: u16) -> &mut Encoder {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }

    /// Four bytes.
    pub fn u32(&mut self, v: u32) -> &mut Encoder {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(&mut self, v: u64) -> &mut Encoder {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
}
