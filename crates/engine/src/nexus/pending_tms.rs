//! Task management functions that wait on one core (`task_set/management.rs`).
//!
//! Invariant M1: `left` counts the commands and cores that the function waits for, plus one while
//! it is being set up.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use reactor::Mailer;

use crate::nexus::ItNexus;
use crate::nexus::transport::TmOutcome;
use crate::unit::Device;
use crate::unit::alua::Transition;
use crate::unit::message::Message;

/// Sessions that end when a function has been answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionsToEnd {
    None,
    /// Those that the initiator has with the target.
    OfInitiator,
    /// Those that all initiators have with the target.
    OfTarget,
}

pub(crate) enum TmCompletion {
    Answer {
        session: Rc<ItNexus>,
        tag: u32,
        outcome: TmOutcome,
        ends: SessionsToEnd,
    },
    Reply {
        to: Mailer<Message>,
        ticket: u32,
    },
    Event(Rc<OneShotEvent>),
    /// No waiter.
    Nothing,
    /// The crowd of a unit has ended on this core (`task_set/cross_core.rs`).
    Unordered {
        device: Arc<Device>,
        spans: bool,
    },
    Drained(Arc<Transition>),
}

/// One-shot event that a conversation waits for.
#[derive(Default)]
pub(crate) struct OneShotEvent {
    fired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl OneShotEvent {
    pub(crate) fn fire(&self) {
        self.fired.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub fn has_fired(&self) -> bool {
        self.fired.get()
    }

    /// Whom to wake.
    pub fn set_waker(&self, waker: &Waker) {
        self.waker.replace(Some(waker.clone()));
    }
}

struct PendingTm {
    left: u32,
    done: TmCompletion,
}

/// Task management functions that wait.
#[derive(Default)]
pub(crate) struct PendingTms {
    entries: Vec<Option<PendingTm>>,
}

impl PendingTms {
    pub(crate) fn open(&mut self, done: TmCompletion) -> u32 {
        let tm = Some(PendingTm { left: 1, done });
        match self.entries.iter().position(Option::is_none) {
            Some(i) => {
                if let Some(place) = self.entries.get_mut(i) {
                    *place = tm;
                }
                i as u32
            }
            None => {
                self.entries.push(tm);
                self.entries.len() as u32 - 1
            }
        }
    }

    pub(crate) fn add_pending(&mut self, ticket: u32) {
        if let Some(Some(tm)) = self.entries.get_mut(ticket as usize) {
            tm.left += 1;
        }
    }

    pub(crate) fn finish_pending(&mut self, ticket: u32) -> Option<TmCompletion> {
        let place = self.entries.get_mut(ticket as usize)?;
        let tm = place.as_mut()?;
        tm.left = tm.left.saturating_sub(1);
        if tm.left > 0 {
            return None;
        }
        place.take().map(|tm| tm.done)
    }
}
