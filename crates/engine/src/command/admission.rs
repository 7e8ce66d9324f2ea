//! Turns of commands in the flow of their unit's requests (`qos/mod.rs`).

use std::rc::Rc;
use std::sync::Arc;

use crate::command::execute::DispatchedCommand;
use crate::load::concurrency_limit::UNLIMITED;
use crate::nexus::engine::Engine;
use crate::nexus::paths::LastPath;
use crate::nexus::slots::{Slot, slot_id_of};
use crate::nexus::{ItNexus, Path};
use crate::plan::Run;
use crate::qos::waiter::Waiter;
use crate::qos::{Completion, Flow, QosClient};
use crate::task::{CommandState, DEPTH_MAX, TaskAttribute};
use crate::unit::Device;

/// Commands that a nexus may have here beyond its share: the next ones, at its turn.
const COMMANDS_AHEAD: u32 = 4;

/// Smallest window of a session.
pub const WINDOW_MIN: u32 = 4;

/// How long a session keeps the whole window after it has used another unit, ns: one window cannot
/// distinguish units.
const MIXED_NS: u64 = 1_000_000_000;

/// A command that is to wait for its turn: place and generation, its bytes, and whether it precedes
/// others.
pub(crate) struct QueuedCommand {
    path: Rc<Path>,
    slot_id: u64,
    bytes: u64,
    head_of_queue: bool,
}

impl Engine {
    /// The flow of this core's requests to a unit.
    pub(crate) fn flow(&self, device: &Arc<Device>) -> Rc<Flow> {
        let mut flows = self.flows.borrow_mut();
        if let Some(flow) = flows.get(&device.number()).and_then(std::rc::Weak::upgrade) {
            return flow;
        }
        if flows.len().is_power_of_two() {
            flows.retain(|_, f| f.strong_count() > 0);
        }
        let flow = Rc::new(Flow::new(device));
        flows.insert(device.number(), Rc::downgrade(&flow));
        flow
    }

    /// Sends below the requests that may run now, one after another from the outermost call.
    pub(crate) fn pump(&self, flow: &Flow) {
        if flow.pumping.replace(true) {
            return;
        }
        while let Some((seat, waiter, cost)) = flow.next() {
            let goes = match waiter {
                Waiter::Command(session, word) => {
                    self.session(session).is_some_and(|s| s.dispatch_queued(word, cost))
                }
                Waiter::Request(turn) => {
                    turn.grant(cost);
                    true
                }
            };
            if !goes {
                flow.leave(&seat, cost, None, self.core().now());
            }
        }
        flow.pumping.set(false);
    }
}

impl ItNexus {
    /// A plain read or write has all that it needs: it is sent below, or has to be queued.
    pub(crate) fn dispatch(&self, place: u32, slot: &mut Slot) -> Option<QueuedCommand> {
        let path = slot.path.as_ref()?;
        let urgent = slot.attribute == TaskAttribute::Aca;
        let bytes = u64::from(slot.plan.reply.max(slot.plan.out));
        if let Some(cost) = path.qos_client().flow().enter(path.qos_client(), urgent, bytes) {
            (slot.inflight_cost, slot.began_ns) = (Some(cost), self.engine().core().now());
            return None;
        }
        slot.queued = true;
        slot.state = Some(CommandState::Queued);
        self.note(place, slot);
        let (path, first) = (path.clone(), slot.attribute == TaskAttribute::HeadOfQueue);
        Some(QueuedCommand {
            path,
            slot_id: slot_id_of(place, slot.generation),
            bytes,
            head_of_queue: first,
        })
    }

    /// Queues a command that [`ItNexus::dispatch`] did not start.
    #[cold]
    pub(crate) fn enqueue_command(&self, queue: QueuedCommand) {
        let QueuedCommand { path, slot_id: word, bytes, head_of_queue: first } = queue;
        let waiter = Waiter::Command(self.number(), word);
        path.qos_client().flow().queue(path.qos_client(), waiter, bytes, first);
        self.facts.note_queued(path.device().number());
        self.note_share(&path);
    }

