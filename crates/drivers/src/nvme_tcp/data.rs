//! Write data: requests for it, and its reception.
//!
//! Data in a capsule cannot be held back alone: the data behind it on the connection would be held
//! back too. Commands before it may wait for exactly that data while they hold memory. So
//! ```text
//!   memory at once -----------------------------------------------> in
//!   else no command waits for data behind it ---------------------> waits in line, 3 s at most
//!   else, or in vain ---------------------------------------------> dropped, to be sent again
//! ```
//! Other data is requested when there is memory for all of it.

use std::rc::Rc;

use bio::Segs;
use engine::MemoryWaiter;
use transport::{ReceiveBuffer, is_late};
use wire::nvme::{Data, Frame, Status};

use super::close_reason::CloseReason;
use super::queue::Queue;
use super::tasks::Stage;
use crate::buffer_wait::{BufferWaiter, wait_for_buffers};

/// Most data in a capsule, bytes: what every admin queue has to take.
pub(crate) const CAPSULE_MAX: usize = 8192;

/// MAXH2CDATA: most data of one H2CData, bytes.
pub const HOST_DATA_MAX: u32 = 128 << 10;

/// Longest wait of a connection for the memory of a capsule, ns: less than hosts wait for the
/// answer to a Keep Alive.
const WAIT_NS: u64 = 3_000_000_000;

impl BufferWaiter for Queue {
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

impl MemoryWaiter for Queue {
    fn grant(&self, tag: u64) -> bool {
        u32::try_from(tag).map_or(true, |tag| self.try_send_r2t(tag, true))
    }

    fn is_over_share(&self) -> bool {
        BufferWaiter::is_over_share(self)
    }

    fn wait_expired(&self, tag: u64) {
        let Ok(tag) = u32::try_from(tag) else { return };
        // Another command may have the place by now.
        if self.with(tag, |t| t.stage) == Some(Stage::MemoryWait) {
            self.finish_task(tag, Status::INTERRUPTED);
        }
    }
}

impl Queue {
    /// Takes the data of a capsule for a command that wants it; false when it was dropped, and the
    /// command has ended.
    pub async fn capsule_data(
        self: &Rc<Self>,
        rx: &mut ReceiveBuffer,
        frame: &Frame,
        tag: u32,
    ) -> Result<bool, CloseReason> {
        let Some(data) = self.memory(frame.data_len).await else {
            self.conn.drop_data(rx, frame).await?;
            self.finish_task(tag, Status::INTERRUPTED);
            return Ok(false);
        };
        self.gather(data.len());
        let good = self.conn.data(rx, frame, &data).await;
        self.gathered(data.len());
        if !good? {
            self.finish_task(tag, Status::TRANSPORT);
            return Ok(false);
        }
        let old = self.with(tag, |t| {
            t.received = t.wanted;
            std::mem::replace(&mut t.data, data)
        });
        self.conn.core.segs.put(old.unwrap_or_default());
        Ok(true)
    }

    async fn memory(self: &Rc<Self>, bytes: usize) -> Option<Segs> {
        let core = &self.conn.core;
        let engine = &core.own;
        let mut data = core.segs.take();
        if !BufferWaiter::is_over_share(&**self) && engine.alloc_write_data(&mut data, bytes, false)
        {
            return Some(data);
        }
        core.segs.put(data);
        if engine.is_beyond_pool(bytes) || self.must_not_wait() {
            return None;
        }
        wait_for_buffers(self, engine, bytes, WAIT_NS, || self.must_not_wait()).await
    }

    /// Commands that hold memory wait for later data of this connection.
    fn must_not_wait(&self) -> bool {
        self.tasks.borrow().gathering().next().is_some()
    }

    /// Requests a command's data, or waits in line for the memory.
    pub fn request_data(self: &Rc<Self>, tag: u32) {
        if !self.try_send_r2t(tag, false) {
            let eater: Rc<dyn MemoryWaiter> = self.clone();
            self.conn.core.own.enqueue_memory_waiter(eater, u64::from(tag));
        }
    }

    /// Sends an R2T for all data of a command; false when there is no memory. `fed` when it is the
    /// first of those that wait for it.
    fn try_send_r2t(&self, tag: u32, fed: bool) -> bool {
        let core = &self.conn.core;
        let wish = {
            let mut tasks = self.tasks.borrow_mut();
            let hungry = tasks.get(tag).filter(|t| t.stage == Stage::MemoryWait);
            let Some(task) = hungry else { return true };
            let bytes = usize::try_from(task.wanted).unwrap_or(usize::MAX);
            let over = BufferWaiter::is_over_share(self);
            if over || !core.own.alloc_write_data(&mut task.data, bytes, fed) {
                return false;
            }
            let ahead = self.gather(bytes);
            task.stage = Stage::Gathering { since: core.reactor.now(), ahead };
            // Places are fewer than tags.
            let number = u16::try_from(tag).unwrap_or(u16::MAX);
            Data { command: task.command.id, tag: number, at: 0, len: task.wanted }
        };
        self.conn.send_r2t(&wish);
        self.conn.io.wake();
        true
    }

    /// True when requested data should be here by now.
    pub fn is_data_overdue(&self, now: u64, scarce: bool) -> bool {
        let late = |(since, ahead): (u64, usize)| is_late(now, since, ahead, scarce);
        self.tasks.borrow().gathering().any(late)
    }

    /// Takes the data of an H2CData that was admitted.
    pub async fn take_data(
        &self,
        rx: &mut ReceiveBuffer,
        frame: &Frame,
        tag: u32,
        pdu: &Data,
    ) -> Result<(), CloseReason> {
        let mut place = self.conn.core.segs.take();
        let at = usize::try_from(pdu.at).unwrap_or(usize::MAX);
        let is_complete = self.with(tag, |t| t.data.slice_into(at, frame.data_len, &mut place));
        if is_complete != Some(true) {
            // The memory was made with the R2T.
            self.conn.drop_data(rx, frame).await?;
            self.finish_task(tag, Status::INTERNAL);
            return Ok(());
        }
        let good = self.conn.data(rx, frame, &place).await?;
        self.conn.core.segs.put(place);
        let whole = self.with(tag, |t| {
            t.received = pdu.at.saturating_add(pdu.len);
            if !good {
                t.failed = Some(Status::TRANSPORT);
            }
            (t.received == t.wanted).then_some((t.wanted, t.failed))
        });
        match whole.flatten() {
            None => {}
            Some((wanted, failed)) => {
                self.gathered(usize::try_from(wanted).unwrap_or(0));
                self.with(tag, |t| t.stage = Stage::Ready);
                match failed {
                    Some(status) => self.finish_task(tag, status),
                    None => self.data_complete(tag),
                }
            }
        }
        Ok(())
    }
}
