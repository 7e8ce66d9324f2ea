//! Translator of requests into commands, and of the engine's answers into replies.
//!
//! Invariants
//!  T1  A command is sent to the unit that the peer entered, or the session ends. An exchange of
//!      the unit behind a LUN raises a unit attention first.
//!  T2  No cell is borrowed while the engine is called.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use bio::{Pool, Segs};
use engine::{
    CloseReason, Command, Device, Next, Response, TaskAttribute, TmFunction, TmOutcome, Transport,
};
use wire::nbd::codes::command_flag as flag;
use wire::nbd::command::{self, Cdb, Outcome};
use wire::nbd::{Error, Request};
use wire::scsi::{Key, Lun, Sense};

use super::patch::Patch;
use super::requests::{RequestSlot, Requests, Work};
use super::{READY_PAUSE_NS, READY_WAIT_NS, TRIES_MAX};

/// Most bytes of one UNMAP or WRITE SAME; a longer request is carried out piece by piece. This is
/// the limit of the disk handler at 512 bytes a block.
const CLEAR_PIECE: u64 = 512 << 20;

/// Bytes of a reply to GET LBA STATUS; the client requests the rest again.
const STATUS_ALLOC: u32 = 16 * 1024;

/// Requests and pieces of requests at the engine at once; further ones wait in the connection.
const DEPTH: u32 = 128;

/// Why a session is over from our side.
pub(crate) enum SessionEnd {
    /// Another unit is behind the LUN now.
    Exchanged,
    /// The engine wants it to end.
    Closed(CloseReason),
}

/// The peer's side of a session: how it is answered, and what wakes its task.
pub(crate) trait Frontend: Sized + 'static {
    /// When the engine ends the session, writes that may still reach the medium have no answer: an
    /// error would mean that they are over. When the daemon ends nothing has: the client turns to
    /// the next one. Only where the end of the connection answers the rest.
    const SILENT_ON_SHUTDOWN: bool = false;
    /// The peer reads the identity of the unit, and must read it before it uses another unit than
    /// the one it knew. A peer whose protocol has no such question chose the unit by its name.
    const QUERIES_IDENTITY: bool = false;
    /// The peer repeats a request that is not answered: there is no answer while the unit is not
    /// ready. For other peers the request waits here.
    const REPEATS: bool = false;
    /// Something that the task waits for has changed.
    fn kick(&self);
    /// `waker` is woken by `kick`.
    fn watch(&self, waker: &Waker);
    /// A list of segments, empty.
    fn segs(&self) -> Segs;
    /// Takes one back.
    fn put_segs(&self, segs: Segs);
    /// For parameter lists.
    fn pool(&self) -> &Pool;
    /// Bytes of answers that the peer has not taken yet.
    fn backlog(&self) -> usize;
    /// The session is over; the first reason counts.
    fn session_over(&self, over: SessionEnd);
    /// Handles the data of a READ; false when the request has ended by it.
    fn data(session: &BlockSession<Self>, tag: u32, data: &Segs) -> bool;
    /// Handles the answer to GET LBA STATUS; it is empty when the unit reports no status. Continues
    /// the request.
    fn status(session: &BlockSession<Self>, tag: u32, data: &Segs);
    /// The end of a reply; `begun` when data of it is out.
    fn reply(session: &BlockSession<Self>, request: &Request, error: Option<Error>, begun: bool);
    /// The end of a request that was interrupted; nothing of its reply is out.
    fn interrupted(session: &BlockSession<Self>, request: &Request) {
        Self::reply(session, request, Some(Error::Shutdown), false);
    }
}

/// A session at one unit.
pub(crate) struct BlockSession<F> {
    pub frontend: F,
    device: Arc<Device>,
    lun: [u8; 8],
    nexus: RefCell<Option<Rc<engine::ItNexus>>>,
    requests: RefCell<Requests>,
    /// Tags to continue: next pieces, and commands to be sent once more.
    ready: RefCell<VecDeque<u32>>,
    /// Tags whose unit was not ready, until the pause is over.
    postponed: RefCell<Vec<u32>>,
    /// Commands at the engine, and postponed ones: they keep their places.
    running: Cell<u32>,
    closing: Cell<bool>,
    /// No more replies are sent.
    silent: Cell<bool>,
    ended: Cell<bool>,
    /// For the task that ends a pause.
    weak: Weak<BlockSession<F>>,
}

