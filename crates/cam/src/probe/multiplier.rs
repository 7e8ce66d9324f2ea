//! Probe of a port multiplier and its ports. It switches the ports on, waits for their links, and
//! clears their errors, without which no device behind them is reached.
//!
//! ```text
//!   general registers --> notify of changes --> each port: SControl --off--> reset, on --+
//!                                                  |  on                                 |
//!                                                  +--> SStatus until its link is up <---+
//!                                                          +--> SError: kept, then cleared
//! ```

use std::collections::VecDeque;

use wire::ata::{
    CONTROL_PORT, READ_PORT_MULTIPLIER, WRITE_PORT_MULTIPLIER, gscr, pm_registers, pm_value, pscr,
};

use super::{FailedResponse, PROBE_TRIES, ProbeCommand, Refusal, is_no_device, must_retry};
use crate::ccb::{Command, Ended, Flags, Registers};

/// How often a port is looked at whose device is seen and whose link is not up.
pub const LINK_TRIES: u8 = 20;
/// How long it rests between, ns; all of them are longer than a disk takes to answer COMRESET.
pub const LINK_POLL_NS: u64 = 10_000_000;
/// How long COMRESET is sent, ns.
pub const RESET_NS: u64 = 1_000_000;

/// A port, as its registers were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// SStatus.
    pub status: u32,
    /// SError, before it was cleared.
    pub error: u32,
}

impl Port {
    /// A device is there, and can be reached.
    pub fn is_up(&self) -> bool {
        self.status & pscr::DET == pscr::UP
    }

    /// For people.
    pub fn text(&self) -> &'static str {
        match (self.status & pscr::DET, self.status >> 4 & 0x0f) {
            (pscr::UP, 1) => "1.5 Gb/s",
            (pscr::UP, 2) => "3.0 Gb/s",
            (pscr::UP, _) => "6.0 Gb/s",
            (pscr::SEEN, _) => "no link to its device",
            (pscr::OFF, _) => "off",
            _ => "empty",
        }
    }
}

/// Facts of a port multiplier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultiplierFacts {
    /// Product and vendor.
    pub product: u32,
    /// Revision.
    pub revision: u32,
    /// Those behind it; a port's number is the target of its device.
    pub ports: Vec<Port>,
}

impl MultiplierFacts {
    /// The same device, although its ports may have changed.
    pub fn is_same(&self, other: &MultiplierFacts) -> bool {
        let key = |f: &MultiplierFacts| (f.product, f.revision, f.ports.len());
        key(self) == key(other)
    }

    /// Ports whose devices are to be probed: something happened there.
    pub fn changed(&self, before: Option<&MultiplierFacts>) -> Vec<u64> {
        let was_up = |n: usize| before.and_then(|f| f.ports.get(n)).is_some_and(Port::is_up);
        let changed = |(n, port): &(usize, &Port)| port.error != 0 || port.is_up() != was_up(*n);
        self.ports.iter().enumerate().filter(changed).map(|(n, _)| n as u64).collect()
    }
}

/// One register that is read, or written.
#[derive(Clone, Copy)]
struct Step {
    port: u8,
    register: u16,
    value: Option<u32>,
}

/// Reads or writes a register of a port.
pub fn register(port: u8, register: u16, value: Option<u32>) -> ProbeCommand {
    let command = if value.is_some() { WRITE_PORT_MULTIPLIER } else { READ_PORT_MULTIPLIER };
    let (count, lba) = pm_registers(value.unwrap_or(0));
    let registers =
        Registers { command, features: register, device: port, count, lba, ..Registers::default() };
    ProbeCommand { command: Command::Ata(registers), flags: Flags::RAW, length: 0 }
}

/// See the module.
pub struct MultiplierProbe {
    left: VecDeque<Step>,
    tries: u8,
    polls: u8,
    rest_ns: u64,
    facts: MultiplierFacts,
    refusal: Option<Refusal>,
}

const fn read(port: u8, register: u16) -> Step {
    Step { port, register, value: None }
}

impl Default for MultiplierProbe {
    fn default() -> MultiplierProbe {
        let general = [gscr::PRODUCT, gscr::REVISION, gscr::FEATURES, gscr::PORTS];
        MultiplierProbe {
            left: general.map(|register| read(CONTROL_PORT, register)).into(),
            tries: 0,
            polls: 0,
            rest_ns: 0,
            facts: MultiplierFacts::default(),
            refusal: None,
        }
    }
}

