//! Hosts that work in threads of their own while a test edits the configuration under them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use testkit::until;

/// Rounds of each host that a test waits for.
const ROUNDS: u64 = 3;

/// Rounds that each host has made.
pub(crate) struct Rounds(Vec<AtomicU64>);

impl Rounds {
    /// Waits until every host has begun and ended some rounds from now on.
    pub(crate) fn wait(&self, what: &str) {
        let now = |count: &AtomicU64| count.load(Ordering::Acquire);
        let before: Vec<u64> = self.0.iter().map(now).collect();
        // One is under way.
        let is_done = |(count, was): (&AtomicU64, &u64)| now(count) > was + ROUNDS;
        until(what, || self.0.iter().zip(&before).all(is_done));
    }
}

/// Ends the work of the hosts, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Calls `edit` while every host makes its rounds. Returns the hosts.
pub(crate) fn under_load<H: Send>(
    hosts: Vec<H>,
    round: impl Fn(&mut H) + Sync,
    edit: impl FnOnce(&Rounds),
) -> Vec<H> {
    let rounds = Rounds(hosts.iter().map(|_| AtomicU64::new(0)).collect());
    let is_over = AtomicBool::new(false);
    let (is_over, round) = (&is_over, &round);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (mut host, count) in hosts.into_iter().zip(&rounds.0) {
            threads.push(scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    round(&mut host);
                    count.fetch_add(1, Ordering::Release);
                }
                host
            }));
        }
        let end = End(is_over);
        edit(&rounds);
        drop(end);
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|end| end.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
    })
}
