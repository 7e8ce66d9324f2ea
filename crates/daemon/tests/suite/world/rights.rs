//! Possible reservation states of one unit, as far as the initiators can know.
//!
//! A command takes effect at one moment between its issue and its answer. So all that can be known
//! is a set of worlds. Each is a state (`rules.rs`) and the commands in flight that have had their
//! effect in it already.
//!
//! ```text
//!   issue: a world more for every order in which commands under way could have their effect
//!   answer: worlds in which it was not carried out, or would have answered otherwise, end
//!   over without an answer: it may have had its effect or not, and will have none later
//! ```
//! Invariants
//!  R1  There is always a world: some order of commands explains all answers.
//!  R2  A command that ended GOOD was allowed in some world between its issue and its answer, one
//!      that ended RESERVATION CONFLICT forbidden.
//!  R3  After a restart the state is that of some world with APTPL, or nothing.
//!  R4  A session that ends takes its RESERVE along; only the target knows when. A world in which
//!      it ended ends when the initiator receives an answer to a command that it sent later.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::rules::{Act, CommandOutcome, Need, ReservationState};

/// Commands about reservations that are under way at one unit at once: more cost too many worlds.
pub const UNDER_WAY_MAX: usize = 3;

/// Resets under way at one unit at once.
const RESETS_MAX: usize = 3;
/// Number of worlds from which on an agent queries the state before it acts: without answers the
/// worlds multiply.
const WORLDS_CLEAR: usize = 64;

/// Attentions that an act raises: the port that receives one and its second byte.
type Attentions = Vec<(usize, u8)>;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct World {
    state: ReservationState,
    done: BTreeMap<u64, (CommandOutcome, Attentions)>,
    /// Sessions that must be over for it.
    over: Over,
}

/// Ports whose sessions must all be over for something to be so.
type Over = BTreeSet<usize>;

/// States that were possible at one time, and what must be over for it.
type Seen = Vec<(ReservationState, Over)>;

/// Sessions taken for ended, and the latest moment at which they were.
type Ended = BTreeMap<usize, u64>;

#[derive(Clone, Copy, Debug)]
struct Pending {
    port: usize,
    session: u64,
    act: Act,
}

/// Whether a command may have met a state that lets it run, and one that does not.
#[derive(Clone, Default, Debug)]
pub struct May {
    pub run: bool,
    /// It runs when one of these was over by now.
    pub run_if_ended: BTreeSet<Over>,
    pub conflict: bool,
}

/// What an answer means for the ports that the command affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tidings {
    Sure,
    Certainty,
    None,
}

/// A command was carried out that only the end of sessions explains (R4).
struct Suspect {
    /// One of these, by then.
    over: BTreeSet<Over>,
    at: u64,
    command: String,
}

/// The worlds of one unit.
pub struct ReservationModel {
    worlds: BTreeMap<World, Ended>,
    pending: BTreeMap<u64, Pending>,
    /// States that were possible from a moment on, each with the sessions that must be over.
    history: Vec<(u64, Seen)>,
    suspects: Vec<Suspect>,
}

impl Default for ReservationModel {
    fn default() -> ReservationModel {
        let mut book = ReservationModel {
            worlds: BTreeMap::from([(World::default(), Ended::new())]),
            pending: BTreeMap::new(),
            history: Vec::new(),
            suspects: Vec::new(),
        };
        book.note(0);
        book
    }
}

impl ReservationModel {
    /// True when it is new, or something about it is.
    fn add(&mut self, world: World, ended: &Ended) -> bool {
        if let Some(old) = self.worlds.get_mut(&world) {
            let before = old.clone();
            // Of two moments the later one.
            for (port, at) in ended {
                let known = old.entry(*port).or_insert(*at);
                *known = (*known).max(*at);
            }
            return *old != before;
        }
        // The less is assumed the better. Worlds that differ in that alone follow each other.
        if !world.over.is_empty() {
            let same = |w: &&World| (&w.state, &w.done) == (&world.state, &world.done);
            let first = World { over: Over::new(), ..world.clone() };
            let mut alike = self.worlds.range(first..).map(|(w, _)| w).take_while(same);
            if alike.any(|w| w.over.is_subset(&world.over)) {
                return false;
            }
        }
        self.worlds.insert(world, ended.clone());
        true
    }

