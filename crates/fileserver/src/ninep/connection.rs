//! Bytes to messages and back.
//!
//! ```text
//!   reader: recv -> messages -> a task each --+
//!                                             +--> replies -> one send for all that are there
//! ```
//! Requests of a client run concurrently; a slow one does not delay the others. Reading stops while
//! too much is under way or unsent ([`super::unsent`]), so a client's part of memory is bounded.
//! [`Incoming`] and [`Outgoing`] decrypt and encrypt the bytes of a client with TLS.
//! A connection begins a bounded part of its requests in a turn of the core. So the wait of a
//! client depends on the number of others, but not on the number of requests that each one sends.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bio::{Buf, PAGE_BYTES, Seg};
use reactor::{Signal, Stream, TaskHandle};
use transport::{CommonReason, FLUSH_NS, Incoming, Outgoing, Tls, TransmitQueue};
use wire::ninep::{self, HEAD, R, T, WRITE_HEAD};

use super::refusal::Refusal;
use super::session::{ClientSession, Reply};
use super::trace::Traced;
use super::unsent::UnsentReplies;
use crate::notify::Notify;

/// Requests of one client under way.
const REQUESTS_MAX: usize = 128;
/// Bytes of requests under way beyond which no further one is read.
const BYTES_MAX: usize = 8 << 20;
/// Requests that a connection begins in one turn, and bytes of them.
const TURN_REQUESTS: usize = 32;
/// See [`TURN_REQUESTS`].
const TURN_BYTES: usize = 256 << 10;
/// Bytes received at a time from a client that sends much.
const RECV_BYTES: usize = 64 << 10;
/// Largest message of a client that has not attached, bytes: it has names to send only.
const FIRST_MAX: u32 = 8 << 10;
/// How long a client that is silent keeps a buffer of [`RECV_BYTES`], ns.
const KEEP_NS: u64 = 1_000_000_000;

/// A request under way.
struct InflightRequest {
    task: Option<TaskHandle>,
    /// Tags of the flushes that wait for its reply.
    flushed_by: Vec<u16>,
    /// It changes nothing: a flush may break it off.
    is_read: bool,
    bytes: usize,
}

struct Conn {
    session: Rc<ClientSession>,
    stream: Stream,
    tls: RefCell<Option<Rc<Tls>>>,
    inflight: RefCell<HashMap<u16, InflightRequest>>,
    bytes: Cell<usize>,
    tx: RefCell<TransmitQueue>,
    unsent: Rc<UnsentReplies>,
    /// Something is to be sent, or a request has ended.
    progress: Notify,
    closing: Cell<bool>,
}

/// Serves a connection until it ends.
pub(super) async fn run(session: Rc<ClientSession>, incoming: Incoming) {
    let reactor = session.server.reactor.clone();
    let stream = incoming.stream().clone();
    // Small replies are not to wait for each other; a socket that cannot is used as it is.
    let _ = stream.nodelay(true);
    let conn = Rc::new(Conn {
        tls: RefCell::new(incoming.tls().cloned()),
        tx: RefCell::new(TransmitQueue::new(session.server.pool.clone())),
        session,
        stream,
        inflight: RefCell::default(),
        bytes: Cell::new(0),
        unsent: Rc::default(),
        progress: Notify::default(),
        closing: Cell::new(false),
    });
    let writer_ended = Signal::new();
    let (writer, is_over) = (conn.clone(), writer_ended.clone());
    reactor.spawn("9p-send", async move {
        // The cause is ignored: there is no client left to report it to.
        let _ = writer.send_all().await;
        writer.session.hang_up();
        is_over.notify();
    });
    let login_ns = conn.session.server.login_ns.get();
    let mut reads = pin!(conn.read_until_hung_up(incoming));
    let ended = reactor.within(login_ns, reads.as_mut()).await;
    match ended {
        None if conn.session.has_attached.get() => reads.await,
        None => conn.log_late(login_ns),
        Some(()) => {}
    }
    conn.closing.set(true);
    conn.abort_all();
    let tls = conn.tls.borrow().clone();
    if let Some(tls) = &tls {
        // A client that reads nothing does not receive the end of the stream.
        tls.close();
        conn.progress.notify_all();
        reactor.within(FLUSH_NS, writer_ended.wait()).await;
    }
    conn.stream.close();
    conn.progress.notify_all();
}

