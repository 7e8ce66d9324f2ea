//! Big-endian fields and text in byte arrays and slices.
//!
//! Fixed headers are read with the offset as a constant: a field that would not fit does not
//! compile. Slices of unknown length pass through [`Reader`], which answers with an error.

use crate::error::WireError;

/// A 16-bit big-endian field `AT` bytes into a fixed header.
pub(crate) fn get16<const AT: usize, const N: usize>(b: &[u8; N]) -> u16 {
    const { assert!(AT + 2 <= N) };
    u16::from_be_bytes([b[AT], b[AT + 1]])
}

/// A 24-bit big-endian field.
pub(crate) fn get24<const AT: usize, const N: usize>(b: &[u8; N]) -> u32 {
    const { assert!(AT + 3 <= N) };
    u32::from_be_bytes([0, b[AT], b[AT + 1], b[AT + 2]])
}

/// A 32-bit big-endian field.
pub(crate) fn get32<const AT: usize, const N: usize>(b: &[u8; N]) -> u32 {
    const { assert!(AT + 4 <= N) };
    u32::from_be_bytes([b[AT], b[AT + 1], b[AT + 2], b[AT + 3]])
}

/// Text of a field; bytes that are not printable become spaces.
pub(crate) fn text(bytes: &[u8]) -> String {
    let plain = |b: &u8| if b.is_ascii_graphic() { char::from(*b) } else { ' ' };
    bytes.iter().map(plain).collect::<String>().trim().to_owned()
}

/// A field of `len` bytes: text with spaces behind it.
pub(crate) fn padded(text: &str, len: usize) -> Vec<u8> {
    let plain = text.bytes().map(|b| if b.is_ascii_graphic() { b } else { b' ' });
    plain.chain(std::iter::repeat(b' ')).take(len).collect()
}

/// A byte string of constant length.
pub(crate) fn get_array<const AT: usize, const L: usize, const N: usize>(b: &[u8; N]) -> [u8; L] {
    const { assert!(AT + L <= N) };
    let mut out = [0; L];
    let mut i = 0;
    while i < L {
        out[i] = b[AT + i];
        i += 1;
    }
    out
}

/// Writes a byte string of constant length.
pub(crate) fn put<const AT: usize, const L: usize, const N: usize>(b: &mut [u8; N], v: [u8; L]) {
    const { assert!(AT + L <= N) };
    let mut i = 0;
    while i < L {
        b[AT + i] = v[i];
        i += 1;
    }
}

/// Writes a 24-bit big-endian field; bits above 24 are not written, callers keep to the limit.
pub(crate) fn put24<const AT: usize, const N: usize>(b: &mut [u8; N], v: u32) {
    let [_, x, y, z] = v.to_be_bytes();
    put::<AT, 3, N>(b, [x, y, z]);
}

/// Reads a slice front to back; every read names the field it is for.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Offset of the next byte, saturated for messages.
    pub(crate) fn at(&self) -> u32 {
        u32::try_from(self.at).unwrap_or(u32::MAX)
    }

    /// Bytes not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    pub(crate) fn take(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let end = self.at.checked_add(n).ok_or(WireError::long(field, self.at()))?;
        let out = self.bytes.get(self.at..end).ok_or(WireError::short(field, self.at()))?;
        self.at = end;
        Ok(out)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], WireError> {
        let at = self.at();
        self.take(N, field)?.try_into().map_err(|_| WireError::short(field, at))
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        Ok(u8::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }
}
