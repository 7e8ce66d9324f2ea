//! A disk in its bay: its commands under way, and its faults.

use std::collections::BTreeMap;

use bio::{Errno, Segs};
use reactor::SeededRandom;
use reactor::model::{DiskModel, DiskOp};
use wire::ata::{error, status};
use wire::scsi::{Asc, Key, Sense, Status, asc};
use wire::smp::SMP_RESPONSE;

use super::enclosure::{self, EnclosedDisks, Role};
use super::ncq::Queue;
use super::{DiskSpec, Faults, ata, scsi};
use crate::ccb::{CamStatus, Ccb, CcbId, Command, Outcome, Registers, Tag};
use crate::sim::Begun;

/// Effect of a command on the medium, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Answers these bytes.
    Reply(Vec<u8>),
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
    /// Ranges; they are in the data when there are none here.
    Discard {
        ranges: Vec<(u64, u64)>,
    },
    /// START UNIT.
    Start,
    /// SET FEATURES: the write cache is on or off.
    Cache(bool),
    /// MODE SELECT: its list is in the data; whether it has ten bytes, and is saved.
    Modes(bool, bool),
    /// An enclosure's control page, which is in the data.
    Control,
    /// Answers these in COUNT and LBA.
    Registers(u16, u64),
}

struct Op {
    work: Work,
    at_ns: u64,
    hangs: bool,
    reports_failure: bool,
    /// The data of a write: the medium may get any of them at a power cut.
    bytes: Vec<u8>,
}

pub(super) struct Target {
    pub(super) spec: DiskSpec,
    pub(super) disk: DiskModel,
    pub(super) faults: Faults,
    pub(super) present: bool,
    /// Nothing between the HBA and it is in the way.
    pub(super) reachable: bool,
    pub(super) cache: bool,
    /// As it is after a loss of power.
    pub(super) saved_cache: bool,
    pub(super) is_ata: bool,
    stopped: bool,
    /// No disc is in.
    empty: bool,
    /// TEST UNIT READYs until it is ready.
    not_ready_polls: u8,
    attention: Option<Asc>,
    under_way: BTreeMap<CcbId, Op>,
    pub(super) queue: Queue,
    /// An enclosure's: the devices in its slots, and their lights (where, faulty).
    pub(super) enclosed_disks: EnclosedDisks,
    pub(super) lights: Vec<(bool, bool)>,
    /// A port multiplier's: the value of the requested register; None: there is none.
    pub(super) register: Option<u32>,
    /// Answers that are not its own.
    pub(super) forged: Vec<(u8, Option<u8>, Vec<u8>)>,
    /// Dropped when the queue stopped: to be ended.
    pub(super) victims: Vec<(CcbId, Outcome)>,
    pub(super) overlaps: u64,
    pub(super) halts: u64,
    random: SeededRandom,
}

fn answer(sense: Sense) -> Begun {
    Begun::Ended(Outcome::check(sense))
}

