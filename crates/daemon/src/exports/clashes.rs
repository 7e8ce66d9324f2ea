//! Units that hosts would take for one disk: two of one serial number, NAA name, UUID or EUI-64.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use control::api::{Error, Kind, Result};
use control::config::{Config, DiskConfig, UnitConfig};
use control::plan::{Action, Foreseen, Step};
use geom::Topology;
use target::Registry;
use target::ids::{Id, Ids};

use super::specs::units_of;
use crate::identities::Keeper;
use crate::identity;

/// What the steps ahead of a step do to units.
#[derive(Default)]
pub struct Ahead {
    /// Providers that some group has no longer.
    withdrawn: BTreeSet<String>,
    /// How units are shown then, where that changes.
    units: Option<Vec<UnitConfig>>,
    /// Disks that they make.
    made: BTreeMap<String, DiskConfig>,
    /// What hosts would know those by.
    foreseen: Foreseen,
}

impl Ahead {
    /// From those steps.
    pub fn new(before: &[Step], identities: &Keeper) -> Ahead {
        let (mut ahead, mut gone) = (Ahead::default(), BTreeSet::new());
        for step in before {
            match &step.action {
                Action::Units { to, .. } => ahead.units = Some(to.clone()),
                Action::RemoveDisk { disk } => {
                    gone.insert(disk.name.clone());
                }
                Action::CreateDisk { disk } => {
                    ahead.made.insert(disk.name.clone(), disk.clone());
                }
                other => {
                    let inverse = other.inverse();
                    let was = inverse.groups().flat_map(|access| access.luns.values());
                    ahead.withdrawn.extend(was.map(|lun| lun.provider.clone()));
                    for lun in other.groups().flat_map(|access| access.luns.values()) {
                        ahead.withdrawn.remove(&lun.provider);
                    }
                }
            }
        }
        let made: Vec<DiskConfig> = ahead.made.values().cloned().collect();
        ahead.foreseen = identities.foreseen(&made, &gone);
        ahead
    }
}

/// Whether the units of a step's LUNs can be told from each other and from those that are there,
/// as far as that is known before it is carried out.
pub fn check(
    topology: &Topology,
    registry: &Registry,
    config: &Config,
    step: &Step,
    ahead: &Ahead,
) -> Result<()> {
    let luns = step.action.groups().flat_map(|access| access.luns.values());
    let names: BTreeSet<&str> = luns.map(|lun| lun.provider.as_str()).collect();
    let stays = |disk: &&DiskConfig| !ahead.made.contains_key(&disk.name);
    let disks = ahead.made.values().chain(config.disk.iter().filter(stays));
    let disks = disks.filter(|disk| names.contains(disk.name.as_str())).cloned();
    let (disks, units) = (disks.collect::<Vec<_>>(), ahead.units.as_deref());
    let units = units.unwrap_or(&config.unit);
    let mut own: HashMap<Id, String> = HashMap::new();
    for (name, spec) in units_of(step.action.groups(), (units, &disks), None) {
        let there = || {
            let provider = topology.find(&name).filter(|_| !ahead.made.contains_key(&name))?;
            Some(identity::serial_of(topology, provider))
        };
        let foreseen = ahead.foreseen.get(&name).filter(|serial| !serial.is_empty());
        let serial = spec.serial.or_else(|| foreseen.cloned()).or_else(there);
        // One that gets a new identity is like no other.
        let Some(serial) = serial else { continue };
        let ids = Ids::new(&serial, spec.given).all();
        let other = |id: &Id| registry.known_by(id).filter(|o| !ahead.withdrawn.contains(o));
        clash(&ids, &name, |id| own.get(id).cloned().or_else(|| other(id)))?;
        own.extend(ids.into_iter().map(|id| (id, name.clone())));
    }
    Ok(())
}

/// Refuses a unit that hosts would take for another one: `owner` answers the unit that has a name.
pub fn clash(ids: &[Id], name: &str, owner: impl Fn(&Id) -> Option<String>) -> Result<()> {
    let other = |id: &Id| owner(id).filter(|other| other != name);
    let found = ids.iter().find_map(|id| Some((other(id)?, id)));
    let Some((other, id)) = found else { return Ok(()) };
    let (what, value, key) = (id.what(), &id.value, id.key);
    let why = format!(
        "{name} would have the {what} {value}, which is that of {other}: hosts would take them for \
         one disk"
    );
    let next = format!(
        "Give it its own: [[unit]] provider = \"{name}\", {key} = \"...\". A copy of an image has \
         the identity of the original."
    );
    Err(Error::new(Kind::Exists, "export", why).at(name).next(next))
}
