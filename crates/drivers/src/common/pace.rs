//! The deadline for data that has begun to come.

use std::cell::Cell;
use std::future::Future;

use geom::Core;

/// Bytes a second at least, and seconds more, until a peer that owes data is dropped.
const DATA_RATE: (usize, u64) = (256 << 10, 20);

/// The same while commands of others wait for memory.
const DATA_RATE_SCARCE: (usize, u64) = (4 << 20, 4);

const SECOND_NS: u64 = 1_000_000_000;

/// True when `bytes` that were allowed to come at `since` should be here by now. A line may be as
/// slow as [`DATA_RATE`]; when others wait for memory (`scarce`) it must be faster.
pub(crate) fn is_late(now: u64, since: u64, bytes: usize, scarce: bool) -> bool {
    let (rate, patience_s) = if scarce { DATA_RATE_SCARCE } else { DATA_RATE };
    let limit_s = u64::try_from(bytes / rate).unwrap_or(u64::MAX).saturating_add(patience_s);
    now.saturating_sub(since) > limit_s.saturating_mul(SECOND_NS)
}

/// What is being read of a request that has begun: since when, ns, and its bytes.
#[derive(Default)]
pub(crate) struct Pace(Cell<Option<(u64, usize)>>);

impl Pace {
    /// Reads `bytes` of a request, on which there is a deadline.
    pub async fn awaited<T>(&self, core: &Core, bytes: usize, reads: impl Future<Output = T>) -> T {
        self.0.set(Some((core.now(), bytes)));
        let read = reads.await;
        self.0.set(None);
        read
    }

    /// What has begun to come does not come in time.
    pub fn is_overdue(&self, now: u64, scarce: bool) -> bool {
        self.0.get().is_some_and(|(since, bytes)| is_late(now, since, bytes, scarce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_lines_are_borne_and_silence_is_not() {
        let s = |s: u64| s * SECOND_NS;
        // 1 MiB: four seconds at the slowest rate that is borne, and twenty more.
        assert!(!is_late(s(24), 0, 1 << 20, false));
        assert!(is_late(s(24) + 1, 0, 1 << 20, false));
        assert!(is_late(s(5), 0, 1 << 20, true), "others wait for memory");
        assert!(!is_late(0, s(9), 1, true), "a clock that was read before");
    }
}