    /// Adds every order of the commands in flight.
    fn close(&mut self, now: u64) {
        let mut new: Vec<World> = self.worlds.keys().cloned().collect();
        while let Some(world) = new.pop() {
            let Some(ended) = self.worlds.get(&world).cloned() else { continue };
            let mut found = Vec::new();
            for (op, p) in &self.pending {
                if world.done.contains_key(op) {
                    continue;
                }
                let (state, verdict, attentions) = world.state.after(p.port, p.session, p.act);
                let mut next = World { state, ..world.clone() };
                next.done.insert(*op, (verdict, attentions));
                found.push((next, ended.clone()));
            }
            if let Some((port, _)) = world.state.unit_reserved_by {
                let mut next = world.clone();
                next.state.unit_reserved_by = None;
                next.over.insert(port);
                let mut ended = ended.clone();
                ended.insert(port, now);
                found.push((next, ended));
            }
            for (next, ended) in found {
                if self.add(next.clone(), &ended) {
                    new.push(next);
                }
            }
        }
    }

    /// Records the states that are possible from now on.
    fn note(&mut self, now: u64) {
        let (mut seen, mut known) = (Seen::new(), BTreeSet::new());
        for world in self.worlds.keys() {
            if known.insert((&world.state, &world.over)) {
                seen.push((world.state.clone(), world.over.clone()));
            }
        }
        if self.history.last().is_none_or(|(_, old)| *old != seen) {
            self.history.push((now, seen));
        }
    }

    fn settle(&mut self, now: u64, why: &str) {
        assert!(!self.worlds.is_empty(), "{why}: no order of commands explains it");
        self.close(now);
        self.note(now);
    }

    /// Forgets what no command that is under way could have met.
    pub fn prune(&mut self, oldest: u64) {
        if self.history.len() > 32 {
            let first = self.history.partition_point(|(from, _)| *from < oldest);
            self.history.drain(..first.saturating_sub(1));
        }
    }

    pub fn has_capacity(&self) -> bool {
        self.pending.len() < UNDER_WAY_MAX
    }

    /// One more reset is not too many.
    pub fn allows_reset(&self) -> bool {
        self.pending.values().filter(|p| p.act == Act::Reset).count() < RESETS_MAX
    }

    /// Not too much is possible to change more.
    pub fn is_clear(&self) -> bool {
        self.worlds.len() <= WORLDS_CLEAR
    }

    /// One of the possible states, to choose a command by.
    pub fn guess(&self) -> &ReservationState {
        self.worlds.keys().next().map(|w| &w.state).expect("R1")
    }

    /// A command sets out.
    pub fn issue(&mut self, op: u64, who: usize, session: u64, act: Act, now: u64) {
        self.pending.insert(op, Pending { port: who, session, act });
        self.settle(now, "issue");
    }

    /// A command was answered; returns the unit attentions of the other ports.
    pub fn answer(
        &mut self,
        op: u64,
        verdict: &CommandOutcome,
        now: u64,
        who: &str,
    ) -> Vec<(usize, u8, Tidings)> {
        let Some(p) = self.pending.get(&op).copied() else { return Vec::new() };
        let before: Vec<_> = self.worlds.iter().map(|(w, e)| (w.clone(), e.clone())).collect();
        self.worlds.retain(|w, _| w.done.get(&op).is_some_and(|(v, _)| v == verdict));
        assert!(!self.worlds.is_empty(), "{who}: {:?} answered {verdict:?} in {before:#?}", p.act);
        let tolds: Vec<BTreeSet<(usize, u8)>> =
            self.worlds.keys().map(|w| w.done[&op].1.iter().copied().collect()).collect();
        let all: BTreeSet<(usize, u8)> = tolds.iter().flatten().copied().collect();
        let tiding = |one: &(usize, u8)| match tolds.iter().all(|t| t.contains(one)) {
            true => Tidings::Sure,
            false => Tidings::Certainty,
        };
        let out = all.iter().map(|one| (one.0, one.1, tiding(one))).collect();
        self.forget(op, now);
        out
    }

    /// It was refused for other reasons, and did nothing.
    pub fn refused(&mut self, op: u64, now: u64, who: &str) {
        if self.pending.contains_key(&op) {
            self.worlds.retain(|w, _| !w.done.contains_key(&op));
            assert!(!self.worlds.is_empty(), "{who}: refused, but it had an effect");
            self.forget(op, now);
        }
    }

