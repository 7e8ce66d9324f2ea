//! Requests as SCSI commands (SBC-4), and SCSI answers as errors of requests.

use super::chunk::Extent;
use super::codes::{Error, allocation};
use crate::bytes::Reader;
use crate::scsi::build::{self, unmap_descriptor, unmap_head};
use crate::scsi::{Key, Sense};

pub use crate::scsi::build::{Cdb, compare_write, flush, pre_fetch, read, write, write_zeroes};

/// Bytes of UNMAP's parameter list with one descriptor.
pub const UNMAP_LIST_LEN: usize = 24;

/// Bytes of the reply to GET LBA STATUS before its descriptors.
pub const STATUS_HEADER_LEN: usize = 8;

pub const STATUS_DESCRIPTOR_LEN: usize = 16;

/// UNMAP of one run, with its parameter list.
pub fn unmap(lba: u64, blocks: u32) -> (Cdb, [u8; UNMAP_LIST_LEN]) {
    let mut list = [0; UNMAP_LIST_LEN];
    let bytes = unmap_head(1).into_iter().chain(unmap_descriptor(lba, blocks));
    list.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    (build::unmap(24), list)
}

/// GET LBA STATUS with that allocation length, bytes.
pub fn block_status(lba: u64, alloc: u32) -> Cdb {
    build::cdb(0x9e, 0x12, lba, alloc)
}

