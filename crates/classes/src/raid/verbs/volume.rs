//! Creation of a new volume: the common part of `label` and `add`.

use geom::{Bytes, Error};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Policy;
use crate::raid::model::{Layout, Level, LogArea, Member, SubdiskState, Volume, VolumeState};
use crate::raid::show::level_str;
use crate::raid::{ddf, imsm};
use crate::shared_args::AssumeSynced;

/// Bytes that Intel leaves free at the end of a disk for its record; of small disks an eighth.
const INTEL_RESERVED: u64 = 2 << 20;
/// Members of larger disks end on such a boundary, as firmware has them.
pub(super) const ROUND: u64 = 1 << 20;

/// Arguments of both verbs.
#[derive(Deserialize, JsonSchema)]
pub(super) struct VolumeParams {
    /// Bytes of each disk to use [default: all free space]
    #[schemars(extend("x-short" = "S"))]
    pub(super) size: Option<Bytes>,
    /// Strip size in bytes, a power of two
    #[serde(default = "strip")]
    #[schemars(extend("x-short" = "s"))]
    pub(super) strip: Bytes,
    /// Consistency policy after a crash: "resync" computes all parity again; "ppl" (Intel, RAID5)
    /// keeps a log of partial parity, so that nothing is resynced
    #[serde(default)]
    consistency: Policy,
    assume_same: AssumeSynced,
}

fn strip() -> Bytes {
    Bytes(128 << 10)
}

/// RAID level: RAID0, RAID1, RAID1E, RAID10, RAID4, RAID5[-LA|-LS|-RA|-RS], RAID6[-LA|-LS|-RA],
/// CONCAT, SINGLE
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct LevelName(String);

impl LevelName {
    /// The level that the word means, with the format's usual order of parity.
    pub(super) fn level(&self, intel: bool) -> Result<Level, Error> {
        let word = self.0.to_ascii_uppercase();
        let (name, order) = match word.split_once('-') {
            Some((name, order)) => (name, Some(order)),
            None => (word.as_str(), None),
        };
        let layout = match order {
            None if intel || name == "RAID6" => Layout::LeftAsymmetric,
            None => Layout::LeftSymmetric,
            Some("LA") => Layout::LeftAsymmetric,
            Some("LS") => Layout::LeftSymmetric,
            Some("RA") => Layout::RightAsymmetric,
            Some("RS") => Layout::RightSymmetric,
            Some(other) => {
                return Err(Error::inval(format!("no order of parity {other}; LA, LS, RA, RS")));
            }
        };
        match (name, order) {
            ("RAID5" | "5", _) => Ok(Level::Raid5(layout)),
            ("RAID6" | "6", _) => Ok(Level::Raid6(layout)),
            ("RAID0" | "0", None) => Ok(Level::Raid0),
            ("RAID1" | "1", None) => Ok(Level::Raid1),
            ("RAID1E" | "1E", None) => Ok(Level::Raid1e),
            ("RAID10" | "10", None) => Ok(Level::Raid10),
            ("RAID4" | "4", None) => Ok(Level::Raid4),
            ("CONCAT", None) => Ok(Level::Concat),
            ("SINGLE", None) => Ok(Level::Single),
            _ => Err(Error::inval(format!(
                "no level {word}; RAID0, RAID1, RAID1E, RAID10, RAID4, RAID5[-LA|-LS|-RA|-RS], \
                 RAID6[-LA|-LS|-RA], CONCAT, SINGLE"
            ))),
        }
    }
}

/// A DDF disk's GUID.
pub(super) fn guid(number: u32) -> [u8; 24] {
    let mut guid = *b"ASHLAR  00000000        ";
    crate::probe::put(&mut guid, 8, format!("{number:08x}").as_bytes());
    guid
}

/// Bytes of a disk that volumes may use.
pub(super) fn usable(intel: bool, media: u64) -> u64 {
    match intel {
        true => media - INTEL_RESERVED.min(media / 8),
        false => ddf::usable_bytes(media),
    }
}

