//! Task management.
//!
//! ```text
//!   task_management() --> mark commands, notify other cores --> wait --> answer
//!                          |  nothing affected: at once       ^
//!                          +--> ended(command), Aborted ------+
//! ```
//! An answer leaves only when no affected command, on any core, can touch the medium any more. A
//! disk that hangs keeps the answer back: the session's list shows the command as `aborting` with
//! its age, and nothing else waits for it.
//!
//! An initiator without write access must not stop the writers of others: its resets and CLEAR TASK
//! SET affect its own commands only. TARGET COLD RESET of a group that may reset the target is the
//! exception. It resets all units and ends all sessions, as RFC 7143 section 11.5.1 wants.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Mailer, SendError};
use wire::scsi::asc;

use crate::nexus::engine::Engine;
use crate::nexus::pending_tms::{OneShotEvent, SessionsToEnd, TmCompletion};
use crate::nexus::slots::Slot;
use crate::nexus::transport::{TmFunction, TmOutcome};
use crate::nexus::{ItNexus, Path};
use crate::reservations::Identity;
use crate::task::{AbortHow, CommandState};
use crate::unit::alua::Transition;
use crate::unit::events::{device_reset, nexus_lost};
use crate::unit::message::{AbortOrder, AbortScope, Message};
use crate::unit::{Device, ModeBits};

/// How long a full mailbox of another core is left alone before the next try, ns.
const MAILBOX_RETRY_NS: u64 = 1_000_000;

/// Operation code of MAINTENANCE OUT, of which SET TARGET PORT GROUPS is one.
const SET_TARGET_PORT_GROUPS: u8 = 0xA4;

impl Engine {
    /// One of the things that a function waited for has happened.
    pub(crate) fn tm_step(self: &Rc<Self>, ticket: u32) {
        let done = self.tms.borrow_mut().finish_pending(ticket);
        match done {
            None | Some(TmCompletion::Nothing) => {}
            Some(TmCompletion::Event(bell)) => bell.fire(),
            Some(TmCompletion::Reply { to, ticket }) => self.post(to, Message::Aborted { ticket }),
            Some(TmCompletion::Unordered { device, spans }) => self.counted_out(&device, spans),
            Some(TmCompletion::Drained(transition)) => self.registry().drained(&transition),
            Some(TmCompletion::Answer { session, tag, outcome, ends }) => {
                session.tm_answer(tag, outcome);
                let of = match ends {
                    SessionsToEnd::None => return,
                    SessionsToEnd::OfInitiator => Some(session.facts.initiator.as_str()),
                    SessionsToEnd::OfTarget => None,
                };
                self.registry().close_after_reset(session.target(), of);
            }
        }
    }

    /// Sends to another core; a full mailbox is tried again, a closed one belongs to a core that
    /// has stopped and has nothing in flight.
    pub(crate) fn post(self: &Rc<Self>, to: Mailer<Message>, message: Message) {
        match to.send(message) {
            Ok(()) => {}
            Err(SendError::Closed(Message::Abort(order))) => self.tm_step(order.ticket),
            Err(SendError::Closed(Message::Gather { device, .. })) => {
                self.counted_out(&device, false);
                self.counted_out(&device, true);
            }
            Err(SendError::Closed(_)) => {}
            Err(SendError::Full(message)) => {
                let engine = self.clone();
                drop(self.core().reactor().spawn("target mail", async move {
                    engine.core().reactor().sleep(MAILBOX_RETRY_NS).await;
                    engine.post(to, message);
                }));
            }
        }
    }

    /// Aborts the commands of every session of this core at a unit. A session is notified of a
    /// reset here and not earlier: commands that it sends after the notification are never aborted.
    fn abort_at(self: &Rc<Self>, device: &Arc<Device>, why: AbortScope, ticket: u32) {
        let AbortScope { by, reset, tas, nexuses: ref whom } = why;
        let meant = |s: &Rc<ItNexus>| match whom {
            Some(whom) => s.port().identity.as_ref().is_some_and(|id| whom.contains(id)),
            None => true,
        };
        let is_on_device = |p: &Rc<Path>| Arc::ptr_eq(p.device(), device);
        let mut sessions = self.sessions();
        sessions.retain(meant);
        let doomed: Vec<(&Rc<ItNexus>, Vec<u64>, AbortHow)> = sessions
            .iter()
            .map(|session| {
                let own = session.number() == by;
                let how = if own || !tas { AbortHow::Silent } else { AbortHow::Status };
                let words = session.commands_at(is_on_device);
                session.mark_for_abort(&words, how);
                if reset {
                    session.raise_at(asc::POWER_ON_OR_RESET, is_on_device);
                } else if !words.is_empty() && !own && !tas {
                    session.raise_at(asc::COMMANDS_CLEARED, is_on_device);
                }
                (session, words, how)
            })
            .collect();
        // All are doomed before the first is ended: no end of one starts another.
        for (session, words, how) in doomed {
            self.abort_all(session, &words, how, ticket);
        }
    }

