//! Order across cores: the task set of a unit (`task/set.rs`), the engines' part in it, and
//! claims of blocks.
//!
//! ```text
//!   command()  word of the nexus is zero, SIMPLE, claims nothing --> runs; nothing is shared
//!      |  else
//!      v
//!   join() --- the set was plain ---> ORDER in every nexus's word, Gather to every engine
//!      |                                                |  commands of the crowd have ended here
//!      |                                                v
//!      |                                          counted_out()
//!      v                                                |
//!   entry --- release() --> part() --> those enabled <--+--> go(): here turn(), elsewhere Go
//! ```
//! A command whose word was read before the bit was set is in its session's table before its engine
//! reads the Gather message, so it is counted (O4). After [`LINGER_NS`] without a command that
//! needs an order the set is plain again.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::flags;
use crate::nexus::engine::Engine;
use crate::nexus::pending_tms::TmCompletion;
use crate::nexus::slots::slot_id_of;
use crate::nexus::{ItNexus, Path};
use crate::task::set::{Request, Span};
use crate::task::{CommandState, TaskAttribute};
use crate::unit::message::Message;
use crate::unit::owner::{ClaimFuture, ClaimGrant, Owner};
use crate::unit::unit_attention::ItlNexus;
use crate::unit::{Device, ModeBits};

/// How long a set stays strict after the last command that needed an order, ns, once to twice. A
/// change costs a message to every core, a strict set a lock for every command.
const LINGER_NS: u64 = 20_000_000;

/// Blocks of a unit that no other command touches until this is dropped.
pub struct BlockClaim {
    engine: Weak<Engine>,
    device: Arc<Device>,
    id: u64,
}

impl BlockClaim {
    /// For a unit that no other command can reach yet.
    pub(crate) fn nothing(device: &Arc<Device>) -> BlockClaim {
        BlockClaim { engine: Weak::new(), device: device.clone(), id: 0 }
    }
}

impl Drop for BlockClaim {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.leave_task_set(&self.device, self.id);
        }
    }
}

/// A nexus by a number, as long as it lives.
pub(crate) fn key_of(nexus: &Arc<ItlNexus>) -> u64 {
    Arc::as_ptr(nexus) as usize as u64
}

/// The group of a nexus's commands (O1).
pub(crate) fn group_of(device: &Device, nexus: &Arc<ItlNexus>) -> u64 {
    if device.mode().has(ModeBits::TST_EACH) { key_of(nexus) } else { 0 }
}

impl Engine {
    /// Lets a command or a claim into the order of a unit: its number, zero when there is no order
    /// now, and whether it may run.
    fn join(self: &Rc<Self>, device: &Arc<Device>, request: Request, owner: Owner) -> (u64, bool) {
        let mut set = device.order();
        let mut gather = None;
        if !set.is_strict() {
            if request.is_plain() {
                return (0, true);
            }
            let peers = self.registry().other_engines(self.core().id());
            let cores = u32::try_from(peers.len() + 1).unwrap_or(u32::MAX);
            gather = Some((peers, set.gather(cores)));
            device.mark(flags::ORDER);
        }
        let joined = set.add(request, owner);
        drop(set);
        if let Some((peers, floor)) = gather {
            for peer in peers {
                self.post(peer, Message::Gather { device: device.clone(), floor });
            }
            // Later: the requesting command is not yet in its place.
            let (engine, device) = (self.clone(), device.clone());
            drop(self.core().reactor().spawn("target order", async move {
                engine.gather(&device, floor);
                loop {
                    engine.core().reactor().sleep(LINGER_NS).await;
                    if device.try_relax_order() {
                        return;
                    }
                }
            }));
        }
        joined
    }

    /// Counts the crowd of a unit out: reports when the last command has ended here.
    pub(crate) fn gather(self: &Rc<Self>, device: &Arc<Device>, floor: u64) {
        let crowd = |spans| TmCompletion::Unordered { device: device.clone(), spans };
        let (all, spans) = {
            let mut tms = self.tms.borrow_mut();
            (tms.open(crowd(false)), tms.open(crowd(true)))
        };
        for session in self.sessions() {
            session.count_unordered(device, floor, all, spans);
        }
        self.tm_step(all);
        self.tm_step(spans);
    }

    /// A core's crowd has ended.
    pub(crate) fn counted_out(self: &Rc<Self>, device: &Device, spans: bool) {
        let mut ready = Vec::new();
        device.order().counted_out(spans, &mut ready);
        self.start_enabled(ready);
    }

