//! The record in the last sector, the same through every path (docs/reference/geom.md 2.5), in
//! version 1.

use serde::{Deserialize, Serialize};

use super::options::Options;
use crate::members::frame::{Fields, FrameError, Record};
use crate::members::relocate::MovableLabel;

const MAGIC: &str = "GEOM::MULTIPATH";
const VERSION: u32 = 1;
/// Bytes of the uuid's field.
const UUID: usize = 40;

/// How requests are spread over the paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) enum Mode {
    /// All requests use one path.
    #[default]
    Passive,
    /// All requests use all paths.
    Active,
    /// Reads use all paths, other requests use one.
    Read,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::Passive, Mode::Active, Mode::Read];

    /// As lists have it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Mode::Passive => "Active/Passive",
            Mode::Active => "Active/Active",
            Mode::Read => "Active/Read",
        }
    }

    /// As a section has it.
    pub(super) fn key(self) -> &'static str {
        match self {
            Mode::Passive => "passive",
            Mode::Active => "active",
            Mode::Read => "read",
        }
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> String {
        mode.key().to_owned()
    }
}

/// The inverse of [`Mode::key`].
impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(key: String) -> Result<Mode, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.key() == key);
        found.ok_or_else(|| format!("no mode {key}; use {}", Self::ALL.map(Mode::key).join(", ")))
    }
}

/// The record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// The identity of the disk.
    pub(super) uuid: String,
    pub(super) name: String,
    pub(super) sector_bytes: u32,
    /// Bytes of the disk, the record's sector included.
    pub(super) provider_bytes: u64,
    pub(super) mode: Mode,
    /// Options beyond FreeBSD.
    pub(super) options: Options,
}

impl Metadata {
    /// Reads a record. The version is behind the texts, so only the magic is certain before it.
    pub(super) fn decode(sector: &[u8]) -> Result<Metadata, FrameError> {
        let mut f = Fields::bare(sector);
        if f.text("magic").map_or(true, |found| found != MAGIC) {
            return Err(FrameError::Foreign);
        }
        let uuid = f.bytes(UUID, "uuid")?;
        let name = f.bytes(16, "name")?;
        let version = f.u32("version")?;
        if version > VERSION {
            return Err(FrameError::Newer { version, known: VERSION });
        }
        let wrong = |field, what: String| Err(FrameError::Value(field, what));
        if version != VERSION {
            return wrong("version", format!("is {version}"));
        }
        let uuid = Fields::bare(uuid).text_of(UUID, "uuid")?;
        let name = Fields::bare(name).text("name")?;
        let sector_bytes = f.u32("sector size")?;
        let provider_bytes = f.u64("size")?;
        let mode = f.u8("mode")?;
        let Some(&mode) = Mode::ALL.get(usize::from(mode)) else {
            return wrong("mode", format!("{mode} is not known"));
        };
        if uuid.is_empty() || !uuid.bytes().all(|b| b.is_ascii_graphic()) {
            return wrong("uuid", "is empty or no text".into());
        }
        if name.is_empty() || name.contains(|c: char| c.is_control() || c == '/') {
            return wrong("name", "is empty or not a valid name".into());
        }
        if !sector_bytes.is_power_of_two() || sector_bytes < 512 {
            return wrong("sector size", format!("is {sector_bytes}"));
        }
        let unit = u64::from(sector_bytes);
        if provider_bytes % unit != 0 || provider_bytes / unit < 2 {
            return wrong("size", format!("is {provider_bytes}"));
        }
        let options = Options::decode(sector);
        Ok(Metadata { uuid, name, sector_bytes, provider_bytes, mode, options })
    }

    /// The record, as a label that can be moved.
    pub(crate) fn placed(sector: &[u8]) -> Result<MovableLabel, FrameError> {
        let record = Metadata::decode(sector)?;
        Ok(MovableLabel {
            provider_bytes: record.provider_bytes,
            leading_bytes: 0,
            rewrite_alone: None,
            fixed_reason: None,
            rewrite: Box::new(move |bytes| {
                Metadata { provider_bytes: bytes, ..record }.with_options()
            }),
        })
    }

    /// The record's bytes, to be padded to a sector.
    pub(super) fn encode(&self) -> Vec<u8> {
        Record::default()
            .text(MAGIC)
            .text_of(UUID, &self.uuid)
            .text(&self.name)
            .u32(VERSION)
            .u32(self.sector_bytes)
            .u64(self.provider_bytes)
            .u8(self.mode as u8)
            .so_far()
            .to_vec()
    }

    /// The record, followed by the options.
    fn with_options(&self) -> Vec<u8> {
        let mut bytes = self.encode();
        self.options.put(&mut bytes);
        bytes
    }

    /// The record as stored in its sector.
    pub(super) fn sector(&self) -> Vec<u8> {
        let mut sector = self.with_options();
        sector.resize(self.sector_bytes as usize, 0);
        sector
    }
}

#[cfg(test)]
mod tests {
    use testkit::formats::FieldTable;

    use super::*;

    const GOLDEN: &str = "47454f4d3a3a4d554c5449504154480031323334353637382d313233342d313165662d38\
        3030302d303031313232333334343535000000006d703000000000000000000000000000010000000002\
        0000000010000000000001";

    fn golden() -> Metadata {
        Metadata {
            uuid: "12345678-1234-11ef-8000-001122334455".into(),
            name: "mp0".into(),
            sector_bytes: 512,
            provider_bytes: 1_048_576,
            mode: Mode::Active,
            options: Options::default(),
        }
    }

    #[test]
    fn metadata_is_identical_to_freebsd() {
        let digits: Vec<u8> =
            GOLDEN.bytes().map(|b| (b as char).to_digit(16).expect("hex") as u8).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        assert_eq!(bytes.len(), 89);
        assert_eq!(golden().encode(), bytes);
        assert_eq!(Metadata::decode(&bytes), Ok(golden()));
    }

    #[test]
    fn truncated_newer_or_invalid_metadata_is_refused_with_a_reason() {
        let bytes = golden().encode();
        for len in 0..bytes.len() {
            assert!(Metadata::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        let with = |at: usize, new: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + new.len()].copy_from_slice(new);
            Metadata::decode(&bytes).expect_err("refused").to_string()
        };
        assert!(with(0, b"X").contains("no metadata"));
        assert!(with(72, &[2]).contains("version 2, newer than 1"));
        assert!(with(72, &[0]).contains("version is 0"));
        assert!(with(16, &[0]).contains("uuid"));
        assert!(with(16, &[0xff]).contains("uuid"));
        assert!(with(56, &[0]).contains("name"));
        assert!(with(56, b"a/b").contains("name"));
        assert!(with(76, &[1]).contains("sector size"));
        assert!(with(80, &[1]).contains("size"));
        assert!(with(80, &[0; 8]).contains("size"));
        assert!(with(88, &[3]).contains("mode"));
    }

    #[test]
    fn fields_are_where_the_page_of_formats_has_them() {
        let values: [(&str, &[u8]); 7] = [
            ("magic", MAGIC.as_bytes()),
            ("uuid", b"12345678-1234-11ef-8000-001122334455"),
            ("name", b"mp0"),
            ("version", &VERSION.to_le_bytes()),
            ("sector size", &512u32.to_le_bytes()),
            ("size", &1_048_576u64.to_le_bytes()),
            ("mode", &[1]),
        ];
        FieldTable::of("### multipath", "offset", 0).assert_holds(&golden().encode(), &values);
    }
}
