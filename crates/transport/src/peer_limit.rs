//! Open connections of each peer, counted over all cores, and their limit.

use std::collections::HashMap;
use std::sync::Arc;

use bio::sync::Mutex;
use reactor::Address;

/// Default limit of the connections of one peer. An iSCSI host has one for each session, an NBD
/// client at most one for each of its cores.
pub const PEER_CONNECTIONS_MAX: u32 = 1024;

/// See the module.
#[derive(Default)]
pub struct PeerLimit {
    open: Mutex<HashMap<String, usize>>,
}

/// A counted connection; the count ends when it is dropped.
pub struct CountedPeer {
    peers: Arc<PeerLimit>,
    peer: String,
}

/// The peer of a connection to the portal `at`, as it is counted: an address without its port, or a
/// user of a Unix socket.
pub fn counted_as(peer: &Address, at: &Address) -> String {
    match peer {
        Address::Inet(peer) => peer.ip().to_canonical().to_string(),
        Address::Unix(user) | Address::Ether(user) => format!("{at} {user}"),
    }
}

impl PeerLimit {
    /// Counts one more connection of a peer; `None` when it has `most`.
    pub fn enter(self: &Arc<PeerLimit>, peer: &str, most: usize) -> Option<CountedPeer> {
        let mut open = self.open.lock();
        let count = open.get(peer).copied().unwrap_or_default();
        if count >= most {
            return None;
        }
        open.insert(peer.to_owned(), count + 1);
        Some(CountedPeer { peers: self.clone(), peer: peer.to_owned() })
    }
}

impl Drop for CountedPeer {
    fn drop(&mut self) {
        let mut open = self.peers.open.lock();
        let Some(count) = open.get_mut(&self.peer) else { return };
        *count -= 1;
        if *count == 0 {
            open.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_its_own_limit() {
        let peers = Arc::new(PeerLimit::default());
        let (a, b) = (peers.enter("10.0.0.1", 2), peers.enter("10.0.0.1", 2));
        assert!(a.is_some() && b.is_some() && peers.enter("10.0.0.1", 2).is_none());
        assert!(peers.enter("10.0.0.2", 2).is_some());
        drop((a, b));
        assert!(peers.open.lock().is_empty());
    }

    #[test]
    fn peer_is_counted_without_its_port() {
        let at: Address = "[::]:3260".parse().unwrap();
        for peer in ["10.0.0.1:5", "[::ffff:10.0.0.1]:6"] {
            assert_eq!(counted_as(&peer.parse().unwrap(), &at), "10.0.0.1");
        }
    }
}
