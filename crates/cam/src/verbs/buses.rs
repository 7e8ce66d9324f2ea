//! Buses as wholes: attached, looked through, detached.
//!
//! A scan may take as long as its slowest device, so it is an order like any other (`orders`). What
//! it finds is the bus's, and is taken in whether or not anybody comes for the answer.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Error, VerbSpec};
use serde_json::{Value, json};

use super::{verb, whys};
use crate::bus::{Bus, Names, all};
use crate::class::CamClass;

pub(super) const RESCAN: VerbSpec = verb(
    "rescan",
    "Look for devices that came or went",
    &[ArgSpec {
        name: "buses",
        short: None,
        kind: ArgKind::Names(0),
        doc: "Numbers of buses, or all; absent: all",
    }],
    "rescan 0",
);

pub(super) const ATTACH: VerbSpec = VerbSpec {
    detail: "The parameters are those of [[bus]] in ashlar.toml, where a bus has to stand to \
             be there at the next start: one that is attached by hand goes with the daemon. \
             What is on the disks of a virtual one goes with it.",
    ..verb(
        "attach",
        "Attach a bus with its disks",
        &[
            ArgSpec {
                name: "name",
                short: None,
                kind: ArgKind::Name,
                doc: "Its name: mps0, or what it leads to",
            },
            ArgSpec {
                name: "params",
                short: None,
                kind: ArgKind::Names(0),
                doc: "kind=virtual (the default) and its parameters: disks=4 size=1GiB",
            },
        ],
        "attach mps0 transport=sas disks=4 size=1GiB",
    )
};

pub(super) const DETACH: VerbSpec = VerbSpec {
    detail: "Refused while one of its disks is open.",
    ..verb(
        "detach",
        "Detach a bus with its disks",
        &[ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "A bus: mps0" }],
        "detach mps0",
    )
};

/// Names of the disks that buses have in the graph, by where they are.
fn disks(buses: &[Arc<Bus>]) -> impl Iterator<Item = String> {
    let names = buses.iter().flat_map(|bus| bus.devices()).map(|(.., name)| name);
    names.filter(|name| !name.is_empty())
}

impl CamClass {
    pub(super) fn rescan(&self, control: &mut Control, params: &Value) -> Result<Value, Error> {
        let mut wanted = Vec::new();
        let words = params["buses"].as_array().into_iter().flatten();
        for word in words.filter(|word| *word != "all") {
            let number = word.as_str().and_then(|text| text.parse::<u64>().ok());
            let bus = number.and_then(|n| self.buses().into_iter().find(|b| b.number() == n));
            wanted.push(bus.ok_or_else(|| {
                let what = format!("there is no bus {word}; `ashlar cam devlist -b` lists them");
                Error::new(Errno::NoEnt, what)
            })?);
        }
        if wanted.is_empty() {
            wanted = self.buses();
        }
        self.scan(control, ("rescan", ""), wanted, |class, control, buses, before| {
            class.rescanned(control, buses, before)
        })
    }

    /// Looks through buses, and says then what came of it.
    fn scan(
        &self,
        control: &mut Control,
        order: (&'static str, &str),
        buses: Vec<Arc<Bus>>,
        then: fn(&CamClass, &mut Control, &[Arc<Bus>], &BTreeSet<String>) -> Result<Value, Error>,
    ) -> Result<Value, Error> {
        let (before, scanned) = (disks(&buses).collect(), buses.clone());
        buses.iter().for_each(|bus| drop(bus.take_failure()));
        self.order_then(
            control,
            order,
            move |core| {
                Box::pin(async move {
                    let scan = |bus: Arc<Bus>| -> Pin<Box<dyn Future<Output = ()> + '_>> {
                        Box::pin(async move {
                            let changes = bus.scan(core).await;
                            bus.keep(changes);
                        })
                    };
                    all(buses.into_iter().map(scan).collect()).await;
                    Ok(Value::Null)
                })
            },
            Some(Box::new(move |class, control| then(class, control, &scanned, &before))),
        )
    }

    /// Takes in what scans found, unless that is done; the names of the disks that are new.
    fn take_in(
        &self,
        control: &mut Control,
        buses: &[Arc<Bus>],
        before: &BTreeSet<String>,
    ) -> Result<Vec<String>, Error> {
        for bus in buses {
            // Its failure is told below, also when others have looked before.
            drop(self.look_at(control, bus));
        }
        match buses.iter().find_map(|bus| bus.take_failure()) {
            Some(why) => Err(why),
            None => Ok(disks(buses).filter(|name| !before.contains(name)).collect()),
        }
    }

