//! Packed records that mirror, stripe, concat and multipath keep in a provider's last sector: a
//! magic of 16 bytes padded with zeroes, then fields without alignment, little-endian
//! (docs/reference/geom.md 2.0). Reading never panics: a missing field is an error that names the
//! field.

use std::fmt;

/// Bytes of the magic, of names and of hardcoded providers.
pub(crate) const TEXT: usize = 16;

/// Why a record cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// Another magic: the record is not of this class.
    Foreign,
    /// Written by a newer version than is known here.
    Newer {
        /// Of the record.
        version: u32,
        /// The newest known.
        known: u32,
    },
    /// The record ends before this field.
    Short(&'static str),
    /// The field holds an invalid value.
    Value(&'static str, String),
    /// The checksum is another.
    Checksum,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Foreign => write!(f, "no metadata of this class in the last sector"),
            FrameError::Newer { version, known } => write!(
                f,
                "its metadata has version {version}, newer than {known}: use the software that \
                 wrote it; nothing was changed"
            ),
            FrameError::Short(field) => write!(f, "its metadata ends before {field}"),
            FrameError::Value(field, what) => write!(f, "its metadata: {field} {what}"),
            FrameError::Checksum => write!(f, "its metadata: the checksum does not match"),
        }
    }
}

/// Takes fields from a record, in order.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Checks the magic and the version (at bytes 0 and 16) and continues after them.
    pub(crate) fn open(
        bytes: &'a [u8],
        magic: &str,
        known: u32,
    ) -> Result<(Fields<'a>, u32), FrameError> {
        let mut fields = Fields { bytes, at: 0 };
        if fields.text("magic").map_or(true, |found| found != magic) {
            return Err(FrameError::Foreign);
        }
        let version = fields.u32("version")?;
        match version > known {
            true => Err(FrameError::Newer { version, known }),
            false => Ok((fields, version)),
        }
    }

    /// Starts at the first byte of a record whose version does not follow its magic.
    pub(crate) fn bare(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes, at: 0 }
    }

    /// Bytes taken so far.
    pub(crate) fn taken(&self) -> usize {
        self.at
    }

    pub(crate) fn bytes(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], FrameError> {
        let end = self.at.checked_add(n).ok_or(FrameError::Short(field))?;
        let out = self.bytes.get(self.at..end).ok_or(FrameError::Short(field))?;
        self.at = end;
        Ok(out)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], FrameError> {
        let bytes = self.bytes(N, field)?;
        bytes.try_into().map_err(|_| FrameError::Short(field))
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, FrameError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    /// Two bytes.
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    /// Four bytes.
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// Eight bytes.
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// Text of [`TEXT`] bytes, ended by a zero or by its length.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<String, FrameError> {
        self.text_of(TEXT, field)
    }

    /// Text of `n` bytes, ended by a zero or by its length.
    pub(crate) fn text_of(&mut self, n: usize, field: &'static str) -> Result<String, FrameError> {
        let bytes = self.bytes(n, field)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        let text = bytes.get(..end).and_then(|b| std::str::from_utf8(b).ok());
        match text {
            Some(text) => Ok(text.to_owned()),
            None => Err(FrameError::Value(field, "is not text".into())),
        }
    }
}

/// Puts fields into a record, in order.
#[derive(Default)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    /// A record that begins with a magic and a version.
    pub(crate) fn new(magic: &str, version: u32) -> Record {
        Record::default().text(magic).u32(version)
    }

    pub(crate) fn u8(mut self, value: u8) -> Record {
        self.0.push(value);
        self
    }

    /// Two bytes.
    pub(crate) fn u16(mut self, value: u16) -> Record {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Four bytes.
    pub(crate) fn u32(mut self, value: u32) -> Record {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub(crate) fn u64(mut self, value: u64) -> Record {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Text in [`TEXT`] bytes; longer text is cut off.
    pub(crate) fn text(self, text: &str) -> Record {
        self.text_of(TEXT, text)
    }

    /// Text in `n` bytes; longer text is cut off.
    pub(crate) fn text_of(mut self, n: usize, text: &str) -> Record {
        let text = text.as_bytes();
        let text = text.get(..n).unwrap_or(text);
        let end = self.0.len() + n;
        self.0.extend(text);
        self.0.resize(end, 0);
        self
    }

    /// Bytes as they are.
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Record {
        self.0.extend(bytes);
        self
    }

    /// The bytes of the record so far, for checksums.
    pub(crate) fn so_far(&self) -> &[u8] {
        &self.0
    }
}

/// True when a hardcoded provider of metadata is this one; an empty one is any.
pub(crate) fn is_at_home(hardcoded: &str, provider: &str) -> bool {
    hardcoded.is_empty() || hardcoded == provider
}

/// True when the size in metadata is this one; zero (old versions) is any.
pub(crate) fn is_of_size(provider_bytes: u64, media_bytes: u64) -> bool {
    provider_bytes == 0 || provider_bytes == media_bytes
}

/// Byte offset of the last sector; `None` for a provider without one to spare.
pub(crate) fn last_sector(sector_bytes: u32, media_bytes: u64) -> Option<u64> {
    let sector = u64::from(sector_bytes);
    if sector == 0 || media_bytes / sector < 2 {
        return None;
    }
    Some((media_bytes / sector - 1) * sector)
}
