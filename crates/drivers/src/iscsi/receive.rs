//! Requests of the full feature phase, and the order in which they are carried out.

use wire::WireError;
use wire::iscsi::{
    Bhs, Frame, LogoutRequest, NopOut, Pdu, RejectReason, Request, ScsiCommand, TAG_NONE,
    TEXT_LEN_MAX, TaskRequest, TextRequest, immediate_of, opcode, opcode_of,
};

use std::rc::Rc;

use bio::Segs;
use engine::{DataError, Part};

use super::close_reason::CloseReason;
use super::nop::PING_MAX;
use super::pdu_reader::PduReader;
use super::session::Session;
use super::tasks::Gathering;
use super::{buffer_wait, data, logout};

/// A request that is complete.
pub(crate) enum Body {
    /// SCSI Command with its immediate data.
    Command(Box<Arrived>),
    /// Task management.
    Task(TaskRequest),
    /// Text with its data; None when the digest did not agree.
    Text(TextRequest, Vec<u8>),
    /// NOP-Out with its data.
    Nop(NopOut, Vec<u8>),
    /// Logout.
    Logout(LogoutRequest),
    /// Was ended by task management before its turn.
    Skipped,
}

/// A SCSI command that is complete.
#[derive(Default)]
pub(crate) struct Arrived {
    pub header: ScsiCommand,
    /// CDB bytes after the sixteenth.
    pub cdb_rest: Vec<u8>,
    pub expect_in: u32,
    pub expect_out: u32,
    /// Memory for all the data that the command may bring, or for a part of it. The immediate data
    /// is at its beginning.
    pub data: Segs,
    /// `data` is a part.
    pub part: Option<Part>,
    /// Counts `data` in the session's total.
    pub gathering: Gathering,
    /// Bytes of immediate data.
    pub immediate: u32,
    /// It did not come through.
    pub lost: Option<Lost>,
}

/// Why immediate data did not come through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// Reported to the engine.
    Error(DataError),
    /// No buffers in time.
    NoMemory,
}

/// Place of a numbered request in the order of CmdSN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    Later,
    Outside,
}

/// Reads until the connection ends.
pub(crate) async fn run(session: &Rc<Session>, reader: &mut PduReader) -> CloseReason {
    loop {
        if let Err(reason) = step(session, reader).await {
            return reason;
        }
    }
}

async fn step(session: &Rc<Session>, reader: &mut PduReader) -> Result<(), CloseReason> {
    session.conn.io.room().await;
    let (frame, bhs, ahs) = reader.header(&session.framer()).await?;
    let request = match Request::decode(&bhs, &ahs) {
        Ok(request) => request,
        Err(error) => {
            reader.drop_data(&frame).await?;
            return refuse(session, &bhs, error);
        }
    };
    let (turn, cmd_sn) = match order_of(&request) {
        Some((immediate, cmd_sn)) => (turn_of(session, immediate, cmd_sn), cmd_sn),
        None => (Turn::Now, 0),
    };
    if turn == Turn::Outside {
        tracing::debug!(target: "iscsi", "{}: CmdSN {cmd_sn:#x} ignored", session.conn.peer);
        return reader.drop_data(&frame).await;
    }
    let body = match request {
        Request::ScsiCommand(pdu) => {
            let mut arrived = Arrived {
                header: pdu.header,
                cdb_rest: pdu.cdb_rest.to_vec(),
                expect_in: pdu.read_limit(),
                expect_out: pdu.write_limit(),
                ..Arrived::default()
            };
            if frame.data_len > 0 || !arrived.header.last {
                immediate_data(session, reader, &frame, &bhs, &mut arrived).await?;
            }
            if turn == Turn::Now {
                // The way of nearly all commands.
                if !arrived.header.immediate {
                    session.advance();
                }
                session.command(arrived)?;
                return catch_up(session).await;
            }
            Body::Command(Box::new(arrived))
        }
        Request::DataOut(pdu) => {
            return data::data_out(session, reader, &frame, &bhs, &pdu).await;
        }
        Request::Task(pdu) => Body::Task(pdu),
        Request::Logout(pdu) => Body::Logout(pdu),
        Request::NopOut(pdu) => match text(session, reader, &frame, &bhs, PING_MAX).await? {
            Some(data) => Body::Nop(pdu, data),
            None => return Ok(()),
        },
        Request::Text(pdu) => match text(session, reader, &frame, &bhs, TEXT_LEN_MAX).await? {
            Some(data) => Body::Text(pdu, data),
            None => return Ok(()),
        },
        Request::Snack(_) => {
            reader.drop_data(&frame).await?;
            return session.reject(RejectReason::Snack, &bhs);
        }
        Request::Login(_) | Request::Unknown { .. } => {
            reader.drop_data(&frame).await?;
            let reason = match request {
                Request::Login(_) => RejectReason::Protocol,
                _ => RejectReason::Unsupported,
            };
            let opcode = opcode_of(&bhs);
            session.conn.warn(format_args!("opcode {opcode:#04x} refused"));
            return session.reject(reason, &bhs);
        }
    };
    deliver(session, turn, numbered(&body, &bhs), cmd_sn, body).await
}

/// Acts on a request when its turn has come, and on those that waited for it (W1).
async fn deliver(
    session: &Rc<Session>,
    turn: Turn,
    counts: bool,
    cmd_sn: u32,
    body: Body,
) -> Result<(), CloseReason> {
    if turn == Turn::Later {
        // One that is there already keeps its place: the second copy is ignored.
        session.held.borrow_mut().entry(cmd_sn).or_insert(body);
        return Ok(());
    }
    if counts {
        session.advance();
    }
    act(session, body).await?;
    catch_up(session).await
}

