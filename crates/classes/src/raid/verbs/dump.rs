//! The `dump` verb: shows the records of disks.

use geom::{Error, GraphControl, JsonSchema};
use serde::Serialize;

use super::probe;
use crate::members::provider_access;
use crate::raid::metadata::MetadataState;
use crate::raid::show::level_str;

/// The records of disks.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RaidRecords")]
pub(crate) struct Records {
    /// Result for people.
    text: String,
    /// The record of each disk.
    records: Vec<Record>,
}

/// The record of a disk.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RaidRecord")]
struct Record {
    /// Name of the provider.
    provider: String,
    /// Format of the metadata: Intel or DDF.
    format: &'static str,
    /// Name of the array.
    array: String,
    /// Identity of the disk in the array.
    disk: String,
    /// Generation of the record.
    generation: u32,
    /// Volumes of the array.
    volumes: Vec<RecordedVolume>,
    /// When the record was last written, seconds since 1970; null: not known.
    written_s: Option<u64>,
}

/// A volume in a record.
#[derive(Serialize, JsonSchema)]
struct RecordedVolume {
    /// Label of the volume.
    name: String,
    /// RAID level.
    level: String,
    /// Size of the volume, bytes.
    bytes: u64,
    /// Size of a strip, bytes.
    strip: u64,
    /// Whether it was being written.
    dirty: bool,
    /// Its members: DISK@OFFSET+BYTES STATE.
    members: Vec<String>,
    /// Consistency policy: ppl or resync.
    consistency: &'static str,
}

pub(super) fn dump(control: &mut GraphControl, members: &[String]) -> Result<Records, Error> {
    let (mut text, mut all) = (String::new(), Vec::new());
    for name in members {
        let found = probe(control, name)?;
        let on = provider_access::find(control, name)?;
        let (sector, _) = provider_access::sizes(control, on);
        let (array, _) =
            MetadataState::open(&[&found], 0, sector).map_err(|f| Error::inval(f.to_string()))?;
        let id = found.set();
        text += &format!(
            "Metadata on {name}:\n    format: {}\n     array: {}\n      disk: {}\n    record: {}\n",
            id.format(),
            id.name(),
            found.key(),
            found.age(),
        );
        for disk in &array.disks {
            text +=
                &format!("      disk: {} {:?}, {} bytes\n", disk.serial, disk.state, disk.bytes);
        }
        let mut volumes = Vec::new();
        for volume in &array.volumes {
            let word = level_str(volume.level);
            let members: Vec<String> = volume
                .members
                .iter()
                .map(|m| format!("{}@{}+{} {:?}", m.disk, m.offset, m.bytes, m.state))
                .collect();
            text += &format!(
                "    volume: {} {word}, {} bytes, strip {}{}\n            {}\n",
                volume.name,
                volume.bytes,
                volume.strip,
                match (volume.dirty, volume.log.is_some()) {
                    (false, false) => "",
                    (true, false) => ", dirty",
                    (false, true) => ", partial parity log (PPL)",
                    (true, true) => ", dirty, partial parity log (PPL)",
                },
                members.join(", "),
            );
            volumes.push(RecordedVolume {
                name: volume.name.clone(),
                level: word,
                bytes: volume.bytes,
                strip: volume.strip,
                dirty: volume.dirty,
                members,
                consistency: if volume.log.is_some() { "ppl" } else { "resync" },
            });
        }
        text.push('\n');
        all.push(Record {
            provider: name.clone(),
            format: id.format(),
            array: id.name(),
            disk: found.key(),
            generation: found.generation(),
            volumes,
            written_s: Some(found.written_s()).filter(|s| *s != 0),
        });
    }
    Ok(Records { text, records: all })
}
