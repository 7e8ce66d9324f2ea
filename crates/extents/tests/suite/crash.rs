//! The rules T1 to T6 of trims and crashes, one test each, and a small file system that crashes at
//! every step: durable data is never trimmed.

// Commands are made of lists of one range.
#![allow(clippy::single_range_in_vec_init)]

use std::collections::BTreeMap;
use std::ops::Range;

use extents::alloc::{Allocator, NotInUse, Refused};
use extents::trim::{Limits, Outcome, WriteCheck};
use testkit::Seeds;

use crate::stage::{Chance, EAGER};

const ONE: Limits = Limits { granule: 1, offset: 0, ranges: 8, range_max: 16, command_max: 32 };

fn all_used(blocks: u64) -> Allocator {
    Allocator::new(blocks, ONE, EAGER)
}

/// A2.
#[test]
fn exposing_19_t1_freed_blocks_are_unavailable_until_metadata_is_durable() {
    let mut a = all_used(8);
    a.free(0..4, 7).unwrap();
    assert_eq!(a.take(1), None);
    assert_eq!(a.allocate(1, 1, None), Err(Refused::Pending));
    a.commit(6, 2);
    assert_eq!(a.take(3), None, "an older epoch");
    a.commit(7, 4);
    assert_eq!(a.take(5).map(|c| c.ranges), Some(vec![0..4]));
}

#[test]
fn t2_bitmap_on_disk_shows_blocks_in_flight_as_free() {
    let mut a = all_used(8);
    a.free(0..4, 1).unwrap();
    assert_eq!(a.on_disk().total(), 4, "free in the copy that is not written yet");
    a.commit(1, 0);
    let before: Vec<_> = a.on_disk().iter().collect();
    let command = a.take(0).unwrap();
    assert!(a.on_disk().iter().eq(before.iter().cloned()), "a trim changes no bitmap");
    a.ended(command.number, Outcome::Done, 1);
    assert!(a.on_disk().iter().eq(before));
}

#[test]
fn t3_blocks_are_allocated_again_only_after_the_trim_ends() {
    let mut a = all_used(4);
    a.free(0..4, 1).unwrap();
    a.commit(1, 0);
    let command = a.take(0).unwrap();
    assert_eq!(a.allocate(4, 1, None), Err(Refused::Held));
    a.ended(command.number, Outcome::Done, 1);
    let got = a.allocate(4, 1, None).unwrap();
    assert_eq!((got, a.take(2)), (0..4, None));
}

#[test]
fn t4_a_commit_sends_nothing_and_waits_for_nothing() {
    let mut a = all_used(64);
    a.free(0..8, 1).unwrap();
    a.commit(1, 0);
    let command = a.take(0).unwrap();
    a.free(16..24, 2).unwrap();
    a.commit(2, 0);
    assert_eq!(a.available(), 8, "while a trim is in flight");
    assert_eq!(a.in_flight(), Some(command.number));
    assert_eq!(a.queue().totals().commands, 1);
}

/// Q7.
#[test]
fn t5_after_a_crash_the_queue_is_empty_and_free_space_is_stale() {
    let mut a = all_used(16);
    a.free(0..8, 1).unwrap();
    a.commit(1, 0);
    a.take(0).unwrap();
    let found = a.on_disk();
    let mut again = all_used(16);
    found.iter().for_each(|(r, ())| again.found_free(r));
    assert_eq!((again.available(), again.queue().stale()), (8, (1, 8)));
    assert_eq!(again.take(100_000_000_000), None, "nobody trims them unasked");
    again.trim_all(0);
    assert_eq!(again.take(0).map(|c| c.ranges), Some(vec![0..8]));
    again.check().unwrap();
}

#[test]
fn t6_free_is_trimmed_after_the_commit_that_contains_it() {
    let mut a = all_used(32);
    a.free(0..4, 1).unwrap();
    a.free(4..8, 2).unwrap();
    a.free(8..12, 3).unwrap();
    a.commit(2, 0);
    assert_eq!((a.pending(), a.available()), (4, 8));
    assert_eq!(a.take(0).map(|c| c.ranges), Some(vec![0..8]), "merged over epochs");
    assert_eq!(a.free(0..1, 4), Err(NotInUse), "in flight");
    assert_eq!(a.free(8..9, 4), Err(NotInUse), "freed twice");
    a.check().unwrap();
}

/// Files of one range each, as the durable metadata has them, and a device.
struct Toy {
    alloc: Allocator,
    /// By name: the blocks of a file, and its content.
    files: BTreeMap<u64, (Range<u64>, u64)>,
    durable: BTreeMap<u64, (Range<u64>, u64)>,
    media: Vec<Option<u64>>,
    epoch: u64,
    now: u64,
    next: u64,
    /// Sent, not ended, and when the device carries it out.
    flying: Option<(u64, Vec<Range<u64>>, bool)>,
}

const BLOCKS: u64 = 48;

