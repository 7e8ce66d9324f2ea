//! Resets of a device, by any means: D9 of [`super`].
//!
//! ```text
//!   none --begins--> under way --the last one ends--> settling --expire--> none
//!                     ^   |                              |
//!                     +-+-+ a second one: both have      | one more begins, or a victim
//!                       |   to end                       | reports one
//!                       +--------------------------------+
//! ```
//! A reset becomes known in three ways. A CCB or recovery requests it (the slot of that CCB has its
//! [`ResetId`]), or its originator beside the queue reports it, or its victims reveal it.

use super::{Device, Effect};
use crate::ccb::CamStatus;
use crate::events::Event;
use crate::freeze::Freeze;

/// How long a device is left alone after a reset that specifies no time, ns. FreeBSD's scsi_delay
/// is 5 s, which parallel buses need. A device that is not ready after this time reports that, and
/// is cured.
pub const SETTLE_NS: u64 = 100_000_000;

/// A reset that has begun. It cannot be copied: its holder reports once that it is over.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a reset that is not declared over lasts until its deadline"]
pub struct ResetId(u64);

/// Resets of a device that are not over.
#[derive(Default)]
pub(super) struct Resets {
    last: u64,
    /// Those under way, and when they are taken to be over at the latest.
    open: Vec<(u64, u64)>,
    /// How long it settles, counted from the next look at the clock, ns.
    settle_ns: Option<u64>,
    /// It settles until then.
    settled_ns: u64,
    /// D9
    freeze: Option<Freeze>,
}

impl Resets {
    /// D9
    pub(super) fn is_out(&self) -> bool {
        self.freeze.is_some()
    }

    /// When there is something to do; `u64::MAX`: never.
    pub(super) fn due(&self) -> u64 {
        match (&self.freeze, self.settle_ns, self.open.iter().map(|(_, due)| *due).min()) {
            (None, ..) => u64::MAX,
            (_, Some(_), _) => 0,
            (.., Some(due)) => due,
            (.., None) => self.settled_ns,
        }
    }
}

impl Device {
    /// The device, or the path to it, is reset beside its queue; the caller reports within
    /// `most_ns` that the reset is over.
    pub fn reset_begins(&mut self, most_ns: u64, now: u64) -> ResetId {
        self.effects.push_back(Effect::Event(Event::BusReset, false));
        self.was_reset = true;
        self.quiesce(most_ns, now)
    }

    /// D9: nothing is sent from now on.
    pub(super) fn quiesce(&mut self, most_ns: u64, now: u64) -> ResetId {
        self.resets.last += 1;
        let id = self.resets.last;
        if !self.lost {
            self.resets.open.push((id, now.saturating_add(most_ns)));
            self.freeze_for_reset();
        }
        ResetId(id)
    }

    /// A reset is over, well or not; the device is left alone for so long afterwards.
    pub fn reset_ends(&mut self, reset: ResetId, settle_ns: u64) {
        let before = self.resets.open.len();
        self.resets.open.retain(|(id, _)| *id != reset.0);
        // One that was over by its deadline, or whose device was lost, changes nothing.
        if self.resets.open.len() < before {
            let longer = self.resets.settle_ns.map_or(settle_ns, |ns| ns.max(settle_ns));
            self.resets.settle_ns = Some(longer);
            self.sweep_ns = 0;
        }
    }

    /// A CCB returned as the victim of a reset: if no reset was reported, this reports one.
    pub(super) fn victim_returned(&mut self, by: CamStatus, now: u64) {
        if self.lost {
            return;
        }
        if !self.resets.is_out() {
            let event = match by {
                CamStatus::ResetSent => Event::SentBdr,
                _ => Event::BusReset,
            };
            self.effects.push_back(Effect::Event(event, false));
        }
        if self.resets.open.is_empty() {
            let until = now.saturating_add(SETTLE_NS);
            self.resets.settled_ns = self.resets.settled_ns.max(until);
            self.freeze_for_reset();
        }
    }

    /// It is being reset, or settles.
    pub fn is_reset(&self) -> bool {
        self.resets.is_out()
    }

    fn freeze_for_reset(&mut self) {
        if self.resets.freeze.is_none() {
            self.resets.freeze = Some(self.freezes.freeze());
        }
        self.sweep_ns = self.sweep_ns.min(self.resets.due());
    }

    /// Does all due work.
    pub(super) fn expire_resets(&mut self, now: u64) {
        if !self.resets.is_out() {
            return;
        }
        self.resets.open.retain(|(_, due)| *due > now);
        if let Some(ns) = self.resets.settle_ns.take() {
            self.resets.settled_ns = self.resets.settled_ns.max(now.saturating_add(ns));
        }
        if self.resets.open.is_empty() && self.resets.settled_ns <= now {
            self.thaw_from_resets();
        }
        self.sweep_ns = self.sweep_ns.min(self.resets.due());
    }

    /// D9: the freeze is returned, once. Also when the device is lost, which ends all that waits.
    pub(super) fn thaw_from_resets(&mut self) {
        self.resets.open.clear();
        self.resets.settle_ns = None;
        self.resets.settled_ns = 0;
        if let Some(freeze) = self.resets.freeze.take() {
            self.freezes.release(freeze);
        }
    }
}
