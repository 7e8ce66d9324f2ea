//! One TCP connection, from accept to its end.
//!
//! ```text
//!   LOGIN --last response--> FULL FEATURE --logout, error, close--> ENDING --session over--> gone
//!     |                                                               ^
//!     +--- refused, time-out, garbage -------------------------------+
//! ```
//! Reading and writing are two futures of one task: what the reader made ready in a turn leaves in
//! one send of the same turn, without another turn of the reactor in between.
//!
//! Invariants
//!  K1  At most one receive and one send are under way.
//!  K2  Whoever changes what the reader or the writer waits for calls `kick`.
//!  K3  The reader stops while more than [`BACKLOG_MAX`] bytes wait to be sent.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bio::Seg;
use reactor::Stream;

use super::ending::Ending;
use super::here::Here;
use super::inlet::{Inlet, Signals};
use super::session::Session;
use super::{login, receive};
use crate::outbox::Outbox;

/// Bytes waiting to be sent on one connection above which nothing more is read from it.
pub const BACKLOG_MAX: usize = 1 << 20;

/// A send that moved nothing for this long ends the connection, ns.
pub const SEND_PATIENCE_NS: u64 = 15_000_000_000;

/// The same while buffers are scarce and others wait for those that this connection holds, ns.
const SCARCE_PATIENCE_NS: u64 = 2_000_000_000;

/// How long the last words of a connection may take, ns.
const FLUSH_NS: u64 = 3_000_000_000;

/// Seconds for a login before its target is known.
const LOGIN_S: u32 = 15;

/// Bytes read and dropped after the last word, so that it is not lost to a reset.
const LINGER_BYTES: usize = 256 * 1024;

const SECOND_NS: u64 = 1_000_000_000;

/// One TCP connection.
pub(crate) struct Connection {
    /// Number in this daemon.
    pub number: u64,
    pub here: Rc<Here>,
    pub stream: Stream,
    /// The initiator's address.
    pub peer: SocketAddr,
    /// Our address.
    pub local: SocketAddr,
    /// The portal as the configuration names it.
    pub at: SocketAddr,
    pub out: RefCell<Outbox>,
    /// The session, once there is one.
    pub session: RefCell<Option<Rc<Session>>>,
    /// Seconds that the login may take.
    pub login_limit_s: Cell<u32>,
    sending: Cell<usize>,
    send_began: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    polling: Cell<bool>,
    signals: Rc<Signals>,
    last_heard: Cell<u64>,
    pinged: Cell<Option<u64>>,
    ending: Cell<Option<Ending>>,
    ending_since: Cell<Option<u64>>,
    began: u64,
}

impl Connection {
    /// A connection that has just been accepted.
    pub fn new(
        here: &Rc<Here>,
        stream: Stream,
        peer: SocketAddr,
        local: SocketAddr,
        at: SocketAddr,
    ) -> Rc<Connection> {
        let now = here.core.now();
        Rc::new(Connection {
            number: here.shared.next_connection(),
            here: here.clone(),
            out: RefCell::new(Outbox::new(here.memory.clone())),
            stream,
            peer,
            local,
            at,
            session: RefCell::default(),
            login_limit_s: Cell::new(LOGIN_S),
            sending: Cell::new(0),
            send_began: Cell::new(0),
            waker: RefCell::default(),
            polling: Cell::new(false),
            signals: Rc::default(),
            last_heard: Cell::new(now),
            pinged: Cell::new(None),
            ending: Cell::new(None),
            ending_since: Cell::new(None),
            began: now,
        })
    }

    /// True until the login is over.
    pub fn is_login(&self) -> bool {
        self.session.borrow().is_none() && self.ending.get().is_none()
    }

