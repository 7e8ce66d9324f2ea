//! Unit attentions of an initiator: the required ones, the permitted ones, and that there are no
//! others.
//!
//! A source is any event that raises one: it begins and ends, and then it is known whether it has
//! raised one.
//!
//! ```text
//!   begins: may be reported from now on --> ends: sure --> due before any later command runs
//!                                             |-> maybe: may still be reported
//!                                             '-> none: must not be reported any more
//! ```
//! Invariants
//!  U1  A nexus reports that it is new (29/00 or 29/07) before it carries anything out.
//!  U2  A condition that was surely raised is reported before a command that was sent later is
//!      carried out.
//!  U3  A reported condition was raised, at this nexus, and not reported before; two sources that
//!      were there at once may be reported as one.
//!  U4  A change of LUNs (3F/0E) is reported once a session, by any unit or by REPORT LUNS.

use crate::world::agent::{Agent, Task};
use crate::world::rights::Tidings;
use crate::world::shared::SimContext;

pub type Code = (u8, u8);

pub const LUNS_CHANGED: Code = (0x3f, 0x0e);
pub const CAPACITY_CHANGED: Code = (0x2a, 9);
pub const MODE_CHANGED: Code = (0x2a, 1);
pub const ACCESS_CHANGED: Code = (0x2a, 6);
pub const RESET: Code = (0x29, 0);
const NEXUS_LOST: Code = (0x29, 7);
/// COMMANDS CLEARED BY ANOTHER INITIATOR.
pub const CLEARED: Code = (0x2f, 0);

/// The place of what concerns a session and no unit.
pub const SESSION: usize = usize::MAX;

/// A unit attention that may be reported.
#[derive(Clone, Debug)]
pub struct Owed {
    lun: usize,
    code: Code,
    source: u64,
    /// Its source has ended, at that moment.
    due: Option<u64>,
    /// The nexus was there when the source began.
    sure: bool,
}

/// A source that has begun: its unit, its code and the nexuses that it concerns.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub number: u64,
    pub lun: usize,
    pub code: Code,
    /// Only the nexuses of this group, or all nexuses.
    pub group: Option<usize>,
    /// Not this port's.
    pub except: Option<usize>,
}

impl Source {
    fn concerns(&self, agent: &Agent) -> bool {
        self.group.is_none_or(|g| g == agent.group) && self.except != Some(agent.index)
    }
}

impl SimContext {
    pub fn source_begins(&self, source: Source) {
        self.sources.borrow_mut().push(source);
        for agent in self.agents.borrow().iter().filter(|a| source.concerns(a)) {
            agent.owe(source.lun, source.code, source.number, true);
        }
    }

    /// The result of a source is known, for all of its codes or for one.
    pub fn source_ends(&self, number: u64, code: Option<Code>, tidings: Tidings) {
        let ended = |s: &Source| s.number == number && code.is_none_or(|c| s.code == c);
        self.sources.borrow_mut().retain(|s| !ended(s));
        for agent in self.agents.borrow().iter() {
            agent.owed_is(number, code, tidings);
        }
    }
}

impl Agent {
    /// A source has begun that may raise an attention at this port's nexus.
    pub fn owe(&self, lun: usize, code: Code, source: u64, sure: bool) {
        if self.conn.borrow().is_some() {
            self.owed.borrow_mut().push(Owed { lun, code, source, due: None, sure });
        }
        self.owed_of.borrow_mut().insert((source, code));
    }

    /// This source was counted already.
    pub fn is_owed(&self, source: u64, code: Code) -> bool {
        self.owed_of.borrow().contains(&(source, code))
    }

    /// A source that has ended has raised it for sure.
    pub fn is_owed_surely(&self, source: u64, code: Code) -> bool {
        let owed = self.owed.borrow();
        owed.iter().any(|o| (o.source, o.code) == (source, code) && o.sure && o.due.is_some())
    }