    /// Aborts a command; the function waits for it when it is at the medium.
    fn abort_one(&self, session: &ItNexus, word: u64, how: AbortHow, ticket: u32) {
        if session.abort(word, how, Some(ticket)) {
            self.tms.borrow_mut().add_pending(ticket);
        }
    }

    pub(crate) fn abort_all(&self, session: &ItNexus, words: &[u64], how: AbortHow, ticket: u32) {
        session.mark_for_abort(words, how);
        for word in words {
            self.abort_one(session, *word, how, ticket);
        }
    }

    pub(crate) fn abort_for_peer(self: &Rc<Self>, order: AbortOrder) {
        let done = TmCompletion::Reply { to: order.reply, ticket: order.ticket };
        let ticket = self.tms.borrow_mut().open(done);
        self.abort_at(&order.device, order.scope, ticket);
        self.tm_step(ticket);
    }

    /// Waits on this core for the commands that a change of access states waits for, and reports
    /// their end.
    pub(crate) fn drain(self: &Rc<Self>, transition: Arc<Transition>) {
        let ticket = self.tms.borrow_mut().open(TmCompletion::Drained(transition.clone()));
        let concerned = |s: &Rc<ItNexus>| transition.ports.contains(&s.target().port);
        for session in self.sessions().into_iter().filter(concerned) {
            for _ in 0..session.await_commands(ticket) {
                self.tms.borrow_mut().add_pending(ticket);
            }
        }
        self.tm_step(ticket);
    }

    /// The same on all cores.
    pub(crate) fn abort_everywhere(
        self: &Rc<Self>,
        device: &Arc<Device>,
        by: u64,
        reset: bool,
        tm: u32,
    ) {
        let why = AbortScope { nexuses: None, by, reset, tas: device.mode().has(ModeBits::TAS) };
        self.abort_on_all(device, why, tm);
    }

    /// PREEMPT AND ABORT by a session: the commands of some nexuses. The bell rings when they can
    /// no longer touch the medium.
    pub(crate) fn abort_nexuses(
        self: &Rc<Self>,
        device: &Arc<Device>,
        by: u64,
        whom: Arc<BTreeSet<Identity>>,
    ) -> Rc<OneShotEvent> {
        let bell = Rc::new(OneShotEvent::default());
        let ticket = self.tms.borrow_mut().open(TmCompletion::Event(bell.clone()));
        let tas = device.mode().has(ModeBits::TAS);
        for nexus in device.nexuses() {
            if nexus.port().identity.as_ref().is_some_and(|id| whom.contains(id)) {
                self.end_aca(device, Some(&nexus));
            }
        }
        self.abort_on_all(
            device,
            AbortScope { nexuses: Some(whom), by, reset: false, tas },
            ticket,
        );
        self.tm_step(ticket);
        bell
    }

    /// A nexus has ended, or continues as if it had.
    pub(crate) fn end_nexus(self: &Rc<Self>, path: &Path) {
        nexus_lost(path.device(), path.nexus());
        self.end_aca(path.device(), Some(path.nexus()));
    }

    /// The unit as at power on.
    fn reset(self: &Rc<Self>, device: &Arc<Device>) {
        device.reset(self.registry().next_reset());
        device_reset(device);
        self.end_aca(device, None);
    }

    /// A reset of a target reaches the unit, which has commands only if it has a nexus.
    fn reset_idle_or_busy(self: &Rc<Self>, device: &Arc<Device>, by: u64, ticket: u32) {
        if device.has_nexus() {
            self.abort_everywhere(device, by, true, ticket);
        }
        self.reset(device);
    }

    fn abort_on_all(self: &Rc<Self>, device: &Arc<Device>, why: AbortScope, tm: u32) {
        for peer in self.registry().other_engines(self.core().id()) {
            self.tms.borrow_mut().add_pending(tm);
            let reply = self.mailer().clone();
            let why = why.clone();
            let order = AbortOrder { device: device.clone(), scope: why, reply, ticket: tm };
            self.post(peer, Message::Abort(order));
        }
        self.abort_at(device, why, tm);
    }
}

impl ItNexus {
    /// A task management function arrives; the answer arrives by
    /// [`crate::Transport::task_management_done`], maybe from inside this call. `of` is the tag
    /// of the task that ABORT TASK and QUERY TASK are about.
    pub fn task_management(&self, tag: u32, f: TmFunction, lun: [u8; 8], of: Option<u32>) {
        let Some(me) = self.handle() else { return };
        if f == TmFunction::TargetColdReset {
            // The group's permission counts as it is now.
            self.refresh();
        }
        let outcome = match f {
            TmFunction::AbortTask if self.find(of).is_none() => TmOutcome::NoTask,
            TmFunction::QueryTask => match self.find(of) {
                Some(_) => TmOutcome::Found,
                None => TmOutcome::Complete,
            },
            TmFunction::AbortTask
            | TmFunction::TargetWarmReset
            | TmFunction::TargetColdReset
            | TmFunction::NexusReset => return me.run_tm(tag, f, None, of),
            _ => match self.path_of(lun) {
                None => TmOutcome::NoLun,
                Some(path) => match f {
                    TmFunction::QueryTaskSet => {
                        let any = !self.commands_at(|p| Rc::ptr_eq(p, &path)).is_empty();
                        if any { TmOutcome::Found } else { TmOutcome::Complete }
                    }
                    TmFunction::QueryAsyncEvent => {
                        let any = self.is_pending(&path);
                        if any { TmOutcome::Found } else { TmOutcome::Complete }
                    }
                    _ => return me.run_tm(tag, f, Some(path), of),
                },
            },
        };
        self.tm_answer(tag, outcome);
    }

