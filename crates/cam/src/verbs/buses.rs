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
use crate::address::{ANY, Path};
use crate::bus::{Bus, Names, all};
use crate::class::CamClass;

pub(super) const RESCAN: VerbSpec = verb(
    "rescan",
    "Look for devices that came or went",
    &[ArgSpec {
        name: "buses",
        short: None,
        kind: ArgKind::Names(0),
        doc: "BUS, BUS:TARGET:LUN, or all; absent: all",
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

/// A bus that is looked through: what is behind one target of it, or all of it.
type Look = (Arc<Bus>, Path);

/// Says what came of it: what was looked at, and the disks that there were before.
type Told = fn(&CamClass, &mut Control, &[Look], &BTreeSet<String>) -> Result<Value, Error>;

fn whole(bus: Arc<Bus>) -> Look {
    let all = Path::bus(bus.number());
    (bus, all)
}

/// Names of the disks that buses have in the graph, by where they are.
fn disks(looks: &[Look]) -> impl Iterator<Item = String> {
    let names = looks.iter().flat_map(|(bus, _)| bus.devices()).map(|(.., name)| name);
    names.filter(|name| !name.is_empty())
}

/// A place in camcontrol's words: `bus 0`, `0:3:0`.
fn told(at: Path) -> String {
    match (at.target, at.lun) {
        (ANY, _) => format!("bus {}", at.bus),
        (target, ANY) => format!("{}:{target}", at.bus),
        (target, lun) => format!("{}:{target}:{lun}", at.bus),
    }
}

impl CamClass {
    pub(super) fn rescan(&self, control: &mut Control, params: &Value) -> Result<Value, Error> {
        let mut wanted = Vec::new();
        let words = params["buses"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for word in words.filter(|word| *word != "all") {
            let meant = Path::typed(word);
            let bus = meant.and_then(|m| self.buses().into_iter().find(|b| b.number() == m.bus));
            let (Some(meant), Some(bus)) = (meant, bus) else {
                let what = format!("there is no bus {word}; `ashlar cam devlist -b` lists them");
                return Err(Error::new(Errno::NoEnt, what));
            };
            wanted.push((bus, meant));
        }
        if wanted.is_empty() {
            wanted = self.buses().into_iter().map(whole).collect();
        }
        self.scan(control, ("rescan", ""), wanted, |class, control, looks, before| {
            class.rescanned(control, looks, before)
        })
    }

    /// Looks through buses, and says then what came of it.
    fn scan(
        &self,
        control: &mut Control,
        order: (&'static str, &str),
        looks: Vec<Look>,
        then: Told,
    ) -> Result<Value, Error> {
        let (before, scanned) = (disks(&looks).collect(), looks.clone());
        looks.iter().for_each(|(bus, _)| drop(bus.take_failure()));
        self.order_then(
            control,
            order,
            move |core| {
                Box::pin(async move {
                    let scan = |(bus, at): Look| -> Pin<Box<dyn Future<Output = ()> + '_>> {
                        Box::pin(async move {
                            let changes = match at.target {
                                ANY => bus.scan(core).await,
                                target => bus.scan_target(target, core).await,
                            };
                            bus.keep(changes);
                        })
                    };
                    all(looks.into_iter().map(scan).collect()).await;
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
        looks: &[Look],
        before: &BTreeSet<String>,
    ) -> Result<Vec<String>, Error> {
        for (bus, _) in looks {
            // Its failure is told below, also when others have looked before.
            drop(self.look_at(control, bus));
        }
        match looks.iter().find_map(|(bus, _)| bus.take_failure()) {
            Some(why) => Err(why),
            None => Ok(disks(looks).filter(|name| !before.contains(name)).collect()),
        }
    }

    fn rescanned(
        &self,
        control: &mut Control,
        looks: &[Look],
        before: &BTreeSet<String>,
    ) -> Result<Value, Error> {
        let found = self.take_in(control, looks, before)?;
        let (mut silent, mut troubles) = (Vec::new(), Vec::new());
        let mut lines = Vec::new();
        for (bus, at) in looks {
            troubles.extend(whys(bus));
            let number = bus.number();
            let mut not_yet = bus.silent();
            not_yet.retain(|target| Path::target(number, *target).meets(*at));
            if bus.is_gone() {
                lines.push(format!("bus {number} was detached meanwhile"));
            } else if not_yet.is_empty() {
                lines.push(format!("Re-scan of {} was successful", told(*at)));
            }
            let places = not_yet.into_iter().map(|target| format!("scbus{number} target {target}"));
            silent.extend(places);
        }
        if looks.is_empty() {
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

    /// `kind`, its `params`, `names` and `bounds`, checked against the kind's schema by whoever
    /// asks.
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
        let names = names.map_err(|e| Error::inval(format!("names: {e}")))?;
        let names = Names { by_name: names.unwrap_or_default() };
        let bounds = p.get("bounds").cloned().map(serde_json::from_value).transpose();
        let bounds = bounds.map_err(|e| Error::inval(format!("bounds: {e}")))?;
        let (kind, switchboard) = (p["kind"].as_str(), control.topology.switchboard());
        let sim = self.driver(name, kind.unwrap_or(""), &p["params"], switchboard.clone())?;
        self.orders.make_room()?;
        let bus = self.add_bus(sim, names, switchboard);
        bus.bound(bounds.unwrap_or_default());
        self.scan(control, ("attach", name), vec![whole(bus)], CamClass::attached)
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
        looks: &[Look],
        before: &BTreeSet<String>,
    ) -> Result<Value, Error> {
        let Some((bus, _)) = looks.iter().find(|(bus, _)| !bus.is_gone()) else {
            return Err(Error::new(Errno::Canceled, "it was detached before it was attached"));
        };
        let found = match self.take_in(control, looks, before) {
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
