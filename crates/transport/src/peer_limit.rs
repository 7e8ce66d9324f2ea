//! Open connections of each peer address, and their limit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// See the module.
pub struct PeerLimit {
    limit: usize,
    open: RefCell<HashMap<String, usize>>,
}

/// A connection that counts; it no longer does when this is dropped.
pub struct CountedPeer {
    peers: Rc<PeerLimit>,
    peer: String,
}

impl PeerLimit {
    /// For `most` connections of each.
    pub fn new(most: usize) -> Rc<PeerLimit> {
        Rc::new(PeerLimit { limit: most, open: RefCell::default() })
    }

    /// Connections that one peer may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// One connection more; `None` when it has enough.
    pub fn enter(self: &Rc<PeerLimit>, peer: &str) -> Option<CountedPeer> {
        let mut open = self.open.borrow_mut();
        let count = open.entry(peer.to_owned()).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(CountedPeer { peers: self.clone(), peer: peer.to_owned() })
    }
}

impl Drop for CountedPeer {
    fn drop(&mut self) {
        let mut open = self.peers.open.borrow_mut();
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
        let peers = PeerLimit::new(2);
        let (a, b) = (peers.enter("10.0.0.1"), peers.enter("10.0.0.1"));
        assert!(a.is_some() && b.is_some() && peers.enter("10.0.0.1").is_none());
        assert!(peers.enter("10.0.0.2").is_some());
        drop((a, b));
        assert!(peers.open.borrow().is_empty());
    }
}
