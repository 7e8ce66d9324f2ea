//! `smpphylist`, `enclosure`, `locate`: what the disks sit in.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Error, VerbSpec};
use serde_json::{Value, json};
use wire::scsi::ses_kind;
use wire::smp::{Phy, ReportGeneral, SMP_RESPONSE_LEN, function, result};

use super::orders::Talk;
use super::{DEVICE, Found, option, verb};
use crate::ccb::{CamStatus, Command};
use crate::class::CamClass;
use crate::periph::Facts;
use crate::periph::pass::{self, Data, Request};
use crate::periph::ses::{self, Enclosure};
use crate::unit::Unit;

const SHELF: ArgSpec =
    ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "An enclosure: ses0" };

pub(super) const SMPPHYLIST: VerbSpec = verb(
    "smpphylist",
    "List the phys of a SAS expander, and who is attached to them",
    &[DEVICE, option("quiet", 'q', ArgKind::Flag, "Those to whom a known device is attached")],
    "smpphylist ses0",
);

pub(super) const ENCLOSURE: VerbSpec = VerbSpec {
    detail: "As sesutil map: each element with its status, its name, and the disk in it where the \
             enclosure tells whose SAS address that is.",
    ..verb(
        "enclosure",
        "List an enclosure's elements, and the disks in its slots",
        &[SHELF],
        "enclosure ses0",
    )
};

pub(super) const LOCATE: VerbSpec = VerbSpec {
    detail: "Of a disk whose enclosure knows its SAS address, or of a slot of an enclosure by the \
             number that `ashlar cam enclosure` lists. The light stays until it is switched off. \
             Look at the light before you pull a disk: nothing else ties the name to the bay.",
    ..verb(
        "locate",
        "Switch the light that shows where a disk is",
        &[
            DEVICE,
            option("state", 's', ArgKind::Choice(&["on", "off"]), "Default: on"),
            option("element", 'e', ArgKind::Number, "A slot of the enclosure that was named"),
        ],
        "locate da0 -s on",
    )
};

/// Label and periphs of a device, by SAS address.
type Known = BTreeMap<u64, (String, Vec<String>)>;

impl CamClass {
    /// Names of the periphs of the targets of a device's bus, by SAS address.
    fn by_address(&self, of: &Found) -> Known {
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

    pub(super) fn smpphylist(
        &self,
        control: &mut Control,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        let quiet = params["quiet"].as_bool().unwrap_or(false);
        let found = self.disk(on)?;
        let known = self.by_address(&found);
        self.order(control, ("smpphylist", on), move |core| {
            Box::pin(async move { Talk { found: &found, core }.phys(&known, quiet).await })
        })
    }

    pub(super) fn enclosure(&self, control: &mut Control, on: &str) -> Result<Value, Error> {
        let found = self.disk(on)?;
        let known = self.by_address(&found);
        self.order(control, ("enclosure", on), move |core| {
            Box::pin(async move { Talk { found: &found, core }.elements(&known).await })
        })
    }

    pub(super) fn locate(
        &self,
        control: &mut Control,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        let found = self.disk(on)?;
        let element = params["element"].as_u64().and_then(|n| usize::try_from(n).ok());
        let lit = params["state"].as_str() != Some("off");
        if found.facts.role() == Some("ses") {
            return self.order(control, ("locate", on), move |core| {
                Box::pin(async move {
                    let shelf = Talk { found: &found, core };
                    let element = shelf.slot(element).await?;
                    shelf.light(shelf.name(), element, lit).await
                })
            });
        }
        let known = self.by_address(&found);
        let own = |(_, periphs): &&(String, Vec<String>)| periphs.contains(&found.name);
        let sas = known.iter().find(|(_, device)| own(device)).map(|(sas, _)| *sas);
        let shelves = self.shelves(found.unit.path().bus)?;
        self.order(control, ("locate", on), move |core| {
            Box::pin(async move {
                let shelves = shelves.iter().map(|found| Talk { found, core });
                let (shelf, element) = slot_of(&found.name, sas, shelves).await?;
                shelf.light(&found.name, element, lit).await
            })
        })
    }

    /// The enclosures of a bus.
    fn shelves(&self, number: u64) -> Result<Vec<Found>, Error> {
        let mut all = Vec::new();
        for bus in self.buses().into_iter().filter(|bus| bus.number() == number) {
            for (unit, facts, _) in bus.devices() {
                if facts.role() == Some("ses") {
                    let names = bus.periphs(unit.path());
                    all.push(self.disk(names.last().map_or("", String::as_str))?);
                }
            }
        }
        Ok(all)
    }
}

/// The enclosure and the element that hold a disk.
async fn slot_of<'a>(
    name: &str,
    sas: Option<u64>,
    shelves: impl Iterator<Item = Talk<'a>>,
) -> Result<(Talk<'a>, usize), Error> {
    let mut why = Vec::new();
    for shelf in shelves {
        match shelf.read().await {
            Ok(read) => match sas.and_then(|sas| read.element_of(sas)) {
                Some(element) => return Ok((shelf, element)),
                None => why.push(format!("{} does not know it", shelf.name())),
            },
            Err(e) => why.push(e.what),
        }
    }
    if why.is_empty() {
        why.push("there is no enclosure on its bus".into());
    }
    let what = format!(
        "which slot {name} is in is not known: {}; where you know the slot, name the enclosure: \
         `ashlar cam locate ses0 -e 3`",
        why.join(", ")
    );
    Err(Error::new(Errno::NotSup, what))
}

