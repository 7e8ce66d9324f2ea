//! Reading and writing on one connection, as one task: what the reader made ready in a turn leaves
//! in one send of the same turn, without another turn of the reactor in between.
//!
//! Invariants
//!  K1  At most one receive and one send are under way.
//!  K2  Whoever changes what the reader or the writer waits for calls `kick`.
//!  K3  The reader stops while more than [`BACKLOG_MAX`] bytes wait to be sent.
//!  K4  A send is lazy only while nothing waits for its end; whoever begins to wait for it heeds.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bio::{PAGE_BYTES, Pool, Seg};
use geom::Core;
use reactor::Stream;

use super::cause::Cause;
use super::inbox::Signals;
use crate::outbox::Outbox;

/// Bytes waiting to be sent on one connection above which nothing more is read from it.
pub const BACKLOG_MAX: usize = 1 << 20;

/// Longest send of which the end need not be heard at once: its memory is held until the next
/// thing that happens. Less than [`BACKLOG_MAX`], or the reader would stop for it.
const LAZY_MAX: usize = 256 * 1024;

/// A send that moved nothing for this long ends the connection, ns.
pub const SEND_PATIENCE_NS: u64 = 15_000_000_000;

/// The same while buffers are scarce and others wait for those that this connection holds, ns.
const SCARCE_PATIENCE_NS: u64 = 2_000_000_000;

/// How long the last words of a connection may take, ns.
pub(crate) const FLUSH_NS: u64 = 3_000_000_000;

/// Bytes read and dropped after the last word, so that it is not lost to a reset.
const LINGER_BYTES: usize = 256 * 1024;

/// Why a connection ends, in the words of its protocol.
pub(crate) trait Ending: Clone + Display + From<Cause> + 'static {
    /// What is queued goes out first.
    fn flushes(&self) -> bool;
    /// Somebody should look at it.
    fn is_trouble(&self) -> bool;
}

/// What is to be sent, as the stream carries it.
pub(crate) trait Words<E> {
    /// There is something.
    fn wait(&self) -> bool;
    /// Hands out what goes next; answers its bytes and those that are ready behind it.
    fn take(&mut self, batch: &mut Vec<Seg>) -> Result<(usize, usize), E>;
    /// All that was handed out is sent.
    fn rest(&mut self);
}

/// What is queued goes as it is.
pub(crate) struct Plain<'a>(pub &'a RefCell<Outbox>);

impl<E: From<Cause>> Words<E> for Plain<'_> {
    fn wait(&self) -> bool {
        self.0.borrow().bytes() > 0
    }

    fn take(&mut self, batch: &mut Vec<Seg>) -> Result<(usize, usize), E> {
        let mut out = self.0.borrow_mut();
        if out.is_broken() {
            return Err(Cause::NoMemory.into());
        }
        Ok((out.take(batch), 0))
    }

    fn rest(&mut self) {
        self.0.borrow_mut().rest();
    }
}

/// The two ways of one connection.
pub(crate) struct Pump<E> {
    pub stream: Stream,
    pub out: RefCell<Outbox>,
    pub signals: Rc<Signals>,
    core: Rc<Core>,
    memory: Pool,
    sending: Cell<usize>,
    /// The send under way is lazy (K4).
    lazy: Cell<bool>,
    send_began: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    polling: Cell<bool>,
    ending: RefCell<Option<E>>,
    ending_since: Cell<Option<u64>>,
}

impl<E: Ending> Pump<E> {
    /// Of a connection that has just been accepted.
    pub fn new(core: &Rc<Core>, memory: &Pool, stream: Stream) -> Pump<E> {
        Pump {
            stream,
            out: RefCell::new(Outbox::new(memory.clone())),
            signals: Rc::default(),
            core: core.clone(),
            memory: memory.clone(),
            sending: Cell::new(0),
            lazy: Cell::new(false),
            send_began: Cell::new(0),
            waker: RefCell::default(),
            polling: Cell::new(false),
            ending: RefCell::default(),
            ending_since: Cell::new(None),
        }
    }

