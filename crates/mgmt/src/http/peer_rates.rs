//! Limits of the connections, requests and failed logins of each address of the network.
//!
//! Invariants
//!  N7  Requests of other addresses do not reset the count of an address that has used most of its
//!      limits: a full table forgets those that have used least.
//!  N11  An address begins a limited number of connections in a time, because the thread that
//!       serves all of them carries out their TLS handshakes.

use crate::api::{Error, Kind, Result};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Requests of one address that are admitted at once, and each second after that.
const REQUESTS: Limit = Limit { burst: 400.0, per_second: 100.0 };

/// Failed logins and refused calls of one address that are answered at once, and each second after
/// that.
const FAILURES: Limit = Limit { burst: 10.0, per_second: 1.0 / 6.0 };

/// Connections of one address that are begun at once, and each second after that (N11).
const CONNECTIONS: Limit = Limit { burst: 200.0, per_second: 20.0 };

/// Most addresses that are remembered. Beyond it, those without recent requests are dropped.
const ADDRESSES_MAX: usize = 4096;

/// Addresses that a full table forgets at once, so that it is seldom searched.
const FORGOTTEN_AT_ONCE: usize = ADDRESSES_MAX / 4;

/// A token bucket's size and rate.
#[derive(Clone, Copy)]
struct Limit {
    burst: f64,
    per_second: f64,
}

/// What one address has left.
#[derive(Clone, Copy)]
struct Left {
    requests: f64,
    failures: f64,
    connections: f64,
    at: Instant,
}

impl Left {
    fn full(at: Instant) -> Left {
        let (requests, failures) = (REQUESTS.burst, FAILURES.burst);
        Left { requests, failures, connections: CONNECTIONS.burst, at }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let refilled = |left: f64, of: Limit| (left + passed * of.per_second).min(of.burst);
        self.requests = refilled(self.requests, REQUESTS);
        self.failures = refilled(self.failures, FAILURES);
        self.connections = refilled(self.connections, CONNECTIONS);
        self.at = now;
    }

    fn is_full(&self) -> bool {
        self.share() >= 1.0
    }

    /// Unused share of the limit of which the address has used most: 0 to 1.
    fn share(&self) -> f64 {
        let connections = self.connections / CONNECTIONS.burst;
        (self.requests / REQUESTS.burst).min(self.failures / FAILURES.burst).min(connections)
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct PeerRates(Mutex<HashMap<IpAddr, Left>>);

/// The address under which requests are counted: one host may use all addresses of an IPv6 /64.
pub(super) fn counted(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

/// Forgets addresses without recent requests, and if there are too few of them, those that have
/// used least of their limits (N7).
fn make_room(all: &mut HashMap<IpAddr, Left>, now: Instant) {
    all.values_mut().for_each(|left| left.refill(now));
    all.retain(|_, left| !left.is_full());
    if all.len() < ADDRESSES_MAX {
        return;
    }
    let mut by_share: Vec<(f64, IpAddr)> = all.iter().map(|(ip, of)| (of.share(), *ip)).collect();
    by_share.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
    for (_, ip) in by_share.iter().take(FORGOTTEN_AT_ONCE) {
        all.remove(ip);
    }
}

impl PeerRates {
    fn with<T>(&self, ip: IpAddr, now: Instant, f: impl FnOnce(&mut Left) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ip = counted(ip);
        if all.len() >= ADDRESSES_MAX && !all.contains_key(&ip) {
            make_room(&mut all, now);
        }
        let left = all.entry(ip).or_insert_with(|| Left::full(now));
        left.refill(now);
        f(left)
    }

    /// Admits a request.
    ///
    /// # Errors
    /// [`Kind::Limit`].
    pub(super) fn admit(&self, ip: IpAddr, now: Instant) -> Result<()> {
        self.with(ip, now, |left| {
            if left.failures < 1.0 {
                let what = "failed logins and refused calls";
                return Err(refused(ip, what, "10 at once and 10 a minute"));
            }
            if left.requests < 1.0 {
                return Err(refused(ip, "requests", "400 at once and 100 a second"));
            }
            left.requests -= 1.0;
            Ok(())
        })
    }

    /// Whether a connection may begin (N11).
    pub(super) fn admit_connection(&self, ip: IpAddr, now: Instant) -> bool {
        self.with(ip, now, |left| {
            let is_admitted = left.connections >= 1.0;
            left.connections -= if is_admitted { 1.0 } else { 0.0 };
            is_admitted
        })
    }

    /// Counts a failed login or a refused call.
    pub(super) fn count_failure(&self, ip: IpAddr, now: Instant) {
        self.with(ip, now, |left| left.failures = (left.failures - 1.0).max(0.0));
    }
}

fn refused(ip: IpAddr, what: &str, limit: &str) -> Error {
    let why = format!("too many {what} of this address (limit: {limit})");
    let error = Error::new(Kind::Limit, "admit request", why).at(ip.to_string());
    error.next("Wait a minute, then repeat the request.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn requests_beyond_the_rate_are_refused_until_time_passes() {
        let (rates, start) = (PeerRates::default(), Instant::now());
        let admitted = (0..1000).filter(|_| rates.admit(address(1), start).is_ok()).count();
        assert_eq!(admitted, 400);
        assert!(rates.admit(address(2), start).is_ok(), "another address has its own limit");
        let later = start + Duration::from_secs(1);
        let admitted = (0..1000).filter(|_| rates.admit(address(1), later).is_ok()).count();
        assert_eq!(admitted, 100);
    }

    #[test]
    fn n11_connections_of_an_address_are_begun_at_a_limited_rate() {
        let (rates, start) = (PeerRates::default(), Instant::now());
        let begun =
            |ip: IpAddr, at: Instant| (0..1000).filter(|_| rates.admit_connection(ip, at)).count();
        assert_eq!(begun(address(1), start), 200);
        assert!(rates.admit_connection(address(2), start), "another address has its own limit");
        assert!(rates.admit(address(1), start).is_ok(), "open connections stay usable");
        assert_eq!(begun(address(1), start + Duration::from_secs(1)), 20);
    }

    #[test]
    fn failed_logins_block_an_address_for_a_while() {
        let (rates, start) = (PeerRates::default(), Instant::now());
        for _ in 0..10 {
            assert!(rates.admit(address(1), start).is_ok());
            rates.count_failure(address(1), start);
        }
        let refused = rates.admit(address(1), start).expect_err("too many");
        assert!(refused.kind == Kind::Limit && refused.source.contains("failed logins"));
        assert!(rates.admit(address(1), start + Duration::from_secs(7)).is_ok());
        let [one, two] = ["2001:db8::1", "2001:db8::2"].map(|ip| counted(ip.parse().expect("ip")));
        assert_eq!(one, two);
    }

    #[test]
    fn n7_flood_of_other_addresses_does_not_reset_a_blocked_one() {
        let (rates, start) = (PeerRates::default(), Instant::now());
        (0..10).for_each(|_| rates.count_failure(address(1), start));
        for n in 2..20_000 {
            assert!(rates.admit(address(n), start).is_ok());
            rates.count_failure(address(n), start);
        }
        assert!(rates.0.lock().expect("unlocked").len() <= ADDRESSES_MAX);
        assert!(rates.admit(address(1), start).is_err(), "it stays blocked");
    }

    #[test]
    fn remembered_addresses_are_bounded() {
        let (rates, start) = (PeerRates::default(), Instant::now());
        for n in 0..20_000 {
            assert!(rates.admit(address(n), start).is_ok());
        }
        assert!(rates.0.lock().expect("unlocked").len() <= ADDRESSES_MAX);
    }
}
