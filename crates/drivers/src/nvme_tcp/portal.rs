//! A listening address on one core.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Address, Reactor, Stream};

use super::connection::{self, Connection};
use super::here::Here;
use crate::common::entrance::{Door, Porter, Strain, accept};
use crate::common::journal::Journal;

/// Silence after which the kernel asks whether the host is still there, s: keep alive may be off,
/// and I/O queues have none of their own.
const KEEPALIVE_S: u64 = 30;

/// Starts to listen; answers the address.
pub(crate) fn open(here: &Rc<Here>, at: Address) -> io::Result<Address> {
    if let Some(local) = here.hall.portal(&at) {
        return Ok(local);
    }
    let Some(inet) = at.inet() else {
        let what = format!("{at}: NVMe/TCP listens at ADDRESS:PORT");
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    };
    let listener = here.core.reactor().listen_shared(inet)?;
    let local = Address::Inet(listener.local_addr());
    here.shared.targets.portal_opened(at.clone(), local.clone());
    let task = accept(here, "nvme portal", Door::Inet(listener), at.clone());
    here.hall.add_portal(at, local.clone(), task);
    Ok(local)
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
        if !self.hall.admits(&stream, &peer) {
            return;
        }
        // Answers are small and go out in batches of our own making.
        let idle = Duration::from_secs(KEEPALIVE_S);
        if stream.nodelay(true).is_err() || stream.keepalive(idle).is_err() {
            return;
        }
        let local = stream.local_addr().map_or(at.clone(), Address::Inet);
        let connection = Connection::new(self, stream, peer, local, at.clone());
        self.hall.add(&connection);
        drop(self.core.reactor().spawn("nvme connection", connection::run(connection)));
    }
}
