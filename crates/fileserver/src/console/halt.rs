//! The verb `halt`: an end of the service that loses nothing.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers};
use crate::service::Phase;

answers! {
    /// The end of the service.
    Halted {
        /// Result in one sentence.
        message: String,
        /// False: data that was not durable is lost.
        durable: bool,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Halt {}

impl Verb<FileServer> for Halt {
    const NAME: &'static str = "halt";
    const DOC: &'static str = "Stop serving and make everything durable";
    const DETAIL: &'static str = "Clients are disconnected. The devices stay assigned to the file \
         server; another server that reaches the WORM can take it over at once. `fs start` opens \
         it again.";
    const EXAMPLE: &'static str = "fs halt main";
    type Answer = Halted;

    fn run(self, Call { host, .. }: Call) -> Running<Halted> {
        Box::pin(async move {
            host.files()?;
            let done = host.halt().await;
            host.shared.update_status(|s| s.phase = Phase::Halted);
            let message = match &done {
                Ok(()) => "halted; all is durable".to_owned(),
                Err(e) => format!("halted; data that was not durable is lost: {}", e.message),
            };
            Ok(Halted { message, durable: done.is_ok() })
        })
    }
}
