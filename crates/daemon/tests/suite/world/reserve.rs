//! Reservation commands of an initiator, and the checks of their answers.

use std::rc::Rc;

use testkit::iscsi::Conn;
use wire::scsi::{PrMove, PrOutList, TransportId, parse_pr_keys, parse_pr_reservation};

use crate::world::agent::{Agent, Function, Operation, Task};
use crate::world::rights::Tidings;
use crate::world::rules::{Act, CommandOutcome, Need, ReservationState, STRUCK, TYPES};
use crate::world::shared::{SimContext, Unit};
use crate::world::stack::RELATIVE_PORT;
use crate::world::unit_attentions::{CLEARED, Source};

/// Longest answer to PERSISTENT RESERVE IN that is requested.
const REPLY_LEN: usize = 256;

/// Bytes expected of an act.
pub fn reply_len(act: Act) -> usize {
    if matches!(act, Act::ReadKeys | Act::ReadHolder) { REPLY_LEN } else { 0 }
}

/// The CDB of an act.
pub fn cdb(act: Act, expect_in: usize, out: usize, ten: bool) -> [u8; 16] {
    let mut cdb = [0; 16];
    let (action, kind) = match act {
        Act::ReserveUnit | Act::ReleaseUnit => {
            cdb[0] = 0x16 + u8::from(act == Act::ReleaseUnit) + if ten { 0x40 } else { 0 };
            return cdb;
        }
        Act::ReadKeys | Act::ReadHolder => {
            (cdb[0], cdb[1]) = (0x5e, u8::from(act == Act::ReadHolder));
            cdb[7..9].copy_from_slice(&(expect_in as u16).to_be_bytes());
            return cdb;
        }
        Act::Register { .. } => (0, 0),
        Act::Reserve { kind, .. } => (1, kind),
        Act::Release { kind, .. } => (2, kind),
        Act::Clear { .. } => (3, 0),
        Act::Preempt { kind, abort, .. } => (4 + u8::from(abort), kind),
        Act::Replace { .. } => (6, 0),
        Act::Move { .. } => (7, 0),
        Act::Reset | Act::Hide => unreachable!("no command"),
    };
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, kind, out as u8);
    cdb
}

/// The parameter list of an act.
fn list(act: Act, to: Option<PrMove>) -> Vec<u8> {
    let (key, action_key, aptpl) = match act {
        Act::Register { old, new, aptpl } => (old, new, aptpl),
        Act::Replace { new, aptpl } => (0, new, aptpl),
        Act::Reserve { key, .. } | Act::Release { key, .. } | Act::Clear { key } => (key, 0, false),
        Act::Preempt { key, victim, .. } => (key, victim, false),
        Act::Move { key, new, aptpl, .. } => (key, new, aptpl),
        _ => return Vec::new(),
    };
    PrOutList { key, action_key, aptpl, to, ..PrOutList::default() }.encode()
}

impl SimContext {
    /// Something that changes reservations sets out.
    pub fn act_begins(&self, agent: &Agent, unit: &Unit, op: u64, act: Act) {
        let now = self.model.borrow_mut().tick();
        let mut book = unit.book.borrow_mut();
        book.prune(self.oldest_command());
        book.issue(op, agent.index, agent.session.get(), act, now);
        drop(book);
        self.expect_attentions(unit);
    }

    /// All ports that may get its unit attention may get it from now on.
    fn expect_attentions(&self, unit: &Unit) {
        for (op, port, code) in unit.book.borrow().possible_attentions() {
            let agents = self.agents.borrow();
            let (agent, code) = (&agents[port], (0x2a, code));
            if !agent.is_owed(op, code) {
                agent.owe(unit.lun, code, op, true);
            }
        }
    }

    /// It was answered.
    pub fn act_ends(&self, unit: &Unit, op: u64, verdict: &CommandOutcome, who: &str) {
        let now = self.model.borrow_mut().tick();
        let attentions = unit.book.borrow_mut().answer(op, verdict, now, who);
        for agent in self.agents.borrow().iter() {
            for code in [3, 4, 5] {
                let of = attentions.iter().find(|t| (t.0, t.1) == (agent.index, code));
                let tidings = of.map_or(Tidings::None, |t| t.2);
                agent.owed_is(op, Some((0x2a, code)), tidings);
            }
        }
        if attentions.iter().any(|t| t.2 != Tidings::None) {
            self.mark("reservations to tell");
        }
        self.expect_attentions(unit);
    }

