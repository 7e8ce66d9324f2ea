//! wipe: the end of metadata by which a program would recognize a provider's content.

use super::entry::CommandVerb;
use super::inspect::table;
use crate::api::{Error, Kind, Result};
use crate::service::Control;
use crate::text::shell_word;
use classes::inspect::InspectAnswer;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

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
            let word = shell_word(&provider);
            return Err(error.next(format!("ashlar wipe {word} --yes-destroy {word}")));
        }
        let force = force || !yes_destroy.is_empty();
        let params = json!({ "provider": provider, "force": force, "only": only });
        control.verb(("inspect", "wipe"), &params, progress)
    }
}

impl CommandVerb<Control> for WipeParams {
    fn table(answer: &InspectAnswer) -> String {
        table(answer)
    }
}
