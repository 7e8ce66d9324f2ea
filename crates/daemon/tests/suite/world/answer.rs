//! Checks of the answers to an initiator: every rule that one connection can check.

use std::rc::Rc;

use wire::iscsi::{
    Attribute, NopOut, Response, TAG_NONE, TaskAnswer, TaskResponse, sense_of_segment,
    task_function,
};
use wire::scsi::{Asc, Key, Sense, parse_capacity16, parse_luns};

use crate::world::agent::{Agent, Operation, Task};
use crate::world::model::{Outcome, UNIT};
use crate::world::rights::Tidings;
use crate::world::shared::{Rights, Unit};
use crate::world::unit_attentions::MODE_CHANGED;

const GOOD: u8 = 0;
const CHECK: u8 = 2;
const BUSY: u8 = 8;
const CONFLICT: u8 = 0x18;
const FULL: u8 = 0x28;
const ABORTED: u8 = 0x40;

impl Agent {
    /// A PDU of the target.
    pub fn on_pdu(&self, response: Response, data: Vec<u8>) {
        let Some(conn) = self.conn.borrow().clone() else { return };
        match response {
            Response::DataIn(p) => {
                let mut tasks = self.tasks.borrow_mut();
                let task = tasks.get_mut(&p.task_tag);
                let task = task.unwrap_or_else(|| panic!("{}: data of no task: {p:?}", self.name));
                assert_eq!(p.offset as usize, task.got.len(), "{}: {p:?}", self.name);
                task.got.extend(data);
                assert!(task.got.len() <= task.expect_in, "{}: {p:?}", self.name);
                drop(tasks);
                if let Some((status, _)) = p.status {
                    self.answered(p.task_tag, status, None);
                }
            }
            Response::Scsi(p) => {
                assert_eq!(p.response, 0, "{}: {p:?}", self.name);
                let sense = (!data.is_empty()).then(|| {
                    let bytes = sense_of_segment(&data).expect("a sense segment");
                    Sense::decode(bytes).expect("sense data").code
                });
                self.answered(p.task_tag, p.status, sense);
            }
            Response::R2t(p) => {
                let (from, len) = (p.offset as usize, p.desired_len as usize);
                assert!(self.tasks.borrow().contains_key(&p.task_tag), "{}: {p:?}", self.name);
                self.send_data(&conn, p.task_tag, p.target_tag, from, from + len);
            }
            Response::NopIn(p) if p.target_tag != TAG_NONE => {
                let pong = NopOut {
                    immediate: true,
                    lun: p.lun,
                    task_tag: TAG_NONE,
                    target_tag: p.target_tag,
                    cmd_sn: conn.cmd_sn.get(),
                    exp_stat_sn: conn.exp_stat_sn.get(),
                    data_len: 0,
                };
                conn.send(&pong, &[]);
            }
            Response::NopIn(p) if p.task_tag == TAG_NONE => {}
            Response::NopIn(p) => {
                assert_eq!(data, b"knock");
                // A second ping may have been sent before the first was answered.
                if self.next_ping_is(p.task_tag) {
                    self.pinged(p.task_tag);
                }
            }
            Response::Task(p) => self.function_done(&p),
            Response::Async(_) => self.shared.log(|| format!("{}: told to leave", self.name)),
            Response::Logout(_) => {}
            other => panic!("{}: {other:?}", self.name),
        }
    }

    fn function_done(&self, p: &TaskResponse) {
        let f = self.functions.borrow_mut().remove(&p.task_tag);
        let f = f.unwrap_or_else(|| panic!("{}: answer to no function: {p:?}", self.name));
        self.shared.log(|| format!("{}: function of {}: {:?}", self.name, f.of, p.answer));
        self.reset_over(
            &f,
            match p.answer {
                TaskAnswer::Complete => Tidings::Sure,
                _ => Tidings::None,
            },
        );
        let gone = |tag: &u32, t: &Task| match f.function {
            task_function::ABORT_TASK => *tag == f.of,
            _ => t.lun == f.lun && t.issue < f.issue,
        };
        let mut tasks = self.tasks.borrow_mut();
        let tags: Vec<u32> =
            tasks.iter().filter(|(tag, t)| gone(tag, t)).map(|(tag, _)| *tag).collect();
        match p.answer {
            TaskAnswer::Complete => {
                self.shared.mark(if f.of == TAG_NONE { "resets" } else { "aborts" });
                let ended: Vec<Task> = tags.iter().filter_map(|t| tasks.remove(t)).collect();
                drop(tasks);
                ended.iter().for_each(|t| self.over(t, Outcome::Unknown));
            }
            TaskAnswer::NoTask => {
                // Unless another initiator's reset took it.
                for tag in tags {
                    if tasks.get(&tag).is_some_and(|t| t.lost) {
                        continue;
                    }
                    panic!("{}: task {tag} does not exist and was not answered", self.name);
                }
            }
            TaskAnswer::NoLun => {
                let unit = self.shared.unit(f.lun).expect("its LUN was a unit's");
                let grant = unit.grant(self.group);
                let moved = unit.changed.get()[self.group] > f.issue;
                assert!(moved || grant.may_be(Rights::None), "{}: {p:?} {grant:?}", self.name);
            }
            other => panic!("{}: function {} answered {other:?}", self.name, f.function),
        }
    }

