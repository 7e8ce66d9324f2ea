//! Messages to a reactor from other threads.
//!
//! Invariant M1: a message that `send` accepted is received, or dropped with the mailbox.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bio::sync::Mutex;

use crate::reactor::Reactor;
use crate::wakeup::Remote;

/// Messages that wait in one mailbox; a further one is handed back to its sender as `Full`.
pub const MAILBOX_MESSAGES_MAX: usize = 64 * 1024;

/// Why a message was not taken; it returns.
#[derive(Debug, PartialEq, Eq)]
pub enum SendError<M> {
    /// [`MAILBOX_MESSAGES_MAX`] are waiting: try later.
    Full(M),
    /// The mailbox was dropped.
    Closed(M),
}

struct MailboxQueue<M> {
    messages: VecDeque<M>,
    closed: bool,
    mailers: usize,
    waiter: Option<Waker>,
}

struct MailboxShared<M> {
    queue: Mutex<MailboxQueue<M>>,
    remote: Arc<Remote>,
}

impl<M> MailboxShared<M> {
    fn wake(&self, waiter: Option<Waker>) {
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        self.remote.notify();
    }
}

/// The sending side: for any thread. Clones send to the same mailbox.
pub struct Mailer<M>(Arc<MailboxShared<M>>);

impl<M: Send + 'static> Mailer<M> {
    /// Puts a message in the mailbox and wakes its reactor if it sleeps. Never blocks.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        let mut line = self.0.queue.lock();
        if line.closed {
            return Err(SendError::Closed(message));
        }
        if line.messages.len() >= MAILBOX_MESSAGES_MAX {
            return Err(SendError::Full(message));
        }
        line.messages.push_back(message);
        let waiter = line.waiter.take();
        drop(line);
        self.0.wake(waiter);
        Ok(())
    }

    /// True when the mailbox was dropped.
    pub fn is_closed(&self) -> bool {
        self.0.queue.lock().closed
    }
}

impl<M> Clone for Mailer<M> {
    fn clone(&self) -> Self {
        self.0.queue.lock().mailers += 1;
        Mailer(self.0.clone())
    }
}

impl<M> Drop for Mailer<M> {
    fn drop(&mut self) {
        let mut line = self.0.queue.lock();
        line.mailers -= 1;
        if line.mailers == 0 {
            let waiter = line.waiter.take();
            drop(line);
            self.0.wake(waiter);
        }
    }
}

/// The receiving side: on the reactor's thread.
pub struct Mailbox<M> {
    shared: Arc<MailboxShared<M>>,
    not_send: PhantomData<Rc<()>>,
}

impl<M: Send + 'static> Mailbox<M> {
    /// The oldest message, if there is one.
    pub fn try_recv(&self) -> Option<M> {
        self.shared.queue.lock().messages.pop_front()
    }

    /// The oldest message, waiting for one; None when there is none and every mailer was dropped.
    pub async fn recv(&self) -> Option<M> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<M>> {
        let mut line = self.shared.queue.lock();
        match line.messages.pop_front() {
            Some(message) => Poll::Ready(Some(message)),
            None if line.mailers == 0 => Poll::Ready(None),
            None => {
                line.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Messages waiting.
    pub fn len(&self) -> usize {
        self.shared.queue.lock().messages.len()
    }

    /// True when no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<M> Drop for Mailbox<M> {
    fn drop(&mut self) {
        let mut line = self.shared.queue.lock();
        line.closed = true;
        let rest = std::mem::take(&mut line.messages);
        drop(line);
        drop(rest); // messages may hold mailers of their own
    }
}

impl Reactor {
    /// A mailbox of this reactor and the means to send to it from any thread.
    pub fn mailbox<M: Send + 'static>(&self) -> (Mailer<M>, Mailbox<M>) {
        let shared = Arc::new(MailboxShared {
            queue: Mutex::new(MailboxQueue {
                messages: VecDeque::new(),
                closed: false,
                mailers: 1,
                waiter: None,
            }),
            remote: self.inner.remote.clone(),
        });
        let mailbox = Mailbox { shared: shared.clone(), not_send: PhantomData };
        (Mailer(shared), mailbox)
    }
}
