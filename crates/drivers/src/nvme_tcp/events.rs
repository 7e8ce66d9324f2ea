//! Asynchronous events of a controller.
//!
//! Once a watch period the current view of the host is compared with the view last reported. The
//! comparison covers units that were added or removed, sizes, write protection and deallocation
//! features; in discovery, the records. These are the changes that the engine reports to SCSI
//! initiators by unit attentions.
//!
//! Invariants
//!  A1  An event is reported once, until its log page has been read; later changes are in the page.
//!  A2  No change is lost for want of a request: it waits for the next one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::nvme::codes::event;
use wire::nvme::{Command, Namespace, Status};

use super::admin::{Admin, AdminAnswer};
use super::identify::{EVENT_REQUESTS, namespace};
use super::io::namespace_of;
use super::queue::Queue;

/// The namespaces that the host knows: the unit of each, and its Identify data.
type NamespaceView = BTreeMap<u32, (u32, Namespace)>;

/// See the module.
#[derive(Default)]
pub(crate) struct Events {
    /// CIDs of the requests, oldest first.
    requests: VecDeque<u16>,
    /// Feature 0Bh.
    wanted: u32,
    namespaces: NamespaceView,
    /// In discovery: the records that the host knows.
    generation: u64,
    changed: BTreeSet<u32>,
    /// Something has changed that the host has not read.
    has_unread: bool,
    /// A1
    reported: bool,
}

impl Events {
    /// Requests that have no answer.
    pub fn waiting(&self) -> u16 {
        u16::try_from(self.requests.len()).unwrap_or(u16::MAX)
    }

    /// Drops a request; false when there is none.
    pub fn forget(&mut self, id: u16) -> bool {
        let before = self.requests.len();
        self.requests.retain(|r| *r != id);
        self.requests.len() < before
    }

    pub fn reset(&mut self) {
        (self.requests, self.wanted, self.reported) = (VecDeque::new(), 0, false);
    }

    /// Feature 0Bh.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Sets it.
    pub fn want(&mut self, wanted: u32) {
        self.wanted = wanted;
    }

    /// Namespaces that have changed since the list was read last.
    pub fn changed(&self) -> Vec<u32> {
        self.changed.iter().copied().collect()
    }

    pub fn read(&mut self) {
        self.changed.clear();
        (self.has_unread, self.reported) = (false, false);
    }

    /// Replaces the host's view by the current one and records the changes.
    fn update_namespaces(&mut self, now: NamespaceView) {
        let was = std::mem::replace(&mut self.namespaces, now);
        let numbers = was.keys().chain(self.namespaces.keys());
        let differs = |n: &&u32| was.get(n) != self.namespaces.get(n);
        let changed: Vec<u32> = numbers.filter(differs).copied().collect();
        self.has_unread |= !changed.is_empty();
        self.changed.extend(changed);
    }

    fn update_records(&mut self, generation: u64) {
        self.has_unread |= std::mem::replace(&mut self.generation, generation) != generation;
    }

    /// The request to be answered with the event now, if the event is to be reported.
    fn take_reportable(&mut self, bit: u32) -> Option<u16> {
        if !self.has_unread || self.reported || self.wanted & bit == 0 {
            return None;
        }
        let id = self.requests.pop_front()?;
        self.reported = true;
        Some(id)
    }
}

impl Queue {
    fn namespace_view(&self) -> NamespaceView {
        let map = self.nexus().map(|n| n.map());
        let of = |e: &std::sync::Arc<engine::registry::LunEntry>| {
            Some((namespace_of(e)?, (e.device.number(), namespace(e))))
        };
        map.iter().flat_map(|m| m.iter()).filter_map(of).collect()
    }

    /// Starts an admin queue: the current view of the host counts as known.
    pub fn began(&self) {
        let Some(admin) = &self.admin else { return };
        let discovers = self.controller.target.is_none();
        let mut events = admin.events.borrow_mut();
        match discovers {
            true => events.generation = self.subsystems().0,
            false => events.namespaces = self.namespace_view(),
        }
    }

    /// Looks for changes and reports them.
    pub fn check_changes(&self) {
        let Some(admin) = &self.admin else { return };
        match self.controller.target.is_none() {
            true => admin.events.borrow_mut().update_records(self.subsystems().0),
            false => admin.events.borrow_mut().update_namespaces(self.namespace_view()),
        }
        self.report_event(admin);
    }

    fn report_event(&self, admin: &Admin) {
        let (bit, what) = match self.controller.target.is_none() {
            true => (event::DISCOVERY_BIT, event::DISCOVERY_CHANGED),
            false => (event::NAMESPACE_BIT, event::NAMESPACE_CHANGED),
        };
        let reportable = admin.events.borrow_mut().take_reportable(bit);
        if let Some(id) = reportable {
            self.end_command(id, what.into(), Status::SUCCESS);
        }
    }

    pub fn event_request(&self, admin: &Admin, command: &Command) -> AdminAnswer {
        if admin.events.borrow().requests.len() > usize::from(EVENT_REQUESTS) {
            return Status::EVENTS_EXCEEDED.into();
        }
        admin.events.borrow_mut().requests.push_back(command.id);
        self.report_event(admin);
        AdminAnswer::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(blocks: &[u64]) -> NamespaceView {
        let one = |blocks: &u64| (1, Namespace { blocks: *blocks, ..Namespace::default() });
        (1u32..).zip(blocks.iter().map(one)).collect()
    }

    /// A1.
    #[test]
    fn change_is_reported_once_until_it_is_read() {
        let bit = event::NAMESPACE_BIT;
        let mut events = Events { wanted: bit, namespaces: sight(&[8, 9]), ..Events::default() };
        events.update_namespaces(sight(&[8, 9]));
        events.requests.extend([3, 4]);
        assert_eq!(events.take_reportable(bit), None, "nothing has changed");
        events.update_namespaces(sight(&[8, 10, 11]));
        assert_eq!(events.take_reportable(bit), Some(3));
        events.update_namespaces(sight(&[7, 10, 11]));
        assert_eq!(events.take_reportable(bit), None, "A1");
        assert_eq!(events.changed(), [1, 2, 3]);
        events.read();
        assert_eq!((events.take_reportable(bit), events.changed()), (None, vec![]));
        events.update_namespaces(sight(&[]));
        assert_eq!(events.take_reportable(bit), Some(4));
        assert_eq!(events.changed(), [1, 2, 3]);
    }

    /// A2.
    #[test]
    fn change_waits_for_a_request_and_an_enabled_event() {
        let bit = event::NAMESPACE_BIT;
        let mut events = Events::default();
        events.update_namespaces(sight(&[8]));
        events.requests.push_back(3);
        assert_eq!(events.take_reportable(bit), None);
        events.want(bit);
        assert!(events.forget(3) && !events.forget(3));
        assert_eq!(events.take_reportable(bit), None, "A2");
        events.requests.push_back(4);
        assert_eq!(events.take_reportable(bit), Some(4));
    }
}
