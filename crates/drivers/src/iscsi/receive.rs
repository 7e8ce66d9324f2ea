//! Requests of the full feature phase, and the order in which they are carried out.

use wire::WireError;
use wire::iscsi::{
    Bhs, CommandPdu, Frame, Framer, LogoutRequest, Need, NopOut, Pdu, RejectReason, Request,
    ScsiCommand, TAG_NONE, TEXT_LEN_MAX, TaskRequest, TextRequest, immediate_of, opcode, opcode_of,
};

use std::rc::Rc;

use bio::Segs;
use engine::{DataError, PartialGrant};

use super::close_reason::CloseReason;
use super::nop::PING_MAX;
use super::pdu_reader::PduReader;
use super::session::IscsiSession;
use super::tasks::Gathering;
use super::{buffer_wait, data, logout};

pub(crate) enum CompleteRequest {
    /// SCSI Command with its immediate data.
    Command(Box<ReceivedCommand>),
    Task(TaskRequest),
    /// Text with its data; None when the digest did not agree.
    Text(TextRequest, Vec<u8>),
    Nop(NopOut, Vec<u8>),
    Logout(LogoutRequest),
    /// Was ended by task management before its turn.
    Skipped,
}

/// A SCSI command that is complete.
#[derive(Default)]
pub(crate) struct ReceivedCommand {
    pub header: ScsiCommand,
    /// CDB bytes after the sixteenth.
    pub cdb_rest: Vec<u8>,
    pub expect_in: u32,
    pub expect_out: u32,
    /// Memory for all the data that the command may have, or for a part of it. The immediate data
    /// is at its beginning.
    pub data: Segs,
    /// `data` is a part.
    pub part: Option<PartialGrant>,
    /// Counts `data` in the session's total.
    pub gathering: Gathering,
    pub immediate: u32,
    /// It was not received.
    pub lost: Option<ImmediateDataError>,
}

/// Why immediate data was not received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ImmediateDataError {
    /// Reported to the engine.
    Error(DataError),
    /// No buffers in time.
    NoMemory,
}

/// Place of a numbered request in the order of CmdSN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CmdSnPosition {
    InOrder,
    Ahead,
    OutOfWindow,
}

/// Reads until the connection ends.
pub(crate) async fn run(session: &Rc<IscsiSession>, reader: &mut PduReader) -> CloseReason {
    loop {
        if let Err(reason) = step(session, reader).await {
            return reason;
        }
    }
}

