//! Counts of connections, over all cores of a protocol: written when a connection is accepted or
//! closed, never for a request.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::reason::{CLOSE_REASONS, CommonReason, Reason};

/// Connections of a protocol at one moment, and since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that were accepted and admitted.
    pub accepted: u64,
    /// Connections that were reset because their core (T4) or their peer (T6) had as many as it may
    /// have.
    pub refused: u64,
    /// Connections that were closed for a reason that is logged as a warning.
    pub warned: u64,
    /// Accepted connections that wait for their handshake.
    pub waiting: u64,
    closed: [u64; CLOSE_REASONS.len()],
}

impl ConnectionCounts {
    /// Closed connections of each reason (T3), in the order of [`CLOSE_REASONS`].
    pub fn closed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLOSE_REASONS.into_iter().zip(self.closed)
    }

    /// Open connections.
    pub fn open(&self) -> u64 {
        self.accepted.saturating_sub(self.closed.iter().sum())
    }
}

/// The counters of a protocol.
#[derive(Default)]
pub(crate) struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
    warned: AtomicU64,
    waiting: AtomicU64,
    closed: [AtomicU64; CLOSE_REASONS.len()],
}

impl Counters {
    /// The counts now.
    pub fn read(&self) -> ConnectionCounts {
        ConnectionCounts {
            closed: self.closed.each_ref().map(|counter| counter.load(Relaxed)),
            accepted: self.accepted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            warned: self.warned.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
        }
    }

    /// A connection was admitted.
    pub fn note_accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    /// A connection was reset.
    pub fn note_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// A connection was closed (T3).
    pub fn note_closed(&self, reason: &impl Reason) {
        let place = reason.common().map_or(CLOSE_REASONS.len() - 1, CommonReason::place);
        if let Some(counter) = self.closed.get(place) {
            counter.fetch_add(1, Relaxed);
        }
        if reason.is_warning() {
            self.warned.fetch_add(1, Relaxed);
        }
    }

    /// A connection waits until the value is dropped.
    pub fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Waiting(&self.waiting)
    }
}

/// See [`Counters::wait`].
pub(crate) struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_waits_until_its_guard_is_dropped() {
        let counters = Counters::default();
        let (a, b) = (counters.wait(), counters.wait());
        assert_eq!(counters.read().waiting, 2);
        drop((a, b));
        assert_eq!(counters.read(), ConnectionCounts::default());
    }

    #[test]
    fn every_common_reason_has_a_name_of_its_own() {
        let all = [
            CommonReason::PeerClosed,
            CommonReason::Truncated,
            CommonReason::Lost(std::io::ErrorKind::ConnectionReset),
            CommonReason::NotReading,
            CommonReason::DataOverdue,
            CommonReason::HandshakeTimeout,
            CommonReason::Tls(String::new()),
            CommonReason::NoMemory,
            CommonReason::Displaced,
        ];
        let places: Vec<usize> = all.iter().map(CommonReason::place).collect();
        assert_eq!(places, (0..CLOSE_REASONS.len() - 1).collect::<Vec<_>>());
    }
}