/// Acts on requests whose turn has come.
pub(crate) async fn catch_up(session: &Rc<Session>) -> Result<(), CloseReason> {
    loop {
        if session.held.borrow().is_empty() {
            return Ok(());
        }
        let next = session.held.borrow_mut().remove(&session.exp_cmd_sn());
        let Some(body) = next else { return Ok(()) };
        session.advance();
        act(session, body).await?;
    }
}

async fn act(session: &Rc<Session>, body: Body) -> Result<(), CloseReason> {
    match body {
        Body::Command(arrived) => session.command(*arrived),
        Body::Task(pdu) => session.function(&pdu),
        Body::Text(pdu, text) => session.text_request(&pdu, &text),
        Body::Nop(pdu, data) => session.nop_out(&pdu, &data),
        Body::Logout(pdu) => logout::run(session, &pdu).await,
        Body::Skipped => Ok(()),
    }
}

fn turn_of(session: &Session, immediate: bool, cmd_sn: u32) -> Turn {
    if immediate || cmd_sn == session.exp_cmd_sn() {
        // A closed window is legal: then not even the next number is inside.
        return if immediate || session.in_window(cmd_sn) { Turn::Now } else { Turn::Outside };
    }
    if session.in_window(cmd_sn) { Turn::Later } else { Turn::Outside }
}

/// The I bit and CmdSN of a request that has one.
fn order_of(request: &Request<'_>) -> Option<(bool, u32)> {
    match request {
        Request::ScsiCommand(p) => Some((p.header.immediate, p.header.cmd_sn)),
        Request::Task(p) => Some((p.immediate, p.cmd_sn)),
        Request::Text(p) => Some((p.immediate, p.cmd_sn)),
        Request::Logout(p) => Some((p.immediate, p.cmd_sn)),
        Request::NopOut(p) if p.task_tag != TAG_NONE => Some((p.immediate, p.cmd_sn)),
        _ => None,
    }
}

/// True when the request consumes its CmdSN.
fn numbered(body: &Body, bhs: &Bhs) -> bool {
    let unanswered = matches!(body, Body::Nop(pdu, _) if pdu.task_tag == TAG_NONE);
    !immediate_of(bhs) && !unanswered
}

/// The data of a text or a ping; None when it was refused.
async fn text(
    session: &Rc<Session>,
    reader: &mut PduReader,
    frame: &Frame,
    bhs: &Bhs,
    max: usize,
) -> Result<Option<Vec<u8>>, CloseReason> {
    if frame.data_len > max {
        reader.drop_data(frame).await?;
        session.complain_of(bhs, "its data is too long");
        consume(session, bhs).await?;
        session.reject(RejectReason::Protocol, bhs)?;
        return Ok(None);
    }
    let data = reader.text(frame).await?;
    if data.is_none() {
        session.complain_of(bhs, "its data digest does not agree");
        consume(session, bhs).await?;
        session.reject(RejectReason::DataDigest, bhs)?;
    }
    Ok(data)
}

async fn immediate_data(
    session: &Rc<Session>,
    reader: &mut PduReader,
    frame: &Frame,
    bhs: &Bhs,
    arrived: &mut Arrived,
) -> Result<(), CloseReason> {
    arrived.immediate = u32::try_from(frame.data_len).unwrap_or(u32::MAX);
    if !buffer_wait::memory_for(session, frame.data_len, arrived).await {
        arrived.lost = Some(Lost::NoMemory);
        return reader.drop_data(frame).await;
    }
    arrived.gathering.count(&session.gathering, arrived.data.len());
    if !session.conn.within(frame.data_len, reader.data(frame, &arrived.data)).await? {
        session.complain_of(bhs, "the digest of its immediate data does not agree");
        arrived.lost = Some(Lost::Error(DataError::Digest));
        session.reject(RejectReason::DataDigest, bhs)?;
    }
    Ok(())
}

/// Refuses a request whose header is wrong. If it was the next in order its number is used up, or
/// all later ones would wait for it for ever.
fn refuse(session: &Rc<Session>, bhs: &Bhs, error: WireError) -> Result<(), CloseReason> {
    session.complain_of(bhs, &format!("{error}"));
    consume_sync(session, bhs);
    session.reject(RejectReason::InvalidField, bhs)
}

fn consume_sync(session: &Session, bhs: &Bhs) {
    let numbered = matches!(
        opcode_of(bhs),
        opcode::NOP_OUT
            | opcode::SCSI_COMMAND
            | opcode::TASK_REQUEST
            | opcode::TEXT_REQUEST
            | opcode::LOGOUT_REQUEST
    );
    let cmd_sn = bhs.get(24..28).and_then(|b| b.first_chunk::<4>()).map(|b| u32::from_be_bytes(*b));
    if numbered && !immediate_of(bhs) && cmd_sn == Some(session.exp_cmd_sn()) {
        session.advance();
    }
}

async fn consume(session: &Rc<Session>, bhs: &Bhs) -> Result<(), CloseReason> {
    consume_sync(session, bhs);
    Box::pin(catch_up(session)).await
}

impl Session {
    /// A line in the log about a PDU; bounded.
    pub fn complain_of(&self, bhs: &Bhs, what: &str) {
        let opcode = opcode_of(bhs);
        let tag = wire::iscsi::task_tag_of(bhs);
        self.conn.warn(format_args!("PDU {opcode:#04x}, tag {tag:#x}: {what}"));
    }

    /// The header of a command again, for a Reject.
    pub fn reject_command(
        &self,
        reason: RejectReason,
        header: &ScsiCommand,
    ) -> Result<(), CloseReason> {
        let mut bhs = [0; wire::iscsi::BHS_LEN];
        header.encode(&mut bhs);
        self.reject(reason, &bhs)
    }
}
