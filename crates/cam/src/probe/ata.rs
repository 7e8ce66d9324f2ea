//! Probe of an ATA device.
//!
//! ```text
//!  Identify --> write cache as wanted? --yes--> Done
//!    |   ^             | no
//!    |   +--again-- SetCache
//!    garbage, no medium: the end
//! ```

use wire::ata::{self, IDENTIFY_LEN, Identify};

use super::{
    FailedResponse, PROBE_TRIES, ProbeCommand, Refusal, is_no_device, must_retry, received_data,
    usable,
};
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
    /// Whether it is the device that reported `other`. With sectors of another length it is not:
    /// all data would be at other offsets.
    pub fn is_same(&self, other: &AtaFacts) -> bool {
        let (own, other) = (&self.identify, &other.identify);
        let names = (&own.model, &own.serial, own.wwn) == (&other.model, &other.serial, other.wwn);
        names && own.sector_bytes == other.sector_bytes
    }

    /// It does not report which disk it is.
    fn is_nameless(&self) -> bool {
        self.identify.model.is_empty() && self.identify.serial.is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AtaProbeState {
    Identify,
    SetCache,
    IdentifyAgain,
    Done,
}

/// See the module.
pub struct AtaProbe {
    state: AtaProbeState,
    tries: u8,
    cache: Option<bool>,
    facts: AtaFacts,
    /// It reported its identity before.
    named: bool,
    refusal: Option<Refusal>,
}

impl AtaProbe {
    /// A probe of a device. `cache` switches its write cache on or off; `None` leaves it unchanged.
    /// `before`: the facts that it reported before.
    pub fn new(cache: Option<bool>, before: Option<&AtaFacts>) -> AtaProbe {
        AtaProbe {
            state: AtaProbeState::Identify,
            tries: 0,
            cache,
            facts: AtaFacts::default(),
            named: before.is_some_and(|facts| !facts.is_nameless()),
            refusal: None,
        }
    }

    /// The next question; none when all were sent.
    pub fn next_command(&self) -> Option<ProbeCommand> {
        let (command, features, length) = match self.state {
            AtaProbeState::Identify | AtaProbeState::IdentifyAgain => {
                (ata::command::IDENTIFY, 0, IDENTIFY_LEN as u32)
            }
            AtaProbeState::SetCache => {
                let on = self.cache == Some(true);
                (ata::command::SET_FEATURES, if on { CACHE_ON } else { CACHE_OFF }, 0)
            }
            AtaProbeState::Done => return None,
        };
        let direction = if length == 0 { Flags::NONE } else { Flags::IN };
        let command = Command::Ata(Registers { command, features, ..Registers::default() });
        Some(ProbeCommand { command, flags: direction | Flags::RAW, length })
    }

    /// Takes the answer to the question.
    pub fn handle_answer(&mut self, ended: &Ended, data: &[u8]) {
        if is_no_device(ended.outcome.status) {
            return self.refuse(Refusal::NoDevice);
        }
        if must_retry(ended) && self.tries < PROBE_TRIES {
            self.tries += 1;
            return;
        }
        self.tries = 0;
        match self.state {
            AtaProbeState::Identify | AtaProbeState::IdentifyAgain => {
                self.handle_identify(ended, received_data(ended, data))
            }
            // Refused: IDENTIFY shows how it is.
            AtaProbeState::SetCache => self.state = AtaProbeState::IdentifyAgain,
            AtaProbeState::Done => {}
        }
    }

    fn handle_identify(&mut self, ended: &Ended, data: &[u8]) {
        let question = "IDENTIFY DEVICE";
        if ended.result.is_err() {
            let response = FailedResponse::of(&ended.outcome);
            return self.refuse(Refusal::Silent { question, response });
        }
        let identify = match Identify::decode(data) {
            Ok(identify) => identify,
            Err(error) => return self.refuse(Refusal::Malformed { question, error }),
        };
        if let Err(why) = usable(identify.sectors, identify.sector_bytes) {
            return self.refuse(why);
        }
        let other = identify.write_cache.is_some() && self.cache.is_some();
        let first = self.state == AtaProbeState::Identify;
        let wrong = other && first && identify.write_cache != self.cache;
        self.state = if wrong { AtaProbeState::SetCache } else { AtaProbeState::Done };
        self.facts.identify = identify;
    }

    fn refuse(&mut self, why: Refusal) {
        self.refusal = Some(why);
        self.state = AtaProbeState::Done;
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
