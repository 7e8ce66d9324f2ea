//! The verb `who`: a list of the connected clients.

use std::fmt::Write;

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers};
use crate::ninep::ClientInfo;

answers! {
    /// The connected clients.
    Connected {
        /// Result for people.
        text: String,
        /// Each client.
        who: Vec<ClientInfo>,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Who {
    /// List only these users [default: all users]
    user: Vec<String>,
}

impl Verb<FileServer> for Who {
    const NAME: &'static str = "who";
    const DOC: &'static str = "List connected clients";
    const POSITIONAL: &'static [&'static str] = &["name", "user"];
    const EXAMPLE: &'static str = "fs who main";
    type Answer = Connected;

    fn run(self, Call { host, .. }: Call) -> Running<Connected> {
        Box::pin(async move {
            host.files()?;
            let mut all = host.server.clients();
            all.retain(|p| self.user.is_empty() || p.users.iter().any(|u| self.user.contains(u)));
            let mut t = format!(
                "{:>4} {:<24} {:<16} {:>6} {:>6} {:>10}\n",
                "conn", "from", "users", "fids", "open", "requests"
            );
            for p in &all {
                let users = if p.users.is_empty() { "-".to_owned() } else { p.users.join(",") };
                let _ = writeln!(
                    t,
                    "{:>4} {:<24} {users:<16} {:>6} {:>6} {:>10}",
                    p.number, p.peer, p.fids, p.open, p.requests
                );
            }
            if all.is_empty() {
                t = "no clients\n".to_owned();
            }
            Ok(Connected { text: t, who: all })
        })
    }
}
