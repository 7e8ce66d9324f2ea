//! Identity of the medium: D11 of [`super`]. While it is unknown which medium answers, commands
//! wait.
//!
//! ```text
//!   trusted --new session, attention--> in doubt --check: the same--> trusted
//!                                        |    ^
//!                                        |    | another session or attention: a new round
//!                                        |    +---+
//!                                        +-- check: another medium, or none --> lost
//! ```
//! The bus carries out the check (`bus/identity.rs`). Each cause of doubt begins a new round, and
//! only the answer to a check of the latest round ends the doubt. An answer from before the last
//! change does not describe the present medium.

use bio::Errno;
use wire::scsi::{Key, Sense, asc};

use super::{Device, Effect, SlotState};
use crate::ccb::{Ccb, Command, Outcome, Priority};
use crate::events::Event;
use crate::freeze::Freeze;

/// Unit attentions that leave no doubt which medium answers: additional sense code and, where only
/// some are meant, qualifiers. All others may mean another medium.
const HARMLESS: &[(u8, std::ops::RangeInclusive<u8>)] = &[
    (0x0b, 0x00..=0xff), // warnings: temperature, power
    (0x2a, 0x00..=0x08), // parameters, reservations, access states, priority
    (0x2a, 0x0a..=0xff),
    (0x2f, 0x00..=0xff), // commands cleared by another initiator, or by a loss of power
    (0x38, 0x00..=0xff), // thresholds of thin provisioning
    (0x5d, 0x00..=0xff), // a failure is predicted
    (0x5e, 0x00..=0xff), // power conditions
];

/// State of the knowledge about a device's identity.
#[derive(Default)]
pub(super) struct Doubts {
    /// The bus knows which medium it is: only then can it be another one.
    known: bool,
    /// Causes of doubt so far.
    round: u64,
    /// Out while it is in doubt.
    freeze: Option<Freeze>,
    /// A check was not answered: requests that have another path do not wait (D10).
    lasts: bool,
    /// The medium became smaller: commands beyond so many blocks are not sent.
    blocks: Option<u64>,
}

/// A unit attention after which another medium may answer.
pub(crate) fn is_doubtful(outcome: &Outcome) -> bool {
    let Ok(sense) = Sense::decode(outcome.sense.bytes()) else { return false };
    let code = sense.code;
    let harmless = |(asc, ascqs): &(u8, std::ops::RangeInclusive<u8>)| {
        *asc == code.asc && ascqs.contains(&code.ascq)
    };
    code.key == Key::UnitAttention && !HARMLESS.iter().any(harmless)
}

impl Device {
    /// The bus knows from now on which medium it is, as far as it was probed in a round.
    pub fn identify(&mut self, round: u64) {
        self.doubts.known = true;
        if round != self.doubts.round {
            self.doubt();
        }
    }

    /// Another medium may answer from now on: no command of a user is sent before it was probed.
    pub fn doubt(&mut self) {
        self.doubts.round += 1;
        if !self.doubts.known || self.lost {
            return;
        }
        if self.doubts.freeze.is_none() {
            self.doubts.freeze = Some(self.freezes.freeze());
        }
        self.sweep_ns = 0;
        self.effects.push_back(Effect::Event(Event::Doubted, false));
    }

    /// It is unknown which medium answers.
    pub fn is_in_doubt(&self) -> bool {
        self.doubts.freeze.is_some()
    }

    /// Causes of doubt so far.
    pub fn doubt_round(&self) -> u64 {
        self.doubts.round
    }

    /// A check that began in a round found the same medium; false: there is a later round.
    pub fn trust(&mut self, round: u64) -> bool {
        if round != self.doubts.round {
            return false;
        }
        self.end_doubt();
        self.pump();
        true
    }

    /// A check was not answered, and another follows.
    pub fn doubt_lasts(&mut self) {
        if self.is_in_doubt() && !std::mem::replace(&mut self.doubts.lasts, true) {
            self.waiting_for_path += 1;
            self.fail_fast_waiting(None);
        }
    }

    /// The medium has become smaller: commands beyond its blocks are refused here.
    pub fn shrink(&mut self, blocks: u64) {
        self.doubts.blocks = Some(blocks);
    }

