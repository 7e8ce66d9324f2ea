//! Reservation rules of one unit, from the standards (SPC-4 5.12, SPC-2 5.5) and written for this
//! test. They are the effect of a command on a state, its answer, its unit attentions, and the
//! access rights.

use std::collections::BTreeMap;

/// Write exclusive, the only type here that lets all ports read, besides 5 and 7.
const WRITE_EXCLUSIVE: u8 = 1;
/// Types in which every registrant has access.
const REGISTRANTS: [u8; 4] = [5, 6, 7, 8];
/// Types that every registrant holds.
const ALL_REGISTRANTS: [u8; 2] = [7, 8];
/// All types.
pub const TYPES: [u8; 6] = [1, 3, 5, 6, 7, 8];

/// Second byte of unit attentions 2Ah.
pub const PREEMPTED: u8 = 3;
pub const RELEASED: u8 = 4;
pub const STRUCK: u8 = 5;

/// Registrations and reservation. Initiator ports are numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ReservationState {
    pub keys: BTreeMap<usize, u64>,
    /// Type and holder; no holder when every registrant holds it.
    pub held: Option<(u8, Option<usize>)>,
    pub aptpl: bool,
    /// RESERVE: port and its session.
    pub unit_reserved_by: Option<(usize, u64)>,
}

/// A command about reservations, or something that ends one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Act {
    Register {
        old: u64,
        new: u64,
        aptpl: bool,
    },
    Replace {
        new: u64,
        aptpl: bool,
    },
    Reserve {
        key: u64,
        kind: u8,
    },
    Release {
        key: u64,
        kind: u8,
    },
    Clear {
        key: u64,
    },
    Preempt {
        key: u64,
        victim: u64,
        kind: u8,
        abort: bool,
    },
    /// REGISTER AND MOVE, to another port.
    Move {
        key: u64,
        new: u64,
        to: usize,
        unregister: bool,
        aptpl: bool,
    },
    ReserveUnit,
    ReleaseUnit,
    ReadKeys,
    ReadHolder,
    /// LOGICAL UNIT RESET.
    Reset,
    /// The unit is taken out of the port's sight.
    Hide,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CommandOutcome {
    Good,
    Conflict,
    Illegal,
    Keys(Vec<u64>),
    Holder(Option<(u64, u8)>),
}

/// The access that a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Nothing at all.
    Nothing,
    /// That no other port has the whole unit (RESERVE).
    Sight,
    Read,
    Write,
}

/// The state afterwards, the answer, and which port gets which unit attention.
pub type Effect = (ReservationState, CommandOutcome, Vec<(usize, u8)>);

impl ReservationState {
    fn holds(&self, who: usize) -> bool {
        match self.held {
            Some((_, Some(holder))) => holder == who,
            Some((_, None)) => self.keys.contains_key(&who),
            None => false,
        }
    }

    fn has_access(&self, who: usize) -> bool {
        let admits = self.held.is_some_and(|(kind, _)| REGISTRANTS.contains(&kind));
        self.holds(who) || (admits && self.keys.contains_key(&who))
    }

    /// Whether a command may run.
    pub fn allows(&self, who: usize, session: u64, need: Need) -> bool {
        if let Some(owner) = self.unit_reserved_by {
            return owner == (who, session) || need == Need::Nothing;
        }
        let Some((kind, _)) = self.held else { return true };
        match need {
            Need::Nothing | Need::Sight => true,
            Need::Read => [WRITE_EXCLUSIVE, 5, 7].contains(&kind) || self.has_access(who),
            Need::Write => self.has_access(who),
        }
    }

    /// The part of the state that a restart of the daemon keeps.
    pub fn survivor(&self) -> ReservationState {
        match self.aptpl {
            true => ReservationState { unit_reserved_by: None, ..self.clone() },
            false => ReservationState::default(),
        }
    }

    fn other_ports(&self, but: usize) -> impl Iterator<Item = usize> {
        self.keys.keys().copied().filter(move |p| *p != but)
    }

    /// A registration is removed, and also the reservation when it has no holder any more; returns
    /// its type.
    fn unregister(&mut self, who: usize) -> Option<u8> {
        let held = self.holds(who);
        self.keys.remove(&who);
        let everybody = self.held.is_some_and(|(_, holder)| holder.is_none());
        if !held || (everybody && !self.keys.is_empty()) {
            return None;
        }
        self.held.take().map(|(kind, _)| kind)
    }

