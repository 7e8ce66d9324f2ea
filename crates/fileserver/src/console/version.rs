//! The verb `version`: the version of the program.

use std::rc::Rc;

use geom::{Deserialize, Error, JsonSchema};

use super::{FsVerb, answers};
use crate::service::Host;

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

impl FsVerb for Version {
    const NAME: &'static str = "version";
    const DOC: &'static str = "Show the program version";
    const EXAMPLE: &'static str = "fs version main";
    type Answer = Program;

    async fn run(self, _: &Rc<Host>, _: u64) -> Result<Program, Error> {
        let version = env!("CARGO_PKG_VERSION");
        Ok(Program { message: format!("ashlar {version}"), version })
    }
}
