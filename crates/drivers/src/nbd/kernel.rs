//! Connections of this machine's kernel: the results of a handshake are known.
//!
//! The kernel speaks the oldest form of the protocol: simple replies, 32-bit lengths.

use std::rc::Rc;

use bio::Pool;
use engine::registry::LunEntry;
use engine::{Login, Refused, Transport};
use reactor::Stream;
use transport::Endpoints;

use super::exports;
use super::protocol::{Connection, NbdConnState, PerCore, retire};
use super::session::NbdSession;

/// A connection that is logged in, before its first request.
pub(crate) struct Entered {
    connection: Rc<Connection>,
}

/// The transmission flags of a unit for the kernel.
pub(crate) fn flags(entry: &LunEntry) -> u16 {
    exports::flags(entry)
}

/// Logs in for the kernel at the other end of `stream`. Write data has memory of its own: pages of
/// this machine that wait to be written must not wait for others' data.
pub(crate) fn enter(
    core: &Rc<PerCore>,
    stream: Stream,
    mut login: Login,
    entry: &LunEntry,
    data: Pool,
) -> Result<Entered, Refused> {
    let at = login.portal.clone();
    let ends = Endpoints { peer: login.from.clone(), local: at.clone(), at };
    let connection = Connection::new(core, stream, ends, NbdConnState::with_pool(data));
    login.port_id = connection.number.to_be_bytes().to_vec();
    let session = NbdSession::enter(&connection, entry, login.initiator.clone(), None);
    let transport: Rc<dyn Transport> = session.clone();
    session.attach(core.own.login(login, transport)?);
    connection.enter(&session);
    core.add(&connection);
    Ok(Entered { connection })
}

impl Entered {
    /// See [`retire`].
    pub fn retires(&self) -> impl Fn() + use<> {
        let connection = Rc::downgrade(&self.connection);
        move || {
            if let Some(connection) = connection.upgrade() {
                retire(&connection);
            }
        }
    }

    /// Serves until it ends, and its last command with it.
    pub async fn run(self) {
        self.connection.run().await;
    }
}
