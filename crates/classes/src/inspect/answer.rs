//! Answer of the verbs: signatures, results of tasting, and users of a provider.

use geom::{Error, GeomView, GraphControl};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scan::{Finding, FindingRole, InspectReport};
use crate::members::provider_access;

/// One signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SignatureFinding {
    /// Byte offset of the signature.
    pub offset: u64,
    /// Length of the signature in bytes; only these bytes are cleared.
    pub bytes: u64,
    /// Kind of the signature in one word, as for --only.
    pub kind: String,
    /// Class that would claim it; linux, geom, firmware or other if no class of this daemon would.
    pub class: String,
    /// Description of the signature.
    pub what: String,
    /// Reason why it would be claimed or not.
    pub why: String,
    /// Role of the signature: main, backup, guard or stale.
    pub standing: String,
    /// Index of the partition that contains it.
    pub inside: Option<u32>,
    /// Layer on which it is visible, and of which the provider is a member.
    pub shown_on: Option<String>,
    /// Whether `wipe --yes-destroy` would clear it.
    pub would_clear: bool,
}

/// Result of the taste of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TasteResult {
    /// The class.
    pub class: String,
    /// The result in words.
    pub said: String,
}

/// A range of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Answer of `inspect` and `wipe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InspectAnswer {
    /// Summary of the result of `wipe`; empty for `inspect`.
    pub message: String,
    /// The provider.
    pub provider: String,
    /// Size of the provider in bytes.
    pub media_bytes: u64,
    /// Sector size of the provider in bytes.
    pub sector_bytes: u32,
    /// Signatures found, by offset; after clearing, the remaining ones.
    pub findings: Vec<SignatureFinding>,
    /// Cleared signatures, in the order of clearing.
    pub cleared: Vec<SignatureFinding>,
    /// Result of the taste of each class.
    pub verdicts: Vec<TasteResult>,
    /// Class and name of each geom on the provider.
    pub claimed_by: Vec<String>,
    /// Users that have the provider open; `wipe` is refused then.
    pub in_use: Option<String>,
    /// Ranges near the ends of the provider that cannot be read.
    pub unread: Vec<ByteRange>,
}

impl SignatureFinding {
    /// A finding as the media shows it.
    pub(super) fn of(finding: &Finding) -> SignatureFinding {
        SignatureFinding {
            offset: finding.offset,
            bytes: finding.len,
            kind: finding.kind.to_owned(),
            class: finding.class.to_owned(),
            what: finding.description.clone(),
            why: finding.reason.clone(),
            standing: finding.role.to_string(),
            inside: finding.inside,
            shown_on: finding.shown_on.clone(),
            would_clear: false,
        }
    }
}

/// The answer for a report, with the results of the classes' tasting. `would`: offsets of findings
/// that would be cleared.
pub(super) fn answer(
    control: &GraphControl,
    name: &str,
    report: &InspectReport,
    would: &[u64],
) -> Result<InspectAnswer, Error> {
    let on = provider_access::find(control, name)?;
    let (sector_bytes, media_bytes) = provider_access::sizes(control, on);
    let view = control.topology.view(0);
    let seen = view.iter().flat_map(|g| &g.providers).find(|p| p.id == on);
    let tasted = seen.map(|p| p.taste_outcomes.as_slice()).unwrap_or_default();
    let holders: Vec<&GeomView> = view
        .iter()
        .filter(|g| g.consumers.iter().any(|c| c.provider.as_deref() == Some(name)))
        .collect();
    let finding = |f: &Finding| {
        let mut finding = SignatureFinding::of(f);
        let verdict = tasted.iter().find(|(class, _)| *class == f.class);
        // The class itself knows better than the frame of its record.
        if let Some((_, why)) = verdict
            && f.role == FindingRole::Main
            && f.shown_on.is_none()
            && f.class != "label"
        {
            // A layer made by a verb has not been tasted since.
            let holder = holders.iter().find(|g| g.class == f.class);
            let claimed = holder.filter(|_| !why.starts_with("claimed"));
            let claimed = claimed.map(|g| format!("claimed: {} {}", g.class, g.name));
            finding.why = claimed.unwrap_or_else(|| why.clone());
        }
        finding.would_clear = would.contains(&f.offset);
        finding
    };
    let verdict = |(class, why): &(&'static str, String)| TasteResult {
        class: (*class).to_owned(),
        said: why.clone(),
    };
    let range = |&(offset, bytes): &(u64, u64)| ByteRange { offset, bytes };
    Ok(InspectAnswer {
        message: String::new(),
        provider: name.to_owned(),
        media_bytes,
        sector_bytes,
        findings: report.findings.iter().map(finding).collect(),
        cleared: Vec::new(),
        verdicts: tasted.iter().map(verdict).collect(),
        claimed_by: holders.iter().map(|g| format!("{} {}", g.class, g.name)).collect(),
        in_use: users(control, name),
        unread: report.unread.iter().map(range).collect(),
    })
}

/// The geoms that have a provider open, and their access counts; `None` if it is not open.
pub(super) fn users(control: &GraphControl, name: &str) -> Option<String> {
    let mut all = Vec::new();
    for geom in control.topology.view(0) {
        for consumer in &geom.consumers {
            let counts = consumer.counts;
            let open = counts.r > 0 || counts.w > 0 || counts.e > 0;
            if consumer.provider.as_deref() == Some(name) && open {
                all.push(format!("{} {} ({counts})", geom.class, geom.name));
            }
        }
    }
    (!all.is_empty()).then(|| all.join(", "))
}
