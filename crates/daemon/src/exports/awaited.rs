//! LUNs whose provider is not there: it was lost, or it was not there when the daemon started (the
//! portal of another machine is not up yet, an array lacks members).
//!
//! ```text
//!   at the start: no provider --> awaited --it is there--> exported, initiators are told
//!   later: no provider --> refused; who is awaited or lost stays so, whatever else is changed
//! ```
//!
//! Invariants
//!  W1  While the daemon starts, a provider that is not there keeps no other LUN from being served.
//!  W2  Initiators do not see an awaited LUN: what they would ask of it, nobody knows.
//!  W3  Once it has started, a name that nobody knows is a mistake, and is refused as one.

use std::collections::{BTreeMap, BTreeSet};

use control::api::Result;
use control::config::{AccessConfig, Config, LunConfig, TargetConfig};
use geom::Control;
use target::GroupSpec;
use target::lun::OpenSpec;
use target::registry::LunChange;

use super::Exports;
use super::specs::{group_spec, lun_spec, units_of};

/// Providers that are awaited, by target.
#[derive(Default)]
pub(super) struct Awaited(BTreeMap<String, BTreeSet<String>>);

impl Awaited {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, provider: &str) -> bool {
        self.0.values().any(|names| names.contains(provider))
    }

    /// These are awaited at a target, and no others.
    pub(super) fn set(&mut self, target: &str, names: BTreeSet<String>) {
        match names.is_empty() {
            true => self.0.remove(target),
            false => self.0.insert(target.to_owned(), names),
        };
    }

    /// These too.
    pub(super) fn add(&mut self, target: &str, names: BTreeSet<String>) {
        let known = self.0.remove(target).unwrap_or_default();
        self.set(target, known.into_iter().chain(names).collect());
    }
}

impl Exports {
    /// Whether the configuration is still being carried out for the first time.
    pub fn is_starting(&self) -> bool {
        self.registry.doors().are_shut()
    }

    /// Whether it is no mistake that a unit's provider is not there (W1, W3).
    pub(super) fn may_wait(&self, provider: &str) -> bool {
        self.is_starting() || self.awaited.has(provider) || self.registry.device(provider).is_some()
    }

    /// Those of some providers that have no unit.
    pub(super) fn unborn<'n>(&self, of: impl Iterator<Item = &'n String>) -> BTreeSet<String> {
        of.filter(|name| self.registry.device(name).is_none()).cloned().collect()
    }

    /// What initiators see of a group (W2).
    pub(super) fn shown(&self, access: &AccessConfig) -> Result<GroupSpec> {
        let mut spec = group_spec(access)?;
        spec.luns.retain(|lun| self.registry.device(&lun.device).is_some());
        Ok(spec)
    }

    /// The same of a change: one that is awaited takes the place of what was there.
    pub(super) fn shown_change(&self, lun: u64, to: &Option<LunConfig>) -> LunChange {
        match to {
            Some(to) if self.registry.device(&to.provider).is_some() => {
                LunChange::Set(lun_spec(lun, to))
            }
            _ => LunChange::Remove(lun),
        }
    }

    /// Whether some unit has lost its provider, or has none yet.
    pub fn has_lost(&self) -> bool {
        !self.awaited.is_empty() || !self.registry.lost().is_empty()
    }

    /// Opens anew what was lost and has come back: answers the names, or why one stays lost.
    pub fn revive(&self, control: &mut Control, config: &Config) -> Vec<(String, Result<()>)> {
        let lost: BTreeSet<String> = self.registry.lost().into_iter().collect();
        if lost.is_empty() {
            return Vec::new();
        }
        let mut wanted = units_of(config.access.iter(), (&config.unit, &config.disk), None);
        wanted.retain(|name, _| lost.contains(name) && control.topology.find(name).is_some());
        let one = |(name, unit): (String, OpenSpec)| {
            let only = BTreeMap::from([(name.clone(), unit)]);
            let maps = |a: &&AccessConfig| a.luns.values().any(|lun| lun.provider == name);
            let at: BTreeSet<&str> =
                config.access.iter().filter(maps).map(|a| a.target.as_str()).collect();
            let targets: Vec<&TargetConfig> =
                config.target.iter().filter(|t| at.contains(t.name.as_str())).collect();
            let done = self.open_devices(control, &only, &targets, &mut Vec::new());
            (name, done)
        };
        wanted.into_iter().map(one).collect()
    }

    /// Exports what was awaited and has come: the targets that have more LUNs now, and by what.
    pub fn fulfil(
        &mut self,
        control: &mut Control,
        config: &Config,
    ) -> Vec<(TargetConfig, String, Result<()>)> {
        let came = |(target, names): (&String, &BTreeSet<String>)| {
            let here = names.iter().filter(|name| control.topology.find(name).is_some());
            let here: Vec<&str> = here.map(String::as_str).collect();
            let target = config.target(target).filter(|_| !here.is_empty())?;
            Some((target.clone(), here.join(", ")))
        };
        let came: Vec<(TargetConfig, String)> = self.awaited.0.iter().filter_map(came).collect();
        let export = |(target, names): (TargetConfig, String)| {
            let done = self.set_groups(control, &target, config);
            (target, names, done)
        };
        came.into_iter().map(export).collect()
    }
}
