//! PDUs an initiator sends (RFC 7143 section 11): typed, read and written.
//!
//! Reading copies fixed fields and allocates nothing. [`Request::decode`] picks the type by opcode;
//! each type can also be read and written alone through [`Pdu`].

use super::bhs::*;
use super::command::{CommandPdu, DataOut};
use super::pdu::Pdu;
use crate::bytes::{get_array, put};
use crate::error::WireError;

/// Functions of [`TaskRequest`] (RFC 7143 section 11.5.1, RFC 7144 section 6.1).
pub mod task_function {
    pub const ABORT_TASK: u8 = 1;
    pub const ABORT_TASK_SET: u8 = 2;
    pub const CLEAR_ACA: u8 = 3;
    pub const CLEAR_TASK_SET: u8 = 4;
    /// LOGICAL UNIT RESET.
    pub const LUN_RESET: u8 = 5;
    pub const TARGET_WARM_RESET: u8 = 6;
    pub const TARGET_COLD_RESET: u8 = 7;
    pub const TASK_REASSIGN: u8 = 8;
    pub const QUERY_TASK: u8 = 9;
    pub const QUERY_TASK_SET: u8 = 10;
    /// I_T NEXUS RESET.
    pub const NEXUS_RESET: u8 = 11;
    pub const QUERY_ASYNC_EVENT: u8 = 12;
}

/// SCSI Task Management Function Request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRequest {
    /// I: deliver at once.
    pub immediate: bool,
    /// One of [`task_function`]; others are passed on to be answered "not supported".
    pub function: u8,
    /// Logical unit number.
    pub lun: [u8; 8],
    pub task_tag: u32,
    /// Tag of the task meant, for ABORT TASK, TASK REASSIGN and QUERY TASK.
    pub referenced_tag: u32,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
    /// CmdSN of the task meant, for ABORT TASK.
    pub ref_cmd_sn: u32,
    /// Next DataSN or R2TSN expected, for TASK REASSIGN.
    pub exp_data_sn: u32,
}

impl Pdu for TaskRequest {
    const OPCODE: u8 = opcode::TASK_REQUEST;

    fn encode(&self, out: &mut Bhs) {
        let flags = FINAL | (self.function & 0x7f);
        start(out, op_byte(Self::OPCODE, self.immediate), flags, 0, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.referenced_tag);
        set32::<24>(out, self.cmd_sn);
        set32::<28>(out, self.exp_stat_sn);
        set32::<32>(out, self.ref_cmd_sn);
        set32::<36>(out, self.exp_data_sn);
    }

    fn decode(bhs: &Bhs) -> Result<TaskRequest, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_final(bhs)?;
        expect_bare(bhs)?;
        Ok(TaskRequest {
            immediate: immediate_of(bhs),
            function: bhs[1] & 0x7f,
            lun: lun_of(bhs),
            task_tag: real_task_tag(bhs)?,
            referenced_tag: be32::<20>(bhs),
            cmd_sn: be32::<24>(bhs),
            exp_stat_sn: be32::<28>(bhs),
            ref_cmd_sn: be32::<32>(bhs),
            exp_data_sn: be32::<36>(bhs),
        })
    }
}

/// NOP-Out: a ping, the answer to a ping of ours, or a bare acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NopOut {
    /// I; always set when `task_tag` is [`TAG_NONE`].
    pub immediate: bool,
    /// Logical unit number, copied from the NOP-In answered.
    pub lun: [u8; 8],
    /// [`TAG_NONE`] when no answer is wanted.
    pub task_tag: u32,
    /// Copied from the NOP-In answered; [`TAG_NONE`] otherwise.
    pub target_tag: u32,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
    /// Bytes of ping data that follow.
    pub data_len: u32,
}

impl Pdu for NopOut {
    const OPCODE: u8 = opcode::NOP_OUT;

    fn encode(&self, out: &mut Bhs) {
        start(out, op_byte(Self::OPCODE, self.immediate), FINAL, self.data_len, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.target_tag);
        set32::<24>(out, self.cmd_sn);
        set32::<28>(out, self.exp_stat_sn);
    }

