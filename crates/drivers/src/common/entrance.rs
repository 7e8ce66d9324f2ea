//! Listening and accepting.
//!
//! ```text
//!   OPEN --accept fails: out of descriptors--> STRAINED (tries again after a pause)
//!     ^                                             |
//!     +------------- one was accepted --------------+
//! ```
//! Both changes are said once, however many cores and portals a driver has: descriptors are the
//! process's.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reactor::{Address, Listener, Reactor, Stream, TaskHandle, UnixListener};

use super::journal::Journal;

/// How long to wait after an accept that failed, ns: the next try comes when some connections may
/// have been closed. The peer's waits in the kernel's queue.
const ACCEPT_PAUSE_NS: u64 = 200_000_000;

/// A listening socket.
pub(crate) enum Door {
    Inet(Listener),
    Unix(UnixListener),
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

/// Whether a driver finds no descriptors for new connections; all its cores share it.
#[derive(Clone, Default)]
pub(crate) struct Strain(Arc<AtomicBool>);

impl Strain {
    /// Notes an error of an accept; true when it is news.
    fn begins(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Notes that one was accepted; true when it is news.
    fn ends(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// Who receives what comes in.
pub(crate) trait Porter: 'static {
    fn journal(&self) -> &Journal;
    fn strain(&self) -> &Strain;
    fn reactor(&self) -> &Reactor;
    /// Waits for a place; nobody else is accepted meanwhile.
    fn place(&self) -> impl Future<Output = ()>;
    /// A connection that has just been accepted at a portal.
    fn welcome(self: &Rc<Self>, stream: Stream, peer: Address, at: &Address);
}

/// Accepts until the task is ended.
pub(crate) fn accept<P: Porter>(
    porter: &Rc<P>,
    what: &'static str,
    door: Door,
    at: Address,
) -> TaskHandle {
    let mine = porter.clone();
    porter.reactor().spawn(what, async move {
        loop {
            match door.accept().await {
                Ok((stream, peer)) => {
                    if mine.strain().ends() {
                        let journal = mine.journal();
                        journal.note(format_args!("connections are accepted again"));
                    }
                    mine.place().await;
                    mine.welcome(stream, peer, &at);
                }
                Err(e) => {
                    if mine.strain().begins() {
                        mine.journal().note(format_args!(
                            "portal {at}: cannot accept connections: {e}; they wait, and those \
                             that are there go on. If descriptors are missing: raise LimitNOFILE"
                        ));
                    }
                    mine.reactor().sleep(ACCEPT_PAUSE_NS).await;
                }
            }
        }
    })
}
