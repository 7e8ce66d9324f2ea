//! The basic header segment, common to all PDUs (RFC 7143 section 11.2.1).
//!
//! ```text
//! byte  0        1        2        3        4         5 .. 7              8 .. 15   16 .. 19
//!      |.I|opcode|F| flags| specific        |AHS words|DataSegmentLength |LUN      |task tag  |
//! ```

use crate::bytes::{get_array, get24, get32, put, put24};
use crate::error::WireError;

/// Length of the basic header segment, in bytes.
pub const BHS_LEN: usize = 48;

/// A basic header segment in wire format.
pub type Bhs = [u8; BHS_LEN];

/// The reserved tag 0xffffffff: no task, or no target transfer.
pub const TAG_NONE: u32 = u32::MAX;

/// Largest data segment a header can announce, 2^24 - 1 bytes.
pub const DATA_LEN_MAX: u32 = 0x00ff_ffff;

/// Bit 7 of byte 1: last PDU of a sequence ("F"); "T" in login PDUs.
pub(crate) const FINAL: u8 = 0x80;

/// Bit 6 of byte 1 of Login and Text: the text continues in the next PDU ("C").
pub(crate) const CONTINUE: u8 = 0x40;

/// Operation codes (RFC 7143 section 11.2.1.2).
pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    /// SCSI Task Management Function Request.
    pub const TASK_REQUEST: u8 = 0x02;
    pub const LOGIN_REQUEST: u8 = 0x03;
    pub const TEXT_REQUEST: u8 = 0x04;
    /// SCSI Data-Out.
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT_REQUEST: u8 = 0x06;
    /// SNACK Request.
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    /// SCSI Task Management Function Response.
    pub const TASK_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    /// SCSI Data-In.
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    /// Ready To Transfer.
    pub const R2T: u8 = 0x31;
    /// Asynchronous Message.
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// The operation code in byte 0, without the immediate bit.
pub fn opcode_of(bhs: &Bhs) -> u8 {
    bhs[0] & 0x3f
}

/// The I bit: deliver at once, do not advance CmdSN.
pub fn immediate_of(bhs: &Bhs) -> bool {
    bhs[0] & 0x40 != 0
}

/// Length of the additional header segments, in bytes (TotalAHSLength counts words).
pub fn ahs_len_of(bhs: &Bhs) -> usize {
    usize::from(bhs[4]) * 4
}

/// DataSegmentLength: bytes of data, padding not counted.
pub fn data_len_of(bhs: &Bhs) -> u32 {
    get24::<5, BHS_LEN>(bhs)
}

pub fn task_tag_of(bhs: &Bhs) -> u32 {
    get32::<16, BHS_LEN>(bhs)
}

pub(crate) fn be16<const AT: usize>(bhs: &Bhs) -> u16 {
    crate::bytes::get16::<AT, BHS_LEN>(bhs)
}

pub(crate) fn be32<const AT: usize>(bhs: &Bhs) -> u32 {
    get32::<AT, BHS_LEN>(bhs)
}

pub(crate) fn set16<const AT: usize>(bhs: &mut Bhs, v: u16) {
    put::<AT, 2, BHS_LEN>(bhs, v.to_be_bytes());
}

pub(crate) fn set32<const AT: usize>(bhs: &mut Bhs, v: u32) {
    put::<AT, 4, BHS_LEN>(bhs, v.to_be_bytes());
}

pub(crate) fn set_lun(bhs: &mut Bhs, lun: [u8; 8]) {
    put::<8, 8, BHS_LEN>(bhs, lun);
}

pub(crate) fn lun_of(bhs: &Bhs) -> [u8; 8] {
    get_array::<8, 8, BHS_LEN>(bhs)
}

/// Clears the header and writes the fields that most PDUs have.
pub(crate) fn start(out: &mut Bhs, op: u8, flags: u8, data_len: u32, task_tag: u32) {
    *out = [0; BHS_LEN];
    out[0] = op;
    out[1] = flags;
    put24::<5, BHS_LEN>(out, data_len.min(DATA_LEN_MAX));
    set32::<16>(out, task_tag);
}

/// The byte 0 of a request that may be immediate.
pub(crate) fn op_byte(op: u8, immediate: bool) -> u8 {
    if immediate { op | 0x40 } else { op }
}

pub(crate) fn expect_opcode(bhs: &Bhs, op: u8) -> Result<(), WireError> {
    if opcode_of(bhs) == op { Ok(()) } else { Err(WireError::bad("Opcode", 0)) }
}

/// A bit that the standard wants set in byte 1.
pub(crate) fn expect_final(bhs: &Bhs) -> Result<(), WireError> {
    if bhs[1] & FINAL != 0 { Ok(()) } else { Err(WireError::bad("F", 1)) }
}

/// A PDU that carries neither additional headers nor data.
pub(crate) fn expect_bare(bhs: &Bhs) -> Result<(), WireError> {
    expect_no_ahs(bhs)?;
    if data_len_of(bhs) == 0 { Ok(()) } else { Err(WireError::long("DataSegmentLength", 5)) }
}

/// Only a SCSI Command may have additional headers.
pub(crate) fn expect_no_ahs(bhs: &Bhs) -> Result<(), WireError> {
    if bhs[4] == 0 { Ok(()) } else { Err(WireError::bad("TotalAHSLength", 4)) }
}

/// A task tag that is not the reserved one.
pub(crate) fn real_task_tag(bhs: &Bhs) -> Result<u32, WireError> {
    match task_tag_of(bhs) {
        TAG_NONE => Err(WireError::bad("InitiatorTaskTag", 16)),
        tag => Ok(tag),
    }
}