impl MultiplierProbe {
    /// The next question, and how long to rest before it, ns; none when all were sent.
    pub fn next_command(&mut self) -> Option<(u64, ProbeCommand)> {
        let step = *self.left.front().filter(|_| self.refusal.is_none())?;
        let rest_ns = std::mem::take(&mut self.rest_ns);
        Some((rest_ns, register(step.port, step.register, step.value)))
    }

    /// Takes the answer to the question. Returns a port whose device may have lost the contents of
    /// its cache.
    pub fn handle_answer(&mut self, ended: &Ended) -> Option<u64> {
        let status = ended.outcome.status;
        let step = *self.left.front()?;
        if is_no_device(status) {
            self.refusal = Some(Refusal::NoDevice);
        } else if must_retry(ended) && self.tries < PROBE_TRIES {
            self.tries += 1;
        } else if ended.result.is_ok() {
            self.tries = 0;
            self.left.pop_front();
            return self.learn(step, pm_value(ended.outcome.answer));
        } else if step.port != CONTROL_PORT {
            // One port that does not work proves nothing about the others.
            self.tries = 0;
            self.left.retain(|other| other.port != step.port);
        } else if matches!(step.register, gscr::FEATURES | gscr::ENABLED) {
            // Optional: such a multiplier does not notify by itself, and has to be polled.
            self.tries = 0;
            self.left.pop_front();
        } else {
            let (question, response) = ("READ PORT MULTIPLIER", FailedResponse::of(&ended.outcome));
            self.refusal = Some(Refusal::Silent { question, response });
        }
        None
    }

    fn learn(&mut self, step: Step, value: u32) -> Option<u64> {
        let Step { port, register, .. } = step;
        let write = |register, value| Step { port, register, value: Some(value) };
        if step.value.is_some() {
            let resets = register == pscr::CONTROL && step.value == Some(pscr::RESET);
            self.rest_ns = if resets && port != CONTROL_PORT { RESET_NS } else { 0 };
            return None;
        }
        if port == CONTROL_PORT {
            match register {
                gscr::PRODUCT => self.facts.product = value,
                gscr::REVISION => self.facts.revision = value,
                gscr::FEATURES if value & gscr::NOTIFIES != 0 => {
                    self.left.push_front(write(gscr::ENABLED, gscr::NOTIFIES));
                }
                gscr::PORTS => {
                    let ports = (value & 0x0f) as u8;
                    self.facts.ports = vec![Port::default(); usize::from(ports)];
                    self.left.extend((0..ports).flat_map(|port| {
                        [pscr::CONTROL, pscr::STATUS, pscr::ERROR].map(|r| read(port, r))
                    }));
                }
                _ => {}
            }
            return None;
        }
        let place = self.facts.ports.get_mut(usize::from(port))?;
        match register {
            pscr::CONTROL if value & pscr::DET != 0 => {
                self.left.push_front(write(pscr::CONTROL, 0));
                self.left.push_front(write(pscr::CONTROL, pscr::RESET));
            }
            pscr::STATUS => {
                place.status = value;
                let waits = value & pscr::DET == pscr::SEEN && self.polls < LINK_TRIES;
                self.polls = if waits { self.polls + 1 } else { 0 };
                if waits {
                    self.rest_ns = LINK_POLL_NS;
                    self.left.push_front(step);
                }
            }
            pscr::ERROR => {
                place.error = value;
                if value != 0 {
                    self.left.push_front(write(pscr::ERROR, value));
                }
                return (value & pscr::EXCHANGED != 0).then_some(u64::from(port));
            }
            _ => {}
        }
        None
    }

