//! A client's session: requests under way at one unit, and the connection on which they arrived.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use bio::{Pool, Segs};
use wire::nbd::{Agreed, Error, Form, Request};

use super::close_reason::CloseReason;
use super::protocol::Connection;
use engine::registry::LunEntry;

use crate::block_requests::{BlockSession, Frontend, SessionEnd, Work};
use crate::connection_claim::ConnectionClaim;

/// A session with its connection.
pub(crate) type NbdSession = BlockSession<Client>;

/// The connection's side of a session.
pub(crate) struct Client {
    conn: Rc<Connection>,
    pub initiator: String,
    form: Cell<Form>,
    allocation: Cell<bool>,
    unaligned: Cell<bool>,
    /// Runs of zeroes and data of one reply, reused.
    pub runs: RefCell<Vec<(bool, u64)>>,
    _place: Option<ConnectionClaim>,
}

impl NbdSession {
    /// A session at a unit; `attach` adds the engine's side.
    pub fn enter(
        conn: &Rc<Connection>,
        entry: &LunEntry,
        initiator: String,
        place: Option<ConnectionClaim>,
    ) -> Rc<NbdSession> {
        let client = Client {
            conn: conn.clone(),
            initiator,
            form: Cell::default(),
            allocation: Cell::default(),
            unaligned: Cell::default(),
            runs: RefCell::default(),
            _place: place,
        };
        BlockSession::new(client, entry.device.clone(), entry.lun)
    }

    /// Transmission begins.
    pub fn begin(&self, agreed: &Agreed) {
        self.frontend.form.set(agreed.form);
        self.frontend.allocation.set(agreed.allocation);
        self.frontend.unaligned.set(agreed.export.unaligned && !agreed.sizes);
    }

    /// A request's range is in the unit, and on its blocks where the client keeps to them.
    pub fn check(&self, r: &Request, work: Work) -> Result<(), Error> {
        match self.frontend.unaligned.get() {
            true => self.check_bytes(r, work),
            false => self.check_range(r, work),
        }
    }

    /// A request that [`NbdSession::check`] has let pass begins and ends with blocks of the unit.
    /// Where the client keeps to them, `check` has divided already.
    pub fn is_on_blocks(&self, r: &Request) -> bool {
        !self.frontend.unaligned.get() || self.is_aligned(r)
    }

    /// Ends a request for which there is nothing to be done.
    pub fn answer(&self, request: &Request) {
        self.reply(request, None, false);
        self.frontend.conn.io.wake();
    }

    pub fn conn(&self) -> &Rc<Connection> {
        &self.frontend.conn
    }

    /// Which headers were agreed on.
    pub fn form(&self) -> Form {
        self.frontend.form.get()
    }

    /// `base:allocation` was agreed on.
    pub fn reports_allocation(&self) -> bool {
        self.frontend.allocation.get()
    }

    /// Waits until another request may be read.
    pub async fn wait_for_capacity(&self) {
        self.conn().io.wait_for_space().await;
        self.wait_below_depth().await;
    }
}

impl Frontend for Client {
    const SILENT_ON_SHUTDOWN: bool = true;

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

    fn session_over(&self, over: SessionEnd) {
        self.conn.io.close(match over {
            SessionEnd::Exchanged => CloseReason::Exchanged,
            SessionEnd::Closed(reason) => CloseReason::Closed(reason),
        });
    }

    fn data(session: &NbdSession, tag: u32, data: &Segs) -> bool {
        session.send_data(tag, data)
    }

    fn status(session: &NbdSession, tag: u32, data: &Segs) {
        session.send_status(tag, data);
    }

    fn reply(session: &NbdSession, request: &Request, error: Option<Error>, begun: bool) {
        session.reply(request, error, begun);
    }
}
