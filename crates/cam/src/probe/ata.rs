//! Probe of an ATA device.
//!
//! ```text
//!  Identify --> write cache as wanted? --yes--> Done
//!    |   ^             | no
//!    |   +--again-- SetCache
//!    garbage, no medium: the end
//! ```

use wire::ata::{self, IDENTIFY_LEN, Identify};

use super::{Ask, QUESTION_TRIES, Refusal, Said, asks_again, came, is_nobody, usable};
use crate::ccb::{Command, Ended, Flags, Registers};

/// SET FEATURES: write cache on and off.
const CACHE_ON: u16 = 0x02;
const CACHE_OFF: u16 = 0x82;

/// Facts of an ATA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtaFacts {
    /// IDENTIFY DEVICE data.
    pub identify: Identify,
}

impl AtaFacts {
    /// It is the same device as one that said `other`. With sectors of another length it is not:
    /// whatever is on it is elsewhere then.
    pub fn is_same(&self, other: &AtaFacts) -> bool {
        let (own, other) = (&self.identify, &other.identify);
        let names = (&own.model, &own.serial, own.wwn) == (&other.model, &other.serial, other.wwn);
        names && own.sector_bytes == other.sector_bytes
    }

    /// It does not say which disk it is.
    fn is_nameless(&self) -> bool {
        self.identify.model.is_empty() && self.identify.serial.is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Identify,
    SetCache,
    IdentifyAgain,
    Done,
}

/// See the module.
pub struct AtaProbe {
    state: State,
    tries: u8,
    cache: Option<bool>,
    facts: AtaFacts,
    /// It said before which disk it is.
    named: bool,
    refusal: Option<Refusal>,
}

impl AtaProbe {
    /// Of a device, whose write cache is to be switched on or off; `None` leaves it as it is. It
    /// may have said something `before`.
    pub fn new(cache: Option<bool>, before: Option<&AtaFacts>) -> AtaProbe {
        AtaProbe {
            state: State::Identify,
            tries: 0,
            cache,
            facts: AtaFacts::default(),
            named: before.is_some_and(|facts| !facts.is_nameless()),
            refusal: None,
        }
    }

    /// The next question; none when all are asked.
    pub fn ask(&self) -> Option<Ask> {
        let (command, features, length) = match self.state {
            State::Identify | State::IdentifyAgain => {
                (ata::command::IDENTIFY, 0, IDENTIFY_LEN as u32)
            }
            State::SetCache => {
                let on = self.cache == Some(true);
                (ata::command::SET_FEATURES, if on { CACHE_ON } else { CACHE_OFF }, 0)
            }
            State::Done => return None,
        };
        let direction = if length == 0 { Flags::NONE } else { Flags::IN };
        let command = Command::Ata(Registers { command, features, ..Registers::default() });
        Some(Ask { command, flags: direction | Flags::RAW, length })
    }

    /// Takes the answer to the question.
    pub fn hear(&mut self, ended: &Ended, data: &[u8]) {
        if is_nobody(ended.outcome.status) {
            return self.refuse(Refusal::NobodyThere);
        }
        if asks_again(ended) && self.tries < QUESTION_TRIES {
            self.tries += 1;
            return;
        }
        self.tries = 0;
        match self.state {
            State::Identify | State::IdentifyAgain => self.hear_identify(ended, came(ended, data)),
            // Refused: IDENTIFY says how it is.
            State::SetCache => self.state = State::IdentifyAgain,
            State::Done => {}
        }
    }

    fn hear_identify(&mut self, ended: &Ended, data: &[u8]) {
        let question = "IDENTIFY DEVICE";
        if ended.result.is_err() {
            let said = Said::of(&ended.outcome);
            return self.refuse(Refusal::Silent { question, said });
        }
        let said = match Identify::decode(data) {
            Ok(said) => said,
            Err(error) => return self.refuse(Refusal::Malformed { question, error }),
        };
        if let Err(why) = usable(said.sectors, said.sector_bytes) {
            return self.refuse(why);
        }
        let other = said.write_cache.is_some() && self.cache.is_some();
        let first = self.state == State::Identify;
        let wrong = other && first && said.write_cache != self.cache;
        self.state = if wrong { State::SetCache } else { State::Done };
        self.facts.identify = said;
    }

    fn refuse(&mut self, why: Refusal) {
        self.refusal = Some(why);
        self.state = State::Done;
    }

    /// Returns the result once no question is left.
    pub fn finish(self) -> Result<AtaFacts, Refusal> {
        match self.refusal {
            Some(why) => Err(why),
            None if self.named && self.facts.is_nameless() => Err(Refusal::Nameless),
            None => Ok(self.facts),
        }
    }
}
