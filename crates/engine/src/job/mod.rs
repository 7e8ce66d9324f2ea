//! A conversation of one command with its medium.

mod admitted_request;
pub(crate) mod protection;

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bio::{Attr, Bio, Errno, Flags, HOLE, Op, Origin, Segs};
use geom::{Core, Finished};
use wire::scsi::{Command as Cdb, Status, asc};

use crate::job::admitted_request::AdmittedRequest;
use crate::nexus::engine::Engine;
use crate::nexus::slots::JobState;
use crate::qos::QosClient;
use crate::registry::{LunMap, Registry, TargetPort};
use crate::reservations::Identity;
use crate::state_store::{RecordKind, save_channel};
use crate::status::{Ending, ending_of};
use crate::task::set::Span;
use crate::task_set::cross_core::BlockClaim;
use crate::unit::ending::ending_at;
use crate::unit::protection::Want;
use crate::unit::unit_attention::ItlNexus;
use crate::unit::{Device, ModeBits};

/// Context of a conversation. After an abort every further request is refused here, so the
/// conversation ends soon and no longer touches the medium.
pub struct Job {
    pub command: Cdb,
    /// The unit.
    pub device: Arc<Device>,
    /// The nexus that sent it; [`ItlNexus::port`] is its name.
    pub nexus: Arc<ItlNexus>,
    /// Write data: the requested length, or less when the initiator has less.
    pub data: Segs,
    /// Bytes that the command may send: the plan's `reply`.
    pub limit: u32,
    /// The unit takes no writes through this nexus.
    pub read_only: bool,
    pub luns: Arc<LunMap>,
    /// The port at which the command arrived.
    pub port: Arc<TargetPort>,
    /// State that all engines share.
    pub registry: Arc<Registry>,
    pub(crate) engine: Rc<Engine>,
    pub(crate) medium: Medium,
}

/// The way to one unit's medium for a conversation: its own unit's, or another's
/// ([`Job::medium_of`]).
#[derive(Clone)]
pub struct Medium {
    pub(crate) device: Arc<Device>,
    pub(crate) core: Rc<Core>,
    pub(crate) origin: Origin,
    pub(crate) state: Rc<JobState>,
    /// Where its requests wait for their turn; `None` before any other command can reach the unit.
    pub(crate) qos_client: Option<Rc<QosClient>>,
    /// `None` as above.
    pub(crate) engine: Option<Rc<Engine>>,
    /// The plan touches no block: it may claim some.
    pub(crate) may_claim: bool,
}

/// The end of an aborted conversation; no initiator sees it.
const STOPPED: Ending = Ending::Status(Status::TaskAborted);

impl Job {
    /// True when task management has ended the command.
    pub fn is_aborted(&self) -> bool {
        self.medium.state.stop.get()
    }

    /// The core: clock, randomness, timers.
    pub fn core(&self) -> &Rc<Core> {
        &self.medium.core
    }

    /// Its own unit's medium.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The medium of another unit, for copies. The caller has checked that the initiator may access
    /// that unit. Requests end when this command is aborted.
    pub fn medium_of(&self, device: &Arc<Device>) -> Medium {
        let seat = match self.medium.state.session.upgrade() {
            _ if Arc::ptr_eq(device, &self.device) => self.medium.qos_client.clone(),
            Some(session) => Some(session.qos_client_at(device)),
            None => Some(QosClient::new(self.engine.flow(device))),
        };
        Medium { device: device.clone(), qos_client: seat, ..self.medium.clone() }
    }

