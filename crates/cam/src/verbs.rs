//! What can be asked of buses and their devices, in camcontrol's words and formats.

mod aoe;
mod buses;
mod discover;
mod facts;
mod fault;
pub(crate) use fault::faults;
mod format;
pub(crate) mod orders;
mod raw;
mod reset;
mod shelf;
mod upkeep;

use std::fmt::Write;
use std::sync::Arc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Error, Trouble, VerbSpec};
use serde_json::{Value, json};

use crate::address::{ANY, Path};
use crate::bus::{Bus, LastError};
use crate::class::CamClass;
use crate::device::Shape;
use crate::periph::Facts;
use crate::unit::Unit;
use orders::Say;

const DISK: ArgSpec =
    ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "A disk: da0, ada0, or 0:3:0" };

const DEVICE: ArgSpec = raw::ANY_DEVICE;

const fn verb(
    name: &'static str,
    doc: &'static str,
    args: &'static [ArgSpec],
    example: &'static str,
) -> VerbSpec {
    VerbSpec { name, doc, detail: "", args, example, writes: false }
}

const fn option(name: &'static str, short: char, kind: ArgKind, doc: &'static str) -> ArgSpec {
    ArgSpec { name, short: Some(short), kind, doc }
}

/// The verbs of class cam.
pub(crate) const VERBS: &[VerbSpec] = &[
    verb(
        "devlist",
        "List the devices of all buses",
        &[
            option("verbose", 'v', ArgKind::Flag, "The buses and last errors too"),
            option("buses", 'b', ArgKind::Flag, "The buses alone"),
        ],
        "devlist -v",
    ),
    buses::RESCAN,
    facts::INQUIRY,
    facts::IDENTIFY,
    facts::READCAP,
    facts::REPORTLUNS,
    VerbSpec {
        detail: "QUEUE FULL lowers the openings, and 256 commands that end well with all in \
                 use raise them by one again, up to the number set here.",
        ..verb(
            "tags",
            "Show or set how many commands a disk gets at a time",
            &[
                DISK,
                option("number", 'N', ArgKind::Number, "From now on at most so many"),
                option("quiet", 'q', ArgKind::Flag, "The number alone"),
                option("verbose", 'v', ArgKind::Flag, "What is in use, queued and held back too"),
            ],
            "tags da0 -N 32",
        )
    },
    reset::RESET,
    upkeep::MODEPAGE,
    upkeep::DEFECTS,
    raw::CMD,
    shelf::SMPPHYLIST,
    shelf::ENCLOSURE,
    shelf::LOCATE,
    discover::DISCOVER,
    fault::FAULT,
    aoe::AOECONFIG,
    aoe::AOEMASK,
    aoe::AOERESERVE,
    buses::ATTACH,
    buses::DETACH,
];

impl CamClass {
    /// Carries out a verb.
    pub(crate) fn carry_out(
        &self,
        control: &mut Control,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        if let Some(number) = params["ticket"].as_u64() {
            return self.how_far(control, (verb, on), number);
        }
        let mut talk = |verb, say: Say| self.talk(control, (verb, on), params, say);
        match verb {
            "devlist" => {
                let is = |key| params[key].as_bool().unwrap_or(false);
                Ok(self.devlist(is("verbose"), is("buses"), control.now_ns()))
            }
            "rescan" => self.rescan(control, params),
            "inquiry" => self.disk(on).map(|d| d.inquiry(params)),
            "identify" => self.disk(on)?.identify(),
            "readcap" => self.disk(on)?.readcap(params),
            "reportluns" => {
                talk("reportluns", |talk, p| Box::pin(async move { talk.reportluns(p).await }))
            }
            "tags" => self.disk(on)?.tags(params),
            "reset" => self.reset(control, on, params),
            "modepage" => {
                talk("modepage", |talk, p| Box::pin(async move { talk.modepage(p).await }))
            }
            "defects" => talk("defects", |talk, p| Box::pin(async move { talk.defects(p).await })),
            "cmd" => talk("cmd", |talk, p| Box::pin(async move { talk.cmd(p).await })),
            "smpphylist" => self.smpphylist(control, on, params),
            "enclosure" => self.enclosure(control, on),
            "locate" => self.locate(control, on, params),
            "discover" => self.discover(control, on, params),
            "aoeconfig" => {
                talk("aoeconfig", |talk, p| Box::pin(async move { talk.config(p).await }))
            }
            "aoemask" => talk("aoemask", |talk, p| Box::pin(async move { talk.mask(p).await })),
            "aoereserve" => {
                talk("aoereserve", |talk, p| Box::pin(async move { talk.reserve(p).await }))
            }
            "fault" => self.fault(on, params),
            "attach" => self.attach(control, on, params),
            "detach" => self.detach(control, on),
            other => {
                let known: Vec<&str> = VERBS.iter().map(|v| v.name).collect();
                let what = format!("cam has no verb {other}; {}", known.join(", "));
                Err(Error::new(Errno::NotSup, what))
            }
        }
    }

