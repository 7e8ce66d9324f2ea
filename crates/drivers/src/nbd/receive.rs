//! What arrives in transmission.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bio::Segs;
use target::{Eater, PATIENCE_NS};
use wire::nbd::codes::{command_flag as flag, kind};
use wire::nbd::{Error, Form, Request, request_len};

use super::connection::Connection;
use super::ending::Ending;
use super::exports::{PAYLOAD_MAX, zeroes_fast};
use super::inbox::Inbox;
use super::session::Session;
use crate::blocks::Work;

/// Bytes of a WRITE that go to the medium together: the next ones arrive meanwhile.
const WRITE_PIECE: u64 = 1 << 20;

/// Longest payload that is read to be dropped, bytes; a longer one ends the connection.
const DROP_MAX: u64 = 64 << 20;

/// Reads until the connection ends.
pub(crate) async fn run(session: &Rc<Session>, inbox: &mut Inbox) -> Ending {
    loop {
        if let Err(ending) = step(session, inbox).await {
            return ending;
        }
    }
}

async fn step(session: &Rc<Session>, inbox: &mut Inbox) -> Result<(), Ending> {
    session.room().await;
    let form = session.form();
    let len = request_len(form);
    inbox.fill(len).await?;
    let request = inbox.with(len, |b| Request::decode(form, b));
    let request = request.map_err(|_| Ending::Protocol("not a request: its magic is wrong"))?;
    inbox.take(len);
    let payload = request.payload_len(form);
    match request.kind {
        kind::DISC => {
            session.idle().await;
            return Err(Ending::Disconnected);
        }
        kind::WRITE => return write(session, inbox, request).await,
        _ if payload > 0 => drop_payload(inbox, payload).await?,
        _ => {}
    }
    match admit(session, &request, form) {
        Ok((work, len)) => session.start(request, work, len),
        Err(error) => session.refuse(&request, error),
    }
    Ok(())
}

async fn drop_payload(inbox: &mut Inbox, len: u64) -> Result<(), Ending> {
    if len > DROP_MAX {
        return Err(Ending::Protocol("a payload too long to be dropped"));
    }
    inbox.skip(len).await
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

/// What is to be done for a request without payload, and for how many bytes.
fn admit(session: &Session, r: &Request, form: Form) -> Result<(Work, u64), Error> {
    if r.flags & !flags_of(r.kind, form) != 0 {
        return Err(Error::Inval);
    }
    let device = session.device();
    let work = match r.kind {
        kind::READ => Work::Read,
        kind::FLUSH if r.offset == 0 && r.len == 0 => return Ok((Work::Flush, 0)),
        kind::TRIM if device.spec().can_delete => Work::Trim,
        kind::CACHE => Work::Cache,
        kind::WRITE_ZEROES => Work::Zero(zeroes_fast(device) && !r.has(flag::NO_HOLE)),
        kind::BLOCK_STATUS if session.tells_allocation() => Work::Status,
        _ => return Err(Error::Inval),
    };
    session.check_range(r, work)?;
    if work == Work::Read {
        let df_fits = u64::from(device.transfer_max());
        if r.len > u64::from(PAYLOAD_MAX) {
            return Err(Error::Inval);
        }
        if r.has(flag::DF) && r.len > df_fits {
            return Err(Error::Overflow);
        }
    }
    if r.has(flag::FAST_ZERO) && r.kind == kind::WRITE_ZEROES && work != Work::Zero(true) {
        return Err(Error::NotSup);
    }
    Ok((work, r.len))
}

async fn write(session: &Rc<Session>, inbox: &mut Inbox, r: Request) -> Result<(), Ending> {
    let checked = match r.flags & !flags_of(r.kind, session.form()) {
        0 if r.len > u64::from(PAYLOAD_MAX) => Err(Error::Inval),
        0 => session.check_range(&r, Work::Write),
        _ => Err(Error::Inval),
    };
    if let Err(error) = checked {
        drop_payload(inbox, r.len).await?;
        session.refuse(&r, error);
        return Ok(());
    }
    let piece = session.write_piece(WRITE_PIECE);
    if r.len <= piece {
        let Some(data) = memory(session, r.len).await else {
            inbox.skip(r.len).await?;
            session.refuse(&r, Error::NoMem);
            return Ok(());
        };
        inbox.data(&data).await?;
        session.start_write(r, r.offset, data, None);
        return Ok(());
    }
    let parent = session.start_parent(r);
    let mut done = 0;
    while done < r.len {
        let len = piece.min(r.len - done);
        session.room().await;
        match memory(session, len).await {
            Some(data) => {
                inbox.data(&data).await?;
                session.start_write(r, r.offset.saturating_add(done), data, Some(parent));
            }
            None => {
                session.fail_parent(parent, Error::NoMem);
                inbox.skip(r.len - done).await?;
                break;
            }
        }
        done += len;
    }
    session.parent_whole(parent);
    Ok(())
}

/// A connection that stands before the data of a request.
struct Stand {
    conn: Rc<Connection>,
    bytes: usize,
    got: RefCell<Option<Segs>>,
    over: Cell<bool>,
}

impl Eater for Stand {
    fn feed(&self, _: u64) -> bool {
        if self.over.get() {
            return true;
        }
        let mut data = self.conn.here.segs();
        if !self.conn.here.engine.room_for_data(&mut data, self.bytes, true) {
            return false;
        }
        *self.got.borrow_mut() = Some(data);
        self.conn.kick();
        true
    }

    fn starved(&self, _: u64) {
        self.over.set(true);
        self.conn.kick();
    }
}

/// Leaves the line, whatever happens to the connection.
struct Leave(Rc<Stand>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.over.set(true);
        self.0.got.take();
    }
}

/// Memory for write data. Nothing that holds memory waits for what comes behind it on this
/// connection, so it may stand in the line. None when there is none in time.
async fn memory(session: &Rc<Session>, len: u64) -> Option<Segs> {
    let conn = session.conn();
    let engine = &conn.here.engine;
    let bytes = usize::try_from(len).ok()?;
    let mut data = conn.here.segs();
    if engine.room_for_data(&mut data, bytes, false) {
        return Some(data);
    }
    conn.here.put_segs(data);
    if engine.is_beyond_pool(bytes) {
        return None;
    }
    let stand = Rc::new(Stand {
        conn: conn.clone(),
        bytes,
        got: RefCell::default(),
        over: Cell::new(false),
    });
    let leave = Leave(stand.clone());
    engine.starve(stand.clone(), 0);
    let wait = poll_fn(|_| match stand.got.take() {
        Some(segs) => Poll::Ready(Some(segs)),
        None if stand.over.get() => Poll::Ready(None),
        None => Poll::Pending,
    });
    let got = geom::deadline(&conn.here.core, 2 * PATIENCE_NS, wait).await.flatten();
    drop(leave);
    got
}
