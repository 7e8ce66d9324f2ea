//! One connection, from accept to its close reason.
//!
//! ```text
//!   HANDSHAKE --enter--> SERVING --reason--> CLOSING --flushed, requests ended--> removed
//!      |                                       ^
//!      +--- refused, time-out, garbage --------+
//! ```

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use reactor::clock::S;
use reactor::{Address, Stream};

use crate::io_loop::{FLUSH_NS, IoLoop};
use crate::peer_log::LogSubject;
use crate::per_core::PerCore;
use crate::protocol::{Protocol, Tick};
use crate::read_deadline::ReadDeadline;
use crate::reason::{CommonReason, Reason};

/// Addresses of a connection.
pub struct Endpoints {
    /// The peer.
    pub peer: Address,
    /// Our side.
    pub local: Address,
    /// The portal as the configuration names it.
    pub at: Address,
}

/// See the module.
pub struct Connection<P: Protocol> {
    /// Number in this daemon.
    pub number: u64,
    /// The protocol on this core.
    pub core: Rc<PerCore<P>>,
    /// The read and write loop.
    pub io: IoLoop<P::Reason>,
    /// The peer's address.
    pub peer: Address,
    /// Our address.
    pub local: Address,
    /// The portal as the configuration names it.
    pub at: Address,
    /// The protocol's part.
    pub own: P::ConnState,
    /// The part of a request that is being read.
    pub deadline: ReadDeadline,
    /// Handshake deadline, s.
    pub handshake_s: Cell<u32>,
    session: RefCell<Option<Rc<P::PeerSession>>>,
    accepted: u64,
}

impl<P: Protocol> Connection<P> {
    /// A connection that was just accepted.
    pub fn new(
        core: &Rc<PerCore<P>>,
        stream: Stream,
        Endpoints { peer, local, at }: Endpoints,
        own: P::ConnState,
    ) -> Rc<Connection<P>> {
        Rc::new(Connection {
            number: core.shared.next_connection(),
            core: core.clone(),
            io: IoLoop::new(&core.reactor, &core.memory, core.data(), stream),
            peer,
            local,
            at,
            own,
            deadline: ReadDeadline::default(),
            handshake_s: Cell::new(P::HANDSHAKE_S),
            session: RefCell::default(),
            accepted: core.reactor.now(),
        })
    }

    /// The session, after the handshake.
    pub fn session(&self) -> Option<Rc<P::PeerSession>> {
        self.session.borrow().clone()
    }

    /// Runs `f` with the session, if there is one.
    #[inline]
    pub fn with_session(&self, f: impl FnOnce(&Rc<P::PeerSession>)) {
        if let Some(session) = &*self.session.borrow() {
            f(session);
        }
    }

    /// Ends the handshake.
    pub fn enter(&self, session: &Rc<P::PeerSession>) {
        *self.session.borrow_mut() = Some(session.clone());
    }

    pub(crate) fn take_session(&self) -> Option<Rc<P::PeerSession>> {
        self.session.take()
    }

    /// True until the handshake has ended.
    pub(crate) fn is_in_handshake(&self) -> bool {
        self.session.borrow().is_none() && !self.io.is_closing()
    }

    /// Reads `bytes` of a request under the deadline of the connection.
    pub async fn within<T>(&self, bytes: usize, reads: impl Future<Output = T>) -> T {
        self.deadline.within(&self.core.reactor, bytes, reads).await
    }

    /// Logs misbehaviour of a peer without a name.
    pub fn warn(&self, what: std::fmt::Arguments<'_>) {
        self.core.log.warn_about(LogSubject { peer: &self.peer, name: "" }, what);
    }

    pub(crate) fn tick(self: &Rc<Self>, now: u64, scarce: bool) {
        let Some(received) = self.io.tick(now, scarce) else { return };
        let limit_ns = u64::from(self.handshake_s.get()) * S;
        if self.is_in_handshake() && now.saturating_sub(self.accepted) > limit_ns {
            self.io.close(CommonReason::HandshakeTimeout.into());
        }
        let scarce = P::is_memory_short(&self.core);
        if self.deadline.is_overdue(now, scarce) {
            self.io.close(CommonReason::DataOverdue.into());
        }
        P::tick(self, Tick { now, memory_short: scarce, received });
    }

    /// Logs and counts the close reason (T3).
    fn closed(&self, reason: &P::Reason) {
        let name = self.session.borrow().as_ref().map_or(String::new(), |s| P::label(s));
        let about = LogSubject { peer: &self.peer, name: &name };
        self.core.shared.counters.note_closed(reason);
        match reason.is_warning() {
            true => self.core.log.warn_about(about, format_args!("{reason}")),
            false => self.core.log.info_about(about, format_args!("{reason}")),
        }
    }

    /// Serves until the connection is closed and its last request has ended.
    pub fn run(self: &Rc<Self>) -> impl Future<Output = ()> + use<P> {
        let conn = self.clone();
        async move {
            let rx = conn.io.receive_buffer();
            let reason = conn.io.run(P::serve(&conn, rx), || P::run_pending(&conn)).await;
            conn.io.close(reason.clone());
            conn.closed(&reason);
            let session = conn.take_session();
            if let Some(session) = &session {
                P::closing(&conn, session);
            }
            if reason.flushes() {
                conn.core.reactor.within(FLUSH_NS, conn.io.drain()).await;
            }
            conn.io.stream.close();
            if let Some(session) = session {
                P::finish(&conn, session).await;
            }
            conn.core.remove(conn.number);
        }
    }
}
