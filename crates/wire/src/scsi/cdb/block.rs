//! Commands of SBC-3, and WRITE ATOMIC of SBC-4.

use super::{CdbError, Command, CommandInfo, Extent, SanitizeAction, Tags};
use crate::bytes::{get_array, get16, get32};

pub(super) fn parse(b: &[u8; 16], action: Option<u16>) -> Result<Option<Command>, CdbError> {
    let immed = b[1] & 2 != 0;
    Ok(Some(match b[0] {
        0x08 | 0x28 | 0xa8 | 0x88 => Command::Read(extent(b)),
        0x0a | 0x2a | 0xaa | 0x8a => Command::Write(extent(b)),
        0x01 => Command::RezeroUnit,
        0x04 => Command::FormatUnit {
            protect: b[1] >> 6,
            long_list: b[1] & 0x20 != 0,
            data: b[1] & 0x10 != 0,
            complete: b[1] & 0x08 != 0,
            format: b[1] & 7,
        },
        0x0b => Command::Seek { lba: lba21(b) },
        0x2b => Command::Seek { lba: u64::from(get32::<2, 16>(b)) },
        0x25 => Command::ReadCapacity10,
        0x2e | 0xae | 0x8e => {
            Command::WriteVerify { extent: verified(b), check: byte_check(b[1])? }
        }
        0x2f | 0xaf | 0x8f => Command::Verify { extent: verified(b), check: byte_check(b[1])? },
        0x34 | 0x90 => {
            let Extent { lba, blocks, .. } = extent(b);
            Command::PreFetch { lba, blocks, immed }
        }
        0x35 | 0x91 => {
            let Extent { lba, blocks, .. } = extent(b);
            Command::SynchronizeCache { lba, blocks, immed }
        }
        0x37 | 0xb7 => defects(b),
        0x41 | 0x93 => write_same(b[1], extent(b), 1)?,
        0x42 => Command::Unmap { anchor: b[1] & 1 != 0, len: u32::from(get16::<7, 16>(b)) },
        0x48 => sanitize(b),
        0x89 => Command::CompareWrite(Extent { blocks: u32::from(b[13]), ..extent(b) }),
        0x8b => Command::OrWrite(extent(b)),
        0x9c => {
            let extent = Extent { blocks: u32::from(get16::<12, 16>(b)), ..extent(b) };
            Command::WriteAtomic { extent, boundary: get16::<10, 16>(b) }
        }
        0x9e if action == Some(0x10) => Command::ReadCapacity16 { alloc: get32::<10, 16>(b) },
        0x9e => Command::GetLbaStatus { lba: lba64(b), alloc: get32::<10, 16>(b) },
        _ => return Ok(None),
    }))
}

/// A 32-byte command.
pub(super) fn variable(info: &CommandInfo, b: &[u8; 32]) -> Result<Command, CdbError> {
    let extent = Extent {
        lba: u64::from_be_bytes(get_array::<12, 8, 32>(b)),
        blocks: get32::<28, 32>(b),
        dpo: b[10] & 0x10 != 0,
        fua: b[10] & 0x08 != 0,
        protect: b[10] >> 5,
        tags: Some(Tags {
            reference: get32::<20, 32>(b),
            application: get16::<24, 32>(b),
            mask: get16::<26, 32>(b),
        }),
    };
    let verified = Extent { fua: false, ..extent };
    let checked = || byte_check(b[10]).map_err(|_| CdbError::field(10, Some(2)));
    Ok(match info.service_action {
        Some(0x09) => Command::Read(extent),
        Some(0x0a) => Command::Verify { extent: verified, check: checked()? },
        Some(0x0b) => Command::Write(extent),
        Some(0x0c) => Command::WriteVerify { extent: verified, check: checked()? },
        _ => write_same(b[10], extent, 10)?,
    })
}

fn lba64(b: &[u8; 16]) -> u64 {
    u64::from_be_bytes(get_array::<2, 8, 16>(b))
}

fn lba21(b: &[u8; 16]) -> u64 {
    u64::from(u32::from_be_bytes([0, b[1] & 0x1f, b[2], b[3]]))
}

/// LBA and length by the opcode's group; protection, DPO and FUA are in byte 1 of all but the
/// 6-byte commands.
fn extent(b: &[u8; 16]) -> Extent {
    let group = b[0] >> 5;
    let (lba, blocks) = match group {
        0 => (lba21(b), if b[4] == 0 { 256 } else { u32::from(b[4]) }),
        1 | 2 => (u64::from(get32::<2, 16>(b)), u32::from(get16::<7, 16>(b))),
        5 => (u64::from(get32::<2, 16>(b)), get32::<6, 16>(b)),
        _ => (lba64(b), get32::<10, 16>(b)),
    };
    if group == 0 {
        return Extent::new(lba, blocks);
    }
    let (dpo, fua, protect) = (b[1] & 0x10 != 0, b[1] & 0x08 != 0, b[1] >> 5);
    Extent { lba, blocks, dpo, fua, protect, tags: None }
}

/// Verify commands have no FUA: its place belongs to another field.
fn verified(b: &[u8; 16]) -> Extent {
    Extent { fua: false, ..extent(b) }
}

fn byte_check(flags: u8) -> Result<u8, CdbError> {
    match (flags >> 1) & 3 {
        2 => Err(CdbError::field(1, Some(2))),
        check => Ok(check),
    }
}

/// `flags` are read from byte `at`.
fn write_same(flags: u8, extent: Extent, at: usize) -> Result<Command, CdbError> {
    let (anchor, unmap) = (flags & 0x10 != 0, flags & 0x08 != 0);
    if anchor && !unmap {
        return Err(CdbError::field(at, Some(4)));
    }
    let Extent { lba, blocks, protect, tags, .. } = extent;
    Ok(Command::WriteSame { lba, blocks, unmap, anchor, no_data: flags & 1 != 0, protect, tags })
}

fn defects(b: &[u8; 16]) -> Command {
    let twelve = b[0] == 0xb7;
    let (flags, index, alloc) = match twelve {
        true => (b[1], get32::<2, 16>(b), get32::<6, 16>(b)),
        false => (b[2], 0, u32::from(get16::<7, 16>(b))),
    };
    let (primary, grown) = (flags & 0x10 != 0, flags & 0x08 != 0);
    Command::ReadDefects { twelve, primary, grown, format: flags & 7, index, alloc }
}

/// The table has let only known service actions through.
fn sanitize(b: &[u8; 16]) -> Command {
    let action = match b[1] & 0x1f {
        0x01 => SanitizeAction::Overwrite,
        0x02 => SanitizeAction::BlockErase,
        0x03 => SanitizeAction::CryptographicErase,
        _ => SanitizeAction::ExitFailureMode,
    };
    Command::Sanitize {
        action,
        immed: b[1] & 0x80 != 0,
        unrestricted: b[1] & 0x20 != 0,
        len: u32::from(get16::<7, 16>(b)),
    }
}
