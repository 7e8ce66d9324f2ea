//! `dump`: the content of the labels on providers.

use std::collections::BTreeMap;

use geom::{Error, GraphControl, JsonSchema};
use serde::Serialize;

use crate::members::verb_util;
use crate::multipath::NAME;
use crate::multipath::metadata::Metadata;

/// The content of the labels.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MultipathRecords")]
pub(crate) struct Records {
    /// Result for people.
    text: String,
    /// The label of each provider.
    records: Vec<Record>,
}

/// The label of a path.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MultipathRecord")]
struct Record {
    /// Options that are on, by name, each a time in seconds with its unit.
    options: BTreeMap<String, String>,
    /// Name of the provider.
    provider: String,
    /// Name of the multipath geom.
    name: String,
    /// Identity of the disk.
    uuid: String,
    /// Mode of the paths.
    mode: &'static str,
    /// Size of a sector, bytes.
    sector_bytes: u32,
    /// Size of the disk, bytes.
    provider_bytes: u64,
}

/// Shows the content of the records.
pub(super) fn dump(control: &mut GraphControl, members: &[String]) -> Result<Records, Error> {
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
        let options = options.lines().into_iter().map(|(k, v)| (k.to_lowercase(), v)).collect();
        let provider = member.clone();
        all.push(Record { options, provider, name, uuid, mode, sector_bytes, provider_bytes });
    }
    Ok(Records { text, records: all })
}
