//! LUNs whose provider is not there. It was lost, or it was not there when the daemon started (the
//! portal of another machine is not up yet, an array lacks members).
//!
//! ```text
//!   at the start: no provider --> awaited --it is there--> exported, initiators are notified
//!   later: no provider --> refused; an awaited or lost LUN stays so during other changes
//! ```
//!
//! Invariants
//!  W1  While the daemon starts, a provider that is not there keeps no other LUN from being served.
//!  W2  An awaited LUN is in no list. A host that knows it gets BECOMING READY and sends its
//!      commands again.
//!  W3  Once it has started, a name that is not there is refused as a mistake, unless a bus of the
//!      configuration may attach it: its own disks, and the providers found on them. So may a disk
//!      over a network whose server is absent.

use std::collections::{BTreeMap, BTreeSet};

use engine::lun::OpenSpec;
use engine::registry::LunChange;
use engine::{GroupSpec, LunSpec};
use geom::{GraphControl, Topology};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{AccessConfig, BusConfig, Config, DiskConfig, LunConfig, TargetConfig};
use mgmt::plan::{Action, Deferred, DeferredPart, FileSection, bus_may_provide, name_depends_on};

use super::specs::{group_spec, lun_spec, units_of};
use super::{Exports, RETRY_WAIT};
use crate::reattach::remote;

/// Whether a disk of a configuration may add a provider of that name. It is not in the graph, and
/// its medium is over a network and looked for.
pub fn disk_may_provide(topology: &Topology, disks: &[DiskConfig], name: &str) -> bool {
    let own = disks.iter().filter(|disk| name_depends_on(name, &disk.name));
    own.filter_map(remote).any(|(disk, ..)| topology.find(&disk.name).is_none())
}

/// The parts of the configuration to be reached that add providers later.
#[derive(Default)]
pub struct ProviderSources {
    pub(super) buses: Vec<BusConfig>,
    pub(super) disks: Vec<DiskConfig>,
}

impl ProviderSources {
    /// Those of a configuration.
    pub fn of(config: Config) -> ProviderSources {
        ProviderSources { buses: config.bus, disks: config.disk }
    }
}

/// Providers that are awaited.
#[derive(Default)]
pub(super) struct PendingLuns {
    by_target: BTreeMap<String, BTreeSet<String>>,
    /// Those that are there and could not be opened: why, and the graph's generation then.
    failed: BTreeMap<String, (String, u64)>,
}

impl PendingLuns {
    pub(super) fn is_empty(&self) -> bool {
        self.by_target.is_empty()
    }

    fn has(&self, provider: &str) -> bool {
        self.by_target.values().any(|names| names.contains(provider))
    }

    /// Providers have other names.
    pub(super) fn rename(&mut self, names: &[(String, String)]) {
        for awaited in self.by_target.values_mut() {
            for (from, to) in names {
                if awaited.remove(from) {
                    awaited.insert(to.clone());
                }
            }
        }
    }

    /// These could not be opened; they are tried again when the graph is another.
    pub(super) fn failed(&mut self, left: &[Deferred], generation: u64) {
        for left in left {
            if let DeferredPart::Export(name) = &left.part {
                self.failed.insert(name.clone(), (left.why.clone(), generation));
            }
        }
    }

    /// See [`Exports::refused_luns`].
    pub(super) fn refused(&self) -> BTreeMap<String, String> {
        self.failed.iter().map(|(name, (why, _))| (name.clone(), why.clone())).collect()
    }

    /// These are awaited at a target, and no others.
    pub(super) fn set(&mut self, target: &str, names: BTreeSet<String>) {
        match names.is_empty() {
            true => self.by_target.remove(target),
            false => self.by_target.insert(target.to_owned(), names),
        };
        let wanted: BTreeSet<&String> = self.by_target.values().flatten().collect();
        self.failed.retain(|name, _| wanted.contains(name));
    }

    /// These too.
    pub(super) fn add(&mut self, target: &str, names: BTreeSet<String>) {
        let known = self.by_target.remove(target).unwrap_or_default();
        self.set(target, known.into_iter().chain(names).collect());
    }
}

impl Exports {
    /// Whether the configuration is still being carried out for the first time.
    pub fn is_starting(&self) -> bool {
        self.registry.login_gate().is_shut()
    }

    /// Whether it is no mistake that a unit's provider is not there (W1, W3).
    pub fn may_wait(&self, topology: &Topology, provider: &str) -> bool {
        self.may_fail(provider)
            || self.registry.device(provider).is_some()
            || bus_may_provide(&self.sources.buses, provider)
            || disk_may_provide(topology, &self.sources.disks, provider)
    }

