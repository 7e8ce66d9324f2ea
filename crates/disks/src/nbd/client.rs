//! Connection of one core to a server: made, used, and made anew when it is lost.
//!
//! ```text
//!   run:   connect --> handshake --> converse --lost--> back-off --+
//!             ^                                                   |
//!             +---------------------------------------------------+
//!   converse = reader (replies) beside writer (requests), until both have ended
//!   clock:  ends late requests; closes a connection that is silent too long
//! ```

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::task::{Poll, Waker};

use bio::{Errno, Op, Seg, Segs};
use geom::{Core, deadline};
use reactor::{Address, TaskHandle};
use wire::Kind;
use wire::nbd::client::{ClientHandshake, Progress, Terms};
use wire::nbd::codes::kind;
use wire::nbd::reply::{self, Piece};
use wire::nbd::{Form, Request};

use super::cross_core;
use super::disk::Disk;
use super::job::{Job, NbdCommand, ProtocolViolation, RequestOwner};
use super::tls_stream::TlsStream;
use crate::remote::{Link, Outcome, RequestTable};

/// Memory for replies' heads and small data, bytes. Longer data are received in their place.
const REPLY_BYTES: usize = 64 * 1024;
/// Memory for the heads of requests that are sent together, bytes.
const HEADS_BYTES: usize = 4096;
/// Requests, pieces of memory and bytes that are sent together at the most.
const BATCH_MAX: usize = 64;
const BATCH_SEGS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// Pauses between two tries: the first, and the longest, ns.
const PAUSE_NS: u64 = 50_000_000;
const PAUSE_NS_MAX: u64 = 2_000_000_000;
/// Longest wait for a connection and its handshake, ns.
const HANDSHAKE_NS: u64 = 5_000_000_000;
/// The clock sleeps no longer, ns.
const LOOK_NS: u64 = 500_000_000;
/// Longest wait for the end of a connection that is closed in order, ns.
const CLOSE_DEADLINE_NS: u64 = 600_000_000;
/// Idle time after which the kernel asks a silent peer.
const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(5);

type Key = (u64, u32);

thread_local! {
    static CLIENTS: RefCell<HashMap<Key, Rc<Client>>> = RefCell::default();
}

/// See the module.
pub(crate) struct Client {
    core: Weak<Core>,
    disk: Arc<Disk>,
    requests: RefCell<RequestTable<Job>>,
    stream: RefCell<Option<Rc<TlsStream>>>,
    writer: RefCell<Option<Waker>>,
    /// The connection ends: its reader and its writer stop.
    ending: Cell<bool>,
    closing: Cell<bool>,
    tasks: RefCell<Vec<TaskHandle>>,
}

/// The connection of a disk on this core; it is made when it is first needed.
pub(crate) fn of(disk: &Arc<Disk>, core: &Core) -> Option<Rc<Client>> {
    let key = (disk.number, core.id());
    let known = CLIENTS.with_borrow(|all| all.get(&key).cloned());
    known.or_else(|| open(disk, &core.handle()?))
}

fn open(disk: &Arc<Disk>, core: &Rc<Core>) -> Option<Rc<Client>> {
    if disk.is_closed.load(Acquire) {
        return None;
    }
    let client = Rc::new(Client {
        core: Rc::downgrade(core),
        disk: disk.clone(),
        requests: RefCell::new(RequestTable::new(disk.bounds, core.now())),
        stream: RefCell::default(),
        writer: RefCell::default(),
        ending: Cell::default(),
        closing: Cell::default(),
        tasks: RefCell::default(),
    });
    let key = (disk.number, core.id());
    CLIENTS.with_borrow_mut(|all| all.insert(key, client.clone()));
    let tasks = vec![
        core.reactor().spawn("nbd client", run(client.clone())),
        core.reactor().spawn("nbd clock", clock(client.clone())),
    ];
    *client.tasks.borrow_mut() = tasks;
    Some(client)
}