    /// Returns the result.
    pub fn finish(self) -> Result<MultiplierFacts, Refusal> {
        self.refusal.map_or(Ok(self.facts), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ccb::{CamStatus, Outcome};

    /// How a register answers that is read or written: its value; None: an error.
    type RegisterAnswer = Box<dyn FnMut(u8, u16, Option<u32>) -> Option<u32>>;

    /// Runs a probe: its questions, the ports with lost caches, and the result.
    fn play(
        mut answer: RegisterAnswer,
    ) -> (Vec<String>, Vec<u64>, Result<MultiplierFacts, Refusal>) {
        let (mut probe, mut requests, mut lost) =
            (MultiplierProbe::default(), Vec::new(), Vec::new());
        while let Some((rest_ns, query)) = probe.next_command() {
            let Command::Ata(r) = query.command else { panic!("ATA") };
            let value = pm_value((r.count, r.lba));
            let written = (r.command == WRITE_PORT_MULTIPLIER).then_some(value);
            requests.push(format!("{rest_ns} {}:{} {written:x?}", r.device, r.features));
            let outcome = match answer(r.device, r.features, written) {
                Some(value) => Outcome { answer: pm_registers(value), ..Outcome::good(0) },
                None => Outcome { ata: (0x41, 4), ..Outcome::of(CamStatus::AtaError) },
            };
            let result = match outcome.status {
                CamStatus::Complete => Ok(0),
                _ => Err(bio::Errno::Io),
            };
            let ended = Ended {
                result,
                outcome,
                command: query.command,
                end_ns: u64::MAX,
                power_losses: (0, 0),
            };
            lost.extend(probe.handle_answer(&ended));
            assert!(requests.len() < 1000, "it ends");
        }
        (requests, lost, probe.finish())
    }

    #[test]
    fn a_port_is_enabled_awaited_and_its_errors_cleared() {
        let mut links = vec![0x113, 1, 1];
        let (requests, lost, facts) = play(Box::new(move |port, register, written| {
            Some(match (port, register, written) {
                (_, _, Some(_)) => 0,
                (CONTROL_PORT, gscr::PORTS, _) => 1,
                (CONTROL_PORT, gscr::FEATURES, _) => gscr::NOTIFIES,
                (0, pscr::CONTROL, _) => pscr::OFF,
                (0, pscr::STATUS, _) => links.pop().unwrap(),
                (0, pscr::ERROR, _) => pscr::EXCHANGED,
                _ => 7,
            })
        }));
        assert_eq!(
            requests,
            [
                "0 15:0 None",
                "0 15:1 None",
                "0 15:64 None",
                "0 15:96 Some(8)",
                "0 15:2 None",
                "0 0:2 None",
                "0 0:2 Some(1)",
                "1000000 0:2 Some(0)",
                "0 0:0 None",
                "10000000 0:0 None",
                "10000000 0:0 None",
                "0 0:1 None",
                "0 0:1 Some(4000000)",
            ]
        );
        let port = Port { status: 0x113, error: pscr::EXCHANGED };
        let facts = facts.unwrap();
        assert_eq!((facts.ports[0], lost), (port, vec![0]));
        assert_eq!((facts.changed(None), facts.changed(Some(&facts))), (vec![0], vec![0]));
    }

    #[test]
    fn a_multiplier_is_usable_despite_missing_features_and_dead_ports() {
        // An old one that does not notify; its first port cannot be had.
        let old = |refused: u16| -> RegisterAnswer {
            Box::new(move |port, register, _| match (port, register) {
                (CONTROL_PORT, r) if r == refused => None,
                (CONTROL_PORT, gscr::PORTS) => Some(2),
                (0, _) => None,
                (1, pscr::STATUS) => Some(0x123),
                _ => Some(0),
            })
        };
        let (requests, lost, facts) = play(old(gscr::FEATURES));
        let facts = facts.unwrap();
        assert_eq!((facts.ports[0].is_up(), facts.ports[1].is_up()), (false, true), "{requests:?}");
        assert_eq!((facts.changed(None), lost), (vec![1], vec![]));
        assert!(matches!(play(old(gscr::PORTS)).2, Err(Refusal::Silent { .. })));
        // A link that never starts is not waited for without end.
        let dark: RegisterAnswer = Box::new(|port, register, _| match (port, register) {
            (CONTROL_PORT, gscr::PORTS) => Some(1),
            (0, pscr::STATUS) => Some(pscr::SEEN),
            _ => Some(0),
        });
        let (requests, _, facts) = play(dark);
        assert_eq!(facts.unwrap().ports[0].text(), "no link to its device");
        assert_eq!(requests.iter().filter(|s| s.starts_with("10000000 ")).count(), 20);
    }
}
