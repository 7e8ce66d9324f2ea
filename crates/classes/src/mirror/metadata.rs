//! The record of a member, in its last sector (docs/reference/geom.md 2.2), versions 0 to 4; 4 is
//! written.
//!
//! A mirror with a write-intent bitmap is no FreeBSD mirror any more. Its record has version 5,
//! which FreeBSD refuses as too new and leaves alone.

use md5::{Digest, Md5};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bitmap;
use super::lineage::Lineage;
use crate::members::frame::{Fields, FrameError, Record};
use crate::members::relocate::MovableLabel;

const MAGIC: &str = "GEOM::MIRROR";
/// The version that FreeBSD writes.
pub(super) const VERSION: u32 = 4;
/// With a write-intent bitmap.
const VERSION_BITMAP: u32 = 5;

/// Member that serves a read: the first available (none), each in turn (round-robin), the least
/// loaded (load), all of them for parts of a large request (split), or the one with the highest
/// priority (prefer).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum Balance {
    None,
    RoundRobin,
    #[default]
    Load,
    Split,
    Prefer,
}

impl Balance {
    /// In the order of their numbers in the record.
    pub(super) const KEYS: &'static [&'static str] =
        &["none", "round-robin", "load", "split", "prefer"];
    const ALL: [Balance; 5] =
        [Balance::None, Balance::RoundRobin, Balance::Load, Balance::Split, Balance::Prefer];

    /// As people write it.
    pub(super) fn as_str(self) -> &'static str {
        Self::KEYS.get(self as usize).copied().unwrap_or("")
    }
}

pub(super) mod mirror_flags {
    /// Stale members are not rebuilt unasked.
    pub(crate) const NOAUTOSYNC: u64 = 1;
    /// Members are not marked dirty: after a crash they are taken as they are.
    pub(crate) const NOFAILSYNC: u64 = 2;
    pub(super) const ALL: u64 = 3;
}

pub(super) mod disk_flags {
    /// Written since it was last known to be the same as the others.
    pub(crate) const DIRTY: u64 = 1;
    /// Being rebuilt.
    pub(crate) const SYNCHRONIZING: u64 = 2;
    /// To be rebuilt though NOAUTOSYNC.
    pub(crate) const FORCE_SYNC: u64 = 4;
    /// Not to be used until it is activated.
    pub(crate) const INACTIVE: u64 = 8;
    /// Takes DELETE.
    pub(crate) const CANDELETE: u64 = 0x40;
    /// Being rebuilt where bitmaps are set, and equal to the others elsewhere. Since version 5.
    pub(crate) const BITMAP_SYNC: u64 = 0x80;
    pub(super) const ALL: u64 = 0x7f;
}

/// A member's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Metadata {
    pub(super) name: String,
    pub(super) id: u32,
    /// Number of the member.
    pub(super) disk: u32,
    /// Members there are.
    pub(super) all: u8,
    /// Grows when a member fails: older ones are broken.
    pub(super) genid: u32,
    /// Grows when a member is absent: older ones are rebuilt.
    pub(super) syncid: u32,
    /// The highest is read first and is master after a crash.
    pub(super) priority: u8,
    /// Bytes of a part of a split read.
    pub(super) slice: u32,
    pub(super) balance: Balance,
    pub(super) media_bytes: u64,
    pub(super) sector_bytes: u32,
    /// Rebuilt up to here, bytes.
    pub(super) sync_offset: u64,
    /// See [`mirror_flags`].
    pub(super) flags: u64,
    /// See [`disk_flags`].
    pub(super) disk_flags: u64,
    /// Name of the provider that it must be found on; empty: any.
    pub(super) home: String,
    /// Size of the provider that it must be found on, bytes; zero: any.
    pub(super) provider_bytes: u64,
    /// The write-intent bitmap, if it has one.
    pub(super) bitmap: Option<bitmap::Shape>,
    /// The lineage, stored behind FreeBSD's record.
    pub(super) lineage: Lineage,
}

