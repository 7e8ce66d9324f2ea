//! Model of the possible contents of every block of every disk.
//!
//! Time is a count of the events that the test sees: the world has one thread.
//!
//! Invariants
//!  M1  A write may take effect between its issue and its end, at any moment, on each block by
//!      itself. Its end is its answer, or an event that proves its end. Such are the answer of a
//!      task management function, a new login of the same initiator port, the end of the daemon.
//!  M2  A write is sure when it was answered GOOD and no power cut was between issue and answer. It
//!      is durable when it had FUA, when the cache was off, or when a flush began after its end and
//!      succeeded.
//!  M3  A read may give any write that began before the read ended and that no sure write has
//!      replaced. A replacing one began after the other's end and ended before the read began.
//!  M4  After a power cut a block holds one of the writes that no durable write has replaced:
//!      the same one from then on.
//!  M5  An ORDERED command begins when all that its session sent to the unit before has ended. It
//!      ends before anything that was sent after it begins, but for HEAD OF QUEUE.

use crate::world::counters::Counters;

/// Blocks of 512 bytes: all disks are counted in them.
pub const UNIT: usize = 512;

/// Marks a stamp.
const MAGIC: u64 = 0x4173_686c_6172_2131;

/// Not over yet.
pub const OPEN: u64 = u64::MAX;

/// A write, as one block remembers it. Number 0 is zeros.
#[derive(Clone, Debug)]
struct Entry {
    id: u64,
    issue: u64,
    end: u64,
    sure: bool,
    durable: bool,
    /// The power was cut between issue and end.
    cut: bool,
    /// Chosen by the power cut of this moment, among the block's entries with this number (M4).
    choice: u64,
    /// Replaced since this moment, but for reads that began before.
    until: u64,
}

#[derive(Default)]
struct Block {
    entries: Vec<Entry>,
    /// Some entry may be sure and not durable: a flush changes it. Most of a unit's blocks have
    /// none when a flush ends.
    unflushed: bool,
}

impl Block {
    fn new() -> Block {
        let zero = Entry {
            id: 0,
            issue: 0,
            end: 0,
            sure: true,
            durable: true,
            cut: false,
            choice: 0,
            until: OPEN,
        };
        Block { entries: vec![zero], unflushed: false }
    }

    /// M3, M5.
    fn may_read(&self, id: u64, when: &When) -> bool {
        let before = |w: &Entry| w.end < when.began || when.after.contains(&w.issue);
        let last = last_issue(&self.entries, |w| w.sure && before(w));
        let replaced = |e: &Entry| last > e.end;
        let seen = |e: &Entry| e.issue < when.ended && !when.before.contains(&e.issue);
        let may = |e: &Entry| seen(e) && when.began < e.until && !replaced(e);
        self.entries.iter().any(|e| e.id == id && may(e))
    }

    /// A read reveals the choice of a power cut.
    fn learn(&mut self, id: u64, began: u64) {
        let all = || self.entries.iter().filter(|e| e.until == OPEN);
        let choice = match all().find(|e| e.id == id && (1..began).contains(&e.choice)) {
            Some(e) => e.choice,
            None => return,
        };
        // The same content may have been written again since: zeros, or a write in flight.
        if all().any(|e| e.id == id && e.choice != choice) {
            return;
        }
        for e in self.entries.iter_mut().filter(|e| e.choice == choice) {
            match e.id == id {
                true => (e.sure, e.durable, e.choice) = (true, true, 0),
                false => (e.until, e.choice) = (choice, 0),
            }
        }
    }

    /// M4. `over`: nothing of before is under way any more.
    fn power_cut(&mut self, now: u64, over: bool) {
        let all = std::mem::take(&mut self.entries);
        let last = last_issue(&all, |w| w.durable && w.sure);
        let replaced = |e: &Entry| e.until != OPEN || last > e.end;
        let (mut gone, mut left): (Vec<Entry>, Vec<Entry>) =
            all.iter().cloned().partition(replaced);
        gone.iter_mut().for_each(|e| e.until = e.until.min(now));
        let open: Vec<Entry> = left.iter().filter(|e| e.end == OPEN && !over).cloned().collect();
        for e in &mut left {
            e.end = e.end.min(now);
            (e.sure, e.durable, e.cut, e.choice) = (false, false, true, now);
        }
        if let [only] = &mut left[..] {
            (only.sure, only.durable, only.choice) = (true, true, 0);
        }
        left.extend(open.into_iter().map(|e| Entry { cut: true, choice: 0, ..e }));
        left.extend(gone);
        self.entries = left;
    }

