//! The rules T1 to T6 of trims and crashes: a small file system above the queue that crashes at
//! every step. Durable data is never trimmed.

use std::collections::BTreeMap;
use std::ops::Range;

use extents::trim::{Command, Limits, Outcome, Queue, WriteCheck};
use testkit::Seeds;
use testkit::clock::S;

use crate::stage::{Chance, EAGER};

const ONE: Limits = Limits { granule: 1, offset: 0, ranges: 8, range_max: 16, command_max: 32 };
const BLOCKS: u64 = 48;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    Used,
    /// Freed by the metadata of this epoch, which is not durable yet.
    Pending(u64),
    Free,
}

/// Blocks of a file system that keeps the rules. All are in use at first.
struct Bitmap {
    blocks: Vec<Block>,
    queue: Queue,
}

impl Bitmap {
    fn new() -> Bitmap {
        let blocks = vec![Block::Used; BLOCKS as usize];
        Bitmap { blocks, queue: Queue::new(ONE, EAGER) }
    }

    fn set(&mut self, range: &Range<u64>, state: Block) {
        range.clone().for_each(|b| self.blocks[b as usize] = state);
    }

    fn count(&self, state: impl Fn(Block) -> bool) -> usize {
        self.blocks.iter().filter(|b| state(**b)).count()
    }

    /// At most `want` blocks in one piece, from `near` on and around. Blocks in flight are free but
    /// are not used (T3).
    fn allocate(&mut self, want: u64, near: u64) -> Option<Range<u64>> {
        let is_usable = |b: &u64| {
            let flies = self.queue.overlaps_in_flight(&(*b..*b + 1));
            self.blocks[*b as usize] == Block::Free && !flies
        };
        let start = (near..BLOCKS).chain(0..near).find(is_usable)?;
        let len = (start..BLOCKS.min(start + want)).take_while(is_usable).count() as u64;
        let range = start..start + len;
        assert_eq!(self.queue.before_write(&range), WriteCheck::Clear, "{range:?}");
        self.set(&range, Block::Used);
        Some(range)
    }

    /// Blocks are not needed any more once the metadata of `epoch` is durable.
    fn free(&mut self, range: Range<u64>, epoch: u64) {
        assert!(range.clone().all(|b| self.blocks[b as usize] == Block::Used), "{range:?}");
        self.set(&range, Block::Pending(epoch));
    }

    /// The metadata of `epoch`, and of all before it, is durable.
    fn commit(&mut self, epoch: u64, now: u64) {
        for b in 0..BLOCKS {
            if matches!(self.blocks[b as usize], Block::Pending(of) if of <= epoch) {
                self.blocks[b as usize] = Block::Free;
                self.queue.free(b..b + 1, now);
            }
        }
    }

    /// The queue knows of free blocks only.
    fn check(&self) -> Result<(), String> {
        self.queue.check()?;
        let strays =
            |b: &u64| self.blocks[*b as usize] != Block::Free && self.queue.tracks(&(*b..*b + 1));
        match (0..BLOCKS).find(strays) {
            Some(b) => Err(format!("block {b} is {:?} and queued", self.blocks[b as usize])),
            None => Ok(()),
        }
    }
}

fn ranges(command: Option<Command>) -> Vec<Range<u64>> {
    command.map(|c| c.ranges).unwrap_or_default()
}

#[test]
fn exposing_19_t1_freed_blocks_are_unavailable_until_metadata_is_durable() {
    let mut m = Bitmap::new();
    m.free(0..4, 7);
    assert_eq!((m.queue.take(1), m.allocate(1, 0)), (None, None));
    m.commit(6, 2);
    assert_eq!(m.queue.take(3), None, "an older epoch");
    m.commit(7, 4);
    assert_eq!(ranges(m.queue.take(5)), [0..4]);
}

#[test]
fn t3_blocks_are_allocated_again_only_after_the_trim_ends() {
    let mut m = Bitmap::new();
    m.free(0..4, 1);
    m.commit(1, 0);
    let command = m.queue.take(0).unwrap();
    assert_eq!(m.allocate(4, 0), None);
    // A commit is a flush too, and releases nothing.
    m.commit(2, 1);
    assert_eq!(m.allocate(4, 0), None);
    m.queue.ended(command.number, Outcome::Done, 2);
    assert_eq!((m.allocate(4, 0), m.queue.take(3)), (Some(0..4), None));
}

#[test]
fn t4_a_commit_sends_nothing_and_waits_for_nothing() {
    let mut m = Bitmap::new();
    m.free(0..8, 1);
    m.commit(1, 0);
    let command = m.queue.take(0).unwrap();
    m.free(16..24, 2);
    m.commit(2, 0);
    assert_eq!(m.allocate(16, 0), Some(16..24), "while a trim is in flight");
    assert_eq!((m.queue.in_flight(), m.queue.totals().commands), ((1, 8), 1));
    m.queue.ended(command.number, Outcome::Done, 1);
    assert_eq!(m.allocate(16, 0), Some(0..8));
}