    fn devlist(&self, verbose: bool, buses_alone: bool, now: u64) -> Value {
        let buses = self.buses();
        let text: String = buses
            .iter()
            .map(|bus| {
                let name = bus.sim().facts().name;
                let line = |Trouble { why, action, .. }| format!("{name}: {why}. {action}\n");
                let lines: String = bus.troubles().into_iter().map(line).collect();
                match buses_alone {
                    true => format!("scbus{} on {name} bus 0\n{lines}", bus.number()),
                    false => bus.devlist(verbose, now) + &lines,
                }
            })
            .collect();
        let buses: Vec<Value> = buses
            .iter()
            .map(|bus| {
                let devices: Vec<Value> = bus
                    .devices()
                    .into_iter()
                    .map(|(unit, facts, name)| {
                        let path = unit.path();
                        json!({
                            "target": path.target, "lun": path.lun, "periph": name,
                            "periphs": bus.periphs(path),
                            "device": facts.label(), "lost": unit.look(|d| d.is_lost()),
                            "physpath": unit.physpath(),
                            "last_error": LastError::of(&unit, now).map(|e| json!({
                                "what": e.what, "age_ns": e.age_ns, "count": e.count,
                            })),
                        })
                    })
                    .collect();
                let counts: serde_json::Map<String, Value> = bus
                    .sim()
                    .counts()
                    .into_iter()
                    .map(|(name, count)| (name.to_owned(), count.into()))
                    .collect();
                json!({
                    "bus": bus.number(), "sim": bus.sim().facts().name, "devices": devices,
                    "counts": counts, "troubles": whys(bus),
                })
            })
            .collect();
        json!({ "text": text, "buses": buses })
    }

    fn by_name(&self, name: &str) -> Option<Found> {
        self.found(name, |bus, path| bus.periphs(path).iter().any(|periph| periph == name))
    }

    fn found(&self, name: &str, is: impl Fn(&Bus, Path) -> bool) -> Option<Found> {
        let of = |bus: Arc<Bus>| bus.devices().into_iter().map(move |known| (bus.clone(), known));
        let mut all = self.buses().into_iter().flat_map(of);
        let (bus, (unit, facts, _)) = all.find(|(bus, (unit, ..))| is(bus, unit.path()))?;
        Some(Found { name: name.to_owned(), bus, unit, facts })
    }

    /// By one of its names, or by where it is: BUS:TARGET, which is its unit 0, or BUS:TARGET:LUN.
    /// A name goes first: a disk may be called whatever its bus says.
    fn disk(&self, name: &str) -> Result<Found, Error> {
        let place = || {
            let typed = Path::typed(name).filter(|path| path.target != ANY)?;
            let lun = if typed.lun == ANY { 0 } else { typed.lun };
            self.found(name, |_, path| path == Path { lun, ..typed })
        };
        if let Some(found) = self.by_name(name).or_else(place) {
            return Ok(found);
        }
        let what = format!("no device {name} on any bus; `ashlar cam devlist` lists them");
        Err(Error::new(Errno::NoEnt, what))
    }
}

/// A disk that was asked about.
struct Found {
    name: String,
    bus: Arc<Bus>,
    unit: Arc<Unit>,
    facts: Facts,
}

impl Found {
    /// Whom camcontrol names, which opens a disk by its pass device.
    fn pass(&self) -> String {
        let periphs = self.bus.periphs(self.unit.path());
        let pass = periphs.into_iter().find(|name| name.starts_with("pass"));
        pass.unwrap_or_else(|| self.name.clone())
    }

    /// What its link moves in a second at most, and whether it takes several commands at a time.
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

    fn tags(&self, params: &Value) -> Result<Value, Error> {
        if let Some(number) = params["number"].as_u64() {
            let most = u32::try_from(number).ok().filter(|n| (1..=255).contains(n));
            let Some(openings_max) = most else {
                let what = format!("number={number}: from 1 to 255 commands at a time");
                return Err(Error::inval(what));
            };
            let shape = self.unit.look(|device| device.shape());
            let openings_min = shape.openings_min.min(openings_max);
            self.unit.limit(Shape { openings_min, openings_max, ..shape });
        }
        let (path, is) = (self.unit.path(), |key| params[key].as_bool().unwrap_or(false));
        let ((openings, active), live, shape, held) =
            self.unit.look(|d| (d.openings(), d.live(), d.shape(), d.held()));
        let queued = live.saturating_sub(active as usize + held as usize);
        let sim = self.unit.sim().facts().name;
        let place = match is("quiet") {
            true => String::new(),
            false => format!("({}:{sim}:0:{}:{}): ", self.pass(), path.target, path.lun),
        };
        let mut text = String::new();
        if !params["number"].is_null() && !is("quiet") {
            let _ = writeln!(text, "{place}tagged openings now {openings}");
        }
        if is("verbose") {
            let lines = [
                ("dev_openings", u64::from(openings.saturating_sub(active))),
                ("dev_active", u64::from(active)),
                ("allocated", live as u64),
                ("queued", queued as u64),
                ("held", u64::from(held)),
                ("mintags", u64::from(shape.openings_min)),
                ("maxtags", u64::from(shape.openings_max)),
            ];
            for (key, value) in lines {
                let _ = writeln!(text, "{place}{key:<13} {value}");
            }
        } else {
            let words = if is("quiet") { "" } else { "device openings: " };
            let _ = writeln!(text, "{place}{words}{openings}");
        }
        Ok(json!({
            "text": text, "openings": openings, "active": active, "allocated": live,
            "queued": queued, "held": held, "min": shape.openings_min, "max": shape.openings_max,
        }))
    }
}

/// What a bus cannot reach, or cannot believe, a sentence each.
fn whys(bus: &Bus) -> Vec<String> {
    bus.troubles().into_iter().map(|trouble| trouble.why).collect()
}

/// The N of SPC-N; SPC-4 is 6.
fn version(code: u8) -> u8 {
    code.saturating_sub(2)
}
