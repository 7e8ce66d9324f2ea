//! `inquiry`, `identify`, `readcap`, `reportluns`: what disks say of themselves, in camcontrol's
//! formats.

use std::fmt::Write;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};
use wire::scsi::{Lun, LunError};

use super::orders::Talk;
use super::{DISK, Found, option, verb, version};
use crate::ccb::Command;
use crate::periph::Facts;
use crate::periph::pass::{Data, Request};

pub(super) const INQUIRY: VerbSpec = verb(
    "inquiry",
    "Show what a disk says of itself (INQUIRY)",
    &[
        DISK,
        option("standard", 'D', ArgKind::Flag, "What it is"),
        option("serial", 'S', ArgKind::Flag, "Its serial number; alone, without a word"),
        option("rate", 'R', ArgKind::Flag, "What its link moves"),
    ],
    "inquiry da0",
);

pub(super) const IDENTIFY: VerbSpec =
    verb("identify", "Show what an ATA disk says of itself", &[DISK], "identify ada0");

pub(super) const READCAP: VerbSpec = verb(
    "readcap",
    "Show a disk's last block and the length of a block",
    &[
        DISK,
        option("block", 'b', ArgKind::Flag, "The length of a block alone"),
        option("size", 's', ArgKind::Flag, "The last block or the size alone"),
        option("blocks", 'N', ArgKind::Flag, "The number of blocks, not the last one"),
        ArgSpec {
            name: "human",
            short: None,
            kind: ArgKind::Flag,
            doc: "The size for people, a K of 1024 bytes (camcontrol's -h)",
        },
        option("decimal", 'H', ArgKind::Flag, "The size for people, a k of 1000 bytes"),
        option("quiet", 'q', ArgKind::Flag, "Numbers alone"),
    ],
    "readcap da0",
);

pub(super) const REPORTLUNS: VerbSpec = verb(
    "reportluns",
    "Show the logical units of a disk's target",
    &[
        DISK,
        option("count", 'c', ArgKind::Flag, "How many there are, and no more"),
        option("luns", 'l', ArgKind::Flag, "Which, and not how many"),
        option(
            "report",
            'r',
            ArgKind::Choice(&["default", "wellknown", "all"]),
            "Which are asked for",
        ),
    ],
    "reportluns da0",
);

/// Most bytes of a list of units: 16,384 of them and the header.
const LUNS_LEN: u32 = 8 + 16_384 * 8;

