//! The verb `cons`: one line of the console.

use geom::{Deserialize, JsonSchema, Verb};

use super::parser::run_line;
use super::{Call, FileServer, Running, Text};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Cons {
    /// Words of the line
    #[schemars(length(min = 1))]
    line: Vec<String>,
}

impl Verb<FileServer> for Cons {
    const NAME: &'static str = "cons";
    const DOC: &'static str = "Run a command line of the console";
    const DETAIL: &'static str = "The line is the same as at its console sockets: a verb without \
         the name of the file server.";
    const POSITIONAL: &'static [&'static str] = &["name", "line"];
    const EXAMPLE: &'static str = "fs cons main who";
    type Answer = Text;

    fn run(self, Call { host, .. }: Call) -> Running<Text> {
        Box::pin(async move { Ok(Text { text: run_line(&host, &self.line.join(" ")).await? }) })
    }
}
