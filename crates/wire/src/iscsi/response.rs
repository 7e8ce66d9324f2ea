//! PDUs a target sends (RFC 7143 section 11): typed, written in place and read back.
//!
//! The data path fills a struct on the stack and encodes it into the 48 bytes it will send;
//! nothing is allocated.

use super::bhs::*;
use super::pdu::Pdu;
use super::request::login_flags;
use super::status::LoginStatus;
use crate::bytes::{get_array, put};
use crate::error::WireError;

/// The three numbers that nearly every PDU of a target carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// StatSN of this PDU, or the next one when the PDU does not consume it (R2T, ping).
    pub stat_sn: u32,
    /// Next CmdSN the target waits for.
    pub exp_cmd_sn: u32,
    /// Last CmdSN the target accepts.
    pub max_cmd_sn: u32,
}

impl Numbers {
    pub(crate) fn write(&self, out: &mut Bhs) {
        set32::<24>(out, self.stat_sn);
        set32::<28>(out, self.exp_cmd_sn);
        set32::<32>(out, self.max_cmd_sn);
    }

    pub(crate) fn read(bhs: &Bhs) -> Numbers {
        Numbers {
            stat_sn: be32::<24>(bhs),
            exp_cmd_sn: be32::<28>(bhs),
            max_cmd_sn: be32::<32>(bhs),
        }
    }
}

/// The difference between the real and the expected length of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// As expected.
    #[default]
    None,
    /// The command wanted to move this many bytes more than expected.
    Overflow(u32),
    /// This many bytes of the expected ones were not moved.
    Underflow(u32),
}

impl Residual {
    /// From the command's and the initiator's transfer lengths, both in bytes.
    pub fn of(needed: u64, expected: u32) -> Residual {
        let wide = u64::from(expected);
        match needed.cmp(&wide) {
            std::cmp::Ordering::Equal => Residual::None,
            std::cmp::Ordering::Less => {
                // Less than a 32-bit number, so it fits.
                Residual::Underflow(u32::try_from(wide - needed).unwrap_or(u32::MAX))
            }
            std::cmp::Ordering::Greater => {
                Residual::Overflow(u32::try_from(needed - wide).unwrap_or(u32::MAX))
            }
        }
    }

    fn bits(self, over: u8, under: u8) -> u8 {
        match self {
            Residual::None => 0,
            Residual::Overflow(_) => over,
            Residual::Underflow(_) => under,
        }
    }

    fn count(self) -> u32 {
        match self {
            Residual::None => 0,
            Residual::Overflow(n) | Residual::Underflow(n) => n,
        }
    }

    fn read(flags: u8, over: u8, under: u8, count: u32) -> Result<Residual, WireError> {
        match (flags & over != 0, flags & under != 0) {
            (false, false) => Ok(Residual::None),
            (true, false) => Ok(Residual::Overflow(count)),
            (false, true) => Ok(Residual::Underflow(count)),
            (true, true) => Err(WireError::bad("residual flags", 1)),
        }
    }
}

/// SCSI Response. Sense data, if any, follows as a data segment behind a 16-bit length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScsiResponse {
    /// 0: the command ended with `status`; 1: target failure, and `status` means nothing.
    pub response: u8,
    pub status: u8,
    pub task_tag: u32,
    /// SNACK tag; 0 below error recovery level 1.
    pub snack_tag: u32,
    /// StatSN and command window.
    pub sn: Numbers,
    /// How many Data-In and R2T PDUs were sent for the command.
    pub exp_data_sn: u32,
    /// Residual of the transfer, or of the write half of a bidirectional command.
    pub residual: Residual,
    /// Residual of the read half of a bidirectional command.
    pub read_residual: Residual,
    /// Bytes that follow: 2 + sense length, or 0.
    pub data_len: u32,
}

impl Pdu for ScsiResponse {
    const OPCODE: u8 = opcode::SCSI_RESPONSE;

    fn encode(&self, out: &mut Bhs) {
        let flags = FINAL | self.residual.bits(0x04, 0x02) | self.read_residual.bits(0x10, 0x08);
        start(out, Self::OPCODE, flags, self.data_len, self.task_tag);
        out[2] = self.response;
        out[3] = self.status;
        set32::<20>(out, self.snack_tag);
        self.sn.write(out);
        set32::<36>(out, self.exp_data_sn);
        set32::<40>(out, self.read_residual.count());
        set32::<44>(out, self.residual.count());
    }