impl Conn {
    /// The time to attach is over.
    fn log_late(&self, login_ns: u64) {
        let seconds = login_ns / 1_000_000_000;
        let why = format_args!("closed, no attach within {seconds} s (login_timeout)");
        self.session.server.journal.log_refused(&self.session.peer, why);
    }

    /// Reads are broken off; what changes something continues to its end, unanswered.
    fn abort_all(&self) {
        for (_, doing) in self.inflight.borrow_mut().drain() {
            if let (true, Some(task)) = (doing.is_read, doing.task) {
                task.abort();
            }
        }
        self.bytes.set(0);
    }

    /// Sends what is queued, as the only sender, until the connection closes.
    async fn send_all(&self) -> Result<(), CommonReason> {
        let mut outgoing = Outgoing::new(&self.tx, &self.tls, &self.session.server.pool);
        let mut batch = Vec::new();
        loop {
            let seen = self.progress.count();
            if !outgoing.is_waiting() {
                if self.closing.get() {
                    return Ok(());
                }
                self.progress.after(seen).await;
                continue;
            }
            let queued = self.tx.borrow().bytes();
            outgoing.take(&mut batch)?;
            let taken = queued - self.tx.borrow().bytes();
            self.stream.send(&mut batch).await.map_err(|e| CommonReason::lost(&e))?;
            outgoing.release();
            self.unsent.note_sent(taken);
            self.progress.notify_all();
        }
    }

    /// Reads until the client leaves or is hung up.
    async fn read_until_hung_up(self: &Rc<Self>, incoming: Incoming) {
        let mut reads = pin!(self.read_all(incoming));
        let mut hung_up = pin!(self.session.hung_up.wait());
        poll_fn(|cx| match hung_up.as_mut().poll(cx) {
            // The cause is ignored: there is no client left to report it to.
            Poll::Pending => reads.as_mut().poll(cx).map(drop),
            ready => ready,
        })
        .await;
    }

    async fn read_all(self: &Rc<Self>, incoming: Incoming) -> Result<(), CommonReason> {
        let mut inbox = RxBuffer::new(self.clone(), incoming);
        let (mut begun, mut bytes) = (0, 0);
        loop {
            if begun >= TURN_REQUESTS || bytes >= TURN_BYTES {
                (begun, bytes) = (0, 0);
                self.session.server.reactor.yield_now().await;
            }
            let mut head = [0; HEAD];
            inbox.need(HEAD).await?;
            inbox.peek(&mut head);
            let msize = match self.session.msize.get() {
                0 => self.session.options.msize,
                agreed => agreed,
            };
            let msize = match self.session.has_attached.get() {
                true => msize,
                false => msize.min(FIRST_MAX),
            };
            let Ok((size, kind, tag)) = ninep::head(&head, msize) else {
                // Nothing that follows it can be read.
                return Ok(());
            };
            self.wait_for_capacity(size as usize).await;
            inbox.need(size as usize).await?;
            inbox.is_busy = size as usize > PAGE_BYTES;
            // A Twrite's data stay in their receive buffers.
            let front = if kind == 118 { WRITE_HEAD.min(size as usize) } else { size as usize };
            let mut message = vec![0; front];
            inbox.peek(&mut message);
            inbox.take(front);
            let data = inbox.take(size as usize - front);
            self.begin(message, size, tag, data);
            (begun, bytes) = (begun + 1, bytes + size as usize);
        }
    }

    async fn wait_for_capacity(&self, more: usize) {
        loop {
            let seen = self.progress.count();
            let n = self.inflight.borrow().len();
            let may_begin = n == 0 || (n < REQUESTS_MAX && self.bytes.get() + more <= BYTES_MAX);
            if may_begin && self.unsent.has_space() {
                return;
            }
            self.progress.after(seen).await;
        }
    }

