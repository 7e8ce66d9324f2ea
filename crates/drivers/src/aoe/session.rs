//! An initiator at one slot: requests under way at one unit, and how they are answered.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;

use bio::{Pool, Segs};
use engine::CloseReason;
use wire::aoe::{ATA_LEN, Ata, HEADER_LEN, Header, Mac, SECTOR, command, error as aoe};
use wire::ata::command as op;
use wire::ata::{error, status};
use wire::nbd::codes::{command_flag as flag, kind};
use wire::nbd::{Error, Request};

use super::portal::{Portal, SessionKey, VisibleSlot};
use super::replay_guard::{HeldWrite, Registers, ReplayGuard, WriteId};
use super::target_config::Slot;
use crate::block_requests::{BlockSession, Frontend, SessionEnd};

/// Bytes before the data of an answer.
pub(super) const ATA_HEAD: usize = HEADER_LEN + ATA_LEN;

/// An initiator's session at a slot.
pub(super) type AoeSession = BlockSession<Client>;

/// The front of a session.
pub(super) struct Client {
    pub portal: Rc<Portal>,
    /// The initiator and its slot.
    pub key: SessionKey,
    pub slot: Arc<Slot>,
    pub guard: Rc<ReplayGuard>,
    /// Requests under way at once.
    pub buffers: u32,
    /// When its last frame arrived, ns.
    pub last_frame_ns: Cell<u64>,
    /// It is in the portal's list of those to continue.
    pub is_runnable: Cell<bool>,
    over: Cell<bool>,
    /// The task that waits for the end of the session.
    waker: RefCell<Option<Waker>>,
    session: RefCell<Weak<AoeSession>>,
    /// Marks of writes at the engine.
    writes: RefCell<Vec<WriteId>>,
}

/// The fields of a request that its answer needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AtaRequest {
    pub tag: u32,
    pub command: u8,
    pub sectors: u8,
    pub extended: bool,
}

impl AtaRequest {
    fn of(request: &Request) -> AtaRequest {
        let [t0, t1, t2, t3, command, sectors, extended, _] = request.cookie.to_le_bytes();
        let tag = u32::from_le_bytes([t0, t1, t2, t3]);
        AtaRequest { tag, command, sectors, extended: extended != 0 }
    }

    /// As a request of some bytes; writes are on stable storage when they end (A1).
    pub fn request(&self, writes: bool, offset: u64, len: u64) -> Request {
        let [t0, t1, t2, t3] = self.tag.to_le_bytes();
        let (command, sectors, extended) = (self.command, self.sectors, u8::from(self.extended));
        let cookie = u64::from_le_bytes([t0, t1, t2, t3, command, sectors, extended, 0]);
        let flags = if writes { flag::FUA } else { 0 };
        let kind = if writes { kind::WRITE } else { kind::READ };
        Request { flags, kind, cookie, offset, len }
    }
}

impl Client {
    /// A client for an initiator that may have a seat.
    pub fn new(portal: &Rc<Portal>, key: SessionKey, seat: &VisibleSlot) -> Client {
        Client {
            portal: portal.clone(),
            key,
            slot: seat.slot.clone(),
            guard: portal.per_core.guard(&seat.entry.device),
            buffers: seat.shelf.params.buffers.into(),
            last_frame_ns: Cell::new(portal.per_core.core.now()),
            is_runnable: Cell::default(),
            over: Cell::default(),
            waker: RefCell::default(),
            session: RefCell::default(),
            writes: RefCell::default(),
        }
    }

    /// Its session exists now.
    pub fn set_session(&self, session: &Rc<AoeSession>) {
        *self.session.borrow_mut() = Rc::downgrade(session);
    }

    /// It is to be ended.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// A write that was to begin is as if it had never arrived.
    pub fn abandon_write(&self, mark: WriteId) {
        let now = self.portal.per_core.core.now();
        let mut release = |held: HeldWrite| self.portal.release(held);
        self.guard.finish((mark, self.key.mac), None, now, &mut release);
    }

    /// Hands a write to the engine.
    pub fn add_write(&self, mark: WriteId) {
        self.writes.borrow_mut().push(mark);
    }

    fn header(&self, ata_request: &AtaRequest) -> Header {
        Header {
            to: self.key.mac,
            from: self.portal.mac(),
            version: wire::aoe::VERSION,
            response: true,
            error: None,
            address: self.key.address,
            command: command::ATA,
            tag: ata_request.tag,
        }
    }

    /// The end of a command: its registers, and data.
    pub fn answer(
        &self,
        ata_request: &AtaRequest,
        lba: u64,
        (status, error): Registers,
        data: &Segs,
    ) {
        let ata = Ata {
            extended: ata_request.extended,
            feature: error,
            // Sectors that are left of the request.
            sectors: 0,
            command: status,
            registers: lba,
            ..Ata::default()
        };
        let mut head = [0; ATA_HEAD];
        let (first, last) = head.split_at_mut(HEADER_LEN);
        first.copy_from_slice(&self.header(ata_request).encode());
        last.copy_from_slice(&ata.encode());
        self.portal.send(&head, data);
    }

