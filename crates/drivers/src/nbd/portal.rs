//! A listening address on one core.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Address, Reactor, Stream};

use super::connection::{self, Connection};
use super::here::Here;
use crate::common::entrance::{Door, Porter, Strain, accept};
use crate::common::journal::Journal;

/// Silence after which the kernel asks whether the client is still there, s: NBD has no ping.
const KEEPALIVE_S: u64 = 30;

/// Starts to listen; answers the address.
pub(crate) fn open(here: &Rc<Here>, at: Address) -> io::Result<Address> {
    if let Some(local) = here.hall.portal(&at) {
        return Ok(local);
    }
    let (door, local) = match &at {
        Address::Inet(inet) => {
            let listener = here.reactor().listen_shared(*inet)?;
            let local = Address::Inet(listener.local_addr());
            (Door::Inet(listener), local)
        }
        Address::Unix(path) => {
            let file = here.shared.targets.at(&at).first().map(|t| t.file).unwrap_or_default();
            let listener = here.shared.enter_door(path, |parcel| {
                let listener = match parcel {
                    Some(parcel) => here.reactor().attach_unix(parcel)?,
                    None => here.reactor().listen_unix_prepared(path, |path| file.apply(path))?,
                };
                let next = listener.share()?;
                Ok((listener, next))
            })?;
            (Door::Unix(listener), at.clone())
        }
        Address::Ether(_) => {
            let what = format!("{at}: NBD listens at ADDRESS:PORT or unix:/PATH");
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
    };
    let task = accept(here, "nbd portal", door, at.clone());
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
        let mut local = at.clone();
        if peer.inet().is_some() {
            // Answers are small and go out in batches of our own making.
            let idle = Duration::from_secs(KEEPALIVE_S);
            if stream.nodelay(true).is_err() || stream.keepalive(idle).is_err() {
                return;
            }
            local = stream.local_addr().map_or(local, Address::Inet);
        }
        let connection = Connection::new(self, stream, peer, local, at.clone(), None);
        self.hall.add(&connection);
        drop(self.core.reactor().spawn("nbd connection", connection::run(connection)));
    }
}
