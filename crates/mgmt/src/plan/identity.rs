//! The disks that hosts see behind a LUN before and after a plan. Hosts do not know a disk by the
//! name of its section or the path of its file.

use super::depend::owner_entry;
use super::disk_edits::{ID_KEYS, renumbered_disks};
use super::rename::{given_names, is_part, rename_reference};
use crate::api::{LunState, SystemState};
use crate::config::{Catalog, Config, DiskConfig, LunConfig};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Serial numbers of units on disks that a plan makes, by the name of the disk. Empty: the disk
/// gets a new one, which no host knows. Not in it: nothing is known of the disk.
pub type PredictedSerials = BTreeMap<String, String>;

/// Serial number, NAA name, UUID and EUI-64 that are configured.
pub(super) type UnitIds<'c> = [Option<&'c str>; 4];

/// Length of a sector, bytes, by the provider of a disk or geom; `None`: that of a medium.
type Sectors = HashMap<String, Option<u64>>;

/// Sector of a disk whose section does not give one, bytes.
const SECTOR_BYTES: u64 = 512;

/// See the module.
pub struct Identities<'a> {
    exported: HashMap<String, &'a LunState>,
    running: HashMap<&'a str, UnitIds<'a>>,
    desired: HashMap<&'a str, UnitIds<'a>>,
    foreseen: &'a PredictedSerials,
    /// Sectors of the disks and geoms of both configurations.
    sectors: [Sectors; 2],
    /// Disks that are given another serial number.
    renumbered: Vec<&'a str>,
}

impl<'a> Identities<'a> {
    /// Of a plan that renames disks first, `renames`; `running` and `desired` have the new names.
    pub fn new(
        running: &'a Config,
        desired: &'a Config,
        (state, renames): (&'a SystemState, &[(DiskConfig, DiskConfig)]),
        (foreseen, catalog): (&'a PredictedSerials, &Catalog),
    ) -> Identities<'a> {
        let groups = state.targets.iter().flat_map(|t| &t.groups);
        let luns = groups.flat_map(|g| &g.luns).filter(|lun| !lun.serial.is_empty());
        let taken = given_names(running);
        let called = |lun: &LunState| {
            let mut name = lun.provider.clone();
            renames
                .iter()
                .for_each(|(from, to)| rename_reference(&mut name, &from.name, &to.name, &taken));
            name
        };
        Identities {
            exported: luns.map(|lun| (called(lun), lun)).collect(),
            running: unit_ids(running),
            desired: unit_ids(desired),
            foreseen,
            sectors: [running, desired].map(|config| sectors(config, catalog)),
            renumbered: renumbered_disks(running, desired, state),
        }
    }

    /// The serial number that hosts see of a provider now.
    pub fn current_serial(&self, provider: &str) -> Option<&str> {
        self.exported.get(provider).map(|lun| lun.serial.as_str())
    }

    /// The serial number that hosts see behind a LUN now, and that of its provider after the plan,
    /// as far as it is known.
    fn serials(&self, was: &str, is: &str) -> (Option<&str>, Option<&str>) {
        let now = self.exported.get(was).map(|lun| lun.serial.as_str());
        let [written, ..] = self.desired.get(is).copied().unwrap_or_default();
        let [before, ..] = self.running.get(is).copied().unwrap_or_default();
        let foreseen = || self.foreseen.get(is).map(String::as_str);
        // A provider without a configured serial number keeps the one that it has.
        let stays = || {
            let lun = self.exported.get(is).filter(|_| before.is_none());
            lun.map(|lun| lun.serial.as_str())
        };
        let renumbered = || self.is_renumbered_part(is).then_some("");
        (now, written.or_else(foreseen).or_else(renumbered).or_else(stays))
    }

    /// Whether a provider is a partition of a disk that is given another serial number: the serial
    /// number of its unit is made from that.
    fn is_renumbered_part(&self, provider: &str) -> bool {
        let rests = self.renumbered.iter().filter_map(|disk| provider.strip_prefix(*disk));
        rests.filter(|rest| !rest.is_empty()).any(is_part)
    }

    /// Why a host that continues under a LUN's number would write its old blocks to another disk.
    pub fn serial_conflict(&self, was: &LunConfig, is: &LunConfig) -> Option<String> {
        let (was, is) = (was.provider.as_str(), is.provider.as_str());
        if let Some(why) = self.other_sector(was, is) {
            return Some(why);
        }
        let (now, then) = self.serials(was, is);
        match (now, then) {
            (Some(now), Some("")) => return Some(format!("serial number {now} -> a new one")),
            (Some(now), Some(then)) if now != then => {
                return Some(format!("serial number {now} -> {then}"));
            }
            (Some(_), Some(_)) => {}
            _ if was != is => return Some(format!("provider {was} -> {is}")),
            _ => {}
        }
        let of =
            |all: &HashMap<&str, UnitIds<'a>>, name| all.get(name).copied().unwrap_or_default();
        let (before, after) = (of(&self.running, was), of(&self.desired, is));
        let known = now.is_some() && then.is_some();
        // A serial number that is known was compared as hosts see it; of it the case counts.
        let differs = |i: &usize| {
            let [was, is] = [before.get(*i), after.get(*i)].map(|name| name.copied().flatten());
            match i {
                0 => !known && was != is,
                _ => was.map(str::to_lowercase) != is.map(str::to_lowercase),
            }
        };
        let at = (0..ID_KEYS.len()).find(differs)?;
        let show =
            |names: UnitIds<'_>| names.get(at).copied().flatten().unwrap_or("default").to_owned();
        let key = ID_KEYS.get(at).copied().unwrap_or_default();
        Some(format!("{key} {} -> {}", show(before), show(after)))
    }

    /// How the sectors of two disks differ in length: a host that continues would write elsewhere.
    fn other_sector(&self, was: &str, is: &str) -> Option<String> {
        let [running, desired] = &self.sectors;
        let (before, after) = (sector_of(running, was)?, sector_of(desired, is)?);
        (before != after).then(|| format!("sector_size {before} -> {after}"))
    }

    /// The serial number by which hosts know the disk behind a LUN, whose provider has another name
    /// now.
    pub fn kept_serial(&self, was: &LunConfig, is: &LunConfig) -> Option<&str> {
        let (now, _) = self.serials(&was.provider, &is.provider);
        now.filter(|_| was.provider != is.provider && self.serial_conflict(was, is).is_none())
    }
}

/// Sectors as the sections give them; a geom has those of its first member.
fn sectors(config: &Config, catalog: &Catalog) -> Sectors {
    let sector = |disk: &DiskConfig| match disk.params.get("sector_size") {
        None if catalog.disk(&disk.kind).has_sectors_of_medium => None,
        size => Some(size.and_then(Value::as_u64).unwrap_or(SECTOR_BYTES)),
    };
    let disks = config.disk.iter();
    let mut all: Sectors = disks.map(|disk| (disk.name.clone(), sector(disk))).collect();
    // Each round adds those whose member is known; a geom may precede its member.
    for _ in 0..config.geom.len() {
        let known = all.len();
        for geom in &config.geom {
            let first = geom.provider_names().next().and_then(|name| sector_of(&all, name));
            all.extend(first.map(|bytes| (format!("{}/{}", geom.class, geom.name), Some(bytes))));
        }
        if all.len() == known {
            break;
        }
    }
    all
}

/// Of a disk, a geom, or a partition of one.
fn sector_of(all: &Sectors, name: &str) -> Option<u64> {
    owner_entry(all, name).copied().flatten()
}

/// The identity that the section of a disk gives to the unit on it.
pub(super) fn disk_ids(disk: &DiskConfig) -> UnitIds<'_> {
    ID_KEYS.map(|key| disk.params.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()))
}

