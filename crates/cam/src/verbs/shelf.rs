//! `smpphylist`, `enclosure`, `locate`: what the disks sit in.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Error, VerbSpec};
use serde_json::{Value, json};
use wire::scsi::ses_kind;
use wire::smp::{Phy, ReportGeneral, SMP_RESPONSE_LEN, function, result};

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
    &[DEVICE],
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

impl CamClass {
    /// Names of the periphs of the targets of a device's bus, by SAS address.
    fn by_address(&self, of: &Found) -> BTreeMap<u64, (String, Vec<String>)> {
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

    pub(super) fn smpphylist(&self, control: &mut Control, on: &str) -> Result<Value, Error> {
        let found = self.disk(on)?;
        let ask = |control: &mut Control, function: u8, phy: u8| {
            let command = Command::Smp { function, phy };
            let answer = found.send(control, Request::new(command, data()))?;
            match answer.ended.outcome.status {
                CamStatus::Complete | CamStatus::SmpError => Ok(answer.data),
                CamStatus::CannotProvide | CamStatus::Invalid => {
                    let what = format!("{on} is not behind a SAS expander: there is nobody to ask");
                    Err(Error::new(Errno::NotSup, what))
                }
                _ => Err(Error::new(Errno::Io, format!("{on}: {}", pass::explain(&answer.ended)))),
            }
        };
        let said = |e| Error::new(Errno::Io, format!("the expander of {on}: {e}"));
        let refused = |code: u8| {
            Error::new(
                Errno::Io,
                format!("the expander of {on} refused: function result {code:02x}"),
            )
        };
        let general = ReportGeneral::decode(&ask(control, function::REPORT_GENERAL, 0)?);
        let general = general.map_err(said)?.map_err(refused)?;
        let names = self.by_address(&found);
        let plural = if general.phys == 1 { "PHY" } else { "PHYs" };
        let mut text = format!("{} {plural}:\nPHY  Attached SAS Address\n", general.phys);
        let mut phys = Vec::new();
        for number in 0..general.phys {
            let phy = match Phy::decode(&ask(control, function::DISCOVER, number)?).map_err(said)? {
                Ok(phy) => phy,
                Err(result::VACANT) => continue,
                Err(code) => return Err(refused(code)),
            };
            let _ = write!(text, "{number:3}  0x{:016x}", phy.other);
            let known = names.get(&phy.other);
            if let Some((label, periphs)) = known {
                let _ = write!(text, "   {label} ({})", periphs.join(","));
            }
            text.push('\n');
            phys.push(json!({
                "phy": number, "attached": format!("{:016x}", phy.other), "rate": phy.rate,
                "periphs": known.map(|(_, periphs)| periphs),
            }));
        }
        let enclosure = format!("{:016x}", general.enclosure);
        Ok(json!({ "text": text, "enclosure": enclosure, "phys": phys }))
    }

    fn shelf(&self, control: &mut Control, found: &Found) -> Result<Enclosure, Error> {
        if found.facts.role() != Some("ses") {
            let what = format!("{} is no enclosure; `ashlar cam devlist` lists them", found.name);
            return Err(Error::new(Errno::NotSup, what));
        }
        let (unit, facts) = (found.unit.clone(), found.facts.clone());
        let read = control.run_on_core("an enclosure", move |core| {
            Box::pin(async move { ses::read(&unit, &facts, core).await })
        })?;
        read.map_err(|e| Error::new(e.kind, format!("{}: {}", found.name, e.what)))
    }

    pub(super) fn enclosure(&self, control: &mut Control, on: &str) -> Result<Value, Error> {
        let found = self.disk(on)?;
        let shelf = self.shelf(control, &found)?;
        let names = self.by_address(&found);
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
            let device = shelf.device_in(n).and_then(|sas| names.get(&sas));
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

    /// The enclosure and the element that hold what was named.
    fn slot_of(
        &self,
        control: &mut Control,
        found: &Found,
        element: Option<u64>,
    ) -> Result<(Found, usize), Error> {
        let name = &found.name;
        if found.facts.role() == Some("ses") {
            let shelf = self.shelf(control, found)?;
            let slots = shelf.slots();
            let wanted = element.and_then(|n| usize::try_from(n).ok());
            let slot = wanted.filter(|n| slots.contains(n)).ok_or_else(|| {
                let all: Vec<String> = slots.iter().map(usize::to_string).collect();
                let what = format!("which slot of {name}? -e NUMBER, one of {}", all.join(", "));
                Error::new(Errno::Inval, what)
            })?;
            return Ok((self.disk(name)?, slot));
        }
        let path = found.unit.path();
        let addresses = self.by_address(found);
        let own = |(_, periphs): &&(String, Vec<String>)| periphs.contains(name);
        let sas = addresses.iter().find(|(_, known)| own(known)).map(|(sas, _)| *sas);
        let mut why = Vec::new();
        for bus in self.buses().into_iter().filter(|bus| bus.number() == path.bus) {
            for (unit, facts, _) in bus.devices() {
                if facts.role() != Some("ses") {
                    continue;
                }
                let names = bus.periphs(unit.path());
                let shelf = self.disk(names.last().map_or("", String::as_str))?;
                match self.shelf(control, &shelf) {
                    Ok(read) => match sas.and_then(|sas| read.element_of(sas)) {
                        Some(element) => return Ok((shelf, element)),
                        None => why.push(format!("{} does not know it", shelf.name)),
                    },
                    Err(e) => why.push(e.what.to_string()),
                }
            }
        }
        if why.is_empty() {
            why.push("there is no enclosure on its bus".into());
        }
        let what = format!(
            "which slot {name} is in is not known: {}; where you know the slot, name the \
             enclosure: `ashlar cam locate ses0 -e 3`",
            why.join(", ")
        );
        Err(Error::new(Errno::NotSup, what))
    }

    pub(super) fn locate(
        &self,
        control: &mut Control,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        let found = self.disk(on)?;
        let (shelf, element) = self.slot_of(control, &found, params["element"].as_u64())?;
        let lit = params["state"].as_str() != Some("off");
        let (unit, facts) = (shelf.unit.clone(), shelf.facts.clone());
        let done = control.run_on_core("a light", move |core| {
            Box::pin(async move { ses::locate(&unit, &facts, core, (element, lit)).await })
        })?;
        done.map_err(|e| Error::new(e.kind, format!("{}: {}", shelf.name, e.what)))?;
        let state = if lit { "on" } else { "off" };
        let message = format!("{on}: the light of element {element} of {} is {state}", shelf.name);
        Ok(json!({ "message": message, "enclosure": shelf.name, "element": element, "on": lit }))
    }
}

fn data() -> Data {
    Data::In(SMP_RESPONSE_LEN as u32)
}
