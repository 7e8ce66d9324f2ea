//! One TCP connection, from accept to its end.
//!
//! ```text
//!   LOGIN --last response--> FULL FEATURE --logout, error, close--> ENDING --session over--> gone
//!     |                                                               ^
//!     +--- refused, time-out, garbage -------------------------------+
//! ```

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use reactor::{Address, Stream};

use super::ending::Ending;
use super::here::Here;
use super::inlet::Inlet;
use super::session::Session;
use super::{login, receive};
use crate::common::cause::Cause;
use crate::common::hall::{Guest, farewell};
use crate::common::journal::About;
use crate::common::pump::{Ending as _, FLUSH_NS, Plain, Pump};

/// Seconds for a login before its target is known.
const LOGIN_S: u32 = 15;

const SECOND_NS: u64 = 1_000_000_000;

/// One TCP connection.
pub(crate) struct Connection {
    /// Number in this daemon.
    pub number: u64,
    pub here: Rc<Here>,
    pub line: Pump<Ending>,
    /// The initiator's address.
    pub peer: SocketAddr,
    /// Our address.
    pub local: SocketAddr,
    /// The portal as the configuration names it.
    pub at: SocketAddr,
    /// The session, once there is one.
    pub session: RefCell<Option<Rc<Session>>>,
    /// Seconds that the login may take.
    pub login_limit_s: Cell<u32>,
    last_heard: Cell<u64>,
    pinged: Cell<Option<u64>>,
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
            line: Pump::new(&here.core, &here.hall.memory, stream),
            peer,
            local,
            at,
            session: RefCell::default(),
            login_limit_s: Cell::new(LOGIN_S),
            last_heard: Cell::new(now),
            pinged: Cell::new(None),
            began: now,
        })
    }

    /// Notes a ping of ours.
    pub fn note_ping(&self) {
        self.pinged.set(Some(self.here.core.now()));
        self.line.signals.quiet.set(true);
    }

    /// A line in the journal about what this peer did; bounded.
    pub fn complain(&self, what: std::fmt::Arguments<'_>) {
        let peer = &Address::Inet(self.peer);
        self.here.hall.journal.trouble(About { peer, name: "" }, what);
    }

    fn say_goodbye(&self, ending: &Ending) {
        let session = self.session.borrow();
        let name = session.as_ref().map_or("", |s| s.initiator.as_str());
        farewell(&self.here.hall, About { peer: &Address::Inet(self.peer), name }, ending);
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

    /// Time-outs, pings, peers that do not read.
    fn look(&self, now: u64, scarce: bool) {
        let after = |since: u64, s: u32| now.saturating_sub(since) > u64::from(s) * SECOND_NS;
        let Some(heard) = self.line.look(now, scarce) else { return };
        if heard {
            self.last_heard.set(now);
            self.pinged.set(None);
        }
        let session = self.session.borrow().clone();
        let Some(session) = session else {
            if after(self.began, self.login_limit_s.get()) {
                self.line.end(Ending::LoginTimeout);
            }
            return;
        };
        if session.is_overdue(now, self.here.engine.is_hungry()) {
            return self.end(Cause::DataOverdue);
        }
        let (interval_s, timeout_s) = session.ping_seconds();
        match self.pinged.get() {
            Some(since) if after(since, timeout_s) => self.line.end(Ending::Silent),
            None if interval_s > 0 && after(self.last_heard.get(), interval_s) => session.ping(),
            _ => {}
        }
    }

    fn let_go(&self) {
        drop(self.session.take());
    }
}

/// The task of a connection.
pub(crate) async fn run(connection: Rc<Connection>) {
    let line = &connection.line;
    let ending = {
        let conn = &connection;
        let memory = conn.here.hall.memory.clone();
        let mut inlet = Inlet::new(line.stream.clone(), memory, line.signals.clone());
        let reader = async move {
            match login::run(conn, &mut inlet).await {
                Ok(session) => receive::run(&session, &mut inlet).await,
                Err(ending) => ending,
            }
        };
        line.drive(reader, Plain(&line.out), || {}).await
    };
    line.end(ending);
    connection.say_goodbye(&ending);
    if ending.flushes() {
        geom::deadline(&connection.here.core, FLUSH_NS, line.linger()).await;
    }
    line.stream.close();
    let session = connection.session.take();
    if let Some(session) = session {
        session.finish().await;
    }
    connection.here.hall.remove(connection.number);
}
