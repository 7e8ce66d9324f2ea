//! The quiesce gate, and waiting until nothing is in flight.
//!
//! Invariants
//!  G1  While a node's gate is closed no request enters its layer; arrivals are parked in order.
//!  G2  Reopening replays the parked requests, through their edges, before any later arrival.
//!      The graph through which they pass is put in place in the same step.
//!  G3  A drain is reported only after the flags that stop new requests were seen by this core. The
//!      message that requests it was sent after they were set.

use std::rc::Rc;
use std::sync::Arc;

use super::{Core, CoreNotice, Go, Work};
use crate::layer::Edge;
use crate::snapshot::Changes;

#[derive(Clone, Copy)]
pub(super) enum Subject {
    Node(u32),
    Edge(u32),
}

pub(super) struct Drain {
    subject: Subject,
    ticket: u64,
}

impl Core {
    pub(super) fn close_gate(&self, node: u32, ticket: u64) {
        if let Some(n) = self.table.borrow().node(node) {
            n.close(true);
        }
        self.drain(Subject::Node(node), ticket);
    }

    pub(super) fn open_gate(self: &Rc<Self>, node: u32, changes: Option<Arc<Changes>>) {
        if let Some(changes) = changes {
            self.publish(&changes);
        }
        if let Some(n) = self.table.borrow().node(node) {
            n.close(false);
        }
        let still = |d: &Drain| !matches!(d.subject, Subject::Node(n) if n == node);
        self.drains.borrow_mut().retain(still);
        let parked = self.parked.borrow_mut().remove(&node).unwrap_or_default();
        let mut ready = self.ready.borrow_mut();
        for bio in parked {
            let edge = Edge(bio.edge);
            ready.push_back(Work { bio, go: Go::Enter(edge) });
        }
    }

    pub(super) fn drain(&self, subject: Subject, ticket: u64) {
        self.drains.borrow_mut().push(Drain { subject, ticket });
    }

    pub(super) fn check_drains(&self) {
        if self.drains.borrow().is_empty() {
            return;
        }
        let mut empty = Vec::new();
        self.drains.borrow_mut().retain(|d| {
            let left = self.in_flight(d.subject);
            if left == 0 {
                empty.push(match d.subject {
                    Subject::Node(_) => CoreNotice::GateDrained { core: self.id, ticket: d.ticket },
                    Subject::Edge(_) => CoreNotice::Drained { core: self.id, ticket: d.ticket },
                });
            }
            left != 0
        });
        for notice in empty {
            self.post_notice(notice);
        }
    }

    fn in_flight(&self, subject: Subject) -> u64 {
        let table = self.table.borrow();
        match subject {
            Subject::Node(n) => table.node(n).map_or(0, |n| n.queue.inside()),
            Subject::Edge(e) => {
                let inside = table.edge(e).map_or(0, |e| e.meter.in_flight());
                let parked = self.parked.borrow();
                let waiting = parked.values().flatten().filter(|b| b.edge == e).count();
                inside + (waiting + self.retrying(e) + self.waiting_behind(e)) as u64
            }
        }
    }

    /// Requests that a layer had no memory for and that will enter the edge again.
    fn retrying(&self, edge: u32) -> usize {
        let slab = self.slab.borrow();
        let again =
            |d: &&super::Delay| d.again && slab.peek(d.ticket.id()).is_some_and(|b| b.edge == edge);
        self.delayed.borrow().iter().flatten().filter(again).count()
    }
}
