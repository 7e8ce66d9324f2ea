//! Open TCP connections of each address, with a limit.
//!
//! Invariants
//!  N4  One address has at most [`PER_ADDRESS_MAX`] connections to a listener, so that it leaves
//!      slots for others.
//!  N5  A connection whose peer acknowledges no sent data ends after [`UNACKNOWLEDGED_MAX_MS`].

use super::peer_rates::counted;
use super::refusal_log::{RefusalLog, tcp_peer};
use rustix::net::sockopt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;
use transport::{CountedPeer, PeerLimit};

/// Connections of one address at one time. Further ones are closed at once (N4).
const PER_ADDRESS_MAX: usize = 32;

/// How long sent data may be unacknowledged, in milliseconds (N5).
const UNACKNOWLEDGED_MAX_MS: u32 = 30_000;

/// See the module. Clones count together, by the limit of targets' peers.
#[derive(Clone, Default)]
pub(super) struct TcpSlots(Arc<PeerLimit>);

impl TcpSlots {
    /// Prepares an accepted connection; `None`: it is refused, which is logged.
    pub(super) fn admit(
        &self,
        log: &RefusalLog,
        stream: &TcpStream,
        address: SocketAddr,
    ) -> Option<CountedPeer> {
        if let Err(e) = sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX_MS) {
            log.refused(&tcp_peer(address), format_args!("no TCP user timeout: {e}"));
            return None;
        }
        let slot = self.take(address.ip());
        if slot.is_none() {
            let why = format_args!("{PER_ADDRESS_MAX} of this address are open");
            log.refused(&tcp_peer(address), why);
        }
        slot
    }

    fn take(&self, ip: IpAddr) -> Option<CountedPeer> {
        self.0.enter(&counted(ip).to_string(), PER_ADDRESS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n4_one_address_leaves_room_for_others() {
        let slots = TcpSlots::default();
        let [one, same, other] =
            ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|ip| ip.parse().expect("an address"));
        let mut taken: Vec<CountedPeer> = (0..40).filter_map(|_| slots.take(one)).collect();
        assert_eq!(taken.len(), PER_ADDRESS_MAX);
        assert!(slots.take(same).is_none(), "a host may use all addresses of its /64");
        assert!(slots.take(other).is_some());
        taken.pop();
        let again = slots.take(same).expect("a place was given back");
        drop((taken, again));
        let all: Vec<CountedPeer> = (0..40).filter_map(|_| slots.take(same)).collect();
        assert_eq!(all.len(), PER_ADDRESS_MAX, "all places were given back");
    }
}
