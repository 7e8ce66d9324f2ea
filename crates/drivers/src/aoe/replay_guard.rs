//! Duplicate detection and ordering of writes.
//!
//! ```text
//!   judge --fits--> UNDER WAY --answered--> RECENT (for a while) --repeated----> answered
//!     |                |   |                                                     as it was
//!     |                |   +--finish: no answer--> forgotten: a resend is carried out
//!     +--overlaps--> WAITS --those before have ended--> UNDER WAY
//!     +--repeated while it waits or is under way--> dropped: one answer is sent
//! ```
//! An initiator sends unanswered requests again, and the network may duplicate and delay frames. A
//! write that is carried out a second time, after another write of the same blocks was
//! acknowledged, would restore old data. A write is recognized by its tag, place and data. Its
//! sender is not compared: an initiator has one address for each of its interfaces.
//!
//! Invariants
//!  C1  Writes (and trims) that overlap are carried out in the order in which they arrived.
//!  C2  A write that was answered in the last [`RECENT_NS`], and is among the last [`RECENT_MAX`]
//!      of its unit, is answered as before and not carried out again.
//!  C3  An initiator that identifies the device starts anew: its earlier writes are not recognized
//!      any more, as its tags may start anew too.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use bio::Segs;
use wire::aoe::Mac;

use super::session::{AoeSession, AtaRequest};

/// Writes that are known again.
pub(super) const RECENT_MAX: usize = 1024;

/// For how long, ns: longer than a frame is on its way anywhere.
pub(super) const RECENT_NS: u64 = 30_000_000_000;

/// Status and error of an answer.
pub(super) type Registers = (u8, u8);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WriteId {
    pub tag: u32,
    /// First byte.
    pub start: u64,
    /// Byte behind the last.
    pub end: u64,
    /// Of its data, or of the ranges of a trim.
    pub digest: u64,
}

