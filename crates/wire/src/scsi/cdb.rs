//! A CDB as a typed command (SPC-4 section 6, SBC-3 section 5, MMC-6 section 6).
//!
//! | file | reads |
//! | --- | --- |
//! | `primary` | commands of all units: INQUIRY, modes, logs, diagnostics, buffers, MAINTENANCE |
//! | `block` | commands with logical blocks |
//! | `reserve` | RESERVE and PERSISTENT RESERVE |
//! | `copy` | EXTENDED COPY, tokens, RECEIVE COPY |
//! | `media` | commands of CD units only |

mod block;
mod copy;
mod media;
mod primary;
mod reserve;

use super::codes::asc;
use super::commands::{CommandInfo, Report, VARIABLE, find};
use super::inquiry::PeripheralType;
use super::pr::{PrInAction, PrOutAction};
use super::sense::Sense;

pub use copy::{CopyOut, CopyStatus};
pub use media::{MainChannel, TrackAddress};

/// Why a CDB is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CdbError {
    /// Unknown operation code: 5/20/00.
    Opcode,
    /// A field that is not allowed, the service action included: 5/24/00 with a field pointer.
    Field {
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

/// The fields of a 32-byte command for protection information (SBC-3 4.22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// EXPECTED INITIAL LOGICAL BLOCK REFERENCE TAG.
    pub reference: u32,
    /// EXPECTED LOGICAL BLOCK APPLICATION TAG.
    pub application: u16,
    /// LOGICAL BLOCK APPLICATION TAG MASK: the bits of it that are compared.
    pub mask: u16,
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
    /// RDPROTECT, WRPROTECT, VRPROTECT or ORPROTECT, 0 to 7; 0 in commands that have no such
    /// field.
    pub protect: u8,
    /// Of the 32-byte commands.
    pub tags: Option<Tags>,
}

impl Extent {
    /// A run without any of the bits.
    pub const fn new(lba: u64, blocks: u32) -> Extent {
        Extent { lba, blocks, dpo: false, fua: false, protect: 0, tags: None }
    }

    /// The block after the last; None when it does not fit in 64 bits.
    pub fn end(&self) -> Option<u64> {
        self.lba.checked_add(u64::from(self.blocks))
    }

    /// Whether all blocks lie in a medium of `capacity` blocks. A run of length 0 may start at the
    /// end of the medium (SBC-3 4.7), not beyond.
    pub fn fits(&self, capacity: u64) -> bool {
        self.end().is_some_and(|end| end <= capacity)
    }

    /// How a protection field that is not served is refused: a pointer to it.
    pub fn protect_error(&self) -> CdbError {
        CdbError::Field { byte: if self.tags.is_some() { 10 } else { 1 }, bit: Some(7) }
    }
}

/// SANITIZE's service actions (SBC-3 5.25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SanitizeAction {
    /// 01h: write a pattern, which the parameter list holds.
    Overwrite,
    /// 02h: erase every block.
    BlockErase,
    /// 03h: change the key.
    CryptographicErase,
    /// 1Fh: leave the failure of an earlier SANITIZE.
    ExitFailureMode,
}

/// Which values of mode pages are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageControl {
    Current,
    /// A mask of the changeable bits.
    Changeable,
    Default,
    Saved,
}

/// Which values of log parameters are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogControl {
    Threshold,
    Cumulative,
    DefaultThreshold,
    DefaultCumulative,
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