    fn begin(self: &Rc<Self>, message: Vec<u8>, size: u32, tag: u16, data: Vec<Seg>) {
        let t = match T::decode(&message, size) {
            Ok(t) => t,
            Err(e) => return self.refuse(tag, &Refusal::unreadable(&e)),
        };
        self.trace(tag, true, &t);
        match t {
            T::Flush { oldtag } => return self.flush(tag, oldtag),
            // A new session begins: nothing of the old one is answered.
            T::Version { .. } => self.abort_all(),
            _ => {}
        }
        if self.inflight.borrow().contains_key(&tag) {
            return self.refuse(tag, &Refusal::TagInUse);
        }
        let is_read = matches!(t, T::Read { .. } | T::Stat { .. });
        let bytes = size as usize;
        self.bytes.set(self.bytes.get() + bytes);
        let doing = InflightRequest { task: None, flushed_by: Vec::new(), is_read, bytes };
        self.inflight.borrow_mut().insert(tag, doing);
        let line = self.clone();
        let task = self.session.server.reactor.spawn("9p", async move {
            let age = line.session.generation.get();
            let mut reserved = None;
            let done = match T::decode(&message, size) {
                Ok(t) => {
                    if let T::Read { count, .. } = t {
                        let bytes = count.min(line.session.iounit()) as usize;
                        reserved = Some(line.unsent.reserve(bytes).await);
                    }
                    let is_version = matches!(t, T::Version { .. });
                    let done = line.session.handle(t, &data).await;
                    if line.session.generation.get() != age && !is_version {
                        return;
                    }
                    done
                }
                Err(e) => Err(Refusal::unreadable(&e)),
            };
            drop(data);
            line.end(tag, done);
            drop(reserved);
        });
        if let Some(doing) = self.inflight.borrow_mut().get_mut(&tag) {
            doing.task = Some(task);
        }
    }

    fn end(&self, tag: u16, done: Result<Reply, Refusal>) {
        let ended = self.inflight.borrow_mut().remove(&tag);
        self.session.requests.set(self.session.requests.get() + 1);
        match done {
            Ok(reply) => self.reply(tag, reply),
            Err(why) => self.refuse(tag, &why),
        }
        if let Some(ended) = ended {
            self.bytes.set(self.bytes.get().saturating_sub(ended.bytes));
            ended.flushed_by.into_iter().for_each(|flush| self.send(flush, &R::Flush));
        }
        self.progress.notify_all();
    }

    /// P2
    fn flush(&self, tag: u16, old: u16) {
        let mut doing = self.inflight.borrow_mut();
        match doing.get_mut(&old) {
            Some(d) if d.is_read => {
                let d = doing.remove(&old);
                drop(doing);
                if let Some(d) = d {
                    if let Some(task) = d.task {
                        task.abort();
                    }
                    self.bytes.set(self.bytes.get().saturating_sub(d.bytes));
                    d.flushed_by.into_iter().for_each(|flush| self.send(flush, &R::Flush));
                }
            }
            Some(d) => return d.flushed_by.push(tag),
            None => drop(doing),
        }
        self.send(tag, &R::Flush);
        self.progress.notify_all();
    }

    fn refuse(&self, tag: u16, why: &Refusal) {
        let text = why.text(self.session.options.flavour);
        let mut end = text.len().min(ninep::ERROR_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.send(tag, &R::Error { ename: &text[..end] });
        self.progress.notify_all();
    }

    fn reply(&self, tag: u16, reply: Reply) {
        match reply {
            Reply::R(r) => self.send(tag, &r),
            Reply::Version(msize, version) => self.send(tag, &R::Version { msize, version }),
            Reply::Entries(data) => self.send(tag, &R::Read { data: &data }),
            Reply::Data(data) => {
                let n = data.len;
                self.trace(tag, false, &format_args!("Rread count {n}"));
                self.put(|out| ninep::read_head(tag, n as u32, out));
                let (segs, held) = data.into_parts();
                let mut tx = self.tx.borrow_mut();
                segs.into_iter().for_each(|seg| tx.put_segment(seg));
                self.unsent.queue(n, held);
            }
            Reply::Stat(stat) => {
                if let Ok((stat, _)) = ninep::Stat::decode(&stat) {
                    self.send(tag, &R::Stat { stat });
                }
            }
        }
    }

    fn send(&self, tag: u16, r: &R<'_>) {
        self.trace(tag, false, r);
        self.put(|out| r.encode(tag, out));
    }

    fn trace(&self, tag: u16, is_request: bool, what: &dyn Display) {
        if !self.session.is_traced.get() {
            return;
        }
        let server = &self.session.server;
        let (at_ns, connection) = (server.reactor.now(), self.session.number);
        let text = what.to_string();
        server.trace.keep(Traced { at_ns, connection, tag, is_request, text });
    }

    /// Adds bytes to the next send. Without memory the connection ends: a reply cannot be left out.
    fn put(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::with_capacity(64);
        encode(&mut bytes);
        self.unsent.queue(bytes.len(), None);
        let mut tx = self.tx.borrow_mut();
        tx.put(&bytes);
        if tx.is_broken() {
            self.session.hang_up();
        }
    }
}

/// Bytes that arrived and were not taken yet.
struct RxBuffer {
    conn: Rc<Conn>,
    incoming: Incoming,
    segs: VecDeque<Seg>,
    len: usize,
    /// A buffer that is not full, and how much of it is used.
    tail: Option<(Buf, usize)>,
    /// The last message was large: the next one may be.
    is_busy: bool,
}

impl RxBuffer {
    fn new(conn: Rc<Conn>, incoming: Incoming) -> RxBuffer {
        RxBuffer { conn, incoming, segs: VecDeque::new(), len: 0, tail: None, is_busy: false }
    }