    fn answered(&self, tag: u32, status: u8, sense: Option<Asc>) {
        let task = self.tasks.borrow_mut().remove(&tag);
        let Some(task) = task else { panic!("{}: answer to no task {tag}", self.name) };
        self.shared.log(|| format!("{}: {tag} status {status:#x} {sense:x?}", self.name));
        let unit = self.shared.unit(task.lun).expect("commands go to units");
        self.session_lives(&task);
        match (status, sense) {
            (GOOD, None) => self.good(&task, &unit),
            (CONFLICT, None) => self.conflict(&task, &unit),
            (CHECK, Some(sense)) => {
                let outcome = self.refused(&task, &unit, sense);
                if outcome == Outcome::Nothing {
                    self.rights_refused(&task, &unit);
                }
                self.over(&task, outcome);
            }
            (FULL, None) => {
                self.rights_refused(&task, &unit);
                self.over(&task, Outcome::Nothing);
            }
            (BUSY | ABORTED, None) => self.over(&task, Outcome::Unknown),
            other => panic!("{}: {other:x?}", self.name),
        }
    }

    fn good(&self, task: &Task, unit: &Unit) {
        let who = format!("{} {:?} lun {}", self.name, task.operation, task.lun);
        self.check_reported(task, &who);
        self.check_allowed(task, unit, &who);
        self.shared.states.borrow().check(task, &who);
        self.check_order(task, &who);
        if task.attribute == Attribute::Ordered {
            self.shared.mark("ordered");
            self.ordered.borrow_mut().insert(task.issue);
        }
        let grant = unit.grant(self.group);
        if !task.operation.is_exempt() {
            let refusable = grant.now == Rights::None && !task.unsure && grant.next.is_none();
            assert!(!refusable, "{who}: carried out without any right");
        }
        match task.operation {
            Operation::Read => {
                self.shared.mark("reads");
                let mut model = self.shared.model.borrow_mut();
                let when = self.when(task, model.tick());
                model.check(task.place, &task.got, &when, &who);
            }
            Operation::Look => {
                let bid = task.bid.as_ref().expect("it has one");
                let mut model = self.shared.model.borrow_mut();
                model.counters.seen(task.place, bid, &task.got, &who);
            }
            Operation::Count { fua } => {
                self.shared.mark("counts");
                return self.over(task, if fua { Outcome::Durable } else { Outcome::Good });
            }
            Operation::Write { .. } | Operation::Zero | Operation::Unmap => {
                assert!(task.granted, "{who}: written without the right to");
                self.shared.mark("writes");
                let off = task.mode_epoch == Some(unit.mode_epoch.get());
                let outcome = match task.operation {
                    Operation::Unmap => Outcome::Unknown,
                    Operation::Write { fua: true } => Outcome::Durable,
                    _ if off => Outcome::Durable,
                    _ => Outcome::Good,
                };
                return self.over(task, outcome);
            }
            Operation::Sync => {
                self.shared.mark("flushes");
                let mut model = self.shared.model.borrow_mut();
                model.flushed(task.place, task.issue);
            }
            Operation::Cache { on } => {
                self.shared.mark("modes");
                let alone = task.mode_epoch == Some(unit.mode_epoch.get());
                let tidings = match (alone && task.was_off, on) {
                    (true, true) => Tidings::Sure,
                    (true, false) => Tidings::None,
                    (false, _) => Tidings::Certainty,
                };
                self.shared.source_ends(task.issue, Some(MODE_CHANGED), tidings);
                self.over(task, Outcome::Nothing);
                return unit.cache_off.set(alone && !on);
            }
            Operation::Serial => {
                let held = String::from_utf8_lossy(task.got.get(4..).unwrap_or(&[])).into_owned();
                let none = task.got.first().is_some_and(|b| *b == 0x7f);
                assert!(none || held.trim() == unit.serial(), "{who}: serial {held:?}");
            }
            Operation::Luns => {
                // An initiator that has the list needs no report of its change (SPC-4 6.33).
                self.listed(task);
                self.check_luns(task, &who);
            }
            Operation::Capacity => {
                let seen = parse_capacity16(&task.got).expect("capacity");
                let blocks = (unit.place.get().count / unit.per) as u64;
                assert_eq!(seen.block_len as usize, unit.per * UNIT, "{who}");
                assert!(unit.resized.get() || seen.blocks == blocks, "{who}: {}", seen.blocks);
            }
            Operation::Rights(act) => self.rights_good(task, unit, act),
            Operation::Ready => {}
        }
        self.over(task, Outcome::Good);
    }

