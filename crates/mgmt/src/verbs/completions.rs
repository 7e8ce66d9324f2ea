//! completions: for the shell, from the table of verbs.

use super::entry::{Local, LocalVerb, Verb};
use crate::api::Result;
use crate::cli::{ClassVerbs, command};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// See the module.
pub struct Completions;

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

/// The script for one shell.
pub fn script(shell: Shell, classes: &[ClassVerbs]) -> String {
    use clap_complete::Shell as To;
    let to = match shell {
        Shell::Bash => To::Bash,
        Shell::Zsh => To::Zsh,
        Shell::Fish => To::Fish,
    };
    let mut out = Vec::new();
    clap_complete::generate(to, &mut command(classes), "ashlar", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

impl Verb for Completions {
    type Params = CompletionsParams;
    type Answer = CompletionsAnswer;
    const NAME: &'static str = "completions";
    const DOC: &'static str = "Print a completion script for bash, zsh or fish";
    const EXAMPLES: &'static [&'static str] =
        &["ashlar completions bash > /etc/bash_completion.d/ashlar"];
    const POSITIONAL: &'static [&'static str] = &["shell"];

    fn table(answer: &CompletionsAnswer) -> String {
        answer.script.clone()
    }
}

impl LocalVerb for Completions {
    fn run(local: &mut Local<'_>, params: CompletionsParams) -> Result<CompletionsAnswer> {
        Ok(CompletionsAnswer { script: script(params.shell, &(local.app.classes)()) })
    }
}
