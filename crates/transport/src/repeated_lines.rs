//! Memory of log lines about peers: it limits their repetition.
//!
//! A port scan or an initiator that retries for ever causes the same lines again and again. Such a
//! line is logged once a minute for each peer, with the number of repetitions. The cores of a
//! protocol share the memory, because one peer may connect to several cores.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bio::sync::Mutex;

/// Time in which a line about a peer is logged once, ns.
pub(crate) const QUIET_NS: u64 = 60_000_000_000;

/// Lines that are remembered; further ones are not recognised when they are repeated.
const REMEMBERED_MAX: usize = 1024;

/// Different warnings about one peer in [`QUIET_NS`]; further ones are only counted.
const PEER_WARNINGS_MAX: usize = 16;

/// Text of those that are only counted.
const OTHERS: &str = "other warnings";

/// A line that was logged.
struct Logged {
    /// The time at which it is forgotten, ns.
    until_ns: u64,
    /// Repetitions since.
    more: u64,
    is_trouble: bool,
}

/// See the module.
#[derive(Default)]
pub struct RepeatedLines {
    /// The latest time that a core reported, ns.
    now_ns: AtomicU64,
    /// By the peer's host and the line without the peer's port.
    logged: Mutex<BTreeMap<(String, String), Logged>>,
}

impl RepeatedLines {
    /// Whether a line about a peer is to be logged; if not, it is counted. `host`: the peer without
    /// its port, which is another with each connection.
    pub fn admit(&self, host: String, text: String, is_trouble: bool) -> bool {
        let until_ns = self.now_ns.load(Ordering::Relaxed).saturating_add(QUIET_NS);
        let new = |more| Logged { until_ns, more, is_trouble };
        let mut logged = self.logged.lock();
        let warnings = if is_trouble { warnings_about(&logged, &host) } else { 0 };
        let has_space = logged.len() < REMEMBERED_MAX;
        let key = (host, text);
        if let Some(line) = logged.get_mut(&key) {
            line.more += 1;
            return false;
        }
        if warnings >= PEER_WARNINGS_MAX {
            let others = (key.0, OTHERS.to_owned());
            logged.entry(others).or_insert_with(|| new(0)).more += 1;
            return false;
        }
        if has_space {
            logged.insert(key, new(0));
        }
        true
    }

    /// Forgets lines that were not repeated for a minute. `log` receives the counts of the others,
    /// and whether they are warnings.
    pub fn expire(&self, now_ns: u64, log: impl Fn(bool, fmt::Arguments<'_>)) {
        let now_ns = self.now_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns);
        let mut repeated = Vec::new();
        self.logged.lock().retain(|(host, text), line| {
            if line.until_ns > now_ns {
                return true;
            }
            let more = std::mem::take(&mut line.more);
            if more > 0 {
                let count = format!("{host}: {more} more times in a minute: {text}");
                repeated.push((line.is_trouble, count));
            }
            // While it is repeated, this form is logged once a minute.
            line.until_ns = now_ns.saturating_add(QUIET_NS);
            more > 0
        });
        for (is_trouble, count) in repeated {
            log(is_trouble, format_args!("{count}"));
        }
    }
}

/// Number of remembered warnings about a peer.
fn warnings_about(logged: &BTreeMap<(String, String), Logged>, host: &str) -> usize {
    let of_host = logged.range((host.to_owned(), String::new())..);
    let of_host = of_host.take_while(|((of, _), _)| of.as_str() == host);
    of_host.filter(|(_, line)| line.is_trouble).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_lines_are_bounded() {
        let lines = RepeatedLines::default();
        let host = |i: usize| format!("10.0.{}.{}", i / 256, i % 256);
        for i in 0..2 * REMEMBERED_MAX {
            assert!(lines.admit(host(i), "no PDU".into(), true), "{i}");
        }
        assert_eq!(lines.logged.lock().len(), REMEMBERED_MAX);
    }

    #[test]
    fn different_warnings_about_one_peer_are_bounded() {
        let lines = RepeatedLines::default();
        let warn = |i: usize| lines.admit("10.0.0.9".into(), format!("tag {i}"), true);
        assert_eq!((0..100).filter(|i| warn(*i)).count(), PEER_WARNINGS_MAX);
        assert!(!warn(0), "repeated");
        assert!(lines.admit("10.0.0.8".into(), "tag 99".into(), true), "another peer");
        assert!(lines.admit("10.0.0.9".into(), "logged in".into(), false), "no warning");
        let said = Mutex::new(Vec::new());
        lines.expire(QUIET_NS, |is_trouble, line| said.lock().push((is_trouble, line.to_string())));
        let count = |text: &str| (true, format!("10.0.0.9: {text}"));
        let others = 100 - PEER_WARNINGS_MAX;
        assert_eq!(
            said.into_inner(),
            [
                count(&format!("{others} more times in a minute: other warnings")),
                count("1 more times in a minute: tag 0"),
            ]
        );
    }
}
