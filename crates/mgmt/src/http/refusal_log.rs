//! Log lines of a listener about connections that it refuses, and about errors of `accept`. They
//! are limited as those of targets: one line a minute for each peer, with a count.

use bio::sync::Mutex;
use reactor::Address;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use transport::{AcceptState, LogFn, LogSubject, PeerLog};

/// Interval at which [`RefusalLog::end_period`] is called.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

const WARN: LogFn = |of, what| {
    tracing::warn!(kind = of.kind, peer = of.peer, initiator = of.initiator, "{what}");
};

/// See the module.
pub(super) struct RefusalLog {
    /// Name of the listener.
    listener: &'static str,
    log: Mutex<PeerLog>,
    accepts: AcceptState,
    began: Instant,
}

impl RefusalLog {
    pub(super) fn new(listener: &'static str) -> RefusalLog {
        RefusalLog::with(listener, WARN)
    }

    fn with(listener: &'static str, warn: LogFn) -> RefusalLog {
        let log = Mutex::new(PeerLog::new(warn, warn, &Default::default()));
        RefusalLog { listener, log, accepts: AcceptState::default(), began: Instant::now() }
    }

    /// A connection of this peer was refused.
    pub(super) fn refused(&self, peer: &Address, why: fmt::Arguments<'_>) {
        let about = LogSubject { peer, name: "" };
        let listener = self.listener;
        self.log.lock().warn_about(about, format_args!("{listener} connection refused: {why}"));
    }

    pub(super) fn accept_failed(&self, e: &io::Error) {
        let log = |what: fmt::Arguments<'_>| self.log.lock().warn_once(what);
        self.accepts.failed(format_args!("{} listener", self.listener), e, log);
    }

    /// A connection was accepted.
    pub(super) fn accepted(&self) {
        let log = |what: fmt::Arguments<'_>| {
            self.log.lock().warn_once(format_args!("{} listener: {what}", self.listener));
        };
        self.accepts.succeeded(log);
    }

    /// Further lines may be logged, and collected ones whose minute is over are.
    pub(super) fn end_period(&self) {
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.log.lock().end_period(now_ns);
    }
}

/// A stop loses no collected lines.
impl Drop for RefusalLog {
    fn drop(&mut self) {
        self.log.lock().flush();
    }
}

/// The peer of a TCP connection. One of a socket for both families has its IPv4 address.
pub(super) fn tcp_peer(address: SocketAddr) -> Address {
    Address::Inet(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn log() -> RefusalLog {
        RefusalLog::with("API", |_, what| LINES.with_borrow_mut(|all| all.push(what.to_string())))
    }

    fn lines() -> Vec<String> {
        LINES.take()
    }

    #[test]
    fn flood_of_refused_connections_is_one_line_for_each_peer_and_a_count() {
        let log = log();
        let peer = |ip: &str, port: u16| tcp_peer(SocketAddr::new(ip.parse().unwrap(), port));
        for port in 1..=300 {
            log.refused(&peer("::ffff:10.0.0.1", port), format_args!("128 are open"));
        }
        log.refused(&peer("10.0.0.2", 7), format_args!("128 are open"));
        log.refused(&Address::Unix("uid=1000".into()), format_args!("128 are open"));
        let refused = |peer: &str| format!("{peer}: API connection refused: 128 are open");
        let wanted = ["10.0.0.1:1", "10.0.0.2:7", "unix:uid=1000"].map(refused);
        assert_eq!(lines(), wanted);
        drop(log);
        let more = "10.0.0.1: 299 more in the last minute: API connection refused: 128 are open";
        assert_eq!(lines(), [format!("{more} (299)")]);
    }

    #[test]
    fn errors_of_accept_are_one_line_until_a_connection_is_accepted() {
        let log = log();
        let error = io::Error::other("no descriptors");
        (0..300).for_each(|_| log.accept_failed(&error));
        let [line]: [String; 1] = lines().try_into().expect("one line");
        assert!(line.starts_with("API listener: cannot accept connections: no descriptors"));
        log.accepted();
        log.accepted();
        assert_eq!(lines(), ["API listener: connections are accepted again"]);
    }
}
