//! What can be asked of buses and their devices, in camcontrol's words and formats.

mod aoe;
mod buses;
mod discover;
mod fault;
mod format;
pub(crate) mod orders;
mod raw;
mod reset;
mod shelf;
mod upkeep;

use std::fmt::Write;
use std::sync::Arc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Error, VerbSpec};
use serde_json::{Value, json};

use crate::bus::Bus;
use crate::class::CamClass;
use crate::device::Shape;
use crate::periph::Facts;
use crate::unit::Unit;
use orders::Say;

const DISK: ArgSpec =
    ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "A disk: da0, ada0" };

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
            option("verbose", 'v', ArgKind::Flag, "The buses too"),
            option("buses", 'b', ArgKind::Flag, "The buses alone"),
        ],
        "devlist -v",
    ),
    buses::RESCAN,
    verb("inquiry", "Show what a disk says of itself (INQUIRY)", &[DISK], "inquiry da0"),
    verb("identify", "Show what an ATA disk says of itself", &[DISK], "identify ada0"),
    verb("readcap", "Show a disk's last block and the length of a block", &[DISK], "readcap da0"),
    verb("reportluns", "Show the logical units of a disk's target", &[DISK], "reportluns da0"),
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
                Ok(self.devlist(is("verbose"), is("buses")))
            }
            "rescan" => self.rescan(control, params),
            "inquiry" => self.disk(on).map(|d| d.inquiry()),
            "identify" => self.disk(on)?.identify(),
            "readcap" => self.disk(on)?.readcap(),
            "reportluns" => self.disk(on)?.reportluns(),
            "tags" => self.disk(on)?.tags(params),
            "reset" => self.reset(control, on, params),
            "modepage" => {
                talk("modepage", |talk, p| Box::pin(async move { talk.modepage(p).await }))
            }
            "defects" => talk("defects", |talk, p| Box::pin(async move { talk.defects(p).await })),
            "cmd" => talk("cmd", |talk, p| Box::pin(async move { talk.cmd(p).await })),
            "smpphylist" => self.smpphylist(control, on),
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

    fn devlist(&self, verbose: bool, buses_alone: bool) -> Value {
        let buses = self.buses();
        let text: String = buses
            .iter()
            .map(|bus| {
                let name = bus.sim().facts().name;
                let troubles = whys(bus).into_iter();
                let lines: String = troubles.map(|why| format!("{name}: {why}\n")).collect();
                match buses_alone {
                    true => format!("scbus{} on {name} bus 0\n{lines}", bus.number()),
                    false => bus.devlist(verbose) + &lines,
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

    fn disk(&self, name: &str) -> Result<Found, Error> {
        for bus in self.buses() {
            for (unit, facts, _) in bus.devices() {
                if bus.periphs(unit.path()).iter().any(|periph| periph == name) {
                    return Ok(Found { name: name.to_owned(), bus, unit, facts });
                }
            }
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

    fn inquiry(&self) -> Value {
        let (name, label) = (&self.name, self.facts.label());
        let shown = match &self.facts {
            Facts::Multiplier(_) => name.clone(),
            _ => self.pass(),
        };
        let (serial, standard, queues) = match &self.facts {
            Facts::Scsi(f) => {
                (f.serial.clone(), format!("SPC-{}", version(f.inquiry.version)), f.inquiry.queues)
            }
            Facts::Ata(f) => {
                (f.identify.serial.clone(), "ATA".to_string(), f.identify.queue_depth > 1)
            }
            Facts::Multiplier(_) | Facts::Bridge(_) => (String::new(), "SATA".to_string(), false),
        };
        let kind = match &self.facts {
            Facts::Scsi(f) if f.inquiry.kind == 0x0d => "Fixed Enclosure Services",
            Facts::Bridge(_) => "Fixed Enclosure Services",
            Facts::Multiplier(_) => "Port Multiplier",
            Facts::Scsi(_) | Facts::Ata(_) => "Fixed Direct Access",
        };
        let device = if matches!(self.facts, Facts::Scsi(_)) { "SCSI device" } else { "device" };
        let mut text = format!("{shown}: {label} {kind} {standard} {device}\n");
        if !serial.is_empty() {
            let _ = writeln!(text, "{shown}: Serial Number {serial}");
        }
        text += &self.transfers(&shown, queues);
        let mut value = json!({
            "text": text, "name": name, "device": label, "serial": serial, "queueing": queues,
            "transfer_kb": self.unit.sim().transfer_kb(),
        });
        if let Facts::Multiplier(f) = &self.facts {
            text = format!("{text}{name}: {} fan-out ports\n", f.ports.len());
            for (n, port) in f.ports.iter().enumerate() {
                let _ = writeln!(text, "{name}: port {n}: {}", port.text());
            }
            let ports = f.ports.iter().map(|port| json!({ "up": port.is_up(), "is": port.text() }));
            value["ports"] = ports.collect();
            value["text"] = text.into();
        }
        if let Facts::Scsi(f) = &self.facts {
            value["lunid"] = json!(f.names.id);
            value["rotation_rate"] = json!(f.rotation);
            value["unmap"] = json!(f.limits.unmap);
        }
        value
    }

    fn identify(&self) -> Result<Value, Error> {
        let Facts::Ata(facts) = &self.facts else {
            let what = format!("{0} speaks SCSI; `ashlar cam inquiry {0}` asks it", self.name);
            return Err(Error::new(Errno::NotSup, what));
        };
        let (name, said) = (&self.name, &facts.identify);
        let yes = |on: bool| if on { "yes" } else { "no" };
        let cache = said.write_cache.unwrap_or(false);
        let rate = match said.rotation {
            0 => "not reported".to_string(),
            1 => "non-rotating".to_string(),
            turns => turns.to_string(),
        };
        let sector = said.sector_bytes;
        let pass = self.pass();
        let mut text = format!("{pass}: {} ATA device\n", self.facts.label());
        text += &self.transfers(&pass, said.queue_depth > 1);
        text.push('\n');
        let lines = [
            ("device model", said.model.clone()),
            ("firmware revision", said.firmware.clone()),
            ("serial number", said.serial.clone()),
            ("WWN", format!("{:016x}", said.wwn)),
            (
                "sector size",
                format!("logical {sector}, physical {}", sector << said.physical_exponent),
            ),
            ("LBA supported", format!("{} sectors", said.sectors.min(0x0fff_ffff))),
            (
                "LBA48 supported",
                format!("{} sectors", if said.extended { said.sectors } else { 0 }),
            ),
            ("media RPM", rate),
        ];
        for (key, value) in &lines {
            let _ = writeln!(text, "{key:<22}{value}");
        }
        let _ = writeln!(text, "\n{:<29}{:<8} {:<9} Value", "Feature", "Support", "Enabled");
        let features = [
            ("write cache", said.write_cache.is_some(), cache, String::new()),
            (
                "flush cache",
                said.flush || said.flush_ext,
                said.flush || said.flush_ext,
                String::new(),
            ),
            (
                "Native Command Queuing (NCQ)",
                said.queue_depth > 1,
                said.queue_depth > 1,
                format!("{} tags", said.queue_depth),
            ),
            ("Data Set Management (TRIM)", said.trim.is_some(), said.trim.is_some(), String::new()),
        ];
        for (feature, has, on, value) in &features {
            let line = format!("{feature:<29}{:<8} {:<9} {value}", yes(*has), yes(*on));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        Ok(json!({
            "text": text, "name": name, "model": said.model, "firmware": said.firmware,
            "serial": said.serial, "wwn": format!("{:016x}", said.wwn), "sectors": said.sectors,
            "sector_bytes": sector, "rotation_rate": said.rotation, "write_cache": said.write_cache,
            "queue_depth": said.queue_depth, "trim": said.trim.is_some(),
        }))
    }

    fn readcap(&self) -> Result<Value, Error> {
        let medium = match &self.facts {
            Facts::Scsi(f) => f.capacity.map(|c| (c.blocks, c.block_len)),
            Facts::Ata(f) => Some((f.identify.sectors, f.identify.sector_bytes)),
            Facts::Multiplier(_) | Facts::Bridge(_) => None,
        };
        let none = || Error::new(Errno::NotSup, format!("{} has no medium", self.name));
        let (blocks, block_len) = medium.ok_or_else(none)?;
        let last = blocks.saturating_sub(1);
        let text = format!("Last Block: {last}, Block Length: {block_len} bytes\n");
        Ok(json!({ "text": text, "last_block": last, "block_length": block_len }))
    }

    fn reportluns(&self) -> Result<Value, Error> {
        let Facts::Scsi(facts) = &self.facts else {
            let what = format!("{} speaks ATA, which has no logical units", self.name);
            return Err(Error::new(Errno::NotSup, what));
        };
        let luns: Vec<u32> = facts.luns.iter().map(|lun| lun.number()).collect();
        let plural = if luns.len() == 1 { "" } else { "s" };
        let mut text = format!("{} LUN{plural} found\n", luns.len());
        luns.iter().for_each(|lun| text.push_str(&format!("{lun}\n")));
        Ok(json!({ "text": text, "luns": luns }))
    }

    fn tags(&self, params: &Value) -> Result<Value, Error> {
        if let Some(number) = params["number"].as_u64() {
            let most = u32::try_from(number).ok().filter(|n| (1..=255).contains(n));
            let Some(openings_max) = most else {
                let what = format!("number={number}: from 1 to 255 commands at a time");
                return Err(Error::new(Errno::Inval, what));
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
