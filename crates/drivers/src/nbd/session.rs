//! A client's session: requests under way at one unit, and the connection that they came by.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use bio::{Pool, Segs};
use wire::nbd::{Agreed, Error, Form, Request};

use super::close_reason::CloseReason;
use super::params;
use super::protocol::Connection;
use engine::registry::LunEntry;

use crate::blocks::{Blocks, Front, Over, Work};

/// A session with its connection.
pub(crate) type Session = Blocks<Client>;

/// The connection's side of a session.
pub(crate) struct Client {
    conn: Rc<Connection>,
    pub initiator: String,
    form: Cell<Form>,
    allocation: Cell<bool>,
    unaligned: Cell<bool>,
    /// Runs of zeroes and data of one reply, reused.
    pub runs: RefCell<Vec<(bool, u64)>>,
    _place: Option<params::Place>,
}

impl Session {
    /// A session at a unit; the engine's side comes by `attach`.
    pub fn enter(
        conn: &Rc<Connection>,
        entry: &LunEntry,
        initiator: String,
        place: Option<params::Place>,
    ) -> Rc<Session> {
        let client = Client {
            conn: conn.clone(),
            initiator,
            form: Cell::default(),
            allocation: Cell::default(),
            unaligned: Cell::default(),
            runs: RefCell::default(),
            _place: place,
        };
        Blocks::new(client, entry.device.clone(), entry.lun)
    }

    /// Transmission begins.
    pub fn begin(&self, agreed: &Agreed) {
        self.front.form.set(agreed.form);
        self.front.allocation.set(agreed.allocation);
        self.front.unaligned.set(agreed.export.unaligned && !agreed.sizes);
    }

    /// A request's range lies in the unit, and on its blocks where the client keeps to them.
    pub fn check(&self, r: &Request, work: Work) -> Result<(), Error> {
        match self.front.unaligned.get() {
            true => self.check_bytes(r, work),
            false => self.check_range(r, work),
        }
    }

    /// Ends a request for which there is nothing to be done.
    pub fn answer(&self, request: &Request) {
        self.reply(request, None, false);
        self.front.conn.io.wake();
    }

    /// The connection.
    pub fn conn(&self) -> &Rc<Connection> {
        &self.front.conn
    }

    /// Which headers were agreed on.
    pub fn form(&self) -> Form {
        self.front.form.get()
    }

    /// `base:allocation` was agreed on.
    pub fn tells_allocation(&self) -> bool {
        self.front.allocation.get()
    }

    /// Waits until another request may be read.
    pub async fn room(&self) {
        self.conn().io.room().await;
        self.shallow().await;
    }
}

impl Front for Client {
    const LEAVES: bool = true;

    fn kick(&self) {
        self.conn.io.wake();
    }

    fn watch(&self, waker: &Waker) {
        self.conn.io.set_waker(waker);
    }

    fn segs(&self) -> Segs {
        self.conn.core.segs.take()
    }

    fn put_segs(&self, segs: Segs) {
        self.conn.core.segs.put(segs);
    }

    fn pool(&self) -> &Pool {
        &self.conn.core.memory
    }

    fn backlog(&self) -> usize {
        self.conn.io.backlog() + self.conn.own.gathering.get()
    }

    fn over(&self, over: Over) {
        self.conn.io.close(match over {
            Over::Exchanged => CloseReason::Exchanged,
            Over::Closed(reason) => CloseReason::Closed(reason),
        });
    }

    fn data(session: &Session, tag: u32, data: &Segs) -> bool {
        session.send_data(tag, data)
    }

    fn status(session: &Session, tag: u32, data: &Segs) {
        session.send_status(tag, data);
    }

    fn reply(session: &Session, request: &Request, error: Option<Error>, begun: bool) {
        session.reply(request, error, begun);
    }
}
