//! Requests of the transmission phase.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bio::Segs;
use engine::MEMORY_WAIT_NS;
use transport::ReceiveBuffer;
use wire::nbd::codes::{command_flag as flag, kind};
use wire::nbd::{Error, Form, Request, request_len};

use super::close_reason::CloseReason;
use super::exports::{PAYLOAD_MAX, zeroes_fast};
use super::session::NbdSession;
use super::unaligned;
use crate::block_requests::Work;
use crate::buffer_wait::{BufferWaiter, wait_for_buffers};

/// Bytes of a WRITE that are written together: the next ones arrive meanwhile.
const WRITE_PIECE: u64 = 1 << 20;

/// The same where the connection has memory of its own, which holds one for each such connection.
const OWN_PIECE: u64 = 512 << 10;

/// Longest payload that is read to be dropped, bytes; a longer one ends the connection.
const DROP_MAX: u64 = 64 << 20;

/// Reads until the connection ends.
pub(crate) async fn run(session: &Rc<NbdSession>, rx: &mut ReceiveBuffer) -> CloseReason {
    loop {
        if let Err(ending) = step(session, rx).await {
            return ending;
        }
    }
}

async fn step(session: &Rc<NbdSession>, rx: &mut ReceiveBuffer) -> Result<(), CloseReason> {
    session.wait_for_capacity().await;
    let form = session.form();
    let len = request_len(form);
    if rx.arrived() < len {
        next(session, rx).await?;
        // A request whose reception has begun must be completed.
        with_deadline(session, len, rx.fill(len)).await?;
    }
    let request = rx.peek(len, |b| Request::decode(form, b));
    let request =
        request.map_err(|_| CloseReason::Protocol("not a request: its magic is wrong"))?;
    rx.consume(len);
    let payload = request.payload_len(form);
    match request.kind {
        kind::DISC => {
            session.wait_idle().await;
            return Err(CloseReason::Disconnected);
        }
        kind::WRITE => return write(session, rx, request).await,
        _ if payload > 0 => drop_payload(session, rx, payload).await?,
        _ => {}
    }
    match admit(session, &request, form) {
        Err(error) => session.refuse(&request, error),
        Ok(work @ Work::Zero(_)) if !session.is_on_blocks(&request) => {
            unaligned::zero(session, request, work).await;
        }
        Ok(work) => match unaligned::span(session, &request, work) {
            (_, 0) if work == Work::Trim => session.answer(&request),
            span if is_split_read(session, work, span.1) => {
                read_alone(session, request, span).await
            }
            (at, len) => session.start_at(request, work, at, len),
        },
    }
    Ok(())
}

/// A READ whose data is sent in pieces and whose reply has none: nothing may be between them.
fn is_split_read(session: &NbdSession, work: Work, len: u64) -> bool {
    let simple = session.form() == Form::Simple;
    simple && work == Work::Read && len > u64::from(session.device().transfer_max())
}

/// A READ with no other request beside it. To keep the others' replies back instead would keep the
/// memory of their data, which the next piece may wait for.
async fn read_alone(session: &Rc<NbdSession>, request: Request, (at, len): (u64, u64)) {
    session.wait_idle().await;
    session.start_at(request, Work::Read, at, len);
    session.wait_idle().await;
}

/// Waits for the first byte of the next request. A retiring connection receives no further request,
/// and has ended when all earlier ones are answered and their replies are sent.
async fn next(session: &Rc<NbdSession>, rx: &mut ReceiveBuffer) -> Result<(), CloseReason> {
    let conn = session.conn();
    let came = {
        let mut fill = pin!(rx.fill(1));
        poll_fn(|cx| match fill.as_mut().poll(cx) {
            Poll::Pending if conn.own.is_retiring() => Poll::Ready(None),
            polled => polled.map(Some),
        })
        .await
    };
    let Some(came) = came else {
        session.wait_idle().await;
        conn.io.flushed().await;
        return Err(CloseReason::Retired);
    };
    Ok(came?)
}

/// Reads `bytes` of a request, on which there is a deadline.
async fn with_deadline<T>(session: &NbdSession, bytes: usize, reads: impl Future<Output = T>) -> T {
    session.conn().within(bytes, reads).await
}

/// Reads a payload that is of no use.
pub(super) async fn drop_payload(
    session: &NbdSession,
    rx: &mut ReceiveBuffer,
    len: u64,
) -> Result<(), CloseReason> {
    if len > DROP_MAX {
        return Err(CloseReason::Protocol("a payload too long to be dropped"));
    }
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    Ok(with_deadline(session, bytes, rx.skip(len, |_| {})).await?)
}

/// The data of a WRITE or of a piece of one: where it arrived when the unit takes it from there,
/// else in memory of its own. None, and nothing taken, when there is none.
pub(super) async fn payload(
    session: &Rc<NbdSession>,
    rx: &mut ReceiveBuffer,
    len: u64,
) -> Result<Option<Segs>, CloseReason> {
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    if session.device().spec().any_memory {
        let mut data = session.conn().core.segs.take();
        let lent = match rx.arrived() < bytes {
            true => with_deadline(session, bytes, rx.lend(bytes, &mut data)).await?,
            false => rx.lend(bytes, &mut data).await?,
        };
        if lent {
            return Ok(Some(data));
        }
        session.conn().core.segs.put(data);
    }
    let Some(data) = memory(session, len).await else { return Ok(None) };
    let conn = session.conn();
    conn.own.gathering.set(bytes);
    match rx.arrived() < bytes {
        true => with_deadline(session, bytes, rx.read_into(&data, 0, bytes)).await?,
        false => rx.read_into(&data, 0, bytes).await?,
    }
    conn.own.gathering.set(0);
    Ok(Some(data))
}

