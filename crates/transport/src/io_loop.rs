//! Read and write loop of one connection, as one task. Bytes that the reader queued in a turn leave
//! in one send of the same turn, without another turn of the reactor in between.
//!
//! Invariants
//!  K1  At most one receive and one send are in progress.
//!  K2  A change that the reader or the writer waits for is followed by `wake`.
//!  K3  The reader stops while more than [`BACKLOG_MAX`] bytes are queued.
//!  K4  A send is lazy only while nothing waits for its end; a wait for it begins with `heed`.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bio::{PAGE_BYTES, Pool, Seg};
use reactor::{Reactor, Stream};

use crate::reason::{CommonReason, Reason};
use crate::receive_buffer::{ReceiveBuffer, Signals};
use crate::stream::{Outgoing, send_end};
use crate::tls::Tls;
use crate::transmit_queue::TransmitQueue;

/// Queued bytes of one connection above which nothing more is read from it.
pub const BACKLOG_MAX: usize = 1 << 20;

/// Longest lazy send: its memory is held until the next event of the core. Less than
/// [`BACKLOG_MAX`], or the reader would stop for it.
const LAZY_MAX: usize = 256 * 1024;

/// A send that moved nothing for this long ends the connection, ns.
pub const SEND_TIMEOUT_NS: u64 = 15_000_000_000;

/// The same while buffers are scarce and this connection holds many, ns.
const MEMORY_SHORT_TIMEOUT_NS: u64 = 2_000_000_000;

/// Longest flush of a connection that is being closed, ns.
pub const FLUSH_NS: u64 = 3_000_000_000;

/// Bytes read and dropped after the last send, so that it is not lost to a reset.
const LINGER_BYTES: usize = 256 * 1024;

/// See the module.
pub struct IoLoop<R> {
    /// The socket.
    pub(crate) stream: Stream,
    /// The transmit queue.
    pub tx: RefCell<TransmitQueue>,
    /// Signals between reader and writer.
    pub signals: Rc<Signals>,
    tls: RefCell<Option<Rc<Tls>>>,
    reactor: Reactor,
    memory: Pool,
    data: Pool,
    sending: Cell<usize>,
    /// The send in progress is lazy (K4).
    lazy: Cell<bool>,
    send_began: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    polling: Cell<bool>,
    reason: RefCell<Option<R>>,
    closing_since: Cell<Option<u64>>,
}

impl<R: Reason> IoLoop<R> {
    /// For a connection that was just accepted. `memory` is for its queues, `data` the pool of
    /// payloads.
    pub(crate) fn new(reactor: &Reactor, memory: &Pool, data: &Pool, stream: Stream) -> IoLoop<R> {
        IoLoop {
            stream,
            tx: RefCell::new(TransmitQueue::new(memory.clone())),
            signals: Rc::default(),
            tls: RefCell::default(),
            reactor: reactor.clone(),
            memory: memory.clone(),
            data: data.clone(),
            sending: Cell::new(0),
            lazy: Cell::new(false),
            send_began: Cell::new(0),
            waker: RefCell::default(),
            polling: Cell::new(false),
            reason: RefCell::default(),
            closing_since: Cell::new(None),
        }
    }