/// Ends the connection of a disk on this core; notifies the server first.
pub(crate) fn close(disk: u64, core: &Rc<Core>) {
    let gone = CLIENTS.with_borrow_mut(|all| all.remove(&(disk, core.id())));
    let Some(client) = gone else { return };
    client.closing.set(true);
    client.wake_writer();
    let held = core.clone();
    drop(core.reactor().spawn("nbd farewell", async move {
        let end = held.now() + CLOSE_DEADLINE_NS;
        while client.stream.borrow().is_some() && held.now() < end {
            held.reactor().sleep(5_000_000).await;
        }
        client.disconnect();
        client.requests.borrow_mut().lose();
        client.expire(&held);
        client.tasks.take().iter().for_each(TaskHandle::abort);
    }));
}

/// Sends the FLUSH of the disk itself. It does not wait for a connection.
pub(crate) fn flush(disk: &Arc<Disk>, core: &Rc<Core>) {
    let began = disk.own_flush_begins();
    let send = || {
        let client = of(disk, core).ok_or(Errno::NxIo)?;
        let command = NbdCommand::of(Op::Flush, 0, 0).ok_or(Errno::NotSup)?;
        let job = Job::new(RequestOwner::Disk { began }, command, Segs::new());
        client.begin(job, true, core.now())
    };
    if send().is_err() {
        disk.own_flush_ends(began, Err(Errno::Again));
    }
}

/// Closes the connection of a disk on this core, so that a new one is made.
pub(crate) fn reconnect(disk: u64, core: &Rc<Core>) {
    let client = CLIENTS.with_borrow(|all| all.get(&(disk, core.id())).cloned());
    if let Some(client) = client {
        client.disconnect();
    }
}

impl Client {
    /// Takes a request.
    pub(crate) fn begin(&self, job: Job, fail_fast: bool, now: u64) -> Result<u64, Errno> {
        let cookie = self.requests.borrow_mut().begin(job, fail_fast, now)?;
        self.wake_writer();
        Ok(cookie)
    }

    /// Takes the result of a request of this core.
    pub(crate) fn take(&self, cookie: u64) -> Option<Outcome> {
        self.requests.borrow_mut().take(cookie).map(|(_, outcome)| outcome)
    }

    fn wake_writer(&self) {
        let writer = self.writer.borrow_mut().take();
        writer.into_iter().for_each(Waker::wake);
    }

    fn disconnect(&self) {
        self.ending.set(true);
        if let Some(line) = self.stream.borrow().as_ref() {
            line.stream.close();
        }
        self.wake_writer();
    }

    /// Notifies the owner of a request that has ended.
    fn notify_owner(&self, core: &Core, cookie: u64) {
        let who = self.requests.borrow_mut().job(cookie).map(|job| {
            if matches!(job.owner, RequestOwner::Bio(_)) {
                job.data.clear();
            }
            job.owner
        });
        match who {
            // The Bio is not there any more.
            Some(RequestOwner::Bio(ticket)) if !core.restart(ticket) => {
                let _ended = self.requests.borrow_mut().take(cookie);
            }
            Some(RequestOwner::Bio(_)) => {}
            Some(RequestOwner::OtherCore { core: at, number }) => {
                let ended = self.requests.borrow_mut().take(cookie);
                if let Some((job, outcome)) = ended {
                    cross_core::answer(&self.disk, at, number, outcome, &job);
                }
            }
            Some(RequestOwner::Disk { began }) => {
                let ended = self.requests.borrow_mut().take(cookie);
                if let Some((_, outcome)) = ended {
                    self.disk.own_flush_ends(began, outcome.status);
                }
            }
            None => {}
        }
    }

    fn notify_owners(&self, core: &Core, ended: Vec<u64>) {
        ended.into_iter().for_each(|cookie| self.notify_owner(core, cookie));
    }

    fn expire(&self, core: &Core) {
        let ended = self.requests.borrow_mut().expire(core.reactor().fresh_now());
        self.notify_owners(core, ended);
        if self.requests.borrow().link() == Link::Lost && !self.closing.get() {
            self.disk.watch.lost(Errno::NxIo);
        }
    }