/// Flags that a request may carry.
fn flags_of(kind: u16, form: Form) -> u16 {
    flag::FUA
        | match kind {
            kind::READ if form != Form::Simple => flag::DF,
            kind::WRITE if form == Form::Extended => flag::PAYLOAD_LEN,
            kind::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
            kind::BLOCK_STATUS => flag::REQ_ONE,
            _ => 0,
        }
}

/// Checks a request without payload and returns its work.
fn admit(session: &NbdSession, r: &Request, form: Form) -> Result<Work, Error> {
    if r.flags & !flags_of(r.kind, form) != 0 {
        return Err(Error::Inval);
    }
    let device = session.device();
    let work = match r.kind {
        kind::READ => Work::Read,
        kind::FLUSH if r.offset == 0 && r.len == 0 => return Ok(Work::Flush),
        kind::TRIM if device.spec().can_delete => Work::Trim,
        kind::CACHE => Work::Cache,
        kind::WRITE_ZEROES => Work::Zero(zeroes_fast(device) && !r.has(flag::NO_HOLE)),
        kind::BLOCK_STATUS if session.reports_allocation() => Work::Status,
        _ => return Err(Error::Inval),
    };
    session.check(r, work)?;
    if work == Work::Read {
        let df_fits = u64::from(device.transfer_max());
        if r.len > u64::from(PAYLOAD_MAX) {
            return Err(Error::Inval);
        }
        if r.has(flag::DF) && unaligned::span(session, r, work).1 > df_fits {
            return Err(Error::Overflow);
        }
    }
    if r.has(flag::FAST_ZERO) && r.kind == kind::WRITE_ZEROES && work != Work::Zero(true) {
        return Err(Error::NotSup);
    }
    Ok(work)
}

/// Bytes of a WRITE that are written together.
pub(super) fn piece_max(session: &NbdSession) -> u64 {
    session.write_piece(match &session.conn().own.data {
        None => WRITE_PIECE,
        Some(_) => OWN_PIECE,
    })
}

async fn write(
    session: &Rc<NbdSession>,
    rx: &mut ReceiveBuffer,
    r: Request,
) -> Result<(), CloseReason> {
    let checked = match r.flags & !flags_of(r.kind, session.form()) {
        0 if r.len > u64::from(PAYLOAD_MAX) => Err(Error::Inval),
        0 => session.check(&r, Work::Write),
        _ => Err(Error::Inval),
    };
    if let Err(error) = checked {
        drop_payload(session, rx, r.len).await?;
        session.refuse(&r, error);
        return Ok(());
    }
    if !session.is_on_blocks(&r) {
        return unaligned::write(session, rx, r).await;
    }
    let piece = piece_max(session);
    if r.len <= piece {
        let Some(data) = payload(session, rx, r.len).await? else {
            drop_payload(session, rx, r.len).await?;
            session.refuse(&r, Error::NoMem);
            return Ok(());
        };
        session.start_write(r, r.offset, data, None);
        return Ok(());
    }
    let parent = session.start_parent(r);
    let mut done = 0;
    while done < r.len {
        let len = piece.min(r.len - done);
        session.wait_for_capacity().await;
        match payload(session, rx, len).await? {
            Some(data) => {
                session.start_write(r, r.offset.saturating_add(done), data, Some(parent));
            }
            None => {
                session.fail_parent(parent, Error::NoMem);
                drop_payload(session, rx, r.len - done).await?;
                break;
            }
        }
        done += len;
    }
    session.parent_all_issued(parent);
    Ok(())
}

impl BufferWaiter for NbdSession {
    fn wake(&self) {
        self.conn().io.wake();
    }

    fn segs(&self) -> Segs {
        self.conn().core.segs.take()
    }

    fn is_over_share(&self) -> bool {
        self.nexus().is_some_and(|n| n.is_over_data_share())
    }
}

/// Memory for write data. No holder of memory waits for later data on this connection, so the
/// request may wait in the queue. None when there is no memory in time.
async fn memory(session: &Rc<NbdSession>, len: u64) -> Option<Segs> {
    let core = &session.conn().core;
    let bytes = usize::try_from(len).ok()?;
    let mut data = core.segs.take();
    if let Some(pool) = &session.conn().own.data {
        // Its own requests before it give it back.
        poll_fn(|cx| match data.grow(pool, bytes) {
            true => Poll::Ready(()),
            false => {
                pool.wake_on_free(cx.waker());
                Poll::Pending
            }
        })
        .await;
        return Some(data);
    }
    if !session.is_over_share() && core.own.alloc_write_data(&mut data, bytes, false) {
        return Some(data);
    }
    core.segs.put(data);
    if core.own.is_beyond_pool(bytes) {
        return None;
    }
    wait_for_buffers(session, &core.own, bytes, 2 * MEMORY_WAIT_NS, || false).await
}
