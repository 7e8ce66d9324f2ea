//! A listening address on one core.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use reactor::{Listener, Stream};

use super::connection::{self, Connection};
use super::here::Here;

/// How long to wait after an accept that failed (out of descriptors), ns: the next try comes
/// when some may have been closed, and the log is not flooded.
const ACCEPT_PAUSE_NS: u64 = 200_000_000;

/// Starts to listen; answers the address.
pub(crate) fn open(here: &Rc<Here>, at: SocketAddr) -> io::Result<SocketAddr> {
    if let Some(local) = here.portal(at) {
        return Ok(local);
    }
    let listener = here.reactor().listen_shared(at)?;
    let local = listener.local_addr();
    let task = here.reactor().spawn("iscsi portal", accept(here.clone(), listener, at));
    here.add_portal(at, local, task);
    Ok(local)
}

async fn accept(here: Rc<Here>, listener: Listener, at: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => welcome(&here, stream, peer, at),
            Err(e) => {
                if here.may_log() {
                    tracing::warn!(
                        target: "iscsi",
                        "portal {at}: cannot accept connections: {e}; trying again"
                    );
                }
                here.reactor().sleep(ACCEPT_PAUSE_NS).await;
            }
        }
    }
}

fn welcome(here: &Rc<Here>, stream: Stream, peer: SocketAddr, at: SocketAddr) {
    let most = here.shared.connections_max;
    if here.connections() >= most {
        if here.may_log() {
            tracing::warn!(
                target: "iscsi",
                "{peer}: refused, this core has {most} connections already"
            );
        }
        stream.reset();
        return;
    }
    // Answers are small and go out in batches of our own making.
    if stream.nodelay(true).is_err() {
        return;
    }
    let local = stream.local_addr().unwrap_or(at);
    let connection = Connection::new(here, stream, peer, local, at);
    here.add_connection(&connection);
    drop(here.reactor().spawn("iscsi connection", connection::run(connection)));
}
