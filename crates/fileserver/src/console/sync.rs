//! The verb `sync`: written data made durable.

use geom::{Deserialize, JsonSchema, MessageAnswer, Verb};

use super::{Call, FileServer, Running, error};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Sync {}

impl Verb<FileServer> for Sync {
    const NAME: &'static str = "sync";
    const DOC: &'static str = "Make written data durable";
    const EXAMPLE: &'static str = "fs sync main";
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            host.files()?.sync().await.map_err(|f| error(&f))?;
            Ok(MessageAnswer::new("all is durable"))
        })
    }
}