    /// Something that the task waits for has changed (K2).
    #[inline]
    pub fn kick(&self) {
        self.signals.dirty.set(true);
        if !self.polling.get()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// `waker` is woken when something changes (K2).
    pub fn watch(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        if !kept.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    /// Ends the connection; the first reason counts.
    pub fn end(&self, ending: E) {
        let mut mine = self.ending.borrow_mut();
        if mine.is_none() {
            *mine = Some(ending);
            drop(mine);
            self.kick();
        }
    }

    /// It was told to end.
    pub fn is_ending(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// Bytes that wait or are being sent.
    pub fn backlog(&self) -> usize {
        self.out.borrow().bytes() + self.sending.get()
    }

    /// Waits until there is room for more answers (K3).
    pub async fn room(&self) {
        self.until(BACKLOG_MAX).await;
    }

    /// Waits until all that was queued is sent.
    pub async fn flushed(&self) {
        self.kick();
        self.until(0).await;
    }

    async fn until(&self, bytes: usize) {
        poll_fn(|_| match self.backlog() > bytes {
            true => {
                // K4
                self.core.reactor().heed();
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Once a watch period: peers that do not read. Answers whether something arrived since the
    /// last time; None when the connection is ending.
    pub fn look(&self, now: u64, scarce: bool) -> Option<bool> {
        let heard = self.signals.look();
        let after = |since: u64, ns: u64| now.saturating_sub(since) > ns;
        if let Some(since) = self.ending_since.get() {
            if after(since, FLUSH_NS) {
                self.stream.close();
            }
            return None;
        }
        let patience = match scarce && self.backlog() > BACKLOG_MAX {
            true => SCARCE_PATIENCE_NS,
            false => SEND_PATIENCE_NS,
        };
        if self.sending.get() > 0 && after(self.send_began.get(), patience) {
            self.end(Cause::NotReading.into());
        }
        (!self.is_ending()).then_some(heard)
    }

    /// True when nothing goes on once the bytes are sent: the rest of the answers, the reader (K3),
    /// the end of the connection, whoever waits for memory (K4).
    fn is_at_ease(&self, taken: usize, behind: usize, words: &impl Words<E>) -> bool {
        taken <= LAZY_MAX
            && behind == 0
            && !words.wait()
            && !self.is_ending()
            && !self.core.pool().is_awaited()
    }

    async fn write(&self, mut words: impl Words<E>) -> E {
        let mut batch: Vec<Seg> = Vec::new();
        loop {
            poll_fn(|_| match words.wait() {
                false => Poll::Pending,
                true => Poll::Ready(()),
            })
            .await;
            let (taken, behind) = match words.take(&mut batch) {
                Ok(taken) => taken,
                Err(ending) => return ending,
            };
            self.sending.set(taken + behind);
            self.send_began.set(self.core.now());
            self.lazy.set(self.is_at_ease(taken, behind, &words));
            let sent = match self.lazy.get() {
                true => self.stream.send_lazily(&mut batch).await,
                false => self.stream.send(&mut batch).await,
            };
            self.lazy.set(false);
            self.sending.set(behind);
            self.signals.dirty.set(true);
            if let Err(e) = sent {
                return Cause::lost(&e).into();
            }
            words.rest();
        }
    }

    /// Runs the reader and the writer until the connection ends; `between` the two whatever else
    /// the connection has to do.
    pub async fn drive(
        &self,
        reader: impl Future<Output = E>,
        words: impl Words<E>,
        between: impl Fn(),
    ) -> E {
        let (mut reader, mut writer) = (pin!(reader), pin!(self.write(words)));
        let mut ended: Option<E> = None;
        poll_fn(|cx: &mut Context<'_>| {
            self.watch(cx.waker());
            self.polling.set(true);
            let end = loop {
                self.signals.dirty.set(false);
                if ended.is_none() {
                    ended = self.ending.borrow().clone();
                }
                if ended.is_none()
                    && let Poll::Ready(e) = reader.as_mut().poll(cx)
                {
                    ended = Some(e);
                }
                between();
                if let Poll::Ready(e) = writer.as_mut().poll(cx) {
                    break Some(ended.take().unwrap_or(e));
                }
                if let Some(e) = &ended {
                    if !e.flushes() || self.backlog() == 0 {
                        break Some(e.clone());
                    }
                    if self.ending_since.get().is_none() {
                        self.ending_since.set(Some(self.core.now()));
                    }
                }
                if !self.signals.dirty.get() {
                    break None;
                }
            };
            self.polling.set(false);
            match end {
                Some(e) => Poll::Ready(e),
                None => {
                    let waits = ended.is_some() || self.out.borrow().bytes() > 0;
                    if waits && self.lazy.get() {
                        // K4
                        self.core.reactor().heed();
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Says no more, and reads and drops until the peer closes, so that our last word reaches it.
    pub async fn linger(&self) {
        if self.stream.shutdown().is_err() {
            return;
        }
        let Some(page) = self.memory.get(PAGE_BYTES) else { return };
        let Some(room) = page.seg(0, PAGE_BYTES) else { return };
        let mut left = LINGER_BYTES;
        while left > 0 {
            match self.stream.recv(&room).await {
                Ok(n) if n > 0 => left = left.saturating_sub(n),
                _ => return,
            }
        }
    }
}
