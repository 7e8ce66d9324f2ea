//! completions: for the shell, from the table of verbs.

use super::entry::{CommandVerb, Local};
use crate::App;
use crate::api::Result;
use crate::cli::{ClassVerbs, command};
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Shell of the completion script.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shell {
    /// bash
    #[default]
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// Parameters of `completions`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CompletionsParams {
    /// Shell of the completion script.
    pub shell: Shell,
}

/// Answer of `completions`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CompletionsAnswer {
    /// The script.
    pub script: String,
}

/// The script for one shell: words of the command line, and names that the daemon knows
/// (`ashlar complete`).
pub fn script(shell: Shell, classes: &[ClassVerbs]) -> String {
    use clap_complete::Shell as To;
    let (to, live) = match shell {
        Shell::Bash => (To::Bash, include_str!("completions/live.bash")),
        Shell::Zsh => (To::Zsh, include_str!("completions/live.zsh")),
        Shell::Fish => (To::Fish, include_str!("completions/live.fish")),
    };
    let mut out = Vec::new();
    clap_complete::generate(to, &mut command(classes), "ashlar", &mut out);
    let mut out = String::from_utf8_lossy(&out).into_owned();
    // In zsh the end of the script calls the function for the first TAB.
    let end = out.rfind("\nif [ \"$funcstack[1]\"").unwrap_or(out.len());
    out.insert_str(end, live);
    match shell {
        Shell::Zsh => out.replace(":_default'", ":_ashlar_live'"),
        Shell::Bash | Shell::Fish => out,
    }
}

impl Verb<App> for CompletionsParams {
    const NAME: &'static str = "completions";
    const DOC: &'static str = "Print a completion script for bash, zsh or fish";
    const POSITIONAL: &'static [&'static str] = &["shell"];
    const EXAMPLE: &'static str = "completions bash > /etc/bash_completion.d/ashlar";
    type Answer = CompletionsAnswer;

    fn run(self, local: Local<'_>) -> Result<CompletionsAnswer> {
        Ok(CompletionsAnswer { script: script(self.shell, &(local.app.classes)()) })
    }
}

impl CommandVerb<App> for CompletionsParams {
    fn table(answer: &CompletionsAnswer) -> String {
        answer.script.clone()
    }
}
