//! The verb `sync`: written data made durable.

use std::rc::Rc;

use geom::{Deserialize, Error, JsonSchema, MessageAnswer};

use super::{FsVerb, error};
use crate::service::Host;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Sync {}

impl FsVerb for Sync {
    const NAME: &'static str = "sync";
    const DOC: &'static str = "Make written data durable";
    const EXAMPLE: &'static str = "fs sync main";
    type Answer = MessageAnswer;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<MessageAnswer, Error> {
        host.files()?.sync().await.map_err(|f| error(&f))?;
        Ok(MessageAnswer::new("all is durable"))
    }
}
