//! `dump`: what the labels on providers say.

use geom::{Control, Error, Verb};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::members::known;
use crate::multipath::NAME;
use crate::multipath::class::MultipathClass;
use crate::multipath::metadata::Metadata;
use crate::words::Members;

/// What it takes.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Dump {
    members: Members,
}

impl Verb<MultipathClass> for Dump {
    const NAME: &'static str = "dump";
    const DOC: &'static str = "Show what the labels on providers say";
    const POSITIONAL: &'static [&'static str] = &["members"];
    const EXAMPLE: &'static str = "multipath dump d0";
    type Answer = Value;

    fn run(self, _: &MultipathClass, control: &mut Control) -> Result<Value, Error> {
        let mut text = String::new();
        let mut all = Vec::new();
        for member in &self.members.0 {
            let record = known::read(control, NAME, member, Metadata::decode)?;
            let Metadata { uuid, name, sector_bytes, provider_bytes, mode, options } = record;
            let mode = mode.word();
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
}
