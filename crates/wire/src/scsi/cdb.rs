//! A CDB as a typed command (SPC-4 section 6, SBC-3 section 5).

use super::codes::asc;
use super::commands::{CommandInfo, Report, find};
use super::sense::Sense;
use crate::bytes::{get_array, get16, get32};

/// Why a CDB is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CdbError {
    /// Unknown operation code: 5/20/00.
    Opcode,
    /// A field that is not allowed, the service action included: 5/24/00 with a field pointer.
    Field {
        /// Byte of the CDB.
        byte: u16,
        /// Most significant bit of the field; None when it begins with the byte.
        bit: Option<u8>,
    },
}

impl CdbError {
    /// A field error; bytes of a CDB are few.
    pub(crate) fn field(byte: usize, bit: Option<u8>) -> CdbError {
        CdbError::Field { byte: u16::try_from(byte).unwrap_or(u16::MAX), bit }
    }

    /// The sense data to answer with.
    pub fn sense(self) -> Sense {
        match self {
            CdbError::Opcode => Sense::new(asc::INVALID_OPCODE),
            CdbError::Field { byte, bit } => Sense::cdb_field(byte, bit),
        }
    }
}

impl From<CdbError> for Sense {
    fn from(error: CdbError) -> Sense {
        error.sense()
    }
}

/// A run of logical blocks with the bits that reads and writes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub lba: u64,
    /// Number of blocks; 0 moves nothing. READ(6) and WRITE(6) with 0 are already 256 here.
    pub blocks: u32,
    /// DPO: the blocks will not be needed again soon.
    pub dpo: bool,
    /// FUA: to or from the medium, not the cache.
    pub fua: bool,
}

impl Extent {
    /// The block after the last; None when it does not fit in 64 bits.
    pub fn end(&self) -> Option<u64> {
        self.lba.checked_add(u64::from(self.blocks))
    }

    /// Whether all blocks lie in a medium of `capacity` blocks. A run of length 0 may start at the
    /// end of the medium (SBC-3 4.7), not beyond.
    pub fn fits(&self, capacity: u64) -> bool {
        self.end().is_some_and(|end| end <= capacity)
    }
}

/// Which values of mode pages are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageControl {
    /// Current values.
    Current,
    /// A mask of what can be changed.
    Changeable,
    /// Default values.
    Default,
    /// Saved values.
    Saved,
}

/// Which logical units REPORT LUNS lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LunSelect {
    /// 00h: all but well-known ones.
    Units,
    /// 01h: well-known ones only.
    WellKnown,
    /// 02h: all.
    All,
}

/// A parsed command. Lengths are bytes unless they say blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Command {
    TestUnitReady,
    RequestSense {
        descriptor: bool,
        alloc: u32,
    },
    /// `page` is None without EVPD.
    Inquiry {
        page: Option<u8>,
        alloc: u32,
    },
    /// `long_lba` allows the 16-byte block descriptor (LLBAA); `no_blocks` is DBD.
    ModeSense {
        ten: bool,
        long_lba: bool,
        no_blocks: bool,
        control: PageControl,
        page: u8,
        subpage: u8,
        alloc: u32,
    },
    ModeSelect {
        ten: bool,
        page_format: bool,
        save: bool,
        len: u32,
    },
    ReadCapacity10,
    ReadCapacity16 {
        alloc: u32,
    },
    GetLbaStatus {
        lba: u64,
        alloc: u32,
    },
    ReportLuns {
        select: LunSelect,
        alloc: u32,
    },
    Read(Extent),
    Write(Extent),
    /// `check`: see [`Command::Verify`].
    WriteVerify {
        extent: Extent,
        check: u8,
    },
    /// `check` is BYTCHK: 0 medium only, 1 compare with as many blocks, 3 compare each with one.
    Verify {
        extent: Extent,
        check: u8,
    },
    /// 0 blocks means to the end of the medium.
    SynchronizeCache {
        lba: u64,
        blocks: u32,
        immed: bool,
    },
    /// 0 blocks means to the end of the medium.
    PreFetch {
        lba: u64,
        blocks: u32,
    },
    Unmap {
        anchor: bool,
        len: u32,
    },
    /// 0 blocks means to the end of the medium; `no_data` (NDOB) writes zeros.
    WriteSame {
        lba: u64,
        blocks: u32,
        unmap: bool,
        anchor: bool,
        no_data: bool,
    },
    StartStop {
        immed: bool,
        power: u8,
        modifier: u8,
        no_flush: bool,
        eject: bool,
        start: bool,
    },
    PreventAllow {
        prevent: u8,
    },
    ReportOpcodes {
        report: Report,
        timeouts: bool,
        alloc: u32,
    },
    /// `extended` asks for the extended header.
    ReportTargetPortGroups {
        extended: bool,
        alloc: u32,
    },
}

