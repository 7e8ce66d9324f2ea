//! Waits that the disks of a start share, so that many that do not answer delay it as one does.
//!
//! ```text
//!   later step --an earlier disk is slow--> begun ahead --its step--> waits for what is left
//! ```
//!
//! Invariants
//!  S1  While every disk opens in time, disks are opened one by one in the order of their steps.
//!  S2  Once one is slow, those of later steps are opened beside it, at most [`AHEAD_MAX`] at a
//!      time. Each is still added to the graph by its own step.
//!  S3  A start waits for all servers together as long as for one, because it has asked all of them
//!      before.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bio::sync::Mutex;
use mgmt::config::DiskConfig;

/// Openings ahead of their steps at a time: half of those that a file system may have.
const AHEAD_MAX: usize = 32;

#[derive(Default)]
struct Waits {
    /// Disks with a path that later steps open, in the order of the steps.
    later: VecDeque<DiskConfig>,
    /// When the openings of some of them began.
    begun: BTreeMap<String, Instant>,
    /// Time spent waiting for servers.
    servers: Duration,
}

/// See the module. Empty unless a start is under way.
#[derive(Default)]
pub(super) struct StartWaits(Mutex<Waits>);

impl StartWaits {
    /// The disks with a path that the steps of a start open, in their order.
    pub(super) fn expect(&self, disks: VecDeque<DiskConfig>) {
        *self.0.lock() = Waits { later: disks, ..Waits::default() };
    }

    /// The step of a disk begins. Answers for how long its opening is under way, if it began ahead.
    pub(super) fn begin_step(&self, disk: &DiskConfig) -> Option<Duration> {
        let mut waits = self.0.lock();
        if waits.later.front().is_some_and(|next| next == disk) {
            waits.later.pop_front();
        }
        waits.begun.remove(&disk.name).map(|began| began.elapsed())
    }

    /// The disks to be opened now because an earlier one is slow (S2).
    pub(super) fn next_ahead(&self) -> Vec<DiskConfig> {
        let waits = self.0.lock();
        let rest = AHEAD_MAX.saturating_sub(waits.begun.len());
        let next = waits.later.iter().filter(|disk| !waits.begun.contains_key(&disk.name));
        next.take(rest).cloned().collect()
    }

    /// The opening of a disk has begun ahead of its step.
    pub(super) fn record_begun(&self, disk: DiskConfig) {
        self.0.lock().begun.insert(disk.name, Instant::now());
    }

    /// The rest of `limit`, the time of a start for all servers (S3).
    pub(super) fn left_for_servers(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.0.lock().servers)
    }

    /// The start has waited for a server.
    pub(super) fn record_server_wait(&self, waited: Duration) {
        let mut waits = self.0.lock();
        waits.servers = waits.servers.saturating_add(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: usize) -> DiskConfig {
        let section = serde_json::json!({ "name": format!("d{name}"), "kind": "file" });
        serde_json::from_value(section).expect("a disk")
    }

    #[test]
    fn s2_later_disks_are_opened_ahead_in_order_and_each_once() {
        let waits = StartWaits::default();
        assert!(waits.next_ahead().is_empty(), "no start is under way");
        waits.expect((0..2 * AHEAD_MAX).map(disk).collect());
        assert_eq!(waits.begin_step(&disk(0)), None, "the first disk waits for no other");
        let ahead = waits.next_ahead();
        assert_eq!(ahead, (1..=AHEAD_MAX).map(disk).collect::<Vec<_>>());
        ahead.into_iter().for_each(|disk| waits.record_begun(disk));
        assert!(waits.next_ahead().is_empty(), "enough are under way");
        assert!(waits.begin_step(&disk(1)).is_some());
        assert_eq!(waits.begin_step(&disk(1)), None, "a step begins once");
        assert_eq!(waits.next_ahead(), [disk(AHEAD_MAX + 1)]);
    }

    #[test]
    fn s3_servers_share_one_limit_until_the_next_start() {
        let (waits, limit) = (StartWaits::default(), Duration::from_secs(2));
        waits.record_server_wait(Duration::from_millis(1500));
        assert_eq!(waits.left_for_servers(limit), Duration::from_millis(500));
        waits.record_server_wait(Duration::from_millis(700));
        assert_eq!(waits.left_for_servers(limit), Duration::ZERO);
        waits.expect(VecDeque::new());
        assert_eq!(waits.left_for_servers(limit), limit);
    }
}
