//! `dump`: the content of the labels on providers.

use geom::{Error, GraphControl};
use serde_json::{Value, json};

use crate::members::verb_util;
use crate::span::Span;

/// Shows the content of the records.
pub(super) fn dump<S: Span>(
    control: &mut GraphControl,
    members: &[String],
) -> Result<Value, Error> {
    let mut text = String::new();
    let mut all = Vec::new();
    for member in members {
        let label = verb_util::read(control, S::NAME, member, S::decode)?;
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
