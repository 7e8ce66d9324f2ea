//! A listening address on one core.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Address, Listener, Stream, UnixListener};

use super::connection::{self, Connection};
use super::here::Here;

/// How long to wait after an accept that failed (out of descriptors), ns: the next try comes
/// when some may have been closed, and the log is not flooded.
const ACCEPT_PAUSE_NS: u64 = 200_000_000;

/// Silence after which the kernel asks whether the client is still there, s: NBD has no ping.
const KEEPALIVE_S: u64 = 30;

enum Door {
    Inet(Listener),
    Unix(UnixListener),
}

/// Starts to listen; answers the address.
pub(crate) fn open(here: &Rc<Here>, at: Address) -> io::Result<Address> {
    if let Some(local) = here.portal(&at) {
        return Ok(local);
    }
    let (door, local) = match &at {
        Address::Inet(inet) => {
            let listener = here.reactor().listen_shared(*inet)?;
            let local = Address::Inet(listener.local_addr());
            (Door::Inet(listener), local)
        }
        Address::Unix(path) => {
            let listener = match here.shared.take_door(path) {
                Some(parcel) => here.reactor().attach_unix(parcel)?,
                None => here.reactor().listen_unix(path)?,
            };
            here.shared.put_door(path, listener.share()?);
            (Door::Unix(listener), at.clone())
        }
    };
    let task = here.reactor().spawn("nbd portal", accept(here.clone(), door, at.clone()));
    here.add_portal(at, local.clone(), task);
    Ok(local)
}

impl Door {
    async fn accept(&self) -> io::Result<(Stream, Address)> {
        match self {
            Door::Inet(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((stream, Address::Inet(peer)))
            }
            Door::Unix(listener) => {
                let stream = listener.accept().await?;
                let uid = stream.peer_uid()?;
                Ok((stream, Address::Unix(format!("uid={uid}").into())))
            }
        }
    }
}

async fn accept(here: Rc<Here>, door: Door, at: Address) {
    loop {
        match door.accept().await {
            Ok((stream, peer)) => welcome(&here, stream, peer, &at),
            Err(e) => {
                if here.may_log() {
                    tracing::warn!(
                        target: "nbd",
                        "portal {at}: cannot accept connections: {e}; trying again"
                    );
                }
                here.reactor().sleep(ACCEPT_PAUSE_NS).await;
            }
        }
    }
}

fn welcome(here: &Rc<Here>, stream: Stream, peer: Address, at: &Address) {
    let most = here.shared.connections_max;
    if here.connections() >= most {
        if here.may_log() {
            tracing::warn!(
                target: "nbd",
                "{peer}: refused, this core has {most} connections already"
            );
        }
        stream.reset();
        return;
    }
    let mut local = at.clone();
    if peer.inet().is_some() {
        // Answers are small and go out in batches of our own making.
        let idle = Duration::from_secs(KEEPALIVE_S);
        if stream.nodelay(true).is_err() || stream.keepalive(idle).is_err() {
            return;
        }
        local = stream.local_addr().map_or(local, Address::Inet);
    }
    let connection = Connection::new(here, stream, peer, local, at.clone());
    here.add_connection(&connection);
    drop(here.reactor().spawn("nbd connection", connection::run(connection)));
}
