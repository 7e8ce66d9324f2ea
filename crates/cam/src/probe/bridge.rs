//! Probe of an enclosure behind a SATA bridge; the link's signature has identified it as one.

use wire::ata::{SEP_ATTN, SEP_IDENTIFY_LEN, SepIdentify, sep};

use super::{FailedResponse, ProbeCommand, Refusal, is_no_device, received_data};
use crate::ccb::{Command, Ended, Flags, Registers};

/// The question to an enclosure behind a bridge.
pub fn bridge_probe_command() -> ProbeCommand {
    let count = (SEP_IDENTIFY_LEN / 4) as u16;
    let lba = u64::from(sep::IDENTIFY);
    let command = Command::Ata(Registers { command: SEP_ATTN, lba, count, ..Registers::default() });
    ProbeCommand { command, flags: Flags::IN | Flags::RAW, length: SEP_IDENTIFY_LEN as u32 }
}

/// And its answer.
pub fn bridge_answer(ended: &Ended, data: &[u8]) -> Result<SepIdentify, Refusal> {
    let (question, status) = ("IDENTIFY SEP", ended.outcome.status);
    if is_no_device(status) {
        return Err(Refusal::NoDevice);
    }
    if ended.result.is_err() {
        return Err(Refusal::Silent { question, response: FailedResponse::of(&ended.outcome) });
    }
    SepIdentify::decode(received_data(ended, data))
        .map_err(|error| Refusal::Malformed { question, error })
}