    fn decode(bhs: &Bhs) -> Result<NopOut, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_final(bhs)?;
        expect_no_ahs(bhs)?;
        let nop = NopOut {
            immediate: immediate_of(bhs),
            lun: lun_of(bhs),
            task_tag: task_tag_of(bhs),
            target_tag: be32::<20>(bhs),
            cmd_sn: be32::<24>(bhs),
            exp_stat_sn: be32::<28>(bhs),
            data_len: data_len_of(bhs),
        };
        if nop.task_tag == TAG_NONE && !nop.immediate {
            return Err(WireError::bad("I", 0));
        }
        Ok(nop)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoginRequest {
    /// T: ready to enter `next_stage`.
    pub transit: bool,
    /// C: the text continues in the next request.
    pub more: bool,
    /// CSG: 0 security, 1 operational, 3 full feature; 2 is reserved and passed on to be refused.
    pub stage: u8,
    /// NSG, meaningful with T.
    pub next_stage: u8,
    /// Highest version offered.
    pub version_max: u8,
    /// Lowest version offered.
    pub version_min: u8,
    /// Initiator part of the session identifier.
    pub isid: [u8; 6],
    /// Target part; 0 requests a new session.
    pub tsih: u16,
    pub task_tag: u32,
    /// Connection identifier.
    pub cid: u16,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
    /// Bytes of text that follow.
    pub data_len: u32,
}

impl Pdu for LoginRequest {
    const OPCODE: u8 = opcode::LOGIN_REQUEST;

    fn encode(&self, out: &mut Bhs) {
        let flags = login_flags(self.transit, self.more, self.stage, self.next_stage);
        start(out, op_byte(Self::OPCODE, true), flags, self.data_len, self.task_tag);
        out[2] = self.version_max;
        out[3] = self.version_min;
        put::<8, 6, BHS_LEN>(out, self.isid);
        set16::<14>(out, self.tsih);
        set16::<20>(out, self.cid);
        set32::<24>(out, self.cmd_sn);
        set32::<28>(out, self.exp_stat_sn);
    }

    fn decode(bhs: &Bhs) -> Result<LoginRequest, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        Ok(LoginRequest {
            transit: bhs[1] & FINAL != 0,
            more: bhs[1] & CONTINUE != 0,
            stage: (bhs[1] >> 2) & 3,
            next_stage: bhs[1] & 3,
            version_max: bhs[2],
            version_min: bhs[3],
            isid: get_array::<8, 6, BHS_LEN>(bhs),
            tsih: be16::<14>(bhs),
            task_tag: task_tag_of(bhs),
            cid: be16::<20>(bhs),
            cmd_sn: be32::<24>(bhs),
            exp_stat_sn: be32::<28>(bhs),
            data_len: data_len_of(bhs),
        })
    }
}

pub(crate) fn login_flags(transit: bool, more: bool, stage: u8, next_stage: u8) -> u8 {
    let t = if transit { FINAL } else { 0 };
    let c = if more { CONTINUE } else { 0 };
    t | c | ((stage & 3) << 2) | (next_stage & 3)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextRequest {
    /// I: deliver at once.
    pub immediate: bool,
    /// F: last request of this negotiation.
    pub last: bool,
    /// C: the text continues in the next request; never together with F.
    pub more: bool,
    /// Logical unit number.
    pub lun: [u8; 8],
    pub task_tag: u32,
    /// Copied from the target's last response; [`TAG_NONE`] starts anew.
    pub target_tag: u32,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
    /// Bytes of text that follow.
    pub data_len: u32,
}

impl Pdu for TextRequest {
    const OPCODE: u8 = opcode::TEXT_REQUEST;

    fn encode(&self, out: &mut Bhs) {
        let flags = login_flags(self.last, self.more, 0, 0);
        start(out, op_byte(Self::OPCODE, self.immediate), flags, self.data_len, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.target_tag);
        set32::<24>(out, self.cmd_sn);
        set32::<28>(out, self.exp_stat_sn);
    }

    fn decode(bhs: &Bhs) -> Result<TextRequest, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        let text = TextRequest {
            immediate: immediate_of(bhs),
            last: bhs[1] & FINAL != 0,
            more: bhs[1] & CONTINUE != 0,
            lun: lun_of(bhs),
            task_tag: real_task_tag(bhs)?,
            target_tag: be32::<20>(bhs),
            cmd_sn: be32::<24>(bhs),
            exp_stat_sn: be32::<28>(bhs),
            data_len: data_len_of(bhs),
        };
        if text.last && text.more { Err(WireError::bad("C", 1)) } else { Ok(text) }
    }
}

/// Why an initiator logs out (RFC 7143 section 11.14.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogoutReason {
    #[default]
    Session,
    /// Close the connection named by the CID.
    Connection,
    /// Remove the connection named by the CID for recovery.
    Recovery,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogoutRequest {
    /// I: deliver at once.
    pub immediate: bool,
    /// The reason code: it selects the session or the connection to close.
    pub reason: LogoutReason,
    pub task_tag: u32,
    /// Connection meant, unless the session is closed.
    pub cid: u16,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
}

