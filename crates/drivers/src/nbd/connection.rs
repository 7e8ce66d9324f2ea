//! One connection, from accept to its end.
//!
//! ```text
//!   HANDSHAKE --GO, EXPORT_NAME--> TRANSMISSION --DISC, error, close--> ENDING --> gone
//!     |                                                                   ^
//!     +--- refused, time-out, garbage -----------------------------------+
//! ```
//! Reading, going on with requests and writing are one task: what was answered in a turn leaves in
//! one send of the same turn.
//!
//! Invariants
//!  K1  At most one receive and one send are under way.
//!  K2  Whoever changes what the reader or the writer waits for calls `kick`.
//!  K3  The reader stops while more than [`BACKLOG_MAX`] bytes wait to be sent.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bio::Seg;
use reactor::{Address, Stream};

use super::ending::Ending;
use super::here::Here;
use super::inbox::{Inbox, Signals};
use super::session::Session;
use super::tls::{BATCH_MAX, Secure};
use super::{door, receive};
use crate::outbox::Outbox;

/// Bytes waiting to be sent on one connection above which nothing more is read from it.
pub const BACKLOG_MAX: usize = 1 << 20;

/// A send that moved nothing for this long ends the connection, ns.
pub const SEND_PATIENCE_NS: u64 = 15_000_000_000;

/// The same while buffers are scarce and others wait for those that this connection holds, ns.
const SCARCE_PATIENCE_NS: u64 = 2_000_000_000;

/// How long the last words of a connection may take, ns.
const FLUSH_NS: u64 = 3_000_000_000;

/// Bytes read and dropped after the last word, so that it is not lost to a reset.
const LINGER_BYTES: usize = 256 * 1024;

const SECOND_NS: u64 = 1_000_000_000;

/// One connection.
pub(crate) struct Connection {
    /// Number in this daemon.
    pub number: u64,
    pub here: Rc<Here>,
    pub stream: Stream,
    /// The client's address.
    pub peer: Address,
    /// Our address.
    pub local: Address,
    /// The portal as the configuration names it.
    pub at: Address,
    pub out: RefCell<Outbox>,
    /// The session, once there is one.
    pub session: RefCell<Option<Rc<Session>>>,
    /// Seconds that the handshake may take.
    pub handshake_s: Cell<u32>,
    secure: RefCell<Option<Rc<Secure>>>,
    sending: Cell<usize>,
    send_began: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    polling: Cell<bool>,
    signals: Rc<Signals>,
    ending: RefCell<Option<Ending>>,
    ending_since: Cell<Option<u64>>,
    began: u64,
}

impl Connection {
    /// A connection that has just been accepted.
    pub fn new(
        here: &Rc<Here>,
        stream: Stream,
        peer: Address,
        local: Address,
        at: Address,
    ) -> Rc<Connection> {
        Rc::new(Connection {
            number: here.shared.next_connection(),
            here: here.clone(),
            out: RefCell::new(Outbox::new(here.memory.clone())),
            stream,
            peer,
            local,
            at,
            session: RefCell::default(),
            handshake_s: Cell::new(super::NbdParams::default().handshake_timeout),
            secure: RefCell::default(),
            sending: Cell::new(0),
            send_began: Cell::new(0),
            waker: RefCell::default(),
            polling: Cell::new(false),
            signals: Rc::default(),
            ending: RefCell::default(),
            ending_since: Cell::new(None),
            began: here.core.now(),
        })
    }

