//! Asymmetric access: the states in which the target's port group may have been, and when.
//!
//! Invariants
//!  S1  A command that reaches the medium was sent, or under way, while the state was active.
//!  S2  A refusal names a state that was possible while the command was under way.
//!  S3  Every nexus is notified of a change once (`unit_attentions.rs`), and of none that was taken
//!      back.

use engine::alua::{AccessState, DEFAULT_GROUP_ID, Stage, StateCause};

use crate::world::agent::{Operation, Task};
use crate::world::model::OPEN;
use crate::world::rules::Act;
use crate::world::sim::{MS, Sim};
use crate::world::unit_attentions::ACCESS_CHANGED;

/// Both active states.
const ACTIVE: [u8; 2] = [0, 1];
/// Second byte of NOT READY, and the state.
const REFUSALS: [(u8, u8); 4] = [(0x0a, 0xf), (0x0b, 2), (0x0c, 3), (0x12, 0xe)];

/// From when until when a state was possible.
pub struct States(Vec<(u64, u64, u8)>);

impl Default for States {
    fn default() -> States {
        States(vec![(0, OPEN, 0)])
    }
}

impl States {
    /// From now on these and no others are possible.
    fn set(&mut self, now: u64, codes: &[u8]) {
        self.0.iter_mut().filter(|s| s.1 == OPEN).for_each(|s| s.1 = now);
        self.0.extend(codes.iter().map(|code| (now, OPEN, *code)));
    }

    fn were(&self, since: u64, codes: &[u8]) -> bool {
        self.0.iter().any(|(_, until, code)| *until >= since && codes.contains(code))
    }

    /// The daemon has started: the state is the configured one.
    pub fn restart(&mut self, now: u64) {
        self.set(now, &[0]);
    }

    /// S1.
    pub fn check(&self, task: &Task, who: &str) {
        let free = match task.operation {
            Operation::Serial | Operation::Luns | Operation::Capacity | Operation::Cache { .. } => {
                true
            }
            Operation::Rights(act) => !matches!(act, Act::ReserveUnit | Act::ReleaseUnit),
            _ => false,
        };
        if !free {
            self.carried_out(task.issue, who);
        }
    }

    /// S1, for a command of that moment which needs the medium.
    pub fn carried_out(&self, issue: u64, who: &str) {
        assert!(self.were(issue, &ACTIVE), "{who}: carried out in {:?}", self.0.last());
    }

    /// S2, where the refusal names no state.
    pub fn were_not_active(&self, issue: u64) -> bool {
        self.0.iter().any(|(_, until, code)| *until >= issue && !ACTIVE.contains(code))
    }

    /// S2. False when the refusal is about something else.
    pub fn explain(&self, task: &Task, ascq: u8) -> bool {
        let meant = REFUSALS.iter().find(|(code, _)| *code == ascq);
        meant.is_some_and(|(_, state)| self.were(task.issue, &[*state]))
    }
}

impl Sim {
    fn states(&self, codes: &[u8]) {
        let now = self.tick();
        self.shared.states.borrow_mut().set(now, codes);
    }

    /// The port group changes its state, and becomes active again.
    pub fn change_access(&mut self) {
        let to = [1, 2, 3, 0xe][self.below(4) as usize];
        self.access_to(0, to);
        let ns = self.below(60 * MS);
        self.stack().pass(ns);
        let from = self.stack().registry.port_groups()[0].state().code();
        self.access_to(from, 0);
    }

    fn access_to(&mut self, from: u8, to: u8) {
        if from == to {
            return;
        }
        let source = self.tick();
        for unit in self.exported() {
            self.source_begins(source, None, unit.lun, ACCESS_CHANGED);
        }
        self.states(&[from, 0xf, to]);
        let state = AccessState::from_code(to).expect("a state");
        let registry = self.stack().registry.clone();
        let wanted = [(DEFAULT_GROUP_ID, state)];
        let begun = registry.set_access_states(&wanted, StateCause::Implicit, None);
        let begun = begun.unwrap_or_else(|e| panic!("access state {to}: {e}"));
        self.states(&[0xf, to]);
        for _ in 0..self.below(20) {
            if begun.stage() != Stage::Draining {
                break;
            }
            self.stack().pass(20 * MS);
        }
        let done = registry.give_up(&begun) == Stage::Done;
        self.states(&[if done { to } else { from }]);
        self.log(|| format!("access state {from} to {to}: {done}"));
        self.shared.mark(if done { "access changes" } else { "access changes given up" });
        self.source_ends(source, done);
    }
}
