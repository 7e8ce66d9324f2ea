//! A disk in its bay: what it has under way, and what goes wrong with it.

use std::collections::BTreeMap;

use bio::{Errno, Segs};
use reactor::SeededRandom;
use reactor::model::{DiskModel, DiskOp};
use wire::scsi::{Asc, Key, Sense, Status, asc};

use super::{DiskSpec, Faults, ata, scsi};
use crate::ccb::{CamStatus, Ccb, CcbId, Command, Outcome};
use crate::sim::Begun;

/// What a command does to the medium, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Answers these bytes.
    Say(Vec<u8>),
    Read {
        offset: u64,
        len: u64,
    },
    Write {
        offset: u64,
        len: u64,
        durable: bool,
    },
    Flush,
    /// Ranges; they stand in the data when there are none here.
    Discard {
        ranges: Vec<(u64, u64)>,
    },
    /// START UNIT.
    Start,
    /// SET FEATURES: the write cache is on or off.
    Cache(bool),
}

struct Op {
    work: Work,
    at_ns: u64,
    hangs: bool,
    lies: bool,
    /// What a write brings: the medium may get any of it at a power cut.
    bytes: Vec<u8>,
}

pub(super) struct Target {
    pub(super) spec: DiskSpec,
    pub(super) disk: DiskModel,
    pub(super) faults: Faults,
    pub(super) present: bool,
    pub(super) cache: bool,
    is_ata: bool,
    stopped: bool,
    /// TEST UNIT READYs until it is ready.
    becoming: u8,
    attention: Option<Asc>,
    under_way: BTreeMap<CcbId, Op>,
    random: SeededRandom,
}

fn answer(sense: Sense) -> Begun {
    Begun::Ended(Outcome::check(sense))
}