    /// True until the handshake is over.
    pub fn is_handshake(&self) -> bool {
        self.session.borrow().is_none() && self.ending.borrow().is_none()
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
        let mut mine = self.ending.borrow_mut();
        if mine.is_none() {
            *mine = Some(ending);
            drop(mine);
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

    /// Waits until all that was queued is sent.
    pub async fn flushed(&self) {
        self.kick();
        poll_fn(|_| match self.backlog() > 0 {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// From now on what is sent is encrypted.
    pub fn secure(&self, secure: Rc<Secure>) {
        *self.secure.borrow_mut() = Some(secure);
    }

    /// TLS, once it has begun.
    pub fn tls(&self) -> Option<Rc<Secure>> {
        self.secure.borrow().clone()
    }

    /// Once a watch period: time-outs, peers that do not read.
    pub fn look(&self, now: u64, scarce: bool) {
        let after = |since: u64, ns: u64| now.saturating_sub(since) > ns;
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
        if self.is_handshake() && after(self.began, u64::from(self.handshake_s.get()) * SECOND_NS) {
            self.end(Ending::TooSlow);
        }
    }

    /// Takes what is to be sent next, encrypted where that was agreed on.
    fn batch(&self, cipher: &mut Outbox, batch: &mut Vec<Seg>) -> Result<usize, Ending> {
        let mut out = self.out.borrow_mut();
        let Some(secure) = self.tls() else {
            return Ok(out.take(batch));
        };
        let mut clear = 0;
        while clear < BATCH_MAX {
            let taken = out.take(batch);
            if taken == 0 {
                break;
            }
            clear += taken;
            secure.write(batch, cipher)?;
            batch.clear();
        }
        secure.write(&[], cipher)?;
        Ok(cipher.take(batch))
    }

    fn has_words(&self, cipher: &Outbox) -> bool {
        self.out.borrow().bytes() > 0
            || cipher.bytes() > 0
            || self.secure.borrow().as_ref().is_some_and(|s| s.wants_write())
    }

    async fn write(&self) -> Ending {
        let mut batch: Vec<Seg> = Vec::new();
        let mut cipher = Outbox::new(self.here.memory.clone());
        loop {
            poll_fn(|_| match self.has_words(&cipher) {
                false => Poll::Pending,
                true => Poll::Ready(()),
            })
            .await;
            let taken = match cipher.bytes() {
                0 => self.batch(&mut cipher, &mut batch),
                _ => Ok(cipher.take(&mut batch)),
            };
            let taken = match taken {
                Ok(taken) => taken,
                Err(ending) => return ending,
            };
            if self.out.borrow().is_broken() || cipher.is_broken() {
                return Ending::NoMemory;
            }
            self.sending.set(taken + cipher.bytes());
            self.send_began.set(self.here.core.now());
            let sent = self.stream.send(&mut batch).await;
            self.sending.set(cipher.bytes());
            self.signals.dirty.set(true);
            if let Err(e) = sent {
                return Ending::lost(&e);
            }
            self.out.borrow_mut().rest();
            cipher.rest();
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
                    ended = self.ending.borrow().clone();
                }
                if ended.is_none()
                    && let Poll::Ready(e) = reader.as_mut().poll(cx)
                {
                    ended = Some(e);
                }
                if let Some(session) = &*self.session.borrow() {
                    session.go_on();
                }
                if let Poll::Ready(e) = writer.as_mut().poll(cx) {
                    break Some(ended.clone().unwrap_or(e));
                }
                if let Some(e) = &ended {
                    if !e.flushes() || self.backlog() == 0 {
                        break Some(e.clone());
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

    /// The last words of TLS, then reads and drops until the peer closes.
    async fn linger(&self) {
        if let Some(secure) = self.tls() {
            secure.close();
            let mut cipher = Outbox::new(self.here.memory.clone());
            let mut batch = Vec::new();
            if secure.write(&[], &mut cipher).is_ok() {
                cipher.take(&mut batch);
                if self.stream.send(&mut batch).await.is_err() {
                    return;
                }
            }
        }
        if self.stream.shutdown().is_err() {
            return;
        }
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

    fn say_goodbye(&self, ending: &Ending) {
        let session = self.session.borrow();
        let who = match &*session {
            Some(s) => format!("{} ({})", s.front.initiator, self.peer),
            None => format!("{}", self.peer),
        };
        if !ending.is_trouble() {
            tracing::info!(target: "nbd", "{who}: {ending}");
        } else if self.here.may_log() {
            tracing::warn!(target: "nbd", "{who}: {ending}");
        }
    }
}

/// The task of a connection.
pub(crate) async fn run(connection: Rc<Connection>) {
    let ending = {
        let conn = &connection;
        let mut inbox =
            Inbox::new(conn.stream.clone(), conn.here.memory.clone(), conn.signals.clone());
        let reader = async move {
            match door::run(conn, &mut inbox).await {
                Ok(session) => receive::run(&session, &mut inbox).await,
                Err(ending) => ending,
            }
        };
        conn.drive(reader).await
    };
    connection.end(ending.clone());
    connection.say_goodbye(&ending);
    if ending.flushes() {
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
