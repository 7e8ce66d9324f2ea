//! `devlist`: the devices of all buses.

use std::collections::BTreeMap;
use std::sync::Arc;

use geom::{At, Deserialize, Error, JsonSchema, Trouble, Verb};
use serde::Serialize;

use super::trouble_texts;
use crate::bus::{Bus, LastError};
use crate::class::CamClass;
use crate::periph::Facts;
use crate::unit::Unit;

/// List the devices of all buses
#[derive(Deserialize, JsonSchema)]
pub(super) struct Devlist {
    /// Also show the buses and last errors
    #[schemars(extend("x-short" = "v"))]
    verbose: bool,
    /// Show only the buses
    #[schemars(extend("x-short" = "b"))]
    buses: bool,
}

/// The buses and their devices.
#[derive(Serialize, JsonSchema)]
pub(super) struct DevlistAnswer {
    /// Result for people.
    text: String,
    /// Each bus.
    buses: Vec<ListedBus>,
}

/// A bus.
#[derive(Serialize, JsonSchema)]
struct ListedBus {
    /// Number of the bus.
    bus: u64,
    /// Name of the driver's instance, such as mps0.
    sim: String,
    /// Devices on the bus.
    devices: Vec<ListedDevice>,
    /// Counters of the driver, by name.
    counts: BTreeMap<&'static str, u64>,
    /// Reasons why the bus cannot reach a device, a sentence each.
    troubles: Vec<String>,
}

/// A device of a bus.
#[derive(Serialize, JsonSchema)]
struct ListedDevice {
    /// Number of the target on the bus.
    target: u64,
    /// Number of the logical unit of the target.
    lun: u64,
    /// Name of the disk; empty: the device is none.
    periph: String,
    /// Names of the device.
    periphs: Vec<String>,
    /// Vendor, product and revision.
    device: String,
    /// Whether the device is lost.
    lost: bool,
    /// Physical path; null: unknown.
    physpath: Option<String>,
    /// The last request that failed; null: none did.
    last_error: Option<ListedError>,
}

/// The last request to a device that failed.
#[derive(Serialize, JsonSchema)]
struct ListedError {
    /// The request, and why it failed.
    what: String,
    /// Time since then, ns.
    age_ns: u64,
    /// Number of requests that failed.
    count: u64,
}

fn listed_device(
    bus: &Bus,
    (unit, facts, periph): (Arc<Unit>, Facts, String),
    now_ns: u64,
) -> ListedDevice {
    let path = unit.path();
    let error = |error: LastError| {
        let LastError { description: what, age_ns, count } = error;
        ListedError { what, age_ns, count }
    };
    ListedDevice {
        target: path.target,
        lun: path.lun,
        periph,
        periphs: bus.periphs(path),
        device: facts.label(),
        lost: unit.inspect(|d| d.is_lost()),
        physpath: unit.physpath(),
        last_error: LastError::of(&unit, now_ns).map(error),
    }
}

fn listed_bus(bus: &Bus, now_ns: u64) -> ListedBus {
    let devices = bus.devices().into_iter().map(|device| listed_device(bus, device, now_ns));
    ListedBus {
        bus: bus.number(),
        sim: bus.sim().facts().name,
        devices: devices.collect(),
        counts: bus.sim().counts().into_iter().collect(),
        troubles: trouble_texts(bus),
    }
}

impl Verb<CamClass> for Devlist {
    const NAME: &'static str = "devlist";
    const EXAMPLE: &'static str = "devlist -v";
    type Answer = DevlistAnswer;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<DevlistAnswer, Error> {
        let (buses, now) = (class.buses(), control.now_ns());
        let text: String = buses
            .iter()
            .map(|bus| {
                let name = bus.sim().facts().name;
                let line = |Trouble { why, action, .. }| format!("{name}: {why}. {action}\n");
                let lines: String = bus.troubles().into_iter().map(line).collect();
                match self.buses {
                    true => format!("scbus{} on {name} bus 0\n{lines}", bus.number()),
                    false => bus.devlist(self.verbose, now) + &lines,
                }
            })
            .collect();
        let buses = buses.iter().map(|bus| listed_bus(bus, now)).collect();
        Ok(DevlistAnswer { text, buses })
    }
}
