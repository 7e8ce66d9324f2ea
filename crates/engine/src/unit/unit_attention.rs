//! State of one I_T_L nexus, shared by all cores: its initiator port, the conditions that block its
//! commands, and the unit attentions to report before its next command runs.
//!
//! Invariants
//!  A1  Every I_T_L nexus has its own queue; nothing delivered to one is lost to another.
//!  A2  Each condition is delivered once, in the order of arrival; identical ones merge.
//!  A3  INQUIRY, REPORT LUNS and REQUEST SENSE run in spite of a queue that is not empty.
//!  A4  Everything that can keep a command from running is a bit of one word. The core that serves
//!      the nexus reads the word once per command. Zero means that there is nothing to decide, and
//!      `gate.rs` decides all other values. A change of the condition behind a bit sets the bit for
//!      every affected nexus before the change is reported to its requester.
//!
//!  A5  A queued condition is a unit attention, or the error of a command that was answered before
//!      it ended (IMMED). That one has another sense key, and is reported as a deferred error
//!      (SPC-4 4.5.7).
//!
//! Any core and the control thread may raise a condition or set a bit, and it is there when the
//! call returns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bio::sync::{Mutex, MutexGuard};
use wire::scsi::{Asc, Key, Sense, asc};

use crate::flags;
use crate::reservations::Identity;
use crate::unit::Device;
use crate::unit::counters::Counts;
use crate::unit::lun_usage::LunUsage;

/// Conditions in one queue. When it is full the newest one is replaced by a reset condition, after
/// which the initiator reads all state again.
pub const ATTENTIONS_MAX: usize = 16;

/// An initiator port at one target port: the initiator's side of a nexus. One for each session.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Port {
    pub initiator: String,
    /// Its port as the transport names it (iSCSI: ISID).
    pub port_id: Vec<u8>,
    /// Its port as SCSI names it (SPC-4 7.6.4): with `relative_port`, the identity that outlives
    /// the session. Empty when the transport has none: such a port cannot register.
    pub transport_id: Vec<u8>,
    pub driver: String,
    pub target: String,
    pub relative_port: u16,
    /// Both as registrations know it; None without a TransportID.
    pub identity: Option<Identity>,
    pub session: u64,
}

/// State of one I_T_L nexus that the cores and the control thread share.
#[derive(Default)]
pub struct ItlNexus {
    flags: AtomicU32,
    lun: u64,
    port: Arc<Port>,
    queue: Mutex<VecDeque<Asc>>,
    counts: Counts,
    usage: Mutex<Option<Arc<LunUsage>>>,
}

impl ItlNexus {
    /// A nexus whose first condition is `first`.
    pub fn new(port: Arc<Port>, lun: u64, first: Asc) -> ItlNexus {
        let nexus = ItlNexus { port, lun, ..ItlNexus::default() };
        nexus.raise(first);
        nexus
    }

    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Counters of its commands; written by its session's core only.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The LUN of a group at which its commands are counted.
    pub(crate) fn usage(&self) -> Option<Arc<LunUsage>> {
        self.usage.lock().clone()
    }

    /// Sets the LUN at which its commands are counted: see [`LunUsage::enlist`].
    pub(crate) fn set_usage(&self, usage: Arc<LunUsage>) {
        *self.usage.lock() = Some(usage);
    }

    /// The number under which the initiator sees the unit.
    pub fn lun(&self) -> u64 {
        self.lun
    }

