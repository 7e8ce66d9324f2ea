//! Memory for write data when there are not enough buffers.
//!
//! Immediate data cannot be held back alone: the data behind it on the connection would be held
//! back too. Commands before it may wait for exactly that data while they hold memory. So
//! ```text
//!   memory for all of the command ------------------------------> in
//!   else memory for the data that arrived, 1/8 of pool --------> in, waits in line for the rest
//!   else no command waits for data behind it ------------------> waits in line, 3 s at most
//!   else, or in vain ------------------------------------------> dropped, TASK SET FULL
//! ```

use std::rc::Rc;

use bio::Segs;
use engine::MemoryWaiter;

use super::receive::ReceivedCommand;
use super::session::IscsiSession;
use super::tasks::Incoming;
use crate::buffer_wait::{BufferWaiter, wait_for_buffers};

/// Longest wait of a connection for the memory of a command, ns: less than an initiator waits for
/// the answer to its ping, which may be behind the data.
const WAIT_NS: u64 = 3_000_000_000;

/// Records kept for the next commands; further ones are freed.
const RECORDS_MAX: usize = 256;

/// Records of write data that has all arrived. The next writes use them and the capacity of their
/// lists, so that write data allocates nothing in steady state.
#[derive(Default)]
#[allow(clippy::vec_box)] // A task holds the Box: without write data it is small.
pub(crate) struct IncomingRecords(Vec<Box<Incoming>>);

impl IncomingRecords {
    /// An empty record.
    pub fn take(&mut self) -> Box<Incoming> {
        self.0.pop().unwrap_or_default()
    }

    pub fn put(&mut self, mut incoming: Box<Incoming>) {
        let mut bursts = std::mem::take(&mut incoming.bursts);
        bursts.clear();
        *incoming = Incoming { bursts, ..Incoming::default() };
        if self.0.len() < RECORDS_MAX {
            self.0.push(incoming);
        }
    }
}

impl BufferWaiter for IscsiSession {
    fn wake(&self) {
        self.conn.io.wake();
    }

    fn segs(&self) -> Segs {
        self.conn.core.segs.take()
    }

    fn is_over_share(&self) -> bool {
        self.nexus().is_some_and(|n| n.is_over_data_share())
    }
}

/// Memory for the data of a command of which `now` bytes follow its header. False when there is
/// none and the data is to be dropped.
pub(crate) async fn memory_for(
    session: &Rc<IscsiSession>,
    now: usize,
    arrived: &mut ReceivedCommand,
) -> bool {
    let expected = usize::try_from(arrived.expect_out).unwrap_or(usize::MAX);
    // Unsolicited data: with the command, and behind it when the PDU is not the last.
    let unasked = if arrived.header.last { 0 } else { session.first_burst().min(expected) };
    let first = unasked.max(now);
    let all = expected.max(first);
    let core = &session.conn.core;
    let engine = &core.own.engine;
    let mut data = core.segs.take();
    let possible = !engine.is_beyond_pool(all);
    let over = BufferWaiter::is_over_share(&**session);
    if possible && !over && engine.alloc_write_data(&mut data, all, false) {
        arrived.data = data;
        return true;
    }
    if let Some(part) = engine.alloc_partial_data(&mut data, first) {
        arrived.data = data;
        arrived.part = Some(part);
        return true;
    }
    if !possible || session.must_not_wait() {
        return false;
    }
    let got = wait_for_buffers(session, engine, all, WAIT_NS, || session.must_not_wait()).await;
    match got {
        Some(segs) => {
            arrived.data = segs;
            true
        }
        None => false,
    }
}

impl IscsiSession {
    /// True when commands that hold memory wait for later data of this connection: then it must not
    /// wait.
    fn must_not_wait(&self) -> bool {
        let expects = |i: &Incoming| !i.bursts.is_empty();
        !self.held.borrow().is_empty()
            || self.tasks.borrow().values().any(|t| t.incoming.as_deref().is_some_and(expects))
    }

    fn first_burst(&self) -> usize {
        usize::try_from(self.params.get().first_burst).unwrap_or(usize::MAX)
    }

    /// Memory for all of a command's data; `fed` when it is the first in the line.
    pub fn grow_write_data(&self, incoming: &mut Incoming, fed: bool) -> bool {
        let wanted = usize::try_from(incoming.wanted).unwrap_or(usize::MAX);
        let missing = wanted.saturating_sub(incoming.data.len());
        if missing == 0 {
            incoming.part = None;
            return true;
        }
        let engine = &self.conn.core.own.engine;
        let over = BufferWaiter::is_over_share(self);
        let enough = !over && engine.alloc_write_data(&mut incoming.data, missing, fed);
        if enough {
            incoming.part = None;
            incoming.gathering.count(&self.gathering, incoming.data.len());
        }
        enough
    }
}

impl MemoryWaiter for IscsiSession {
    fn grant(&self, tag: u64) -> bool {
        u32::try_from(tag).map_or(true, |tag| self.send_r2ts(tag, true))
    }

    fn is_over_share(&self) -> bool {
        BufferWaiter::is_over_share(self)
    }

    fn wait_expired(&self, tag: u64) {
        if let Ok(tag) = u32::try_from(tag) {
            self.fail_without_memory(tag);
        }
    }
}
