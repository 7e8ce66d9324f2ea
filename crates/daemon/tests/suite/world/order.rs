//! Guarantees of task attributes: M5 of the model.

use wire::iscsi::Attribute;

use crate::world::agent::{Agent, Operation, Task};
use crate::world::model::When;

impl Agent {
    pub fn some_attribute(&self) -> Attribute {
        let ordering = self.shared.ordering.get();
        if ordering == 0 || !self.chance(ordering) {
            return Attribute::Simple;
        }
        [Attribute::Ordered, Attribute::Ordered, Attribute::HeadOfQueue][self.below(3) as usize]
    }

    /// Writes under way that end before a command with this attribute begins, if the ORDERED
    /// command named beside each is carried out: itself, or one between the two.
    pub fn writes_before(&self, lun: usize, issue: u64, attribute: Attribute) -> Vec<(u64, u64)> {
        let tasks = self.tasks.borrow();
        let here = || tasks.values().filter(|t| t.lun == lun);
        let last = match attribute {
            Attribute::HeadOfQueue => return Vec::new(),
            Attribute::Ordered => Some(issue),
            _ => here().filter(|t| t.attribute == Attribute::Ordered).map(|t| t.issue).max(),
        };
        let Some(last) = last else { return Vec::new() };
        let before = here().filter(|t| t.operation.writes() && t.granted && t.issue <= last);
        before.map(|t| (t.issue, last)).collect()
    }

    /// A command was carried out: all commands that it had to wait for were answered before it,
    /// except aborted ones, which are never answered.
    pub fn check_order(&self, task: &Task, who: &str) {
        let inside = |t: &Task| {
            t.operation == Operation::Sync || t.operation.reads() || t.operation.changes()
        };
        if !inside(task) || task.attribute == Attribute::HeadOfQueue {
            return;
        }
        let barrier = |t: &Task| t.attribute == Attribute::Ordered;
        let tasks = self.tasks.borrow();
        let older = tasks.values().filter(|t| t.lun == task.lun && t.issue < task.issue);
        let silent = |t: &Task| t.lost || t.aborting || t.unsure;
        let passed =
            older.filter(|t| inside(t) && !silent(t)).find(|t| barrier(task) || barrier(t));
        let passed = passed.map(|t| (t.operation, t.issue, t.attribute));
        assert!(passed.is_none(), "{who}: sent at {}, overtook {passed:?}", task.issue);
    }

    /// When a read that has ended took place.
    pub fn when(&self, task: &Task, now: u64) -> When {
        let ordered = self.ordered.borrow();
        let held = |(_, by): &&(u64, u64)| *by == task.issue || ordered.contains(by);
        let after = task.after.iter().filter(held).map(|(write, _)| *write).collect();
        let waits = |t: &&Task| match (task.attribute, t.attribute) {
            (_, Attribute::Ordered) => true,
            (Attribute::Ordered, other) => other != Attribute::HeadOfQueue,
            _ => false,
        };
        let tasks = self.tasks.borrow();
        let later = tasks.values().filter(|t| t.lun == task.lun && t.issue > task.issue);
        let before =
            later.filter(|t| t.operation.writes()).filter(waits).map(|t| t.issue).collect();
        When { began: task.issue, ended: now, after, before }
    }
}
