//! Accept loop of every listener of HTTP, with the limits of its connections.
//!
//! Invariants
//!  N4  One address has at most [`PER_ADDRESS_MAX`] connections to a listener, so that it leaves
//!      slots for others.
//!  N5  A connection whose peer acknowledges no sent data ends after [`UNACKNOWLEDGED_MAX_MS`].

use super::peer_rates::counted;
use super::refusal_log::{PERIOD, RefusalLog, tcp_peer};
use reactor::Address;
use rustix::net::sockopt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use transport::{CountedPeer, PeerLimit};

/// Connections of a listener at one time. Further ones are closed at once.
const CONNECTIONS_MAX: usize = 128;

/// Connections of one address at one time. Further ones are closed at once (N4).
const PER_ADDRESS_MAX: usize = 32;

/// How long sent data may be unacknowledged, in milliseconds (N5).
const UNACKNOWLEDGED_MAX_MS: u32 = 30_000;

/// Longest wait after `accept` failed (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
pub(super) trait Accept {
    /// An accepted connection.
    type Connection;

    /// Accepts a connection, with its peer as logs show it.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Connection, Address)>> + Send;
}

impl Accept for TcpListener {
    type Connection = (TcpStream, SocketAddr);

    async fn accept(&self) -> io::Result<((TcpStream, SocketAddr), Address)> {
        let (stream, address) = TcpListener::accept(self).await?;
        Ok(((stream, address), tcp_peer(address)))
    }
}

impl Accept for UnixListener {
    /// With the user of the peer, or why it is unknown.
    type Connection = (UnixStream, io::Result<u32>);

    async fn accept(&self) -> io::Result<((UnixStream, io::Result<u32>), Address)> {
        let (stream, _) = UnixListener::accept(self).await?;
        let uid = stream.peer_cred().map(|peer| peer.uid());
        let user = uid.as_ref().map_or("unknown user".to_owned(), |uid| format!("uid={uid}"));
        Ok(((stream, uid), Address::Unix(user.into())))
    }
}

/// See the module. Listeners of one acceptor have one set of limits.
pub(super) struct Acceptor {
    /// Lines about refused connections.
    pub(super) log: RefusalLog,
    /// A permit for each further connection.
    slots: Arc<Semaphore>,
    /// Those of each address, counted as those of targets.
    peers: Arc<PeerLimit>,
}

impl Acceptor {
    /// Of listeners with that name in logs.
    pub(super) fn new(listener: &'static str) -> Acceptor {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Acceptor { log: RefusalLog::new(listener), slots, peers: Arc::default() }
    }

    /// The number of open connections.
    pub(super) fn open(&self) -> usize {
        CONNECTIONS_MAX - self.slots.available_permits()
    }

    /// Accepts connections until `stop` is ready. `admit` returns the task of a connection; `None`:
    /// the connection is refused.
    pub(super) async fn run<L: Accept, F>(
        &self,
        listener: &L,
        admit: impl Fn(L::Connection) -> Option<F>,
        stop: impl Future<Output = ()>,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut period = tokio::time::interval(PERIOD);
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                _ = period.tick() => {
                    self.log.end_period();
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((connection, peer)) => self.begin(connection, &peer, &admit),
                Err(e) => {
                    self.log.accept_failed(&e);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Starts the task of a connection if a slot is free.
    fn begin<C, F>(&self, connection: C, peer: &Address, admit: impl Fn(C) -> Option<F>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.log.accepted();
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            return self.log.refused(peer, format_args!("{CONNECTIONS_MAX} are open"));
        };
        if let Some(task) = admit(connection) {
            tokio::spawn(async move {
                task.await;
                drop(slot);
            });
        }
    }

    /// Prepares a connection over TCP; the value is kept while it is open. `None`: it is refused,
    /// which is logged.
    pub(super) fn admit_tcp(&self, stream: &TcpStream, address: SocketAddr) -> Option<CountedPeer> {
        if let Err(e) = sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX_MS) {
            self.log.refused(&tcp_peer(address), format_args!("no TCP user timeout: {e}"));
            return None;
        }
        let slot = self.enter(address.ip());
        if slot.is_none() {
            let why = format_args!("{PER_ADDRESS_MAX} of this address are open");
            self.log.refused(&tcp_peer(address), why);
        }
        slot
    }

    fn enter(&self, ip: IpAddr) -> Option<CountedPeer> {
        self.peers.enter(&counted(ip).to_string(), PER_ADDRESS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{Pending, pending};

    #[test]
    fn n4_one_address_leaves_room_for_others() {
        let all = Acceptor::new("test");
        let [one, same, other] =
            ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|ip| ip.parse().expect("an address"));
        let mut taken: Vec<CountedPeer> = (0..40).filter_map(|_| all.enter(one)).collect();
        assert_eq!(taken.len(), PER_ADDRESS_MAX);
        assert!(all.enter(same).is_none(), "a host may use all addresses of its /64");
        assert!(all.enter(other).is_some());
        taken.pop();
        let again = all.enter(same).expect("a place was given back");
        drop((taken, again));
        let taken: Vec<CountedPeer> = (0..40).filter_map(|_| all.enter(same)).collect();
        assert_eq!(taken.len(), PER_ADDRESS_MAX, "all places were given back");
    }

    #[test]
    fn connections_beyond_the_limit_are_refused_until_one_ends() {
        let (all, peer) = (Acceptor::new("test"), Address::Unix("a".into()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            all.begin(0, &peer, |_| None::<Pending<()>>);
            assert_eq!(all.open(), 0, "one that is refused has no slot");
            (0..200).for_each(|n| all.begin(n, &peer, |_| Some(pending::<()>())));
            assert_eq!(all.open(), CONNECTIONS_MAX);
        });
        // Its tasks end with the runtime.
        drop(runtime);
        assert_eq!(all.open(), 0);
    }
}
