//! `dump`: what the labels on providers say.

use geom::{Control, Error, Verb};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::members::known;
use crate::span::Span;
use crate::span::class::SpanClass;
use crate::words::Members;

/// What it takes.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Dump {
    members: Members,
}

impl<S: Span> Verb<SpanClass<S>> for Dump {
    const NAME: &'static str = "dump";
    const DOC: &'static str = "Show what the labels on providers say";
    const POSITIONAL: &'static [&'static str] = &["members"];
    const EXAMPLE: &'static str = "dump d0";
    type Answer = Value;

    fn run(self, _: &SpanClass<S>, control: &mut Control) -> Result<Value, Error> {
        let mut text = String::new();
        let mut all = Vec::new();
        for member in &self.members.0 {
            let label = known::read(control, S::NAME, member, S::decode)?;
            text += &format!(
                "Metadata on {member}:\n    name: {}\n      id: {}\n      no: {}\n     all: {}\n",
                label.name, label.id, label.number, label.count
            );
            if label.strip > 0 {
                text += &format!("   strip: {}\n", label.strip);
            }
            text += &format!("provider: {}\nprovsize: {}\n\n", label.home, label.provider_bytes);
            all.push(json!({
                "provider": member, "name": label.name, "id": label.id, "number": label.number,
                "count": label.count, "strip": label.strip, "hardcoded": label.home,
                "provider_bytes": label.provider_bytes,
            }));
        }
        Ok(json!({ "text": text, "labels": all }))
    }
}
