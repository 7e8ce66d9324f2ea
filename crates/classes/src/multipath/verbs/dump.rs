//! `dump`: the content of the labels on providers.

use geom::{Error, GraphControl};
use serde_json::{Value, json};

use crate::members::verb_util;
use crate::multipath::NAME;
use crate::multipath::metadata::Metadata;

/// Shows the content of the records.
pub(super) fn dump(control: &mut GraphControl, members: &[String]) -> Result<Value, Error> {
    let mut text = String::new();
    let mut all = Vec::new();
    for member in members {
        let record = verb_util::read(control, NAME, member, Metadata::decode)?;
        let Metadata { uuid, name, sector_bytes, provider_bytes, mode, options } = record;
        let mode = mode.as_str();
        text += &format!(
            "Metadata on {member}:\n      name: {name}\n      uuid: {uuid}\n      mode: \
             {mode}\n\
         sectorsize: {sector_bytes}\n      size: {provider_bytes}\n\n"
        );
        for (word, value) in options.lines() {
            text += &format!("{word:>10}: {value}\n");
        }
        let options: serde_json::Map<String, Value> =
            options.lines().into_iter().map(|(k, v)| (k.to_lowercase(), v.into())).collect();
        all.push(json!({
            "options": options,
            "provider": member, "name": name, "uuid": uuid, "mode": mode,
            "sector_bytes": sector_bytes, "provider_bytes": provider_bytes,
        }));
    }
    Ok(json!({ "text": text, "records": all }))
}
