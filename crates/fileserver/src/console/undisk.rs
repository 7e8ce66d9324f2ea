//! The verb `undisk`: the end of the disk of a file.

use geom::{Deserialize, JsonSchema, MessageAnswer, Verb};

use super::{Call, FileServer, Running};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Undisk {
    /// Name of the provider, as in `fs list`
    disk: String,
}

impl Verb<FileServer> for Undisk {
    const NAME: &'static str = "undisk";
    const DOC: &'static str = "Remove the disk of a file; the file stays";
    const DETAIL: &'static str =
        "Users of the disk lose it: remove it from their configuration first.";
    const POSITIONAL: &'static [&'static str] = &["name", "disk"];
    const EXAMPLE: &'static str = "fs undisk main vm0";
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            host.files()?;
            host.remove_disk(&self.disk)?;
            Ok(MessageAnswer::new(format!("{} is no disk any more", self.disk)))
        })
    }
}