impl<F: Frontend> BlockSession<F> {
    /// A session at a unit, which its peer knows by the LUN; `attach` adds the engine's side.
    pub fn new(front: F, device: Arc<Device>, lun: u64) -> Rc<BlockSession<F>> {
        Rc::new_cyclic(|weak| BlockSession {
            frontend: front,
            device,
            lun: lun_field(lun),
            nexus: RefCell::default(),
            requests: RefCell::default(),
            ready: RefCell::default(),
            postponed: RefCell::default(),
            running: Cell::default(),
            closing: Cell::default(),
            silent: Cell::default(),
            ended: Cell::default(),
            weak: weak.clone(),
        })
    }

    /// The engine's side.
    pub fn attach(&self, nexus: Rc<engine::ItNexus>) {
        *self.nexus.borrow_mut() = Some(nexus);
        if !F::QUERIES_IDENTITY {
            self.confirm_identity();
        }
    }

    /// The peer reads the identity of its unit. False: the LUN has another one by now, for which
    /// this session must not answer, and the session is over.
    pub fn confirm_identity(&self) -> bool {
        let (Some(nexus), Ok(lun)) = (self.nexus(), Lun::decode(self.lun)) else { return true };
        let path = nexus.refreshed_path_of(self.lun);
        if path.is_some_and(|path| !Arc::ptr_eq(path.device(), &self.device)) {
            self.frontend.session_over(SessionEnd::Exchanged);
            return false;
        }
        nexus.record_identity(u64::from(lun.number()));
        true
    }

    /// The unit.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The engine's side, until the session has ended.
    pub fn nexus(&self) -> Option<Rc<engine::ItNexus>> {
        self.nexus.borrow().clone()
    }

    /// The peer's group may not write.
    pub fn is_read_only(&self) -> bool {
        let path = self.nexus().and_then(|nexus| nexus.path_of(self.lun));
        path.is_some_and(|path| path.is_read_only())
    }

    fn unit(&self) -> u64 {
        u64::from(self.device.block_bytes())
    }

    /// Bytes of a WRITE that are sent together: `most`, or less when the pools are small.
    pub fn write_piece(&self, most: u64) -> u64 {
        let unit = self.unit();
        (u64::from(self.device.transfer_max()).min(most) / unit).max(1) * unit
    }

    /// Requests under way.
    pub fn open(&self) -> u32 {
        self.requests.borrow().open()
    }

    /// A request begins and ends with blocks of the unit.
    pub fn is_aligned(&self, r: &Request) -> bool {
        let unit = self.unit();
        r.offset.is_multiple_of(unit) && r.len.is_multiple_of(unit)
    }

    /// A request's range is in the unit as it is now, and on its blocks.
    pub fn check_range(&self, r: &Request, work: Work) -> Result<(), Error> {
        if !self.is_aligned(r) {
            return Err(Error::Inval);
        }
        self.check_bytes(r, work)
    }

    /// The same of a range that need not lie on blocks.
    pub fn check_bytes(&self, r: &Request, work: Work) -> Result<(), Error> {
        let unit = self.unit();
        if r.len == 0 {
            return Err(Error::Inval);
        }
        let size = self.device.blocks().saturating_mul(unit);
        match r.offset.checked_add(r.len) {
            Some(end) if end <= size => Ok(()),
            // A TRIM is refused as a READ is (NBD protocol, "Error values").
            _ if work.writes() && work != Work::Trim => Err(Error::NoSpc),
            _ => Err(Error::Inval),
        }
    }

    /// Sets the process of this machine that sends the next requests; zero: not known.
    pub fn set_process(&self, process: u32) {
        self.requests.borrow_mut().current_process = process;
    }

