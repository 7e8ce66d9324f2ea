//! A way to a target: a local interface and an address behind it.
//!
//! ```text
//!            IDENTIFY: the same disk        K timeouts          an answer of any kind
//!   Found ------------------------> Up ----------------> Down -----------------------> Up
//!     | another disk                                      | probed repeatedly (CONFIG)    
//!     v
//!   Other: queried again now and then
//! ```

use reactor::clock::MS;
use wire::aoe::Mac;

/// Estimate of a round trip before the first measurement, ns.
const FIRST_NS: u64 = 250 * MS;
/// Never resent sooner, ns: a disk may take a while.
const RTO_MIN_NS: u64 = 20 * MS;
/// Timeouts without an answer between them that make a path down.
const TIMEOUTS_MAX: u32 = 4;
/// How often one that is down is probed, ns.
pub(super) const QUERY_NS: u64 = 1_000 * MS;
/// How much later it is probed while there is a good one and nothing to send, ns.
pub(super) const IDLE_NS: u64 = 9_000 * MS;
/// The longest time until the disk behind a path is identified again, ns.
const PAUSE_MAX_NS: u64 = 30_000 * MS;
/// Large frames, of more than two sectors, that get lost without one that does not. Then a switch
/// between may carry less than both ends believe.
const LARGE_LOST_MAX: u32 = 3;
/// How long large frames are not tried then, ns.
const SMALL_NS: u64 = 10_000 * MS;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Index of the interface.
    pub link: usize,
    /// The target's address there.
    pub mac: Mac,
    pub is_up: bool,
    /// The disk behind it is the one that was found first: two targets may have one name.
    pub is_same: bool,
    /// It led to that disk once.
    pub was_same: bool,
    /// How long until the disk is identified again, ns.
    pause_ns: u64,
    /// When it is probed next for being up again, ns.
    pub query_ns: u64,
    /// Frames that are out on it.
    pub out: u32,
    /// Smoothed round trip and its mean deviation, ns (RFC 6298 section 2); 0: none was seen.
    srtt: u64,
    rttvar: u64,
    rto: u64,
    timeouts: u32,
    /// Large frames that timed out since one was answered.
    large_lost: u32,
    /// Until then large frames are thought to get lost, ns.
    small_until: u64,
}

impl Path {
    pub(super) fn new(link: usize, mac: Mac) -> Path {
        Path {
            link,
            mac,
            is_up: true,
            is_same: false,
            was_same: false,
            pause_ns: QUERY_NS / 4,
            query_ns: 0,
            out: 0,
            srtt: 0,
            rttvar: 0,
            rto: FIRST_NS,
            timeouts: 0,
            large_lost: 0,
            small_until: 0,
        }
    }

    /// How long an answer is waited for, ns.
    pub(super) fn rto(&self) -> u64 {
        self.rto
    }

    /// A frame of so many sectors was answered after so long: each has a tag of its own, so it is
    /// known which.
    pub(super) fn answered(&mut self, sectors: u32, took: u64, life: u64) {
        (self.is_up, self.timeouts) = (true, 0);
        if sectors > 2 {
            self.large_lost = 0;
        }
        if self.srtt == 0 {
            (self.srtt, self.rttvar) = (took.max(1), took / 2);
        } else {
            self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(took)) / 4;
            self.srtt = (7 * self.srtt + took) / 8;
        }
        self.rto = (self.srtt + 4 * self.rttvar).clamp(RTO_MIN_NS, life);
    }

    /// When to identify the disk again: less and less often.
    pub(super) fn schedule_probe(&mut self, now: u64) {
        self.query_ns = now + self.pause_ns;
        self.pause_ns = (self.pause_ns * 2).min(PAUSE_MAX_NS);
    }

    /// The disk behind it is identified anew.
    pub(super) fn forget(&mut self, now: u64) {
        (self.is_same, self.was_same) = (false, false);
        (self.pause_ns, self.query_ns) = (QUERY_NS / 4, now);
    }

    /// Whether commands may use it.
    pub(super) fn is_good(&self) -> bool {
        self.is_up && self.is_same
    }

    /// A frame of the target was received on this path.
    pub(super) fn mark_up(&mut self) {
        (self.is_up, self.timeouts) = (true, 0);
    }

    /// A frame of so many sectors was not answered.
    pub(super) fn timed_out(&mut self, sectors: u32, now: u64, life: u64) {
        self.rto = (self.rto * 2).clamp(RTO_MIN_NS, life);
        self.timeouts += 1;
        self.large_lost += u32::from(sectors > 2);
        if sectors > 2 && self.large_lost >= LARGE_LOST_MAX {
            self.small_until = now + SMALL_NS;
        }
        if self.timeouts >= TIMEOUTS_MAX && self.is_up {
            (self.is_up, self.query_ns) = (false, now);
        }
    }

    /// Whether only frames that any link carries are sent.
    pub(super) fn is_small(&self, now: u64) -> bool {
        now < self.small_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retransmission_timeout_follows_measured_round_trips() {
        let mut path = Path::new(0, Mac::default());
        let life = 2_000 * MS;
        assert_eq!(path.rto(), FIRST_NS);
        for _ in 0..50 {
            path.answered(8, 40 * MS, life);
        }
        assert!((40 * MS..60 * MS).contains(&path.rto()), "{}", path.rto());
        path.timed_out(8, 0, life);
        assert!((80 * MS..120 * MS).contains(&path.rto()) && path.is_up);
        (1..TIMEOUTS_MAX).for_each(|_| path.timed_out(8, 5, life));
        assert!(!path.is_up && path.is_small(5) && path.rto() <= life);
        path.answered(8, 40 * MS, life);
        assert!(path.is_up);
    }
}