    fn decode(bhs: &Bhs) -> Result<ScsiResponse, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        Ok(ScsiResponse {
            response: bhs[2],
            status: bhs[3],
            task_tag: task_tag_of(bhs),
            snack_tag: be32::<20>(bhs),
            sn: Numbers::read(bhs),
            exp_data_sn: be32::<36>(bhs),
            residual: Residual::read(bhs[1], 0x04, 0x02, be32::<44>(bhs))?,
            read_residual: Residual::read(bhs[1], 0x10, 0x08, be32::<40>(bhs))?,
            data_len: data_len_of(bhs),
        })
    }
}

/// SCSI Data-In, with or without the command's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataIn {
    /// F: last PDU of a sequence.
    pub last: bool,
    /// A: the initiator must acknowledge; error recovery level 1 and up only.
    pub acknowledge: bool,
    /// S: status and residual of a command that ended well, which saves a SCSI Response. None
    /// leaves StatSN, status and residual zero.
    pub status: Option<(u8, Residual)>,
    /// Logical unit number; needed with `acknowledge`.
    pub lun: [u8; 8],
    pub task_tag: u32,
    /// Target transfer tag; [`TAG_NONE`] without `acknowledge`.
    pub target_tag: u32,
    /// StatSN (meaningful with status) and command window.
    pub sn: Numbers,
    /// Number of this PDU within the command, from 0.
    pub data_sn: u32,
    /// Where the data belongs in the command's buffer, bytes.
    pub offset: u32,
    /// Bytes of data that follow.
    pub data_len: u32,
}

impl Pdu for DataIn {
    const OPCODE: u8 = opcode::DATA_IN;

    fn encode(&self, out: &mut Bhs) {
        let mut flags = if self.last || self.status.is_some() { FINAL } else { 0 };
        flags |= if self.acknowledge { 0x40 } else { 0 };
        if let Some((_, residual)) = self.status {
            flags |= 0x01 | residual.bits(0x04, 0x02);
        }
        start(out, Self::OPCODE, flags, self.data_len, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.target_tag);
        self.sn.write(out);
        match self.status {
            Some((status, residual)) => {
                out[3] = status;
                set32::<44>(out, residual.count());
            }
            None => set32::<24>(out, 0),
        }
        set32::<36>(out, self.data_sn);
        set32::<40>(out, self.offset);
    }

    fn decode(bhs: &Bhs) -> Result<DataIn, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        let status = if bhs[1] & 0x01 != 0 {
            expect_final(bhs)?;
            Some((bhs[3], Residual::read(bhs[1], 0x04, 0x02, be32::<44>(bhs))?))
        } else {
            None
        };
        let data = DataIn {
            last: bhs[1] & FINAL != 0,
            acknowledge: bhs[1] & 0x40 != 0,
            status,
            lun: lun_of(bhs),
            task_tag: task_tag_of(bhs),
            target_tag: be32::<20>(bhs),
            sn: Numbers::read(bhs),
            data_sn: be32::<36>(bhs),
            offset: be32::<40>(bhs),
            data_len: data_len_of(bhs),
        };
        if data.offset.checked_add(data.data_len).is_none() {
            return Err(WireError::bad("BufferOffset", 40));
        }
        Ok(data)
    }
}

/// Ready To Transfer: requests a piece of a write's data. Carries StatSN without consuming it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct R2t {
    /// Logical unit number.
    pub lun: [u8; 8],
    pub task_tag: u32,
    /// Returns in the Data-Out PDUs; never [`TAG_NONE`].
    pub target_tag: u32,
    /// Next StatSN and command window.
    pub sn: Numbers,
    /// Number of this R2T within the command, from 0.
    pub r2t_sn: u32,
    /// First byte wanted.
    pub offset: u32,
    /// Bytes wanted, 1 to MaxBurstLength.
    pub desired_len: u32,
}

impl Pdu for R2t {
    const OPCODE: u8 = opcode::R2T;

    fn encode(&self, out: &mut Bhs) {
        start(out, Self::OPCODE, FINAL, 0, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.target_tag);
        self.sn.write(out);
        set32::<36>(out, self.r2t_sn);
        set32::<40>(out, self.offset);
        set32::<44>(out, self.desired_len);
    }

    fn decode(bhs: &Bhs) -> Result<R2t, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_bare(bhs)?;
        let r2t = R2t {
            lun: lun_of(bhs),
            task_tag: task_tag_of(bhs),
            target_tag: be32::<20>(bhs),
            sn: Numbers::read(bhs),
            r2t_sn: be32::<36>(bhs),
            offset: be32::<40>(bhs),
            desired_len: be32::<44>(bhs),
        };
        if r2t.target_tag == TAG_NONE {
            return Err(WireError::bad("TargetTransferTag", 20));
        }
        match r2t.offset.checked_add(r2t.desired_len) {
            Some(_) if r2t.desired_len > 0 => Ok(r2t),
            _ => Err(WireError::bad("DesiredDataTransferLength", 44)),
        }
    }
}

