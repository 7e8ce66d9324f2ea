//! The target's short answers and messages: task management, logout, reject, asynchronous message
//! (RFC 7143 sections 11.6, 11.15, 11.17, 11.9), and a reader for all of a target's PDUs.

use super::bhs::*;
use super::pdu::Pdu;
use super::response::*;
use crate::error::WireError;

/// Answers to a task management function (RFC 7143 section 11.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TaskAnswer {
    #[default]
    Complete = 0,
    /// Task does not exist.
    NoTask = 1,
    /// LUN does not exist.
    NoLun = 2,
    StillAllegiant = 3,
    /// Task allegiance reassignment not supported.
    ReassignUnsupported = 4,
    /// Function not supported.
    Unsupported = 5,
    /// Function authorization failed.
    NotAuthorized = 6,
    /// Function succeeded: the answer to a query (RFC 7144).
    Succeeded = 7,
    Rejected = 255,
}

/// SCSI Task Management Function Response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskResponse {
    /// The outcome.
    pub answer: TaskAnswer,
    pub task_tag: u32,
    /// StatSN and command window.
    pub sn: Numbers,
}

impl Pdu for TaskResponse {
    const OPCODE: u8 = opcode::TASK_RESPONSE;

    fn encode(&self, out: &mut Bhs) {
        start(out, Self::OPCODE, FINAL, 0, self.task_tag);
        out[2] = self.answer as u8;
        self.sn.write(out);
    }

    fn decode(bhs: &Bhs) -> Result<TaskResponse, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_bare(bhs)?;
        let answer = match bhs[2] {
            0 => TaskAnswer::Complete,
            1 => TaskAnswer::NoTask,
            2 => TaskAnswer::NoLun,
            3 => TaskAnswer::StillAllegiant,
            4 => TaskAnswer::ReassignUnsupported,
            5 => TaskAnswer::Unsupported,
            6 => TaskAnswer::NotAuthorized,
            7 => TaskAnswer::Succeeded,
            255 => TaskAnswer::Rejected,
            _ => return Err(WireError::bad("Response", 2)),
        };
        Ok(TaskResponse { answer, task_tag: task_tag_of(bhs), sn: Numbers::read(bhs) })
    }
}

/// Answers to a logout (RFC 7143 section 11.15.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum LogoutAnswer {
    /// Connection or session closed.
    #[default]
    Closed = 0,
    /// CID not found.
    NoConnection = 1,
    /// Connection recovery is not supported.
    RecoveryUnsupported = 2,
    CleanupFailed = 3,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogoutResponse {
    /// The outcome.
    pub answer: LogoutAnswer,
    pub task_tag: u32,
    /// StatSN and command window.
    pub sn: Numbers,
    /// Seconds to wait before a reconnect.
    pub time2wait_s: u16,
    /// Seconds after that within which tasks can be reassigned.
    pub time2retain_s: u16,
}

impl Pdu for LogoutResponse {
    const OPCODE: u8 = opcode::LOGOUT_RESPONSE;

    fn encode(&self, out: &mut Bhs) {
        start(out, Self::OPCODE, FINAL, 0, self.task_tag);
        out[2] = self.answer as u8;
        self.sn.write(out);
        set16::<40>(out, self.time2wait_s);
        set16::<42>(out, self.time2retain_s);
    }

    fn decode(bhs: &Bhs) -> Result<LogoutResponse, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_bare(bhs)?;
        let answer = match bhs[2] {
            0 => LogoutAnswer::Closed,
            1 => LogoutAnswer::NoConnection,
            2 => LogoutAnswer::RecoveryUnsupported,
            3 => LogoutAnswer::CleanupFailed,
            _ => return Err(WireError::bad("Response", 2)),
        };
        Ok(LogoutResponse {
            answer,
            task_tag: task_tag_of(bhs),
            sn: Numbers::read(bhs),
            time2wait_s: be16::<40>(bhs),
            time2retain_s: be16::<42>(bhs),
        })
    }
}

