//! Listening sockets, and the accept loop of a portal.
//!
//! ```text
//!   ACCEPTING --accept fails: out of descriptors--> FAILING (retries after a pause)
//!       ^                                              |
//!       +------------- an accept succeeds -------------+
//! ```
//! Both changes are logged once, for all cores and portals of a protocol: descriptors are the
//! process's.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use reactor::{Address, Reactor, Stream, TaskHandle, UnixListener};

use crate::per_core::PerCore;
use crate::protocol::Protocol;

/// Pause after an accept that failed, ns: some connections may have been closed by then. The peer's
/// connection waits in the kernel's queue.
const ACCEPT_PAUSE_NS: u64 = 200_000_000;

/// A listening socket.
pub enum Listener {
    /// IPv4 or IPv6.
    Tcp(reactor::Listener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// The next connection and its peer; that of a Unix socket is its user: `unix:uid=0`.
    pub async fn accept(&self) -> io::Result<(Stream, Address)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((stream, Address::Inet(peer)))
            }
            Listener::Unix(listener) => {
                let stream = listener.accept().await?;
                let uid = stream.peer_uid()?;
                Ok((stream, Address::Unix(format!("uid={uid}").into())))
            }
        }
    }
}

/// Whether accepting failed last; all portals of a protocol share one, over all cores.
#[derive(Default)]
pub struct AcceptState(AtomicBool);

impl AcceptState {
    /// Notes an error of the listener `at`; the first one after a success is logged.
    pub fn failed(&self, at: fmt::Arguments<'_>, e: &io::Error, log: impl Fn(fmt::Arguments<'_>)) {
        if !self.0.swap(true, Ordering::Relaxed) {
            log(format_args!(
                "{at}: cannot accept connections: {e}; new connections wait, open ones continue; \
                 next: if descriptors are missing, raise LimitNOFILE"
            ));
        }
    }

    /// Notes a success; the first one after an error is logged.
    pub fn succeeded(&self, log: impl Fn(fmt::Arguments<'_>)) {
        if self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed) {
            log(format_args!("connections are accepted again"));
        }
    }
}

impl Listener {
    /// Listens at an address that no other socket has.
    pub fn bind(reactor: &Reactor, at: &Address) -> io::Result<Listener> {
        match at {
            Address::Inet(at) => reactor.listen(*at).map(Listener::Tcp),
            Address::Unix(path) => reactor.listen_unix(path).map(Listener::Unix),
            Address::Ether(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Accepts for as long as it is polled: `admit` gets each connection, and the next one waits
    /// until it returns. Changes of the state are logged.
    pub async fn accept_all(
        &self,
        reactor: &Reactor,
        at: &Address,
        state: &AcceptState,
        log: impl Fn(fmt::Arguments<'_>),
        mut admit: impl AsyncFnMut(Stream, Address),
    ) {
        loop {
            match self.accept().await {
                Ok((stream, peer)) => {
                    state.succeeded(&log);
                    admit(stream, peer).await;
                }
                Err(e) => {
                    state.failed(format_args!("portal {at}"), &e, &log);
                    reactor.sleep(ACCEPT_PAUSE_NS).await;
                }
            }
        }
    }
}

/// Binds a portal on a core; returns its listener and its address.
pub(crate) fn bind<P: Protocol>(
    core: &PerCore<P>,
    at: &Address,
) -> io::Result<(Listener, Address)> {
    match at {
        Address::Inet(inet) => {
            let listener = core.reactor.listen_shared(*inet)?;
            let local = Address::Inet(listener.local_addr());
            Ok((Listener::Tcp(listener), local))
        }
        Address::Unix(path) if P::UNIX => {
            let prepare = |path: &_| P::prepare_socket(&core.shared, at, path);
            let listener = core.shared.unix_sockets.open(&core.reactor, path, prepare)?;
            Ok((Listener::Unix(listener), at.clone()))
        }
        _ => {
            let what = format!("{at}: {}", P::LISTENS_AT);
            Err(io::Error::new(io::ErrorKind::Unsupported, what))
        }
    }
}

/// Accepts at a portal until the task is aborted.
pub(crate) fn accept<P: Protocol>(
    core: &Rc<PerCore<P>>,
    listener: Listener,
    at: Address,
) -> TaskHandle {
    let mine = core.clone();
    core.reactor.spawn(P::TASKS.portal, async move {
        let log = |what: fmt::Arguments<'_>| mine.log.warn_once(what);
        let admit = async |stream: Stream, peer: Address| {
            let Some(counted) = mine.count_peer(&peer, &at) else { return stream.reset() };
            mine.wait_for_handshake_slot().await;
            mine.admit((stream, counted), peer, &at);
        };
        listener.accept_all(&mine.reactor, &at, &mine.shared.accept_state, log, admit).await;
    })
}
