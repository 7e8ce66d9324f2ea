//! What hangs on a SATA link and is no disk: a port multiplier, an enclosure behind a bridge. The
//! link's signature has told which it is.

use wire::ata::{
    CONTROL_PORT, READ_PORT_MULTIPLIER, SEP_ATTN, SEP_IDENTIFY_LEN, SepIdentify, gscr, sep,
};

use super::{Ask, QUESTION_TRIES, Refusal, asks_again, came, is_nobody};
use crate::ccb::{Command, Ended, Flags, Registers};

/// What a port multiplier says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MultiplierFacts {
    /// Product and vendor.
    pub product: u32,
    /// Revision.
    pub revision: u32,
    /// Ports behind it.
    pub ports: u8,
}

/// Asks a port multiplier for its general registers, one after the other.
#[derive(Default)]
pub struct MultiplierProbe {
    next: usize,
    tries: u8,
    said: [u32; 3],
    refusal: Option<Refusal>,
}

const REGISTERS: [u16; 3] = [gscr::PRODUCT, gscr::REVISION, gscr::PORTS];

impl MultiplierProbe {
    /// The next question; none when all are asked.
    pub fn ask(&self) -> Option<Ask> {
        let features = *REGISTERS.get(self.next).filter(|_| self.refusal.is_none())?;
        let (command, device) = (READ_PORT_MULTIPLIER, CONTROL_PORT);
        let command = Command::Ata(Registers { command, features, device, ..Registers::default() });
        Some(Ask { command, flags: Flags::RAW, length: 0 })
    }

    /// What came of the question.
    pub fn hear(&mut self, ended: &Ended) {
        let status = ended.outcome.status;
        if is_nobody(status) {
            self.refusal = Some(Refusal::NobodyThere);
        } else if asks_again(ended) && self.tries < QUESTION_TRIES {
            self.tries += 1;
        } else if ended.result.is_err() {
            self.refusal = Some(Refusal::Silent { question: "READ PORT MULTIPLIER", status });
        } else {
            // The value: COUNT is its lowest byte, LBA the others.
            let (count, lba) = ended.outcome.answer;
            let value = (lba & 0x00ff_ffff) << 8 | u64::from(count & 0xff);
            if let Some(place) = self.said.get_mut(self.next) {
                *place = value as u32;
            }
            self.next += 1;
        }
    }

    /// What came of it all.
    pub fn finish(self) -> Result<MultiplierFacts, Refusal> {
        let [product, revision, ports] = self.said;
        let facts = MultiplierFacts { product, revision, ports: (ports & 0x0f) as u8 };
        self.refusal.map_or(Ok(facts), Err)
    }
}

/// The question to an enclosure behind a bridge.
pub fn bridge_question() -> Ask {
    let count = (SEP_IDENTIFY_LEN / 4) as u16;
    let lba = u64::from(sep::IDENTIFY);
    let command = Command::Ata(Registers { command: SEP_ATTN, lba, count, ..Registers::default() });
    Ask { command, flags: Flags::IN | Flags::RAW, length: SEP_IDENTIFY_LEN as u32 }
}

/// And its answer.
pub fn bridge_answer(ended: &Ended, data: &[u8]) -> Result<SepIdentify, Refusal> {
    let (question, status) = ("IDENTIFY SEP", ended.outcome.status);
    if is_nobody(status) {
        return Err(Refusal::NobodyThere);
    }
    if ended.result.is_err() {
        return Err(Refusal::Silent { question, status });
    }
    SepIdentify::decode(came(ended, data)).map_err(|error| Refusal::Malformed { question, error })
}
