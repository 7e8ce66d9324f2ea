//! A listening address on one core.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use reactor::{Address, Reactor, Stream};

use super::connection::{self, Connection};
use super::here::Here;
use crate::common::entrance::{Door, Porter, Strain, accept};
use crate::common::journal::Journal;

/// Starts to listen; answers the address.
pub(crate) fn open(here: &Rc<Here>, at: SocketAddr) -> io::Result<Address> {
    let name = Address::Inet(at);
    if let Some(local) = here.hall.portal(&name) {
        return Ok(local);
    }
    let listener = here.reactor().listen_shared(at)?;
    let local = listener.local_addr();
    let task = accept(here, "iscsi portal", Door::Inet(listener), name.clone());
    here.shared.targets.portal_opened(name.clone(), local.into());
    here.hall.add_portal(name, local.into(), task);
    Ok(local.into())
}

impl Porter for Here {
    fn journal(&self) -> &Journal {
        &self.hall.journal
    }

    fn strain(&self) -> &Strain {
        &self.shared.strain
    }

    fn reactor(&self) -> &Reactor {
        self.core.reactor()
    }

    async fn place(&self) {
        self.hall.place(self.shared.registry.doors()).await;
    }

    fn welcome(self: &Rc<Self>, stream: Stream, peer: Address, at: &Address) {
        let (Some(from), Some(at)) = (peer.inet(), at.inet()) else { return };
        // Answers are small and go out in batches of our own making.
        if !self.hall.admits(&stream, &peer) || stream.nodelay(true).is_err() {
            return;
        }
        let local = stream.local_addr().unwrap_or(at);
        let connection = Connection::new(self, stream, from, local, at);
        self.hall.add(&connection);
        drop(self.core.reactor().spawn("iscsi connection", connection::run(connection)));
    }
}