    fn check_luns(&self, task: &Task, who: &str) {
        if task.unsure {
            return;
        }
        let (luns, _) = parse_luns(&task.got).expect("a LUN list");
        let mut luns: Vec<usize> = luns.iter().map(|l| l.number() as usize).collect();
        luns.sort_unstable();
        let units = self.shared.units.borrow();
        if units.iter().any(|u| u.grant(self.group).next.is_some()) {
            return;
        }
        for lun in luns {
            let unit = units.iter().find(|u| u.lun == lun);
            let unit = unit.unwrap_or_else(|| panic!("{who}: LUN {lun} shown"));
            let grant = unit.grant(self.group);
            let settled = task.issue > self.changed_at(unit);
            assert!(!settled || grant.now != Rights::None, "{who}: LUN {lun} shown, {grant:?}");
        }
    }

    /// The last moment at which the rights to a unit changed for this group.
    fn changed_at(&self, unit: &Unit) -> u64 {
        unit.changed.get()[self.group]
    }

    /// Why a command was refused, and whether it may have done something.
    fn refused(&self, task: &Task, unit: &Rc<Unit>, sense: Asc) -> Outcome {
        let who = format!("{} {:?} lun {}: {sense:x?}", self.name, task.operation, task.lun);
        let grant = unit.grant(self.group);
        let sure = |rights| !task.unsure && grant.next.is_none() && grant.now == rights;
        match (sense.key, sense.asc, sense.ascq) {
            (Key::UnitAttention, asc, ascq) => {
                assert!(!task.operation.is_exempt(), "{who}");
                self.shared.mark("attentions");
                self.attention_reported(task, (asc, ascq), &who);
                Outcome::Nothing
            }
            (Key::DataProtect, 0x27, _) => {
                let writes =
                    task.operation.writes() || matches!(task.operation, Operation::Count { .. });
                assert!(writes || matches!(task.operation, Operation::Cache { .. }), "{who}");
                assert!(!sure(Rights::Write), "{who}: {grant:?}");
                self.shared.mark("write protected");
                Outcome::Nothing
            }
            (Key::IllegalRequest, 0x24 | 0x26, _) if self.rights_illegal(task, unit) => {
                Outcome::Nothing
            }
            (Key::HardwareError, 0x44, _) if matches!(task.operation, Operation::Rights(_)) => {
                assert!(self.shared.store.has_failed(), "{who}: every save went well");
                self.shared.mark("saves failed");
                Outcome::Nothing
            }
            (Key::IllegalRequest, 0x25, _) => {
                let seen = sure(Rights::Read) || sure(Rights::Write);
                assert!(!seen, "{who}: {grant:?}");
                self.shared.mark("no such unit");
                Outcome::Nothing
            }
            // A LUN without a visible unit has no VPD pages.
            (Key::IllegalRequest, 0x24, _) if task.operation == Operation::Serial => {
                assert!(!sure(Rights::Read) && !sure(Rights::Write), "{who}: {grant:?}");
                Outcome::Nothing
            }
            (Key::IllegalRequest, 0x20, _) if task.operation == Operation::Unmap => {
                Outcome::Nothing
            }
            (Key::IllegalRequest, 0x21, _) => {
                assert!(unit.resized.get(), "{who}: {:?} of {:?}", task.place, unit.place.get());
                Outcome::Nothing
            }
            (Key::MediumError | Key::HardwareError, ..) => {
                assert!(self.shared.fails(unit.place.get().disk), "{who}: nothing is wrong there");
                self.shared.mark("medium errors");
                Outcome::Unknown
            }
            (Key::NotReady, 0x04, ascq) if self.shared.states.borrow().explain(task, ascq) => {
                self.shared.mark("not accessible");
                Outcome::Nothing
            }
            (Key::Miscompare, ..) => {
                self.shared.mark("counts lost");
                let bid = task.bid.as_ref().expect("it has one");
                let mut model = self.shared.model.borrow_mut();
                model.counters.lost(task.place, bid, task.id, &who);
                Outcome::Nothing
            }
            (Key::NotReady, ..) => {
                assert!(!unit.exported.get() || task.unsure, "{who}: the unit is there");
                Outcome::Unknown
            }
            _ => panic!("{who}: never expected"),
        }
    }
}
