//! Guard of protection information, which is not made over existing data without consent. A plan
//! requests consent by the provider's name. A start has no consent, and no consent can be given for
//! a disk that appears later.
//!
//! A unit is opened when a group maps its provider, or when a disk is made again that a group still
//! maps. The steps of a plan that do so are checked by the same guard: on the image of a disk that
//! the plan makes, and on the provider otherwise.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use classes::guard;
use engine::lun::{self, OpenSpec};
use engine::state_store::RecordKind as Record;
use engine::{PROTECTION_MAGIC, ProtectionSpec, protection_header_offset};
use geom::GraphControl;
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{AccessConfig, Config, UnitConfig};
use mgmt::plan::{Action, DataLoss, Step, name_depends_on};
use mgmt::shell_word;

use super::{Exports, units_of};
use crate::identity;
use crate::images::{Images, planned_disk, planned_images};
use crate::within::{CHECKS_LIMIT, Subject, within};

/// The providers of the LUNs of some groups.
fn providers<'c>(groups: impl Iterator<Item = &'c AccessConfig>) -> impl Iterator<Item = &'c str> {
    groups.flat_map(|group| group.luns.values()).map(|lun| lun.provider.as_str())
}

/// Units with protection information that an action opens. `now`: the configuration before it.
fn opened_protected(action: &Action, now: &Config) -> BTreeMap<String, OpenSpec> {
    let is_protected = |unit: &&UnitConfig| !unit.protection.is_none();
    let opened: BTreeSet<&str> = match action {
        // Each disk of a start: no group maps it yet, and the units are not looked through.
        Action::CreateDisk { .. } if now.access.is_empty() => BTreeSet::new(),
        Action::CreateDisk { disk } => {
            let unit = now.unit(&disk.name).filter(is_protected);
            let unit = unit.filter(|_| providers(now.access.iter()).any(|name| name == disk.name));
            unit.map(|unit| unit.provider.as_str()).into_iter().collect()
        }
        _ if action.groups().next().is_none() => BTreeSet::new(),
        _ => {
            let exported: HashSet<&str> = providers(action.groups()).collect();
            let mapped: HashSet<&str> = providers(now.access.iter()).collect();
            let units = now.unit.iter().filter(is_protected).map(|unit| unit.provider.as_str());
            units.filter(|name| exported.contains(name) && !mapped.contains(name)).collect()
        }
    };
    if opened.is_empty() {
        return BTreeMap::new();
    }
    let groups = now.access.iter().chain(action.groups());
    units_of(groups, (&now.unit, &now.disk), Some(&opened))
}

/// The disks that a provider is made of, by the sections of a configuration.
fn disks_below<'c>(provider: &str, config: &'c Config) -> BTreeSet<&'c str> {
    let (mut disks, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut left = vec![provider];
    while let Some(name) = left.pop() {
        let geom = config.geom.iter().find(|geom| name_depends_on(name, &geom.name));
        match geom {
            Some(geom) if seen.insert(&geom.name) => left.extend(geom.provider_names()),
            Some(_) => {}
            None => {
                let own = config.disk.iter().find(|disk| name_depends_on(name, &disk.name));
                disks.extend(own.map(|disk| disk.name.as_str()));
            }
        }
    }
    disks
}

/// The images of some disks and partitions that actions make, if all answer in time. Without them
/// the data is found when the unit is opened.
fn images_in_time<'b>(names: BTreeSet<&str>, actions: impl Iterator<Item = &'b Action>) -> Images {
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let makes = |action: &&Action| matches!(action, Action::CreateDisk { .. });
    let actions: Vec<Action> = actions.filter(makes).cloned().collect();
    let subject = Subject::objects("read images", names.iter().map(String::as_str));
    let read = move || planned_images(names.iter().map(String::as_str), actions.iter());
    within(CHECKS_LIMIT, &subject, read).unwrap_or_default()
}

/// The data on the images below a provider that its protection information may overwrite, in words.
fn held_on_images(provider: &str, images: &Images) -> Option<String> {
    let by = guard::Requester { class: lun::CLASS, geom: provider, force: false };
    // The end of a partition is read, and not that of its disk.
    let has_own = images.contains_key(provider);
    let below = images.iter().filter(|(name, _)| !has_own || *name == provider);
    let unmade = below.filter(|(_, image)| !image.ends_with(PROTECTION_MAGIC));
    let mut held = unmade.filter_map(|(disk, image)| Some((disk, image.contents(by)?)));
    let (disk, held) = held.next()?;
    Some(match disk == provider {
        true => overwrites(provider, &held),
        false => format!("{provider} is on {disk}, {}", overwrites("which", &held)),
    })
}

