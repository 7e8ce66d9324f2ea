//! The class `cam`: a disk of a bus as a geom with one provider, `da0` or `ada0`.

use std::any::Any;
use std::sync::Arc;

use bio::Errno;
use geom::{Access, Class, Error, Geom, GeomId, NewProvider, ProviderId, Topology};

use crate::bus::{Bus, Change};
use crate::periph::{Disk, DiskLayer, Facts};
use crate::unit::Unit;

/// Name of the class.
pub const CAM_CLASS: &str = "cam";

/// Most disks of one prefix; more are left out of the graph.
const UNITS_MAX: u32 = 65_536;

/// Puts disks of buses into the graph. Register one value with the topology.
pub struct CamClass;

impl Class for CamClass {
    fn name(&self) -> &'static str {
        CAM_CLASS
    }

    fn doc(&self) -> &'static str {
        "Disks that are reached by commands, whatever carries the commands."
    }
}

impl CamClass {
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
