//! State machine of the paths: which are good and which is active, without any I/O.
//!
//! ```text
//!   NEW --every core knows it--> good --EIO, ENXIO, `fail`--> FAIL
//!                                  ^                            |
//!                                  +--`restore`, a look at it, a request it served,
//!                                     or the last good one failed
//!   good --left in haste--> TRANSITION --a look at it, a request it served, another access
//!                                        state, no path is good--> good; what FAILs a good one
//!   any --its provider is gone--> away
//! ```
//!
//! Invariants
//!  P1  `active` is good, or there is no good path. It is one of those with the best access state
//!      among the good ones. The exception is one that was made active by hand, until an access
//!      state changes.
//!  P2  A report about a path is used only if the path has not changed since: same round. A path in
//!      transition that is good because there is no other keeps its round: it has given no better
//!      answer.
//!  P3  When the last good path fails, those in transition are good again. So are the failed ones,
//!      except those that failed the request that caused this. A single path stays good, unless
//!      requests may wait for it.
//!  P4  A path is in transition only while another one is good.

use super::metadata::Mode;

/// Paths of one disk; a further one is refused. A request keeps a bit a path.
pub(super) const PATHS_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathState {
    /// The cores do not have it yet.
    New,
    Good,
    /// Requests would have waited on it while another path was good.
    Transition,
    Fail,
}

/// The rank of an access state as CAM reports it (`CAM::access`). Zero is the best, and the rank of
/// an unknown state.
pub(super) fn rank(access: &str) -> u8 {
    match access {
        "non-optimized" => 1,
        "transitioning" => 2,
        "standby" => 3,
        "unavailable" | "offline" => 4,
        _ => 0,
    }
}

/// The rank of a path that reports another size than the disk's: worse than any access state.
pub(super) const OTHER_SIZE: u8 = 5;

#[derive(Clone, Debug)]
pub(super) struct PathEntry {
    /// Its number, in 0..[`PATHS_MAX`], unique among the paths.
    pub(super) slot: usize,
    pub(super) state: PathState,
    /// Grows with every change of its state (P2).
    pub(super) round: u16,
    /// Its provider's name.
    pub(super) name: String,
    /// Of its access state: [`rank`]; or [`OTHER_SIZE`].
    pub(super) rank: u8,
}

/// All paths of a disk, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    list: Vec<PathEntry>,
    active: Option<usize>,
    /// `active` was made so by hand.
    by_hand: bool,
    rounds: u16,
    /// The slot given last: slots are not used again soon.
    last: usize,
}

fn bit(slot: usize) -> u32 {
    1u32.checked_shl(slot as u32).unwrap_or(0)
}

impl Paths {
    /// All, the oldest first.
    pub(super) fn all(&self) -> &[PathEntry] {
        &self.list
    }

    pub(super) fn of(&self, slot: usize) -> Option<&PathEntry> {
        self.list.iter().find(|p| p.slot == slot)
    }

    /// By its provider's name.
    pub(super) fn called(&self, name: &str) -> Option<&PathEntry> {
        self.list.iter().find(|p| p.name == name)
    }

    pub(super) fn active(&self) -> Option<usize> {
        self.active
    }

    pub(super) fn good(&self) -> usize {
        self.list.iter().filter(|p| p.state == PathState::Good).count()
    }

    fn is_good(&self, slot: usize) -> bool {
        self.of(slot).is_some_and(|p| p.state == PathState::Good)
    }

    fn put(&mut self, slot: usize, state: PathState) {
        self.rounds = self.rounds.wrapping_add(1);
        let round = self.rounds;
        if let Some(one) = self.list.iter_mut().find(|p| p.slot == slot) {
            one.state = state;
            one.round = round;
        }
    }

    fn best(&self) -> Option<u8> {
        self.list.iter().filter(|p| p.state == PathState::Good).map(|p| p.rank).min()
    }

    /// No good path has a better access state.
    pub(super) fn is_best(&self, slot: usize) -> bool {
        let rank = self.of(slot).map(|p| p.rank);
        rank.is_some() && self.best().is_none_or(|best| rank <= Some(best))
    }

