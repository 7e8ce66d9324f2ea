//! A conversation of one command with its medium.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Flags, Op, Origin, Segs};
use geom::Core;
use wire::scsi::{Command as Cdb, Status, asc};

use crate::attention::Nexus;
use crate::device::{Device, ModeBits};
use crate::status::{Ending, ending_at, ending_of};

/// What a handler's conversation has in its hands. After an abort every further request is
/// refused here, so the conversation ends soon and touches the medium no more.
pub struct Job {
    /// The command.
    pub command: Cdb,
    /// The unit.
    pub device: Arc<Device>,
    /// The nexus that sent it.
    pub nexus: Arc<Nexus>,
    /// Write data: what the command asked for, or less when the initiator has less.
    pub data: Segs,
    pub(crate) core: Rc<Core>,
    pub(crate) origin: Origin,
    pub(crate) stop: Rc<Cell<bool>>,
}

/// The end of an aborted conversation; no initiator sees it.
const STOPPED: Ending = Ending::Status(Status::TaskAborted);

impl Job {
    /// True when task management has ended the command.
    pub fn is_aborted(&self) -> bool {
        self.stop.get()
    }

    /// Buffers; waits while the pool is exhausted.
    pub async fn buffers(&self, len: usize) -> Result<Segs, Ending> {
        self.core.buffers(len).await.map_err(|e| ending_of(e, Op::Read))
    }

    /// Lets other work of this core go first.
    pub async fn pause(&self) {
        self.core.reactor().yield_now().await;
    }

    /// Reads blocks.
    pub async fn read(&self, lba: u64, blocks: u32) -> Result<Segs, Ending> {
        let len = u64::from(blocks) * u64::from(self.device.block_bytes());
        let Ok(bytes) = usize::try_from(len) else {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        };
        let data = self.buffers(bytes).await?;
        self.request(Op::Read, lba, len, data, Flags::NONE).await
    }

    /// Writes blocks; durable when asked for, or when the write cache is off.
    pub async fn write(&self, lba: u64, data: Segs, fua: bool) -> Result<(), Ending> {
        let len = data.len() as u64;
        let fua = fua || !self.device.mode().has(ModeBits::WCE);
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        self.request(Op::Write, lba, len, data, flags).await.map(drop)
    }

    /// DELETE or WRITE ZEROES of blocks.
    pub async fn range(&self, op: Op, lba: u64, blocks: u64, flags: Flags) -> Result<(), Ending> {
        let Some(len) = blocks.checked_mul(u64::from(self.device.block_bytes())) else {
            return Err(Ending::check(asc::LBA_OUT_OF_RANGE));
        };
        self.request(op, lba, len, Segs::new(), flags).await.map(drop)
    }

    /// Everything written before is durable when this ends.
    pub async fn flush(&self) -> Result<(), Ending> {
        self.request(Op::Flush, 0, 0, Segs::new(), Flags::NONE).await.map(drop)
    }

    async fn request(
        &self,
        op: Op,
        lba: u64,
        len: u64,
        data: Segs,
        flags: Flags,
    ) -> Result<Segs, Ending> {
        if self.is_aborted() {
            return Err(STOPPED);
        }
        if let Some(error) = self.device.lost() {
            return Err(ending_of(error, op));
        }
        let Some(offset) = lba.checked_mul(u64::from(self.device.block_bytes())) else {
            return Err(Ending::check(asc::LBA_OUT_OF_RANGE));
        };
        let origin = self.origin;
        let done = self
            .core
            .io(self.device.edge(), |bio| {
                bio.op = op;
                bio.flags = flags;
                bio.origin = origin;
                bio.offset = offset;
                bio.length = len;
                bio.data = data;
            })
            .await;
        match done.status {
            Ok(()) if op.has_range() && done.completed < len => {
                Err(Ending::check(asc::LBA_OUT_OF_RANGE))
            }
            Ok(()) => Ok(done.data),
            Err(e) => Err(ending_at(e, op, lba, len, &self.device)),
        }
    }
}
