//! CPU times of the threads of a process.

use std::collections::BTreeMap;
use std::fs;

use super::tasks;
use crate::error::{Error, Kind};

struct ThreadTime {
    name: String,
    ns: u64,
}

/// CPU times of the threads of a process at one moment.
///
/// A difference counts each thread by itself: a thread that ends meanwhile takes nothing away from
/// the times of the others.
pub struct ThreadTimes(BTreeMap<String, ThreadTime>);

impl ThreadTimes {
    /// Of all threads that exist now.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(pid: u32) -> Result<ThreadTimes, Error> {
        // A thread may have ended since it was listed.
        let one = |folder: String| {
            let ns = thread_ns(&folder)?;
            let name = fs::read_to_string(format!("{folder}/comm")).unwrap_or_default();
            Some((folder, ThreadTime { name: name.trim_end().to_owned(), ns }))
        };
        Ok(ThreadTimes(tasks(pid)?.into_iter().filter_map(one).collect()))
    }

    /// Time of all threads since their start, ns.
    pub fn sum(&self) -> u64 {
        self.0.values().map(|time| time.ns).sum()
    }

    /// Time of all threads since an earlier moment, ns.
    pub fn since(&self, before: &ThreadTimes) -> u64 {
        self.difference(before, |_| true)
    }

    /// Time of the threads of this name since an earlier moment, ns.
    pub fn since_of(&self, name: &str, before: &ThreadTimes) -> u64 {
        self.difference(before, |time| time.name == name)
    }

    fn difference(&self, before: &ThreadTimes, counts: impl Fn(&ThreadTime) -> bool) -> u64 {
        let counted = self.0.iter().filter(|(_, time)| counts(time));
        let own = |(folder, time): (&String, &ThreadTime)| {
            time.ns.saturating_sub(before.0.get(folder).map_or(0, |time| time.ns))
        };
        counted.map(own).sum()
    }
}

/// CPU time of a thread, from `schedstat` (exact). Where the kernel lacks it, from `stat`.
fn thread_ns(folder: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("{folder}/schedstat")).unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    first.or_else(|| ticks_ns(folder))
}

/// CPU time from `stat` of a process or thread: steps of 10 ms, proc(5) fields 14 and 15.
pub(super) fn ticks_ns(folder: &str) -> Option<u64> {
    stat_ns(folder, 14)
}

/// CPU time of the children of this process that have ended: steps of 10 ms, proc(5) fields 16 and
/// 17.
///
/// # Errors
/// `/proc` cannot be read.
pub fn ended_children_ns() -> Result<u64, Error> {
    stat_ns("/proc/self", 16).ok_or_else(|| Error::new(Kind::System, "/proc/self/stat: no times"))
}

/// Sum of two neighbouring fields of `stat`, which count from 1, in ns.
fn stat_ns(folder: &str, field: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("{folder}/stat")).ok()?;
    // The name in field 2 may hold anything: count from its last bracket.
    let (_, rest) = text.rsplit_once(')')?;
    // The first field behind it is number 3.
    let ticks: u64 =
        rest.split_whitespace().skip(field - 3).take(2).flat_map(str::parse::<u64>).sum();
    Some(ticks.saturating_mul(10_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_has_ended_takes_nothing_from_the_times_of_others() {
        let times = |all: &[(&str, &str, u64)]| {
            let one = |&(folder, name, ns): &(&str, &str, u64)| {
                (folder.to_owned(), ThreadTime { name: name.to_owned(), ns })
            };
            ThreadTimes(all.iter().map(one).collect())
        };
        let before = times(&[("1", "core", 100), ("2", "worker", 5000)]);
        let after = times(&[("1", "core", 150), ("3", "worker", 20)]);
        assert_eq!((before.sum(), after.sum()), (5100, 170));
        assert_eq!(after.since(&before), 70);
        assert_eq!((after.since_of("core", &before), after.since_of("none", &before)), (50, 0));
    }
}