impl Toy {
    fn mount(media: Vec<Option<u64>>, durable: BTreeMap<u64, (Range<u64>, u64)>, next: u64) -> Toy {
        let mut alloc = all_used(BLOCKS);
        let mut at = 0;
        let mut used: Vec<_> = durable.values().map(|(r, _)| r.clone()).collect();
        used.sort_by_key(|r| r.start);
        for r in used.iter().chain([&(BLOCKS..BLOCKS)]) {
            alloc.found_free(at..r.start);
            at = r.end;
        }
        let files = durable.clone();
        Toy { alloc, files, durable, media, epoch: 1, now: 0, next, flying: None }
    }

    fn create(&mut self, chance: &mut Chance) {
        let want = 1 + chance.below(9);
        let near = (chance.below(2) == 0).then(|| chance.below(BLOCKS));
        let Ok(range) = self.alloc.allocate(want, 1, near) else { return };
        let value = self.next;
        self.next += 1;
        for b in range.clone() {
            self.media[b as usize] = Some(value);
        }
        self.files.insert(value, (range, value));
    }

    fn delete(&mut self, chance: &mut Chance) {
        let at = chance.below(self.files.len().max(1) as u64) as usize;
        let Some(name) = self.files.keys().nth(at).copied() else { return };
        let (range, _) = self.files.remove(&name).unwrap();
        self.alloc.free(range, self.epoch).unwrap();
    }

    fn commit(&mut self) {
        self.durable = self.files.clone();
        self.alloc.commit(self.epoch, self.now);
        self.epoch += 1;
    }

    fn trim(&mut self) {
        if let Some(c) = self.alloc.take(self.now) {
            self.flying = Some((c.number, c.ranges, false));
        }
    }

    /// The device carries a command out, before it answers or long after it gave none.
    fn carry_out(&mut self) {
        if let Some((_, ranges, done)) = &mut self.flying {
            for b in ranges.iter().flat_map(Clone::clone) {
                if !*done {
                    self.media[b as usize] = None;
                }
            }
            *done = true;
        }
    }

    fn answer(&mut self, chance: &mut Chance) {
        let Some((number, _, done)) = &self.flying else { return };
        if self.alloc.queue().in_doubt() {
            self.carry_out();
            self.now += 60_000_000_000;
            self.alloc.expire(self.now);
            self.flying = None;
            return;
        }
        let outcome = match chance.below(4) {
            0 if !*done => Outcome::Failed,
            1 => Outcome::Unknown,
            _ => {
                let number = *number;
                self.carry_out();
                self.alloc.ended(number, Outcome::Done, self.now);
                self.flying = None;
                return;
            }
        };
        self.alloc.ended(*number, outcome, self.now);
        if outcome == Outcome::Failed {
            self.flying = None;
        }
    }

    fn right(&self, files: &BTreeMap<u64, (Range<u64>, u64)>, when: &str) {
        for (name, (range, value)) in files {
            for b in range.clone() {
                assert_eq!(self.media[b as usize], Some(*value), "{when}: file {name}, block {b}");
            }
        }
    }
}

#[test]
fn exposing_18_durable_files_are_intact_after_a_crash_at_any_step() {
    let (mut crashes, mut trimmed, seeds) = (0, 0, Seeds::of(1000));
    for seed in seeds.clone() {
        let mut chance = Chance(seed);
        let mut toy = Toy::mount(vec![None; BLOCKS as usize], BTreeMap::new(), 1);
        for _ in 0..200 {
            toy.now += chance.below(1_000_000_000);
            match chance.below(12) {
                0..4 => toy.create(&mut chance),
                4..7 => toy.delete(&mut chance),
                7 => toy.commit(),
                8 => toy.trim(),
                9 => toy.carry_out(),
                10 => toy.answer(&mut chance),
                _ if chance.below(8) == 0 => toy.alloc.trim_all(toy.now),
                _ => {}
            }
            toy.alloc.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            toy.right(&toy.files, "running");
            toy.right(&toy.durable, "as a crash would find it");
            if chance.below(60) == 0 {
                // The sent command may be carried out, or not; then the file system is mounted
                // again.
                if chance.below(2) == 0 {
                    toy.carry_out();
                }
                trimmed += toy.alloc.queue().totals().trimmed;
                toy = Toy::mount(toy.media.clone(), toy.durable.clone(), toy.next);
                toy.right(&toy.files, "after a crash");
                crashes += 1;
            }
        }
        trimmed += toy.alloc.queue().totals().trimmed;
    }
    let seen = crashes > 500 && trimmed > 5_000;
    assert!(seen || !seeds.are_enough(), "{crashes} crashes, {trimmed} blocks trimmed");
}

#[test]
fn t3_flush_does_not_release_blocks_in_flight() {
    let mut a = all_used(4);
    a.free(0..2, 1).unwrap();
    a.commit(1, 0);
    let command = a.take(0).unwrap();
    // A commit is a flush too; the blocks stay held.
    a.commit(2, 1);
    assert_eq!(a.allocate(1, 1, None), Err(Refused::Held));
    a.ended(command.number, Outcome::Done, 2);
    assert_eq!(a.allocate(1, 1, None), Ok(0..1));
    assert_eq!(WriteCheck::Clear, extents::trim::Queue::new(ONE, EAGER).before_write(&(0..1)));
}
