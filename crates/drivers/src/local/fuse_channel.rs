//! The descriptor of one file system, and what wakes the task that serves it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use bio::{Pool, Segs};
use reactor::Channel;

/// Whether a file system is served, for other threads.
#[derive(Debug, Default)]
pub struct ServingState {
    ended: AtomicBool,
}

impl ServingState {
    /// True once the file system is no longer served.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// See the module.
pub(super) struct FuseChannel {
    pub fuse: Channel,
    /// For write data and lists: apart from the engine's memory, so that a pool full of others'
    /// data does not stop the kernel's writes.
    pub pool: Pool,
    needs_poll: Cell<bool>,
    polling: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Why it ends from our side.
    end_reason: RefCell<Option<String>>,
    spare: RefCell<Vec<Segs>>,
}

/// Empty lists kept for the next requests; further ones are given back.
const SPARES_MAX: usize = 128;

impl FuseChannel {
    pub fn new(channel: Channel, pool: Pool) -> FuseChannel {
        FuseChannel {
            fuse: channel,
            pool,
            needs_poll: Cell::default(),
            polling: Cell::default(),
            waker: RefCell::default(),
            end_reason: RefCell::default(),
            spare: RefCell::default(),
        }
    }

    /// Something that the task waits for has changed.
    pub fn kick(&self) {
        self.needs_poll.set(true);
        if !self.polling.get()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    pub fn watch(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        if !kept.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    /// The task is being polled; a kick then only marks the line dirty.
    pub fn polling(&self, yes: bool) {
        self.polling.set(yes);
    }

    /// Takes the mark away.
    pub fn clear_needs_poll(&self) {
        self.needs_poll.set(false);
    }

    pub fn needs_poll(&self) -> bool {
        self.needs_poll.get()
    }

    /// It ends; the first reason counts.
    pub fn end(&self, why: String) {
        self.end_reason.borrow_mut().get_or_insert(why);
        self.kick();
    }

    pub fn end_reason(&self) -> Option<String> {
        self.end_reason.borrow().clone()
    }

    pub fn segs(&self) -> Segs {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    pub fn put_segs(&self, mut segs: Segs) {
        segs.clear();
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARES_MAX {
            spare.push(segs);
        }
    }

    /// Sends a reply. The requester may have ended, with its file system: the next read shows it.
    pub fn send(&self, head: &[u8], rest: &Segs) {
        if let Err(e) = self.fuse.write(head, rest) {
            tracing::debug!(target: "local", "a reply was not taken: {e}");
        }
    }
}
