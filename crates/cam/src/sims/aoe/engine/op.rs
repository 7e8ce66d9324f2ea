//! Commands, and their division into frames.

use bio::Segs;
use wire::aoe::{Ata, SECTOR, error};
use wire::ata;

use super::super::ranges::Hold;
use crate::ccb::{CamStatus, CcbId, Outcome, Registers};

/// How a command is put into frames.
#[derive(Clone, Copy, Debug)]
pub(super) enum FramePlan {
    /// Sectors from there on: cut as the paths allow.
    Split { lba: u64, extended: bool },
    /// One frame.
    Single,
}

/// Sectors of a command that are to be sent, and how often they were.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectorRun {
    pub(super) first: u32,
    pub(super) sectors: u32,
    pub(super) tries: u32,
}

pub(super) struct Op {
    pub(super) id: CcbId,
    pub(super) target: usize,
    pub(super) registers: Registers,
    pub(super) frame_plan: FramePlan,
    pub(super) write: bool,
    /// E6: it requests the identity of the disk.
    pub(super) is_identity_query: bool,
    pub(super) sectors: u32,
    pub(super) data: Segs,
    /// Sent up to there.
    pub(super) next: u32,
    /// To be sent again.
    pub(super) resend: Vec<SectorRun>,
    /// Not answered yet, in sectors; a command without data counts one.
    pub(super) left: u32,
    pub(super) deadline_ns: u64,
    /// Sectors that it changes: the first, and the one behind the last.
    pub(super) span: Option<(u64, u64)>,
    pub(super) hold: Option<Hold>,
    pub(super) busy: bool,
}

/// How a command is put into frames, its code there, and its sectors. AoE carries the commands that
/// move data one sector at a time (AoEr11 section 3.1), for any sector size of the host.
pub(super) fn frames_of(
    registers: &Registers,
    bytes: usize,
) -> Result<(FramePlan, u8, u32), CamStatus> {
    use ata::command as c;
    let r = registers;
    let count = |n: u16, zero: u32| if n == 0 { zero } else { u32::from(n) };
    let (opcode, extended, sectors) = match r.command {
        c::READ_DMA_EXT | c::READ_EXT => (c::READ_EXT, true, count(r.count, 65_536)),
        c::WRITE_DMA_EXT | c::WRITE_EXT => (c::WRITE_EXT, true, count(r.count, 65_536)),
        c::READ_QUEUED => (c::READ_EXT, true, count(r.features, 65_536)),
        c::WRITE_QUEUED => (c::WRITE_EXT, true, count(r.features, 65_536)),
        c::READ_DMA | c::READ => (c::READ, false, count(r.count & 0xff, 256)),
        c::WRITE_DMA | c::WRITE => (c::WRITE, false, count(r.count & 0xff, 256)),
        other => {
            // The smallest frame that any link carries has two.
            let sectors = u32::try_from(bytes.div_ceil(SECTOR)).unwrap_or(u32::MAX);
            let fits = bytes.is_multiple_of(SECTOR) && sectors <= 2;
            return if fits {
                Ok((FramePlan::Single, other, sectors))
            } else {
                Err(CamStatus::TooBig)
            };
        }
    };
    if bytes as u64 != u64::from(sectors) * SECTOR as u64 {
        return Err(CamStatus::Invalid);
    }
    Ok((FramePlan::Split { lba: r.lba, extended }, opcode, sectors))
}

/// Sectors that a command changes. Of a TRIM all between the first and the last that it names; a
/// list that cannot be read may mean any.
pub(super) fn span(op: &Op) -> Option<(u64, u64)> {
    match op.frame_plan {
        _ if !op.write => None,
        FramePlan::Split { lba, .. } => Some((lba, lba.saturating_add(op.sectors.into()))),
        FramePlan::Single => {
            let list = op.data.to_vec();
            let Ok(ranges) = ata::trim_ranges(&list) else { return Some((0, u64::MAX)) };
            let ends = ranges.map(|(lba, sectors)| (lba, lba.saturating_add(sectors)));
            ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).or(Some((0, 1)))
        }
    }
}

pub(super) fn registers_of(op: &Op, first: u32, sectors: u32) -> Ata {
    let r = &op.registers;
    let count = match op.frame_plan {
        FramePlan::Split { .. } => sectors,
        // IDENTIFY has a count of sectors although it needs none.
        FramePlan::Single => u32::from(r.count).max(sectors),
    };
    let (address, extended) = match op.frame_plan {
        FramePlan::Split { lba, extended } => (lba + u64::from(first), extended),
        FramePlan::Single => (r.lba, r.extended),
    };
    Ata {
        write: op.write,
        asynchronous: false,
        device: false,
        extended,
        feature: (r.features & 0xff) as u8,
        sectors: u8::try_from(count).unwrap_or(u8::MAX),
        command: r.command,
        registers: if extended { address } else { address & 0x0fff_ffff | 0xe000_0000 },
    }
}

/// Outcome for CAM of a failed answer.
pub(super) fn failure(error: Option<u8>, ata: &Ata) -> Outcome {
    match error {
        Some(error::UNAVAILABLE) => Outcome::of(CamStatus::Busy),
        Some(error::COMMAND | error::VERSION) => Outcome::of(CamStatus::CannotProvide),
        Some(_) => Outcome::of(CamStatus::CompletedError),
        None => Outcome { ata: (ata.command, ata.feature), ..Outcome::of(CamStatus::AtaError) },
    }
}
impl Op {
    pub(super) fn has_unsent(&self) -> bool {
        self.next < self.sectors.max(1) || !self.resend.is_empty()
    }
}
