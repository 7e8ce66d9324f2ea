//! A client that connects by TLS: its handshake, and the user that its certificate names.
//!
//! Invariants
//!  S1  Nothing of a client reaches the service before its certificate was accepted and names a
//!      user.

use std::fmt;
use std::rc::Rc;

use reactor::Stream;
use tls::Keys;
use transport::{CommonReason, FLUSH_NS, Incoming, Terms, Tls};

use super::host::Host;
use crate::ninep::ListenerOptions;
use crate::users::Id;

/// Time that a client may take to prove its identity, ns.
const SHAKE_NS: u64 = 15_000_000_000;

const TERMS: Terms = Terms {
    peer: "client",
    request: "message",
    handshake: "handshake",
    timeout: "not authenticated in time",
};

/// Why a client is not served.
enum Refused {
    /// A reason that all protocols share.
    Common(CommonReason),
    /// Its certificate has no name.
    NoName,
    /// There is no user of the name in its certificate.
    NoUser(String),
}

impl From<CommonReason> for Refused {
    fn from(reason: CommonReason) -> Refused {
        Refused::Common(reason)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Common(reason) => reason.describe(&TERMS, f),
            Refused::NoName => f.write_str("a certificate without a name"),
            Refused::NoUser(name) => {
                write!(f, "its certificate names `{name}`: there is no such user")
            }
        }
    }
}

impl Host {
    /// Serves a client that has to prove its identity.
    pub(super) async fn serve_tls(
        self: Rc<Self>,
        stream: Stream,
        peer: String,
        keys: Keys,
        options: ListenerOptions,
    ) {
        let mut incoming = Incoming::from(stream);
        match self.identify(&mut incoming, &keys).await {
            Ok(id) => {
                let options =
                    ListenerOptions { fixed_user: Some(id), authenticated: true, ..options };
                self.server.clone().serve(incoming, peer, options).await;
            }
            Err(why) => {
                self.server.journal.log_refused(&peer, format_args!("{why}"));
                self.update_status();
                // A client that reads nothing does not receive the end of the stream.
                self.reactor.within(FLUSH_NS, incoming.send_end()).await;
            }
        }
    }

    /// Agrees on keys with a client; the user that its certificate names (S1).
    async fn identify(&self, incoming: &mut Incoming, keys: &Keys) -> Result<Id, Refused> {
        let tls = Rc::new(Tls::begin(keys)?);
        let shaking = incoming.handshake(tls.clone(), &self.server.pool);
        self.reactor.within(SHAKE_NS, shaking).await.ok_or(CommonReason::HandshakeTimeout)??;
        let name = tls.client().ok_or(Refused::NoName)?;
        let user = self.server.users().can_attach(&name);
        user.ok_or(Refused::NoUser(name))
    }
}