    /// P1.
    fn choose(&mut self) {
        let stays = |slot: usize| self.is_good(slot) && (self.by_hand || self.is_best(slot));
        if !self.active.is_some_and(stays) {
            let good = |p: &&PathEntry| p.state == PathState::Good && self.is_best(p.slot);
            self.active = self.list.iter().find(good).map(|p| p.slot);
            self.by_hand = false;
        }
    }

    /// A path is better or worse than before: false when it is not.
    pub(super) fn rerank(&mut self, slot: usize, rank: u8) -> bool {
        let Some(one) = self.list.iter_mut().find(|p| p.slot == slot && p.rank != rank) else {
            return false;
        };
        one.rank = rank;
        self.by_hand = false;
        self.choose();
        true
    }

    /// A further path, NEW: its slot. `None`: there are too many.
    pub(super) fn add(&mut self, name: &str) -> Option<usize> {
        let next = (1..=PATHS_MAX).map(|i| (self.last + i) % PATHS_MAX);
        let slot = next.into_iter().find(|slot| self.of(*slot).is_none())?;
        self.last = slot;
        let (state, name) = (PathState::New, name.to_owned());
        self.list.push(PathEntry { slot, state, round: 0, name, rank: 0 });
        self.put(slot, PathState::New);
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: usize, queues: bool) {
        let was_good = self.is_good(slot);
        self.list.retain(|p| p.slot != slot);
        if was_good {
            self.revive(bit(slot), queues);
        }
        self.choose();
    }

    /// A path is good from now on: false when there is no such path.
    pub(super) fn restore(&mut self, slot: usize) -> bool {
        match self.of(slot).map(|p| p.state) {
            None => return false,
            Some(PathState::Good) => {}
            Some(PathState::New | PathState::Transition | PathState::Fail) => {
                self.put(slot, PathState::Good)
            }
        }
        self.choose();
        true
    }

    /// A path fails. `tried`: all paths that failed the same request, a bit a slot. `queues`:
    /// requests may wait without a path.
    pub(super) fn fail(&mut self, slot: usize, tried: u32, queues: bool) {
        match self.of(slot).map(|p| p.state) {
            Some(PathState::Good) => {
                self.put(slot, PathState::Fail);
                self.revive(tried | bit(slot), queues);
            }
            Some(PathState::Transition) => self.put(slot, PathState::Fail),
            _ => {}
        }
        self.choose();
    }

    /// A request used another path because it would have waited on this one. A path that is only a
    /// last resort keeps its state: no request uses it.
    pub(super) fn set_transition(&mut self, slot: usize) {
        // P4
        if self.is_good(slot) && self.good() > 1 && self.is_best(slot) {
            self.put(slot, PathState::Transition);
        }
        self.choose();
    }

    /// The access state that the path reports is used from now on.
    pub(super) fn end_new(&mut self, slot: usize) {
        if self.of(slot).is_some_and(|p| p.state == PathState::Transition) {
            self.put(slot, PathState::Good);
            self.choose();
        }
    }

    /// P3.
    fn revive(&mut self, tried: u32, queues: bool) {
        if self.good() > 0 {
            return;
        }
        let alone = self.list.len() == 1 && !queues;
        let may = |p: &&PathEntry| match p.state {
            PathState::Transition => true,
            PathState::Fail => alone || tried & bit(p.slot) == 0,
            PathState::New | PathState::Good => false,
        };
        let again: Vec<usize> = self.list.iter().filter(may).map(|p| p.slot).collect();
        for one in self.list.iter_mut().filter(|p| again.contains(&p.slot)) {
            if one.state == PathState::Fail {
                self.rounds = self.rounds.wrapping_add(1);
                one.round = self.rounds;
            }
            one.state = PathState::Good;
        }
    }

