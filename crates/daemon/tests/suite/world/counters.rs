//! Blocks that only COMPARE AND WRITE changes: counters, which every initiator increments.
//!
//! A block holds a number and its writer. An increment names the whole expected content, so each
//! number has one writer, or the command is not atomic.
//!
//! Invariants
//!  N1  While the power stays, each number has one writer: all readers of it agree with the one
//!      initiator whose increment succeeded.
//!  N2  A number that was acknowledged or seen is not followed by a smaller one. A power cut takes
//!      back data that were neither written with FUA nor flushed.
//!  N3  An increment that fails with a miscompare had a rival.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::world::model::{BlockRange, Outcome, UNIT, mix};

/// Counters at the beginning of every unit.
pub const COUNTERS: usize = 2;

const MAGIC: u64 = 0x4173_686c_6172_2b31;

/// Content of a block: number and writer. (0, 0) are zeros.
pub type Held = (u64, u64);

/// An increment or a look that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Bid {
    pub expects: Held,
    era: u64,
    floor: u64,
}

#[derive(Default, Debug)]
struct Counter {
    /// Grows with every power cut.
    era: u64,
    /// The greatest number that was acknowledged or seen.
    floor: u64,
    /// The greatest that no power cut takes back.
    durable: u64,
    /// When numbers were acknowledged.
    acks: BTreeMap<u64, u64>,
    /// Who tried to write a number.
    tried: BTreeMap<u64, BTreeSet<u64>>,
    writers: BTreeMap<u64, u64>,
    last: Option<Held>,
}

impl Counter {
    fn wrote(&mut self, held: Held, who: &str) {
        let writer = *self.writers.entry(held.0).or_insert(held.1);
        assert_eq!(writer, held.1, "{who}: number {} has two writers", held.0);
    }

    fn forget(&mut self, bid: &Bid, id: u64) {
        if let Some(ids) = self.tried.get_mut(&(bid.expects.0 + 1)) {
            ids.remove(&id);
        }
    }

    fn seen(&mut self, held: Held, bid: &Bid, who: &str) {
        let tried = self.tried.get(&held.0).is_some_and(|ids| ids.contains(&held.1));
        assert!(held == (0, 0) || tried, "{who}: {held:?} was never written: {self:?}");
        if bid.era != self.era {
            return;
        }
        assert!(held.0 >= bid.floor, "{who}: {held:?} after {}: {self:?}", bid.floor);
        self.wrote(held, who);
        self.floor = self.floor.max(held.0);
        if held.0 == self.floor {
            self.last = Some(held);
        }
    }
}

/// All counters, by disk and first block.
#[derive(Default)]
pub struct Counters(BTreeMap<(usize, usize), Counter>);

impl Counters {
    /// The counters of a unit that begins here.
    pub fn add(&mut self, disk: usize, first: usize, per: usize) {
        for n in 0..COUNTERS {
            self.0.insert((disk, first + n * per), Counter::default());
        }
    }

    fn of(&mut self, at: BlockRange) -> &mut Counter {
        self.0.get_mut(&(at.disk, at.first)).expect("a counter")
    }

    /// Starts a look, or an increment if the content is known.
    pub fn bid(&mut self, at: BlockRange) -> (Bid, bool) {
        let c = self.of(at);
        let bid = Bid { expects: c.last.unwrap_or_default(), era: c.era, floor: c.floor };
        (bid, c.last.is_some())
    }

    /// An increment sets out.
    pub fn begin(&mut self, at: BlockRange, bid: &Bid, id: u64) {
        self.of(at).tried.entry(bid.expects.0 + 1).or_default().insert(id);
    }

    /// It ended.
    pub fn end(
        &mut self,
        at: BlockRange,
        bid: &Bid,
        id: u64,
        outcome: Outcome,
        now: u64,
        who: &str,
    ) {
        let c = self.of(at);
        match outcome {
            Outcome::Nothing => c.forget(bid, id),
            Outcome::Unknown => {}
            _ if bid.era != c.era => {}
            _ => {
                let held = (bid.expects.0 + 1, id);
                c.wrote(bid.expects, who);
                c.wrote(held, who);
                c.acks.insert(held.0, now);
                c.floor = c.floor.max(held.0);
                if c.floor == held.0 {
                    c.last = Some(held);
                }
                if outcome == Outcome::Durable {
                    c.durable = c.durable.max(held.0);
                }
            }
        }
    }

    /// N3. The rest of the block is known no more.
    pub fn lost(&mut self, at: BlockRange, bid: &Bid, id: u64, who: &str) {
        let c = self.of(at);
        let rivals = |n: u64, own: u64| {
            c.tried.get(&n).is_some_and(|ids| ids.iter().any(|other| *other != own))
        };
        let (number, writer) = bid.expects;
        let why = rivals(number + 1, id) || rivals(number, writer) || bid.era != c.era;
        assert!(why, "{who}: {:?} was there, and nobody else: {c:?}", bid.expects);
        if c.last == Some(bid.expects) {
            c.last = None;
        }
        c.forget(bid, id);
    }

