//! The class `cam`: a disk of a bus as a geom with one provider, `da0` or `ada0`.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::Errno;
use geom::{
    Access, Class, Control, Error, Geom, GeomId, Inbox, NewProvider, ProviderId, Switchboard,
    Topology, VerbSpec,
};

use serde_json::Value;

use crate::bus::{Bus, Change};
use crate::periph::{Disk, DiskLayer, Facts};
use crate::sim::Sim;
use crate::unit::Unit;

/// Name of the class.
pub const CAM_CLASS: &str = "cam";

/// What it is.
pub const CAM_DOC: &str = "Disks that are reached by commands, whatever carries the commands.";

/// Most disks of one prefix; more are left out of the graph.
const UNITS_MAX: u32 = 65_536;

/// Puts disks of buses into the graph. Register one value with the topology.
pub struct CamClass {
    inbox: Arc<Inbox>,
    buses: Mutex<Vec<Arc<Bus>>>,
}

impl Class for CamClass {
    fn name(&self) -> &'static str {
        CAM_CLASS
    }

    fn doc(&self) -> &'static str {
        CAM_DOC
    }

    fn verbs(&self) -> &'static [VerbSpec] {
        CamClass::VERBS
    }

    fn verb(
        &self,
        control: &mut Control,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        self.carry_out(control, verb, on, params)
    }
}

impl CamClass {
    /// Its verbs, for the command line.
    pub const VERBS: &'static [VerbSpec] = crate::verbs::VERBS;

    /// For buses whose disks' losses are told to `inbox`.
    pub fn new(inbox: Arc<Inbox>) -> CamClass {
        CamClass { inbox, buses: Mutex::default() }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Bus>>> {
        self.buses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The buses, by number.
    pub fn buses(&self) -> Vec<Arc<Bus>> {
        self.list().clone()
    }

    /// A bus with the lowest number that is free. It is to be scanned.
    pub fn add_bus(&self, sim: Arc<dyn Sim>, switchboard: Switchboard) -> Arc<Bus> {
        let mut buses = self.list();
        let mut numbers = 0..;
        let free = numbers.find(|n| buses.iter().all(|bus| bus.number() != *n));
        let bus = Bus::new(free.unwrap_or(0), sim, switchboard, self.inbox.clone());
        buses.push(bus.clone());
        buses.sort_by_key(|bus| bus.number());
        bus
    }

    /// Forgets a bus that has no disks in the graph.
    pub(crate) fn remove_bus(&self, bus: &Arc<Bus>) {
        self.list().retain(|other| !Arc::ptr_eq(other, bus));
    }

    /// Takes a bus out, with its disks; refused while one is open.
    pub(crate) fn take_out(&self, topology: &mut Topology, bus: &Arc<Bus>) -> Result<(), Error> {
        let devices = bus.devices();
        let geom = |topology: &Topology, name: &str| topology.find_geom(CAM_CLASS, name);
        for (.., name) in &devices {
            if geom(topology, name).is_some_and(|g| topology.geom_is_open(g)) {
                let what = format!("{name} is open; close what uses it first");
                return Err(Error::new(Errno::Busy, what));
            }
        }
        for (unit, _, name) in &devices {
            if let Some(geom) = geom(topology, name) {
                topology.wither_geom(geom, Errno::NxIo);
            }
            unit.close();
        }
        self.remove_bus(bus);
        Ok(())
    }

    /// Brings the graph up to what a scan found; the names of the disks that are new.
    pub fn commit(
        &self,
        topology: &mut Topology,
        bus: &Bus,
        changes: Vec<Change>,
    ) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for change in changes {
            // What is lost or has another size was told already.
            if let Change::Found(unit, facts) = change {
                names.extend(add(topology, bus, unit, &facts)?);
            }
        }
        Ok(names)
    }
}

fn add(
    topology: &mut Topology,
    bus: &Bus,
    unit: Arc<Unit>,
    facts: &Facts,
) -> Result<Option<String>, Error> {
    let sim = unit.sim().facts();
    let Some(disk) = facts.disk(sim.io_max_bytes) else { return Ok(None) };
    let name = (0..UNITS_MAX)
        .map(|n| format!("{}{n}", disk.prefix))
        .find(|name| {
            // One that is gone keeps its name until everybody has let go of it.
            topology.find(name).is_none() && topology.find_geom(CAM_CLASS, name).is_none()
        })
        .ok_or(Error::new(Errno::NoSpc, "no name is left for a disk"))?;
    let Disk { language, limits, shape, stripe_bytes, read_only, mut attrs, .. } = disk;
    let path = unit.path();
    let place = format!("{}@{path}", sim.name);
    attrs.push(("GEOM::physpath", bio::Attr::Text(place.clone())));
    let made = DiskGeom { unit: unit.clone(), place, read_only, label: facts.label() };
    let geom = topology.new_geom(CAM_CLASS, &name, "found on its bus", Box::new(made))?;
    let provider = topology.new_provider(
        geom,
        NewProvider {
            name: name.clone(),
            layer: Arc::new(DiskLayer::new(unit.clone(), language)),
            limits,
            stripe_bytes,
            stripe_offset: 0,
            attrs,
        },
    );
    match provider {
        Ok(provider) => {
            unit.reshape(shape);
            bus.belongs_to(path, provider, &name);
            Ok(Some(name))
        }
        Err(e) => {
            topology.wither_geom(geom, Errno::NxIo);
            Err(e)
        }
    }
}

struct DiskGeom {
    unit: Arc<Unit>,
    place: String,
    label: String,
    read_only: bool,
}

impl Geom for DiskGeom {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        if self.read_only && delta.w > 0 { Err(Errno::RoFs) } else { Ok(()) }
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let (openings, active, counts, lost) = self.unit.look(|device| {
            let (openings, active) = device.openings();
            (openings, active, device.counts(), device.is_lost())
        });
        let mut lines = vec![
            ("device", self.label.clone()),
            ("path", self.place.clone()),
            ("openings", format!("{openings}, {active} in use")),
            ("retries", counts.retries.to_string()),
            ("timeouts", counts.timeouts.to_string()),
            ("queue-full", counts.full.to_string()),
        ];
        if lost {
            lines.push(("state", "gone".into()));
        }
        lines
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