    async fn need(&mut self, n: usize) -> Result<(), CommonReason> {
        while self.len < n {
            self.rest().await?;
            let into = self.space(n - self.len).await?;
            let received = self.incoming.receive(&into).await;
            if self.incoming.tls().is_some() {
                // TLS may have a message of its own to send.
                self.conn.progress.notify_all();
            }
            let got = received?;
            if got == 0 {
                return Err(CommonReason::Truncated);
            }
            if let Some((_, used)) = &mut self.tail {
                *used += got;
            }
            self.segs.extend(into.slice(0, got));
            self.len += got;
        }
        Ok(())
    }

    /// Before bytes are received. Between two messages, a client that is silent holds no large
    /// buffer, and one that has not sent anything yet holds none. A TLS client that is silent
    /// between two records holds no memory for encrypted bytes.
    async fn rest(&mut self) -> Result<(), CommonReason> {
        let bytes = self.tail.as_ref().map_or(0, |(buf, _)| buf.capacity());
        if self.len == 0 && bytes > PAGE_BYTES {
            let reactor = &self.conn.session.server.reactor;
            match reactor.within(KEEP_NS, self.incoming.readable()).await {
                Some(readable) => return readable,
                None => self.tail = None,
            }
        } else if bytes > 0 && self.incoming.tls().is_none() {
            return Ok(());
        }
        self.incoming.readable().await
    }

    /// The rest of the buffer, or a new one for the `missing` bytes of a message; waits while there
    /// is none.
    async fn space(&mut self, missing: usize) -> Result<Seg, CommonReason> {
        let is_full = |(buf, used): &(Buf, usize)| buf.capacity() - used < buf.capacity() / 16;
        if self.tail.as_ref().is_none_or(is_full) {
            let bytes = match self.is_busy || missing > PAGE_BYTES {
                true => RECV_BYTES,
                false => PAGE_BYTES,
            };
            let pool = &self.conn.session.server.pool;
            self.tail = Some((self.conn.stream.buffer(pool, bytes).await, 0));
        }
        let Some((buf, used)) = &self.tail else { return Err(CommonReason::NoMemory) };
        buf.seg(*used, buf.capacity() - used).ok_or(CommonReason::NoMemory)
    }

    /// Copies the first bytes.
    fn peek(&self, to: &mut [u8]) {
        let mut at = 0;
        for seg in &self.segs {
            let n = seg.len().min(to.len() - at);
            at += seg.copy_to(0, &mut to[at..at + n]);
            if at == to.len() {
                break;
            }
        }
    }

    /// Takes the first bytes, as they are.
    fn take(&mut self, n: usize) -> Vec<Seg> {
        let (mut out, mut left) = (Vec::new(), n);
        while left > 0 {
            let Some(front) = self.segs.front_mut() else { break };
            let some = front.len().min(left);
            out.extend(front.slice(0, some));
            match front.slice(some, front.len() - some) {
                Some(rest) if !rest.is_empty() => *front = rest,
                _ => drop(self.segs.pop_front()),
            }
            left -= some;
        }
        self.len -= n - left;
        out
    }
}