    /// R2, for a command of that moment that was carried out: its port and session, and the access
    /// that it needs.
    pub fn must_be_allowed(
        &self,
        unit: &Unit,
        (port, session): (usize, u64),
        need: Need,
        issue: u64,
        who: &str,
    ) {
        let mut book = unit.book.borrow_mut();
        let may = book.may(port, session, need, issue);
        let now = self.model.borrow_mut().tick();
        if !may.run {
            let over = may.run_if_ended;
            assert!(!over.is_empty(), "{who}: carried out in spite of {:?}", book.guess());
            book.suspect(over, now, who.to_owned());
        }
    }
}

impl Agent {
    /// The parameter list of an act.
    pub fn list_of(&self, act: Act) -> Vec<u8> {
        let Act::Move { to, unregister, .. } = act else { return list(act, None) };
        let agents = self.shared.agents.borrow();
        let how = &agents[to].login_options;
        let port = TransportId::iscsi_port(&how.initiator, how.isid_bytes()).expect("a name");
        list(act, Some(PrMove { unregister, target: RELATIVE_PORT, port }))
    }

    /// A command about reservations that often makes sense.
    pub fn some_rights(&self, conn: &Rc<Conn>, unit: &Rc<Unit>) {
        let busy = self
            .tasks
            .borrow()
            .values()
            .any(|t| t.lun == unit.lun && matches!(t.operation, Operation::Rights(_)));
        if busy || !unit.book.borrow().has_capacity() {
            return;
        }
        let state = unit.book.borrow().guess().clone();
        let act = match unit.book.borrow().is_clear() {
            true => self.some_act(&state),
            false if self.chance(500) => Act::ReadHolder,
            false => Act::ReadKeys,
        };
        self.start(conn, unit, Operation::Rights(act));
    }

    fn some_act(&self, state: &ReservationState) -> Act {
        let me = self.index;
        if state.unit_reserved_by.is_some_and(|(port, _)| port == me) && self.chance(600) {
            return Act::ReleaseUnit;
        }
        let known = state.keys.get(&me).copied().unwrap_or(0);
        let key = if self.chance(100) { 0x999 } else { known };
        let new = 0x1000 * (me as u64 + 1) + self.below(3);
        let kind = TYPES[self.below(6) as usize];
        let aptpl = self.chance(600);
        let held = state.held.map_or(kind, |(kind, _)| kind);
        let others: Vec<u64> = state.keys.values().copied().collect();
        let victim = match self.below(others.len() as u64 + 1) as usize {
            0 => 0,
            n => others[n - 1],
        };
        let holder = state.held.and_then(|(_, holder)| holder);
        if self.shared.moving.get() && self.chance(if holder == Some(me) { 250 } else { 10 }) {
            let to = self.below(self.shared.agents.borrow().len() as u64) as usize;
            let new = if self.chance(50) { 0 } else { new };
            let unregister = self.chance(500);
            return Act::Move { key, new, to, unregister, aptpl };
        }
        if known == 0 && self.chance(500) {
            return match self.chance(500) {
                true => Act::Register { old: 0, new, aptpl },
                false => Act::Replace { new, aptpl },
            };
        }
        match self.below(100) {
            0..10 => Act::Register { old: key, new, aptpl },
            10..16 => Act::Replace { new, aptpl },
            16..22 => Act::Register { old: key, new: 0, aptpl },
            22..42 => Act::Reserve { key, kind },
            42..56 => Act::Release { key, kind: if self.chance(900) { held } else { kind } },
            56..60 => Act::Clear { key },
            60..78 => Act::Preempt { key, victim, kind, abort: self.chance(400) },
            78..82 => Act::ReserveUnit,
            82..86 => Act::ReleaseUnit,
            86..93 => Act::ReadKeys,
            _ => Act::ReadHolder,
        }
    }

    pub fn rights_begin(&self, unit: &Rc<Unit>, issue: u64, act: Act) {
        self.shared.mark("acts");
        self.shared.act_begins(self, unit, issue, act);
        if let Act::Preempt { abort: true, .. } = act {
            unit.resets.borrow_mut().push(issue);
            // Commands of the others may end without an answer from now on.
            let (lun, code, group) = (unit.lun, CLEARED, None);
            let source = Source { number: issue, lun, code, group, except: Some(self.index) };
            self.shared.source_begins(source);
            for agent in self.shared.agents.borrow().iter() {
                let mut tasks = agent.tasks.borrow_mut();
                tasks.values_mut().filter(|t| t.lun == unit.lun).for_each(|t| t.lost = true);
            }
        }
    }

