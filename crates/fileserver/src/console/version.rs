//! The verb `version`: the version of the program.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers};

answers! {
    /// The version of the program.
    Program {
        /// Result in one sentence.
        message: String,
        /// Version of the program.
        version: &'static str,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Version {}

impl Verb<FileServer> for Version {
    const NAME: &'static str = "version";
    const DOC: &'static str = "Show the program version";
    const EXAMPLE: &'static str = "fs version main";
    type Answer = Program;

    fn run(self, _: Call) -> Running<Program> {
        Box::pin(async move {
            let version = env!("CARGO_PKG_VERSION");
            Ok(Program { message: format!("ashlar {version}"), version })
        })
    }
}
