//! Queue of a device: the order in which CCBs begin. D3, D5, D8 and D9 of [`super`].

use std::cmp::Reverse;

use super::{Device, Effect, Key, Queueing, SlotState};
use crate::ccb::{CcbId, Command, Flags, Priority, Registers};

impl Device {
    pub(super) fn enqueue(&mut self, at: u32) {
        if self.is_in_doubt() {
            // D11: its deadline is set with the next look at the clock.
            self.sweep_ns = 0;
        }
        self.set_queue_deadline(at);
        let slot = &mut self.slots[at as usize];
        slot.state = SlotState::Queued;
        // D3: the generation stays. A cure precedes all CCBs of its level; a reset before those
        // that may wait for a command that hangs.
        let priority = match (&slot.recovery, slot.ccb.command) {
            (Some(_), _) => Priority::Dev,
            (None, Command::Reset) => Priority::Host,
            (None, _) => slot.ccb.priority,
        };
        self.queue.push(Reverse(Key { priority, generation: slot.generation, slot: at }));
    }

    /// Takes one that has not begun out of where it waits.
    pub(super) fn dequeue(&mut self, at: u32) {
        match self.slots[at as usize].state {
            SlotState::Queued => self.queue.retain(|Reverse(key)| key.slot != at),
            SlotState::Starting => self.release_active(at),
            SlotState::Pausing => self.pausing -= 1,
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
                slot.state = SlotState::Starting;
                if slot.ccb.flags.has(Flags::ORDERED) && slot.recovery.is_none() {
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
    pub(super) fn release_active(&mut self, at: u32) {
        self.active -= 1;
        if self.lone == Some(at) {
            self.lone = None;
        }
    }

    pub(super) fn thaw(&mut self, at: u32) {
        self.waiting_for_path -=
            u32::from(std::mem::take(&mut self.slots[at as usize].waits_for_path));
        if let Some(freeze) = self.slots[at as usize].freeze.take() {
            self.freezes.release(freeze);
        }
    }

    pub(super) fn pause_for(&mut self, at: u32, ns: u64, now: u64) {
        self.pausing += 1;
        self.wait(at, SlotState::Pausing, now.saturating_add(ns));
    }

    pub(super) fn wait(&mut self, at: u32, state: SlotState, due_ns: u64) {
        let slot = &mut self.slots[at as usize];
        slot.state = state;
        slot.due_ns =
            if state == SlotState::Pausing { due_ns.min(slot.ccb.end_ns) } else { due_ns };
        self.sweep_ns = self.sweep_ns.min(slot.due_ns);
    }

    /// A pause is over.
    pub(super) fn resume(&mut self, at: u32) {
        self.pausing -= 1;
        let slot = &mut self.slots[at as usize];
        slot.due_ns = u64::MAX;
        self.waiting_for_completion -= u32::from(std::mem::take(&mut slot.waits_for_completion));
        let curing = slot.recovery.is_some();
        self.enqueue(at);
        if !curing {
            self.thaw(at);
        }
    }

    pub(super) fn resume_on_completion(&mut self) {
        for at in 0..self.slots.len() as u32 {
            if self.waiting_for_completion == 0 {
                return;
            }
            let slot = &self.slots[at as usize];
            if slot.state == SlotState::Pausing && slot.waits_for_completion {
                self.resume(at);
            }
        }
    }
}