/// Names that are configured for providers; those of a unit count before those of its disk.
pub(super) fn unit_ids(config: &Config) -> HashMap<&str, UnitIds<'_>> {
    let mut all: HashMap<&str, UnitIds<'_>> = HashMap::new();
    for unit in &config.unit {
        let own = [&unit.serial, &unit.naa, &unit.uuid, &unit.eui64];
        all.insert(&unit.provider, own.map(Option::as_deref));
    }
    for lun in config.access.iter().flat_map(|a| a.luns.values()) {
        if let Some(serial) = lun.serial.as_deref() {
            let [of, ..] = all.entry(&lun.provider).or_default();
            of.get_or_insert(serial);
        }
    }
    for disk in &config.disk {
        let own = disk_ids(disk);
        if own.iter().any(Option::is_some) {
            let of = all.entry(&disk.name).or_default();
            of.iter_mut().zip(own).for_each(|(name, own)| *name = name.or(own));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DiskFacts, Entry, GeomConfig};
    use geom::NoParams;

    #[test]
    fn partitions_and_geoms_have_the_sectors_of_their_disk() {
        let disk = |name: &str, kind: &str, bytes: Option<u64>| DiskConfig {
            name: name.into(),
            kind: kind.into(),
            params: bytes.into_iter().map(|b| ("sector_size".to_owned(), b.into())).collect(),
        };
        let geom = |name: &str, members: &[&str]| GeomConfig {
            class: "mirror".into(),
            name: name.into(),
            provider: None,
            members: members.iter().map(|m| (*m).to_owned()).collect(),
            params: Default::default(),
        };
        let config = Config {
            disk: vec![
                disk("d1", "file", None),
                disk("d", "file", Some(4096)),
                disk("n", "nbd", None),
                disk("d1a", "nbd", None),
            ],
            geom: vec![
                geom("upper", &["mirror/mp1"]),
                geom("m", &["dp2", "d1"]),
                geom("far", &["n"]),
            ],
            ..Config::default()
        };
        let facts = DiskFacts { has_sectors_of_medium: true, ..DiskFacts::default() };
        let nbd = Entry::of::<NoParams>("nbd", "").disk(facts);
        let all = sectors(&config, &Catalog { disks: vec![nbd], ..Catalog::default() });
        let of = |name| sector_of(&all, name);
        assert_eq!([of("d"), of("dp1"), of("d.nop"), of("mirror/upper")], [Some(4096); 4]);
        assert_eq!([of("mirror/m"), of("mirror/ms1")], [Some(4096); 2]);
        assert_eq!([of("d1"), of("d1s2"), of("d1b")], [Some(512); 3]);
        assert_eq!([of("n"), of("mirror/far"), of("gpt/d"), of("dx9")], [None; 4]);
        // An NBD disk of that name, and a word.
        assert_eq!([of("d1a"), of("da")], [None; 2]);
    }
}