/// Why a PDU is refused (RFC 7143 section 11.17.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectReason {
    DataDigest = 0x02,
    /// SNACK reject.
    Snack = 0x03,
    #[default]
    Protocol = 0x04,
    /// Command not supported.
    Unsupported = 0x05,
    TooManyImmediate = 0x06,
    /// Task in progress: its tag is used again.
    TaskInProgress = 0x07,
    InvalidDataAck = 0x08,
    InvalidField = 0x09,
    /// Long operation reject: no target transfer tag left.
    LongOperation = 0x0a,
    /// Negotiation reset (obsolete).
    NegotiationReset = 0x0b,
    WaitingForLogout = 0x0c,
}

/// Reject; the refused header (48 bytes) follows as data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// StatSN and command window.
    pub sn: Numbers,
    /// DataSN or R2TSN, for a rejected SNACK or DataACK; otherwise 0.
    pub data_sn: u32,
    /// Bytes that follow: the refused header and its additional headers.
    pub data_len: u32,
}

impl Pdu for Reject {
    const OPCODE: u8 = opcode::REJECT;

    fn encode(&self, out: &mut Bhs) {
        start(out, Self::OPCODE, FINAL, self.data_len, TAG_NONE);
        out[2] = self.reason as u8;
        self.sn.write(out);
        set32::<36>(out, self.data_sn);
    }

    fn decode(bhs: &Bhs) -> Result<Reject, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        let reason = match bhs[2] {
            0x02 => RejectReason::DataDigest,
            0x03 => RejectReason::Snack,
            0x04 => RejectReason::Protocol,
            0x05 => RejectReason::Unsupported,
            0x06 => RejectReason::TooManyImmediate,
            0x07 => RejectReason::TaskInProgress,
            0x08 => RejectReason::InvalidDataAck,
            0x09 => RejectReason::InvalidField,
            0x0a => RejectReason::LongOperation,
            0x0b => RejectReason::NegotiationReset,
            0x0c => RejectReason::WaitingForLogout,
            _ => return Err(WireError::bad("Reason", 2)),
        };
        let sn = Numbers::read(bhs);
        Ok(Reject { reason, sn, data_sn: be32::<36>(bhs), data_len: data_len_of(bhs) })
    }
}

/// The event of an asynchronous message (RFC 7143 section 11.9.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A SCSI event; sense data follows as in a SCSI Response.
    ScsiEvent,
    /// The initiator must log out within this many seconds.
    #[default]
    LogoutRequested,
    /// The target will drop connection `cid`.
    ConnectionDropped,
    /// The target will drop all connections.
    SessionDropped,
    /// The target wants to negotiate parameters.
    Negotiate,
    /// Tasks of a logical unit were ended (FastAbort, RFC 7143 section 4.2.3.4).
    TasksEnded,
    /// Vendor specific, with its code.
    Vendor(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncMessage {
    pub event: AsyncEvent,
    /// Logical unit number, for SCSI events.
    pub lun: [u8; 8],
    /// StatSN and command window.
    pub sn: Numbers,
    /// Parameter1 to Parameter3, whose meaning depends on the event (seconds, CID).
    pub parameters: [u16; 3],
    /// Bytes that follow.
    pub data_len: u32,
}

impl Pdu for AsyncMessage {
    const OPCODE: u8 = opcode::ASYNC;

    fn encode(&self, out: &mut Bhs) {
        start(out, Self::OPCODE, FINAL, self.data_len, TAG_NONE);
        set_lun(out, self.lun);
        self.sn.write(out);
        let (event, vendor) = match self.event {
            AsyncEvent::ScsiEvent => (0, 0),
            AsyncEvent::LogoutRequested => (1, 0),
            AsyncEvent::ConnectionDropped => (2, 0),
            AsyncEvent::SessionDropped => (3, 0),
            AsyncEvent::Negotiate => (4, 0),
            AsyncEvent::TasksEnded => (5, 0),
            AsyncEvent::Vendor(code) => (255, code),
        };
        out[36] = event;
        out[37] = vendor;
        let [one, two, three] = self.parameters;
        set16::<38>(out, one);
        set16::<40>(out, two);
        set16::<42>(out, three);
    }

    fn decode(bhs: &Bhs) -> Result<AsyncMessage, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        let event = match bhs[36] {
            0 => AsyncEvent::ScsiEvent,
            1 => AsyncEvent::LogoutRequested,
            2 => AsyncEvent::ConnectionDropped,
            3 => AsyncEvent::SessionDropped,
            4 => AsyncEvent::Negotiate,
            5 => AsyncEvent::TasksEnded,
            255 => AsyncEvent::Vendor(bhs[37]),
            _ => return Err(WireError::bad("AsyncEvent", 36)),
        };
        Ok(AsyncMessage {
            event,
            lun: lun_of(bhs),
            sn: Numbers::read(bhs),
            parameters: [be16::<38>(bhs), be16::<40>(bhs), be16::<42>(bhs)],
            data_len: data_len_of(bhs),
        })
    }
}