    /// Waits until the engine takes another command.
    pub async fn wait_below_depth(&self) {
        let depth = self.nexus().map_or(DEPTH, |n| n.depth_hint()).min(DEPTH);
        poll_fn(|_| match self.running.get() >= depth {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Waits until every request is answered.
    pub async fn wait_idle(&self) {
        poll_fn(|_| match self.requests.borrow().open() > 0 {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Refuses a request before anything was done for it.
    pub fn refuse(&self, request: &Request, error: Error) {
        F::reply(self, request, Some(error), false);
        self.frontend.kick();
    }

    /// A request that arrived when the session was ending already.
    fn refuse_late(&self, request: &Request) {
        if !self.silent.get() {
            self.refuse(request, Error::Shutdown);
        }
    }

    /// Begins a request without payload.
    pub fn start(&self, request: Request, work: Work, len: u64) {
        self.start_at(request, work, request.offset, len);
    }

    /// Like `start`, for `len` bytes from `at` on, which may differ from the request's range.
    pub fn start_at(&self, request: Request, work: Work, at: u64, len: u64) {
        if self.closing.get() {
            return self.refuse_late(&request);
        }
        let tag = self.requests.borrow_mut().put(request, work, at, len);
        if work.writes() && request.has(flag::FUA) {
            // UNMAP and WRITE SAME know no FUA.
            self.with(tag, |p| p.then_flush = true);
        }
        self.next_piece(tag);
        self.issue(tag);
    }

    /// Begins a WRITE, or a piece of one.
    pub fn start_write(&self, request: Request, at: u64, data: Segs, parent: Option<u32>) {
        if self.closing.get() && parent.is_none() {
            return self.refuse_late(&request);
        }
        let len = data.len() as u64;
        let tag = self.requests.borrow_mut().put(request, Work::Write, at, 0);
        let old = self.with(tag, |p| {
            (p.current_bytes, p.parent) = (len, parent);
            std::mem::replace(&mut p.data, data)
        });
        self.frontend.put_segs(old.unwrap_or_default());
        if let Some(parent) = parent {
            self.with(parent, |p| p.pieces += 1);
        }
        self.issue(tag);
    }

    /// Begins a WRITE that arrives in pieces.
    pub fn start_parent(&self, request: Request) -> u32 {
        self.requests.borrow_mut().put(request, Work::Parent, request.offset, 0)
    }

    /// Begins a piece, which has no payload, of a request that has several.
    pub fn start_part(&self, request: Request, work: Work, at: u64, len: u64, parent: u32) {
        let tag = self.requests.borrow_mut().put(request, work, at, len);
        self.with(tag, |p| p.parent = Some(parent));
        self.with(parent, |p| p.pieces += 1);
        self.next_piece(tag);
        self.issue(tag);
    }

    /// Begins a piece that changes a part of the block at `at`.
    pub(super) fn start_fetch(&self, r: Request, at: u64, unit: u64, patch: Patch, parent: u32) {
        let tag = self.requests.borrow_mut().put(r, Work::Fetch, at, 0);
        self.with(tag, |p| {
            (p.current_bytes, p.patch, p.parent) = (unit, Some(Box::new(patch)), Some(parent));
        });
        self.with(parent, |p| p.pieces += 1);
        self.issue(tag);
    }

    /// A flush follows when all pieces have ended well.
    pub fn parent_flushes(&self, tag: u32) {
        self.with(tag, |p| p.then_flush = true);
    }

    /// A piece cannot be had.
    pub fn fail_parent(&self, tag: u32, error: Error) {
        self.with(tag, |p| p.error = p.error.or(Some(error)));
    }

    /// All pieces are on their way.
    pub fn parent_all_issued(&self, tag: u32) {
        self.with(tag, |p| p.all_issued = true);
        self.try_end_parent(tag);
    }

    fn try_end_parent(&self, tag: u32) {
        let over = |p: &mut RequestSlot| {
            let flush = p.error.is_none() && std::mem::take(&mut p.then_flush);
            p.work = if flush { Work::Flush } else { p.work };
            (p.error, flush)
        };
        let over = self.with(tag, |p| (p.all_issued && p.pieces == 0).then(|| over(p))).flatten();
        match over {
            None => {}
            Some((_, true)) => {
                self.ready.borrow_mut().push_back(tag);
                self.frontend.kick();
            }
            Some((error, false)) => self.finish_request(tag, error),
        }
    }

    pub fn with<R>(&self, tag: u32, f: impl FnOnce(&mut RequestSlot) -> R) -> Option<R> {
        self.requests.borrow_mut().open_at(tag).map(f)
    }

    /// Starts the next piece of the remaining range.
    fn next_piece(&self, tag: u32) {
        let most = |work: Work| match work {
            Work::Read => u64::from(self.device.transfer_max()),
            Work::Trim | Work::Zero(_) => CLEAR_PIECE,
            _ => u64::MAX,
        };
        self.with(tag, |p| {
            p.at = p.at.saturating_add(p.current_bytes);
            p.current_bytes = piece_bytes(p.remaining, most(p.work), self.unit());
            p.remaining -= p.current_bytes;
            p.tries = 0;
        });
    }

    /// The peer withdraws a request. Its command is aborted if that is still possible, and its
    /// remaining pieces are not begun; otherwise the request ends as usual. A request that was
    /// answered already is not found.
    pub fn interrupt(&self, cookie: u64) {
        let tag = self.requests.borrow().find(cookie);
        let Some(tag) = tag else { return };
        self.with(tag, |p| p.interrupted = true);
        if let Some(nexus) = self.nexus() {
            nexus.task_management(tag, TmFunction::AbortTask, self.lun, Some(tag));
        }
    }

    /// True when a request was interrupted; it has ended then.
    fn end_if_interrupted(&self, tag: u32) -> bool {
        let found = self.with(tag, |p| (p.interrupted && !p.begun).then_some(p.request)).flatten();
        let Some(request) = found else { return false };
        self.requests.borrow_mut().free(tag);
        F::interrupted(self, &request);
        self.frontend.kick();
        true
    }

    fn issue(&self, tag: u32) {
        let Some(nexus) = self.nexus() else { return };
        if self.end_if_interrupted(tag) {
            return;
        }
        let unit = self.unit();
        let Some((work, at, now, fua, process)) = self
            .with(tag, |p| (p.work, p.at, p.current_bytes, p.request.has(flag::FUA), p.process))
        else {
            return;
        };
        let (lba, blocks) = (at / unit, u32::try_from(now / unit).unwrap_or(u32::MAX));
        let bytes = u32::try_from(now).unwrap_or(u32::MAX);
        let (mut list, mut swap) = (None, None);
        let (cdb, expect_in, expect_out): (Cdb, u32, u32) = match work {
            Work::Read => (command::read(lba, blocks, fua), bytes, 0),
            Work::Write => (command::write(lba, blocks, fua), 0, bytes),
            Work::Trim => {
                let (cdb, bytes) = command::unmap(lba, blocks);
                list = Some(bytes);
                (cdb, 0, u32::try_from(bytes.len()).unwrap_or(0))
            }
            Work::Zero(unmap) => (command::write_zeroes(lba, blocks, unmap), 0, 0),
            Work::Flush => (command::flush(), 0, 0),
            Work::Cache => (command::pre_fetch(lba, blocks), 0, 0),
            Work::Status => (command::block_status(lba, STATUS_ALLOC), STATUS_ALLOC, 0),
            Work::Fetch => (command::read(lba, blocks, false), bytes, 0),
            Work::Swap => {
                let both = self.with(tag, |p| p.patch.as_ref().map(|patch| patch.swap.clone()));
                let both = both.flatten().unwrap_or_default();
                let len = u32::try_from(both.len()).unwrap_or(0);
                swap = Some(both);
                (command::compare_write(lba, 1, fua), 0, len)
            }
            Work::Parent => return,
        };
        self.running.set(self.running.get() + 1);
        nexus.set_process(process);
        let next = nexus.command(&Command {
            tag,
            lun: self.lun,
            cdb: &cdb,
            attribute: TaskAttribute::Simple,
            expect_in,
            expect_out,
        });
        if let Next::Data { wanted } = next {
            let list = list.as_ref().map(|l| &l[..]);
            self.submit_data(&nexus, tag, wanted, list.or(swap.as_deref()));
        }
    }

    /// Hands write data over; the request keeps it too (Q2).
    fn submit_data(&self, nexus: &engine::ItNexus, tag: u32, wanted: u32, list: Option<&[u8]>) {
        let front = &self.frontend;
        let mut data = front.segs();
        match list {
            Some(bytes) => {
                if !data.grow(front.pool(), bytes.len()) {
                    return nexus.data_failed(tag, engine::DataError::NoMemory);
                }
                data.copy_from(0, bytes);
            }
            None => {
                self.with(tag, |p| p.data.iter().for_each(|seg| data.push(seg.clone())));
            }
        }
        data.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        nexus.data(tag, &mut data);
        front.put_segs(data);
    }

    /// Continues with requests whose command has ended.
    pub fn issue_ready(&self) {
        loop {
            let next = self.ready.borrow_mut().pop_front();
            let Some(tag) = next else { return };
            self.issue(tag);
        }
    }

    /// One command has ended well: the next piece, the flush behind the last, or the end.
    fn piece_done(&self, tag: u32) {
        let Some((more, flush)) = self.with(tag, |p| {
            let flush = p.remaining == 0 && std::mem::take(&mut p.then_flush);
            (p.remaining > 0, flush)
        }) else {
            return;
        };
        if more {
            self.next_piece(tag);
        } else if flush {
            self.with(tag, |p| p.work = Work::Flush);
        } else {
            return self.finish_request(tag, None);
        }
        self.ready.borrow_mut().push_back(tag);
        self.frontend.kick();
    }

    /// Another command follows for the same request.
    fn next_step(&self, tag: u32, work: Work) {
        self.with(tag, |p| (p.work, p.tries) = (work, 0));
        self.ready.borrow_mut().push_back(tag);
        self.frontend.kick();
    }

    /// Has a command sent once more after a pause, as its unit is not ready.
    fn postpone(&self, tag: u32) {
        if F::REPEATS {
            return self.finish_request(tag, Some(Error::NoMem));
        }
        let Some(core) = self.nexus().map(|nexus| nexus.engine().core().clone()) else { return };
        let now = core.now();
        let ends = now.saturating_add(READY_WAIT_NS);
        let ends = self.with(tag, |p| *p.ready_wait_ends_ns.get_or_insert(ends));
        if ends.is_none_or(|ends| now >= ends) {
            return self.finish_request(tag, Some(Error::Io));
        }
        self.running.set(self.running.get() + 1);
        self.postponed.borrow_mut().push(tag);
        if self.postponed.borrow().len() > 1 {
            return;
        }
        let (reactor, weak) = (core.reactor().clone(), self.weak.clone());
        drop(core.reactor().spawn("unit not ready", async move {
            reactor.sleep(READY_PAUSE_NS).await;
            if let Some(session) = weak.upgrade() {
                session.resume_postponed();
            }
        }));
    }

    /// Sends postponed commands again; another unit raises a unit attention first (T1).
    fn resume_postponed(&self) {
        let tags = self.postponed.take();
        let count = u32::try_from(tags.len()).unwrap_or(u32::MAX);
        self.running.set(self.running.get().saturating_sub(count));
        if self.closing.get() {
            return;
        }
        self.ready.borrow_mut().extend(tags);
        self.frontend.kick();
    }

    /// Sends a command once more, if it was not sent too often (T1).
    fn retry(&self, tag: u32) {
        let nexus = self.nexus();
        let path = nexus.as_ref().and_then(|n| n.path_of(self.lun));
        if let Some(path) = path
            && !Arc::ptr_eq(path.device(), &self.device)
        {
            return self.frontend.session_over(SessionEnd::Exchanged);
        }
        let tries = self.with(tag, |p| {
            p.tries = p.tries.saturating_add(1);
            p.tries
        });
        match tries {
            Some(tries) if tries < TRIES_MAX => {
                self.ready.borrow_mut().push_back(tag);
                self.frontend.kick();
            }
            Some(_) => self.finish_request(tag, Some(Error::Io)),
            None => {}
        }
    }

    /// The end of a request or of a piece of one (Q1).
    pub fn finish_request(&self, tag: u32, error: Option<Error>) {
        let Some((request, parent, begun)) = self.with(tag, |p| (p.request, p.parent, p.begun))
        else {
            return;
        };
        self.requests.borrow_mut().free(tag);
        if let Some(parent) = parent {
            self.with(parent, |p| {
                p.pieces = p.pieces.saturating_sub(1);
                p.error = p.error.or(error);
            });
            self.try_end_parent(parent);
        } else {
            F::reply(self, &request, error, begun);
        }
        self.frontend.kick();
    }

    /// The end: everything is aborted.
    pub async fn finish(&self) {
        self.closing.set(true);
        self.ready.borrow_mut().clear();
        if let Some(nexus) = self.nexus() {
            nexus.close();
            poll_fn(|cx| {
                self.frontend.watch(cx.waker());
                if self.ended.get() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        self.nexus.take();
    }

    fn command_left_engine(&self) {
        self.running.set(self.running.get().saturating_sub(1));
        self.frontend.kick();
    }
}

/// Bytes of the next piece of `remaining`, which are whole blocks of `unit`: at most `most`, in
/// whole blocks too, and at least a block. A request that fits costs no division.
#[inline]
fn piece_bytes(remaining: u64, most: u64, unit: u64) -> u64 {
    match remaining <= most {
        true => remaining,
        false => (most / unit * unit).max(unit),
    }
}

fn is_miscompare(sense: Option<Sense>) -> bool {
    sense.is_some_and(|s| s.code.key == Key::Miscompare)
}

fn lun_field(number: u64) -> [u8; 8] {
    let lun = u32::try_from(number).ok().and_then(Lun::new);
    lun.unwrap_or_default().encode()
}

impl<F: Frontend> Transport for BlockSession<F> {
    fn respond(&self, tag: u32, response: Response<'_>) {
        self.command_left_engine();
        let Some(work) = self.with(tag, |p| p.work) else { return };
        let sense = Sense::decode(response.sense).ok();
        match command::outcome(response.status, sense, work.writes()) {
            Outcome::Good => {
                if work == Work::Read && !F::data(self, tag, response.data) {
                    return;
                }
                if work == Work::Status {
                    return F::status(self, tag, response.data);
                }
                if work == Work::Fetch {
                    return match self.fetched(tag, response.data) {
                        true => self.next_step(tag, Work::Swap),
                        false => self.finish_request(tag, Some(Error::Io)),
                    };
                }
                self.piece_done(tag);
            }
            // Another write of the block was between.
            Outcome::Failed(_) if work == Work::Swap && is_miscompare(sense) => {
                self.next_step(tag, Work::Fetch);
            }
            Outcome::Again => self.retry(tag),
            Outcome::Later => self.postpone(tag),
            // A unit that reports no status: everything may be data.
            Outcome::Failed(Error::NotSup | Error::Inval) if work == Work::Status => {
                F::status(self, tag, &Segs::new());
            }
            Outcome::Failed(error) => self.finish_request(tag, Some(error)),
        }
    }

    fn discard(&self, tag: u32) {
        self.command_left_engine();
        match self.closing.get() {
            true => self.requests.borrow_mut().free(tag),
            false if self.end_if_interrupted(tag) => {}
            // Another initiator has reset the unit; the client cannot be notified of it.
            false => self.retry(tag),
        }
    }

    fn unsent(&self) -> usize {
        self.frontend.backlog()
    }

    fn task_management_done(&self, _: u32, _: TmOutcome) {}

    fn close(&self, reason: CloseReason) {
        self.closing.set(true);
        self.silent.set(F::SILENT_ON_SHUTDOWN && reason == CloseReason::Stopping);
        let open = self.requests.borrow().tags();
        // Requests at the engine are answered now; later results are dropped.
        for tag in open {
            // A piece has no reply of its own: its parent's is sent too.
            let silent = |p: &mut RequestSlot| {
                let writes = p.work.writes() || p.work == Work::Parent;
                p.parent.is_some() || self.silent.get() || (writes && F::SILENT_ON_SHUTDOWN)
            };
            match self.with(tag, silent) {
                Some(true) => self.requests.borrow_mut().free(tag),
                _ => self.finish_request(tag, Some(Error::Shutdown)),
            }
        }
        self.frontend.session_over(SessionEnd::Closed(reason));
    }

    fn ended(&self) {
        self.ended.set(true);
        self.frontend.kick();
    }
}

#[cfg(test)]
mod tests {
    use super::piece_bytes;

    #[test]
    fn pieces_are_whole_blocks_within_the_limit() {
        for (remaining, most, unit, piece) in [
            (0, 10_000, 4096, 0),
            (4096, 10_000, 4096, 4096),
            (8192, 8192, 4096, 8192),
            (12_288, 10_000, 4096, 8192),
            (8192, 1000, 4096, 4096),
            (1 << 40, u64::MAX, 512, 1 << 40),
        ] {
            assert_eq!(piece_bytes(remaining, most, unit), piece, "{remaining} {most} {unit}");
        }
    }
}