impl Target {
    pub(super) fn new(spec: DiskSpec, disk: DiskModel, seed: u64, is_ata: bool) -> Target {
        Target {
            cache: spec.shape.volatile_cache,
            saved_cache: spec.shape.volatile_cache,
            spec,
            disk,
            faults: Faults::default(),
            present: true,
            reachable: true,
            is_ata,
            stopped: false,
            empty: false,
            not_ready_polls: 0,
            attention: Some(POWER_ON),
            under_way: BTreeMap::new(),
            queue: Queue::default(),
            enclosed_disks: Vec::new(),
            lights: Vec::new(),
            register: None,
            forged: Vec::new(),
            victims: Vec::new(),
            overlaps: 0,
            halts: 0,
            random: SeededRandom::new(seed ^ 0x6862_615f_7461_7267),
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn take_victims(&mut self) -> Vec<(CcbId, Outcome)> {
        std::mem::take(&mut self.victims)
    }

    pub(super) fn drop_op(&mut self, id: CcbId) {
        self.under_way.remove(&id);
    }

    pub(super) fn chance(&mut self, percent: u8) -> bool {
        self.random.below(100) < u64::from(percent)
    }

    pub(super) fn begin(&mut self, id: CcbId, ccb: &Ccb, data: &Segs, now: u64) -> Begun {
        if !(self.present && self.reachable) {
            return Begun::Ended(Outcome::of(CamStatus::SelectionTimeout));
        }
        if let Some(stop) = self.overlap(&ccb.command) {
            return Begun::Ended(stop);
        }
        if let Command::Ata(Registers { queued: true, .. }) = ccb.command
            && !self.queue.enter(id)
        {
            return Begun::Ended(Outcome::of(CamStatus::Busy));
        }
        let spoken = match ccb.command {
            _ if self.forgery(&ccb.command).is_some() => {
                Ok(Work::Reply(self.forgery(&ccb.command).unwrap_or_default()))
            }
            Command::Scsi { .. } if !self.is_ata => {
                if let Some(stop) = self.check_ready(ccb.command.cdb()) {
                    return stop;
                }
                match self.spec.role {
                    Role::Enclosure(_) => enclosure::parse_scsi(self, ccb.command.cdb()),
                    _ => scsi::parse(self, ccb.command.cdb()),
                }
            }
            Command::Ata(registers) if self.is_ata && self.spec.role != Role::Disk => {
                enclosure::parse_ata(self, &registers)
            }
            Command::Ata(registers) if self.is_ata => ata::parse(self, &registers),
            _ => Err(Outcome::of(CamStatus::CannotProvide)),
        };
        let mut work = match spoken {
            Ok(work) => work,
            Err(outcome) => return Begun::Ended(self.record_failure(id, outcome)),
        };
        if let Some(stop) = self.refuses(&work) {
            return Begun::Ended(self.record_failure(id, stop));
        }
        let mut bytes = Vec::new();
        match &mut work {
            Work::Write { len, .. } if *len != data.len() as u64 => {
                return Begun::Ended(self.record_failure(id, Outcome::of(CamStatus::Overrun)));
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
            Work::Control if !enclosure::control(self, &data.to_vec()) => {
                return match self.is_ata {
                    true => Begun::Ended(ata::refused(error::ABORT)),
                    false => answer(Sense::list_field(0, None)),
                };
            }
            Work::Modes(ten, save) => match scsi::select(self, *ten, &data.to_vec()) {
                Ok(cache) => {
                    self.saved_cache = if *save { cache } else { self.saved_cache };
                    work = Work::Cache(cache);
                }
                Err(sense) => return answer(sense),
            },
            _ => {}
        }
        let (op, offset, len) = work.cost();
        let takes = self.disk.begin(now, op, offset, len).saturating_sub(now);
        let at_ns = now + takes + 1000 + self.random.below(200_000);
        let (hangs, lies) = (self.chance(self.faults.hangs), self.chance(self.faults.lies));
        self.under_way.insert(id, Op { work, at_ns, hangs, reports_failure: lies, bytes });
        if hangs { Begun::Pending } else { Begun::Later(at_ns - now) }
    }

    pub(super) fn forged_smp(&mut self, function: u8) -> Option<Vec<u8>> {
        let fits = |(wanted, of, _): &&(u8, Option<u8>, Vec<u8>)| {
            *wanted == function && *of == Some(SMP_RESPONSE)
        };
        self.forged.iter().rfind(fits).map(|(.., bytes)| bytes.clone())
    }

    fn forgery(&self, command: &Command) -> Option<Vec<u8>> {
        let (code, page) = match command {
            Command::Ata(registers) => (registers.command, registers.features.to_le_bytes()[0]),
            _ => {
                let cdb = command.cdb();
                (cdb.first().copied()?, cdb.get(2).copied()?)
            }
        };
        let fits = |(wanted, of, _): &&(u8, Option<u8>, Vec<u8>)| {
            *wanted == code && of.is_none_or(|of| of == page)
        };
        self.forged.iter().rfind(fits).map(|(.., bytes)| bytes.clone())
    }

    /// A command that the disk cannot accept now: initiators that keep the rules never see this.
    fn overlap(&mut self, command: &Command) -> Option<Outcome> {
        let busy = !self.under_way.is_empty();
        let stop = match command {
            Command::Ata(Registers { queued, .. }) => {
                let other = self.under_way.keys().any(|id| self.queue.has(*id) != *queued);
                (busy && (other || !queued)).then(|| ata::refused(error::ABORT))
            }
            Command::Scsi { tag, .. } if self.spec.depth == 1 && *tag != Tag::None => {
                Some(Outcome::of(CamStatus::Invalid))
            }
            Command::Scsi { .. } if self.spec.depth == 1 && busy => {
                Some(Outcome::check(Sense::new(asc::OVERLAPPED_COMMANDS)))
            }
            _ => None,
        };
        self.overlaps += u64::from(stop.is_some());
        stop
    }

    /// A unit attention; none takes the place of one about power (SPC-4 5.14).
    fn post_unit_attention(&mut self, code: Asc) {
        if self.attention != Some(POWER_ON) {
            self.attention = Some(code);
        }
    }

    /// Answer of a SCSI disk before it looks at a command.
    fn check_ready(&mut self, cdb: &[u8]) -> Option<Begun> {
        let op = cdb.first().copied().unwrap_or(0);
        // INQUIRY, REPORT LUNS and REQUEST SENSE are answered at any time.
        if matches!(op, 0x12 | 0xa0 | 0x03) {
            return None;
        }
        if let Some(code) = self.attention.take() {
            return Some(answer(Sense::new(code)));
        }
        if self.not_ready_polls > 0 {
            self.not_ready_polls -= u8::from(op == 0);
            return Some(answer(Sense::new(asc::BECOMING_READY)));
        }
        if self.empty {
            return Some(answer(Sense::new(NO_MEDIUM)));
        }
        (self.stopped && op != 0x1b).then(|| answer(Sense::new(asc::START_NEEDED)))
    }

    /// Chance, and no space.
    fn refuses(&mut self, work: &Work) -> Option<Outcome> {
        let medium = matches!(
            work,
            Work::Read { .. } | Work::Write { .. } | Work::Flush | Work::Discard { .. }
        );
        if !medium {
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
            return match self.random.below(3) {
                0 => ata::refused(error::ABORT),
                1 => Outcome::of(CamStatus::Parity),
                _ => Outcome::of(CamStatus::BusReset),
            };
        }
        match self.random.below(6) {
            0 => code(Key::MediumError, 0x31, 0),
            1 => code(Key::AbortedCommand, 0x47, 5),
            2 => Outcome::scsi(Status::Busy),
            3 => Outcome::of(CamStatus::Parity),
            4 => Outcome::of(CamStatus::Requeue),
            _ => {
                self.post_unit_attention(MODE_CHANGED);
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
        if !(self.present && self.reachable) {
            self.queue.leave(id);
            return (Begun::Ended(Outcome::of(CamStatus::SelectionTimeout)), false);
        }
        let outcome = match self.carry_out(&op, data) {
            Ok(_) if op.reports_failure => {
                let outcome = self.failure();
                self.record_failure(id, outcome)
            }
            Ok(moved) => match op.work {
                Work::Registers(count, lba) => {
                    Outcome { answer: (count, lba), ..Outcome::good(moved) }
                }
                _ => Outcome::good(moved),
            },
            Err(_) => self.record_failure(id, self.medium_error()),
        };
        self.queue.leave(id);
        (Begun::Ended(outcome), self.chance(self.faults.echoes))
    }

    fn medium_error(&self) -> Outcome {
        match self.is_ata {
            true => Outcome {
                ata: (status::READY | status::ERROR, error::UNCORRECTABLE),
                ..Outcome::of(CamStatus::AtaError)
            },
            false => Outcome::check(Sense::new(asc::READ_ERROR)),
        }
    }

    /// V1
    fn carry_out(&mut self, op: &Op, data: &Segs) -> Result<u32, Errno> {
        match &op.work {
            Work::Reply(bytes) => Ok(data.copy_from(0, bytes) as u32),
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
                self.not_ready_polls = if std::mem::take(&mut self.stopped) { 3 } else { 0 };
                Ok(0)
            }
            Work::Cache(on) => {
                self.cache = *on;
                self.disk.flush().map(|()| data.len() as u32)
            }
            // The lights are as it wants since it began.
            Work::Control | Work::Registers(..) => Ok(data.len() as u32),
            // Became one of the cache when it began.
            Work::Modes(..) => Err(Errno::Inval),
        }
    }

    /// False when the abort is ignored.
    pub(super) fn abort(&mut self, id: CcbId) -> bool {
        if self.chance(self.faults.deaf) {
            return false;
        }
        self.under_way.remove(&id);
        self.queue.leave(id);
        true
    }

    pub(super) fn reset(&mut self) -> Vec<CcbId> {
        self.post_unit_attention(RESET_BY_FUNCTION);
        self.queue.clear();
        std::mem::take(&mut self.under_way).into_keys().collect()
    }

    pub(super) fn resize(&mut self, bytes: u64) {
        self.disk.set_size(bytes);
        self.post_unit_attention(asc::CAPACITY_CHANGED);
    }

    /// Another disc is in, of so many bytes, or none.
    pub(super) fn change_medium(&mut self, bytes: Option<u64>) {
        self.empty = bytes.is_none();
        if let Some(bytes) = bytes {
            self.disk.set_size(0);
            self.disk.set_size(bytes);
            self.post_unit_attention(MEDIUM_CHANGED);
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn power_cut(&mut self) {
        self.queue.clear();
        for op in std::mem::take(&mut self.under_way).into_values() {
            if let Work::Write { offset, .. } = op.work {
                self.disk.tear(offset, &op.bytes);
            }
        }
        self.disk.power_cut();
        self.cache = self.saved_cache;
        self.post_unit_attention(POWER_ON);
    }
}

const POWER_ON: Asc = Asc::new(Key::UnitAttention, 0x29, 0x01);
const RESET_BY_FUNCTION: Asc = Asc::new(Key::UnitAttention, 0x29, 0x03);
const NO_MEDIUM: Asc = Asc::new(Key::NotReady, 0x3a, 0x00);
const MEDIUM_CHANGED: Asc = Asc::new(Key::UnitAttention, 0x28, 0x00);
const MODE_CHANGED: Asc = asc::MODE_CHANGED;

impl Work {
    fn cost(&self) -> (DiskOp, u64, u64) {
        match self {
            Work::Read { offset, len } => (DiskOp::Read, *offset, *len),
            Work::Write { offset, len, .. } => (DiskOp::Write, *offset, *len),
            Work::Flush => (DiskOp::Flush, 0, 0),
            Work::Discard { ranges } => (DiskOp::Discard, ranges.first().map_or(0, |r| r.0), 0),
            _ => (DiskOp::Read, 0, 0),
        }
    }
}