/// NOP-In: the answer to a ping, or a ping of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NopIn {
    /// Logical unit number; needed with a target transfer tag.
    pub lun: [u8; 8],
    /// Tag of the NOP-Out answered; [`TAG_NONE`] for a ping of ours.
    pub task_tag: u32,
    /// [`TAG_NONE`] when no answer is wanted.
    pub target_tag: u32,
    /// StatSN (not consumed by a ping of ours) and command window.
    pub sn: Numbers,
    /// Bytes of ping data that follow.
    pub data_len: u32,
}

impl Pdu for NopIn {
    const OPCODE: u8 = opcode::NOP_IN;

    fn encode(&self, out: &mut Bhs) {
        start(out, Self::OPCODE, FINAL, self.data_len, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.target_tag);
        self.sn.write(out);
    }

    fn decode(bhs: &Bhs) -> Result<NopIn, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        Ok(NopIn {
            lun: lun_of(bhs),
            task_tag: task_tag_of(bhs),
            target_tag: be32::<20>(bhs),
            sn: Numbers::read(bhs),
            data_len: data_len_of(bhs),
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoginResponse {
    /// T: the stage changes to `next_stage`.
    pub transit: bool,
    /// C: the text continues in the next response.
    pub more: bool,
    /// CSG.
    pub stage: u8,
    /// NSG, meaningful with T.
    pub next_stage: u8,
    /// Highest version supported.
    pub version_max: u8,
    pub version_active: u8,
    /// Copied from the request.
    pub isid: [u8; 6],
    /// Copied from the request; the new session's in the last response.
    pub tsih: u16,
    /// Copied from the request.
    pub task_tag: u32,
    /// StatSN and command window.
    pub sn: Numbers,
    /// Class and detail.
    pub status: LoginStatus,
    /// Bytes of text that follow.
    pub data_len: u32,
}

impl Pdu for LoginResponse {
    const OPCODE: u8 = opcode::LOGIN_RESPONSE;

    fn encode(&self, out: &mut Bhs) {
        let flags = login_flags(self.transit, self.more, self.stage, self.next_stage);
        start(out, Self::OPCODE, flags, self.data_len, self.task_tag);
        out[2] = self.version_max;
        out[3] = self.version_active;
        put::<8, 6, BHS_LEN>(out, self.isid);
        set16::<14>(out, self.tsih);
        self.sn.write(out);
        set16::<36>(out, self.status.code());
    }

    fn decode(bhs: &Bhs) -> Result<LoginResponse, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        let response = LoginResponse {
            transit: bhs[1] & FINAL != 0,
            more: bhs[1] & CONTINUE != 0,
            stage: (bhs[1] >> 2) & 3,
            next_stage: bhs[1] & 3,
            version_max: bhs[2],
            version_active: bhs[3],
            isid: get_array::<8, 6, BHS_LEN>(bhs),
            tsih: be16::<14>(bhs),
            task_tag: task_tag_of(bhs),
            sn: Numbers::read(bhs),
            status: LoginStatus::from_code(be16::<36>(bhs)),
            data_len: data_len_of(bhs),
        };
        if response.transit && response.more { Err(WireError::bad("C", 1)) } else { Ok(response) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextResponse {
    /// F: the negotiation is over.
    pub last: bool,
    /// C: the text continues in the next response; never together with F.
    pub more: bool,
    /// Logical unit number, copied.
    pub lun: [u8; 8],
    pub task_tag: u32,
    /// [`TAG_NONE`] with F; otherwise returns in the next request.
    pub target_tag: u32,
    /// StatSN and command window.
    pub sn: Numbers,
    /// Bytes of text that follow.
    pub data_len: u32,
}

impl Pdu for TextResponse {
    const OPCODE: u8 = opcode::TEXT_RESPONSE;

    fn encode(&self, out: &mut Bhs) {
        let flags = login_flags(self.last, self.more, 0, 0);
        start(out, Self::OPCODE, flags, self.data_len, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.target_tag);
        self.sn.write(out);
    }

    fn decode(bhs: &Bhs) -> Result<TextResponse, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        let text = TextResponse {
            last: bhs[1] & FINAL != 0,
            more: bhs[1] & CONTINUE != 0,
            lun: lun_of(bhs),
            task_tag: task_tag_of(bhs),
            target_tag: be32::<20>(bhs),
            sn: Numbers::read(bhs),
            data_len: data_len_of(bhs),
        };
        if text.last && text.more { Err(WireError::bad("C", 1)) } else { Ok(text) }
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
