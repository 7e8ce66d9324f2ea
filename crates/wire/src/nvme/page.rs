//! Structures of fixed size that are mostly zeroes.

/// Bytes that begin as zeroes; values that do not fit are not written.
pub(super) struct Page(Vec<u8>);

impl Page {
    pub fn new(len: usize) -> Page {
        Page(vec![0; len])
    }

    pub fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Page {
        let end = at.saturating_add(bytes.len());
        if let Some(place) = self.0.get_mut(at..end) {
            place.copy_from_slice(bytes);
        }
        self
    }

    pub fn u8(&mut self, at: usize, value: u8) -> &mut Page {
        self.put(at, &[value])
    }

    pub fn u16(&mut self, at: usize, value: u16) -> &mut Page {
        self.put(at, &value.to_le_bytes())
    }

    pub fn u32(&mut self, at: usize, value: u32) -> &mut Page {
        self.put(at, &value.to_le_bytes())
    }

    pub fn u64(&mut self, at: usize, value: u64) -> &mut Page {
        self.put(at, &value.to_le_bytes())
    }

    /// Text that is filled up with spaces, as serial numbers are.
    pub fn text(&mut self, at: usize, len: usize, text: &str) -> &mut Page {
        let plain = |c: char| if c.is_ascii_graphic() || c == ' ' { c as u8 } else { b'?' };
        let filled: Vec<u8> =
            text.chars().map(plain).chain(std::iter::repeat(b' ')).take(len).collect();
        self.put(at, &filled)
    }

    /// Text that ends with a zero byte at the latest in the last of `len` bytes.
    pub fn name(&mut self, at: usize, len: usize, text: &str) -> &mut Page {
        let bytes = text.as_bytes();
        let most = bytes.len().min(len.saturating_sub(1));
        self.put(at, bytes.get(..most).unwrap_or(&[]))
    }

    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// A little-endian field of bytes that a peer sent; zero where they end before it.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().unwrap_or([0; N])
}
