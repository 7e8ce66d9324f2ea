//! Rows in flight of a volume with a log (L6 of [`super`]).

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use bio::sync::Mutex;

/// Rows under way to the members.
#[derive(Default)]
pub(super) struct Sends(Mutex<Phases>);

/// Rows by the phase in which they were sent; a task that waits for them changes the phase.
#[derive(Default)]
struct Phases {
    phase: usize,
    rows: [usize; 2],
    wakers: Vec<Waker>,
}

/// A row under way to the members, until this is dropped; not while it is paused.
pub(in crate::raid::volume) struct Sending<'a> {
    sends: &'a Sends,
    phase: Cell<Option<usize>>,
}

impl Sends {
    /// One more.
    pub(super) fn begin(&self) -> Sending<'_> {
        let sending = Sending { sends: self, phase: Cell::new(None) };
        sending.resume();
        sending
    }

    /// Returns when no row is under way that was so when this was called. One waits at a time.
    pub(super) async fn quiesce(&self) {
        let before = {
            let mut sends = self.0.lock();
            let before = sends.phase;
            sends.phase = 1 - before;
            before
        };
        poll_fn(|cx| {
            let mut sends = self.0.lock();
            if sends.rows.get(before).is_none_or(|rows| *rows == 0) {
                return Poll::Ready(());
            }
            sends.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Sending<'_> {
    /// It waits for a record.
    pub(in crate::raid::volume) fn pause(&self) {
        let Some(phase) = self.phase.take() else { return };
        let wakers = {
            let mut sends = self.sends.0.lock();
            let Some(rows) = sends.rows.get_mut(phase) else { return };
            *rows = rows.saturating_sub(1);
            if *rows == 0 { std::mem::take(&mut sends.wakers) } else { Vec::new() }
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// It continues.
    pub(in crate::raid::volume) fn resume(&self) {
        self.pause();
        let mut sends = self.sends.0.lock();
        let phase = sends.phase;
        if let Some(rows) = sends.rows.get_mut(phase) {
            *rows += 1;
            self.phase.set(Some(phase));
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.pause();
    }
}