impl Target {
    pub(super) fn new(spec: DiskSpec, disk: DiskModel, seed: u64, is_ata: bool) -> Target {
        Target {
            cache: spec.shape.volatile_cache,
            spec,
            disk,
            faults: Faults::default(),
            present: true,
            is_ata,
            stopped: false,
            becoming: 0,
            attention: Some(POWER_ON),
            under_way: BTreeMap::new(),
            random: SeededRandom::new(seed ^ 0x6862_615f_7461_7267),
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.below(100) < u64::from(percent)
    }

    pub(super) fn begin(&mut self, id: CcbId, ccb: &Ccb, data: &Segs, now: u64) -> Begun {
        if !self.present {
            return Begun::Ended(Outcome::of(CamStatus::SelectionTimeout));
        }
        let spoken = match ccb.command {
            Command::Scsi { .. } if !self.is_ata => {
                if let Some(stop) = self.not_now(ccb.command.cdb()) {
                    return stop;
                }
                scsi::parse(self, ccb.command.cdb())
            }
            Command::Ata(registers) if self.is_ata => ata::parse(self, &registers),
            _ => Err(Outcome::of(CamStatus::CannotProvide)),
        };
        let mut work = match spoken {
            Ok(work) => work,
            Err(outcome) => return Begun::Ended(outcome),
        };
        if let Some(stop) = self.refuses(&work) {
            return Begun::Ended(stop);
        }
        let mut bytes = Vec::new();
        match &mut work {
            Work::Write { len, .. } if *len != data.len() as u64 => {
                return Begun::Ended(Outcome::of(CamStatus::Overrun));
            }
            Work::Write { .. } => bytes = data.to_vec(),
            Work::Discard { ranges } if ranges.is_empty() => {
                let list = data.to_vec();
                let read =
                    if self.is_ata { ata::ranges(self, &list) } else { scsi::ranges(self, &list) };
                match read {
                    Ok(read) => *ranges = read,
                    Err(outcome) => return Begun::Ended(outcome),
                }
            }
            _ => {}
        }
        let (op, offset, len) = work.cost();
        let takes = self.disk.begin(now, op, offset, len).saturating_sub(now);
        let at_ns = now + takes + 1000 + self.random.below(200_000);
        let (hangs, lies) = (self.chance(self.faults.hangs), self.chance(self.faults.lies));
        self.under_way.insert(id, Op { work, at_ns, hangs, lies, bytes });
        if hangs { Begun::Pending } else { Begun::Later(at_ns - now) }
    }

    /// A unit attention; none takes the place of one about power (SPC-4 5.14).
    fn attend(&mut self, code: Asc) {
        if self.attention != Some(POWER_ON) {
            self.attention = Some(code);
        }
    }

    /// What a SCSI disk says before it looks at a command.
    fn not_now(&mut self, cdb: &[u8]) -> Option<Begun> {
        let op = cdb.first().copied().unwrap_or(0);
        // INQUIRY, REPORT LUNS and REQUEST SENSE are answered at any time.
        if matches!(op, 0x12 | 0xa0 | 0x03) {
            return None;
        }
        if let Some(code) = self.attention.take() {
            return Some(answer(Sense::new(code)));
        }
        if self.becoming > 0 {
            self.becoming -= u8::from(op == 0);
            return Some(answer(Sense::new(asc::BECOMING_READY)));
        }
        (self.stopped && op != 0x1b).then(|| answer(Sense::new(asc::START_NEEDED)))
    }

    /// Chance, and no room.
    fn refuses(&mut self, work: &Work) -> Option<Outcome> {
        if matches!(work, Work::Say(_) | Work::Start | Work::Cache(_)) {
            return None;
        }
        let full = self.under_way.len() >= usize::from(self.spec.depth);
        if (full || self.chance(self.faults.full)) && !self.is_ata {
            return Some(Outcome::scsi(Status::TaskSetFull));
        }
        self.chance(self.faults.fails).then(|| self.failure())
    }

    fn failure(&mut self) -> Outcome {
        let code = |key, asc, ascq| Outcome::check(Sense::new(Asc::new(key, asc, ascq)));
        if self.is_ata {
            let statuses = [CamStatus::AtaError, CamStatus::Parity, CamStatus::BusReset];
            return Outcome::of(statuses[self.random.below(3) as usize]);
        }
        match self.random.below(6) {
            0 => code(Key::MediumError, 0x31, 0),
            1 => code(Key::AbortedCommand, 0x47, 5),
            2 => Outcome::scsi(Status::Busy),
            3 => Outcome::of(CamStatus::Parity),
            4 => Outcome::of(CamStatus::Requeue),
            _ => {
                self.attend(MODE_CHANGED);
                code(Key::HardwareError, 0x44, 0)
            }
        }
    }

    /// The outcome, and whether it is answered once more.
    pub(super) fn finish(&mut self, id: CcbId, data: &Segs, now: u64) -> (Begun, bool) {
        let Some(op) = self.under_way.get(&id) else {
            // A power cut.
            return (Begun::Ended(Outcome::of(CamStatus::BusReset)), false);
        };
        if op.hangs {
            return (Begun::Pending, false);
        }
        if op.at_ns > now {
            return (Begun::Later(op.at_ns - now), false);
        }
        let Some(op) = self.under_way.remove(&id) else { return (Begun::Pending, false) };
        if !self.present {
            return (Begun::Ended(Outcome::of(CamStatus::SelectionTimeout)), false);
        }
        let outcome = match self.carry_out(&op, data) {
            Ok(_) if op.lies => self.failure(),
            Ok(moved) => Outcome::good(moved),
            Err(_) => self.medium_error(),
        };
        (Begun::Ended(outcome), self.chance(self.faults.echoes))
    }

    fn medium_error(&self) -> Outcome {
        match self.is_ata {
            true => Outcome { ata: (0x41, 0x40), ..Outcome::of(CamStatus::AtaError) },
            false => Outcome::check(Sense::new(asc::READ_ERROR)),
        }
    }

    /// V1
    fn carry_out(&mut self, op: &Op, data: &Segs) -> Result<u32, Errno> {
        match &op.work {
            Work::Say(bytes) => Ok(data.copy_from(0, bytes) as u32),
            Work::Read { offset, len } => {
                let mut bytes = vec![0; *len as usize];
                let n = self.disk.read(*offset, &mut bytes)?;
                Ok(data.copy_from(0, bytes.get(..n).unwrap_or(&bytes)) as u32)
            }
            Work::Write { offset, durable, .. } => {
                self.disk.write(*offset, &op.bytes, *durable || !self.cache)?;
                Ok(op.bytes.len() as u32)
            }
            Work::Flush => self.disk.flush().map(|()| 0),
            Work::Discard { ranges } => {
                ranges.iter().try_for_each(|(at, len)| self.disk.discard(*at, *len))?;
                Ok(data.len() as u32)
            }
            Work::Start => {
                self.becoming = if std::mem::take(&mut self.stopped) { 3 } else { 0 };
                Ok(0)
            }
            Work::Cache(on) => {
                self.cache = *on;
                self.disk.flush().map(|()| 0)
            }
        }
    }

    /// False when it is not heard.
    pub(super) fn abort(&mut self, id: CcbId) -> bool {
        if self.chance(self.faults.deaf) {
            return false;
        }
        self.under_way.remove(&id);
        true
    }

    pub(super) fn reset(&mut self) -> Vec<CcbId> {
        self.attend(RESET_BY_FUNCTION);
        std::mem::take(&mut self.under_way).into_keys().collect()
    }

    pub(super) fn resize(&mut self, bytes: u64) {
        self.disk.set_size(bytes);
        self.attend(asc::CAPACITY_CHANGED);
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn power_cut(&mut self) {
        for op in std::mem::take(&mut self.under_way).into_values() {
            if let Work::Write { offset, .. } = op.work {
                self.disk.tear(offset, &op.bytes);
            }
        }
        self.disk.power_cut();
        self.cache = self.spec.shape.volatile_cache;
        self.attend(POWER_ON);
    }
}

const POWER_ON: Asc = Asc::new(Key::UnitAttention, 0x29, 0x01);
const RESET_BY_FUNCTION: Asc = Asc::new(Key::UnitAttention, 0x29, 0x03);
const MODE_CHANGED: Asc = asc::MODE_CHANGED;

impl Work {
    fn cost(&self) -> (DiskOp, u64, u64) {
        match self {
            Work::Read { offset, len } => (DiskOp::Read, *offset, *len),
            Work::Write { offset, len, .. } => (DiskOp::Write, *offset, *len),
            Work::Flush => (DiskOp::Flush, 0, 0),
            Work::Discard { ranges } => (DiskOp::Discard, ranges.first().map_or(0, |r| r.0), 0),
            Work::Say(_) | Work::Start | Work::Cache(_) => (DiskOp::Read, 0, 0),
        }
    }
}
