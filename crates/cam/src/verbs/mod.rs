//! Verbs for buses and their devices, in camcontrol's words and formats: a file each.

mod aoe;
mod aoeconfig;
mod aoemask;
mod aoereserve;
mod attach;
mod cmd;
mod defects;
mod detach;
mod devlist;
mod discover;
mod enclosure;
mod fault;
mod format;
mod identify;
mod inquiry;
mod locate;
mod modepage;
mod readcap;
mod reportluns;
mod rescan;
mod reset;
mod scan;
mod smpphylist;
mod tags;
pub(crate) mod verb_jobs;

pub use attach::AttachAnswer;
pub(crate) use fault::faults;

use std::sync::Arc;

use bio::Errno;
use geom::{ClassVerb, Error};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::address::{ANY, Path};
use crate::bus::Bus;
use crate::class::CamClass;
use crate::periph::Facts;
use crate::unit::Unit;

/// Verbs of the class.
pub(crate) const VERBS: &[ClassVerb<CamClass>] = &[
    ClassVerb::of::<devlist::Devlist>(),
    ClassVerb::of::<rescan::Rescan>(),
    ClassVerb::of::<inquiry::Inquiry>(),
    ClassVerb::of::<identify::Identify>(),
    ClassVerb::of::<readcap::Readcap>(),
    ClassVerb::of::<reportluns::Reportluns>(),
    ClassVerb::of::<tags::Tags>(),
    ClassVerb::of::<reset::Reset>(),
    ClassVerb::of::<modepage::Modepage>(),
    ClassVerb::of::<defects::DefectList>(),
    ClassVerb::of::<cmd::Cmd>(),
    ClassVerb::of::<smpphylist::Smpphylist>(),
    ClassVerb::of::<enclosure::Elements>(),
    ClassVerb::of::<locate::Locate>(),
    ClassVerb::of::<discover::Discover>(),
    ClassVerb::of::<fault::Fault>(),
    ClassVerb::of::<aoeconfig::AoeConfig>(),
    ClassVerb::of::<aoemask::AoeMask>(),
    ClassVerb::of::<aoereserve::AoeReserve>(),
    ClassVerb::of::<attach::Attach>(),
    ClassVerb::of::<detach::Detach>(),
];

/// Disk: da0, ada0, or BUS:TARGET:LUN
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct DiskName(String);

/// Device by any of its names: da0, ada0, pass3, ses0
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct Device(String);

impl CamClass {
    fn by_name(&self, name: &str) -> Option<NamedDevice> {
        self.find_device(name, |bus, path| bus.periphs(path).iter().any(|periph| periph == name))
    }

    fn find_device(&self, name: &str, is: impl Fn(&Bus, Path) -> bool) -> Option<NamedDevice> {
        let of = |bus: Arc<Bus>| bus.devices().into_iter().map(move |known| (bus.clone(), known));
        let mut all = self.buses().into_iter().flat_map(of);
        let (bus, (unit, facts, _)) = all.find(|(bus, (unit, ..))| is(bus, unit.path()))?;
        Some(NamedDevice { name: name.to_owned(), bus, unit, facts })
    }

    /// By one of its names, or by where it is: BUS:TARGET, which is its unit 0, or BUS:TARGET:LUN.
    /// A name has precedence: a disk may have any name of its bus.
    fn disk(&self, name: &str) -> Result<NamedDevice, Error> {
        let place = || {
            let typed = Path::typed(name).filter(|path| path.target != ANY)?;
            let lun = if typed.lun == ANY { 0 } else { typed.lun };
            self.find_device(name, |_, path| path == Path { lun, ..typed })
        };
        if let Some(found) = self.by_name(name).or_else(place) {
            return Ok(found);
        }
        let what = format!("no device {name} on any bus; `ashlar cam devlist` lists them");
        Err(Error::new(Errno::NoEnt, what))
    }
}

/// The disk of a question.
struct NamedDevice {
    name: String,
    bus: Arc<Bus>,
    unit: Arc<Unit>,
    facts: Facts,
}

impl NamedDevice {
    /// Whom camcontrol names, which opens a disk by its pass device.
    fn pass_name(&self) -> String {
        let periphs = self.bus.periphs(self.unit.path());
        let pass = periphs.into_iter().find(|name| name.starts_with("pass"));
        pass.unwrap_or_else(|| self.name.clone())
    }

    /// Maximum throughput of its link, and whether it takes several commands at a time.
    fn transfers(&self, name: &str, queues: bool) -> String {
        let kb = self.unit.sim().transfer_kb();
        let rate = format!("{}.{:03}MB/s transfers", kb / 1000, kb % 1000);
        let queueing = "Command Queueing Enabled";
        match (kb, queues) {
            (0, false) => String::new(),
            (0, true) => format!("{name}: {queueing}\n"),
            (_, false) => format!("{name}: {rate}\n"),
            (_, true) => format!("{name}: {rate}, {queueing}\n"),
        }
    }
}

/// Reasons why a bus cannot reach, or cannot believe, something: a sentence each.
fn trouble_texts(bus: &Bus) -> Vec<String> {
    bus.troubles().into_iter().map(|trouble| trouble.why).collect()
}

/// The N of SPC-N; SPC-4 is 6.
fn version(code: u8) -> u8 {
    code.saturating_sub(2)
}

fn one_of(a: &str, b: &str) -> Error {
    Error::inval(format!("{a} and {b} contradict each other; give one of them"))
}
