//! inspect, wipe: all metadata by which a program would recognize a provider's content.

use super::entry::{DaemonVerb, Verb};
use crate::api::{Error, Kind, Result};
use crate::config::units::short;
use crate::plant::Progress;
use crate::service::Control;
use crate::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Looks.
pub struct Inspect;

/// Clears.
pub struct Wipe;

/// What `inspect` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct InspectParams {
    /// The provider.
    pub provider: String,
}

/// What `wipe` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WipeParams {
    /// The provider.
    pub provider: String,
    /// Clear everything found on the provider of this name, which is repeated as consent.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
    /// The same without a name; for scripts that were written before --yes-destroy.
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    pub force: bool,
    /// Clear only what is of this kind (gpt, ext, mirror) or begins at this byte (0x1fe).
    #[serde(default)]
    pub only: Vec<String>,
}

/// One signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Finding {
    /// Byte offset of the signature.
    pub offset: u64,
    /// Its bytes, which are what is cleared.
    pub bytes: u64,
    /// Short word.
    pub kind: String,
    /// The class that would claim it; linux, geom, firmware or other when none here would.
    pub class: String,
    /// In words.
    pub what: String,
    /// Why it would be claimed, or not.
    pub why: String,
    /// main, backup, guard or stale.
    pub standing: String,
    /// The partition in whose range it lies.
    pub inside: Option<u32>,
    /// The layer that shows it, of which the provider is a member.
    pub shown_on: Option<String>,
    /// Whether `wipe --yes-destroy` would clear it.
    pub would_clear: bool,
}

/// What a class said when it looked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Said {
    /// The class.
    pub class: String,
    /// Its words.
    pub said: String,
}

/// A range of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What both answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Answer {
    /// What was done; empty when nothing was to be.
    pub message: String,
    /// The provider.
    pub provider: String,
    /// Its size.
    pub media_bytes: u64,
    /// Its sector.
    pub sector_bytes: u32,
    /// What is there (after clearing: what is left), by offset.
    pub findings: Vec<Finding>,
    /// What was cleared, in the order in which it was.
    pub cleared: Vec<Finding>,
    /// What each class said when it looked at the provider.
    pub verdicts: Vec<Said>,
    /// Class and name of each geom on it.
    pub claimed_by: Vec<String>,
    /// Who has it open; nothing clears it then.
    pub in_use: Option<String>,
    /// Ranges near its ends that cannot be read.
    pub unread: Vec<Range>,
}

fn rows(findings: &[Finding]) -> Vec<Vec<String>> {
    let row = |f: &Finding| {
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
            text::dash(&f.why),
        ]
    };
    findings.iter().map(row).collect()
}

fn table(answer: &Answer) -> String {
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
    let Answer { provider, media_bytes, sector_bytes, .. } = answer;
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
    for Range { offset, bytes } in &answer.unread {
        out += &format!("cannot be read: {bytes} bytes at {offset:#x}\n");
    }
    out
}

impl Verb for Inspect {
    type Params = InspectParams;
    type Answer = Answer;
    const NAME: &'static str = "inspect";
    const DOC: &'static str = "Show labels, tables and file systems on a provider";
    const DETAIL: &'static str = "Looks at the places where the classes of this daemon, the \
        classes of FreeBSD's GEOM, RAID firmware and Linux keep their signatures, and through the \
        first and the last MiB for what was left behind by media of another size. Each line has \
        its place, who would claim it and why, and whether it is the first, a backup copy or \
        stale. Nothing is written.";
    const EXAMPLES: &'static [&'static str] = &["ashlar inspect d0"];
    const POSITIONAL: &'static [&'static str] = &["provider"];

    fn table(answer: &Answer) -> String {
        table(answer)
    }
}

impl DaemonVerb for Inspect {
    fn run(
        control: &Control,
        params: InspectParams,
        progress: &mut Progress<'_>,
    ) -> Result<Answer> {
        control.verb(("inspect", "scan"), &json!({ "provider": params.provider }), progress)
    }
}

impl Verb for Wipe {
    type Params = WipeParams;
    type Answer = Answer;
    const NAME: &'static str = "wipe";
    const DOC: &'static str = "Erase labels, tables and file systems of a provider";
    const DETAIL: &'static str = "Says what it would clear, and clears it only with --yes-destroy \
        PROVIDER (all of it) or --only KIND or OFFSET. Refused while a user has the provider open. \
        Only the signatures are overwritten, with zeroes, file systems before tables and tables \
        before what makes the provider a member of something; each is on stable storage before \
        the next is written, and every class looks again at the end. The data stays where it is, \
        but nothing finds it any more. Copies and leftovers inside a partition are that \
        partition's, and are cleared with --only alone.";
    const EXAMPLES: &'static [&'static str] = &[
        "ashlar wipe d0",
        "ashlar wipe d0 --yes-destroy d0",
        "ashlar wipe d0 --only gpt --only 0x1fe",
    ];
    const POSITIONAL: &'static [&'static str] = &["provider"];

    fn table(answer: &Answer) -> String {
        table(answer)
    }
}

impl DaemonVerb for Wipe {
    fn run(control: &Control, params: WipeParams, progress: &mut Progress<'_>) -> Result<Answer> {
        let WipeParams { provider, yes_destroy, force, only } = params;
        if let Some(other) = yes_destroy.iter().find(|name| **name != provider) {
            let why = format!("--yes-destroy names {other}, and {provider} is to be cleared");
            let error = Error::new(Kind::Usage, "wipe", why).at(&provider);
            return Err(error.next(format!("ashlar wipe {provider} --yes-destroy {provider}")));
        }
        let force = force || !yes_destroy.is_empty();
        let params = json!({ "provider": provider, "force": force, "only": only });
        control.verb(("inspect", "wipe"), &params, progress)
    }
}
