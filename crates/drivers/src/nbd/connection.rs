//! One connection, from accept to its end.
//!
//! ```text
//!   HANDSHAKE --GO, EXPORT_NAME--> TRANSMISSION --DISC, error, close--> ENDING --> gone
//!     |                                                                   ^
//!     +--- refused, time-out, garbage -----------------------------------+
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Pool;
use reactor::{Address, Stream};

use super::ending::Ending;
use super::here::Here;
use super::inlet::{Coat, Inbox, Inlet, Outlet};
use super::session::Session;
use super::tls::Secure;
use super::{door, receive};
use crate::common::cause::Cause;
use crate::common::hall::{Guest, farewell};
use crate::common::journal::About;
use crate::common::pace::Pace;
use crate::common::pump::{Ending as _, FLUSH_NS, Pump};
use crate::outbox::Outbox;

const SECOND_NS: u64 = 1_000_000_000;

/// One connection.
pub(crate) struct Connection {
    /// Number in this daemon.
    pub number: u64,
    pub here: Rc<Here>,
    pub line: Pump<Ending>,
    /// For write data, where that is not the engine's: of a client that others' memory waits for.
    pub data: Option<Pool>,
    /// It ends between two requests, when all before are answered.
    retiring: Cell<bool>,
    /// The client's address.
    pub peer: Address,
    /// Our address.
    pub local: Address,
    /// The portal as the configuration names it.
    pub at: Address,
    /// The session, once there is one.
    pub session: RefCell<Option<Rc<Session>>>,
    /// Seconds that the handshake may take.
    pub handshake_s: Cell<u32>,
    /// What is being read of a request that has begun.
    pub pace: Pace,
    /// Bytes of memory for write data that has not all come.
    pub gathering: Cell<usize>,
    coat: Coat,
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
        data: Option<Pool>,
    ) -> Rc<Connection> {
        Rc::new(Connection {
            number: here.shared.next_connection(),
            here: here.clone(),
            line: Pump::new(&here.core, &here.hall.memory, stream),
            data,
            retiring: Cell::new(false),
            peer,
            local,
            at,
            session: RefCell::default(),
            handshake_s: Cell::new(super::NbdParams::default().handshake_timeout),
            pace: Pace::default(),
            gathering: Cell::default(),
            coat: RefCell::default(),
            began: here.core.now(),
        })
    }

    /// Reads no further request, answers those that were read, and ends.
    pub fn retire(&self) {
        self.retiring.set(true);
        self.line.kick();
    }

    /// See [`Connection::retire`].
    pub fn is_retiring(&self) -> bool {
        self.retiring.get()
    }

    /// From now on what is sent is encrypted.
    pub fn secure(&self, secure: Rc<Secure>) {
        *self.coat.borrow_mut() = Some(secure);
    }

    /// TLS, once it has begun.
    pub fn tls(&self) -> Option<Rc<Secure>> {
        self.coat.borrow().clone()
    }

    /// The last words of TLS, then reads and drops until the peer closes.
    async fn linger(&self) {
        if let Some(secure) = self.tls() {
            secure.close();
            let mut cipher = Outbox::new(self.here.hall.memory.clone());
            let mut batch = Vec::new();
            if secure.write(&[], &mut cipher).is_ok() {
                cipher.take(&mut batch);
                if self.line.stream.send(&mut batch).await.is_err() {
                    return;
                }
            }
        }
        self.line.linger().await;
    }

    fn say_goodbye(&self, ending: &Ending) {
        let session = self.session.borrow();
        let name = session.as_ref().map_or("", |s| s.front.initiator.as_str());
        farewell(&self.here.hall, About { peer: &self.peer, name }, ending);
    }
}

impl Guest for Connection {
    fn number(&self) -> u64 {
        self.number
    }

    fn is_entering(&self) -> bool {
        self.session.borrow().is_none() && !self.line.is_ending()
    }

    fn end(&self, cause: Cause) {
        self.line.end(cause.into());
    }

    /// Time-outs, peers that do not read, or do not send what they have begun.
    fn look(&self, now: u64, scarce: bool) {
        if self.line.look(now, scarce).is_none() {
            return;
        }
        let limit_ns = u64::from(self.handshake_s.get()) * SECOND_NS;
        if self.is_entering() && now.saturating_sub(self.began) > limit_ns {
            self.line.end(Ending::TooSlow);
        }
        if self.pace.is_overdue(now, self.here.engine.is_hungry()) {
            self.end(Cause::DataOverdue);
        }
    }

    fn let_go(&self) {
        drop(self.session.take());
    }
}

fn inbox(connection: &Connection) -> Inbox {
    let line = &connection.line;
    let memory = connection.here.hall.memory.clone();
    Inbox::new(Inlet::new(line.stream.clone()), memory, line.signals.clone())
}

/// The task of a connection.
pub(crate) async fn run(connection: Rc<Connection>) {
    let conn = &connection;
    let mut inbox = inbox(conn);
    let reader = async move {
        match door::run(conn, &mut inbox).await {
            Ok(session) => receive::run(&session, &mut inbox).await,
            Err(ending) => ending,
        }
    };
    live(conn, reader).await;
}

/// The task of a connection that is past the handshake.
pub(crate) async fn run_entered(connection: Rc<Connection>, session: Rc<Session>) {
    let mut inbox = inbox(&connection);
    live(&connection, async move { receive::run(&session, &mut inbox).await }).await;
}

async fn live(connection: &Rc<Connection>, reader: impl Future<Output = Ending>) {
    let line = &connection.line;
    let between = || {
        if let Some(session) = &*connection.session.borrow() {
            session.go_on();
        }
    };
    let outlet = Outlet::new(&line.out, &connection.coat, &connection.here.hall.memory);
    let ending = line.drive(reader, outlet, between).await;
    line.end(ending.clone());
    connection.say_goodbye(&ending);
    if ending.flushes() {
        geom::deadline(&connection.here.core, FLUSH_NS, connection.linger()).await;
    }
    line.stream.close();
    let session = connection.session.take();
    if let Some(session) = session {
        session.finish().await;
    }
    connection.here.hall.remove(connection.number);
}
