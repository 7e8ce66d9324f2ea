//! Bounds of a bus: how long a request to one of its disks may take, and how often it is tried;
//! and disks that answer no request for long.

use geom::Trouble;
use serde::Deserialize;

use super::{Bus, lock};
use crate::address::Path;
use crate::ccb::{CamStatus, Command};
use crate::device::blocks_of;
use crate::periph::pass::explain_outcome;
use crate::unit::Unit;

/// How often a command is tried again, unless the bus says otherwise.
const RETRIES: u8 = 4;
/// How long a request may take, unless the bus says otherwise, s.
const REQUEST_DEADLINE_S: u32 = 60;

/// How long requests to disks of a bus may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// Seconds that a READ or WRITE may take once it was sent, other commands twice as long;
    /// absent: as long as the periph says.
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

/// What a command does, for people.
fn words(command: &Command) -> String {
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
    /// What was asked, and why it failed.
    pub what: String,
    /// How long ago that was, ns.
    pub age_ns: u64,
    /// How many requests failed so far.
    pub count: u64,
}

impl LastError {
    /// Of a device; `now` is a time of the cores' clock.
    pub fn of(unit: &Unit, now: u64) -> Option<LastError> {
        let (failure, count) = unit.look(|device| (device.failure(), device.counts().failed));
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
        let what = format!("{}{at}: {why}{}", words(&failure.command), failure.error.text());
        Some(LastError { what, age_ns: now.saturating_sub(failure.at_ns), count })
    }
}

impl std::fmt::Display for LastError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "last error {} ago, {} in all: {}", ago(self.age_ns), self.count, self.what)
    }
}

impl Bus {
    /// Sets how long requests to its disks may take. Before the first scan.
    pub(crate) fn bound(&self, bounds: Bounds) {
        *lock(&self.bounds) = bounds;
    }

    /// How long requests to its disks may take.
    pub(crate) fn bounds(&self) -> Bounds {
        *lock(&self.bounds)
    }

    /// A disk that has not answered a request for long.
    pub(super) fn silence(&self, path: Path, name: &str, unit: &Unit) -> Option<Trouble> {
        let command = unit.look(|device| device.unanswered().filter(|_| !device.is_lost()))?;
        let most = self.bounds().request_deadline_s;
        let why = format!(
            "{name} at {}: {} is not answered; requests fail after {most} s (`request_deadline_s` \
             of the bus)",
            self.words_of(path),
            words(&command)
        );
        let action = format!(
            "Look at the target; `ashlar cam reset {name}` resets the disk and sends its commands \
             again."
        );
        Some(Trouble::degraded(why, action))
    }
}
