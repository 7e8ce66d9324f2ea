//! explain: what an error's number means.

use super::entry::{CommandVerb, Local};
use crate::App;
use crate::api::{Error, Kind, Result};
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `explain`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExplainParams {
    /// Error code, as printed in messages: ASH-0042 [default: all codes]
    pub code: Option<String>,
}

/// One error code.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Meaning {
    /// Error code, as in `ASH-0042`.
    pub code: String,
    /// Name of the error in JSON.
    pub kind: Kind,
    /// Meaning of the code.
    pub title: String,
    /// Remedy.
    pub next: String,
    /// Exit code of a command that fails with it.
    pub exit: u8,
}

/// Answer of `explain`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExplainAnswer {
    /// Meanings of the requested codes.
    pub meanings: Vec<Meaning>,
}

fn meaning(kind: Kind) -> Meaning {
    Meaning {
        code: kind.code(),
        kind,
        title: kind.title().to_owned(),
        next: kind.next().to_owned(),
        exit: kind.exit() as u8,
    }
}

impl Verb<App> for ExplainParams {
    const NAME: &'static str = "explain";
    const DOC: &'static str = "Explain an error code and what to do";
    const POSITIONAL: &'static [&'static str] = &["code"];
    const EXAMPLE: &'static str = "explain ASH-0014";
    const MORE_EXAMPLES: &'static [&'static str] = &["explain"];
    type Answer = ExplainAnswer;

    fn run(self, _: Local<'_>) -> Result<ExplainAnswer> {
        let Some(code) = self.code else {
            let meanings = Kind::ALL.iter().copied().map(meaning).collect();
            return Ok(ExplainAnswer { meanings });
        };
        match Kind::by_code(&code) {
            Some(kind) => Ok(ExplainAnswer { meanings: vec![meaning(kind)] }),
            None => Err(Error::new(Kind::Usage, "explain", "no such error code")
                .at(code)
                .next("Run `ashlar explain` to see all of them.")),
        }
    }
}

impl CommandVerb<App> for ExplainParams {
    fn table(answer: &ExplainAnswer) -> String {
        let one = |m: &Meaning| {
            format!("{} (exit code {})\n  {}\n  {}\n", m.code, m.exit, m.title, m.next)
        };
        answer.meanings.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}
