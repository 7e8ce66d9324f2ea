//! Queue of a device: the order in which CCBs begin. D3, D5, D8 and D9 of [`super`].

use std::cmp::Reverse;

use super::{Device, Effect, Key, Queueing, State};
use crate::ccb::{CcbId, Command, Flags, Priority, Registers};

impl Device {
    pub(super) fn enqueue(&mut self, at: u32) {
        if self.is_in_doubt() {
            // D11: its deadline is set with the next look at the clock.
            self.sweep_ns = 0;
        }
        self.wait_in_line(at);
        let slot = &mut self.slots[at as usize];
        slot.state = State::Queued;
        // D3: the generation stays. A cure goes before all CCBs of its level; a reset before those
        // that may wait for a command that hangs.
        let priority = match (&slot.curing, slot.ccb.command) {
            (Some(_), _) => Priority::Dev,
            (None, Command::Reset) => Priority::Host,
            (None, _) => slot.ccb.priority,
        };
        self.queue.push(Reverse(Key { priority, generation: slot.generation, slot: at }));
    }

    /// Takes one that has not begun out of where it waits.
    pub(super) fn drop_from(&mut self, at: u32) {
        match self.slots[at as usize].state {
            State::Queued => self.queue.retain(|Reverse(key)| key.slot != at),
            State::Starting => self.depart(at),
            State::Pausing => self.pausing -= 1,
            _ => {}
        }
    }

    /// Begins the CCBs that may begin.
    pub(super) fn pump(&mut self) {
        if self.lost {
            return;
        }
        while let Some(Reverse(key)) = self.queue.peek() {
            let at = key.slot;
            let normal = key.priority >= Priority::Normal;
            // D9: a CCB with the priority Host is a reset.
            let hushed = self.resets.is_out() && key.priority > Priority::Host;
            if hushed || self.collides(at) || (normal && !self.may_begin(at)) {
                break;
            }
            self.queue.pop();
            if self.is_lone(at) {
                self.lone = Some(at);
            }
            self.active += 1;
            let tenant = {
                let slot = &mut self.slots[at as usize];
                slot.state = State::Starting;
                if slot.ccb.flags.has(Flags::ORDERED) && slot.curing.is_none() {
                    self.barrier = Some(at);
                }
                slot.tenant
            };
            let owner = self.slots[at as usize].ccb.owner;
            self.effects.push_back(Effect::Start(CcbId { slot: at, tenant }, owner));
        }
    }

    pub(super) fn may_begin(&self, at: u32) -> bool {
        if self.freezes.is_frozen() || self.active >= self.openings {
            return false;
        }
        match self.barrier {
            Some(barrier) => barrier == at,
            // D5: all earlier CCBs have ended, for they are neither in the SIM nor pausing, and
            // would be before this one in the queue.
            None if self.slots[at as usize].ccb.flags.has(Flags::ORDERED) => {
                self.active == 0 && self.pausing == 0
            }
            None => true,
        }
    }

    /// D8
    fn is_lone(&self, at: u32) -> bool {
        let slot = &self.slots[at as usize];
        match (self.shape.queueing, slot.ccb.command) {
            (_, Command::Reset) | (Queueing::Tagged, _) => false,
            (Queueing::Ncq, Command::Ata(Registers { queued, .. })) => !queued,
            (Queueing::Ncq | Queueing::Untagged, _) => true,
        }
    }

    /// D8
    fn collides(&self, at: u32) -> bool {
        let waits = self.lone.is_some() || (self.is_lone(at) && self.active > 0);
        waits && self.slots[at as usize].ccb.command != Command::Reset
    }

    /// It is not with the SIM any more, nor about to be.
    pub(super) fn depart(&mut self, at: u32) {
        self.active -= 1;
        if self.lone == Some(at) {
            self.lone = None;
        }
    }

    pub(super) fn thaw(&mut self, at: u32) {
        self.shut -= u32::from(std::mem::take(&mut self.slots[at as usize].shut));
        if let Some(freeze) = self.slots[at as usize].freeze.take() {
            self.freezes.release(freeze);
        }
    }

    pub(super) fn rest(&mut self, at: u32, ns: u64, now: u64) {
        self.pausing += 1;
        self.wait(at, State::Pausing, now.saturating_add(ns));
    }

    pub(super) fn wait(&mut self, at: u32, state: State, due_ns: u64) {
        let slot = &mut self.slots[at as usize];
        slot.state = state;
        slot.due_ns = if state == State::Pausing { due_ns.min(slot.ccb.end_ns) } else { due_ns };
        self.sweep_ns = self.sweep_ns.min(slot.due_ns);
    }

    /// A pause is over.
    pub(super) fn resume(&mut self, at: u32) {
        self.pausing -= 1;
        let slot = &mut self.slots[at as usize];
        slot.due_ns = u64::MAX;
        self.impatient -= u32::from(std::mem::take(&mut slot.impatient));
        let curing = slot.curing.is_some();
        self.enqueue(at);
        if !curing {
            self.thaw(at);
        }
    }

    pub(super) fn call_impatient(&mut self) {
        for at in 0..self.slots.len() as u32 {
            if self.impatient == 0 {
                return;
            }
            let slot = &self.slots[at as usize];
            if slot.state == State::Pausing && slot.impatient {
                self.resume(at);
            }
        }
    }
}