impl Talk<'_> {
    /// Asks the expander.
    async fn smp(&self, function: u8, phy: u8) -> Result<Vec<u8>, Error> {
        let on = self.name();
        let data = Data::In(SMP_RESPONSE_LEN as u32);
        let answer = self.send(Request::new(Command::Smp { function, phy }, data)).await?;
        match answer.ended.outcome.status {
            CamStatus::Complete | CamStatus::SmpError => Ok(answer.data),
            CamStatus::CannotProvide | CamStatus::Invalid => {
                let what = format!("{on} is not behind a SAS expander: there is nobody to ask");
                Err(Error::new(Errno::NotSup, what))
            }
            _ => Err(Error::new(Errno::Io, format!("{on}: {}", pass::explain(&answer.ended)))),
        }
    }

    async fn phys(&self, known: &Known, quiet: bool) -> Result<Value, Error> {
        let on = self.name();
        let said = |e| Error::new(Errno::Io, format!("the expander of {on}: {e}"));
        let refused = |code: u8| {
            let what = format!("the expander of {on} refused: function result {code:02x}");
            Error::new(Errno::Io, what)
        };
        let general = ReportGeneral::decode(&self.smp(function::REPORT_GENERAL, 0).await?);
        let general = general.map_err(said)?.map_err(refused)?;
        let plural = if general.phys == 1 { "PHY" } else { "PHYs" };
        let mut text = format!("{} {plural}:\nPHY  Attached SAS Address\n", general.phys);
        let mut phys = Vec::new();
        for number in 0..general.phys {
            let phy =
                match Phy::decode(&self.smp(function::DISCOVER, number).await?).map_err(said)? {
                    Ok(phy) => phy,
                    Err(result::VACANT) => continue,
                    Err(code) => return Err(refused(code)),
                };
            let device = known.get(&phy.other);
            if quiet && device.is_none() {
                continue;
            }
            let _ = write!(text, "{number:3}  0x{:016x}", phy.other);
            if let Some((label, periphs)) = device {
                let _ = write!(text, "   {label} ({})", periphs.join(","));
            }
            text.push('\n');
            phys.push(json!({
                "phy": number, "attached": format!("{:016x}", phy.other), "rate": phy.rate,
                "periphs": device.map(|(_, periphs)| periphs),
            }));
        }
        let enclosure = format!("{:016x}", general.enclosure);
        Ok(json!({ "text": text, "enclosure": enclosure, "phys": phys }))
    }

    async fn read(&self) -> Result<Enclosure, Error> {
        let name = self.name();
        if self.found.facts.role() != Some("ses") {
            let what = format!("{name} is no enclosure; `ashlar cam devlist` lists them");
            return Err(Error::new(Errno::NotSup, what));
        }
        let read = ses::read(&self.found.unit, &self.found.facts, self.core).await;
        read.map_err(|e| Error::new(e.kind, format!("{name}: {}", e.what)))
    }

    async fn elements(&self, known: &Known) -> Result<Value, Error> {
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
            elements.push(json!({
                "element": n, "type": kind, "status": status.text(), "description": called,
                "periphs": device.map(|(_, periphs)| periphs), "locate": located, "fault": faulty,
            }));
        }
        Ok(json!({ "text": text, "id": format!("{:016x}", config.id), "elements": elements }))
    }

    /// The slot of an enclosure that was asked for by its number.
    async fn slot(&self, wanted: Option<usize>) -> Result<usize, Error> {
        let slots = self.read().await?.slots();
        wanted.filter(|n| slots.contains(n)).ok_or_else(|| {
            let all: Vec<String> = slots.iter().map(usize::to_string).collect();
            let all = all.join(", ");
            let what = format!("which slot of {}? -e NUMBER, one of {all}", self.name());
            Error::inval(what)
        })
    }

    /// Switches a slot's light, for whom `on` names.
    async fn light(&self, on: &str, element: usize, lit: bool) -> Result<Value, Error> {
        let (found, shelf) = (self.found, self.name());
        let done = ses::locate(&found.unit, &found.facts, self.core, (element, lit)).await;
        done.map_err(|e| Error::new(e.kind, format!("{shelf}: {}", e.what)))?;
        let state = if lit { "on" } else { "off" };
        let message = format!("{on}: the light of element {element} of {shelf} is {state}");
        Ok(json!({ "message": message, "enclosure": shelf, "element": element, "on": lit }))
    }
}