    /// Polls the task again: something that it waits for has changed (K2).
    #[inline]
    pub fn wake(&self) {
        self.signals.repoll.set(true);
        if !self.polling.get()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Makes `waker` the one that [`IoLoop::wake`] wakes.
    pub fn set_waker(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        if !kept.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    /// Closes the connection; the first reason counts.
    pub fn close(&self, reason: R) {
        let mut mine = self.reason.borrow_mut();
        if mine.is_none() {
            *mine = Some(reason);
            drop(mine);
            self.wake();
        }
    }

    /// It has a close reason.
    pub fn is_closing(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// Bytes that are queued or being sent.
    pub fn backlog(&self) -> usize {
        self.tx.borrow().bytes() + self.sending.get()
    }

    /// True when more answers may be queued (K3).
    #[inline]
    pub fn has_space(&self) -> bool {
        self.backlog() <= BACKLOG_MAX
    }

    /// Waits until more answers may be queued (K3).
    pub async fn wait_for_space(&self) {
        self.wait_backlog_below(BACKLOG_MAX).await;
    }

    /// Waits until everything that was queued is sent.
    pub async fn flushed(&self) {
        self.wake();
        self.wait_backlog_below(0).await;
    }

    async fn wait_backlog_below(&self, bytes: usize) {
        poll_fn(|_| match self.backlog() > bytes {
            true => {
                // K4
                self.reactor.flush_lazy_sends();
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Once a watch period: closes the connection of a peer that does not read. Returns whether
    /// something was received since the last tick; None when the connection is being closed.
    pub(crate) fn tick(&self, now: u64, scarce: bool) -> Option<bool> {
        let received = self.signals.tick();
        let after = |since: u64, ns: u64| now.saturating_sub(since) > ns;
        if let Some(since) = self.closing_since.get() {
            if after(since, FLUSH_NS) {
                self.stream.close();
            }
            return None;
        }
        let patience = match scarce && self.backlog() > BACKLOG_MAX {
            true => MEMORY_SHORT_TIMEOUT_NS,
            false => SEND_TIMEOUT_NS,
        };
        if self.sending.get() > 0 && after(self.send_began.get(), patience) {
            self.close(CommonReason::NotReading.into());
        }
        (!self.is_closing()).then_some(received)
    }

    /// True when nothing waits for the end of a send: more queued bytes, the reader (K3), the close
    /// of the connection, requests without memory (K4).
    fn may_be_lazy(&self, taken: usize, behind: usize, outgoing: &Outgoing<'_>) -> bool {
        taken <= LAZY_MAX
            && behind == 0
            && !outgoing.is_waiting()
            && !self.is_closing()
            && !self.data.is_awaited()
    }

    async fn write(&self) -> CommonReason {
        let mut outgoing = Outgoing::new(&self.tx, &self.tls, &self.memory);
        let mut batch: Vec<Seg> = Vec::new();
        loop {
            poll_fn(|_| match outgoing.is_waiting() {
                false => Poll::Pending,
                true => Poll::Ready(()),
            })
            .await;
            let (taken, behind) = match outgoing.take(&mut batch) {
                Ok(taken) => taken,
                Err(reason) => return reason,
            };
            self.sending.set(taken + behind);
            self.send_began.set(self.reactor.now());
            self.lazy.set(self.may_be_lazy(taken, behind, &outgoing));
            let sent = match self.lazy.get() {
                true => self.stream.send_lazily(&mut batch).await,
                false => self.stream.send(&mut batch).await,
            };
            self.lazy.set(false);
            self.sending.set(behind);
            self.signals.repoll.set(true);
            if let Err(e) = sent {
                return CommonReason::lost(&e);
            }
            outgoing.release();
        }
    }

    /// Runs the reader and the writer until the connection is to be closed, and `between` them each
    /// time.
    pub(crate) async fn run(&self, reader: impl Future<Output = R>, between: impl Fn()) -> R {
        let (mut reader, mut writer) = (pin!(reader), pin!(self.write()));
        let mut ended: Option<R> = None;
        poll_fn(|cx: &mut Context<'_>| {
            self.set_waker(cx.waker());
            self.polling.set(true);
            let end = loop {
                self.signals.repoll.set(false);
                if ended.is_none() {
                    ended = self.reason.borrow().clone();
                }
                if ended.is_none()
                    && let Poll::Ready(e) = reader.as_mut().poll(cx)
                {
                    ended = Some(e);
                }
                between();
                if let Poll::Ready(e) = writer.as_mut().poll(cx) {
                    break Some(ended.take().unwrap_or_else(|| e.into()));
                }
                if let Some(e) = &ended {
                    if !e.flushes() || self.backlog() == 0 {
                        break Some(e.clone());
                    }
                    if self.closing_since.get().is_none() {
                        self.closing_since.set(Some(self.reactor.now()));
                    }
                }
                if !self.signals.repoll.get() {
                    break None;
                }
            };
            self.polling.set(false);
            match end {
                Some(e) => Poll::Ready(e),
                None => {
                    let waits = ended.is_some() || self.tx.borrow().bytes() > 0;
                    if waits && self.lazy.get() {
                        // K4
                        self.reactor.flush_lazy_sends();
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The receive buffer of the reader.
    pub(crate) fn receive_buffer(&self) -> ReceiveBuffer {
        ReceiveBuffer::new(self.stream.clone(), self.memory.clone(), self.signals.clone())
    }

    /// Begins TLS, and waits until keys are agreed on. Bytes that are sent from now on are
    /// encrypted.
    pub async fn secure(&self, tls: Rc<Tls>, rx: &mut ReceiveBuffer) -> Result<(), CommonReason> {
        *self.tls.borrow_mut() = Some(tls.clone());
        rx.secure(tls).await
    }

    /// TLS, once it has begun.
    pub fn tls(&self) -> Option<Rc<Tls>> {
        self.tls.borrow().clone()
    }

    /// Sends close_notify of TLS and the end of the stream, then reads and drops until the peer
    /// closes. The last bytes are not lost to a reset.
    pub(crate) async fn drain(&self) {
        if let Some(tls) = self.tls()
            && send_end(&self.stream, &tls, &self.memory).await.is_err()
        {
            return;
        }
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