    async fn connect(&self, core: &Rc<Core>) -> Result<(Rc<TlsStream>, Terms), String> {
        let first = self.disk.first.lock().take();
        if let Some(first) = first {
            let line = TlsStream::new(core.reactor().adopt(first.fd), core.pool().clone());
            if let Some(tls) = first.tls {
                line.secure(tls).map_err(|e| e.to_string())?;
            }
            return Ok((Rc::new(line), first.terms));
        }
        let mut why = String::new();
        for at in &self.disk.wanted.address.at {
            let stream = match at {
                Address::Inet(at) => core.reactor().connect(*at).await,
                Address::Unix(path) => core.reactor().connect_unix(path).await,
                Address::Ether(_) => continue,
            };
            match stream {
                Ok(stream) => {
                    // A Unix socket has neither.
                    let _ = stream.nodelay(true);
                    let _ = stream.keepalive(KEEPALIVE);
                    let line = Rc::new(TlsStream::new(stream, core.pool().clone()));
                    let terms = self.handshake(&line, core).await?;
                    return Ok((line, terms));
                }
                Err(e) => why = e.to_string(),
            }
        }
        Err(why)
    }

    async fn handshake(&self, line: &TlsStream, core: &Core) -> Result<Terms, String> {
        let text = |e: std::io::Error| e.to_string();
        let wanted = self.disk.wanted_now();
        let mut dial = ClientHandshake::new(&wanted.export, wanted.keys.is_some());
        let piece = core.pool().get(HEADS_BYTES).and_then(|buf| buf.seg(0, HEADS_BYTES));
        let piece = piece.ok_or("no memory")?;
        let (mut fresh, mut out) = (Vec::new(), Vec::new());
        loop {
            let (used, progress) = dial.input(&fresh, &mut out).map_err(|e| e.to_string())?;
            fresh.drain(..used);
            if progress == Progress::StartTls {
                line.send_bytes(&std::mem::take(&mut out)).await.map_err(text)?;
                let keys = wanted.keys.as_ref().ok_or("TLS without keys")?;
                line.secure(keys.begin(&wanted.address.host)?).map_err(text)?;
                dial.secured(&mut out);
            }
            if !out.is_empty() {
                line.send_bytes(&std::mem::take(&mut out)).await.map_err(text)?;
            }
            if let Progress::Ready(terms) = progress {
                return Ok(terms);
            }
            match line.recv(&piece, true).await.map_err(text)? {
                0 => return Err("the server closes the connection".to_owned()),
                n => piece.with(|b| fresh.extend_from_slice(b.get(..n).unwrap_or(&[]))),
            }
        }
    }

