//! Turns of the requests of conversations in the flow of their unit's requests (`qos/mod.rs`).

use std::cell::Cell;
use std::rc::Rc;
use std::task::Poll;

use crate::nexus::ItNexus;
use crate::nexus::engine::Engine;
use crate::nexus::slots::JobState;
use crate::qos::waiter::{AdmissionGrant, Waiter};
use crate::qos::{Completion, QosClient};

/// A request of a task that waits for its turn, or is below.
pub(crate) struct AdmittedRequest {
    engine: Rc<Engine>,
    client: Rc<QosClient>,
    grant: Rc<AdmissionGrant>,
    since_ns: Cell<u64>,
    completion: Cell<Option<Completion>>,
}

impl AdmittedRequest {
    /// Requests a turn and waits for it; `None` when the command was aborted first.
    pub async fn wait(
        engine: &Rc<Engine>,
        seat: &Rc<QosClient>,
        bytes: u64,
        tie: &JobState,
    ) -> Option<AdmittedRequest> {
        let (turn, flow) = (Rc::new(AdmissionGrant::default()), seat.flow());
        let entered = flow.enter(seat, false, bytes);
        turn.cost.set(entered);
        let pass = AdmittedRequest {
            engine: engine.clone(),
            client: seat.clone(),
            grant: turn.clone(),
            since_ns: Cell::default(),
            completion: Cell::default(),
        };
        if entered.is_none() {
            flow.queue(seat, Waiter::Request(turn.clone()), bytes, false);
            let session = tie.session.upgrade();
            if let Some(session) = &session {
                session.facts.note_queued(flow.device().number());
            }
            let come = std::future::poll_fn(|cx| {
                if turn.cost.get().is_some() || tie.stop.get() {
                    return Poll::Ready(());
                }
                turn.waker.replace(Some(cx.waker().clone()));
                tie.waker.replace(Some(cx.waker().clone()));
                Poll::Pending
            });
            let _counted = QueuedCount(session);
            come.await;
        }
        pass.since_ns.set(engine.core().now());
        (!tie.stop.get()).then_some(pass)
    }

    /// It has ended below: bytes that it moved.
    pub fn complete(self, bytes: u64) {
        let ns = self.engine.core().now().saturating_sub(self.since_ns.get());
        self.completion.set(Some(Completion { ns, bytes }));
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        let (flow, now) = (self.client.flow(), self.engine.core().now());
        match self.grant.cost.get() {
            Some(cost) => {
                if flow.leave(&self.client, cost, self.completion.take(), now) {
                    self.engine.pump(flow);
                }
            }
            None => {
                let it = |w: &Waiter| matches!(w, Waiter::Request(t) if Rc::ptr_eq(t, &self.grant));
                flow.forget(&self.client, it);
            }
        }
    }
}

/// Removes a request from the waiting ones that lists show, however the waiting ends.
struct QueuedCount(Option<Rc<ItNexus>>);

impl Drop for QueuedCount {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.facts.note_unqueued();
        }
    }
}
