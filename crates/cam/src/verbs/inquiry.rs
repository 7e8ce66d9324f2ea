//! `inquiry`: identification data of a disk.

use std::fmt::Write;

use geom::{Deserialize, Error, GraphControl, JsonSchema, Verb};
use serde_json::{Value, json};

use super::{DiskName, version};
use crate::class::CamClass;
use crate::periph::Facts;

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

impl Verb<CamClass> for Inquiry {
    const NAME: &'static str = "inquiry";
    const EXAMPLE: &'static str = "inquiry da0";
    type Answer = Value;

    fn run(self, class: &CamClass, _: &mut GraphControl) -> Result<Value, Error> {
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
        let mut value = json!({
            "text": text, "name": name, "device": label, "serial": serial, "queueing": queues,
            "transfer_kb": found.unit.sim().transfer_kb(),
        });
        if let Facts::Multiplier(f) = &found.facts {
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
        if let Facts::Scsi(f) = &found.facts {
            value["lunid"] = json!(f.names.id);
            value["rotation_rate"] = json!(f.rotation);
            value["unmap"] = json!(f.limits.unmap);
        }
        Ok(value)
    }
}
