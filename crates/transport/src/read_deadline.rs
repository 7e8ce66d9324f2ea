//! Deadline for data that a peer has begun to send, or owes.

use std::cell::Cell;
use std::future::Future;

use reactor::Reactor;
use reactor::clock::S;

/// Lowest rate, bytes a second, and seconds beyond it, until a peer that owes data is dropped.
const DATA_RATE: (usize, u64) = (256 << 10, 20);

/// The same while requests of other peers wait for memory.
const DATA_RATE_MEMORY_SHORT: (usize, u64) = (4 << 20, 4);

/// True when `bytes` that were expected since `since` are overdue. A network may be as slow as
/// `DATA_RATE`; while other requests wait for memory (`scarce`) it must be faster.
pub fn is_late(now: u64, since: u64, bytes: usize, scarce: bool) -> bool {
    let (rate, patience_s) = if scarce { DATA_RATE_MEMORY_SHORT } else { DATA_RATE };
    let limit_s = u64::try_from(bytes / rate).unwrap_or(u64::MAX).saturating_add(patience_s);
    now.saturating_sub(since) > limit_s.saturating_mul(S)
}

/// The part of a request that is being read: since when, ns, and its bytes.
#[derive(Default)]
pub struct ReadDeadline(Cell<Option<(u64, usize)>>);

impl ReadDeadline {
    /// Reads `bytes` of a request under the deadline.
    pub async fn within<T>(
        &self,
        reactor: &Reactor,
        bytes: usize,
        reads: impl Future<Output = T>,
    ) -> T {
        self.0.set(Some((reactor.now(), bytes)));
        let read = reads.await;
        self.0.set(None);
        read
    }

    /// True when the part that is being read is overdue.
    pub fn is_overdue(&self, now: u64, scarce: bool) -> bool {
        self.0.get().is_some_and(|(since, bytes)| is_late(now, since, bytes, scarce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_networks_are_tolerated_and_silence_is_not() {
        let s = |s: u64| s * S;
        // 1 MiB: four seconds at the lowest rate, and twenty more.
        assert!(!is_late(s(24), 0, 1 << 20, false));
        assert!(is_late(s(24) + 1, 0, 1 << 20, false));
        assert!(is_late(s(5), 0, 1 << 20, true), "other requests wait for memory");
        assert!(!is_late(0, s(9), 1, true), "a clock that was read before");
    }
}