    /// A counter was read.
    pub fn seen(&mut self, at: BlockRange, bid: &Bid, bytes: &[u8], who: &str) {
        let held = held_of(bytes, at).unwrap_or_else(|why| panic!("{who}: {why}"));
        self.of(at).seen(held, bid, who);
    }

    pub fn flushed(&mut self, at: BlockRange, issue: u64) {
        let range = (at.disk, at.first)..(at.disk, at.first + at.count);
        for (_, c) in self.0.range_mut(range) {
            let acked = c.acks.iter().filter(|(_, when)| **when < issue).map(|(n, _)| *n).max();
            c.durable = c.durable.max(acked.unwrap_or(0));
        }
    }

    pub fn power_cut(&mut self, disk: usize) {
        for (_, c) in self.0.iter_mut().filter(|((d, _), _)| *d == disk) {
            let durable = c.durable;
            (c.era, c.floor, c.last) = (c.era + 1, durable, None);
            c.acks.clear();
            c.writers.retain(|n, _| *n <= durable);
        }
    }

    /// Checks the counters of a disk's blocks, and returns which blocks they are.
    pub fn look(&mut self, place: BlockRange, bytes: &[u8], who: &str) {
        let firsts: Vec<usize> = self.0.keys().filter(|k| k.0 == place.disk).map(|k| k.1).collect();
        for first in firsts {
            let per = self.per(place.disk, first);
            let at = BlockRange { disk: place.disk, first, count: per };
            let from = (first - place.first) * UNIT;
            let (bid, _) = self.bid(at);
            self.seen(at, &bid, &bytes[from..from + per * UNIT], who);
        }
    }

    /// Blocks of the model in one counter: the distance of the two of a unit.
    fn per(&self, disk: usize, first: usize) -> usize {
        let near = |d: &usize| self.0.contains_key(&(disk, first + d));
        let back = |d: &usize| first >= *d && self.0.contains_key(&(disk, first - d));
        [1, 8].into_iter().find(|d| near(d) || back(d)).expect("two counters")
    }

    /// The blocks of counters of which some are in a place.
    pub fn ranges_in(&self, place: BlockRange) -> Vec<Range<usize>> {
        let before_end = (place.disk, 0)..(place.disk, place.first + place.count);
        let firsts = self.0.range(before_end).map(|((_, first), _)| *first);
        let ranges = firsts.map(|first| first..first + self.per(place.disk, first));
        ranges.filter(|range| range.end > place.first).collect()
    }
}

/// The bytes of a counter.
pub fn bytes_of(held: Held, at: BlockRange) -> Vec<u8> {
    let mut out = vec![0; at.count * UNIT];
    if held == (0, 0) {
        return out;
    }
    for (i, word) in out.chunks_exact_mut(8).enumerate() {
        let w = match i {
            0 => MAGIC,
            1 => held.0,
            2 => held.1,
            3 => (at.disk as u64) << 32 | at.first as u64,
            i => mix(held.0 << 40 ^ held.1 << 10 ^ i as u64),
        };
        word.copy_from_slice(&w.to_le_bytes());
    }
    out
}

fn held_of(bytes: &[u8], at: BlockRange) -> Result<Held, String> {
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight"));
    let held = if bytes.iter().all(|b| *b == 0) { (0, 0) } else { (word(1), word(2)) };
    match bytes_of(held, at) == bytes {
        true => Ok(held),
        false => Err(format!("{at:?} holds no counter: {:02x?}", &bytes[..32])),
    }
}

#[test]
fn two_winners_of_one_compare_and_write_are_detected() {
    let at = BlockRange { disk: 0, first: 0, count: 1 };
    let mut all = Counters::default();
    all.add(0, 0, 1);
    let (look, _) = all.bid(at);
    all.seen(at, &look, &bytes_of((0, 0), at), "test");
    let (bid, known) = all.bid(at);
    assert!(known);
    all.begin(at, &bid, 5);
    all.begin(at, &bid, 6);
    all.end(at, &bid, 5, Outcome::Good, 1, "test");
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        all.end(at, &bid, 6, Outcome::Good, 2, "test");
    }));
    assert!(twice.is_err());
    all.lost(at, &bid, 6, "test");
    all.power_cut(0);
    let (look, known) = all.bid(at);
    assert!(!known);
    all.seen(at, &look, &bytes_of((0, 0), at), "test");
}

#[test]
fn counters_in_a_place_are_found_also_where_they_begin_before_it() {
    let mut all = Counters::default();
    all.add(0, 128, 1);
    all.add(1, 0, 8);
    let found = |disk, first, count| all.ranges_in(BlockRange { disk, first, count });
    assert_eq!(found(0, 0, 2048), [128..129, 129..130]);
    assert!(found(0, 130, 10).is_empty());
    assert_eq!(found(1, 7, 2), [0..8, 8..16]);
    assert_eq!(found(1, 15, 100), [8..16]);
}