/// Q7.
#[test]
fn t5_after_a_crash_free_space_is_trimmed_only_on_request() {
    let mut again = Bitmap::new();
    again.set(&(0..8), Block::Free);
    assert!(again.queue.is_empty());
    assert_eq!(again.queue.take(100 * S), None);
    again.queue.free(0..8, 0);
    again.queue.start_full_trim(0);
    assert_eq!(ranges(again.queue.take(0)), [0..8]);
    again.check().unwrap();
}

#[test]
fn t6_free_is_trimmed_after_the_commit_that_contains_it() {
    let mut m = Bitmap::new();
    m.free(0..4, 1);
    m.free(4..8, 2);
    m.free(8..12, 3);
    m.commit(2, 0);
    let pending = m.count(|b| matches!(b, Block::Pending(_)));
    assert_eq!((pending, m.count(|b| b == Block::Free)), (4, 8));
    assert_eq!(ranges(m.queue.take(0)), [0..8], "merged over epochs");
    m.check().unwrap();
}

type Files = BTreeMap<u64, Range<u64>>;

/// Files of one range each, as the durable metadata has them, and a device.
struct Toy {
    map: Bitmap,
    /// By the content of all blocks of a file: its blocks.
    files: Files,
    durable: Files,
    media: Vec<Option<u64>>,
    epoch: u64,
    now: u64,
    next: u64,
    /// Sent, not ended, and when the device carries it out.
    flying: Option<(u64, Vec<Range<u64>>, bool)>,
}

impl Toy {
    fn mount(media: Vec<Option<u64>>, durable: Files, next: u64) -> Toy {
        let mut map = Bitmap::new();
        map.set(&(0..BLOCKS), Block::Free);
        durable.values().for_each(|range| map.set(range, Block::Used));
        let files = durable.clone();
        Toy { map, files, durable, media, epoch: 1, now: 0, next, flying: None }
    }

    fn create(&mut self, chance: &mut Chance) {
        let (want, near) = (1 + chance.below(9), chance.below(BLOCKS));
        let Some(range) = self.map.allocate(want, near) else { return };
        let value = self.next;
        self.next += 1;
        for b in range.clone() {
            self.media[b as usize] = Some(value);
        }
        self.files.insert(value, range);
    }

    fn delete(&mut self, chance: &mut Chance) {
        let at = chance.below(self.files.len().max(1) as u64) as usize;
        let Some(name) = self.files.keys().nth(at).copied() else { return };
        let range = self.files.remove(&name).unwrap();
        self.map.free(range, self.epoch);
    }

    fn commit(&mut self) {
        self.durable = self.files.clone();
        self.map.commit(self.epoch, self.now);
        self.epoch += 1;
    }

    fn trim(&mut self) {
        if let Some(c) = self.map.queue.take(self.now) {
            self.flying = Some((c.number, c.ranges, false));
        }
    }

    /// All that is free and not queued, as `fstrim` does.
    fn trim_all(&mut self) {
        for b in 0..BLOCKS {
            if self.map.blocks[b as usize] == Block::Free {
                self.map.queue.free(b..b + 1, self.now);
            }
        }
        self.map.queue.start_full_trim(self.now);
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
        let number = *number;
        if self.map.queue.in_doubt() {
            self.carry_out();
            self.now += 60 * S;
            self.map.queue.expire(self.now);
            self.flying = None;
            return;
        }
        let outcome = match chance.below(4) {
            0 if !*done => Outcome::Failed,
            1 => Outcome::Unknown,
            _ => Outcome::Done,
        };
        if outcome == Outcome::Done {
            self.carry_out();
        }
        self.map.queue.ended(number, outcome, self.now);
        if outcome != Outcome::Unknown {
            self.flying = None;
        }
    }

    fn right(&self, files: &Files, when: &str) {
        for (value, range) in files {
            for b in range.clone() {
                assert_eq!(self.media[b as usize], Some(*value), "{when}: file {value}, block {b}");
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
            toy.now += chance.below(S);
            match chance.below(12) {
                0..4 => toy.create(&mut chance),
                4..7 => toy.delete(&mut chance),
                7 => toy.commit(),
                8 => toy.trim(),
                9 => toy.carry_out(),
                10 => toy.answer(&mut chance),
                _ if chance.below(8) == 0 => toy.trim_all(),
                _ => {}
            }
            toy.map.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            toy.right(&toy.files, "running");
            toy.right(&toy.durable, "as a crash would find it");
            if chance.below(60) == 0 {
                // The sent command may be carried out, or not; then the file system is mounted
                // again.
                if chance.below(2) == 0 {
                    toy.carry_out();
                }
                trimmed += toy.map.queue.totals().trimmed;
                toy = Toy::mount(toy.media.clone(), toy.durable.clone(), toy.next);
                toy.right(&toy.files, "after a crash");
                crashes += 1;
            }
        }
        trimmed += toy.map.queue.totals().trimmed;
    }
    let seen = crashes > 500 && trimmed > 5_000;
    assert!(seen || !seeds.are_enough(), "{crashes} crashes, {trimmed} blocks trimmed");
}