impl Pdu for LogoutRequest {
    const OPCODE: u8 = opcode::LOGOUT_REQUEST;

    fn encode(&self, out: &mut Bhs) {
        let flags = FINAL | self.reason as u8;
        start(out, op_byte(Self::OPCODE, self.immediate), flags, 0, self.task_tag);
        set16::<20>(out, self.cid);
        set32::<24>(out, self.cmd_sn);
        set32::<28>(out, self.exp_stat_sn);
    }

    fn decode(bhs: &Bhs) -> Result<LogoutRequest, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_final(bhs)?;
        expect_bare(bhs)?;
        Ok(LogoutRequest {
            immediate: immediate_of(bhs),
            reason: match bhs[1] & 0x7f {
                0 => LogoutReason::Session,
                1 => LogoutReason::Connection,
                2 => LogoutReason::Recovery,
                _ => return Err(WireError::bad("ReasonCode", 1)),
            },
            task_tag: real_task_tag(bhs)?,
            cid: be16::<20>(bhs),
            cmd_sn: be32::<24>(bhs),
            exp_stat_sn: be32::<28>(bhs),
        })
    }
}

/// SNACK Request; a target at error recovery level 0 rejects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snack {
    /// 0 Data or R2T, 1 Status, 2 DataACK, 3 R-Data.
    pub kind: u8,
    /// Logical unit number.
    pub lun: [u8; 8],
    /// Initiator task tag; [`TAG_NONE`] for Status and DataACK.
    pub task_tag: u32,
    /// Target transfer tag or SNACK tag.
    pub target_tag: u32,
    pub exp_stat_sn: u32,
    /// First number missing.
    pub begin: u32,
    /// How many are missing; 0 means all from `begin`.
    pub run: u32,
}

impl Pdu for Snack {
    const OPCODE: u8 = opcode::SNACK;

    fn encode(&self, out: &mut Bhs) {
        start(out, Self::OPCODE, FINAL | (self.kind & 0x0f), 0, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.target_tag);
        set32::<28>(out, self.exp_stat_sn);
        set32::<40>(out, self.begin);
        set32::<44>(out, self.run);
    }

    fn decode(bhs: &Bhs) -> Result<Snack, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_final(bhs)?;
        expect_bare(bhs)?;
        let kind = bhs[1] & 0x0f;
        if kind > 3 {
            return Err(WireError::bad("Type", 1));
        }
        Ok(Snack {
            kind,
            lun: lun_of(bhs),
            task_tag: task_tag_of(bhs),
            target_tag: be32::<20>(bhs),
            exp_stat_sn: be32::<28>(bhs),
            begin: be32::<40>(bhs),
            run: be32::<44>(bhs),
        })
    }
}

/// Any PDU an initiator may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    NopOut(NopOut),
    ScsiCommand(CommandPdu<'a>),
    Task(TaskRequest),
    Login(LoginRequest),
    Text(TextRequest),
    DataOut(DataOut),
    Logout(LogoutRequest),
    Snack(Snack),
    /// An opcode no initiator may send, the target's own included: Reject, reason 05.
    Unknown {
        /// The opcode, without the immediate bit.
        opcode: u8,
        /// The task tag field, for the log.
        task_tag: u32,
    },
}

impl<'a> Request<'a> {
    /// Reads a header and its additional headers. Allocates nothing; data is the caller's.
    /// Errors name the field, and the header can be returned in a Reject.
    pub fn decode(bhs: &Bhs, ahs: &'a [u8]) -> Result<Request<'a>, WireError> {
        Ok(match opcode_of(bhs) {
            opcode::SCSI_COMMAND => Request::ScsiCommand(CommandPdu::decode(bhs, ahs)?),
            opcode::DATA_OUT => Request::DataOut(DataOut::decode(bhs)?),
            opcode::NOP_OUT => Request::NopOut(NopOut::decode(bhs)?),
            opcode::TASK_REQUEST => Request::Task(TaskRequest::decode(bhs)?),
            opcode::LOGIN_REQUEST => Request::Login(LoginRequest::decode(bhs)?),
            opcode::TEXT_REQUEST => Request::Text(TextRequest::decode(bhs)?),
            opcode::LOGOUT_REQUEST => Request::Logout(LogoutRequest::decode(bhs)?),
            opcode::SNACK => Request::Snack(Snack::decode(bhs)?),
            opcode => Request::Unknown { opcode, task_tag: task_tag_of(bhs) },
        })
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