    /// An entry has ended.
    pub(crate) fn leave_task_set(self: &Rc<Self>, device: &Device, id: u64) {
        let mut ready = Vec::new();
        device.order().leave(id, &mut ready);
        self.start_enabled(ready);
    }

    /// Starts the enabled entries. Commands of this core start one after another from the outermost
    /// call, however many end at once.
    pub(crate) fn start_enabled(self: &Rc<Self>, ready: Vec<Owner>) {
        for owner in ready {
            match owner {
                Owner::Claim(turn) => turn.grant(),
                Owner::Command { core, session, word, .. } if core == self.core().id() => {
                    self.starting.borrow_mut().push_back((session, word));
                }
                Owner::Command { to, session, word, .. } => {
                    self.post(to, Message::Start { session, word });
                }
            }
        }
        if self.is_starting.replace(true) {
            return;
        }
        loop {
            let next = self.starting.borrow_mut().pop_front();
            let Some((session, word)) = next else { break };
            self.enable_command(session, word);
        }
        self.is_starting.set(false);
    }

    /// The turn of a command has been reachedd.
    pub(crate) fn enable_command(&self, session: u64, word: u64) {
        if let Some(session) = self.session(session) {
            session.enable_command(word);
        }
    }

    /// Blocks of a unit for a running command alone (O2).
    pub(crate) async fn claim(self: &Rc<Self>, device: &Arc<Device>, span: Span) -> BlockClaim {
        let request = Request {
            group: u64::MAX,
            nexus: 0,
            attribute: TaskAttribute::Simple,
            span,
            exclusive: true,
            writes: true,
            restricted: false,
            is_claim: true,
        };
        let turn = Arc::new(ClaimGrant::default());
        let (id, enabled) = self.join(device, request, Owner::Claim(turn.clone()));
        let guard = BlockClaim { engine: Rc::downgrade(self), device: device.clone(), id };
        if !enabled {
            ClaimFuture(turn).await;
        }
        guard
    }
}

impl ItNexus {
    /// Puts a command that may need an order into it. It may run as soon as its data is there, or
    /// waits for its turn.
    #[cold]
    pub(crate) fn enter(&self, place: u32) {
        let (path, plan, attribute, word) = {
            let slots = self.slots.borrow();
            let Some(slot) = slots.get(place) else { return };
            let Some(path) = slot.path.clone() else { return };
            (path, slot.plan, slot.attribute, slot_id_of(place, slot.generation))
        };
        let device = path.device();
        let request = Request {
            group: group_of(device, path.nexus()),
            nexus: key_of(path.nexus()),
            attribute,
            span: plan.span(),
            exclusive: plan.exclusive,
            writes: plan.writes,
            restricted: !device.mode().has(ModeBits::QAM),
            is_claim: false,
        };
        let engine = self.engine();
        let owner = Owner::Command {
            core: engine.core().id(),
            to: engine.mailer().clone(),
            session: self.number(),
            word,
        };
        let (id, enabled) = engine.join(device, request, owner);
        if let Some(slot) = self.slots.borrow_mut().get_mut(place) {
            (slot.entry, slot.enabled) = (id, enabled);
        }
    }

    /// The turn of a command has been reachedd.
    fn enable_command(&self, word: u64) {
        let place = {
            let mut slots = self.slots.borrow_mut();
            let Some((place, slot)) = slots.by_slot_id(word) else { return };
            slot.enabled = true;
            (slot.state == Some(CommandState::Dormant)).then_some(place)
        };
        if let Some(place) = place {
            self.begin_command(place, false);
        }
    }

    /// Makes the commands of the crowd at a unit notify these two tickets when they end.
    fn count_unordered(&self, device: &Arc<Device>, floor: u64, all: u32, spans: u32) {
        let mut slots = self.slots.borrow_mut();
        let of_it = |p: &Rc<Path>| Arc::ptr_eq(p.device(), device);
        let words =
            slots.select(|s| s.entry < floor && !s.answered && s.path.as_ref().is_some_and(of_it));
        let mut tms = self.engine().tms.borrow_mut();
        for word in words {
            let Some((_, slot)) = slots.by_slot_id(word) else { continue };
            slot.waiters.push(all);
            tms.add_pending(all);
            if slot.plan.span() != Span::Nothing {
                slot.waiters.push(spans);
                tms.add_pending(spans);
            }
        }
    }
}
