//! Connections whose client is this machine's kernel: what a handshake would agree on is known.
//!
//! The kernel speaks the oldest form of the protocol: simple replies, 32-bit lengths.

use std::rc::Rc;

use bio::Pool;
use engine::registry::LunEntry;
use engine::{Login, Refused, Transport};
use reactor::Stream;

use super::connection::{self, Connection};
use super::exports;
use super::here::Here;
use super::session::Session;

/// A connection that has been let in, before its first request.
pub(crate) struct Entered {
    connection: Rc<Connection>,
    session: Rc<Session>,
}

/// What the kernel is told of a unit: the transmission flags.
pub(crate) fn flags(entry: &LunEntry) -> u16 {
    exports::flags(entry)
}

/// Logs in for the kernel at the other end of `stream`. Write data has memory of its own: pages of
/// this machine that wait to be written must not wait for others' data.
pub(crate) fn enter(
    here: &Rc<Here>,
    stream: Stream,
    mut login: Login,
    entry: &LunEntry,
    data: Pool,
) -> Result<Entered, Refused> {
    let (peer, at) = (login.from.clone(), login.portal.clone());
    let connection = Connection::new(here, stream, peer, at.clone(), at, Some(data));
    login.port_id = connection.number.to_be_bytes().to_vec();
    let session = Session::enter(&connection, entry, login.initiator.clone(), None);
    let transport: Rc<dyn Transport> = session.clone();
    session.attach(here.engine.login(login, transport)?);
    *connection.session.borrow_mut() = Some(session.clone());
    here.hall.add(&connection);
    Ok(Entered { connection, session })
}

impl Entered {
    /// For [`Connection::retire`] and [`Connection::end`].
    pub fn retires(&self) -> impl Fn() + use<> {
        let connection = Rc::downgrade(&self.connection);
        move || {
            if let Some(connection) = connection.upgrade() {
                connection.retire();
            }
        }
    }

    /// Serves until it ends, and its last command with it.
    pub async fn run(self) {
        connection::run_entered(self.connection, self.session).await;
    }
}