/// The data that protection information would overwrite at the ends of units that an action opens.
/// `now`: the configuration before it. `ask` answers for units on providers that are there. Images
/// of disks that the plan makes are read with a deadline, on a thread of their own.
pub fn lost_to_protection(
    action: &Action,
    before: &[Step],
    now: &Config,
    ask: impl FnOnce(BTreeMap<String, OpenSpec>) -> Result<Vec<(String, String)>>,
) -> Option<DataLoss> {
    let mut opened = opened_protected(action, now);
    let actions = before.iter().map(|step| &step.action).chain([action]);
    let mut lost: Vec<(String, String)> = Vec::new();
    opened.retain(|name, _| {
        let mut below = disks_below(name, now);
        below.insert(name);
        if below.iter().all(|disk| planned_disk(disk, actions.clone()).is_none()) {
            // An earlier step may need the same consent.
            return !before.iter().any(|step| step.consent_names.contains(name));
        }
        let images = images_in_time(below, actions.clone());
        lost.extend(held_on_images(name, &images).map(|why| (name.clone(), why)));
        false
    });
    if !opened.is_empty() {
        // An error means that the daemon is stopping.
        lost.extend(ask(opened).unwrap_or_default());
    }
    let (names, why): (Vec<String>, Vec<String>) = lost.into_iter().unzip();
    (!names.is_empty()).then(|| DataLoss { why: why.join("; "), names })
}

/// The loss of data at the end of a provider, in words.
fn overwrites(provider: &str, held: &str) -> String {
    format!("{provider} contains {held}, and protection information would overwrite its end")
}

impl Exports {
    /// The data that protection information would overwrite if these units were opened now, in
    /// words, with the names of their providers.
    pub fn lost_to_protection(
        &self,
        control: &mut GraphControl,
        units: &BTreeMap<String, OpenSpec>,
    ) -> Vec<(String, String)> {
        let mut lost = Vec::new();
        for (name, unit) in units {
            let Some(provider) = control.topology.find(name) else { continue };
            let is_known = |serial: &str| self.registry.is_known_serial(serial);
            let derived = || identity::serial_of(&control.topology, provider, is_known);
            let serial = unit.serial.clone().unwrap_or_else(derived);
            let held = self.held_at_end(control, name, (&serial, unit.protection));
            lost.extend(held.map(|held| (name.clone(), overwrites(name, &held))));
        }
        lost
    }

    /// The data at the end of a provider that protection information of its unit would overwrite.
    fn held_at_end(
        &self,
        control: &mut GraphControl,
        name: &str,
        (serial, protection): (&str, ProtectionSpec),
    ) -> Option<String> {
        if protection == ProtectionSpec::Off {
            return None;
        }
        let at = (lun::CLASS, name);
        // Of a provider that has grown since the record was written. A record without a place, and
        // a place that cannot be read, are left to the unit, which writes nothing then.
        let kept = self.registry.state_store().load(serial, Record::Protection).ok().flatten();
        let is_made = kept.filter(|bytes| !bytes.is_empty()).is_some_and(|record| {
            protection_header_offset(&record).is_none_or(|offset| {
                guard::begins_with(control, at, Some(offset), PROTECTION_MAGIC).unwrap_or(true)
            })
        });
        if is_made || guard::begins_with(control, at, None, PROTECTION_MAGIC).is_ok_and(|is| is) {
            return None;
        }
        let by = guard::Requester { class: lun::CLASS, geom: name, force: false };
        guard::held(control, by, name)
    }

    /// Refuses a unit whose protection information would be made now, over existing data at the end
    /// of its provider.
    pub(super) fn may_protect(
        &self,
        control: &mut GraphControl,
        name: &str,
        unit: (&str, ProtectionSpec),
    ) -> Result<()> {
        if self.consent.iter().any(|given| given == name) {
            return Ok(());
        }
        let Some(held) = self.held_at_end(control, name, unit) else { return Ok(()) };
        let why = format!("contains {held}, and protection information would overwrite its end");
        let next = format!(
            "Remove `protection` from its [[unit]] and run `ashlar apply`; to lose the contents \
             instead, restore the key and run `ashlar apply --yes-destroy {}`.",
            shell_word(name)
        );
        Err(Error::new(Kind::WouldDestroy, "export", why).at(name).next(next))
    }
}

#[cfg(test)]
mod tests {
    use mgmt::config::{DiskConfig, UnitProtection};

    use super::*;

    fn unit(provider: &str, protection: UnitProtection) -> UnitConfig {
        UnitConfig { provider: provider.into(), protection, ..UnitConfig::default() }
    }

    fn group(provider: &str) -> AccessConfig {
        let lun = serde_json::from_value(provider.into()).expect("a LUN");
        AccessConfig { luns: BTreeMap::from([(0, lun)]), ..AccessConfig::default() }
    }

    #[test]
    fn protected_unit_is_opened_by_its_disk_or_its_first_group() {
        let create = |name: &str| Action::CreateDisk {
            disk: DiskConfig { name: name.into(), kind: "null".into(), params: Default::default() },
        };
        let map = |name: &str| Action::CreateAccess { access: group(name) };
        let opened = |action: Action, now: &Config| -> Vec<String> {
            opened_protected(&action, now).into_keys().collect()
        };
        let units = vec![unit("a", UnitProtection::Type1), unit("plain", UnitProtection::None)];
        let mut now = Config { unit: units, ..Config::default() };
        assert!(opened(create("a"), &now).is_empty(), "no group maps it");
        assert_eq!(opened(map("a"), &now), ["a"]);
        assert!(opened(map("plain"), &now).is_empty());
        now.access = vec![group("a"), group("plain")];
        assert_eq!(opened(create("a"), &now), ["a"]);
        assert!(opened(create("plain"), &now).is_empty());
        assert!(opened(map("a"), &now).is_empty(), "it is open");
    }
}