    /// Forgets what can be seen no more.
    fn prune(&mut self, oldest_read: u64) {
        if self.entries.len() < 8 {
            return;
        }
        let last = last_issue(&self.entries, |w| w.durable && w.sure && w.end < oldest_read);
        self.entries.retain(|e| last <= e.end);
    }
}

/// Issue of the last of the writes of the query; 0 without one. A write that ended before it is
/// replaced.
fn last_issue(all: &[Entry], asked: impl Fn(&Entry) -> bool) -> u64 {
    all.iter().filter(|w| asked(w)).map(|w| w.issue).max().unwrap_or(0)
}

/// When a read took place: between two moments, after some writes and before others, which are
/// named by the moments of their issue.
#[derive(Clone, Default, Debug)]
pub struct When {
    pub began: u64,
    pub ended: u64,
    pub after: Vec<u64>,
    pub before: Vec<u64>,
}

/// A read that nothing overlaps.
pub fn at_once(now: u64) -> When {
    When { began: now, ended: now + 1, ..When::default() }
}

/// A range of blocks of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    pub disk: usize,
    pub first: usize,
    pub count: usize,
}

/// How a write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Answered GOOD, and on stable storage already.
    Durable,
    /// Answered GOOD.
    Good,
    /// The result is unknown, but the command is over.
    Unknown,
    /// It was refused before it did anything.
    Nothing,
}

/// All disks.
pub struct Model {
    disks: Vec<Vec<Block>>,
    pub counters: Counters,
    now: u64,
    ids: u64,
}

impl Model {
    pub fn new(blocks: &[usize]) -> Model {
        let disk = |n: &usize| (0..*n).map(|_| Block::new()).collect();
        Model {
            disks: blocks.iter().map(disk).collect(),
            counters: Counters::default(),
            now: 1,
            ids: 0,
        }
    }

    /// A new moment.
    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A number for a write.
    pub fn new_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn blocks(&mut self, at: BlockRange) -> impl Iterator<Item = (usize, &mut Block)> {
        let all = self.disks[at.disk].iter_mut().enumerate();
        all.skip(at.first).take(at.count)
    }

    /// A write sets out; `id` 0 writes zeros.
    pub fn begin(&mut self, at: BlockRange, id: u64, issue: u64) {
        let (sure, durable, cut, choice, until) = (false, false, false, 0, OPEN);
        for (_, b) in self.blocks(at) {
            b.entries.push(Entry { id, issue, end: OPEN, sure, durable, cut, choice, until });
        }
    }

    /// A write that set out at `issue` is over.
    pub fn end(&mut self, at: BlockRange, id: u64, issue: u64, outcome: Outcome, oldest_read: u64) {
        let now = self.tick();
        for (_, b) in self.blocks(at) {
            if outcome == Outcome::Nothing {
                b.entries.retain(|e| (e.id, e.issue) != (id, issue));
                continue;
            }
            let own = |e: &&mut Entry| (e.id, e.issue) == (id, issue) && e.choice == 0;
            for e in b.entries.iter_mut().filter(own) {
                // One that was thought over may have been answered before, unseen.
                if outcome == Outcome::Unknown {
                    e.end = e.end.min(now);
                    continue;
                }
                e.end = now;
                e.sure = !e.cut;
                e.durable = e.sure && outcome == Outcome::Durable;
            }
            b.unflushed |= outcome == Outcome::Good;
            if outcome == Outcome::Durable {
                b.prune(oldest_read);
            }
        }
    }

    /// M2: a flush that began at `issue` succeeded.
    pub fn flushed(&mut self, at: BlockRange, issue: u64) {
        self.counters.flushed(at, issue);
        for (_, b) in self.blocks(at).filter(|(_, b)| b.unflushed) {
            for e in b.entries.iter_mut().filter(|e| e.sure && e.end < issue) {
                e.durable = true;
            }
            b.unflushed = b.entries.iter().any(|e| e.sure && !e.durable);
        }
    }

    /// The power of a disk was cut. `over`: also that of the daemon.
    pub fn power_cut(&mut self, disk: usize, over: bool) {
        let now = self.tick();
        self.counters.power_cut(disk);
        self.disks[disk].iter_mut().for_each(|b| b.power_cut(now, over));
    }

    /// The daemon ended and the disk did not: nothing is under way any more.
    pub fn all_over(&mut self, disk: usize) {
        let now = self.tick();
        let all = self.disks[disk].iter_mut().flat_map(|b| b.entries.iter_mut());
        all.for_each(|e| e.end = e.end.min(now));
    }