    /// A command is over, and its effect is unknown.
    pub fn over(&mut self, op: u64, now: u64) {
        if self.pending.contains_key(&op) {
            self.forget(op, now);
        }
    }

    fn forget(&mut self, op: u64, now: u64) {
        self.pending.remove(&op);
        for (mut world, ended) in std::mem::take(&mut self.worlds) {
            world.done.remove(&op);
            self.add(world, &ended);
        }
        self.settle(now, "an end");
    }

    /// Ports that commands under way may affect: command, port, code.
    pub fn possible_attentions(&self) -> BTreeSet<(u64, usize, u8)> {
        type Attention = (u64, usize, u8);
        let of = |w: &World| -> Vec<Attention> {
            let each = |(op, (_, attentions)): (&u64, &(CommandOutcome, Attentions))| {
                attentions
                    .iter()
                    .map(|(port, code)| (*op, *port, *code))
                    .collect::<Vec<Attention>>()
            };
            w.done.iter().flat_map(each).collect()
        };
        self.worlds.keys().flat_map(of).collect()
    }

    /// A port may have the whole unit.
    pub fn may_be_whole(&self, port: usize) -> bool {
        self.worlds.keys().any(|w| w.state.unit_reserved_by.is_some_and(|(owner, _)| owner == port))
    }

    /// A PREEMPT AND ABORT is under way.
    pub fn aborts(&self) -> bool {
        self.pending.values().any(|p| matches!(p.act, Act::Preempt { abort: true, .. }))
    }

    /// States that a command may have met since its issue.
    pub fn may(&self, who: usize, session: u64, need: Need, issue: u64) -> May {
        let mut may = May::default();
        let first = self.history.partition_point(|(from, _)| *from <= issue).saturating_sub(1);
        for (state, ended) in self.history[first..].iter().flat_map(|(_, states)| states) {
            match (state.allows(who, session, need), ended) {
                (true, over) if over.is_empty() => may.run = true,
                (true, over) => drop(may.run_if_ended.insert(over.clone())),
                (false, _) => may.conflict = true,
            }
        }
        may
    }

    /// A command was carried out that only the end of sessions explains (R4).
    pub fn suspect(&mut self, over: BTreeSet<Over>, at: u64, who: String) {
        self.suspects.push(Suspect { over, at, command: who });
    }

    /// A port received an answer to a command of this moment: its session lived then.
    pub fn alive(&mut self, port: usize, issue: u64, now: u64) {
        for Suspect { over, at, command: who } in self.suspects.iter_mut().filter(|s| s.at < issue)
        {
            over.retain(|ports| !ports.contains(&port));
            let why = "in spite of the RESERVE of port";
            assert!(!over.is_empty(), "{who}: at {at} {why} {port}, which lives");
        }
        let wrong = |e: &Ended| e.get(&port).is_some_and(|at| *at < issue);
        if self.worlds.values().any(wrong) {
            self.worlds.retain(|_, e| !wrong(e));
            self.settle(now, "a session that lives");
        }
    }

    /// A port has logged in again: its session of before is over.
    pub fn new_session(&mut self, port: usize, now: u64) {
        for suspect in &mut self.suspects {
            let without = |o: &Over| o.iter().copied().filter(|p| *p != port).collect();
            suspect.over = suspect.over.iter().map(without).collect();
        }
        // States that required the end of that session were possible: it is over, whenever it
        // ended.
        for (_, over) in self.history.iter_mut().flat_map(|(_, seen)| seen) {
            over.remove(&port);
        }
        // Where nothing more has to be over it is explained.
        self.suspects.retain(|s| s.over.iter().all(|o| !o.is_empty()));
        for (mut world, mut ended) in std::mem::take(&mut self.worlds) {
            world.state.unit_reserved_by =
                world.state.unit_reserved_by.filter(|(owner, _)| *owner != port);
            ended.remove(&port);
            world.over.remove(&port);
            self.add(world, &ended);
        }
        self.settle(now, "a login");
    }

    /// R3.
    pub fn restart(&mut self, now: u64) {
        self.close(now);
        self.pending.clear();
        self.suspects.clear();
        for (world, _) in std::mem::take(&mut self.worlds) {
            let state = world.state.survivor();
            self.add(World { state, ..World::default() }, &Ended::new());
        }
        self.settle(now, "a restart");
    }
}