async fn step(session: &Rc<IscsiSession>, reader: &mut PduReader) -> Result<(), CloseReason> {
    session.conn.io.wait_for_space().await;
    let framer = session.framer();
    let first = reader.header(&framer).await?;
    let Some(frame) = plain_commands(session, reader, &framer, first)? else { return Ok(()) };
    let (bhs, ahs) = (reader.bhs, std::mem::take(&mut reader.ahs));
    let request = match Request::decode(&bhs, &ahs) {
        Ok(request) => request,
        Err(error) => {
            reader.drop_data(&frame).await?;
            return refuse(session, &bhs, error);
        }
    };
    let (turn, cmd_sn) = match cmd_sn_of(&request) {
        Some((immediate, cmd_sn)) => (cmd_sn_position(session, immediate, cmd_sn), cmd_sn),
        None => (CmdSnPosition::InOrder, 0),
    };
    if turn == CmdSnPosition::OutOfWindow {
        tracing::debug!(target: "iscsi", "{}: CmdSN {cmd_sn:#x} ignored", session.conn.peer);
        return reader.drop_data(&frame).await;
    }
    let body = match request {
        Request::ScsiCommand(pdu) => {
            let mut arrived = ReceivedCommand {
                header: pdu.header,
                cdb_rest: pdu.cdb_rest.to_vec(),
                expect_in: pdu.read_limit(),
                expect_out: pdu.write_limit(),
                ..ReceivedCommand::default()
            };
            if frame.data_len > 0 || !arrived.header.last {
                immediate_data(session, reader, &frame, &bhs, &mut arrived).await?;
            }
            if turn == CmdSnPosition::InOrder {
                if !arrived.header.immediate {
                    session.advance();
                }
                session.command(&mut arrived)?;
                drop(arrived);
                return deliver_held(session).await;
            }
            CompleteRequest::Command(Box::new(arrived))
        }
        Request::DataOut(pdu) => {
            return data::data_out(session, reader, &frame, &bhs, &pdu).await;
        }
        Request::Task(pdu) => CompleteRequest::Task(pdu),
        Request::Logout(pdu) => CompleteRequest::Logout(pdu),
        Request::NopOut(pdu) => match text(session, reader, &frame, &bhs, PING_MAX).await? {
            Some(data) => CompleteRequest::Nop(pdu, data),
            None => return Ok(()),
        },
        Request::Text(pdu) => match text(session, reader, &frame, &bhs, TEXT_LEN_MAX).await? {
            Some(data) => CompleteRequest::Text(pdu, data),
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

/// Carries out the commands that have arrived for as long as each is a [`plain_command`], which
/// needs no future of its own. Returns the first PDU that is none; None when the next one has not
/// arrived, or has to wait until answers are sent.
fn plain_commands(
    session: &IscsiSession,
    reader: &mut PduReader,
    framer: &Framer,
    first: Frame,
) -> Result<Option<Frame>, CloseReason> {
    let mut frame = first;
    // A command leaves nothing in it.
    let mut arrived = ReceivedCommand::default();
    while let Some(pdu) = plain_command(session, &reader.bhs, &frame) {
        arrived.header = pdu.header;
        arrived.expect_in = pdu.read_limit();
        arrived.expect_out = pdu.write_limit();
        if !pdu.header.immediate {
            session.advance();
        }
        session.command(&mut arrived)?;
        if !session.conn.io.has_space() {
            return Ok(None);
        }
        match reader.take_header(framer)? {
            Need::Header(next) => frame = next,
            Need::Bytes(_) => return Ok(None),
        }
    }
    Ok(Some(frame))
}

/// A command that is carried out without waiting for anything. It is the next in order, nothing
/// follows its header, and no later request is held. These are all reads, and all writes without
/// unsolicited data. Headers with errors are left to [`step`].
fn plain_command(session: &IscsiSession, bhs: &Bhs, frame: &Frame) -> Option<CommandPdu<'static>> {
    let is_alone = opcode_of(bhs) == opcode::SCSI_COMMAND
        && frame.ahs_len == 0
        && frame.data_len == 0
        && session.held.borrow().is_empty();
    if !is_alone {
        return None;
    }
    let pdu = CommandPdu::decode(bhs, &[]).ok()?;
    let ScsiCommand { last, immediate, cmd_sn, .. } = pdu.header;
    let is_next = cmd_sn_position(session, immediate, cmd_sn) == CmdSnPosition::InOrder;
    (last && is_next).then_some(pdu)
}

/// Acts on a request when it is the next one, and on those that waited for it (W1).
async fn deliver(
    session: &Rc<IscsiSession>,
    turn: CmdSnPosition,
    counts: bool,
    cmd_sn: u32,
    body: CompleteRequest,
) -> Result<(), CloseReason> {
    if turn == CmdSnPosition::Ahead {
        // One that is there already keeps its place: the second copy is ignored.
        session.held.borrow_mut().entry(cmd_sn).or_insert(body);
        return Ok(());
    }
    if counts {
        session.advance();
    }
    execute(session, body).await?;
    deliver_held(session).await
}

/// Acts on the next requests.
pub(crate) async fn deliver_held(session: &Rc<IscsiSession>) -> Result<(), CloseReason> {
    loop {
        if session.held.borrow().is_empty() {
            return Ok(());
        }
        let next = session.held.borrow_mut().remove(&session.exp_cmd_sn());
        let Some(body) = next else { return Ok(()) };
        session.advance();
        execute(session, body).await?;
    }
}

async fn execute(session: &Rc<IscsiSession>, body: CompleteRequest) -> Result<(), CloseReason> {
    match body {
        CompleteRequest::Command(mut arrived) => session.command(&mut arrived),
        CompleteRequest::Task(pdu) => session.function(&pdu),
        CompleteRequest::Text(pdu, text) => session.text_request(&pdu, &text),
        CompleteRequest::Nop(pdu, data) => session.nop_out(&pdu, &data),
        CompleteRequest::Logout(pdu) => logout::run(session, &pdu).await,
        CompleteRequest::Skipped => Ok(()),
    }
}

fn cmd_sn_position(session: &IscsiSession, immediate: bool, cmd_sn: u32) -> CmdSnPosition {
    if immediate || cmd_sn == session.exp_cmd_sn() {
        // A closed window is legal: then not even the next number is inside.
        return if immediate || session.in_window(cmd_sn) {
            CmdSnPosition::InOrder
        } else {
            CmdSnPosition::OutOfWindow
        };
    }
    if session.in_window(cmd_sn) { CmdSnPosition::Ahead } else { CmdSnPosition::OutOfWindow }
}

/// The I bit and CmdSN of a request that has one.
fn cmd_sn_of(request: &Request<'_>) -> Option<(bool, u32)> {
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
fn numbered(body: &CompleteRequest, bhs: &Bhs) -> bool {
    let unanswered = matches!(body, CompleteRequest::Nop(pdu, _) if pdu.task_tag == TAG_NONE);
    !immediate_of(bhs) && !unanswered
}

/// The data of a text or a ping; None when it was refused.
async fn text(
    session: &Rc<IscsiSession>,
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
    session: &Rc<IscsiSession>,
    reader: &mut PduReader,
    frame: &Frame,
    bhs: &Bhs,
    arrived: &mut ReceivedCommand,
) -> Result<(), CloseReason> {
    arrived.immediate = u32::try_from(frame.data_len).unwrap_or(u32::MAX);
    if !buffer_wait::memory_for(session, frame.data_len, arrived).await {
        arrived.lost = Some(ImmediateDataError::NoMemory);
        return reader.drop_data(frame).await;
    }
    arrived.gathering.count(&session.gathering, arrived.data.len());
    if !session.conn.within(frame.data_len, reader.data(frame, &arrived.data)).await? {
        session.complain_of(bhs, "the digest of its immediate data does not agree");
        arrived.lost = Some(ImmediateDataError::Error(DataError::Digest));
        session.reject(RejectReason::DataDigest, bhs)?;
    }
    Ok(())
}

/// Refuses a request whose header is wrong. If it was the next in order its number is used up, or
/// all later ones would wait for it for ever.
fn refuse(session: &Rc<IscsiSession>, bhs: &Bhs, error: WireError) -> Result<(), CloseReason> {
    session.complain_of(bhs, &format!("{error}"));
    consume_sync(session, bhs);
    session.reject(RejectReason::InvalidField, bhs)
}

fn consume_sync(session: &IscsiSession, bhs: &Bhs) {
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

async fn consume(session: &Rc<IscsiSession>, bhs: &Bhs) -> Result<(), CloseReason> {
    consume_sync(session, bhs);
    Box::pin(deliver_held(session)).await
}

impl IscsiSession {
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