impl Command {
    /// Reads a CDB. `cdb` may be longer than the command (iSCSI pads to 16 bytes); what follows the
    /// command is not looked at. Bits outside the usage map of the table are refused.
    pub fn parse(cdb: &[u8]) -> Result<Command, CdbError> {
        Command::parse_with_info(cdb).map(|(command, _)| command)
    }

    /// The same, with the table's row.
    pub fn parse_with_info(cdb: &[u8]) -> Result<(Command, &'static CommandInfo), CdbError> {
        let info = find(cdb)?;
        info.check(cdb)?;
        // Shorter commands are followed by zeros, so that one array serves all lengths.
        let mut bytes = [0u8; 16];
        let used = cdb.get(..info.cdb_len()).unwrap_or(cdb);
        bytes.iter_mut().zip(used).for_each(|(to, from)| *to = *from);
        Ok((parse_checked(&bytes, info)?, info))
    }
}

fn parse_checked(b: &[u8; 16], info: &CommandInfo) -> Result<Command, CdbError> {
    let flag = |byte: usize, mask: u8| b.get(byte).is_some_and(|v| v & mask != 0);
    Ok(match (b[0], info.service_action) {
        (0x00, _) => Command::TestUnitReady,
        (0x03, _) => Command::RequestSense { descriptor: flag(1, 1), alloc: u32::from(b[4]) },
        (0x12, _) => inquiry(b)?,
        (0x15, _) => mode_select(b, false, u32::from(b[4])),
        (0x55, _) => mode_select(b, true, u32::from(get16::<7, 16>(b))),
        (0x1a, _) => mode_sense(b, false, u32::from(b[4])),
        (0x5a, _) => mode_sense(b, true, u32::from(get16::<7, 16>(b))),
        (0x1b, _) => Command::StartStop {
            immed: flag(1, 1),
            power: b[4] >> 4,
            modifier: b[3] & 0x0f,
            no_flush: flag(4, 4),
            eject: flag(4, 2),
            start: flag(4, 1),
        },
        (0x1e, _) => Command::PreventAllow { prevent: b[4] & 3 },
        (0x25, _) => Command::ReadCapacity10,
        (0x9e, Some(0x10)) => Command::ReadCapacity16 { alloc: get32::<10, 16>(b) },
        (0x9e, _) => Command::GetLbaStatus { lba: lba64(b), alloc: get32::<10, 16>(b) },
        (0xa0, _) => Command::ReportLuns { select: select(b[2])?, alloc: get32::<6, 16>(b) },
        (0xa3, Some(0x0c)) => report(b)?,
        (0xa3, _) => Command::ReportTargetPortGroups {
            extended: header_format(b[1])?,
            alloc: get32::<6, 16>(b),
        },
        (0x08 | 0x28 | 0xa8 | 0x88, _) => Command::Read(extent(b)),
        (0x0a | 0x2a | 0xaa | 0x8a, _) => Command::Write(extent(b)),
        (0x2e | 0xae | 0x8e, _) => {
            Command::WriteVerify { extent: verified(b), check: byte_check(b)? }
        }
        (0x2f | 0xaf | 0x8f, _) => Command::Verify { extent: verified(b), check: byte_check(b)? },
        (0x35 | 0x91, _) => {
            let Extent { lba, blocks, .. } = extent(b);
            Command::SynchronizeCache { lba, blocks, immed: flag(1, 2) }
        }
        (0x34 | 0x90, _) => {
            let Extent { lba, blocks, .. } = extent(b);
            Command::PreFetch { lba, blocks }
        }
        (0x42, _) => Command::Unmap { anchor: flag(1, 1), len: u32::from(get16::<7, 16>(b)) },
        (0x41 | 0x93, _) => write_same(b)?,
        _ => return Err(CdbError::Opcode),
    })
}

