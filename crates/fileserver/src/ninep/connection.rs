//! Bytes to messages and back.
//!
//! ```text
//!   reader: recv -> messages -> a task each --+
//!                                             +--> replies -> one send for all that are there
//! ```
//! Requests of a client run concurrently; a slow one does not delay the others. Reading stops while
//! too much is under way or unsent ([`super::unsent`]), so a client's part of memory is bounded.
//! A connection begins a bounded part of its requests in a turn of the core. So the wait of a
//! client depends on the number of others, but not on the number of requests that each one sends.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use bio::{Buf, PAGE_BYTES, Seg};
use reactor::{Stream, TaskHandle};
use wire::ninep::{self, HEAD, R, T, WRITE_HEAD};

use super::refusal::Refusal;
use super::session::{ClientSession, Reply};
use super::trace::Traced;
use super::unsent::{CacheHold, UnsentReplies};
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
/// Replies shorter than this are put together.
const SMALL: usize = 4096;

/// A request under way.
struct InflightRequest {
    task: Option<TaskHandle>,
    /// Tags of the flushes that wait for its reply.
    flushed_by: Vec<u16>,
    /// It changes nothing: a flush may break it off.
    is_read: bool,
    bytes: usize,
}

/// Replies that are to be sent.
#[derive(Default)]
struct TxQueue {
    segs: Vec<Seg>,
    bytes: usize,
    held: Vec<CacheHold>,
}

struct Conn {
    session: Rc<ClientSession>,
    stream: Stream,
    inflight: RefCell<HashMap<u16, InflightRequest>>,
    bytes: Cell<usize>,
    tx_queue: RefCell<TxQueue>,
    unsent: Rc<UnsentReplies>,
    chunk: RefCell<Option<(Buf, usize)>>,
    /// Something is to be sent, or a request has ended.
    progress: Notify,
    closing: Cell<bool>,
}

/// Serves a connection until it ends.
pub(super) async fn run(session: Rc<ClientSession>, stream: Stream) {
    // Small replies are not to wait for each other; a socket that cannot is used as it is.
    let _ = stream.nodelay(true);
    let line = Rc::new(Conn {
        session,
        stream,
        inflight: RefCell::default(),
        bytes: Cell::new(0),
        tx_queue: RefCell::default(),
        unsent: Rc::default(),
        chunk: RefCell::default(),
        progress: Notify::default(),
        closing: Cell::new(false),
    });
    let ends = line.clone();
    *line.session.close_conn.borrow_mut() = Some(Box::new(move || ends.stream.close()));
    let writer = line.clone();
    line.session.server.reactor.spawn("9p-send", async move { writer.send_all().await });
    let late = Rc::downgrade(&line);
    let (reactor, login_ns) = (line.session.server.reactor.clone(), line.login_ns());
    let deadline = line.session.server.reactor.spawn("9p-login", async move {
        reactor.sleep(login_ns).await;
        if let Some(line) = late.upgrade() {
            line.expire();
        }
    });
    // The cause of the end is ignored: there is no client left to report it to.
    let _ = line.read_all().await;
    deadline.abort();
    line.session.close_conn.take();
    line.closing.set(true);
    line.abort_all();
    line.progress.notify_all();
    line.stream.close();
}

impl Conn {
    fn login_ns(&self) -> u64 {
        self.session.server.login_ns.get()
    }

