//! Who begins when: D3 and D5 of [`super`].

use std::cmp::Reverse;

use super::{Device, Effect, Key, State};
use crate::ccb::{CcbId, Flags, Priority};

impl Device {
    pub(super) fn enqueue(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.state = State::Queued;
        // D3: the generation stays. A cure goes before everything of its level.
        let priority = if slot.curing.is_some() { Priority::Dev } else { slot.ccb.priority };
        self.queue.push(Reverse(Key { priority, generation: slot.generation, slot: at }));
    }

    /// Takes one that has not begun out of where it waits.
    pub(super) fn drop_from(&mut self, at: u32) {
        match self.slots[at as usize].state {
            State::Queued => self.queue.retain(|Reverse(key)| key.slot != at),
            State::Starting => self.active -= 1,
            State::Pausing => self.pausing -= 1,
            _ => {}
        }
    }

    /// Lets begin what may.
    pub(super) fn pump(&mut self) {
        if self.lost {
            return;
        }
        while let Some(Reverse(key)) = self.queue.peek() {
            let at = key.slot;
            if key.priority >= Priority::Normal && !self.may_begin(at) {
                break;
            }
            self.queue.pop();
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
            // D5: what was sent before has ended, for it is neither in the SIM nor pausing, and
            // would be before this one in the queue.
            None if self.slots[at as usize].ccb.flags.has(Flags::ORDERED) => {
                self.active == 0 && self.pausing == 0
            }
            None => true,
        }
    }

    pub(super) fn thaw(&mut self, at: u32) {
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
        slot.due_ns = due_ns;
        self.sweep_ns = self.sweep_ns.min(due_ns);
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