    /// The word of [`flags`]: one load.
    #[inline(always)]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Acquire)
    }

    pub fn set(&self, bits: u32) {
        self.flags.fetch_or(bits, Ordering::AcqRel);
    }

    pub fn clear(&self, bits: u32) {
        self.flags.fetch_and(!bits, Ordering::AcqRel);
    }

    /// Makes the bits of `mask` those of `bits`, at once.
    pub fn put(&self, mask: u32, bits: u32) {
        let next = |old: u32| Some(old & !mask | bits & mask);
        let _ = self.flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Asc>> {
        self.queue.lock()
    }

    /// True when a condition waits.
    pub fn is_pending(&self) -> bool {
        self.flags() & flags::ATTENTION != 0
    }

    /// The flag follows the queue; called with the queue locked.
    fn update_attention_flag(&self, queue: &VecDeque<Asc>) {
        let bits = if queue.is_empty() { 0 } else { flags::ATTENTION };
        self.put(flags::ATTENTION, bits);
    }

    /// Puts a condition behind those that wait (A2).
    pub fn raise(&self, attention: Asc) {
        let mut queue = self.queue();
        if !queue.contains(&attention) {
            if queue.len() == ATTENTIONS_MAX {
                queue.pop_back();
                if !queue.contains(&asc::POWER_ON_OR_RESET) {
                    queue.push_back(asc::POWER_ON_OR_RESET);
                }
            } else {
                queue.push_back(attention);
            }
        }
        self.update_attention_flag(&queue);
    }

    /// Takes the oldest condition.
    pub fn take(&self) -> Option<Asc> {
        let mut queue = self.queue();
        let first = queue.pop_front();
        self.update_attention_flag(&queue);
        first
    }

    /// Removes a condition that was reported in another way.
    pub fn forget(&self, attention: Asc) {
        let mut queue = self.queue();
        queue.retain(|a| *a != attention);
        self.update_attention_flag(&queue);
    }

    /// Conditions that wait, oldest first.
    pub fn waiting(&self) -> Vec<Asc> {
        self.queue().iter().copied().collect()
    }
}

/// Sense data for a condition taken from a queue of a nexus of `device` (A5).
pub(crate) fn sense_of(attention: Asc, device: Option<&Device>) -> Sense {
    let sense = Sense { deferred: attention.key != Key::UnitAttention, ..Sense::new(attention) };
    match device.and_then(Device::space) {
        Some(space) if attention == asc::THIN_SOFT_THRESHOLD => {
            sense.with_information(space.information())
        }
        _ => sense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_conditions_keep_their_order_and_identical_ones_merge() {
        let n = ItlNexus::new(Arc::default(), 0, asc::POWER_ON_OR_RESET);
        n.raise(asc::CAPACITY_CHANGED);
        n.raise(asc::MODE_CHANGED);
        n.raise(asc::CAPACITY_CHANGED);
        assert_eq!(n.take(), Some(asc::POWER_ON_OR_RESET));
        assert_eq!(n.take(), Some(asc::CAPACITY_CHANGED));
        assert!(n.is_pending());
        assert_eq!(n.take(), Some(asc::MODE_CHANGED));
        assert!(!n.is_pending());
        assert_eq!(n.take(), None);
    }

    #[test]
    fn a_full_queue_ends_with_a_power_on_or_reset_condition() {
        let n = ItlNexus::default();
        for ascq in 0..ATTENTIONS_MAX as u8 + 3 {
            n.raise(Asc::new(wire::scsi::Key::UnitAttention, 0x5D, ascq));
        }
        let all = n.waiting();
        assert_eq!(all.len(), ATTENTIONS_MAX);
        assert_eq!(all.last(), Some(&asc::POWER_ON_OR_RESET));
    }

    #[test]
    fn a_condition_reported_by_other_means_is_removed() {
        let n = ItlNexus::new(Arc::default(), 0, asc::LUNS_CHANGED);
        n.forget(asc::LUNS_CHANGED);
        assert!(!n.is_pending());
    }

    #[test]
    fn a4_flag_bits_change_independently_of_each_other() {
        let n = ItlNexus::default();
        n.set(flags::RESERVED_WRITE | flags::ACA);
        n.raise(asc::MODE_CHANGED);
        n.put(flags::RESERVED, flags::RESERVED_READ);
        assert_eq!(n.flags(), flags::ATTENTION | flags::RESERVED_READ | flags::ACA);
        n.clear(flags::ACA);
        assert_eq!(n.take(), Some(asc::MODE_CHANGED));
        assert_eq!(n.flags(), flags::RESERVED_READ);
    }
}