    /// Aborts the commands of other nexuses at its unit on all cores, as PREEMPT AND ABORT does.
    /// Ends when they can no longer touch the medium, or when this command is aborted itself: two
    /// that wait for each other's end would wait for ever.
    pub(crate) async fn abort_nexuses(&self, whom: Arc<BTreeSet<Identity>>) {
        let by = self.nexus.port().session;
        let bell = self.engine.abort_nexuses(&self.device, by, whom);
        let tie = &self.medium.state;
        std::future::poll_fn(|cx| {
            if bell.has_fired() || tie.stop.get() {
                return Poll::Ready(());
            }
            bell.set_waker(cx.waker());
            tie.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Sets the data for the initiator, replacing any earlier data. The engine cuts it to the
    /// allocation length and to the expected length. It is sent only when the command ends GOOD.
    pub fn reply(&self, data: Segs) {
        let before = self.medium.state.reply.replace(data);
        drop(before);
    }

    /// The same with bytes; waits while the pool is exhausted.
    pub async fn reply_bytes(&self, bytes: &[u8]) -> Result<(), Ending> {
        let len = bytes.len().min(usize::try_from(self.limit).unwrap_or(usize::MAX));
        let data = self.buffers(len).await?;
        data.copy_from(0, bytes.get(..len).unwrap_or(bytes));
        self.reply(data);
        Ok(())
    }

    /// Sends GOOD now, while the conversation continues (IMMED). The command keeps its place until
    /// the conversation ends: a unit reset or the end of the session waits for it.
    pub fn respond_early(&self) {
        if let Some(session) = self.medium.state.session.upgrade() {
            session.respond_early(self.medium.state.slot_id);
        }
    }

    /// Stores a record of the unit; ends when it is on stable storage (`state_store.rs`).
    pub async fn save(&self, kind: RecordKind, bytes: Vec<u8>) -> Result<(), Errno> {
        let (done, saved) = save_channel();
        self.registry.state_store().save(&self.device.spec().serial, kind, bytes, done);
        saved.await
    }

    /// Claims blocks of a unit, this one or another, as [`Medium::exclusive`] does.
    pub async fn exclusive(
        &self,
        device: &Arc<Device>,
        lba: u64,
        blocks: u64,
    ) -> Result<BlockClaim, Ending> {
        self.medium_of(device).exclusive(lba, blocks).await
    }

    /// Buffers; waits while the pool is exhausted.
    pub async fn buffers(&self, len: usize) -> Result<Segs, Ending> {
        self.medium.buffers(len).await
    }

    /// Lets other work of this core run first.
    pub async fn pause(&self) {
        self.core().reactor().yield_now().await;
    }

    pub async fn read(&self, lba: u64, blocks: u32) -> Result<Segs, Ending> {
        self.medium.read(lba, blocks).await
    }

    /// Writes blocks; durable when requested, or when the write cache is off.
    pub async fn write(&self, lba: u64, data: Segs, fua: bool) -> Result<(), Ending> {
        self.medium.write(lba, data, fua).await
    }

    /// DELETE or WRITE ZEROES of blocks.
    pub async fn range(&self, op: Op, lba: u64, blocks: u64, flags: Flags) -> Result<(), Ending> {
        self.medium.range(op, lba, blocks, flags).await
    }

    /// Everything written before is durable when this ends.
    pub async fn flush(&self) -> Result<(), Ending> {
        self.medium.flush().await
    }
}

impl Medium {
    /// A way of its own, not of any command: it is not aborted.
    pub(crate) fn standalone(core: &Rc<Core>, device: Arc<Device>) -> Medium {
        Medium {
            device,
            core: core.clone(),
            origin: Origin::default(),
            state: Rc::default(),
            qos_client: None,
            engine: None,
            may_claim: true,
        }
    }

    /// The same way, which continues when the command is aborted.
    pub(crate) fn detached(&self) -> Medium {
        Medium { state: Rc::default(), ..self.clone() }
    }

    /// Claims blocks: waits until no other command touches them, and keeps others away until the
    /// guard is dropped. The plan of the command must have [`Span::Nothing`]. It holds one guard at
    /// a time, or two commands could wait for each other.
    pub async fn exclusive(&self, lba: u64, blocks: u64) -> Result<BlockClaim, Ending> {
        if !self.may_claim {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        }
        let Some(engine) = &self.engine else {
            return Ok(BlockClaim::nothing(&self.device));
        };
        let guard = engine.claim(&self.device, Span::Range { lba, blocks }).await;
        if self.state.stop.get() { Err(STOPPED) } else { Ok(guard) }
    }

    /// Whether the blocks from `lba` on take no space, and how many of `blocks` that holds for. A
    /// disk that does not know reports that they do.
    pub async fn map(&self, lba: u64, blocks: u64) -> Result<(bool, u64), Ending> {
        let unit = u64::from(self.device.block_bytes());
        let (offset, len) = (lba.saturating_mul(unit), blocks.saturating_mul(unit));
        let done = self.request_one(Op::Map, offset, len, Segs::new(), Flags::NONE).await?;
        match done.status {
            Ok(()) => {
                let hole = done.value == Some(Attr::Int(HOLE));
                let run = done.completed / unit;
                // A run that ends within a block: that block is stored in part.
                Ok(if run == 0 { (false, 1) } else { (hole, run) })
            }
            Err(Errno::NotSup | Errno::NoAttr) => Ok((false, blocks)),
            Err(e) => Err(ending_at(e, Op::Map, (lba, len), None, &self.device)),
        }
    }

    /// The same way for a request that writes and is not given up half-way; refused when the
    /// command is aborted already.
    pub(crate) fn begun(&self) -> Result<Medium, Ending> {
        if self.state.stop.get() { Err(STOPPED) } else { Ok(self.detached()) }
    }

    /// A request by bytes, in the tail as well, for the code that keeps protection information.
    pub(crate) async fn below(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        data: Segs,
        flags: Flags,
    ) -> Result<Segs, Ending> {
        let done = self.request_one(op, offset, len, data, flags).await?;
        match done.status {
            Ok(()) if op.has_range() && done.completed < len => {
                Err(Ending::check(asc::LBA_OUT_OF_RANGE))
            }
            Ok(()) => Ok(done.data),
            Err(e) => Err(ending_of(e, op)),
        }
    }

    /// A request by bytes, past protection information.
    pub(crate) async fn raw(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        data: Segs,
        flags: Flags,
    ) -> Result<Segs, Ending> {
        let lba = offset / u64::from(self.device.block_bytes());
        let done = self.request_one(op, offset, len, data, flags).await?;
        match done.status {
            Ok(()) if op.has_range() && done.completed < len => {
                Err(Ending::check(asc::LBA_OUT_OF_RANGE))
            }
            Ok(()) => Ok(done.data),
            Err(e) => Err(ending_at(e, op, (lba, len), None, &self.device)),
        }
    }

    /// DELETE of ranges of blocks, which ascend and do not touch, in one request.
    pub(crate) async fn free(&self, runs: &[Range<u64>]) -> Result<(), Ending> {
        let unit = u64::from(self.device.block_bytes());
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(()) };
        if last.end.checked_mul(unit).is_none() {
            return Err(Ending::check(asc::LBA_OUT_OF_RANGE));
        }
        let ranges: Vec<_> = runs.iter().map(|run| run.start * unit..run.end * unit).collect();
        let total: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        let len = last.end.saturating_sub(first.start) * unit;
        let mut named = false;
        let fill = |bio: &mut Bio| {
            bio.op = Op::Delete;
            named = bio.delete_ranges(&ranges);
        };
        let done = self.request_ranges((Op::Delete, &ranges, 0), fill).await?;
        match done.status {
            _ if !named => Err(Ending::check(asc::INTERNAL_FAILURE)),
            Ok(()) if done.completed < total => Err(Ending::check(asc::LBA_OUT_OF_RANGE)),
            Ok(()) => Ok(()),
            Err(e) => Err(ending_at(e, Op::Delete, (first.start, len), None, &self.device)),
        }
    }

    async fn request_one(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        data: Segs,
        flags: Flags,
    ) -> Result<Finished, Ending> {
        let moves = if op.has_data() { len } else { 0 };
        let range = offset..offset.saturating_add(len);
        let fill = |bio: &mut Bio| {
            (bio.op, bio.flags) = (op, flags);
            (bio.offset, bio.length) = (offset, len);
            bio.data = data;
        };
        self.request_ranges((op, std::slice::from_ref(&range), moves), fill).await
    }

    /// A request that `fill` makes of `ranges` of bytes, when it is its turn.
    async fn request_ranges(
        &self,
        (op, ranges, moves): (Op, &[Range<u64>], u64),
        fill: impl FnOnce(&mut Bio),
    ) -> Result<Finished, Ending> {
        if self.state.stop.get() {
            return Err(STOPPED);
        }
        if let Some(error) = self.device.lost() {
            return Err(ending_of(error, op));
        }
        let pass = match (&self.engine, &self.qos_client) {
            (Some(engine), Some(seat)) => {
                Some(AdmittedRequest::wait(engine, seat, moves, &self.state).await.ok_or(STOPPED)?)
            }
            _ => None,
        };
        if op.needs_write() && op.has_range() {
            let unit = u64::from(self.device.block_bytes());
            for range in ranges {
                let (from, end) = (range.start / unit, range.end.div_ceil(unit));
                self.device.watch().before_write(from, end.saturating_sub(from));
            }
        }
        let origin = self.origin;
        let filled = self.core.io(self.device.edge(), |bio| {
            fill(bio);
            bio.origin = origin;
        });
        let done = filled.await;
        // Latencies of requests without data do not describe those with data.
        if let Some(pass) = pass.filter(|_| op.has_data()) {
            pass.complete(moves);
        }
        Ok(done)
    }

    /// The unit.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Buffers; waits while the pool is exhausted.
    pub async fn buffers(&self, len: usize) -> Result<Segs, Ending> {
        self.core.buffers(len).await.map_err(|e| ending_of(e, Op::Read))
    }

    /// Reads blocks; protection information is checked.
    pub async fn read(&self, lba: u64, blocks: u32) -> Result<Segs, Ending> {
        self.read_as(lba, blocks, Want::default()).await.map(|(data, _)| data)
    }

    /// The same with the given checks. The tuples are those that an initiator sees; without
    /// protection information there are none.
    pub(crate) async fn read_as(
        &self,
        lba: u64,
        blocks: u32,
        want: Want,
    ) -> Result<(Segs, Vec<u8>), Ending> {
        if let Some(protection) = self.device.protection()
            && let Some(kind) = protection.kind()
        {
            self.within(lba, u64::from(blocks))?;
            return protection.read(self, kind, (lba, blocks), want).await;
        }
        let len = u64::from(blocks) * u64::from(self.device.block_bytes());
        let Ok(bytes) = usize::try_from(len) else {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        };
        let data = self.buffers(bytes).await?;
        let flags = if want.fua { Flags::FUA } else { Flags::NONE };
        Ok((self.request(Op::Read, lba, len, data, flags).await?, Vec::new()))
    }

    /// The tail of a protected unit cannot be reached by block requests.
    fn within(&self, lba: u64, blocks: u64) -> Result<(), Ending> {
        match lba.checked_add(blocks) {
            Some(end) if end <= self.device.blocks() => Ok(()),
            _ => Err(Ending::check(asc::LBA_OUT_OF_RANGE)),
        }
    }

    /// Writes blocks; durable when requested, or when the write cache is off.
    pub async fn write(&self, lba: u64, data: Segs, fua: bool) -> Result<(), Ending> {
        self.write_as(lba, data, None, fua).await
    }

    /// The same with tuples, which were checked; `None` makes them where there are any.
    pub(crate) async fn write_as(
        &self,
        lba: u64,
        data: Segs,
        tuples: Option<Vec<u8>>,
        fua: bool,
    ) -> Result<(), Ending> {
        let len = data.len() as u64;
        let fua = fua || !self.device.mode().has(ModeBits::WCE);
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        if let Some(protection) = self.device.protection()
            && let Some(kind) = protection.kind()
        {
            self.within(lba, len / u64::from(self.device.block_bytes()))?;
            return protection.write(self, kind, (lba, data), tuples, flags).await;
        }
        self.request(Op::Write, lba, len, data, flags).await.map(drop)
    }

    /// DELETE or WRITE ZEROES of blocks.
    pub async fn range(&self, op: Op, lba: u64, blocks: u64, flags: Flags) -> Result<(), Ending> {
        if let Some(protection) = self.device.protection()
            && let Some(kind) = protection.kind()
        {
            self.within(lba, blocks)?;
            return protection.range(self, kind, op, (lba, blocks), flags).await;
        }
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
        let Some(offset) = lba.checked_mul(u64::from(self.device.block_bytes())) else {
            return Err(Ending::check(asc::LBA_OUT_OF_RANGE));
        };
        self.raw(op, offset, len, data, flags).await
    }
}