    fn rescanned(
        &self,
        control: &mut Control,
        buses: &[Arc<Bus>],
        before: &BTreeSet<String>,
    ) -> Result<Value, Error> {
        let found = self.take_in(control, buses, before)?;
        let (mut silent, mut troubles) = (Vec::new(), Vec::new());
        for bus in buses {
            troubles.extend(whys(bus));
            let targets = bus.silent().into_iter();
            silent.extend(targets.map(|target| format!("scbus{} target {target}", bus.number())));
        }
        let mut lines: Vec<String> = buses
            .iter()
            .filter(|bus| bus.silent().is_empty())
            .map(|bus| match bus.is_gone() {
                true => format!("bus {} was detached meanwhile", bus.number()),
                false => format!("Re-scan of bus {} was successful", bus.number()),
            })
            .collect();
        if buses.is_empty() {
            lines.push("there is no bus".to_owned());
        }
        if !found.is_empty() {
            lines.push(format!("found {}", found.join(", ")));
        }
        if !silent.is_empty() {
            let silent = silent.join(", ");
            lines.push(format!(
                "no answer yet from {silent}: they are asked on, what comes is taken in"
            ));
        }
        lines.extend(troubles.iter().cloned());
        Ok(json!({
            "message": lines.join("\n"), "found": found, "silent": silent, "troubles": troubles,
        }))
    }

    /// `kind`, its `params` and `names`, checked against the kind's schema by whoever asks.
    pub(super) fn attach(
        &self,
        control: &mut Control,
        name: &str,
        p: &Value,
    ) -> Result<Value, Error> {
        if name.is_empty() || self.bus(name).is_some() {
            let what = format!("a bus {name} exists already; give it another name");
            return Err(Error::new(Errno::Exist, what));
        }
        let names = p.get("names").cloned().map(serde_json::from_value).transpose();
        let names = names.map_err(|e| Error::new(Errno::Inval, format!("names: {e}")))?;
        let names = Names { by_name: names.unwrap_or_default() };
        let (kind, switchboard) = (p["kind"].as_str(), control.topology.switchboard());
        let sim = self.driver(name, kind.unwrap_or(""), &p["params"], switchboard.clone())?;
        self.orders.make_room()?;
        let bus = self.add_bus(sim, names, switchboard);
        self.scan(control, ("attach", name), vec![bus], CamClass::attached)
    }

    /// Takes a bus out that could not be attached as a whole; whoever has opened what it found
    /// meanwhile is told that it is gone.
    fn give_up(&self, control: &mut Control, bus: &Arc<Bus>) {
        if control.call(|t| self.take_out(t, bus)).is_err() {
            bus.lose();
            self.remove_bus(bus);
        }
    }

    fn attached(
        &self,
        control: &mut Control,
        buses: &[Arc<Bus>],
        before: &BTreeSet<String>,
    ) -> Result<Value, Error> {
        let Some(bus) = buses.iter().find(|bus| !bus.is_gone()) else {
            return Err(Error::new(Errno::Canceled, "it was detached before it was attached"));
        };
        let found = match self.take_in(control, buses, before) {
            Ok(found) => found,
            Err(why) => {
                self.give_up(control, bus);
                return Err(why);
            }
        };
        let mut message = match found.as_slice() {
            [] => format!(
                "scbus{}: no disks yet; what comes is taken in, and `ashlar cam rescan {}` looks \
                 again",
                bus.number(),
                bus.number()
            ),
            found => format!("scbus{}: {}", bus.number(), found.join(", ")),
        };
        for why in whys(bus) {
            let _ = write!(message, "; {why}");
        }
        Ok(json!({ "message": message, "bus": bus.number(), "found": found }))
    }

    pub(super) fn detach(&self, control: &mut Control, name: &str) -> Result<Value, Error> {
        let bus = self.bus(name).ok_or_else(|| {
            let what = format!("no bus {name}; `ashlar cam devlist -v` lists them");
            Error::new(Errno::NoEnt, what)
        })?;
        control.call(|t| self.take_out(t, &bus))?;
        Ok(json!({ "message": format!("{name} is gone") }))
    }
}
