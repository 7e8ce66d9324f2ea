//! Bounds of a bus: how long a request to one of its disks may take, and how often it is tried;
//! and disks that answer no request for long.

use std::sync::atomic::{AtomicU64, Ordering};

use geom::Trouble;
use serde::Deserialize;

use super::Bus;
use crate::address::Path;
use crate::ccb::{CamStatus, Command};
use crate::device::blocks_of;
use crate::periph::pass::explain_outcome;
use crate::unit::Unit;

/// How often a command is tried again, unless the bus sets another number.
const RETRIES: u8 = 4;
/// How long a request may take, unless the bus sets another time, s.
const REQUEST_DEADLINE_S: u32 = 60;
/// Longest time of a command, s.
const TIMEOUT_S_MAX: u32 = (1 << 24) - 1;

/// How long requests to disks of a bus may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// Seconds that a READ or WRITE may take once it was sent, other commands twice as long;
    /// absent: the time of the periph.
    pub timeout_s: Option<u32>,
    /// How often a command is tried again that failed or was not answered in time.
    pub retries: u8,
    /// Seconds after which a request ends, with all its tries.
    pub request_deadline_s: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { timeout_s: None, retries: RETRIES, request_deadline_s: REQUEST_DEADLINE_S }
    }
}

impl Bounds {
    /// When a request that begins now has to be over.
    pub(crate) fn end_ns(&self, now: u64) -> u64 {
        now.saturating_add(u64::from(self.request_deadline_s) * 1_000_000_000)
    }
}

/// The bounds of a bus, as its disks read them for each request: they may change meanwhile.
pub(crate) struct AtomicBounds(AtomicU64);

impl Default for AtomicBounds {
    fn default() -> AtomicBounds {
        let shared = AtomicBounds(AtomicU64::new(0));
        shared.set(Bounds::default());
        shared
    }
}

impl AtomicBounds {
    /// As they are now.
    pub(crate) fn get(&self) -> Bounds {
        let word = self.0.load(Ordering::Relaxed);
        let timeout_s = (word >> 40) as u32;
        Bounds {
            timeout_s: (timeout_s > 0).then_some(timeout_s),
            retries: (word >> 32) as u8,
            request_deadline_s: word as u32,
        }
    }

    /// In one word: no request sees a part of them.
    fn set(&self, bounds: Bounds) {
        let timeout_s = bounds.timeout_s.map_or(0, |s| s.min(TIMEOUT_S_MAX));
        let (timeout, retries) = (u64::from(timeout_s) << 40, u64::from(bounds.retries) << 32);
        let word = timeout | retries | u64::from(bounds.request_deadline_s);
        self.0.store(word, Ordering::Relaxed);
    }
}

/// Name of a command, for people.
fn command_name(command: &Command) -> String {
    match command {
        Command::Ata(r) => match r.command {
            0x60 | 0x20 | 0x24 | 0x25 | 0xc8 => "READ".into(),
            0x61 | 0x30 | 0x34 | 0x35 | 0xca => "WRITE".into(),
            0xe7 | 0xea => "FLUSH CACHE".into(),
            0x06 => "TRIM".into(),
            other => format!("ATA command {other:02x}h"),
        },
        Command::Scsi { cdb, .. } => match cdb[0] {
            0x00 => "TEST UNIT READY".into(),
            0x28 | 0x88 => "READ".into(),
            0x2a | 0x8a => "WRITE".into(),
            0x35 | 0x91 => "SYNCHRONIZE CACHE".into(),
            0x41 | 0x93 => "WRITE SAME".into(),
            0x42 => "UNMAP".into(),
            other => format!("command {other:02x}h"),
        },
        Command::Smp { .. } => "an SMP request".into(),
        Command::Reset => "a reset".into(),
    }
}

/// How long ago something was.
fn ago(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..86_400 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86_400),
    }
}

/// The last request to a disk that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastError {
    /// The request, and why it failed.
    pub description: String,
    /// How long ago that was, ns.
    pub age_ns: u64,
    /// How many requests failed so far.
    pub count: u64,
}

impl LastError {
    /// Of a device; `now` is a time of the cores' clock.
    pub fn of(unit: &Unit, now: u64) -> Option<LastError> {
        let (failure, count) = unit.inspect(|device| (device.failure(), device.counts().failed));
        let failure = failure?;
        let at = match blocks_of(&failure.command) {
            Some((lba, 1)) => format!(" of block {lba}"),
            Some((lba, count)) => format!(" of {count} blocks at {lba}"),
            None => String::new(),
        };
        let why = match failure.outcome.status {
            // It was never answered, or its victim's.
            CamStatus::Requeue | CamStatus::BusReset | CamStatus::ResetSent => String::new(),
            CamStatus::Complete => format!("good, and {} bytes moved, ", failure.outcome.moved),
            _ => format!("{}, ", explain_outcome(&failure.outcome)),
        };
        let what = format!("{}{at}: {why}{}", command_name(&failure.command), failure.error.text());
        Some(LastError { description: what, age_ns: now.saturating_sub(failure.at_ns), count })
    }
}

impl std::fmt::Display for LastError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "last error {} ago, {} in all: {}",
            ago(self.age_ns),
            self.count,
            self.description
        )
    }
}

impl Bus {
    /// Sets how long requests to its disks may take: those that begin from now on.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.bounds.set(bounds);
    }

    /// Sets how many logical units of a target are looked at, and looks for them.
    pub fn set_luns_max(&self, luns: u32) {
        if self.sim.luns_max() != luns {
            self.sim.set_luns_max(luns);
            self.rescan().request_scan();
        }
    }

    /// How long requests to its disks may take.
    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds.get()
    }

    /// A disk that has not answered a request for long.
    pub(super) fn silence_trouble(&self, path: Path, name: &str, unit: &Unit) -> Option<Trouble> {
        let command = unit.inspect(|device| device.unanswered().filter(|_| !device.is_lost()))?;
        let most = self.bounds().request_deadline_s;
        let why = format!(
            "{name} at {}: {} is not answered; requests fail after {most} s (`request_deadline_s` \
             of the bus)",
            self.describe_path(path),
            command_name(&command)
        );
        let action = format!(
            "Look at the target; `ashlar cam reset {name}` resets the disk and sends its commands \
             again."
        );
        Some(Trouble::degraded(why, action))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_round_trip_through_the_shared_word() {
        let shared = AtomicBounds::default();
        assert_eq!(shared.get(), Bounds::default());
        for (timeout_s, retries, request_deadline_s) in
            [(None, 0, 1), (Some(600), 100, 3600), (Some(1), 255, u32::MAX)]
        {
            let bounds = Bounds { timeout_s, retries, request_deadline_s };
            shared.set(bounds);
            assert_eq!(shared.get(), bounds);
        }
    }
}
