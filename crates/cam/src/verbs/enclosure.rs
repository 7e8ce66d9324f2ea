//! `enclosure`: enclosures and the disks in their slots.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use bio::Errno;
use geom::{At, Deferred, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;
use wire::scsi::ses_kind;

use super::NamedDevice;
use super::verb_jobs::DeviceOnCore;
use crate::class::CamClass;
use crate::periph::Facts;
use crate::periph::ses::{self, Enclosure};
use crate::unit::Unit;

/// List an enclosure's elements, and the disks in its slots
///
/// Like `sesutil map`: each element with its status and name, and with its disk if the enclosure
/// reports a SAS address.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Elements {
    /// Enclosure, such as ses0
    name: String,
}

/// An enclosure and its elements.
#[derive(Serialize, JsonSchema)]
pub(super) struct EnclosureAnswer {
    /// Result for people.
    text: String,
    /// Logical identifier of the enclosure, in hexadecimal.
    id: String,
    /// Each element.
    elements: Vec<Element>,
}

/// An element of an enclosure.
#[derive(Serialize, JsonSchema)]
struct Element {
    /// Number of the element.
    element: usize,
    /// Type of the element.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Status of the element.
    status: &'static str,
    /// Name that the enclosure has for it; null: none.
    description: Option<String>,
    /// Names of the device in the slot; null: unknown.
    periphs: Option<Vec<String>>,
    /// Whether its locate light is on.
    locate: bool,
    /// Whether its fault light is on.
    fault: bool,
}

impl Verb<CamClass> for Elements {
    const NAME: &'static str = "enclosure";
    const EXAMPLE: &'static str = "enclosure ses0";
    type Answer = Deferred<EnclosureAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let found = class.disk(&self.name)?;
        let known = class.by_address(&found);
        class.run_on_core(control, (Self::NAME, &self.name), move |core| {
            Box::pin(async move { DeviceOnCore { found: &found, core }.elements(&known).await })
        })
    }
}

/// Label and periphs of a device, by SAS address.
pub(super) type PeriphsByAddress = BTreeMap<u64, (String, Vec<String>)>;

impl CamClass {
    /// Names of the periphs of the targets of a device's bus, by SAS address.
    pub(super) fn by_address(&self, of: &NamedDevice) -> PeriphsByAddress {
        let number = of.unit.path().bus;
        let buses = self.buses();
        let Some(bus) = buses.iter().find(|bus| bus.number() == number) else {
            return BTreeMap::new();
        };
        let device = |(unit, facts, _): (Arc<Unit>, Facts, String)| {
            let path = unit.path();
            Some((bus.sas_of(path, &facts)?, (facts.label(), bus.periphs(path))))
        };
        bus.devices().into_iter().filter_map(device).collect()
    }
}

impl DeviceOnCore<'_> {
    pub(super) async fn read(&self) -> Result<Enclosure, Error> {
        let name = self.name();
        if self.found.facts.role() != Some("ses") {
            let what = format!("{name} is no enclosure; `ashlar cam devlist` lists them");
            return Err(Error::new(Errno::NotSup, what));
        }
        let read = ses::read(&self.found.unit, &self.found.facts, self.core).await;
        read.map_err(|e| Error::new(e.kind, format!("{name}: {}", e.message)))
    }

    async fn elements(&self, known: &PeriphsByAddress) -> Result<EnclosureAnswer, Error> {
        let (on, shelf) = (self.name(), self.read().await?);
        let config = &shelf.config;
        let mut text = format!(
            "{on}:\n\tEnclosure Name: {} {} {}\n\tEnclosure ID: {:x}\n",
            config.vendor, config.product, config.revision, config.id
        );
        let mut elements = Vec::new();
        for (n, kind) in config.kinds().enumerate() {
            let status = shelf.status.get(n).copied().unwrap_or_default();
            let [a, b, c, d] = status.0;
            let kind = ses_kind(kind);
            let _ = write!(
                text,
                "\tElement {n}, Type: {kind}\n\t\tStatus: {} \
                 (0x{a:02x} 0x{b:02x} 0x{c:02x} 0x{d:02x})\n",
                status.text()
            );
            let called = shelf.names.get(n).filter(|name| !name.is_empty());
            if let Some(name) = called {
                let _ = writeln!(text, "\t\tDescription: {name}");
            }
            let device = shelf.device_in(n).and_then(|sas| known.get(&sas));
            if let Some((_, periphs)) = device {
                let _ = writeln!(text, "\t\tDevice Names: {}", periphs.join(","));
            }
            let slot = shelf.slots().contains(&n);
            let (located, faulty) = (slot && status.is_located(), slot && status.is_faulty());
            if located || faulty {
                text.push_str("\t\tExtra status:\n");
            }
            for (on, light) in [(located, "locate"), (faulty, "fault")] {
                if on {
                    let _ = writeln!(text, "\t\t- LED={light}");
                }
            }
            elements.push(Element {
                element: n,
                kind,
                status: status.text(),
                description: called.cloned(),
                periphs: device.map(|(_, periphs)| periphs.clone()),
                locate: located,
                fault: faulty,
            });
        }
        Ok(EnclosureAnswer { text, id: format!("{:016x}", config.id), elements })
    }
}