    /// Checks data that were read from a place between two moments.
    pub fn check(&mut self, at: BlockRange, bytes: &[u8], when: &When, who: &str) {
        let counters = self.counters.ranges_in(at);
        assert_eq!(bytes.len(), at.count * UNIT, "{who}: length of the data");
        for ((n, block), piece) in self.blocks(at).zip(bytes.chunks_exact(UNIT)) {
            if counters.iter().any(|range| range.contains(&n)) {
                continue;
            }
            let id = match stamp_of(piece, at.disk, n) {
                Ok(id) => id,
                Err(why) => panic!("{who}: disk {} block {n}: {why}", at.disk),
            };
            assert!(
                block.may_read(id, when),
                "{who}: disk {} block {n}: write {id} read {when:?}, of {:#?}",
                at.disk,
                block.entries
            );
            block.learn(id, when.began);
        }
    }

    /// Checks that a place may have read as zeroes between two moments; counters aside.
    pub fn check_zeroes(&mut self, at: BlockRange, when: &When, who: &str) {
        let counters = self.counters.ranges_in(at);
        for (n, block) in self.blocks(at) {
            let may = counters.iter().any(|range| range.contains(&n)) || block.may_read(0, when);
            let (disk, all) = (at.disk, &block.entries);
            assert!(may, "{who}: disk {disk} block {n} holds data {when:?}: {all:#?}");
        }
    }
}

pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A word of a block: who wrote it, where, and bytes that depend on both.
fn stamp_word(i: usize, id: u64, disk: usize, n: usize) -> [u8; 8] {
    let word = match i {
        0 => MAGIC,
        1 => id,
        2 => disk as u64,
        3 => n as u64,
        i => mix(id << 20 ^ (n as u64) << 7 ^ i as u64),
    };
    word.to_le_bytes()
}

/// The bytes that write `id` puts at a place.
pub fn stamps(id: u64, at: BlockRange) -> Vec<u8> {
    let mut out = vec![0; at.count * UNIT];
    for (i, piece) in out.chunks_exact_mut(UNIT).enumerate() {
        for (word, bytes) in piece.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&stamp_word(word, id, at.disk, at.first + i));
        }
    }
    out
}

/// Which write filled a block; 0 for zeros.
fn stamp_of(piece: &[u8], disk: usize, n: usize) -> Result<u64, String> {
    let word =
        |i: usize| u64::from_le_bytes(piece[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
    if piece == [0; UNIT] {
        return Ok(0);
    }
    let (id, from) = (word(1), (word(2), word(3)));
    if word(0) != MAGIC {
        return Err(format!("no stamp: {:02x?}", &piece[..32]));
    }
    if from != (disk as u64, n as u64) {
        return Err(format!("write {id} of disk {} block {} is here", from.0, from.1));
    }
    let mut words = piece.chunks_exact(8).enumerate();
    match words.all(|(i, bytes)| bytes == stamp_word(i, id, disk, n)) {
        true => Ok(id),
        false => Err(format!("write {id} is torn")),
    }
}

#[test]
fn model_distinguishes_old_from_new_contents() {
    let at = BlockRange { disk: 0, first: 1, count: 1 };
    let mut m = Model::new(&[4]);
    let write = |m: &mut Model, id, outcome| {
        let issue = m.tick();
        m.begin(at, id, issue);
        m.end(at, id, issue, outcome, OPEN);
    };
    let reads = |m: &mut Model, id| {
        let now = m.tick();
        m.disks[0][1].may_read(id, &at_once(now))
    };
    write(&mut m, 1, Outcome::Durable);
    write(&mut m, 2, Outcome::Good);
    write(&mut m, 3, Outcome::Unknown);
    assert_eq!([0, 1, 2, 3].map(|id| reads(&mut m, id)), [false, false, true, true]);
    m.power_cut(0, true);
    assert_eq!([0, 1, 2, 3].map(|id| reads(&mut m, id)), [false, true, true, true]);
    let now = m.tick();
    m.check(at, &stamps(2, at), &at_once(now), "test");
    assert_eq!([0, 1, 2, 3].map(|id| reads(&mut m, id)), [false, false, true, false]);
    write(&mut m, 4, Outcome::Good);
    let issue = m.tick();
    m.flushed(at, issue);
    m.power_cut(0, true);
    assert_eq!([1, 2, 3, 4].map(|id| reads(&mut m, id)), [false, false, false, true]);
    // A flush that began before an end leaves it to the next one.
    let issue = m.tick();
    write(&mut m, 5, Outcome::Good);
    m.flushed(at, issue);
    let again = m.tick();
    m.flushed(at, again);
    m.power_cut(0, true);
    assert_eq!([4, 5].map(|id| reads(&mut m, id)), [false, true]);
    assert!(stamp_of(&stamps(4, at), 0, 2).is_err(), "elsewhere");
    let mut torn = stamps(4, at);
    torn[500] ^= 1;
    assert!(stamp_of(&torn, 0, 1).is_err(), "torn");
}