/// A parsed command. Lengths are bytes unless the field is in blocks; `alloc` is an ALLOCATION
/// LENGTH, `len` a PARAMETER LIST LENGTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    ReportLuns {
        select: LunSelect,
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
    /// `from` is PARAMETER POINTER: the first parameter wanted.
    LogSense {
        save: bool,
        control: LogControl,
        page: u8,
        subpage: u8,
        from: u16,
        alloc: u32,
    },
    /// `reset` is PCR.
    LogSelect {
        reset: bool,
        save: bool,
        control: LogControl,
        page: u8,
        subpage: u8,
        len: u32,
    },
    /// `test` is SELF-TEST CODE, `default_test` is SELFTEST.
    SendDiagnostic {
        test: u8,
        page_format: bool,
        default_test: bool,
        device_offline: bool,
        unit_offline: bool,
        len: u32,
    },
    /// `page` is None without PCV.
    ReceiveDiagnostic {
        page: Option<u8>,
        alloc: u32,
    },
    ReadBuffer {
        mode: u8,
        id: u8,
        offset: u64,
        alloc: u32,
    },
    WriteBuffer {
        mode: u8,
        id: u8,
        offset: u32,
        len: u32,
    },
    StartStop {
        immed: bool,
        power: u8,
        modifier: u8,
        no_flush: bool,
        eject: bool,
        start: bool,
    },
    /// `prevent`: bit 0 prevents, bit 1 (CD) makes it persistent.
    PreventAllow {
        prevent: u8,
    },
    ReportOpcodes {
        report: Report,
        timeouts: bool,
        alloc: u32,
    },
    /// `extended` is REPD.
    ReportTaskManagement {
        extended: bool,
        alloc: u32,
    },
    /// `kind` is IDENTIFYING INFORMATION TYPE.
    ReportIdentifying {
        kind: u8,
        alloc: u32,
    },
    SetIdentifying {
        kind: u8,
        len: u32,
    },
    ReportTimestamp {
        alloc: u32,
    },
    SetTimestamp {
        len: u32,
    },
    /// `extended` requests the extended header.
    ReportTargetPortGroups {
        extended: bool,
        alloc: u32,
    },
    SetTargetPortGroups {
        len: u32,
    },
    /// RESERVE 6 and 10 of the whole unit; nothing else can be requested.
    Reserve,
    /// RELEASE 6 and 10.
    Release,
    PersistentIn {
        action: PrInAction,
        alloc: u32,
    },
    /// `kind` is TYPE, 0 to 15; `scope` likewise.
    PersistentOut {
        action: PrOutAction,
        scope: u8,
        kind: u8,
        len: u32,
    },
    /// EXTENDED COPY and tokens: the parameter list has the rest. `list_id` is LIST IDENTIFIER of
    /// the token commands; in EXTENDED COPY the list has it.
    CopyOut {
        action: CopyOut,
        list_id: u32,
        len: u32,
    },
    CopyAbort {
        list_id: u32,
    },
    /// `list_id`: one byte with LID1, four with LID4.
    CopyStatus {
        action: CopyStatus,
        list_id: u32,
        alloc: u32,
    },
    RezeroUnit,
    Seek {
        lba: u64,
    },
    ReadCapacity10,
    ReadCapacity16 {
        alloc: u32,
    },
    GetLbaStatus {
        lba: u64,
        alloc: u32,
    },
    /// READ 6, 10, 12, 16, 32.
    Read(Extent),
    /// WRITE 6, 10, 12, 16, 32.
    Write(Extent),
    /// `boundary` is ATOMIC BOUNDARY, blocks; 0 is none.
    WriteAtomic {
        extent: Extent,
        boundary: u16,
    },
    OrWrite(Extent),
    /// Twice `extent.blocks` are sent by the initiator: to compare, then to write.
    CompareWrite(Extent),
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
        immed: bool,
    },
    Unmap {
        anchor: bool,
        len: u32,
    },
    /// 0 blocks means to the end of the medium; `no_data` (NDOB) writes zeros. `protect` and
    /// `tags`: see [`Extent`].
    WriteSame {
        lba: u64,
        blocks: u32,
        unmap: bool,
        anchor: bool,
        no_data: bool,
        protect: u8,
        tags: Option<Tags>,
    },
    /// `protect` is FMTPINFO, `data` FMTDATA, `complete` CMPLST, `format` DEFECT LIST FORMAT.
    FormatUnit {
        protect: u8,
        long_list: bool,
        data: bool,
        complete: bool,
        format: u8,
    },
    /// `unrestricted` is AUSE.
    Sanitize {
        action: SanitizeAction,
        immed: bool,
        unrestricted: bool,
        len: u32,
    },
    /// `index` is ADDRESS DESCRIPTOR INDEX, 0 in the 10-byte command.
    ReadDefects {
        twelve: bool,
        primary: bool,
        grown: bool,
        format: u8,
        index: u32,
        alloc: u32,
    },
    /// `sub_q` is SUBQ.
    ReadSubChannel {
        msf: bool,
        sub_q: bool,
        format: u8,
        track: u8,
        alloc: u32,
    },
    ReadToc {
        msf: bool,
        format: u8,
        track: u8,
        alloc: u32,
    },
    /// `which` is RT, `from` the first feature.
    GetConfiguration {
        which: u8,
        from: u16,
        alloc: u32,
    },
    /// `classes` is NOTIFICATION CLASS REQUEST.
    GetEventStatus {
        polled: bool,
        classes: u8,
        alloc: u32,
    },
    ReadDiscInformation {
        kind: u8,
        alloc: u32,
    },
    ReadTrackInformation {
        open: bool,
        track: TrackAddress,
        alloc: u32,
    },
    ReadDiscStructure {
        media: u8,
        address: u32,
        layer: u8,
        format: u8,
        agid: u8,
        alloc: u32,
    },
    SetCdSpeed {
        rotation: u8,
        read: u16,
        write: u16,
    },
    MechanismStatus {
        alloc: u32,
    },
    /// `kind` is EXPECTED SECTOR TYPE, `sub_channel` is SUB-CHANNEL SELECTION.
    ReadCd {
        lba: u32,
        blocks: u32,
        kind: u8,
        main: MainChannel,
        sub_channel: u8,
    },
}

