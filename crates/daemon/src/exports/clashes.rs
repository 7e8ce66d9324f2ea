//! Units that a plan could not open. They are two that hosts would take for one disk, by serial
//! number, NAA name, UUID or EUI-64, and those whose provider cannot keep their protection
//! information.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use engine::ids::{Id, Ids};
use engine::lun::{self, OpenSpec};
use engine::{ProtectionSpec, Registry};
use geom::Topology;
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{AccessConfig, Config, DiskConfig, UnitConfig};
use mgmt::plan::{Action, PredictedSerials, Step, owner_names};

use super::specs::units_of;
use crate::errors::from_geom;
use crate::identities::IdentityKeeper;
use crate::identity;
use crate::images::MediumFacts;

/// Whether a step of a plan exports units to hosts and may not stay undone.
pub fn must_export(step: &Step) -> bool {
    step.action.groups().next().is_some() && !step.may_wait
}

/// The disks that a plan makes.
#[derive(Default)]
pub struct PredictedDisks {
    /// The identities by which hosts would know them.
    serials: PredictedSerials,
    /// The media of those whose units have protection information.
    media: BTreeMap<String, MediumFacts>,
}

impl PredictedDisks {
    /// Those of some steps. `config`: the configuration before them. Looks at files, which may
    /// block.
    pub fn of(steps: &[Step], config: &Config, identities: &IdentityKeeper) -> PredictedDisks {
        let units = steps.iter().rev().find_map(|step| match &step.action {
            Action::Units { to, .. } => Some(to),
            _ => None,
        });
        let protected = units.unwrap_or(&config.unit).iter().filter(|u| !u.protection.is_none());
        let protected: HashSet<&str> = protected.map(|unit| unit.provider.as_str()).collect();
        let media = steps.iter().filter_map(|step| match &step.action {
            Action::CreateDisk { disk } if protected.contains(disk.name.as_str()) => {
                Some((disk.name.clone(), MediumFacts::of(disk)?))
            }
            _ => None,
        });
        PredictedDisks { media: media.collect(), serials: predict_serials(steps, identities) }
    }
}

fn predict_serials(steps: &[Step], identities: &IdentityKeeper) -> PredictedSerials {
    let (mut created, mut gone) = (Vec::new(), BTreeSet::new());
    for step in steps {
        match &step.action {
            Action::RemoveDisk { disk } => drop(gone.insert(disk.name.clone())),
            Action::CreateDisk { disk } => created.push(disk.clone()),
            _ => {}
        }
    }
    identities.predict_serials(&created, &gone)
}

/// The state of units after some steps of a plan.
struct ClashCheck<'a> {
    topology: &'a Topology,
    registry: &'a Registry,
    foreseen: &'a PredictedDisks,
    units: HashMap<&'a str, &'a UnitConfig>,
    disks: HashMap<&'a str, &'a DiskConfig>,
    /// Disks that the steps make.
    created: HashSet<&'a str>,
    /// Geoms that the steps make.
    made_geoms: HashSet<&'a str>,
    /// Providers that some group gives up: their units are made anew.
    withdrawn: HashSet<&'a str>,
    /// Units that the steps make.
    made_units: HashMap<Id, String>,
}

/// The first step of a plan with a unit that could not be opened, as far as that is known before it
/// is carried out.
pub fn find(
    (topology, registry): (&Topology, &Registry),
    config: &Config,
    steps: &[Step],
    foreseen: &PredictedDisks,
) -> Option<(usize, Error)> {
    let mut walk = ClashCheck {
        topology,
        registry,
        foreseen,
        units: by_provider(&config.unit),
        disks: config.disk.iter().map(|d| (d.name.as_str(), d)).collect(),
        created: HashSet::new(),
        made_geoms: HashSet::new(),
        withdrawn: HashSet::new(),
        made_units: HashMap::new(),
    };
    let mut all = steps.iter().enumerate();
    all.find_map(|(i, step)| Some((i, walk.step(step).err()?)))
}

fn by_provider(units: &[UnitConfig]) -> HashMap<&str, &UnitConfig> {
    units.iter().map(|u| (u.provider.as_str(), u)).collect()
}

