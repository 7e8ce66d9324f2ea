//! Connection of one core to a server: made, used, and made anew when it is lost. The protocol
//! ([`Protocol`]) is a parameter.
//!
//! ```text
//!   run:   connect --> handshake --> converse --lost--> back-off --+
//!             ^                                                   |
//!             +---------------------------------------------------+
//!   converse = reader (replies) beside writer (requests), until both have ended
//!   clock:  ends late requests; closes a connection that is silent too long
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::task::{Poll, Waker};

use bio::{Errno, Seg, Segs};
use geom::{Core, deadline};
use reactor::{Address, TaskHandle};

use super::disk::Remote;
use super::protocol::{
    Handshake, Job, Progress, Protocol, ProtocolViolation, RequestOwner, Transfer,
};
use super::tls_stream::TlsStream;
use super::{Link, Outcome, RequestTable, cross_core};

/// Memory for replies' heads and small data, bytes. Longer data are received in their place.
const REPLY_BYTES: usize = 64 * 1024;
/// Memory for the replies of a handshake, bytes.
const HANDSHAKE_BYTES: usize = 4096;
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
/// Idle time after which the kernel probes a silent peer.
const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(5);

type Key = (u64, u32);

thread_local! {
    /// A [`Client`] each, of the disk's protocol.
    static CLIENTS: RefCell<HashMap<Key, Rc<dyn Any>>> = RefCell::default();
}

/// See the module.
pub(super) struct Client<P: Protocol> {
    core: Weak<Core>,
    core_id: u32,
    disk: Arc<Remote<P>>,
    requests: RefCell<RequestTable<Job<P>>>,
    stream: RefCell<Option<Rc<TlsStream>>>,
    writer: RefCell<Option<Waker>>,
    /// The connection ends: its reader and its writer stop.
    ending: Cell<bool>,
    closing: Cell<bool>,
    tasks: RefCell<Vec<TaskHandle>>,
}

/// The connection of a disk on this core; it is made when it is first needed.
pub(super) fn of<P: Protocol>(disk: &Arc<Remote<P>>, core: &Core) -> Option<Rc<Client<P>>> {
    known((disk.number, core.id())).or_else(|| open(disk, &core.handle()?))
}

fn known<P: Protocol>(key: Key) -> Option<Rc<Client<P>>> {
    CLIENTS.with_borrow(|all| all.get(&key).cloned())?.downcast().ok()
}

fn open<P: Protocol>(disk: &Arc<Remote<P>>, core: &Rc<Core>) -> Option<Rc<Client<P>>> {
    if disk.is_closed.load(Acquire) {
        return None;
    }
    let client = Rc::new(Client {
        core: Rc::downgrade(core),
        core_id: core.id(),
        disk: disk.clone(),
        requests: RefCell::new(RequestTable::new(disk.bounds(), core.now())),
        stream: RefCell::default(),
        writer: RefCell::default(),
        ending: Cell::default(),
        closing: Cell::default(),
        tasks: RefCell::default(),
    });
    let key = (disk.number, core.id());
    CLIENTS.with_borrow_mut(|all| all.insert(key, client.clone()));
    let tasks = vec![
        core.reactor().spawn("remote disk", run(client.clone())),
        core.reactor().spawn("remote clock", clock(client.clone())),
    ];
    *client.tasks.borrow_mut() = tasks;
    Some(client)
}

