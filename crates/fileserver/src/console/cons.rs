//! The verb `cons`: one line of the console.

use std::rc::Rc;

use geom::{Deserialize, Error, JsonSchema};

use super::parser::run_line;
use super::{FsVerb, Text};
use crate::service::Host;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Cons {
    /// Words of the line
    #[schemars(length(min = 1))]
    line: Vec<String>,
}

impl FsVerb for Cons {
    const NAME: &'static str = "cons";
    const DOC: &'static str = "Run a command line of the console";
    const DETAIL: &'static str = "The line is the same as at its console sockets: a verb without \
         the name of the file server.";
    const POSITIONAL: &'static [&'static str] = &["line"];
    const EXAMPLE: &'static str = "fs cons main who";
    type Answer = Text;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Text, Error> {
        Ok(Text { text: run_line(host, &self.line.join(" ")).await? })
    }
}
