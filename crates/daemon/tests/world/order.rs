//! What task attributes promise: M5 of the model.

use wire::iscsi::Attribute;

use crate::agent::{Agent, Task};
use crate::model::When;

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
        let before = here().filter(|t| t.what.writes() && t.granted && t.issue <= last);
        before.map(|t| (t.issue, last)).collect()
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
        let before = later.filter(|t| t.what.writes()).filter(waits).map(|t| t.issue).collect();
        When { began: task.issue, ended: now, after, before }
    }
}