    /// From a connection to its end; answers why it ended.
    async fn run_connection(&self, core: &Rc<Core>) -> String {
        let connected = deadline(core, HANDSHAKE_NS, self.connect(core)).await;
        let connected = connected.unwrap_or_else(|| Err("no answer within 5 s".to_owned()));
        let (line, terms) = match connected {
            Ok(connected) => connected,
            Err(why) => return why,
        };
        if let Err(why) = self.disk.check_export(&terms) {
            return why;
        }
        let memory = |bytes: usize| core.pool().get(bytes).and_then(|buf| buf.seg(0, bytes));
        let (Some(into), Some(heads)) = (memory(REPLY_BYTES), memory(HEADS_BYTES)) else {
            return "no memory for a connection".to_owned();
        };
        self.ending.set(false);
        *self.stream.borrow_mut() = Some(line.clone());
        self.requests.borrow_mut().connected();
        self.disk.counts.connections.fetch_add(1, Relaxed);
        self.disk.set_trouble(core.id(), None);
        if let Some(server) = &self.disk.server {
            server.mark_connected();
        }
        let mut reader = pin!(self.read(core, &line, &terms, &into));
        let mut writer = pin!(self.write(core, &line, terms.form, &heads));
        let (mut why, mut over) = (None, [false; 2]);
        poll_fn(|cx| {
            // Each may end the other, so the reader is asked again behind the writer.
            for _ in 0..2 {
                if !over[0]
                    && let Poll::Ready(ended) = reader.as_mut().poll(cx)
                {
                    over[0] = true;
                    why.get_or_insert(ended);
                    self.disconnect();
                }
                if !over[1]
                    && let Poll::Ready(ended) = writer.as_mut().poll(cx)
                {
                    over[1] = true;
                    why.get_or_insert(ended);
                    self.disconnect();
                }
            }
            if over == [true; 2] { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        *self.stream.borrow_mut() = None;
        why.unwrap_or_default()
    }

    async fn write(&self, core: &Core, line: &TlsStream, form: Form, heads: &Seg) -> String {
        let (mut out, mut sent, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            poll_fn(|cx| {
                if self.ending.get() {
                    return Poll::Ready(());
                }
                self.gather(core, form, heads, &mut bytes, &mut out, &mut sent);
                let leaves = self.closing.get() && self.requests.borrow().in_flight() == 0;
                if leaves || !out.is_empty() || line.wants_write() {
                    return Poll::Ready(());
                }
                *self.writer.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            if self.ending.get() {
                return "the connection was lost".to_owned();
            }
            if out.is_empty() && !line.wants_write() {
                let mut bye = Vec::new();
                Request { kind: kind::DISC, ..Request::default() }.encode(form, &mut bye);
                let _gone = line.send_bytes(&bye).await;
                return "closed".to_owned();
            }
            if let Err(e) = line.send(&mut out).await {
                return e.to_string();
            }
            for cookie in sent.drain(..) {
                let ended = self.requests.borrow_mut().sent(cookie);
                if ended {
                    self.notify_owner(core, cookie);
                }
            }
        }
    }

    /// Puts requests together that are sent at once.
    fn gather(
        &self,
        core: &Core,
        form: Form,
        heads: &Seg,
        bytes: &mut Vec<u8>,
        out: &mut Vec<Seg>,
        sent: &mut Vec<u64>,
    ) {
        bytes.clear();
        let (mut ledger, mut total, now) = (self.requests.borrow_mut(), 0, core.reactor().now());
        while sent.len() < BATCH_MAX && out.len() < BATCH_SEGS && total < BATCH_BYTES {
            let Some(cookie) = ledger.next(now) else { return };
            let Some(job) = ledger.job(cookie) else { return };
            job.renew();
            let from = bytes.len();
            let mut flags = job.command.flags;
            if form == Form::Extended && job.command.kind == kind::WRITE {
                flags |= wire::nbd::codes::command_flag::PAYLOAD_LEN;
            }
            let (kind, offset, len) = (job.command.kind, job.command.offset, job.command.len);
            Request { flags, kind, cookie, offset, len }.encode(form, bytes);
            let head = bytes.get(from..).unwrap_or(&[]);
            heads.copy_from(from, head);
            out.extend(heads.slice(from, head.len()));
            if kind == wire::nbd::codes::kind::WRITE {
                out.extend(job.data.iter().cloned());
                total += job.data.len();
            }
            sent.push(cookie);
        }
    }

    async fn read(&self, core: &Core, line: &TlsStream, terms: &Terms, into: &Seg) -> String {
        let (mut start, mut end) = (0, 0);
        loop {
            let piece = into.with(|b| reply::piece(b.get(start..end).unwrap_or(&[])));
            let piece = match piece {
                Ok((piece, used)) => {
                    start += used;
                    piece
                }
                Err(e) if e.kind == Kind::Truncated => {
                    if start > 0 {
                        into.with_mut(|b| b.copy_within(start..end, 0));
                        (start, end) = (0, end - start);
                    }
                    let Some(tail) = into.slice(end, into.len() - end) else {
                        return "a reply that is too long".to_owned();
                    };
                    match line.recv(&tail, false).await {
                        Ok(0) => return "the server closes the connection".to_owned(),
                        Ok(n) => end += n,
                        Err(e) => return e.to_string(),
                    }
                    if line.wants_write() {
                        self.wake_writer();
                    }
                    continue;
                }
                Err(e) => return format!("the server does not speak NBD: {e}"),
            };
            let data = match self.place(&piece) {
                Ok(data) => data,
                Err(ProtocolViolation(why)) => return why.to_owned(),
            };
            if let Some(data) = data {
                let buffered = data.len().min(end - start);
                into.with(|b| data.copy_from(0, b.get(start..start + buffered).unwrap_or(&[])));
                start += buffered;
                if let Err(e) = receive(line, &data, buffered).await {
                    return e.to_string();
                }
            }
            match self.piece_received(&piece, terms.allocation) {
                Ok(true) => self.notify_owner(core, piece.cookie()),
                Ok(false) => {}
                Err(ProtocolViolation(why)) => return why.to_owned(),
            }
            if self.closing.get() {
                self.wake_writer();
            }
        }
    }

    /// The memory for data that follow a piece.
    fn place(&self, piece: &Piece) -> Result<Option<Segs>, ProtocolViolation> {
        let mut ledger = self.requests.borrow_mut();
        let cookie = piece.cookie();
        if !ledger.is_sent(cookie) {
            return Err(ProtocolViolation("a reply to no request"));
        }
        let Some(job) = ledger.job(cookie) else { return Ok(None) };
        let (offset, len) = match *piece {
            Piece::Data { offset, len, .. } => (offset, len),
            Piece::Simple { error: None, .. } if job.command.kind == kind::READ => {
                (job.command.offset, job.command.len)
            }
            _ => return Ok(None),
        };
        let at = job.place(offset, len)?;
        let mut data = Segs::new();
        let fits = job.data.slice_into(at, usize::try_from(len).unwrap_or(usize::MAX), &mut data);
        job.cover(at as u64, len)?;
        if fits { Ok(Some(data)) } else { Err(ProtocolViolation("more data than were read")) }
    }

    /// A piece has arrived, with its data. True: its request has ended.
    fn piece_received(
        &self,
        piece: &Piece,
        context: Option<u32>,
    ) -> Result<bool, ProtocolViolation> {
        let mut ledger = self.requests.borrow_mut();
        let cookie = piece.cookie();
        if let Piece::Simple { error: Some(wire::nbd::Error::Shutdown), .. }
        | Piece::Failed { error: wire::nbd::Error::Shutdown, .. } = piece
        {
            return Err(ProtocolViolation("the server is ending"));
        }
        let Some(job) = ledger.job(cookie) else { return Ok(false) };
        if !job.take(piece, context)? {
            return Ok(false);
        }
        let outcome = job.outcome()?;
        ledger.answer(cookie, outcome).map_err(|()| ProtocolViolation("a reply to no request"))
    }
}

/// Receives the rest of the data behind the first `from` bytes.
async fn receive(line: &TlsStream, data: &Segs, from: usize) -> std::io::Result<()> {
    let mut rest = Segs::new();
    if from >= data.len() || !data.slice_into(from, data.len() - from, &mut rest) {
        return Ok(());
    }
    if !line.is_secure() {
        return line.stream.recv_exact(&rest).await;
    }
    for seg in rest.iter() {
        let mut at = 0;
        while let Some(tail) = seg.slice(at, seg.len() - at).filter(|tail| !tail.is_empty()) {
            match line.recv(&tail, false).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => at += n,
            }
        }
    }
    Ok(())
}

/// Connects, and connects again.
async fn run(client: Rc<Client>) {
    let mut pause = PAUSE_NS;
    loop {
        let Some(core) = client.core.upgrade() else { return };
        let before = client.disk.counts.connections.load(Relaxed);
        let why = client.run_connection(&core).await;
        let was_up = client.requests.borrow().link() == Link::Up;
        let busy = client.requests.borrow().in_flight() as u64;
        let ended = client.requests.borrow_mut().dropped(core.reactor().fresh_now());
        let back = busy.saturating_sub(ended.len() as u64);
        client.notify_owners(&core, ended);
        if client.closing.get() || client.disk.is_closed.load(Acquire) {
            return;
        }
        client.disk.set_trouble(core.id(), Some(why));
        if was_up {
            client.disk.counts.lost.fetch_add(1, Relaxed);
            client.disk.counts.replayed.fetch_add(back, Relaxed);
        }
        let came = client.disk.counts.connections.load(Relaxed) > before;
        pause = if came { PAUSE_NS } else { (pause * 2).min(PAUSE_NS_MAX) };
        if client.requests.borrow().link() == Link::Lost {
            client.expire(&core);
            return;
        }
        core.reactor().sleep(pause).await;
    }
}

/// Ends late requests, and connections that are silent for too long.
async fn clock(client: Rc<Client>) {
    loop {
        let Some(core) = client.core.upgrade() else { return };
        core.reactor().sleep(LOOK_NS).await;
        if client.requests.borrow().is_overdue(core.reactor().fresh_now()) {
            client.disconnect();
        }
        client.expire(&core);
    }
}

/// The disk is not used any more.
pub(crate) fn close_all(disk: &Arc<Disk>) {
    if disk.is_closed.swap(true, AcqRel) {
        return;
    }
    drop(disk.first.lock().take());
    for core in 0..disk.cores {
        let number = disk.number;
        disk.notifier.call(core, Box::new(move |core: &Rc<Core>| close(number, core)));
    }
}
