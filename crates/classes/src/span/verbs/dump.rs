//! `dump`: the content of the labels on providers.

use geom::{Error, GraphControl, JsonSchema};
use serde::Serialize;

use crate::members::verb_util;
use crate::span::{Span, SpanLabel};

/// The content of the labels.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Labels {
    /// Result for people.
    text: String,
    /// The label of each provider.
    labels: Vec<MemberLabel>,
}

/// The label of a member.
#[derive(Serialize, JsonSchema)]
struct MemberLabel {
    /// Name of the provider.
    provider: String,
    /// Name of the geom.
    name: String,
    /// Number of the geom.
    id: u32,
    /// Number of the member, from 0.
    number: u16,
    /// Number of members.
    count: u16,
    /// Size of a strip, bytes; 0: there are none.
    strip: u64,
    /// Name of the provider that the label must be on; empty: any.
    hardcoded: String,
    /// Size of the provider that the label was written for, bytes; 0: any.
    provider_bytes: u64,
}

/// Shows the content of the records.
pub(super) fn dump<S: Span>(
    control: &mut GraphControl,
    members: &[String],
) -> Result<Labels, Error> {
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
        let SpanLabel { name, id, number, count, strip, home: hardcoded, provider_bytes } = label;
        let provider = member.clone();
        all.push(MemberLabel {
            provider,
            name,
            id,
            number,
            count,
            strip,
            hardcoded,
            provider_bytes,
        });
    }
    Ok(Labels { text, labels: all })
}