    /// The doubt is over, one way or the other.
    pub(super) fn end_doubt(&mut self) {
        self.waiting_for_path -= u32::from(std::mem::take(&mut self.doubts.lasts));
        let Some(freeze) = self.doubts.freeze.take() else { return };
        self.freezes.release(freeze);
        for slot in self.slots.iter_mut().filter(|slot| slot.state == SlotState::Queued) {
            slot.due_ns = slot.ccb.end_ns;
            self.sweep_ns = self.sweep_ns.min(slot.due_ns);
        }
    }

    /// Gives each command that waits for a check, and has no end of its own, the deadline that it
    /// would have with the device.
    pub(super) fn expire_doubt(&mut self, now: u64) {
        if !self.is_in_doubt() {
            return;
        }
        for slot in &mut self.slots {
            let waits = slot.state == SlotState::Queued && slot.recovery.is_none();
            let normal = slot.ccb.priority >= Priority::Normal;
            if waits && normal && slot.due_ns == u64::MAX {
                slot.due_ns = now.saturating_add(u64::from(slot.ccb.timeout_ms) * 1_000_000);
                self.sweep_ns = self.sweep_ns.min(slot.due_ns);
            }
        }
    }

    /// A command waited for a check up to its deadline.
    pub(super) fn expire_waiting(&mut self, at: u32) {
        if !self.is_in_doubt() {
            return;
        }
        self.counts.timeouts += 1;
        self.dequeue(at);
        self.finish(at, Err(Errno::TimedOut));
    }

    /// The medium has become smaller, and has no such blocks any more.
    pub(super) fn is_beyond(&self, ccb: &Ccb) -> bool {
        let range = self.doubts.blocks.zip(blocks_of(&ccb.command));
        range.is_some_and(|(most, (lba, count))| lba.saturating_add(count) > most)
    }

    /// It ends as if the medium had reported that.
    pub(super) fn refuse_beyond(&mut self, at: u32) {
        self.slots[at as usize].outcome = Outcome::check(Sense::new(asc::LBA_OUT_OF_RANGE));
        self.finish(at, Err(Errno::Inval));
    }
}

/// First block and number of blocks of a READ or WRITE.
pub(crate) fn blocks_of(command: &Command) -> Option<(u64, u64)> {
    let bytes = |cdb: &[u8], at: std::ops::Range<usize>| {
        let bytes = cdb.get(at).unwrap_or(&[]);
        bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
    };
    match command {
        Command::Ata(r) if r.queued => Some((r.lba, u64::from(r.features))),
        Command::Ata(r) if matches!(r.command, 0x24 | 0x25 | 0x34 | 0x35) => {
            Some((r.lba, if r.count == 0 { 0x1_0000 } else { u64::from(r.count) }))
        }
        Command::Scsi { cdb, .. } => match cdb.first()? {
            0x28 | 0x2a | 0x2e | 0x41 => Some((bytes(cdb, 2..6), bytes(cdb, 7..9))),
            0x88 | 0x8a | 0x8e | 0x93 => Some((bytes(cdb, 2..10), bytes(cdb, 10..14))),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use wire::scsi::Asc;

    use super::*;

    #[test]
    fn unit_attentions_that_may_mean_another_medium_are_doubtful() {
        let code =
            |key, asc, ascq| is_doubtful(&Outcome::check(Sense::new(Asc { key, asc, ascq })));
        let doubtful =
            [(0x28, 0), (0x29, 0), (0x29, 7), (0x2a, 9), (0x3f, 3), (0x3f, 5), (0x3f, 14)];
        for (asc, ascq) in doubtful {
            assert!(code(Key::UnitAttention, asc, ascq), "{asc:02x}/{ascq:02x}");
            assert!(!code(Key::NotReady, asc, ascq), "{asc:02x}/{ascq:02x}");
        }
        for (asc, ascq) in [(0x2a, 1), (0x2a, 6), (0x2f, 0), (0x38, 7), (0x5d, 0)] {
            assert!(!code(Key::UnitAttention, asc, ascq), "{asc:02x}/{ascq:02x}");
        }
    }
}