    /// A source has ended.
    pub fn owed_is(&self, source: u64, code: Option<Code>, tidings: Tidings) {
        let now = self.shared.model.borrow_mut().tick();
        let meant = |o: &Owed| o.source == source && code.is_none_or(|c| c == o.code);
        let mut owed = self.owed.borrow_mut();
        if tidings == Tidings::None {
            return owed.retain(|o| !meant(o));
        }
        for o in owed.iter_mut().filter(|o| meant(o) && o.due.is_none()) {
            o.due = Some(now);
            o.sure &= tidings == Tidings::Sure;
        }
    }

    /// A session begins: sources under way may have begun before it or not.
    pub fn owes_at_login(&self) {
        self.owed.borrow_mut().clear();
        self.greeted.borrow_mut().clear();
        self.owe(SESSION, LUNS_CHANGED, 0, false);
        for source in self.shared.sources.borrow().iter().filter(|s| s.concerns(self)) {
            self.owe(source.lun, source.code, source.number, false);
        }
        for unit in self.shared.units.borrow().iter() {
            for (op, port, code) in unit.book.borrow().possible_attentions() {
                if port == self.index {
                    self.owe(unit.lun, (0x2a, code), op, false);
                }
            }
        }
    }

    /// The unit becomes invisible, and raised conditions are forgotten. Commands in flight may
    /// still raise some when the unit is visible again.
    pub fn forget_owed(&self, lun: usize) {
        self.greeted.borrow_mut().retain(|l| *l != lun);
        let mut owed = self.owed.borrow_mut();
        owed.retain(|o| o.lun != lun || o.due.is_none());
        owed.iter_mut().filter(|o| o.lun == lun).for_each(|o| o.sure = false);
    }

    /// U1, U2: a command was carried out, or refused by a check that follows unit attentions.
    pub fn check_reported(&self, task: &Task, who: &str) {
        if task.operation.is_exempt() || task.unsure {
            return;
        }
        assert!(self.greeted.borrow().contains(&task.lun), "{who}: no unit attention at first");
        let owed = self.owed.borrow();
        let waits =
            |o: &&Owed| o.lun == task.lun && o.sure && o.due.is_some_and(|d| d < task.issue);
        let due = owed.iter().find(waits);
        assert!(due.is_none(), "{who}: carried out before {due:x?} was told");
    }

    /// A unit attention was reported.
    pub fn attention_reported(&self, task: &Task, code: Code, who: &str) {
        let new = code.0 == 0x29 && !self.greeted.borrow().contains(&task.lun);
        if new {
            assert!([RESET, NEXUS_LOST].contains(&code), "{who}");
            self.greeted.borrow_mut().push(task.lun);
            // Conditions that were raised before the nexus existed are covered; later ones are not.
            self.owed.borrow_mut().iter_mut().filter(|o| o.lun == task.lun).for_each(|o| {
                o.sure = false;
            });
            if task.unsure {
                // It may have been the nexus of before the unit was out of sight.
                self.owe(task.lun, RESET, 0, false);
            }
            return;
        }
        let found = self.take_reported(task.lun, code, task.issue);
        assert!(found || task.unsure, "{who}: nothing raised it, or it was told before");
    }

    /// REPORT LUNS reports that LUNs have changed (SPC-4 6.33).
    pub fn listed(&self, task: &Task) {
        self.take_reported(task.lun, LUNS_CHANGED, task.issue);
    }

    /// U3: conditions that existed before the command was sent are reported with it; for later ones
    /// this is unknown.
    fn take_reported(&self, lun: usize, code: Code, issue: u64) -> bool {
        let mut owed = self.owed.borrow_mut();
        let meant = |o: &Owed| o.code == code && (o.lun == lun || code == LUNS_CHANGED);
        let before = owed.len();
        let some = owed.iter().filter(|o| meant(o)).count();
        owed.retain(|o| !meant(o) || o.due.is_none_or(|due| due >= issue));
        if before == owed.len() && some == 1 {
            owed.retain(|o| !meant(o));
        }
        owed.iter_mut().filter(|o| meant(o)).for_each(|o| o.sure = false);
        some > 0
    }
}
