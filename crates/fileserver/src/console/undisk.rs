//! The verb `undisk`: the end of the disk of a file.

use std::rc::Rc;

use geom::{Deserialize, Error, JsonSchema, MessageAnswer};

use super::FsVerb;
use crate::service::Host;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Undisk {
    /// Name of the provider, as in `fs list`
    disk: String,
}

impl FsVerb for Undisk {
    const NAME: &'static str = "undisk";
    const DOC: &'static str = "Remove the disk of a file; the file stays";
    const DETAIL: &'static str =
        "Users of the disk lose it: remove it from their configuration first.";
    const POSITIONAL: &'static [&'static str] = &["disk"];
    const EXAMPLE: &'static str = "fs undisk main vm0";
    type Answer = MessageAnswer;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<MessageAnswer, Error> {
        host.files()?;
        host.remove_disk(&self.disk)?;
        Ok(MessageAnswer::new(format!("{} is no disk any more", self.disk)))
    }
}