    /// Something that the task waits for has changed (K2).
    #[inline]
    pub fn kick(&self) {
        self.signals.dirty.set(true);
        if !self.polling.get()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Ends the connection; the first reason counts.
    pub fn end(&self, ending: Ending) {
        if self.ending.get().is_none() {
            self.ending.set(Some(ending));
            self.kick();
        }
    }

    /// Bytes that wait or are being sent.
    pub fn backlog(&self) -> usize {
        self.out.borrow().bytes() + self.sending.get()
    }

    /// Waits until there is room for more answers (K3).
    pub async fn room(&self) {
        poll_fn(|_| match self.backlog() > BACKLOG_MAX {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Notes a ping of ours.
    pub fn note_ping(&self) {
        self.pinged.set(Some(self.here.core.now()));
        self.signals.quiet.set(true);
    }

    /// Once a watch period: time-outs, pings, peers that do not read.
    pub fn look(&self, now: u64, scarce: bool) {
        let after = |since: u64, ns: u64| now.saturating_sub(since) > ns;
        if self.signals.heard.take() {
            self.last_heard.set(now);
            self.pinged.set(None);
        }
        if let Some(since) = self.ending_since.get() {
            if after(since, FLUSH_NS) {
                self.stream.close();
            }
            return;
        }
        let patience = match scarce && self.backlog() > BACKLOG_MAX {
            true => SCARCE_PATIENCE_NS,
            false => SEND_PATIENCE_NS,
        };
        if self.sending.get() > 0 && after(self.send_began.get(), patience) {
            return self.end(Ending::NotReading);
        }
        let session = self.session.borrow().clone();
        let Some(session) = session else {
            if after(self.began, u64::from(self.login_limit_s.get()) * SECOND_NS) {
                self.end(Ending::LoginTimeout);
            }
            return;
        };
        if session.is_overdue(now, self.here.engine.is_hungry()) {
            return self.end(Ending::DataOverdue);
        }
        let (interval_s, timeout_s) = session.ping_seconds();
        match self.pinged.get() {
            Some(since) if after(since, u64::from(timeout_s) * SECOND_NS) => {
                self.end(Ending::Silent);
            }
            None if interval_s > 0
                && after(self.last_heard.get(), u64::from(interval_s) * SECOND_NS) =>
            {
                session.ping();
            }
            _ => {}
        }
    }

    /// A line in the log about what this peer did; bounded.
    pub fn complain(&self, what: std::fmt::Arguments<'_>) {
        if self.here.may_log() {
            tracing::warn!(target: "iscsi", "{}: {what}", self.peer);
        }
    }

    async fn write(&self) -> Ending {
        let mut batch: Vec<Seg> = Vec::new();
        loop {
            poll_fn(|_| match self.out.borrow().bytes() {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            })
            .await;
            let taken = {
                let mut out = self.out.borrow_mut();
                if out.is_broken() {
                    return Ending::NoMemory;
                }
                out.take(&mut batch)
            };
            self.sending.set(taken);
            self.send_began.set(self.here.core.now());
            let sent = self.stream.send(&mut batch).await;
            self.sending.set(0);
            self.signals.dirty.set(true);
            if let Err(e) = sent {
                return Ending::lost(&e);
            }
            self.out.borrow_mut().rest();
        }
    }

    /// Runs the reader and the writer until the connection ends.
    async fn drive(&self, reader: impl Future<Output = Ending>) -> Ending {
        let (mut reader, mut writer) = (pin!(reader), pin!(self.write()));
        let mut ended: Option<Ending> = None;
        poll_fn(|cx: &mut Context<'_>| {
            self.watch(cx.waker());
            self.polling.set(true);
            let end = loop {
                self.signals.dirty.set(false);
                if ended.is_none() {
                    ended = self.ending.get();
                }
                if ended.is_none()
                    && let Poll::Ready(e) = reader.as_mut().poll(cx)
                {
                    ended = Some(e);
                }
                if let Poll::Ready(e) = writer.as_mut().poll(cx) {
                    break Some(ended.unwrap_or(e));
                }
                if let Some(e) = ended {
                    if !e.flushes() || self.backlog() == 0 {
                        break Some(e);
                    }
                    if self.ending_since.get().is_none() {
                        self.ending_since.set(Some(self.here.core.now()));
                    }
                }
                if !self.signals.dirty.get() {
                    break None;
                }
            };
            self.polling.set(false);
            match end {
                Some(e) => Poll::Ready(e),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// `waker` is woken when something changes (K2).
    pub fn watch(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        if !kept.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    /// Reads and drops until the peer closes, so that our last word reaches it.
    async fn linger(&self) {
        let Some(page) = self.here.memory.get(bio::PAGE_BYTES) else { return };
        let Some(room) = page.seg(0, bio::PAGE_BYTES) else { return };
        let mut left = LINGER_BYTES;
        while left > 0 {
            match self.stream.recv(&room).await {
                Ok(n) if n > 0 => left = left.saturating_sub(n),
                _ => return,
            }
        }
    }

    fn say_goodbye(&self, ending: Ending) {
        let session = self.session.borrow();
        let who = match &*session {
            Some(s) => format!("{} ({})", s.initiator, self.peer),
            None => format!("{}", self.peer),
        };
        if !ending.is_trouble() {
            tracing::info!(target: "iscsi", "{who}: {ending}");
        } else if self.here.may_log() {
            tracing::warn!(target: "iscsi", "{who}: {ending}");
        }
    }
}

/// The task of a connection.
pub(crate) async fn run(connection: Rc<Connection>) {
    let ending = {
        let conn = &connection;
        let mut inlet =
            Inlet::new(conn.stream.clone(), conn.here.memory.clone(), conn.signals.clone());
        let reader = async move {
            match login::run(conn, &mut inlet).await {
                Ok(session) => receive::run(&session, &mut inlet).await,
                Err(ending) => ending,
            }
        };
        conn.drive(reader).await
    };
    connection.end(ending);
    connection.say_goodbye(ending);
    if ending.flushes() && connection.stream.shutdown().is_ok() {
        let core = connection.here.core.clone();
        geom::deadline(&core, FLUSH_NS, connection.linger()).await;
    }
    connection.stream.close();
    let session = connection.session.take();
    if let Some(session) = session {
        session.finish().await;
    }
    connection.here.remove_connection(connection.number);
}
