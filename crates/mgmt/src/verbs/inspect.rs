//! inspect, wipe: all metadata by which a program would recognize a provider's content.

use super::entry::CommandVerb;
use crate::api::{Error, Kind, Result};
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

/// Parameters of `wipe`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WipeParams {
    /// Provider to erase.
    pub provider: String,
    /// Name of the provider again: clears everything found on it.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
    /// Consent without a name, for scripts that were written before --yes-destroy.
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    pub force: bool,
    /// Clear only signatures of this kind (gpt, ext, mirror) or at this byte offset (0x1fe).
    #[serde(default)]
    pub only: Vec<String>,
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

fn table(answer: &InspectAnswer) -> String {
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

impl Verb<Control> for WipeParams {
    const NAME: &'static str = "wipe";
    const DOC: &'static str = "Erase labels, tables and file systems of a provider";
    const DETAIL: &'static str = "Lists the signatures that would be cleared, and clears them only \
        with --yes-destroy PROVIDER (all of them) or --only KIND or OFFSET. Refused while a user \
        has the provider open. Only the signatures are overwritten, with zeroes: file systems \
        before tables, and tables before the metadata of a member. Each is on stable storage \
        before the next is written, and every class tastes the provider again at the end. The data \
        remains on the provider, but can no longer be found. Copies and leftovers inside a \
        partition belong to that partition and are cleared with --only alone.";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "wipe d0";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["wipe d0 --yes-destroy d0", "wipe d0 --only gpt --only 0x1fe"];
    type Answer = InspectAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<InspectAnswer> {
        let WipeParams { provider, yes_destroy, force, only } = self;
        if let Some(other) = yes_destroy.iter().find(|name| **name != provider) {
            let why = format!("--yes-destroy names {other}, and {provider} is to be cleared");
            let error = Error::new(Kind::Usage, "wipe", why).at(&provider);
            let word = text::shell_word(&provider);
            return Err(error.next(format!("ashlar wipe {word} --yes-destroy {word}")));
        }
        let force = force || !yes_destroy.is_empty();
        let self = json!({ "provider": provider, "force": force, "only": only });
        control.verb(("inspect", "wipe"), &self, progress)
    }
}

impl CommandVerb<Control> for WipeParams {
    fn table(answer: &InspectAnswer) -> String {
        table(answer)
    }
}
