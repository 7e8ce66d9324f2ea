//! The verb `files`: the number of files that clients have open.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers};
use crate::ninep::ClientInfo;

answers! {
    /// The fids of the clients.
    Opened {
        /// Result in one sentence.
        message: String,
        /// Fids that are open.
        open: usize,
        /// Fids of all clients.
        fids: usize,
        /// Each client.
        clients: Vec<ClientInfo>,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Files {}

impl Verb<FileServer> for Files {
    const NAME: &'static str = "files";
    const DOC: &'static str = "Count the files that clients have open";
    const EXAMPLE: &'static str = "fs files main";
    type Answer = Opened;

    fn run(self, Call { host, .. }: Call) -> Running<Opened> {
        Box::pin(async move {
            host.files()?;
            let clients = host.server.clients();
            let (fids, open) = clients.iter().fold((0, 0), |(f, o), p| (f + p.fids, o + p.open));
            let message = format!("{open} open files, {fids} fids of {} clients", clients.len());
            Ok(Opened { message, open, fids, clients })
        })
    }
}