    /// The frame is refused.
    pub fn refuse(&self, ata_request: &AtaRequest, error: u8) {
        let header = Header { error: Some(error), ..self.header(ata_request) };
        self.portal.send(&header.encode(), &Segs::new());
    }

    /// Gives up the writes at the engine when the session has ended.
    pub fn abandon_writes(&self) {
        self.writes.take().into_iter().for_each(|mark| self.abandon_write(mark));
    }

    /// A write has ended: those that waited for it may begin.
    fn write_ended(&self, request: &Request, answer: Option<Registers>) {
        let tag = AtaRequest::of(request).tag;
        let mark = {
            let mut marks = self.writes.borrow_mut();
            let is = |m: &WriteId| m.tag == tag && m.start == request.offset;
            marks.iter().position(is).map(|at| marks.swap_remove(at))
        };
        let Some(mark) = mark else { return };
        let now = self.portal.per_core.core.now();
        let mut release = |held: HeldWrite| self.portal.release(held);
        self.guard.finish((mark, self.key.mac), answer, now, &mut release);
    }
}

/// The ATA registers that report an error. None: no answer, as the initiator repeats the request.
fn registers(command: u8, problem: Error) -> Option<Registers> {
    let reads = matches!(command, op::READ | op::READ_EXT | op::READ_DMA | op::READ_DMA_EXT)
        || matches!(command, op::VERIFY | op::VERIFY_EXT);
    let failed = status::READY | status::ERROR;
    Some(match problem {
        Error::NoMem => return None,
        Error::NoSpc | Error::Overflow => (failed, error::NOT_FOUND),
        Error::Io if reads => (failed, error::UNCORRECTABLE),
        Error::Io => (failed | status::FAULT, error::ABORT),
        Error::Perm | Error::Inval | Error::NotSup | Error::Shutdown => (failed, error::ABORT),
    })
}

impl Frontend for Client {
    // The duplicate detection must know when a write can no longer reach the medium.
    const SILENT_ON_SHUTDOWN: bool = true;
    const QUERIES_IDENTITY: bool = true;
    const REPEATS: bool = true;

    fn kick(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
        if !self.is_runnable.replace(true)
            && let Some(session) = self.session.borrow().upgrade()
        {
            self.portal.enqueue_session(session);
        }
    }

    fn watch(&self, waker: &Waker) {
        *self.waker.borrow_mut() = Some(waker.clone());
    }

    fn segs(&self) -> Segs {
        self.portal.per_core.segs()
    }

    fn put_segs(&self, segs: Segs) {
        self.portal.per_core.put_segs(segs);
    }

    fn pool(&self) -> &Pool {
        self.portal.per_core.core.pool()
    }

    fn backlog(&self) -> usize {
        0
    }

    fn session_over(&self, over: SessionEnd) {
        if let SessionEnd::Closed(CloseReason::Kicked) = over {
            tracing::info!(target: "aoe", "{} at {}: its session was ended; the initiator may \
                                    connect again",
                self.key.mac, self.key.address);
        }
        self.over.set(true);
        self.kick();
    }

    fn data(session: &AoeSession, tag: u32, data: &Segs) -> bool {
        let found = session.with(tag, |p| {
            p.begun = true;
            (p.request, p.current_bytes)
        });
        let Some((request, now)) = found else { return false };
        if data.len() as u64 != now || request.len != now {
            // A unit that became smaller under way.
            session.with(tag, |p| p.begun = false);
            session.finish_request(tag, Some(Error::Io));
            return false;
        }
        let ata_request = AtaRequest::of(&request);
        let lba = request.offset / SECTOR as u64;
        let none = Segs::new();
        let verifies = matches!(ata_request.command, op::VERIFY | op::VERIFY_EXT);
        let sent = if verifies { &none } else { data };
        session.frontend.answer(&ata_request, lba, (status::READY, 0), sent);
        true
    }

    fn status(session: &AoeSession, tag: u32, _: &Segs) {
        session.finish_request(tag, Some(Error::NotSup));
    }

    fn reply(session: &AoeSession, request: &Request, error: Option<Error>, begun: bool) {
        let front = &session.frontend;
        let ata_request = AtaRequest::of(request);
        let answer = match error {
            None => Some((status::READY, 0)),
            Some(error) => registers(ata_request.command, error),
        };
        front.write_ended(request, answer);
        let lba = request.offset / SECTOR as u64;
        match error {
            _ if begun => {}
            // The unit is not this initiator's any more: it enters again, if it may.
            Some(Error::Shutdown) => {
                front.refuse(&ata_request, aoe::UNAVAILABLE);
                front.over.set(true);
            }
            _ => {
                if let Some(registers) = answer {
                    front.answer(&ata_request, lba, registers, &Segs::new());
                }
            }
        }
    }
}

/// The initiator name of a session's address.
pub(super) fn name(mac: Mac) -> String {
    format!("mac:{mac}")
}
