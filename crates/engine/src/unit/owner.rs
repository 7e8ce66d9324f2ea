//! Owners of the entries in the task set of a unit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bio::sync::Mutex;
use reactor::Mailer;

use crate::unit::message::Message;

/// Owner of an entry, which is notified when the entry is enabled.
#[derive(Clone)]
pub(crate) enum Owner {
    Command {
        /// The core of the session.
        core: u32,
        /// The way to it.
        to: Mailer<Message>,
        session: u64,
        /// Place and generation.
        word: u64,
    },
    /// A claim of a running command.
    Claim(Arc<ClaimGrant>),
}

/// The turn of a claim.
#[derive(Default)]
pub(crate) struct ClaimGrant(Mutex<(bool, Option<Waker>)>);

impl ClaimGrant {
    pub(crate) fn grant(&self) {
        let waker = {
            let mut turn = self.0.lock();
            turn.0 = true;
            turn.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Future that ends when the claim is granted.
pub(crate) struct ClaimFuture(pub(crate) Arc<ClaimGrant>);

impl Future for ClaimFuture {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut turn = self.0.0.lock();
        if turn.0 {
            return Poll::Ready(());
        }
        turn.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}