pub(super) struct NewVolume<'a> {
    pub(super) name: &'a str,
    pub(super) id: [u8; 24],
    pub(super) level: Level,
    pub(super) params: &'a VolumeParams,
    pub(super) intel: bool,
    pub(super) sector: u32,
}

impl NewVolume<'_> {
    /// Bytes for a log of partial parity behind the data of each member; zero: none is kept.
    fn log(&self) -> Result<u64, Error> {
        match self.params.consistency {
            Policy::Resync => Ok(0),
            Policy::Ppl if self.intel && matches!(self.level, Level::Raid5(_)) => {
                Ok(imsm::ppl::AREA)
            }
            Policy::Ppl => Err(Error::inval(
                "a log of partial parity (ppl) is kept for Intel's RAID5, and nothing else",
            )),
        }
    }

    /// The volume, on disks of which each has space at the place.
    pub(super) fn volume(&self, spaces: &[(u64, u64)], present: &[bool]) -> Result<Volume, Error> {
        let (log, strip) = (self.log()?, self.params.strip.0);
        let size = self.params.size.map(|bytes| bytes.0);
        let sector = u64::from(self.sector.max(1));
        if !strip.is_power_of_two() || strip < sector || strip > 1 << 30 {
            let what = format!("a strip of {strip} bytes: use a power of two, {sector} or more");
            return Err(Error::inval(what));
        }
        if self.name.is_empty() || self.name.len() > 15 || !self.name.is_ascii() {
            return Err(Error::inval(format!(
                "{:?} cannot be a name: 1 to 15 characters",
                self.name
            )));
        }
        let least = spaces.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0).saturating_sub(log);
        let each = size.unwrap_or(least);
        if each > least {
            let what = format!("{each} bytes of each disk: the smallest has {least} free");
            return Err(Error::inval(what));
        }
        let unit = if each >= 8 * ROUND { ROUND.max(strip) } else { strip };
        let each = each - each % unit;
        let each = if self.level.has_strips() || each > 0 { each } else { least - least % sector };
        let lens: Vec<u64> = match self.level {
            Level::Concat if size.is_none() => {
                spaces.iter().map(|(_, bytes)| bytes - bytes % unit.min(strip)).collect()
            }
            _ => vec![each; spaces.len()],
        };
        let bytes = self.level.capacity(strip, &lens).filter(|bytes| *bytes > 0);
        let Some(bytes) = bytes else {
            let (count, level) = (spaces.len(), level_str(self.level));
            let takes = (1..10).filter(|n| self.level.data_members(*n).is_some()).take(3);
            let takes: Vec<String> = takes.map(|n| n.to_string()).collect();
            let takes = takes.join(", ");
            return Err(Error::inval(match self.level.data_members(count) {
                None => format!("{count} disks make no {level}: it takes {takes} ... of them"),
                Some(_) => format!(
                    "{count} disks with {each} bytes free are too small for strips of {strip}"
                ),
            }));
        };
        let raw = self.level.redundant() && !self.params.assume_same.0;
        let member = |(disk, ((offset, _), bytes)): (usize, (&(u64, u64), &u64))| {
            let state = match present.get(disk) {
                Some(true) if raw => SubdiskState::Uninitialized,
                Some(true) => SubdiskState::Active,
                _ => SubdiskState::None,
            };
            Member { disk, offset: *offset, bytes: bytes + log, state }
        };
        let end = lens.first().copied().unwrap_or(0);
        let end = end - end % strip;
        let log = (log > 0).then_some(LogArea { at: end, bytes: log });
        let volume = Volume {
            name: self.name.to_owned(),
            id: self.id,
            level: self.level,
            strip,
            bytes,
            members: spaces.iter().zip(&lens).enumerate().map(member).collect(),
            dirty: false,
            migration: None,
            log,
        };
        if volume.state() == VolumeState::Broken {
            return Err(Error::inval("too many NONE: the data would be incomplete"));
        }
        Ok(volume)
    }
}