/// Any PDU a target may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    NopIn(NopIn),
    Scsi(ScsiResponse),
    Task(TaskResponse),
    Login(LoginResponse),
    Text(TextResponse),
    DataIn(DataIn),
    Logout(LogoutResponse),
    /// Ready To Transfer.
    R2t(R2t),
    Async(AsyncMessage),
    Reject(Reject),
}

impl Response {
    /// Reads a target's header; an opcode no target may send is an error.
    pub fn decode(bhs: &Bhs) -> Result<Response, WireError> {
        Ok(match opcode_of(bhs) {
            opcode::DATA_IN => Response::DataIn(DataIn::decode(bhs)?),
            opcode::SCSI_RESPONSE => Response::Scsi(ScsiResponse::decode(bhs)?),
            opcode::R2T => Response::R2t(R2t::decode(bhs)?),
            opcode::NOP_IN => Response::NopIn(NopIn::decode(bhs)?),
            opcode::TASK_RESPONSE => Response::Task(TaskResponse::decode(bhs)?),
            opcode::LOGIN_RESPONSE => Response::Login(LoginResponse::decode(bhs)?),
            opcode::TEXT_RESPONSE => Response::Text(TextResponse::decode(bhs)?),
            opcode::LOGOUT_RESPONSE => Response::Logout(LogoutResponse::decode(bhs)?),
            opcode::ASYNC => Response::Async(AsyncMessage::decode(bhs)?),
            opcode::REJECT => Response::Reject(Reject::decode(bhs)?),
            _ => return Err(WireError::bad("Opcode", 0)),
        })
    }
}

/// Largest answer prefix written by [`sense_segment`]: the length and 252 bytes of sense.
pub const SENSE_SEGMENT_MAX: usize = 254;

/// Writes the data segment of a SCSI Response: the sense length (16 bits), then the sense data.
/// Answers the segment's length in bytes, padding not counted; 0 when there is no sense. Sense that
/// does not fit in `out` or in [`SENSE_SEGMENT_MAX`] is cut.
pub fn sense_segment(sense: &[u8], out: &mut [u8]) -> usize {
    let room = out.len().min(SENSE_SEGMENT_MAX).saturating_sub(2);
    let len = sense.len().min(room);
    if len == 0 {
        return 0;
    }
    let prefix = u16::try_from(len).unwrap_or(0).to_be_bytes();
    for (to, from) in out.iter_mut().zip(prefix.iter().chain(sense.iter().take(len))) {
        *to = *from;
    }
    len + 2
}

/// The sense data in the data segment of a SCSI Response; empty when the segment is.
pub fn sense_of_segment(data: &[u8]) -> Result<&[u8], WireError> {
    if data.is_empty() {
        return Ok(data);
    }
    let mut reader = crate::bytes::Reader::new(data);
    let len = reader.u16("SenseLength")?;
    reader.take(usize::from(len), "SenseData")
}
