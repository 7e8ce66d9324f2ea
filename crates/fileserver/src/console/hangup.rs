//! The verb `hangup`: the end of one connection.

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{Call, FileServer, Running, param_error};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Hangup {
    /// Connection number, as in `fs who`
    connection: String,
}

impl Verb<FileServer> for Hangup {
    const NAME: &'static str = "hangup";
    const DOC: &'static str = "Close the connection of a client";
    const DETAIL: &'static str = "The files of the client are closed; data that it wrote is kept. \
         The client can connect again; `fs attaches NAME off` refuses all clients.";
    const POSITIONAL: &'static [&'static str] = &["name", "connection"];
    const EXAMPLE: &'static str = "fs hangup main 3";
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            host.files()?;
            let number = self.connection.parse();
            let number: u64 =
                number.map_err(|_| param_error::<Self>("a connection is a number"))?;
            match host.server.hang_up(Some(number)) {
                0 => {
                    let name = &host.shared.name;
                    let what = format!("no connection {number}; `ashlar fs who {name}` lists them");
                    Err(Error::new(Errno::NoEnt, what))
                }
                _ => Ok(MessageAnswer::new(format!("connection {number} closed"))),
            }
        })
    }
}