    /// Whether a unit that cannot be opened keeps no other LUN from being served (W1).
    pub(super) fn may_fail(&self, provider: &str) -> bool {
        self.is_starting() || self.is_retrying || self.pending_luns.has(provider)
    }

    /// Those of some providers that have no unit.
    pub(super) fn without_unit<'n>(
        &self,
        of: impl Iterator<Item = &'n String>,
    ) -> BTreeSet<String> {
        of.filter(|name| self.registry.device(name).is_none()).cloned().collect()
    }

    /// The part of a group that initiators see (W2).
    pub(super) fn visible_spec(&self, access: &AccessConfig) -> Result<GroupSpec> {
        let mut spec = group_spec(access)?;
        let (here, away) =
            spec.luns.into_iter().partition(|lun| self.registry.device(&lun.device).is_some());
        let away: Vec<LunSpec> = away;
        spec.awaited = away.into_iter().map(|lun| (lun.lun, lun.device)).collect();
        spec.luns = here;
        Ok(spec)
    }

    /// The same of a change: an awaited LUN replaces the LUN of that number.
    pub(super) fn visible_change(&self, lun: u64, to: &Option<LunConfig>) -> LunChange {
        match to {
            Some(to) if self.registry.device(&to.provider).is_some() => {
                LunChange::Set(lun_spec(lun, to))
            }
            Some(to) => LunChange::Await(lun, to.provider.clone()),
            None => LunChange::Remove(lun),
        }
    }

    /// Whether some unit has lost its provider, or has none yet.
    pub fn has_lost(&self) -> bool {
        !self.pending_luns.is_empty() || self.registry.has_lost()
    }

    /// Opens lost providers that have returned: answers their names, and the reason if one stays
    /// lost.
    pub fn reopen_lost(
        &self,
        control: &mut GraphControl,
        config: &Config,
    ) -> Vec<(String, Result<()>)> {
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
            (name, done.map(drop))
        };
        wanted.into_iter().map(one).collect()
    }

    /// Exports awaited providers that have appeared. Answers the targets that have more LUNs now,
    /// and the providers.
    pub fn export_pending(
        &mut self,
        control: &mut GraphControl,
        config: &Config,
    ) -> Vec<(TargetConfig, String, Result<()>)> {
        let generation = control.topology.generation();
        let failed = &self.pending_luns.failed;
        let is_here = |name: &&String| {
            let tried = failed.get(*name).is_some_and(|(_, when)| *when == generation);
            !tried && control.topology.find(name).is_some()
        };
        let came = |(target, names): (&String, &BTreeSet<String>)| {
            let here: Vec<String> = names.iter().filter(is_here).cloned().collect();
            let target = config.target(target).filter(|_| !here.is_empty())?;
            Some((target.clone(), here))
        };
        let came: Vec<(TargetConfig, Vec<String>)> =
            self.pending_luns.by_target.iter().filter_map(came).collect();
        let mut out = Vec::new();
        for (target, mut here) in came {
            let of = FileSection::Target(target.name.clone());
            let files = self.files.read_ahead(&Action::Renew { of }, None, RETRY_WAIT);
            let set = files
                .and_then(|files| files.replay(|| self.set_groups(control, &target, config, &[])));
            let left = match set {
                Ok(left) => left,
                Err(e) => {
                    out.push((target, here.join(", "), Err(e)));
                    continue;
                }
            };
            for left in left {
                let DeferredPart::Export(name) = left.part else { continue };
                here.retain(|other| *other != name);
                let why = Error::new(Kind::CannotCarryOut, "export", left.why);
                out.push((target.clone(), name, Err(why)));
            }
            if !here.is_empty() {
                out.push((target, here.join(", "), Ok(())));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W3.
    #[test]
    fn pending_lun_may_wait_for_providers_of_a_bus() {
        let named = BTreeMap::from([("store".to_owned(), "0:0".to_owned())]);
        let bus = BusConfig { names: named, ..BusConfig::default() };
        let comes = |name: &str| bus_may_provide(std::slice::from_ref(&bus), name);
        for name in ["da0", "ada12p1", "cd0", "store", "storep2", "multipath/store", "mirror/m"] {
            assert!(comes(name), "{name}");
            assert!(!bus_may_provide(&[], name), "{name}: there is no bus");
        }
        for name in ["dx0", "data", "d0", "other"] {
            assert!(!comes(name), "{name} is a mistake");
        }
    }
}