impl Command {
    /// Reads a CDB of a disk: [`Command::parse_for`] without the table's row.
    pub fn parse(cdb: &[u8]) -> Result<Command, CdbError> {
        Command::parse_for(PeripheralType::Disk, cdb).map(|(command, _)| command)
    }

    /// Reads a CDB for a type of device. `cdb` may be longer than the command (iSCSI pads to 16
    /// bytes); bytes after the command are ignored. Bits outside the usage map of the table are
    /// refused. Returns the table's row too.
    pub fn parse_for(
        kind: PeripheralType,
        cdb: &[u8],
    ) -> Result<(Command, &'static CommandInfo), CdbError> {
        let info = find(kind, cdb)?;
        info.check(cdb)?;
        if info.opcode == VARIABLE {
            let all = cdb.first_chunk().ok_or(CdbError::field(cdb.len(), None))?;
            return Ok((block::variable(info, all)?, info));
        }
        Ok((parse_checked(&padded(info, cdb), kind, info)?, info))
    }
}

/// Shorter commands are followed by zeros, so that one array serves all lengths.
#[inline]
fn padded(info: &CommandInfo, cdb: &[u8]) -> [u8; 16] {
    if let Some(first) = cdb.first_chunk::<16>() {
        let after = 8 * 16_usize.saturating_sub(info.cdb_len()).min(15);
        return (u128::from_be_bytes(*first) & (u128::MAX << after)).to_be_bytes();
    }
    let mut bytes = [0; 16];
    let used = cdb.get(..info.cdb_len()).unwrap_or(cdb);
    bytes.iter_mut().zip(used).for_each(|(to, from)| *to = *from);
    bytes
}

/// Each family's parser returns None for commands of other families.
fn parse_checked(
    b: &[u8; 16],
    kind: PeripheralType,
    info: &CommandInfo,
) -> Result<Command, CdbError> {
    if kind == PeripheralType::Cdrom
        && let Some(command) = media::parse(b)?
    {
        return Ok(command);
    }
    if let Some(command) = block::parse(b, info.service_action)? {
        return Ok(command);
    }
    if let Some(command) = primary::parse(b)? {
        return Ok(command);
    }
    match b[0] {
        0x16 | 0x56 => Ok(Command::Reserve),
        0x17 | 0x57 => Ok(Command::Release),
        0x5e => reserve::persistent_in(b),
        0x5f => reserve::persistent_out(b),
        0x83 => copy::out(b),
        0x84 => copy::status(b),
        0xa3 => primary::maintenance_in(b),
        0xa4 => primary::maintenance_out(b),
        _ => Err(CdbError::Opcode),
    }
}

#[cfg(test)]
#[path = "cdb_tests.rs"]
mod tests;