impl<'a> ClashCheck<'a> {
    fn step(&mut self, step: &'a Step) -> Result<()> {
        let before: &[AccessConfig] = match &step.action {
            Action::Units { to, .. } => {
                self.units = by_provider(to);
                return Ok(());
            }
            Action::CreateDisk { disk } => {
                self.created.insert(&disk.name);
                self.disks.insert(&disk.name, disk);
                return Ok(());
            }
            Action::CreateGeom { geom } => {
                self.made_geoms.insert(&geom.name);
                return Ok(());
            }
            Action::IdentifyDisk { to, .. } => {
                self.disks.insert(&to.name, to);
                return Ok(());
            }
            Action::RemoveAccess { access } => std::slice::from_ref(access),
            Action::ModifyAccess { from, .. } => std::slice::from_ref(from),
            Action::Regroup { from, .. } => from,
            _ => &[],
        };
        let of = |groups: &'a [AccessConfig]| {
            groups.iter().flat_map(|a| a.luns.values()).map(|lun| lun.provider.as_str())
        };
        let stay: HashSet<&str> = step
            .action
            .groups()
            .flat_map(|a| a.luns.values())
            .map(|lun| lun.provider.as_str())
            .collect();
        self.withdrawn.extend(of(before).filter(|name| !stay.contains(name)));
        if must_export(step) { self.units_of(step) } else { Ok(()) }
    }

    /// Checks that the units of a step's LUNs differ from each other, and from existing ones.
    fn units_of(&mut self, step: &Step) -> Result<()> {
        let luns = step.action.groups().flat_map(|access| access.luns.values());
        let names: BTreeSet<&str> = luns.map(|lun| lun.provider.as_str()).collect();
        let units = names.iter().filter_map(|name| self.units.get(name).copied().cloned());
        let disks = names.iter().filter_map(|name| self.disks.get(name).copied().cloned());
        let (units, disks): (Vec<_>, Vec<_>) = (units.collect(), disks.collect());
        for (name, spec) in units_of(step.action.groups(), (&units, &disks), None) {
            let there = || {
                let is_there = !self.created.contains(name.as_str());
                let provider = self.topology.find(&name).filter(|_| is_there)?;
                let is_known = |serial: &str| self.registry.is_known_serial(serial);
                Some(identity::serial_of(self.topology, provider, is_known))
            };
            let foreseen = self.foreseen.serials.get(&name).filter(|serial| !serial.is_empty());
            let serial = spec.serial.clone().or_else(|| foreseen.cloned()).or_else(there);
            self.check_protection(&name, &OpenSpec { serial: serial.clone(), ..spec.clone() })?;
            // One that gets a new identity is like no other.
            let Some(serial) = serial else { continue };
            let ids = Ids::new(&serial, spec.configured_ids).all();
            let is_there = |other: &String| !self.withdrawn.contains(other.as_str());
            let other = |id: &Id| self.registry.unit_by_id(id).filter(is_there);
            clash(&ids, &name, |id| self.made_units.get(id).cloned().or_else(|| other(id)))?;
            self.made_units.extend(ids.into_iter().map(|id| (id, name.clone())));
        }
        Ok(())
    }

    /// Refuses a unit that is opened on a provider which cannot keep its protection information.
    fn check_protection(&self, name: &str, unit: &OpenSpec) -> Result<()> {
        if unit.protection == ProtectionSpec::Off {
            return Ok(());
        }
        let makes = |owner: &str| self.created.contains(owner) || self.made_geoms.contains(owner);
        let is_made = owner_names(name).any(makes);
        let is_opened =
            is_made || self.withdrawn.contains(name) || self.registry.device(name).is_none();
        if !is_opened {
            return Ok(());
        }
        let there = || {
            let provider = self.topology.find(name)?;
            let limits = self.topology.limits(provider)?;
            let is_read_only = self.topology.is_read_only(provider);
            let (bytes, sector) = (limits.media_bytes, limits.sector_bytes);
            Some(MediumFacts { bytes, sector, is_read_only })
        };
        let medium = if is_made { self.foreseen.media.get(name).copied() } else { there() };
        // Nothing is known of a geom or partition that the steps make.
        let Some(medium) = medium else { return Ok(()) };
        let unit = OpenSpec { read_only: unit.read_only || medium.is_read_only, ..unit.clone() };
        let at = (medium.bytes, medium.sector);
        lun::check_protection(self.registry, name, &unit, at).map_err(|e| {
            let next = format!(
                "Name another file in the section of the disk below {name}, or remove `protection` \
                 from its [[unit]]."
            );
            from_geom("export", name, e).next(next)
        })
    }
}

/// Refuses a unit that hosts would take for another one: `owner` answers the unit that has a name.
pub fn clash(ids: &[Id], name: &str, owner: impl Fn(&Id) -> Option<String>) -> Result<()> {
    let other = |id: &Id| owner(id).filter(|other| other != name);
    let found = ids.iter().find_map(|id| Some((other(id)?, id)));
    let Some((other, id)) = found else { return Ok(()) };
    let (what, value, key) = (id.kind_name(), &id.value, id.key);
    let why = format!("{what} {value} belongs to {other}: hosts would take the two for one disk");
    let next = format!(
        "Give {name} its own: [[unit]] provider = \"{name}\", {key} = \"...\". A copy of an image \
         has the identity of the original."
    );
    Err(Error::new(Kind::Exists, "export", why).at(name).next(next))
}
