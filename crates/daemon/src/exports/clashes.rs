//! Units that hosts would take for one disk: two of one serial number, NAA name, UUID or EUI-64.

use std::collections::{BTreeSet, HashMap, HashSet};

use engine::Registry;
use engine::ids::{Id, Ids};
use geom::Topology;
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{AccessConfig, Config, DiskConfig, UnitConfig};
use mgmt::plan::{Action, PredictedSerials, Step};

use super::specs::units_of;
use crate::identities::IdentityKeeper;
use crate::identity;

/// Whether a step of a plan brings units to hosts and may not stay undone.
pub fn must_export(step: &Step) -> bool {
    step.action.groups().next().is_some() && !step.may_wait
}

/// The identities by which hosts would know the disks that a plan makes.
pub fn predict_serials(steps: &[Step], identities: &IdentityKeeper) -> PredictedSerials {
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
    foreseen: &'a PredictedSerials,
    units: HashMap<&'a str, &'a UnitConfig>,
    disks: HashMap<&'a str, &'a DiskConfig>,
    /// Disks that the steps make.
    created: HashSet<&'a str>,
    /// Providers that some group gives up: their units are made anew.
    withdrawn: HashSet<&'a str>,
    /// Units that the steps make.
    made_units: HashMap<Id, String>,
}

/// The first step of a plan after which hosts would take two units for one disk, as far as that is
/// known before it is carried out.
pub fn find(
    (topology, registry): (&Topology, &Registry),
    config: &Config,
    steps: &[Step],
    foreseen: &PredictedSerials,
) -> Option<(usize, Error)> {
    let mut walk = ClashCheck {
        topology,
        registry,
        foreseen,
        units: by_provider(&config.unit),
        disks: config.disk.iter().map(|d| (d.name.as_str(), d)).collect(),
        created: HashSet::new(),
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
            let foreseen = self.foreseen.get(&name).filter(|serial| !serial.is_empty());
            let serial = spec.serial.or_else(|| foreseen.cloned()).or_else(there);
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