    /// R2, for one that was carried out.
    pub fn check_allowed(&self, task: &Task, unit: &Unit, who: &str) {
        if let Some(need) = task.operation.need() {
            let nexus = (self.index, self.session.get());
            self.shared.must_be_allowed(unit, nexus, need, task.issue, who);
        }
    }

    /// RESERVATION CONFLICT.
    pub fn conflict(&self, task: &Task, unit: &Rc<Unit>) {
        let who =
            format!("{} {:?} lun {}: reservation conflict", self.name, task.operation, task.lun);
        self.check_reported(task, &who);
        self.shared.mark("conflicts");
        match task.operation.need() {
            None => self.shared.act_ends(unit, task.issue, &CommandOutcome::Conflict, &who),
            Some(need) => {
                let book = unit.book.borrow();
                let may = book.may(self.index, self.session.get(), need, task.issue);
                assert!(may.conflict, "{who} in {:?}", book.guess());
            }
        }
        self.over(task, crate::world::model::Outcome::Nothing);
    }

    /// An answer proves that the session lived when its command was sent.
    pub fn session_lives(&self, task: &Task) {
        for unit in self.shared.units.borrow().iter() {
            let now = self.shared.model.borrow_mut().tick();
            unit.book.borrow_mut().alive(self.index, task.issue, now);
        }
    }

    pub fn rights_good(&self, task: &Task, unit: &Unit, act: Act) {
        let who = format!("{} {act:?} lun {}", self.name, task.lun);
        let verdict = match act {
            Act::ReadKeys => {
                let (_, mut keys) = parse_pr_keys(&task.got).expect("a list of keys");
                keys.sort_unstable();
                CommandOutcome::Keys(keys)
            }
            Act::ReadHolder => {
                let (_, held) = parse_pr_reservation(&task.got).expect("a reservation");
                CommandOutcome::Holder(held.map(|(key, kind)| (key, kind.code())))
            }
            _ => CommandOutcome::Good,
        };
        self.shared.mark("acts done");
        self.shared.act_ends(unit, task.issue, &verdict, &who);
        if let Act::Preempt { abort: true, .. } = act {
            self.aborted_by(task);
        }
    }

    /// A port that was surely preempted has no older command at the medium.
    fn aborted_by(&self, of: &Task) {
        let oldest = self.shared.oldest_read();
        for agent in self.shared.agents.borrow().iter() {
            if !agent.is_owed_surely(of.issue, (0x2a, STRUCK)) {
                continue;
            }
            let tasks = agent.tasks.borrow();
            let mut model = self.shared.model.borrow_mut();
            let gone = |t: &&Task| t.lun == of.lun && t.issue < of.issue;
            for t in tasks.values().filter(gone).filter(|t| t.operation.writes() && t.granted) {
                model.end(t.place, t.id, t.issue, crate::world::model::Outcome::Unknown, oldest);
            }
        }
    }

    /// A CHECK CONDITION that reports a wrong act; false when the task is none.
    pub fn rights_illegal(&self, task: &Task, unit: &Rc<Unit>) -> bool {
        if let Operation::Rights(act) = task.operation {
            let who = format!("{} {act:?} lun {}", self.name, task.lun);
            self.shared.act_ends(unit, task.issue, &CommandOutcome::Illegal, &who);
        }
        matches!(task.operation, Operation::Rights(_))
    }

    /// It was refused before its parameters were examined.
    pub fn rights_refused(&self, task: &Task, unit: &Rc<Unit>) {
        if let Operation::Rights(act) = task.operation {
            let who = format!("{} {act:?} lun {}", self.name, task.lun);
            let now = self.shared.model.borrow_mut().tick();
            unit.book.borrow_mut().refused(task.issue, now, &who);
            self.shared.source_ends(task.issue, None, Tidings::None);
        }
    }

    /// It is over, and its effect is unknown.
    pub fn rights_over(&self, task: &Task) {
        let Some(unit) = self.shared.unit(task.lun) else { return };
        let now = self.shared.model.borrow_mut().tick();
        unit.book.borrow_mut().over(task.issue, now);
        self.shared.source_ends(task.issue, None, Tidings::Certainty);
    }

    pub fn reset_rights_over(&self, unit: &Unit, f: &Function, tidings: Tidings) {
        let now = self.shared.model.borrow_mut().tick();
        match tidings {
            Tidings::Sure => {
                drop(unit.book.borrow_mut().answer(f.issue, &CommandOutcome::Good, now, ""))
            }
            Tidings::None => unit.book.borrow_mut().refused(f.issue, now, "reset"),
            Tidings::Certainty => unit.book.borrow_mut().over(f.issue, now),
        }
    }
}