/// Extents of `base:allocation` from the reply to GET LBA STATUS, beginning at byte `offset` and
/// ending before `offset + len`. Adjacent extents of one state are merged. Empty if the reply does
/// not cover the first byte. `zeroes`: unmapped blocks read as zeroes.
pub fn extents(reply: &[u8], block_bytes: u32, offset: u64, len: u64, zeroes: bool) -> Vec<Extent> {
    let hole = allocation::HOLE | if zeroes { allocation::ZERO } else { 0 };
    let mut out: Vec<Extent> = Vec::new();
    let (mut at, end) = (offset, offset.saturating_add(len));
    let body = reply.get(STATUS_HEADER_LEN..).unwrap_or(&[]);
    for bytes in body.chunks_exact(STATUS_DESCRIPTOR_LEN) {
        let mut r = Reader::new(bytes);
        let (Ok(lba), Ok(blocks), Ok(state)) = (r.u64("lba"), r.u32("blocks"), r.u8("status"))
        else {
            break;
        };
        let unit = u64::from(block_bytes);
        let from = lba.saturating_mul(unit);
        let to = from.saturating_add(u64::from(blocks).saturating_mul(unit)).min(end);
        if from > at || at >= end {
            break;
        }
        if to <= at {
            continue;
        }
        let flags = if state & 0xf == 0 { 0 } else { hole };
        match out.last_mut().filter(|last| last.flags == flags) {
            Some(last) => last.len += to - at,
            None => out.push(Extent { len: to - at, flags }),
        }
        at = to;
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Good,
    /// A unit attention was reported first, or another initiator aborted it: send it once more.
    Again,
    /// The unit is awaited, or changes its access state: send it once more after a pause.
    Later,
    /// For good.
    Failed(Error),
}

/// The result of a command for a request; `writes` when it changes the medium.
pub fn outcome(status: u8, sense: Option<Sense>, writes: bool) -> Outcome {
    match status {
        // GOOD, CONDITION MET
        0x00 | 0x04 => Outcome::Good,
        // BUSY, TASK SET FULL: the wait for buffers failed.
        0x08 | 0x28 => Outcome::Failed(Error::NoMem),
        // TASK ABORTED, by another initiator
        0x40 => Outcome::Again,
        // RESERVATION CONFLICT
        0x18 => Outcome::Failed(Error::Perm),
        0x02 => sense.map_or(Outcome::Failed(Error::Io), |s| of_sense(s, writes)),
        _ => Outcome::Failed(Error::Io),
    }
}

fn of_sense(sense: Sense, writes: bool) -> Outcome {
    let code = sense.code;
    Outcome::Failed(match (code.key, code.asc, code.ascq) {
        (Key::RecoveredError | Key::NoSense, _, _) => return Outcome::Good,
        (Key::UnitAttention, _, _) => return Outcome::Again,
        // BECOMING READY, ASYMMETRIC ACCESS STATE TRANSITION
        (Key::NotReady, 0x04, 0x01 | 0x0a) => return Outcome::Later,
        // SPACE ALLOCATION FAILED WRITE PROTECT
        (Key::DataProtect, 0x27, 0x07) => Error::NoSpc,
        (Key::DataProtect, _, _) => Error::Perm,
        // LOGICAL BLOCK ADDRESS OUT OF RANGE
        (Key::IllegalRequest, 0x21, _) if writes => Error::NoSpc,
        // LOGICAL UNIT NOT SUPPORTED
        (Key::IllegalRequest, 0x25, _) => Error::Shutdown,
        (Key::IllegalRequest, 0x20, _) => Error::NotSup,
        (Key::IllegalRequest, _, _) => Error::Inval,
        _ => Error::Io,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::{Asc, Command, Extent as Blocks, UnmapList, asc};

    #[test]
    fn built_commands_are_parsed_as_intended() {
        let blocks = Blocks { lba: 1 << 40, blocks: 7, fua: true, ..Blocks::default() };
        assert_eq!(Command::parse(&read(1 << 40, 7, true)), Ok(Command::Read(blocks)));
        assert_eq!(Command::parse(&write(1 << 40, 7, true)), Ok(Command::Write(blocks)));
        assert!(matches!(
            Command::parse(&flush()),
            Ok(Command::SynchronizeCache { lba: 0, blocks: 0, .. })
        ));
        assert!(matches!(
            Command::parse(&pre_fetch(5, 6)),
            Ok(Command::PreFetch { lba: 5, blocks: 6, .. })
        ));
        assert!(matches!(
            Command::parse(&write_zeroes(5, 6, true)),
            Ok(Command::WriteSame { lba: 5, blocks: 6, unmap: true, no_data: true, .. })
        ));
        assert!(matches!(
            Command::parse(&block_status(5, 4096)),
            Ok(Command::GetLbaStatus { lba: 5, alloc: 4096, .. })
        ));
        let (cdb, list) = unmap(9, 3);
        assert!(matches!(Command::parse(&cdb), Ok(Command::Unmap { anchor: false, len: 24, .. })));
        let runs: Vec<_> = UnmapList::parse(&list).unwrap().iter().collect();
        assert_eq!((runs.len(), runs[0].lba, runs[0].blocks), (1, 9, 3));
    }

    fn status(runs: &[(u64, u32, u8)]) -> Vec<u8> {
        let mut out = vec![0; STATUS_HEADER_LEN];
        for (lba, blocks, state) in runs {
            out.extend(lba.to_be_bytes());
            out.extend(blocks.to_be_bytes());
            out.extend([*state, 0, 0, 0]);
        }
        out
    }

    #[test]
    fn extents_follow_the_lba_status_and_end_at_the_request() {
        let reply = status(&[(8, 4, 0), (12, 4, 1), (16, 4, 2), (20, 100, 0)]);
        let got = extents(&reply, 512, 9 * 512, 13 * 512, true);
        let all = [(3, 0), (8, 3), (2, 0)];
        assert_eq!(got, all.map(|(n, flags)| Extent { len: n * 512, flags }));
        assert_eq!(extents(&reply, 512, 12 * 512, 512, false), [Extent { len: 512, flags: 1 }]);
        assert_eq!(extents(&reply, 512, 0, 512, true), [], "nothing said about the first block");
        assert_eq!(extents(&reply[..20], 512, 8 * 512, 512, true), [], "a descriptor cut");
        let gap = status(&[(0, 1, 0), (2, 1, 0)]);
        assert_eq!(extents(&gap, 512, 0, 4096, true), [Extent { len: 512, flags: 0 }]);
        let huge = status(&[(u64::MAX, u32::MAX, 15)]);
        assert_eq!(extents(&huge, u32::MAX, 0, u64::MAX, true), []);
    }

    #[test]
    fn scsi_statuses_map_to_nbd_errors() {
        let check = |code: Asc, writes| outcome(2, Some(Sense::new(code)), writes);
        assert_eq!(outcome(0, None, true), Outcome::Good);
        assert_eq!(outcome(0x18, None, true), Outcome::Failed(Error::Perm));
        assert_eq!(check(asc::POWER_ON_OR_RESET, false), Outcome::Again);
        assert_eq!(check(asc::BECOMING_READY, true), Outcome::Later);
        assert_eq!(check(asc::ALUA_TRANSITION, false), Outcome::Later);
        assert_eq!(check(asc::ALUA_OFFLINE, false), Outcome::Failed(Error::Io));
        assert_eq!(check(asc::WRITE_PROTECTED, true), Outcome::Failed(Error::Perm));
        assert_eq!(check(asc::LBA_OUT_OF_RANGE, true), Outcome::Failed(Error::NoSpc));
        assert_eq!(check(asc::LBA_OUT_OF_RANGE, false), Outcome::Failed(Error::Inval));
        let space = Asc::new(Key::DataProtect, 0x27, 0x07);
        assert_eq!(check(space, true), Outcome::Failed(Error::NoSpc));
        assert_eq!(check(asc::INTERNAL_FAILURE, false), Outcome::Failed(Error::Io));
    }
}
