//! Tasks that await a request.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bio::{Attr, Bio, End, Segs, Status};

use super::Core;
use crate::layer::Edge;

/// The result of a request that a task awaited.
pub struct Finished {
    /// How it ended.
    pub status: Status,
    /// Bytes done.
    pub completed: u64,
    /// The buffers it was given.
    pub data: Segs,
    /// The attribute, for GETATTR.
    pub value: Option<Attr>,
}

enum WaitSlot {
    Free,
    Pending(Option<Waker>),
    Ended(Finished),
    /// The task has ended; the request has not.
    Abandoned,
}

#[derive(Default)]
pub(super) struct Waiting {
    slots: Vec<WaitSlot>,
    free: Vec<u32>,
}

impl Waiting {
    fn open(&mut self) -> u32 {
        match self.free.pop() {
            Some(i) => {
                self.slots[i as usize] = WaitSlot::Pending(None);
                i
            }
            None => {
                self.slots.push(WaitSlot::Pending(None));
                self.slots.len() as u32 - 1
            }
        }
    }

    fn close(&mut self, slot: u32) {
        self.slots[slot as usize] = WaitSlot::Free;
        self.free.push(slot);
    }

    /// The request of `slot` ended.
    pub fn end(&mut self, slot: u32, bio: &mut Bio) {
        let finished = Finished {
            status: bio.status,
            completed: bio.completed,
            data: std::mem::take(&mut bio.data),
            value: bio.value.take(),
        };
        match self.slots.get_mut(slot as usize) {
            Some(WaitSlot::Abandoned) => self.close(slot),
            Some(place @ WaitSlot::Pending(_)) => {
                let was = std::mem::replace(place, WaitSlot::Ended(finished));
                if let WaitSlot::Pending(Some(waker)) = was {
                    waker.wake();
                }
            }
            _ => debug_assert!(false, "a request ended twice"),
        }
    }
}

pub(super) struct Io {
    core: Rc<Core>,
    slot: Option<u32>,
}

impl Io {
    pub fn start(core: Rc<Core>, edge: Edge, fill: impl FnOnce(&mut Bio)) -> Io {
        let slot = core.waiting.borrow_mut().open();
        core.submit(edge, End::Task(slot), fill);
        Io { core, slot: Some(slot) }
    }
}

impl Future for Io {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        let slot = self.slot.expect("not polled after it was ready");
        let mut waiting = self.core.waiting.borrow_mut();
        let place = &mut waiting.slots[slot as usize];
        match std::mem::replace(place, WaitSlot::Free) {
            WaitSlot::Ended(finished) => {
                waiting.free.push(slot);
                drop(waiting);
                self.slot = None;
                Poll::Ready(finished)
            }
            _ => {
                *place = WaitSlot::Pending(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        let mut waiting = self.core.waiting.borrow_mut();
        match waiting.slots[slot as usize] {
            WaitSlot::Pending(_) => waiting.slots[slot as usize] = WaitSlot::Abandoned,
            _ => waiting.close(slot),
        }
    }
}