    /// It is the turn of a command that waited; it is counted as being below. False when it is
    /// not there any more.
    fn dispatch_queued(&self, word: u64, cost: u32) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Some((place, slot)) = slots.by_slot_id(word) else { return false };
        let Run::Blocks(blocks) = slot.plan.run else { return false };
        slot.queued = false;
        (slot.inflight_cost, slot.began_ns) = (Some(cost), self.engine().core().now());
        self.facts.note_unqueued();
        if slot.abort.is_some() {
            // Doomed: it ends in a moment, and leaves then.
            return true;
        }
        slot.state = Some(CommandState::Executing);
        self.note(place, slot);
        let launch = DispatchedCommand::of(place, slot, blocks);
        drop(slots);
        self.issue_request(place, launch);
        true
    }

    /// Removes a command without an answer from below: one that was below, with its cost in
    /// `flying`, or one that waited here.
    #[cold]
    pub(crate) fn withdraw(&self, path: &Path, word: u64, flying: Option<u32>) {
        let (seat, flow) = (path.qos_client(), path.qos_client().flow());
        if let Some(cost) = flying {
            if flow.leave(seat, cost, None, self.engine().core().now()) {
                self.engine().pump(flow);
            }
            return;
        }
        let me = self.number();
        flow.forget(seat, |w| matches!(w, Waiter::Command(s, w) if (*s, *w) == (me, word)));
        self.facts.note_unqueued();
    }

    /// Others may be sent below: a command has ended there.
    #[cold]
    pub(crate) fn dispatch_next(&self, path: &Path) {
        self.engine().pump(path.qos_client().flow());
    }

    /// Where its requests to a unit wait: as those of the nexus that has used the unit, or by
    /// themselves.
    pub(crate) fn qos_client_at(&self, device: &Arc<Device>) -> Rc<QosClient> {
        let paths = self.paths.borrow();
        match paths.values().find(|p| Arc::ptr_eq(p.device(), device)) {
            Some(path) => path.qos_client().clone(),
            None => QosClient::new(self.engine().flow(device)),
        }
    }

    fn note_share(&self, path: &Path) {
        self.facts.note_share(path.qos_client().flow().share(path.qos_client()));
    }

    /// The path of a command that arrives with a LUN field.
    #[inline]
    pub(crate) fn arrival_path(&self, field: [u8; 8]) -> Option<Rc<Path>> {
        if let Some(last) = &*self.last_path.borrow()
            && last.field == field
        {
            return Some(last.path.clone());
        }
        self.change_path(field)
    }

    /// The same for another field than that of the last command: sessions that use several units
    /// keep their window.
    fn change_path(&self, field: [u8; 8]) -> Option<Rc<Path>> {
        let path = self.path_of(field)?;
        let old = self.last_path.replace(Some(LastPath { field, path: path.clone() }));
        if old.is_some_and(|old| !Rc::ptr_eq(&old.path, &path)) {
            self.mixed_until.set(self.engine().core().now() + MIXED_NS);
        }
        Some(path)
    }

    /// Commands that the session takes at once, for the transport's window: its share of a unit
    /// that is limited, and a few ahead.
    pub(crate) fn window(&self) -> u32 {
        let mixed = self.engine().core().now() < self.mixed_until.get();
        let share = match &*self.last_path.borrow() {
            Some(last) if !mixed => {
                let client = last.path.qos_client();
                client.flow().share(client)
            }
            _ => UNLIMITED,
        };
        self.facts.note_share(share);
        let window = share.saturating_add(COMMANDS_AHEAD).clamp(WINDOW_MIN, DEPTH_MAX);
        self.facts.note_window(window);
        window
    }
}

/// A plain read or write has ended below; true when others wait for their turn.
#[inline]
pub(crate) fn request_completed(path: &Path, cost: u32, landing: Completion, now: u64) -> bool {
    path.qos_client().flow().leave(path.qos_client(), cost, Some(landing), now)
}
