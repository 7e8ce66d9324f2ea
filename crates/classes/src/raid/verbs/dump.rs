//! The `dump` verb: shows the records of disks.

use geom::{Error, GraphControl};
use serde_json::{Value, json};

use super::probe;
use crate::members::provider_access;
use crate::raid::metadata::MetadataState;
use crate::raid::show::level_str;

/// Shows the records.
pub(super) fn dump(control: &mut GraphControl, members: &[String]) -> Result<Value, Error> {
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
            volumes.push(json!({
                "name": volume.name, "level": word, "bytes": volume.bytes, "strip": volume.strip,
                "dirty": volume.dirty, "members": members,
                "consistency": if volume.log.is_some() { "ppl" } else { "resync" },
            }));
        }
        text.push('\n');
        all.push(json!({
            "provider": name, "format": id.format(), "array": id.name(), "disk": found.key(),
            "generation": found.generation(), "volumes": volumes,
            "written_s": Some(found.written_s()).filter(|s| *s != 0),
        }));
    }
    Ok(json!({ "text": text, "records": all }))
}