/// Ends the connection of a disk on this core; notifies the server first.
pub(super) fn close<P: Protocol>(disk: u64, core: &Rc<Core>) {
    let key = (disk, core.id());
    let Some(client) = known::<P>(key) else { return };
    CLIENTS.with_borrow_mut(|all| drop(all.remove(&key)));
    client.closing.set(true);
    client.wake_writer();
    let held = core.clone();
    drop(core.reactor().spawn("remote farewell", async move {
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

/// Closes the connection of a disk on this core, so that a new one is made.
pub(super) fn reconnect<P: Protocol>(disk: u64, core: &Rc<Core>) {
    if let Some(client) = known::<P>((disk, core.id())) {
        client.disconnect();
    }
}

/// The requests of a disk on this core get the disk's present bounds.
pub(super) fn update_bounds<P: Protocol>(disk: u64, core: &Rc<Core>) {
    if let Some(client) = known::<P>((disk, core.id())) {
        let bounds = client.disk.bounds();
        client.requests.borrow_mut().set_bounds(bounds);
    }
}

/// Closes the connection of a disk on this core if other cores have connections instead, and its
/// requests have ended. Otherwise the end of the last one closes it.
pub(super) fn close_surplus<P: Protocol>(disk: u64, core: &Rc<Core>) {
    if let Some(client) = known::<P>((disk, core.id())) {
        client.close_if_surplus();
    }
}

impl<P: Protocol> Client<P> {
    /// Takes a request.
    pub(super) fn begin(&self, job: Job<P>, fail_fast: bool, now: u64) -> Result<u64, Errno> {
        let cookie = self.requests.borrow_mut().begin(job, fail_fast, now)?;
        self.wake_writer();
        Ok(cookie)
    }

    /// Takes the result of a request of this core.
    pub(super) fn take(&self, cookie: u64) -> Option<Outcome> {
        self.take_ended(cookie).map(|(_, outcome)| outcome)
    }

    fn take_ended(&self, cookie: u64) -> Option<(Job<P>, Outcome)> {
        let ended = self.requests.borrow_mut().take(cookie);
        self.close_if_surplus();
        ended
    }

    /// See [`close_surplus`].
    fn close_if_surplus(&self) {
        if self.core_id < self.disk.connection_cores() || self.closing.get() {
            return;
        }
        let has_ended = self.requests.borrow().is_empty();
        if has_ended && let Some(core) = self.core.upgrade() {
            self.disk.set_trouble(self.core_id, None);
            close::<P>(self.disk.number, &core);
        }
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
                let _ended = self.take_ended(cookie);
            }
            Some(RequestOwner::Bio(_)) => {}
            Some(RequestOwner::OtherCore { core: at, number }) => {
                let ended = self.take_ended(cookie);
                if let Some((job, outcome)) = ended {
                    let is_read = matches!(P::transfer(&job.command), Transfer::FromServer(_));
                    let has_data = is_read && outcome.status.is_ok();
                    let data = if has_data { job.data.to_vec() } else { Vec::new() };
                    cross_core::answer(&self.disk.notifier, at, number, outcome, data);
                }
            }
            Some(RequestOwner::Disk { number }) => {
                let ended = self.take_ended(cookie);
                if let Some((_, outcome)) = ended {
                    self.disk.protocol.own_request_ended(number, outcome.status);
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

    async fn connect(&self, core: &Rc<Core>) -> Result<(Rc<TlsStream>, P::Terms), String> {
        let first = self.disk.first.lock().take();
        if let Some(first) = first {
            let line = TlsStream::new(core.reactor().adopt(first.fd), core.pool().clone());
            if let Some(tls) = first.tls {
                line.secure(tls).map_err(|e| e.to_string())?;
            }
            return Ok((Rc::new(line), first.terms));
        }
        let mut why = String::new();
        for at in &self.disk.to.address.at {
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

    async fn handshake(&self, line: &TlsStream, core: &Core) -> Result<P::Terms, String> {
        let text = |e: std::io::Error| e.to_string();
        let to = self.disk.dial_params();
        let mut handshake = self.disk.protocol.handshake(to.tls.keys.is_some());
        let piece = core.pool().get(HANDSHAKE_BYTES).and_then(|buf| buf.seg(0, HANDSHAKE_BYTES));
        let piece = piece.ok_or("no memory")?;
        let (mut fresh, mut out) = (Vec::new(), Vec::new());
        loop {
            let (used, progress) = handshake.input(&fresh, &mut out)?;
            fresh.drain(..used);
            if matches!(progress, Progress::StartTls) {
                line.send_bytes(&std::mem::take(&mut out)).await.map_err(text)?;
                line.secure(to.tls.begin(&to.address.host)?).map_err(text)?;
                handshake.secured(&mut out);
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
        if let Err(why) = self.disk.check_medium(&terms) {
            return why;
        }
        let memory = |bytes: usize| core.pool().get(bytes).and_then(|buf| buf.seg(0, bytes));
        let heads = memory(BATCH_MAX * P::HEAD_MAX);
        let (Some(into), Some(heads)) = (memory(REPLY_BYTES), heads) else {
            return "no memory for a connection".to_owned();
        };
        self.ending.set(false);
        *self.stream.borrow_mut() = Some(line.clone());
        self.requests.borrow_mut().connected();
        self.disk.counts.connections.fetch_add(1, Relaxed);
        self.disk.set_trouble(core.id(), None);
        self.disk.protocol.connected();
        let mut reader = pin!(self.read(core, &line, &terms, &into));
        let mut writer = pin!(self.write(core, &line, &terms, &heads));
        let (mut why, mut over) = (None, [false; 2]);
        poll_fn(|cx| {
            // Each may end the other, so the reader is checked again after the writer.
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

    async fn write(&self, core: &Core, line: &TlsStream, terms: &P::Terms, heads: &Seg) -> String {
        let (mut out, mut sent, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            poll_fn(|cx| {
                if self.ending.get() {
                    return Poll::Ready(());
                }
                self.gather(core, terms, heads, &mut bytes, &mut out, &mut sent);
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
                self.disk.protocol.goodbye(terms, &mut bye);
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
        terms: &P::Terms,
        heads: &Seg,
        bytes: &mut Vec<u8>,
        out: &mut Vec<Seg>,
        sent: &mut Vec<u64>,
    ) {
        bytes.clear();
        let (mut requests, mut total, now) = (self.requests.borrow_mut(), 0, core.reactor().now());
        while sent.len() < BATCH_MAX && out.len() < BATCH_SEGS && total < BATCH_BYTES {
            let Some(cookie) = requests.next(now) else { return };
            let Some(job) = requests.job(cookie) else { return };
            // It may be sent again: what has arrived for it does not count.
            job.reply = P::Reply::default();
            let from = bytes.len();
            self.disk.protocol.encode(terms, &job.command, cookie, bytes);
            let head = bytes.get(from..).unwrap_or(&[]);
            debug_assert!(head.len() <= P::HEAD_MAX, "a head of {} bytes", head.len());
            heads.copy_from(from, head);
            out.extend(heads.slice(from, head.len()));
            if P::transfer(&job.command) == Transfer::ToServer {
                out.extend(job.data.iter().cloned());
                total += job.data.len();
            }
            sent.push(cookie);
        }
    }

    async fn read(&self, core: &Core, line: &TlsStream, terms: &P::Terms, into: &Seg) -> String {
        let (mut start, mut end) = (0, 0);
        loop {
            let piece = into.with(|b| P::piece(b.get(start..end).unwrap_or(&[])));
            let piece = match piece {
                Ok(Some((piece, used))) => {
                    start += used;
                    piece
                }
                Ok(None) => {
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
                Err(why) => return why,
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
            match self.piece_received(&piece, terms) {
                Ok(true) => self.notify_owner(core, P::cookie(&piece)),
                Ok(false) => {}
                Err(ProtocolViolation(why)) => return why.to_owned(),
            }
            if self.closing.get() {
                self.wake_writer();
            }
        }
    }

    /// The memory for data that follow a piece.
    fn place(&self, piece: &P::Piece) -> Result<Option<Segs>, ProtocolViolation> {
        let mut requests = self.requests.borrow_mut();
        let cookie = P::cookie(piece);
        if !requests.is_sent(cookie) {
            return Err(ProtocolViolation("a reply to no request"));
        }
        let Some(job) = requests.job(cookie) else { return Ok(None) };
        let Some((at, len)) = self.disk.protocol.place(piece, job)? else { return Ok(None) };
        let mut data = Segs::new();
        match job.data.slice_into(at, len, &mut data) {
            true => Ok(Some(data)),
            false => Err(ProtocolViolation("more data than were read")),
        }
    }

    /// A piece has arrived, with its data. True: its request has ended.
    fn piece_received(
        &self,
        piece: &P::Piece,
        terms: &P::Terms,
    ) -> Result<bool, ProtocolViolation> {
        let mut requests = self.requests.borrow_mut();
        let cookie = P::cookie(piece);
        let Some(job) = requests.job(cookie) else { return Ok(false) };
        let Some(outcome) = self.disk.protocol.take(terms, piece, job)? else { return Ok(false) };
        let ended = requests.answer(cookie, outcome);
        ended.map_err(|()| ProtocolViolation("a reply to no request"))
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
async fn run<P: Protocol>(client: Rc<Client<P>>) {
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
async fn clock<P: Protocol>(client: Rc<Client<P>>) {
    loop {
        let Some(core) = client.core.upgrade() else { return };
        core.reactor().sleep(LOOK_NS).await;
        if client.requests.borrow().is_overdue(core.reactor().fresh_now()) {
            client.disconnect();
        }
        client.expire(&core);
    }
}