fn inquiry(b: &[u8; 16]) -> Result<Command, CdbError> {
    let evpd = b[1] & 1 != 0;
    if !evpd && b[2] != 0 {
        return Err(CdbError::field(2, None));
    }
    let alloc = u32::from(get16::<3, 16>(b));
    Ok(Command::Inquiry { page: evpd.then_some(b[2]), alloc })
}

fn mode_select(b: &[u8; 16], ten: bool, len: u32) -> Command {
    Command::ModeSelect { ten, page_format: b[1] & 0x10 != 0, save: b[1] & 1 != 0, len }
}

fn mode_sense(b: &[u8; 16], ten: bool, alloc: u32) -> Command {
    let control = match b[2] >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ => PageControl::Saved,
    };
    Command::ModeSense {
        ten,
        long_lba: b[1] & 0x10 != 0,
        no_blocks: b[1] & 0x08 != 0,
        control,
        page: b[2] & 0x3f,
        subpage: b[3],
        alloc,
    }
}

fn select(code: u8) -> Result<LunSelect, CdbError> {
    match code {
        0 => Ok(LunSelect::Units),
        1 => Ok(LunSelect::WellKnown),
        2 => Ok(LunSelect::All),
        _ => Err(CdbError::field(2, None)),
    }
}

fn header_format(byte: u8) -> Result<bool, CdbError> {
    match byte >> 5 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(CdbError::field(1, Some(7))),
    }
}

fn report(b: &[u8; 16]) -> Result<Command, CdbError> {
    let (opcode, action) = (b[3], get16::<4, 16>(b));
    let report = match b[2] & 7 {
        0 => Report::All,
        1 => Report::Opcode(opcode),
        2 => Report::Action(opcode, action),
        3 => Report::Either(opcode, action),
        _ => return Err(CdbError::field(2, Some(2))),
    };
    Ok(Command::ReportOpcodes { report, timeouts: b[2] & 0x80 != 0, alloc: get32::<6, 16>(b) })
}

fn lba64(b: &[u8; 16]) -> u64 {
    u64::from_be_bytes(get_array::<2, 8, 16>(b))
}

/// LBA and length by the opcode's group; DPO and FUA stand in byte 1 of all but the 6-byte ones.
fn extent(b: &[u8; 16]) -> Extent {
    let (dpo, fua) = (b[1] & 0x10 != 0, b[1] & 0x08 != 0);
    match b[0] >> 5 {
        0 => {
            let lba = u64::from(u32::from_be_bytes([0, b[1] & 0x1f, b[2], b[3]]));
            let blocks = if b[4] == 0 { 256 } else { u32::from(b[4]) };
            Extent { lba, blocks, dpo: false, fua: false }
        }
        1 | 2 => {
            let (lba, blocks) = (get32::<2, 16>(b), get16::<7, 16>(b));
            Extent { lba: u64::from(lba), blocks: u32::from(blocks), dpo, fua }
        }
        5 => {
            let (lba, blocks) = (get32::<2, 16>(b), get32::<6, 16>(b));
            Extent { lba: u64::from(lba), blocks, dpo, fua }
        }
        _ => Extent { lba: lba64(b), blocks: get32::<10, 16>(b), dpo, fua },
    }
}

/// Verify commands have no FUA: its place belongs to another field.
fn verified(b: &[u8; 16]) -> Extent {
    Extent { fua: false, ..extent(b) }
}

fn byte_check(b: &[u8; 16]) -> Result<u8, CdbError> {
    match (b[1] >> 1) & 3 {
        2 => Err(CdbError::field(1, Some(2))),
        check => Ok(check),
    }
}

fn write_same(b: &[u8; 16]) -> Result<Command, CdbError> {
    let (anchor, unmap) = (b[1] & 0x10 != 0, b[1] & 0x08 != 0);
    if anchor && !unmap {
        return Err(CdbError::field(1, Some(4)));
    }
    let Extent { lba, blocks, .. } = extent(b);
    Ok(Command::WriteSame { lba, blocks, unmap, anchor, no_data: b[1] & 1 != 0 })
}

#[cfg(test)]
#[path = "cdb_tests.rs"]
mod tests;
