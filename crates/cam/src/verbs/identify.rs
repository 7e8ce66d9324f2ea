//! `identify`: identification data of an ATA disk.

use std::fmt::Write;

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::DiskName;
use crate::class::CamClass;
use crate::periph::Facts;

/// Show the IDENTIFY data of an ATA disk
#[derive(Deserialize, JsonSchema)]
pub(super) struct Identify {
    name: DiskName,
}

/// The IDENTIFY data of a disk.
#[derive(Serialize, JsonSchema)]
pub(super) struct IdentifyAnswer {
    /// Result for people.
    text: String,
    /// Name of the disk.
    name: String,
    /// Model.
    model: String,
    /// Revision of the firmware.
    firmware: String,
    /// Serial number.
    serial: String,
    /// World wide name, in hexadecimal.
    wwn: String,
    /// Number of sectors.
    sectors: u64,
    /// Size of a sector, bytes.
    sector_bytes: u32,
    /// Revolutions per minute; 0: not reported, 1: the medium does not rotate.
    rotation_rate: u16,
    /// Whether the write cache is on; null: there is none.
    write_cache: Option<bool>,
    /// Commands that the disk takes at a time.
    queue_depth: u8,
    /// Whether the disk takes deletes.
    trim: bool,
}

impl Verb<CamClass> for Identify {
    const NAME: &'static str = "identify";
    const EXAMPLE: &'static str = "identify ada0";
    type Answer = IdentifyAnswer;

    fn run(self, (class, _): At<'_, CamClass>) -> Result<IdentifyAnswer, Error> {
        let found = class.disk(&self.name.0)?;
        let Facts::Ata(facts) = &found.facts else {
            let what = format!("{0} is a SCSI device: use `ashlar cam inquiry {0}`", found.name);
            return Err(Error::new(Errno::NotSup, what));
        };
        let (name, identify) = (&found.name, &facts.identify);
        let yes = |on: bool| if on { "yes" } else { "no" };
        let cache = identify.write_cache.unwrap_or(false);
        let rate = match identify.rotation {
            0 => "not reported".to_string(),
            1 => "non-rotating".to_string(),
            turns => turns.to_string(),
        };
        let sector = identify.sector_bytes;
        let pass = found.pass_name();
        let mut text = format!("{pass}: {} ATA device\n", found.facts.label());
        text += &found.transfers(&pass, identify.queue_depth > 1);
        text.push('\n');
        let lines = [
            ("device model", identify.model.clone()),
            ("firmware revision", identify.firmware.clone()),
            ("serial number", identify.serial.clone()),
            ("WWN", format!("{:016x}", identify.wwn)),
            (
                "sector size",
                format!("logical {sector}, physical {}", sector << identify.physical_exponent),
            ),
            ("LBA supported", format!("{} sectors", identify.sectors.min(0x0fff_ffff))),
            (
                "LBA48 supported",
                format!("{} sectors", if identify.extended { identify.sectors } else { 0 }),
            ),
            ("media RPM", rate),
        ];
        for (key, value) in &lines {
            let _ = writeln!(text, "{key:<22}{value}");
        }
        let _ = writeln!(text, "\n{:<29}{:<8} {:<9} Value", "Feature", "Support", "Enabled");
        let features = [
            ("write cache", identify.write_cache.is_some(), cache, String::new()),
            (
                "flush cache",
                identify.flush || identify.flush_ext,
                identify.flush || identify.flush_ext,
                String::new(),
            ),
            (
                "Native Command Queuing (NCQ)",
                identify.queue_depth > 1,
                identify.queue_depth > 1,
                format!("{} tags", identify.queue_depth),
            ),
            (
                "Data Set Management (TRIM)",
                identify.trim.is_some(),
                identify.trim.is_some(),
                String::new(),
            ),
        ];
        for (feature, has, on, value) in &features {
            let line = format!("{feature:<29}{:<8} {:<9} {value}", yes(*has), yes(*on));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        Ok(IdentifyAnswer {
            text,
            name: name.clone(),
            model: identify.model.clone(),
            firmware: identify.firmware.clone(),
            serial: identify.serial.clone(),
            wwn: format!("{:016x}", identify.wwn),
            sectors: identify.sectors,
            sector_bytes: sector,
            rotation_rate: identify.rotation,
            write_cache: identify.write_cache,
            queue_depth: identify.queue_depth,
            trim: identify.trim.is_some(),
        })
    }
}