fn checksum(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

impl Metadata {
    /// Reads a record of any version known.
    pub(super) fn decode(sector: &[u8]) -> Result<Metadata, FrameError> {
        let (mut f, version) = Fields::open(sector, MAGIC, VERSION_BITMAP)?;
        let name = f.text("name")?;
        let id = f.u32("mirror id")?;
        let disk = f.u32("disk id")?;
        let all = f.u8("number of members")?;
        let genid = if version >= 2 { f.u32("genid")? } else { 0 };
        let syncid = f.u32("syncid")?;
        let priority = f.u8("priority")?;
        let slice = f.u32("slice")?;
        let balance = f.u8("balance")?;
        let media_bytes = f.u64("media size")?;
        let sector_bytes = f.u32("sector size")?;
        let sync_offset = f.u64("sync offset")?;
        let flags = f.u64("mirror flags")?;
        let disk_flags = f.u64("disk flags")?;
        let home = f.text("provider")?;
        let provider_bytes = if version >= 3 { f.u64("provider size")? } else { 0 };
        let bitmap = match version >= VERSION_BITMAP {
            true => {
                let (shift, bytes) = (f.u8("bitmap's region")?, f.u32("bitmap size")?);
                Some(bitmap::Shape { shift, bytes })
            }
            false => None,
        };
        let summed = sector.get(..f.taken()).unwrap_or_default();
        if f.bytes(16, "checksum")? != checksum(summed) {
            return Err(FrameError::Checksum);
        }
        let lineage = Lineage::decode(sector, f.taken());
        let wrong = |field, what: String| Err(FrameError::Value(field, what));
        let Some(&balance) = Balance::ALL.get(usize::from(balance)) else {
            return wrong("balance", format!("{balance} is not known"));
        };
        if name.is_empty() || name.contains(|c: char| c.is_control() || c == '/') {
            return wrong("name", "is empty or not a valid name".into());
        }
        if all == 0 {
            return wrong("number of members", "is zero".into());
        }
        if !sector_bytes.is_power_of_two() || sector_bytes < 512 {
            return wrong("sector size", format!("is {sector_bytes}"));
        }
        if media_bytes == 0 || media_bytes % u64::from(sector_bytes) != 0 {
            return wrong("media size", format!("is {media_bytes}, not whole sectors"));
        }
        let known = disk_flags::ALL | if bitmap.is_some() { disk_flags::BITMAP_SYNC } else { 0 };
        let sized = |s: bitmap::Shape| {
            s.shift >= 12 && s.shift < 63 && s.bytes.is_multiple_of(512) && s.covers(media_bytes)
        };
        if bitmap.is_some_and(|s| u64::from(s.bytes) > bitmap::BYTES_MAX || !sized(s)) {
            return wrong("bitmap", "has an impossible size".into());
        }
        if flags & !mirror_flags::ALL != 0 || disk_flags & !known != 0 {
            return wrong("flags", "has unknown bits".into());
        }
        Ok(Metadata {
            name,
            id,
            disk,
            all,
            genid,
            syncid,
            priority,
            slice,
            balance,
            media_bytes,
            sector_bytes,
            sync_offset,
            flags,
            disk_flags,
            home,
            provider_bytes,
            bitmap,
            lineage,
        })
    }

    /// The record's bytes, to be padded to a sector.
    pub(super) fn encode(&self) -> Vec<u8> {
        let version = if self.bitmap.is_some() { VERSION_BITMAP } else { VERSION };
        let record = Record::new(MAGIC, version)
            .text(&self.name)
            .u32(self.id)
            .u32(self.disk)
            .u8(self.all)
            .u32(self.genid)
            .u32(self.syncid)
            .u8(self.priority)
            .u32(self.slice)
            .u8(self.balance as u8)
            .u64(self.media_bytes)
            .u32(self.sector_bytes)
            .u64(self.sync_offset)
            .u64(self.flags)
            .u64(self.disk_flags)
            .text(&self.home)
            .u64(self.provider_bytes);
        let record = match self.bitmap {
            Some(shape) => record.bytes(&[shape.shift]).u32(shape.bytes),
            None => record,
        };
        let sum = checksum(record.so_far());
        let mut bytes = record.bytes(&sum).so_far().to_vec();
        self.lineage.encode(&mut bytes);
        bytes
    }

    /// The record, as a label that can be moved.
    pub(crate) fn placed(sector: &[u8]) -> Result<MovableLabel, FrameError> {
        let record = Metadata::decode(sector)?;
        let alone = record.clone();
        Ok(MovableLabel {
            provider_bytes: record.provider_bytes,
            leading_bytes: record.bitmap.map_or(0, |s| u64::from(s.bytes)),
            fixed_reason: None,
            rewrite_alone: Some(Box::new(move |bytes| {
                Metadata { provider_bytes: bytes, ..alone.without_bitmap() }.encode()
            })),
            rewrite: Box::new(move |bytes| Metadata { provider_bytes: bytes, ..record }.encode()),
        })
    }

    /// As it is written to a sector of so many bytes.
    pub(super) fn sector(&self, bytes: u32) -> Vec<u8> {
        let mut sector = self.encode();
        sector.resize(bytes as usize, 0);
        sector
    }

    /// The same of a member whose bitmap is not in its place: all of it may differ.
    pub(super) fn without_bitmap(&self) -> Metadata {
        let disk_flags = self.disk_flags & !disk_flags::BITMAP_SYNC;
        Metadata { bitmap: None, disk_flags, ..self.clone() }
    }

    /// True when a flag of the member is set.
    pub(super) fn has(&self, flag: u64) -> bool {
        self.disk_flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use testkit::formats::FieldTable;

    use super::*;

    const GOLDEN: &str = "47454f4d3a3a4d4952524f520000000004000000676d3000000000000000000000000000\
        4433221188776655020300000005000000070010000002\
        00fe0f0000000000000200000000020000000000010000000000000001000000000000006164613000000000\
        000000000000000000001000000000006762b6e19d9eafabc805f86d806e9992";

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            text.bytes().map(|b| (b as char).to_digit(16).expect("hex") as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn golden() -> Metadata {
        Metadata {
            name: "gm0".into(),
            id: 0x1122_3344,
            disk: 0x5566_7788,
            all: 2,
            genid: 3,
            syncid: 5,
            priority: 7,
            slice: 4096,
            balance: Balance::Load,
            media_bytes: 1_048_064,
            sector_bytes: 512,
            sync_offset: 0x20000,
            flags: 1,
            disk_flags: 1,
            home: "ada0".into(),
            provider_bytes: 1_048_576,
            bitmap: None,
            lineage: Lineage::default(),
        }
    }

    #[test]
    fn metadata_is_identical_to_freebsd() {
        let bytes = unhex(GOLDEN);
        assert_eq!(bytes.len(), 135);
        assert_eq!(golden().encode(), bytes);
        assert_eq!(Metadata::decode(&bytes), Ok(golden()));
    }

    /// A record of an older version, made of the new one's fields.
    fn older(version: u32) -> Vec<u8> {
        let new = golden().encode();
        let mut old = new[..45].to_vec();
        old[16..20].copy_from_slice(&version.to_le_bytes());
        if version >= 2 {
            old.extend(&new[45..49]);
        }
        old.extend(&new[49..111]);
        if version >= 3 {
            old.extend(&new[111..119]);
        }
        let sum = checksum(&old);
        old.extend(sum);
        old
    }

    #[test]
    fn older_versions_are_read_and_a_newer_one_is_refused() {
        for (version, len) in [(0, 123), (1, 123), (2, 127), (3, 135), (4, 135)] {
            let old = older(version);
            assert_eq!(old.len(), len, "version {version}");
            let expected = Metadata {
                genid: if version >= 2 { 3 } else { 0 },
                provider_bytes: if version >= 3 { 1_048_576 } else { 0 },
                ..golden()
            };
            assert_eq!(Metadata::decode(&old), Ok(expected), "version {version}");
        }
        let newer = FrameError::Newer { version: 6, known: 5 };
        assert_eq!(Metadata::decode(&older(6)), Err(newer));
    }

    /// FreeBSD looks at the version first.
    #[test]
    fn metadata_with_bitmap_has_a_version_that_freebsd_refuses() {
        let shape = bitmap::Shape { shift: 20, bytes: 512 };
        let record = Metadata { bitmap: Some(shape), ..golden() };
        let bytes = record.encode();
        assert_eq!(bytes[16..20], 5u32.to_le_bytes());
        assert_eq!(Metadata::decode(&bytes), Ok(record));
        for (shift, bytes) in [(11, 512), (12, 513), (12, 8192), (63, 512)] {
            let wrong = bitmap::Shape { shift, bytes };
            let wrong = Metadata { bitmap: Some(wrong), ..golden() }.encode();
            assert!(Metadata::decode(&wrong).is_err(), "{shift} {bytes}");
        }
    }

    #[test]
    fn every_damaged_byte_is_detected() {
        let bytes = golden().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(Metadata::decode(&damaged).is_err(), "byte {at}");
            assert!(Metadata::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn fields_are_where_the_page_of_formats_has_them() {
        let page = FieldTable::of("### mirror", "offset", 0);
        let shape = bitmap::Shape { shift: 20, bytes: 512 };
        for bitmap in [None, Some(shape)] {
            let record = Metadata { bitmap, sync_offset: 0x3_0000, ..golden() }.encode();
            let version = if bitmap.is_some() { VERSION_BITMAP } else { VERSION };
            let summed = if bitmap.is_some() { 124 } else { 119 };
            let values: [(&str, &[u8]); 19] = [
                ("magic", MAGIC.as_bytes()),
                ("version", &version.to_le_bytes()),
                ("name", b"gm0"),
                ("mirror id", &0x1122_3344u32.to_le_bytes()),
                ("disk id", &0x5566_7788u32.to_le_bytes()),
                ("members", &[2]),
                ("genid", &3u32.to_le_bytes()),
                ("syncid", &5u32.to_le_bytes()),
                ("priority", &[7]),
                ("slice", &4096u32.to_le_bytes()),
                ("balance", &[Balance::Load as u8]),
                ("media size", &1_048_064u64.to_le_bytes()),
                ("sector size", &512u32.to_le_bytes()),
                ("sync offset", &0x3_0000u64.to_le_bytes()),
                ("mirror flags", &mirror_flags::NOAUTOSYNC.to_le_bytes()),
                ("disk flags", &disk_flags::DIRTY.to_le_bytes()),
                ("hardcoded provider", b"ada0"),
                ("provider size", &1_048_576u64.to_le_bytes()),
                ("MD5", &checksum(&record[..summed])),
            ];
            page.assert_holds(&record, &values);
            if bitmap.is_some() {
                let size = 512u32.to_le_bytes();
                page.assert_holds(&record, &[("region shift", &[20]), ("bitmap size", &size)]);
            }
        }
    }
}
