//! Logins that the audit log has had lately: a caller that connects often does not displace the
//! entries of others.
//!
//! Invariants
//!  N10  Of one caller at one address, the audit log has one login in [`INTERVAL`], unless
//!       [`LOGINS_MAX`] others are remembered.

use super::peer_rates::counted;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time in which further logins of the same caller are not recorded (N10).
const INTERVAL: Duration = Duration::from_secs(60);

/// Most logins that are remembered. Beyond it, each further login is recorded (N10).
const LOGINS_MAX: usize = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct RecentLogins(Mutex<HashMap<(IpAddr, String), Instant>>);

impl RecentLogins {
    /// Whether a login of that caller is to be recorded; it then is remembered.
    pub(super) fn is_new(&self, ip: IpAddr, caller: &str, now: Instant) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < INTERVAL;
        let key = (counted(ip), caller.to_owned());
        if all.get(&key).is_some_and(is_recent) {
            return false;
        }
        if all.len() >= LOGINS_MAX {
            all.retain(|_, at| is_recent(at));
        }
        if all.len() < LOGINS_MAX {
            all.insert(key, now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n10_caller_that_connects_often_is_recorded_once_a_minute() {
        let (logins, start) = (RecentLogins::default(), Instant::now());
        let [one, other] = [1_u32, 2].map(|n| IpAddr::from(n.to_be_bytes()));
        let recorded = |ip: IpAddr, caller: &str, second: u64| {
            logins.is_new(ip, caller, start + Duration::from_secs(second))
        };
        let often = (0..120).filter(|second| recorded(one, "token ci", *second)).count();
        assert_eq!(often, 2);
        assert!(recorded(one, "token other", 1) && recorded(other, "token ci", 1));
    }

    #[test]
    fn n10_remembered_logins_are_bounded() {
        let (logins, now) = (RecentLogins::default(), Instant::now());
        let ip = IpAddr::from([192, 0, 2, 1]);
        for number in 0..LOGINS_MAX + 8 {
            assert!(logins.is_new(ip, &number.to_string(), now), "{number}");
        }
        assert_eq!(logins.0.lock().expect("unlocked").len(), LOGINS_MAX);
        assert!(logins.is_new(ip, "later", now + INTERVAL));
        assert_eq!(logins.0.lock().expect("unlocked").len(), 1, "old ones are forgotten");
    }
}
