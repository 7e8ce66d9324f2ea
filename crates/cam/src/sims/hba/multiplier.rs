//! Port multiplier of a virtual HBA: its registers, and whether the devices behind its ports are
//! reached.
//!
//! ```text
//!   off --COMRESET, then on--> link up, EXCHANGED --cleared--> reached
//!    ^                             ^                             |
//!    |  power on                   +-- on, or on again     ------+
//! ```

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use wire::ata::{
    CONTROL_PORT, READ_PORT_MULTIPLIER, WRITE_PORT_MULTIPLIER, gscr, pm_registers, pm_value, pscr,
};

use super::VirtualHba;
use crate::ccb::Registers;

/// SStatus of a link that is up: 3.0 Gb/s, active.
const LINK_UP: u32 = 0x123;

/// A port of the multiplier, at the bay of its number.
#[derive(Default)]
pub(super) struct Link {
    control: AtomicU32,
    error: AtomicU32,
    /// The link was not up after the last reset.
    dark: AtomicBool,
}

/// The multiplier of a bus; without ports there is none.
#[derive(Default)]
pub(super) struct Multiplier {
    ports: AtomicU64,
    bay: AtomicU64,
    present: AtomicBool,
    notifies: AtomicBool,
}

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Acquire)
}

impl VirtualHba {
    /// A multiplier with so many ports is in this bay: all of them are off.
    pub(super) fn set_multiplier(&self, bay: u64, ports: u8) {
        self.multiplier.bay.store(bay, Ordering::Release);
        self.multiplier.ports.store(u64::from(ports), Ordering::Release);
        self.multiplier.notifies.store(false, Ordering::Release);
        self.multiplier.present.store(true, Ordering::Release);
        for place in self.bays.iter().take(usize::from(ports)) {
            place.link.control.store(pscr::OFF, Ordering::Release);
        }
    }

    /// The port that a bay is behind.
    pub(super) fn port(&self, bay: u64) -> Option<&Link> {
        let ports = self.multiplier.ports.load(Ordering::Acquire);
        self.bays.get(bay as usize).filter(|_| bay < ports).map(|place| &place.link)
    }

    /// Whether the multiplier, if there is one, lets commands through to a bay.
    pub(super) fn is_reached(&self, bay: u64) -> bool {
        self.port(bay).is_none_or(|port| {
            get(&port.control) & pscr::DET == 0
                && get(&port.error) & pscr::EXCHANGED == 0
                && !port.dark.load(Ordering::Acquire)
                && self.multiplier.present.load(Ordering::Acquire)
        })
    }

    /// Whether the device in a bay is the multiplier.
    pub(super) fn is_multiplier(&self, bay: u64) -> bool {
        let ports = self.multiplier.ports.load(Ordering::Acquire);
        ports > 0 && self.multiplier.bay.load(Ordering::Acquire) == bay
    }

    /// The device in a bay was pulled out or pushed in: a multiplier begins anew.
    pub(super) fn presence_changed(&self, bay: u64, present: bool) {
        if !self.is_multiplier(bay) {
            return;
        }
        match u8::try_from(self.multiplier.ports.load(Ordering::Acquire)) {
            Ok(ports) if present => self.set_multiplier(bay, ports),
            _ => self.multiplier.present.store(false, Ordering::Release),
        }
    }

    fn is_present(&self, bay: u64) -> bool {
        self.at(bay, |t| t.present).unwrap_or(false)
    }

    /// The device behind a port changed. Returns the bay of the multiplier, which the HBA then
    /// queries, and whether the multiplier notifies the HBA. `None`: the device is behind no port.
    pub(super) fn port_changed(&self, bay: u64) -> Option<(u64, bool)> {
        let port = self.port(bay)?;
        let came = if self.is_present(bay) { pscr::EXCHANGED } else { 0 };
        port.error.fetch_or(pscr::LINK_CHANGED | came, Ordering::AcqRel);
        let at = self.multiplier.bay.load(Ordering::Acquire);
        let quiet = self.at(at, |t| t.faults.quiet).unwrap_or(0);
        let loses = self.at(at, |t| t.chance(quiet)).unwrap_or(true);
        Some((at, self.multiplier.notifies.load(Ordering::Acquire) && !loses))
    }

    fn status(&self, bay: u64, port: &Link) -> u32 {
        match get(&port.control) & pscr::DET {
            0 if !self.is_present(bay) => 0,
            0 if port.dark.load(Ordering::Acquire) => pscr::SEEN,
            0 => LINK_UP,
            pscr::OFF => pscr::OFF,
            _ => 0,
        }
    }

    /// The value of a register that is read or written; `None`: there is no such register. And the
    /// bay whose device was reset by it.
    pub(super) fn registers(&self, r: &Registers) -> (Option<u32>, Option<u64>) {
        let ports = self.multiplier.ports.load(Ordering::Acquire);
        let value = match r.command {
            READ_PORT_MULTIPLIER => None,
            WRITE_PORT_MULTIPLIER => Some(pm_value((r.count, r.lba))),
            _ => return (None, None),
        };
        if r.device & 0x0f == CONTROL_PORT {
            let notifies = || u32::from(self.multiplier.notifies.load(Ordering::Acquire));
            let errors =
                || (0..ports).filter(|n| self.port(*n).is_some_and(|p| get(&p.error) != 0));
            let answer = match (r.features, value) {
                // 3726h by Silicon Image (1095h).
                (gscr::PRODUCT, None) => Some(0x3726_1095),
                (gscr::REVISION, None) => Some(0x1706),
                (gscr::PORTS, None) => Some(ports as u32),
                (gscr::ERRORS, None) => Some(errors().fold(0, |bits, n| bits | 1 << n)),
                (gscr::FEATURES, None) => Some(gscr::NOTIFIES),
                (gscr::ENABLED, None) => Some(notifies() * gscr::NOTIFIES),
                (gscr::ENABLED, Some(value)) => {
                    let on = value & gscr::NOTIFIES != 0;
                    self.multiplier.notifies.store(on, Ordering::Release);
                    Some(0)
                }
                _ => None,
            };
            return (answer, None);
        }
        let bay = u64::from(r.device & 0x0f);
        let Some(port) = self.port(bay) else { return (None, None) };
        match (r.features, value) {
            (pscr::STATUS, None) => (Some(self.status(bay, port)), None),
            (pscr::ERROR, None) => (Some(get(&port.error)), None),
            (pscr::ERROR, Some(ones)) => {
                port.error.fetch_and(!ones, Ordering::AcqRel);
                (Some(0), None)
            }
            (pscr::CONTROL, None) => (Some(get(&port.control)), None),
            (pscr::CONTROL, Some(value)) => {
                let before = port.control.swap(value, Ordering::AcqRel) & pscr::DET;
                if before != 0 && value & pscr::DET == 0 && self.is_present(bay) {
                    let dark = self.at(bay, |t| t.chance(t.faults.dark)).unwrap_or(false);
                    port.dark.store(dark, Ordering::Release);
                    let came = pscr::LINK_CHANGED | pscr::EXCHANGED;
                    port.error.fetch_or(came, Ordering::AcqRel);
                }
                (Some(0), (before == 0 && value & pscr::DET != 0).then_some(bay))
            }
            _ => (None, None),
        }
    }
}

/// As the multiplier answers it.
pub(super) fn answered(value: u32) -> super::target::Work {
    let (count, lba) = pm_registers(value);
    super::target::Work::Registers(count, lba)
}
