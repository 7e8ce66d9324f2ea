//! inspect: all metadata by which a program would recognize a provider's content.

use super::entry::CommandVerb;
use crate::api::Result;
use crate::config::units::short;
use crate::service::Control;
use crate::text;
use classes::inspect::{ByteRange, InspectAnswer, SignatureFinding};
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Parameters of `inspect`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct InspectParams {
    /// Provider to examine.
    pub provider: String,
}

fn rows(findings: &[SignatureFinding]) -> Vec<Vec<String>> {
    let row = |f: &SignatureFinding| {
        let what = match (f.standing.as_str(), f.inside) {
            ("main", None) => f.what.clone(),
            (standing, None) => format!("{} ({standing})", f.what),
            (standing, Some(index)) => {
                format!("{} ({standing}, inside partition {index})", f.what)
            }
        };
        vec![
            format!("{:#x}", f.offset),
            f.bytes.to_string(),
            f.kind.clone(),
            f.class.clone(),
            what,
            text::or_dash(&f.why),
        ]
    };
    findings.iter().map(row).collect()
}

pub(super) fn table(answer: &InspectAnswer) -> String {
    let columns = [">offset", ">bytes", "kind", "claimed by", "what", "why"];
    let mut out = String::new();
    if !answer.message.is_empty() {
        out += &format!("{}\n", answer.message);
    }
    if !answer.cleared.is_empty() {
        out += "\ncleared:\n";
        out += &text::table(&columns, &rows(&answer.cleared));
        if answer.findings.is_empty() {
            return out;
        }
        out += "\nleft:\n";
    }
    let InspectAnswer { provider, media_bytes, sector_bytes, .. } = answer;
    let size = short(*media_bytes);
    if answer.findings.is_empty() {
        out += &format!("{provider} ({size}, sectors of {sector_bytes}): nothing found\n");
    } else {
        out += &format!("{provider} ({size}, sectors of {sector_bytes})\n");
        out += &text::table(&columns, &rows(&answer.findings));
    }
    if !answer.claimed_by.is_empty() {
        out += &format!("held by: {}\n", answer.claimed_by.join(", "));
    }
    if let Some(users) = &answer.in_use {
        out += &format!("in use: {users}\n");
    }
    for ByteRange { offset, bytes } in &answer.unread {
        out += &format!("cannot be read: {bytes} bytes at {offset:#x}\n");
    }
    out
}

impl Verb<Control> for InspectParams {
    const NAME: &'static str = "inspect";
    const DOC: &'static str = "Show labels, tables and file systems on a provider";
    const DETAIL: &'static str = "Searches the places where the classes of this daemon, the \
        classes of FreeBSD's GEOM, RAID firmware and Linux keep their signatures. Also searches \
        the first and the last MiB for signatures left over from media of another size. Each line \
        shows the offset of a signature, the class that would claim it, the reason, and whether it \
        is the main one, a backup copy or stale. Writes nothing.";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "inspect d0";
    type Answer = InspectAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<InspectAnswer> {
        control.verb(("inspect", "scan"), &json!({ "provider": self.provider }), progress)
    }
}

impl CommandVerb<Control> for InspectParams {
    fn table(answer: &InspectAnswer) -> String {
        table(answer)
    }
}
