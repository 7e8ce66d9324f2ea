//! Copies of dumps to the devices of a WORM: progress and rate of each, for monitors.
//!
//! Invariants
//!  Y1  The copy of a device begins when the device lacks blocks, and ends when it lacks none. A
//!      new dump makes the copy longer; the copied bytes never decrease.
//!  Y2  A device with other contents has no copy. The copy of a device with another fault is kept,
//!      but not reported until the device answers.

use std::collections::BTreeMap;

use geom::{CopyMeter, Measure, Progress};

use crate::console::COPYING;
use crate::volume::Report;

#[derive(Clone, Debug, Default)]
struct DeviceCopy {
    meter: CopyMeter,
    is_running: bool,
}

impl DeviceCopy {
    fn update(&mut self, now_ns: u64, lacking_bytes: u64, is_running: bool) {
        self.meter.extend(self.meter.done().saturating_add(lacking_bytes));
        let done = self.meter.size().saturating_sub(lacking_bytes);
        self.meter.advance(now_ns, done);
        if is_running && !self.is_running {
            self.meter.start(now_ns);
        }
        self.is_running = is_running;
    }
}

/// The copies, by the names of their devices.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    by_device: BTreeMap<String, DeviceCopy>,
    /// The cache device.
    cache: String,
    is_on: bool,
}

impl Copies {
    /// Copies from the cache device of that name.
    pub fn new(cache: &str) -> Copies {
        Copies { cache: cache.to_owned(), ..Copies::default() }
    }

    /// Updates the copies from reports of the devices, at a time of the core's clock. Blocks have
    /// `block` bytes; `is_on`: dumps are copied.
    pub fn update(&mut self, now_ns: u64, block: u64, is_on: bool, members: &[Report]) {
        self.is_on = is_on;
        // Y1, Y2
        let lacks = |m: &&Report| m.behind > 0 && !m.is_of_other_contents();
        self.by_device.retain(|name, _| members.iter().filter(lacks).any(|m| m.name == *name));
        for member in members.iter().filter(lacks) {
            let copy = self.by_device.entry(member.name.clone()).or_default();
            let lacking_bytes = member.behind.saturating_mul(block);
            copy.update(now_ns, lacking_bytes, is_on && member.fault.is_none());
        }
    }

    /// The copies that run or are paused. A block that the cache device no longer has is read from
    /// a device that has more dumps.
    pub fn measures(&self, members: &[Report]) -> Vec<Measure> {
        let sound = || members.iter().filter(|m| m.fault.is_none());
        let progress = |member: &Report| {
            let meter = &self.by_device.get(&member.name)?.meter;
            let others = sound().filter(|m| m.done > member.done).map(|m| m.name.clone());
            Some(Measure::Rebuild(Progress {
                part: member.name.clone(),
                sources: [self.cache.clone()].into_iter().chain(others).collect(),
                done_bytes: meter.done(),
                size_bytes: meter.size(),
                is_paused: !self.is_on,
                switch: Some(COPYING),
                span: meter.span(),
                ..Progress::default()
            }))
        };
        sound().filter_map(progress).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Remedy;
    use testkit::clock::S;

    fn member(name: &str, done: u64, behind: u64) -> Report {
        Report { name: name.to_owned(), done, behind, ..Report::default() }
    }

    /// The only copy after an update: done, size and rate.
    fn after(copies: &mut Copies, at: u64, members: &[Report]) -> (u64, u64, Option<u64>) {
        copies.update(at * S, 10, true, members);
        let measures = copies.measures(members);
        let [Measure::Rebuild(copy)] = measures.as_slice() else { panic!("{measures:?}") };
        (copy.done_bytes, copy.size_bytes, copy.rate())
    }

    /// Y1.
    #[test]
    fn copy_to_a_device_has_progress_and_rate_until_nothing_is_lacking() {
        let mut copies = Copies::new("cache");
        let near = member("near", 110, 0);
        let far = |behind: u64| [near.clone(), member("far", 10, behind)];
        assert_eq!(after(&mut copies, 1, &far(100)), (0, 1000, None));
        assert_eq!(after(&mut copies, 3, &far(60)), (400, 1000, Some(200)));
        // A new dump of 50 blocks, of which none is copied yet.
        assert_eq!(after(&mut copies, 5, &far(110)), (400, 1500, Some(100)));
        copies.update(7 * S, 10, false, &far(90));
        let measures = copies.measures(&far(90));
        let [Measure::Rebuild(paused)] = measures.as_slice() else { panic!("{measures:?}") };
        assert_eq!((paused.is_paused, paused.rate(), paused.switch), (true, None, Some(COPYING)));
        assert_eq!(paused.sources, ["cache", "near"]);
        assert_eq!(after(&mut copies, 100, &far(90)), (600, 1500, None), "a pause is not counted");
        assert_eq!(after(&mut copies, 102, &far(70)), (800, 1500, Some(100)));
        copies.update(103 * S, 10, true, &far(0));
        assert_eq!(copies.measures(&far(0)), []);
        assert_eq!(after(&mut copies, 104, &far(5)), (0, 50, None), "the next dump is a new copy");
    }

    /// Y2.
    #[test]
    fn faulty_device_has_no_running_copy() {
        let mut copies = Copies::new("cache");
        let faulty = |remedy: Remedy| Report {
            fault: Some("far: input/output error".to_owned()),
            remedy,
            ..member("far", 10, 60)
        };
        after(&mut copies, 1, &[member("far", 10, 100)]);
        after(&mut copies, 2, &[member("far", 10, 60)]);
        let silent = [faulty(Remedy::Repair)];
        copies.update(3 * S, 10, true, &silent);
        assert_eq!(copies.measures(&silent), []);
        assert_eq!(after(&mut copies, 9, &[member("far", 10, 60)]), (400, 1000, None));
        copies.update(10 * S, 10, true, &[faulty(Remedy::Replace)]);
        assert_eq!(after(&mut copies, 11, &[member("far", 2, 110)]), (0, 1100, None));
    }
}