    /// The time to attach is over.
    fn expire(&self) {
        if !self.session.has_attached.get() {
            let seconds = self.login_ns() / 1_000_000_000;
            let why = format_args!("closed, no attach within {seconds} s (login_timeout)");
            self.session.server.journal.log_refused(&self.session.peer, why);
            self.stream.close();
        }
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

    async fn send_all(self: Rc<Self>) {
        loop {
            let seen = self.progress.count();
            if self.tx_queue.borrow().segs.is_empty() {
                if self.closing.get() {
                    return;
                }
                self.progress.after(seen).await;
                continue;
            }
            let mut batch = self.tx_queue.take();
            // The rest of a chunk may be written while its front is being sent.
            if self.stream.send(&mut batch.segs).await.is_err() {
                self.closing.set(true);
                self.stream.close();
                return;
            }
            self.unsent.release(batch.bytes);
            self.progress.notify_all();
        }
    }

    async fn read_all(self: &Rc<Self>) -> io::Result<()> {
        let mut inbox = RxBuffer::new(self.clone());
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
                return Err(io::ErrorKind::InvalidData.into());
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
                let mut out = self.tx_queue.borrow_mut();
                out.segs.extend(segs);
                out.bytes += n;
                out.held.extend(held);
                self.unsent.add(n);
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
        self.unsent.add(bytes.len());
        self.tx_queue.borrow_mut().bytes += bytes.len();
        let pool = &self.session.server.pool;
        let mut chunk = self.chunk.borrow_mut();
        let mut left = &bytes[..];
        while !left.is_empty() {
            if chunk.as_ref().is_none_or(|(buf, used)| *used == buf.capacity()) {
                *chunk = pool.get(left.len().max(SMALL)).map(|buf| (buf, 0));
            }
            let Some((buf, used)) = &mut *chunk else { return self.stream.close() };
            let n = left.len().min(buf.capacity() - *used);
            let Some(seg) = buf.seg(*used, n) else { return self.stream.close() };
            seg.copy_from(0, &left[..n]);
            *used += n;
            left = &left[n..];
            self.tx_queue.borrow_mut().segs.push(seg);
        }
    }
}

/// Bytes that arrived and were not taken yet.
struct RxBuffer {
    conn: Rc<Conn>,
    segs: VecDeque<Seg>,
    len: usize,
    /// A buffer that is not full, and how much of it is used.
    tail: Option<(Buf, usize)>,
    /// The last message was large: the next one may be.
    is_busy: bool,
}

impl RxBuffer {
    fn new(line: Rc<Conn>) -> RxBuffer {
        RxBuffer { conn: line, segs: VecDeque::new(), len: 0, tail: None, is_busy: false }
    }

    async fn need(&mut self, n: usize) -> io::Result<()> {
        while self.len < n {
            if self.len == 0 {
                self.rest().await?;
            }
            let into = self.space(n - self.len).await?;
            let got = self.conn.stream.recv(&into).await?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((_, used)) = &mut self.tail {
                *used += got;
            }
            self.segs.extend(into.slice(0, got));
            self.len += got;
        }
        Ok(())
    }

    /// Between two messages. A client that is silent holds no large buffer, and one that has not
    /// sent anything yet holds none.
    async fn rest(&mut self) -> io::Result<()> {
        let stream = &self.conn.stream;
        match &self.tail {
            Some((buf, _)) if buf.capacity() <= PAGE_BYTES => Ok(()),
            Some(_) => {
                let reactor = &self.conn.session.server.reactor;
                match reactor.within(KEEP_NS, stream.readable()).await {
                    Some(readable) => readable,
                    None => {
                        self.tail = None;
                        stream.readable().await
                    }
                }
            }
            None => stream.readable().await,
        }
    }

    /// The rest of the buffer, or a new one for the `missing` bytes of a message; waits while there
    /// is none.
    async fn space(&mut self, missing: usize) -> io::Result<Seg> {
        let is_full = |(buf, used): &(Buf, usize)| buf.capacity() - used < buf.capacity() / 16;
        if self.tail.as_ref().is_none_or(is_full) {
            let server = &self.conn.session.server;
            let bytes = match self.is_busy || missing > PAGE_BYTES {
                true => RECV_BYTES,
                false => PAGE_BYTES,
            };
            let buf = poll_fn(|cx| match server.pool.get(bytes) {
                Some(buf) => Poll::Ready(buf),
                None => {
                    server.pool.wake_on_free(cx.waker());
                    server.reactor.flush_lazy_sends();
                    Poll::Pending
                }
            });
            self.tail = Some((buf.await, 0));
        }
        let Some((buf, used)) = &self.tail else { return Err(io::ErrorKind::OutOfMemory.into()) };
        buf.seg(*used, buf.capacity() - used).ok_or(io::ErrorKind::OutOfMemory.into())
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