    fn released(&self, kind: u8, by: usize) -> Vec<(usize, u8)> {
        match REGISTRANTS.contains(&kind) {
            true => self.other_ports(by).map(|p| (p, RELEASED)).collect(),
            false => Vec::new(),
        }
    }

    /// The effect of a command of a port.
    pub fn after(&self, who: usize, session: u64, act: Act) -> Effect {
        let same = |verdict| (self.clone(), verdict, Vec::new());
        match act {
            Act::Reset => (
                ReservationState { unit_reserved_by: None, ..self.clone() },
                CommandOutcome::Good,
                Vec::new(),
            ),
            Act::Hide => {
                let unit_reserved_by = self.unit_reserved_by.filter(|(port, _)| *port != who);
                (
                    ReservationState { unit_reserved_by, ..self.clone() },
                    CommandOutcome::Good,
                    Vec::new(),
                )
            }
            Act::ReserveUnit | Act::ReleaseUnit => self.of_old(who, session, act),
            _ if self.unit_reserved_by.is_some() => same(CommandOutcome::Conflict),
            Act::ReadKeys => {
                let mut keys: Vec<u64> = self.keys.values().copied().collect();
                keys.sort_unstable();
                same(CommandOutcome::Keys(keys))
            }
            Act::ReadHolder => {
                let key = |holder: Option<usize>| holder.map_or(0, |p| self.keys[&p]);
                same(CommandOutcome::Holder(self.held.map(|(kind, holder)| (key(holder), kind))))
            }
            Act::Register { old, .. } if self.keys.get(&who).map_or(0, |k| *k) != old => {
                same(CommandOutcome::Conflict)
            }
            Act::Register { new, aptpl, .. } | Act::Replace { new, aptpl } => {
                self.register(who, new, aptpl)
            }
            Act::Reserve { key, .. }
            | Act::Release { key, .. }
            | Act::Clear { key }
            | Act::Preempt { key, .. }
            | Act::Move { key, .. }
                if self.keys.get(&who) != Some(&key) =>
            {
                same(CommandOutcome::Conflict)
            }
            Act::Reserve { kind, .. } => match self.held {
                Some((old, _)) if self.holds(who) && old == kind => same(CommandOutcome::Good),
                Some(_) => same(CommandOutcome::Conflict),
                None => {
                    let holder = (!ALL_REGISTRANTS.contains(&kind)).then_some(who);
                    let next = ReservationState { held: Some((kind, holder)), ..self.clone() };
                    (next, CommandOutcome::Good, Vec::new())
                }
            },
            Act::Release { kind, .. } => match self.held {
                Some((old, _)) if self.holds(who) && old != kind => same(CommandOutcome::Illegal),
                Some((old, _)) if self.holds(who) => {
                    let next = ReservationState { held: None, ..self.clone() };
                    (next, CommandOutcome::Good, self.released(old, who))
                }
                _ => same(CommandOutcome::Good),
            },
            Act::Clear { .. } => {
                let next = ReservationState { keys: BTreeMap::new(), held: None, ..self.clone() };
                (
                    next,
                    CommandOutcome::Good,
                    self.other_ports(who).map(|p| (p, PREEMPTED)).collect(),
                )
            }
            Act::Preempt { victim, kind, .. } => self.preempt(who, victim, kind),
            Act::Move { new, to, unregister, aptpl, .. } => {
                let (next, verdict) = self.moved(who, new, to, unregister);
                let aptpl = if verdict == CommandOutcome::Good { aptpl } else { self.aptpl };
                (ReservationState { aptpl, ..next }, verdict, Vec::new())
            }
        }
    }

    /// SPC-4 5.12.8: the reservation and its type move to another port without a unit attention.
    fn moved(
        &self,
        who: usize,
        new: u64,
        to: usize,
        unregister: bool,
    ) -> (ReservationState, CommandOutcome) {
        let same = |verdict| (self.clone(), verdict);
        match self.held {
            None => same(CommandOutcome::Illegal),
            Some((_, holder)) if holder != Some(who) => same(CommandOutcome::Conflict),
            Some(_) if new == 0 || to == who => same(CommandOutcome::Illegal),
            Some((kind, _)) => {
                let mut next = ReservationState { held: Some((kind, Some(to))), ..self.clone() };
                next.keys.insert(to, new);
                if unregister {
                    next.keys.remove(&who);
                }
                (next, CommandOutcome::Good)
            }
        }
    }