impl Found {
    /// With `standard`, `serial` or `rate` only what is asked for; the serial number alone stands
    /// there without a word, for scripts.
    pub(super) fn inquiry(&self, params: &Value) -> Value {
        let is = |key| params[key].as_bool().unwrap_or(false);
        let asked = ["standard", "serial", "rate"].map(is);
        let [standard_too, serial_too, rate_too] =
            if asked.contains(&true) { asked } else { [true; 3] };
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
        let mut text = String::new();
        if standard_too {
            let _ = writeln!(text, "{shown}: {label} {kind} {standard} {device}");
        }
        if serial_too && asked == [false, true, false] {
            let _ = writeln!(text, "{serial}");
        } else if serial_too && !serial.is_empty() {
            let _ = writeln!(text, "{shown}: Serial Number {serial}");
        }
        if rate_too {
            text += &self.transfers(&shown, queues);
        }
        let mut value = json!({
            "text": text, "name": name, "device": label, "serial": serial, "queueing": queues,
            "transfer_kb": self.unit.sim().transfer_kb(),
        });
        if let Facts::Multiplier(f) = &self.facts {
            if standard_too {
                let _ = writeln!(text, "{name}: {} fan-out ports", f.ports.len());
                for (n, port) in f.ports.iter().enumerate() {
                    let _ = writeln!(text, "{name}: port {n}: {}", port.text());
                }
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

    pub(super) fn identify(&self) -> Result<Value, Error> {
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

    pub(super) fn readcap(&self, params: &Value) -> Result<Value, Error> {
        let medium = match &self.facts {
            Facts::Scsi(f) => f.capacity.map(|c| (c.blocks, c.block_len)),
            Facts::Ata(f) => Some((f.identify.sectors, f.identify.sector_bytes)),
            Facts::Multiplier(_) | Facts::Bridge(_) => None,
        };
        let none = || Error::new(Errno::NotSup, format!("{} has no medium", self.name));
        let (blocks, block_len) = medium.ok_or_else(none)?;
        let text = capacity(blocks, block_len, params)?;
        let last = blocks.saturating_sub(1);
        Ok(json!({ "text": text, "last_block": last, "block_length": block_len }))
    }
}

impl Talk<'_> {
    pub(super) async fn reportluns(&self, params: &Value) -> Result<Value, Error> {
        let on = self.name();
        if !matches!(self.found.facts, Facts::Scsi(_)) {
            let what = format!("{on} speaks ATA, which has no logical units");
            return Err(Error::new(Errno::NotSup, what));
        }
        let is = |key| params[key].as_bool().unwrap_or(false);
        if is("count") && is("luns") {
            return Err(one_of("-c", "-l"));
        }
        let select = match params["report"].as_str() {
            Some("wellknown") => 1,
            Some("all") => 2,
            _ => 0,
        };
        let [a, b, c, d] = LUNS_LEN.to_be_bytes();
        let cdb = [0xa0, 0, select, 0, 0, 0, a, b, c, d, 0, 0];
        let asked = Request::helped(Command::scsi(&cdb), Data::In(LUNS_LEN));
        let data = self.send(asked).await?.good(&format!("{on}: REPORT LUNS"))?;
        // LUN LIST LENGTH, and four bytes that mean nothing.
        let (length, list) = match data.as_slice() {
            [a, b, c, d, _, _, _, _, list @ ..] => (u32::from_be_bytes([*a, *b, *c, *d]), list),
            _ => {
                let what = format!("{on}: REPORT LUNS: the answer has {} bytes", data.len());
                return Err(Error::new(Errno::Io, what));
            }
        };
        let count = length / 8;
        let (luns, _) = list.as_chunks::<8>();
        let luns = luns.iter().take(usize::try_from(count).unwrap_or(usize::MAX));
        let luns: Vec<Value> = luns.map(|lun| shown(*lun)).collect();
        let mut text = String::new();
        if !is("luns") {
            let plural = if count > 1 { "s" } else { "" };
            let _ = writeln!(text, "{count} LUN{plural} found");
        }
        if !is("count") {
            for lun in &luns {
                let _ = match lun {
                    Value::String(bytes) => writeln!(text, "{bytes}"),
                    number => writeln!(text, "{number}"),
                };
            }
        }
        Ok(json!({ "text": text, "count": count, "luns": luns }))
    }
}

/// A logical unit's eight bytes (SAM-5 4.7): its number where it is one of a single level.
fn shown(lun: [u8; 8]) -> Value {
    match Lun::decode(lun) {
        Ok(lun) => lun.number().into(),
        Err(LunError::WellKnown(number)) => number.into(),
        Err(LunError::Unsupported) => format!("{:#x}", u64::from_be_bytes(lun)).into(),
    }
}

fn one_of(a: &str, b: &str) -> Error {
    Error::inval(format!("{a} and {b} say different things: give one of them"))
}

/// A capacity in camcontrol's words.
fn capacity(blocks: u64, block_len: u32, params: &Value) -> Result<String, Error> {
    let is = |key| params[key].as_bool().unwrap_or(false);
    let [block, size, number, quiet] = ["block", "size", "blocks", "quiet"].map(is);
    let people = is("human") || is("decimal");
    for (wrong, a, b) in [
        (block && number, "-b", "-N"),
        (block && size, "-b", "-s"),
        (people && quiet, "--human or -H", "-q"),
        (people && block, "--human or -H", "-b"),
        (is("human") && is("decimal"), "--human", "-H"),
    ] {
        if wrong {
            return Err(one_of(a, b));
        }
    }
    let word = |word: &'static str| if quiet { "" } else { word };
    let mut parts = Vec::new();
    if people {
        let bytes = blocks.saturating_mul(u64::from(block_len));
        parts.push(format!("Device Size: {}", scaled(bytes, is("decimal"))));
    } else if number {
        parts.push(format!("{}{blocks}", word("Blocks: ")));
    } else if !block {
        parts.push(format!("{}{}", word("Last Block: "), blocks.saturating_sub(1)));
    }
    if !size {
        parts.push(format!("{}{block_len}{}", word("Block Length: "), word(" bytes")));
    }
    Ok(parts.join(", ") + "\n")
}

/// At most three digits, and one behind the point below ten, as humanize_number(3) has it.
fn scaled(bytes: u64, decimal: bool) -> String {
    let (step, units) = match decimal {
        true => (1000.0, ["B", "k", "M", "G", "T", "P", "E"]),
        false => (1024.0, ["B", "K", "M", "G", "T", "P", "E"]),
    };
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 9.95);
    format!("{value:.digits$} {}", units.get(unit).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_told_as_camcontrol_tells_them() {
        let two_tb = 3_907_029_168;
        for (params, want) in [
            (json!({}), "Last Block: 3907029167, Block Length: 512 bytes\n"),
            (json!({ "block": true }), "Block Length: 512 bytes\n"),
            (json!({ "block": true, "quiet": true }), "512\n"),
            (json!({ "size": true }), "Last Block: 3907029167\n"),
            (json!({ "blocks": true }), "Blocks: 3907029168, Block Length: 512 bytes\n"),
            (json!({ "blocks": true, "size": true, "quiet": true }), "3907029168\n"),
            (json!({ "quiet": true }), "3907029167, 512\n"),
            (json!({ "human": true }), "Device Size: 1.8 T, Block Length: 512 bytes\n"),
            (json!({ "decimal": true, "size": true }), "Device Size: 2.0 T\n"),
        ] {
            assert_eq!(capacity(two_tb, 512, &params).as_deref(), Ok(want), "{params}");
        }
        for (a, b) in [
            ("block", "blocks"),
            ("block", "size"),
            ("human", "quiet"),
            ("decimal", "quiet"),
            ("human", "block"),
            ("human", "decimal"),
        ] {
            let both = json!({ a: true, b: true });
            assert!(capacity(1, 512, &both).is_err_and(|e| e.what.contains("one of them")));
        }
        for (bytes, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 K"),
            (10_189, "10 K"),
            (64 << 20, "64 M"),
            (1023 << 20, "1.0 G"),
            (u64::MAX, "16 E"),
        ] {
            assert_eq!(scaled(bytes, false), want);
        }
        assert_eq!(scaled(999_499, true), "999 k");
    }

    #[test]
    fn units_are_told_by_their_numbers() {
        for (lun, want) in [
            ([0, 7, 0, 0, 0, 0, 0, 0], json!(7)),
            ([0x41, 1, 0, 0, 0, 0, 0, 0], json!(257)),
            ([0xc1, 1, 0, 0, 0, 0, 0, 0], json!(1)),
            ([1, 2, 0, 3, 0, 0, 0, 0], json!("0x102000300000000")),
        ] {
            assert_eq!(shown(lun), want);
        }
    }
}