    fn run_tm(self: Rc<Self>, tag: u32, f: TmFunction, path: Option<Rc<Path>>, of: Option<u32>) {
        let engine = self.engine().clone();
        let by = self.number();
        let ends = match f {
            TmFunction::TargetColdReset if self.map().cold_resets_target() => {
                SessionsToEnd::OfTarget
            }
            TmFunction::TargetColdReset => SessionsToEnd::OfInitiator,
            _ => SessionsToEnd::None,
        };
        let outcome = TmOutcome::Complete;
        let done = TmCompletion::Answer { session: self.clone(), tag, outcome, ends };
        let ticket = engine.tms.borrow_mut().open(done);
        match (f, path) {
            (TmFunction::AbortTask, _) => {
                if let Some(word) = self.find(of) {
                    engine.abort_one(&self, word, AbortHow::Silent, ticket);
                }
            }
            (TmFunction::ClearAca, Some(path)) => {
                let words = self
                    .slots
                    .borrow()
                    .select(|s| s.aca && s.path.as_ref().is_some_and(|p| Rc::ptr_eq(p, &path)));
                engine.abort_all(&self, &words, AbortHow::Silent, ticket);
                engine.end_aca(path.device(), Some(path.nexus()));
            }
            (TmFunction::ClearTaskSet, Some(path))
                if !path.device().mode().has(ModeBits::TST_EACH)
                    && !self.lacks_write_access(&path) =>
            {
                engine.abort_everywhere(path.device(), by, false, ticket);
            }
            (TmFunction::AbortTaskSet | TmFunction::ClearTaskSet, Some(path)) => {
                let words = self.commands_at(|p| Rc::ptr_eq(p, &path));
                engine.abort_all(&self, &words, AbortHow::Silent, ticket);
            }
            (TmFunction::LunReset, Some(path)) if self.lacks_write_access(&path) => {
                self.reset_own_commands(path.device(), ticket);
            }
            (TmFunction::LunReset, Some(path)) => {
                engine.abort_everywhere(path.device(), by, true, ticket);
                engine.reset(path.device());
            }
            (TmFunction::NexusReset, _) => {
                engine.abort_all(&self, &self.commands_at(|_| true), AbortHow::Silent, ticket);
                for path in self.paths() {
                    engine.end_nexus(&path);
                }
                self.raise_at(asc::NEXUS_LOSS, |_| true);
            }
            _ if ends == SessionsToEnd::OfTarget => {
                for device in self.target().groups().devices() {
                    engine.reset_idle_or_busy(&device, by, ticket);
                }
            }
            _ => {
                for (device, lacks_write_access) in self.devices() {
                    match lacks_write_access {
                        true => self.reset_own_commands(&device, ticket),
                        false => engine.reset_idle_or_busy(&device, by, ticket),
                    }
                }
            }
        }
        engine.tm_step(ticket);
    }

    /// A reset of a unit by an initiator without write access there: reservations and the commands
    /// of others stay. Its own contingent allegiance ends, which could stop others.
    fn reset_own_commands(&self, device: &Arc<Device>, ticket: u32) {
        let engine = self.engine();
        let is_on_device = |p: &Rc<Path>| Arc::ptr_eq(p.device(), device);
        engine.abort_all(self, &self.commands_at(is_on_device), AbortHow::Silent, ticket);
        for path in self.paths().into_iter().filter(is_on_device) {
            engine.end_aca(device, Some(path.nexus()));
        }
    }

    /// Notifies a ticket when each of the current commands has ended that a change of access states
    /// waits for. Commands that could change states are not counted. Answers the number of
    /// commands.
    fn await_commands(&self, ticket: u32) -> usize {
        let mut slots = self.slots.borrow_mut();
        let waited = |s: &Slot| {
            s.state != Some(CommandState::Responding) && s.opcode != SET_TARGET_PORT_GROUPS
        };
        let words = slots.select(waited);
        for word in &words {
            if let Some((_, slot)) = slots.by_slot_id(*word) {
                slot.waiters.push(ticket);
            }
        }
        words.len()
    }

    /// Aborted commands that are still at the medium, for which a function waits.
    pub fn aborting(&self) -> usize {
        self.count(CommandState::Aborting)
    }
}