    /// RESERVE and RELEASE of SPC-2, beside registrations those of SPC-4 5.12.3.
    fn of_old(&self, who: usize, session: u64, act: Act) -> Effect {
        let (mut next, mut verdict) = (self.clone(), CommandOutcome::Good);
        if !self.keys.is_empty() {
            if !(self.held.is_some() && self.has_access(who)) {
                verdict = CommandOutcome::Conflict;
            }
        } else if act == Act::ReserveUnit {
            match self.unit_reserved_by {
                Some(owner) if owner != (who, session) => verdict = CommandOutcome::Conflict,
                _ => next.unit_reserved_by = Some((who, session)),
            }
        } else if self.unit_reserved_by == Some((who, session)) {
            next.unit_reserved_by = None;
        }
        (next, verdict, Vec::new())
    }

    fn register(&self, who: usize, new: u64, aptpl: bool) -> Effect {
        if new == 0 && !self.keys.contains_key(&who) {
            return (self.clone(), CommandOutcome::Good, Vec::new());
        }
        let mut next = ReservationState { aptpl, ..self.clone() };
        if new != 0 {
            next.keys.insert(who, new);
            return (next, CommandOutcome::Good, Vec::new());
        }
        let ended = next.unregister(who);
        let attentions = ended.map_or_else(Vec::new, |kind| next.released(kind, who));
        (next, CommandOutcome::Good, attentions)
    }

    fn preempt(&self, who: usize, victim: u64, kind: u8) -> Effect {
        let same = |verdict| (self.clone(), verdict, Vec::new());
        let takes = match self.held {
            None => false,
            Some((_, None)) => victim == 0,
            Some((_, Some(holder))) => self.keys[&holder] == victim,
        };
        if victim == 0 && !takes {
            return same(CommandOutcome::Illegal);
        }
        let meant = |(port, key): (&usize, &u64)| {
            let spared = takes && *port == who;
            ((victim == 0 || *key == victim) && !spared).then_some(*port)
        };
        let gone: Vec<usize> = self.keys.iter().filter_map(meant).collect();
        if gone.is_empty() && !takes {
            return same(CommandOutcome::Conflict);
        }
        let mut next = self.clone();
        for port in &gone {
            next.keys.remove(port);
        }
        let mut attentions: Vec<(usize, u8)> =
            gone.iter().filter(|p| **p != who).map(|p| (*p, STRUCK)).collect();
        if takes {
            let old = next.held.replace((kind, (!ALL_REGISTRANTS.contains(&kind)).then_some(who)));
            if old.is_some_and(|(old, _)| old != kind) {
                attentions.extend(next.other_ports(who).map(|p| (p, RELEASED)));
            }
        } else if next.keys.is_empty() {
            next.held = None;
        }
        (next, CommandOutcome::Good, attentions)
    }
}

#[test]
fn reservation_rules_permit_only_the_entitled_initiators() {
    let state = ReservationState::default();
    let (state, ..) = state.after(0, 1, Act::Replace { new: 7, aptpl: true });
    let (state, ..) = state.after(1, 1, Act::Register { old: 0, new: 8, aptpl: true });
    let (state, verdict, _) = state.after(0, 1, Act::Reserve { key: 7, kind: 5 });
    assert_eq!(verdict, CommandOutcome::Good);
    let may = |who, need| state.allows(who, 1, need);
    assert_eq!([0, 1, 2].map(|who| may(who, Need::Write)), [true, true, false]);
    assert!(may(2, Need::Read));
    let preempt = Act::Preempt { key: 8, victim: 7, kind: 3, abort: false };
    let (next, _, attentions) = state.after(1, 1, preempt);
    assert_eq!((next.held, attentions), (Some((3, Some(1))), vec![(0, STRUCK)]));
    assert_eq!(next.survivor(), next);
    assert_eq!(state.after(2, 1, Act::ReserveUnit).1, CommandOutcome::Conflict);
    let moves = |key, to| Act::Move { key, new: 9, to, unregister: true, aptpl: false };
    assert_eq!(state.after(1, 1, moves(8, 2)).1, CommandOutcome::Conflict, "it holds nothing");
    assert_eq!(state.after(0, 1, moves(7, 0)).1, CommandOutcome::Illegal, "to itself");
    let (moved, ..) = state.after(0, 1, moves(7, 2));
    assert_eq!((moved.held, moved.aptpl), (Some((5, Some(2))), false));
    assert_eq!(moved.keys, BTreeMap::from([(1, 8), (2, 9)]));
}