impl WriteId {
    fn overlaps(&self, other: &WriteId) -> bool {
        self.start < other.end && other.start < self.end
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteDecision {
    /// It is under way from now on.
    Start,
    /// Others of the same blocks precede it: hand it over.
    Wait,
    /// It is under way or waits already.
    Duplicate,
    /// It was answered, by these registers.
    Done(Registers),
}

/// Action of a write when it may begin.
pub(super) enum HeldAction {
    /// Writes.
    Write(Segs),
    /// Trims: first byte and bytes of each range.
    Trim(Vec<(u64, u64)>),
}

/// A write that waits.
pub(super) struct HeldWrite {
    pub id: WriteId,
    pub request: AtaRequest,
    pub session: Rc<AoeSession>,
    pub action: HeldAction,
}

#[derive(Clone, Copy)]
struct Recent {
    id: WriteId,
    answer: Registers,
    from: Mac,
    at_ns: u64,
    /// Number of the write before it in its bucket; 0: none.
    before: u64,
}

/// Buckets of tags: 2 to this power.
const BUCKET_BITS: u32 = 10;

/// Answered writes, found by their tags.
///
/// Writes are numbered from 1 on. A bucket has the number of its newest write, and each write that
/// of the one before. A number that is too old ends a search, so nothing is taken out of a bucket.
#[derive(Default)]
struct RecentWrites {
    /// The last [`RECENT_MAX`].
    ring: Vec<Recent>,
    /// By bucket; empty before the first write.
    newest: Vec<u64>,
    last: u64,
}

impl RecentWrites {
    fn bucket(tag: u32) -> usize {
        (tag.wrapping_mul(0x9e37_79b1) >> (32 - BUCKET_BITS)) as usize
    }

    fn place(number: u64) -> Option<usize> {
        Some((number.checked_sub(1)? % RECENT_MAX as u64) as usize)
    }

    /// The write of a number, unless it is too old.
    fn get(&self, number: u64) -> Option<&Recent> {
        let is_kept = self.last - number < RECENT_MAX as u64;
        self.ring.get(Self::place(number)?).filter(|_| is_kept)
    }

    /// The answer to a write.
    fn find(&self, id: &WriteId, now_ns: u64) -> Option<Registers> {
        let mut number = *self.newest.get(Self::bucket(id.tag))?;
        while let Some(recent) = self.get(number) {
            if recent.id == *id && now_ns.saturating_sub(recent.at_ns) < RECENT_NS {
                return Some(recent.answer);
            }
            number = recent.before;
        }
        None
    }

    fn add(&mut self, (id, from): (WriteId, Mac), answer: Registers, at_ns: u64) {
        if self.newest.is_empty() {
            self.newest.resize(1 << BUCKET_BITS, 0);
        }
        self.last += 1;
        let (last, bucket) = (self.last, Self::bucket(id.tag));
        let before = self.newest.get_mut(bucket).map(|newest| std::mem::replace(newest, last));
        let recent = Recent { id, answer, from, at_ns, before: before.unwrap_or(0) };
        match Self::place(last).and_then(|at| self.ring.get_mut(at)) {
            Some(place) => *place = recent,
            None => self.ring.push(recent),
        }
    }
}

#[derive(Default)]
struct GuardState {
    under_way: Vec<WriteId>,
    waiting: VecDeque<HeldWrite>,
    recent: RecentWrites,
}

/// The writes of one unit.
#[derive(Default)]
pub(super) struct ReplayGuard(RefCell<GuardState>);

impl ReplayGuard {
    /// Judges a received write.
    pub fn check(&self, mark: WriteId, now_ns: u64) -> WriteDecision {
        let state = &mut *self.0.borrow_mut();
        if let Some(answer) = state.recent.find(&mark, now_ns) {
            return WriteDecision::Done(answer);
        }
        if state.under_way.contains(&mark) || state.waiting.iter().any(|h| h.id == mark) {
            return WriteDecision::Duplicate;
        }
        let before = state.waiting.iter().map(|h| &h.id).chain(&state.under_way);
        if before.into_iter().any(|other| other.overlaps(&mark)) {
            return WriteDecision::Wait;
        }
        state.under_way.push(mark);
        WriteDecision::Start
    }

    /// Keeps a write until its turn (C1).
    pub fn hold(&self, held: HeldWrite) {
        self.0.borrow_mut().waiting.push_back(held);
    }

    /// A write has ended, by an answer or in silence; `release` gets those that may begin now,
    /// which are under way then.
    pub fn finish(
        &self,
        (mark, from): (WriteId, Mac),
        answer: Option<Registers>,
        now_ns: u64,
        release: &mut dyn FnMut(HeldWrite),
    ) {
        let state = &mut *self.0.borrow_mut();
        if let Some(at) = state.under_way.iter().position(|m| *m == mark) {
            state.under_way.swap_remove(at);
        }
        if let Some(answer) = answer {
            state.recent.add((mark, from), answer, now_ns);
        }
        let mut at = 0;
        while let Some(held) = state.waiting.get(at) {
            let older = state.waiting.iter().take(at).map(|h| &h.id);
            let blocked = older.chain(&state.under_way).any(|m| m.overlaps(&held.id));
            if blocked {
                at += 1;
                continue;
            }
            let Some(held) = state.waiting.remove(at) else { return };
            state.under_way.push(held.id);
            release(held);
        }
    }

    /// Forgets the writes of an initiator that starts anew (C3).
    pub fn forget(&self, from: Mac) {
        let state = &mut *self.0.borrow_mut();
        for recent in state.recent.ring.iter_mut().filter(|r| r.from == from) {
            recent.id.end = recent.id.start;
        }
    }
}

/// A number that depends on every byte.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    // As many sums as a processor has multiplications under way.
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut sums = [1, 2, 3, 4, 5, 6, 7, 8u64];
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block.as_chunks::<8>().0) {
            *sum = mix(*sum, u64::from_le_bytes(*word));
        }
    }
    let tail = rest.iter().fold(bytes.len() as u64, |sum, byte| mix(sum, u64::from(*byte)));
    sums.iter().fold(tail, |sum, word| mix(sum, *word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn mark(tag: u32, start: u64, end: u64) -> WriteId {
        WriteId { tag, start, end, digest: 7 }
    }

    const WELL: Option<Registers> = Some((0x40, 0));

    fn done(guard: &ReplayGuard, mark: WriteId, answer: Option<Registers>, now: u64) {
        guard.finish((mark, ME), answer, now, &mut |_| panic!("no request waits"));
    }

    /// C2.
    #[test]
    fn answered_write_is_recognized_and_unanswered_one_is_new() {
        let guard = ReplayGuard::default();
        let one = mark(1, 0, 512);
        assert_eq!(guard.check(one, 0), WriteDecision::Start);
        assert_eq!(guard.check(one, 0), WriteDecision::Duplicate);
        done(&guard, one, None, 0);
        assert_eq!(guard.check(one, 0), WriteDecision::Start);
        done(&guard, one, Some((0x61, 4)), 5);
        assert_eq!(guard.check(one, 5), WriteDecision::Done((0x61, 4)));
        assert_eq!(guard.check(one, 5 + RECENT_NS), WriteDecision::Start, "too long ago");
        done(&guard, one, WELL, 5 + RECENT_NS);
        for other in [mark(2, 0, 512), mark(1, 512, 1024), WriteId { digest: 8, ..one }] {
            assert_eq!(guard.check(other, 6 + RECENT_NS), WriteDecision::Start);
            done(&guard, other, None, 0);
        }
    }

    /// C1.
    #[test]
    fn overlapping_write_waits() {
        let guard = ReplayGuard::default();
        assert_eq!(guard.check(mark(1, 0, 4096), 0), WriteDecision::Start);
        assert_eq!(guard.check(mark(2, 4096, 8192), 0), WriteDecision::Start);
        assert_eq!(guard.check(mark(3, 4095, 4097), 0), WriteDecision::Wait);
    }

    /// C2, C3.
    #[test]
    fn oldest_entries_and_those_of_a_restarted_initiator_are_dropped() {
        let guard = ReplayGuard::default();
        for tag in 0..=RECENT_MAX as u32 {
            assert_eq!(guard.check(mark(tag, 0, 512), 0), WriteDecision::Start);
            done(&guard, mark(tag, 0, 512), WELL, 0);
        }
        assert_eq!(guard.check(mark(1, 0, 512), 1), WriteDecision::Done((0x40, 0)));
        assert_eq!(guard.check(mark(0, 0, 512), 1), WriteDecision::Start);
        done(&guard, mark(0, 0, 512), None, 1);
        guard.forget(Mac([9; 6]));
        assert_eq!(guard.check(mark(2, 0, 512), 1), WriteDecision::Done((0x40, 0)));
        guard.forget(ME);
        assert_eq!(guard.check(mark(2, 0, 512), 1), WriteDecision::Start);
    }

    /// C2.
    #[test]
    fn writes_with_one_tag_are_recognized_until_they_are_too_old() {
        let guard = ReplayGuard::default();
        let one = |n: usize| mark(7, n as u64 * 512, n as u64 * 512 + 512);
        for n in 0..2 * RECENT_MAX {
            assert_eq!(guard.check(one(n), 0), WriteDecision::Start);
            done(&guard, one(n), WELL, 0);
        }
        for n in RECENT_MAX..2 * RECENT_MAX {
            assert_eq!(guard.check(one(n), 0), WriteDecision::Done((0x40, 0)), "{n}");
        }
        for n in [0, RECENT_MAX - 1] {
            assert_eq!(guard.check(one(n), 0), WriteDecision::Start, "{n}");
        }
    }

    #[test]
    fn digest_changes_with_any_changed_byte() {
        let mut bytes = vec![0; 4099];
        let first = digest(&bytes);
        assert_ne!(first, digest(&bytes[1..]));
        for at in [0, 8, 31, 32, 4095, 4096, 4098] {
            bytes[at] ^= 1;
            assert_ne!(digest(&bytes), first, "{at}");
            bytes[at] ^= 1;
        }
    }
}
