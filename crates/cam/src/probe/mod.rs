//! Probes: the questions that identify a device, step by step and without I/O. A probe returns its
//! next question, and receives the answer.
//!
//! | file | requests |
//! | --- | --- |
//! | `scsi` | INQUIRY and its pages, modes, capacity, logical units |
//! | `ata` | IDENTIFY DEVICE; sets the write cache |
//! | `multiplier` | the registers of a port multiplier and its ports |
//! | `bridge` | an enclosure behind a SATA bridge |
//!
//! A probe trusts a device no further than the data that it sent. A device that cannot be used ends
//! in a [`Refusal`] with the reason.

mod ata;
mod bridge;
mod multiplier;
mod scsi;

use std::fmt;

use wire::WireError;
use wire::scsi::{Asc, Sense};

use crate::ccb::{CamStatus, Ccb, Command, Ended, Flags, Outcome, Owner, Priority};
use crate::periph::pass::status_text;

pub use ata::{AtaFacts, AtaProbe};
pub use bridge::{bridge_answer, bridge_probe_command};
pub use multiplier::{
    LINK_POLL_NS, LINK_TRIES, MultiplierFacts, MultiplierProbe, Port, RESET_NS, register,
};
pub use scsi::{LUNS_MAX, ScsiFacts, ScsiProbe};
pub(crate) use scsi::{access_answer, access_query};

/// How long a device may take to answer a question, ms.
pub const PROBE_TIMEOUT_MS: u32 = 10_000;
/// How often a question is sent again that met a unit attention or a reset; then it is taken for
/// refused.
pub const PROBE_TRIES: u8 = 4;

/// One question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeCommand {
    /// The command.
    pub command: Command,
    /// The direction of data, and whether recovery may help.
    pub flags: Flags,
    /// Bytes of the answer.
    pub length: u32,
}

impl ProbeCommand {
    /// As a CCB.
    pub fn ccb(&self, owner: Owner) -> Ccb {
        Ccb {
            command: self.command,
            flags: self.flags,
            priority: Priority::Xpt,
            timeout_ms: PROBE_TIMEOUT_MS,
            retries: PROBE_TRIES,
            end_ns: u64::MAX,
            length: self.length,
            owner,
        }
    }
}

/// How a question returned that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedResponse {
    status: CamStatus,
    scsi_status: u8,
    /// Of sense data.
    code: Option<Asc>,
}

impl FailedResponse {
    /// The answer in an outcome.
    pub fn of(outcome: &Outcome) -> FailedResponse {
        let code = Sense::decode(outcome.sense.bytes()).ok().map(|sense| sense.code);
        FailedResponse { status: outcome.status, scsi_status: outcome.scsi_status, code }
    }
}

impl fmt::Display for FailedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.code) {
            (CamStatus::ScsiError, Some(code)) => code.fmt(f),
            (CamStatus::ScsiError, None) => f.write_str(&status_text(self.scsi_status)),
            (status, _) => f.write_str(status.text()),
        }
    }
}

/// Why a device cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No device is there.
    NoDevice,
    /// The target is there, and has no such logical unit.
    NoUnit,
    /// It does not answer a question that every device answers.
    Silent {
        /// The question.
        question: &'static str,
        /// How that returned.
        response: FailedResponse,
    },
    /// An answer that makes no sense.
    Malformed {
        /// The question.
        question: &'static str,
        /// The fault of the answer.
        error: WireError,
    },
    /// A disk that had a name has none any more.
    Nameless,
    /// A medium that cannot be used.
    Medium {
        /// Its blocks.
        blocks: u64,
        /// Bytes of a block.
        block_len: u32,
        /// The fault of the medium.
        why: &'static str,
    },
}

impl Refusal {
    /// A device answered, but the answer cannot be true.
    pub const fn is_nonsense(&self) -> bool {
        matches!(self, Refusal::Malformed { .. } | Refusal::Medium { .. } | Refusal::Nameless)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoDevice => f.write_str("no device answers"),
            Refusal::NoUnit => f.write_str("the target has no such logical unit"),
            Refusal::Silent { question, response } => {
                write!(f, "{question} is not answered: {response}")
            }
            Refusal::Malformed { question, error } => write!(f, "{question}: {error}"),
            Refusal::Nameless => f.write_str("IDENTIFY DEVICE: neither model nor serial number"),
            Refusal::Medium { blocks, block_len, why } => {
                write!(f, "a medium of {blocks} blocks of {block_len} bytes: {why}")
            }
        }
    }
}

/// Smallest and largest block that a disk may have here, bytes.
const BLOCK_LENS: std::ops::RangeInclusive<u32> = 512..=65_536;

/// Fault of a medium whose end is beyond all file offsets.
const ENDLESS: &str = "the end is beyond the largest file offset";

/// Whether a medium can be used.
fn usable(blocks: u64, block_len: u32) -> Result<(), Refusal> {
    let bad = |why| Err(Refusal::Medium { blocks, block_len, why });
    if !block_len.is_power_of_two() || !BLOCK_LENS.contains(&block_len) {
        return bad("blocks must be a power of two from 512 to 65536 bytes");
    }
    if blocks == 0 {
        return bad("the medium has no blocks");
    }
    let bytes = blocks.checked_mul(u64::from(block_len)).and_then(|n| i64::try_from(n).ok());
    if bytes.is_none() {
        return bad(ENDLESS);
    }
    Ok(())
}

/// Of an answer: the received bytes, however long the buffer was.
fn received_data<'a>(ended: &Ended, data: &'a [u8]) -> &'a [u8] {
    let n = ended.result.map_or(0, |n| n as usize);
    data.get(..n).unwrap_or(data)
}

/// Whether no device answers at all.
fn is_no_device(status: CamStatus) -> bool {
    matches!(status, CamStatus::SelectionTimeout | CamStatus::NotThere | CamStatus::NoHba)
}

/// An answer that is not about the question: a unit attention, a reset meanwhile.
fn must_retry(ended: &Ended) -> bool {
    use crate::recovery::{Policy, Step, judge};
    let verdict = judge(&ended.outcome, Policy::DISK);
    ended.result.is_err()
        && (verdict.attention || matches!(verdict.step, Step::Requeue | Step::Busy(_)))
}

#[cfg(test)]
mod tests;