    /// The next good path after the active one becomes active. False when there is no other.
    pub(super) fn rotate(&mut self) -> bool {
        let at = self.active.and_then(|slot| self.list.iter().position(|p| p.slot == slot));
        let Some(at) = at else { return false };
        let (before, after) = self.list.split_at(at + 1);
        let next = after.iter().chain(before).find(|p| p.state == PathState::Good);
        let was = self.active;
        self.active = next.map(|p| p.slot);
        self.by_hand = true;
        self.active != was
    }

    /// Makes a path active on request of a verb, if it is good.
    pub(super) fn prefer(&mut self, slot: usize) -> bool {
        let good = self.is_good(slot);
        if good {
            self.active = Some(slot);
            self.by_hand = true;
        }
        good
    }

    /// The same, going back to it by itself.
    pub(super) fn fail_back(&mut self, slot: usize) {
        if self.is_good(slot) && self.is_best(slot) {
            self.active = Some(slot);
            self.by_hand = false;
        }
    }

    /// As lists show a path.
    pub(super) fn path_state_str(&self, slot: usize, mode: Mode) -> &'static str {
        match self.of(slot).map(|p| p.state) {
            None => "LOST",
            Some(PathState::New) => "NEW",
            Some(PathState::Fail) => "FAIL",
            Some(PathState::Transition) => "TRANSITION",
            Some(PathState::Good) if self.active == Some(slot) => "ACTIVE",
            Some(PathState::Good) if mode == Mode::Active && self.is_best(slot) => "ACTIVE",
            Some(PathState::Good) if mode == Mode::Read && self.is_best(slot) => "READ",
            Some(PathState::Good) => "PASSIVE",
        }
    }

    /// As lists show the whole.
    pub(super) fn state(&self) -> &'static str {
        match self.good() {
            0 => "BROKEN",
            1 => "DEGRADED",
            n if n < self.list.len() => "DEGRADED",
            _ => "OPTIMAL",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Paths, [usize; 3]) {
        let mut paths = Paths::default();
        let slots = ["a", "b", "c"].map(|name| {
            let slot = paths.add(name).expect("room");
            assert_eq!(paths.path_state_str(slot, Mode::Passive), "NEW");
            assert!(paths.restore(slot));
            slot
        });
        (paths, slots)
    }

    /// P1.
    #[test]
    fn next_good_path_becomes_active_and_a_restored_one_does_not() {
        let (mut p, [a, b, c]) = three();
        assert_eq!((p.state(), p.active()), ("OPTIMAL", Some(a)));
        p.fail(a, 0, false);
        assert_eq!((p.state(), p.active()), ("DEGRADED", Some(b)));
        p.restore(a);
        assert_eq!((p.state(), p.active()), ("OPTIMAL", Some(b)));
        assert!(p.rotate());
        assert_eq!(p.active(), Some(c));
        assert!(p.rotate(), "round to the first");
        assert_eq!(p.active(), Some(a));
        assert!(p.prefer(b));
        assert_eq!(
            [a, b, c].map(|s| p.path_state_str(s, Mode::Passive)),
            ["PASSIVE", "ACTIVE", "PASSIVE"]
        );
        assert_eq!([a, b, c].map(|s| p.path_state_str(s, Mode::Read)), ["READ", "ACTIVE", "READ"]);
        assert_eq!([a, b, c].map(|s| p.path_state_str(s, Mode::Active)), ["ACTIVE"; 3]);
        p.fail(c, 0, false);
        assert!(!p.prefer(c) && p.active() == Some(b));
    }

    /// P1.
    #[test]
    fn access_state_outranks_path_order() {
        let (mut p, [a, b, c]) = three();
        assert!(p.rerank(a, rank("non-optimized")));
        assert!(!p.rerank(a, rank("non-optimized")), "nothing new");
        assert_eq!(p.active(), Some(b), "a better one is there");
        let words = |p: &Paths, mode| [a, b, c].map(|s| p.path_state_str(s, mode));
        assert_eq!(words(&p, Mode::Active), ["PASSIVE", "ACTIVE", "ACTIVE"]);
        assert_eq!(words(&p, Mode::Read), ["PASSIVE", "ACTIVE", "READ"]);
        p.fail_back(a);
        assert_eq!(p.active(), Some(b), "nobody goes back to a worse one");
        p.fail(b, 0, false);
        p.fail(c, bit(b), false);
        assert_eq!(p.active(), Some(a), "it is all there is");
        p.restore(c);
        assert_eq!(p.active(), Some(c), "a better one is back");
        assert!(p.prefer(a) && p.active() == Some(a), "by hand, as one likes");
        p.restore(b);
        assert_eq!(p.active(), Some(a), "and it stays");
        assert!(p.rerank(c, rank("standby")));
        assert_eq!(p.active(), Some(b), "until a state changes");
        assert!(p.rerank(b, rank("unavailable")) && p.rerank(a, rank("offline")));
        assert_eq!(p.active(), Some(c));
    }

    /// P3.
    #[test]
    fn failure_of_the_last_path_restores_paths_failed_by_other_requests() {
        let (mut p, [a, b, c]) = three();
        p.fail(a, 0, false);
        p.fail(b, 0, false);
        p.fail(c, bit(b), false);
        let words = [a, b, c].map(|s| p.path_state_str(s, Mode::Passive));
        assert_eq!(words, ["ACTIVE", "FAIL", "FAIL"], "b failed the same request");
        p.remove(a, false);
        assert_eq!(p.active(), Some(b), "gone, and not failed: the failed ones are all there is");
    }

    /// P3, P4.
    #[test]
    fn path_in_transition_is_used_when_no_other_is_left() {
        let (mut p, [a, b, c]) = three();
        let words = |p: &Paths| [a, b, c].map(|s| p.path_state_str(s, Mode::Passive));
        p.set_transition(a);
        assert_eq!((words(&p), p.state()), (["TRANSITION", "ACTIVE", "PASSIVE"], "DEGRADED"));
        p.set_transition(b);
        p.set_transition(c);
        assert_eq!(words(&p), ["TRANSITION", "TRANSITION", "ACTIVE"], "P4");
        p.fail(a, 0, false);
        assert_eq!(words(&p), ["FAIL", "TRANSITION", "ACTIVE"], "it fails as a good one does");
        // The request that failed c had left b: b did not fail it.
        p.fail(c, bit(a) | bit(b), false);
        assert_eq!(words(&p), ["FAIL", "ACTIVE", "FAIL"], "P3");
        p.restore(c);
        p.set_transition(b);
        p.remove(c, true);
        assert_eq!([a, b].map(|s| p.path_state_str(s, Mode::Passive)), ["ACTIVE", "PASSIVE"]);
    }

    #[test]
    fn reported_access_state_ends_the_transition_of_a_path() {
        let (mut p, [a, b, _]) = three();
        p.set_transition(a);
        p.rerank(a, rank("standby"));
        p.end_new(a);
        assert_eq!((p.path_state_str(a, Mode::Active), p.active()), ("PASSIVE", Some(b)));
        p.set_transition(a);
        assert_eq!(p.path_state_str(a, Mode::Active), "PASSIVE", "nothing goes that way already");
        p.end_new(b);
        assert_eq!(p.path_state_str(b, Mode::Active), "ACTIVE");
    }

    /// P3.
    #[test]
    fn sole_path_stays_good_unless_queueing_is_enabled() {
        for (queues, word) in [(false, "ACTIVE"), (true, "FAIL")] {
            let mut p = Paths::default();
            let a = p.add("a").expect("room");
            p.restore(a);
            p.fail(a, bit(a), queues);
            assert_eq!(p.path_state_str(a, Mode::Passive), word);
        }
    }

    #[test]
    fn path_slots_are_limited_and_not_reused_soon() {
        let mut p = Paths::default();
        let first = p.add("a").expect("room");
        p.remove(first, false);
        assert_ne!(p.add("a"), Some(first));
        for _ in 1..PATHS_MAX {
            assert!(p.add("x").is_some());
        }
        assert_eq!(p.add("y"), None);
    }
}
