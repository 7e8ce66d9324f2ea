//! Progress of a copy that a geom makes in the background: a rebuild or a resync.
//!
//! Invariants
//!  P1  The percentage is at most 100, and 100 only if all bytes are done.
//!  P2  A copy that is paused has no rate and no time left.

use crate::units::{short, short_seconds};

/// Bytes that were copied in a span of time of the cores' clock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CopySpan {
    /// Start of the span, ns.
    pub begin_ns: u64,
    /// End of the span, ns.
    pub end_ns: u64,
    /// Bytes that were copied in it.
    pub bytes: u64,
}

impl CopySpan {
    /// Bytes a second; `None` for an empty span.
    pub fn rate(&self) -> Option<u64> {
        let elapsed = self.end_ns.checked_sub(self.begin_ns).filter(|ns| *ns > 0)?;
        let rate = u128::from(self.bytes) * 1_000_000_000 / u128::from(elapsed);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// Rate and time left of a copy in words, each if it is known, or `paused`.
pub fn pace(is_paused: bool, rate: Option<u64>, left_seconds: Option<u64>) -> Vec<String> {
    let paused = is_paused.then(|| "paused".to_owned());
    let rate = rate.map(|rate| format!("{}/s", short(rate)));
    let left = left_seconds.map(|seconds| format!("{} left", short_seconds(seconds)));
    [paused, rate, left].into_iter().flatten().collect()
}

/// A copy that runs, or is paused.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// The member or volume that it updates.
    pub part: String,
    /// Providers that it can read.
    pub sources: Vec<String>,
    /// Bytes that are up to date.
    pub done_bytes: u64,
    /// Bytes that are up to date at its end.
    pub size_bytes: u64,
    /// It is paused.
    pub is_paused: bool,
    /// Highest rate that it may have, bytes a second; zero: no limit.
    pub limit: u64,
    /// Verb of the class that switches it by `what`, `on` or `off`; `None`: the verbs `pause` and
    /// `resume` do.
    pub switch: Option<&'static str>,
    /// The last seconds of the copy.
    pub span: CopySpan,
}

impl Progress {
    /// P1: whole percents that are done.
    pub fn percent(&self) -> u64 {
        let (done, size) = (u128::from(self.done_bytes), u128::from(self.size_bytes));
        (done.min(size) * 100).checked_div(size).unwrap_or(0) as u64
    }

    /// P2: bytes a second over the last seconds; `None` while it is not known.
    pub fn rate(&self) -> Option<u64> {
        self.span.rate().filter(|_| !self.is_paused)
    }

    /// P2: time until the end at the present rate, ns; `None` without a rate.
    pub fn left_ns(&self) -> Option<u64> {
        let rate = self.rate().filter(|rate| *rate > 0)?;
        let left = u128::from(self.size_bytes.saturating_sub(self.done_bytes));
        u64::try_from(left * 1_000_000_000 / u128::from(rate)).ok()
    }

    /// P2: the same in seconds, rounded up.
    pub fn left_seconds(&self) -> Option<u64> {
        self.left_ns().map(|ns| ns.div_ceil(1_000_000_000))
    }

    /// See [`pace`].
    pub fn pace(&self) -> Vec<String> {
        pace(self.is_paused, self.rate(), self.left_seconds())
    }

    /// The present time: the rate of a copy that does not advance decreases.
    pub(crate) fn set_time(&mut self, now_ns: u64) {
        self.span.end_ns = self.span.end_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(done_bytes: u64, size_bytes: u64) -> Progress {
        let span = CopySpan { begin_ns: 1_000_000_000, end_ns: 3_000_000_000, bytes: 20 << 20 };
        Progress { done_bytes, size_bytes, span, ..Progress::default() }
    }

    #[test]
    fn rate_and_time_left_follow_the_last_seconds() {
        let mut half = copy(50 << 20, 100 << 20);
        assert_eq!((half.percent(), half.rate()), (50, Some(10 << 20)));
        assert_eq!(half.left_ns(), Some(5_000_000_000));
        assert_eq!(half.pace(), ["10M/s", "5.0s left"]);
        half.set_time(5_000_000_000);
        assert_eq!(half.rate(), Some(5 << 20), "it has not advanced since");
        half.set_time(0);
        assert_eq!(half.rate(), Some(5 << 20), "a time that is not known changes nothing");
    }

    /// P1.
    #[test]
    fn percentage_is_100_only_at_the_end() {
        assert_eq!(copy((100 << 20) - 1, 100 << 20).percent(), 99);
        assert_eq!(copy(100 << 20, 100 << 20).percent(), 100);
        assert_eq!(copy(200 << 20, 100 << 20).percent(), 100);
        assert_eq!(copy(0, 0).percent(), 0);
        assert_eq!(copy(u64::MAX, u64::MAX).percent(), 100);
    }

    /// P2.
    #[test]
    fn paused_copy_has_no_rate() {
        let paused = Progress { is_paused: true, ..copy(1, 2) };
        assert_eq!((paused.rate(), paused.left_ns()), (None, None));
        assert_eq!(paused.pace(), ["paused"]);
    }
}
