//! `inquiry`: identification data of a disk.

use std::fmt::Write;

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{DiskName, version};
use crate::class::CamClass;
use crate::periph::Facts;
use crate::probe::Port;

/// Show the identity of a disk (INQUIRY)
///
/// Without -D, -S and -R, the verb shows all three.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Inquiry {
    name: DiskName,
    /// Show model and device type
    #[schemars(extend("x-short" = "D"))]
    standard: bool,
    /// Show the serial number; as the only option, without other text
    #[schemars(extend("x-short" = "S"))]
    serial: bool,
    /// Show the transfer rate of the link
    #[schemars(extend("x-short" = "R"))]
    rate: bool,
}

/// The identity of a disk.
#[derive(Serialize, JsonSchema)]
pub(super) struct InquiryAnswer {
    /// Result for people.
    text: String,
    /// Name of the device.
    name: String,
    /// Vendor, product and revision.
    device: String,
    /// Serial number; may be empty.
    serial: String,
    /// Whether the device takes several commands at a time.
    queueing: bool,
    /// Maximum throughput of its link, kB/s; 0: unknown.
    transfer_kb: u32,
    /// Ports of a port multiplier; absent for other devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<Vec<ListedPort>>,
    #[serde(flatten)]
    unit: Option<UnitFacts>,
}

/// A port of a port multiplier.
#[derive(Serialize, JsonSchema)]
struct ListedPort {
    /// Whether a device can be reached behind it.
    up: bool,
    /// State of the port in words.
    is: &'static str,
}

/// Facts about a SCSI unit.
#[derive(Serialize, JsonSchema)]
struct UnitFacts {
    /// NAA or EUI-64 designator, in hexadecimal; may be empty.
    lunid: String,
    /// Revolutions per minute; 0: not reported, 1: the medium does not rotate.
    rotation_rate: u16,
    /// Whether the unit takes UNMAP.
    unmap: bool,
}

impl Verb<CamClass> for Inquiry {
    const NAME: &'static str = "inquiry";
    const EXAMPLE: &'static str = "inquiry da0";
    type Answer = InquiryAnswer;

    fn run(self, (class, _): At<'_, CamClass>) -> Result<InquiryAnswer, Error> {
        let found = class.disk(&self.name.0)?;
        // The serial number alone has no word before it, for scripts.
        let chosen = [self.standard, self.serial, self.rate];
        let [standard_too, serial_too, rate_too] =
            if chosen.contains(&true) { chosen } else { [true; 3] };
        let (name, label) = (&found.name, found.facts.label());
        let prefix = match &found.facts {
            Facts::Multiplier(_) => name.clone(),
            _ => found.pass_name(),
        };
        let (serial, standard, queues) = match &found.facts {
            Facts::Scsi(f) => {
                (f.serial.clone(), format!("SPC-{}", version(f.inquiry.version)), f.inquiry.queues)
            }
            Facts::Ata(f) => {
                (f.identify.serial.clone(), "ATA".to_string(), f.identify.queue_depth > 1)
            }
            Facts::Multiplier(_) | Facts::Bridge(_) => (String::new(), "SATA".to_string(), false),
        };
        let kind = match &found.facts {
            Facts::Scsi(f) if f.inquiry.kind == 0x0d => "Fixed Enclosure Services",
            Facts::Bridge(_) => "Fixed Enclosure Services",
            Facts::Multiplier(_) => "Port Multiplier",
            Facts::Scsi(_) | Facts::Ata(_) => "Fixed Direct Access",
        };
        let device = if matches!(found.facts, Facts::Scsi(_)) { "SCSI device" } else { "device" };
        let mut text = String::new();
        if standard_too {
            let _ = writeln!(text, "{prefix}: {label} {kind} {standard} {device}");
        }
        if serial_too && chosen == [false, true, false] {
            let _ = writeln!(text, "{serial}");
        } else if serial_too && !serial.is_empty() {
            let _ = writeln!(text, "{prefix}: Serial Number {serial}");
        }
        if rate_too {
            text += &found.transfers(&prefix, queues);
        }
        let (mut ports, mut unit) = (None, None);
        match &found.facts {
            Facts::Multiplier(f) => {
                if standard_too {
                    let _ = writeln!(text, "{name}: {} fan-out ports", f.ports.len());
                    for (n, port) in f.ports.iter().enumerate() {
                        let _ = writeln!(text, "{name}: port {n}: {}", port.text());
                    }
                }
                let port = |port: &Port| ListedPort { up: port.is_up(), is: port.text() };
                ports = Some(f.ports.iter().map(port).collect());
            }
            Facts::Scsi(f) => {
                let (lunid, rotation_rate) = (f.names.id.clone(), f.rotation);
                unit = Some(UnitFacts { lunid, rotation_rate, unmap: f.limits.unmap });
            }
            Facts::Ata(_) | Facts::Bridge(_) => {}
        }
        Ok(InquiryAnswer {
            text,
            name: name.clone(),
            device: label,
            serial,
            queueing: queues,
            transfer_kb: found.unit.sim().transfer_kb(),
            ports,
            unit,
        })
    }
}
