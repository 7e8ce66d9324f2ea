//! Provider of a disk: a request becomes a CCB, and the CCB's end becomes the request's.
//!
//! Invariants
//!  P1  The CCB of a request is stored in its `value`, which no request that becomes a CCB uses,
//!      until it ends. A request has one at a time.
//!  P2  A request with FUA ends when its bytes are stable: by the disk's own FUA, or flushed.
//!  P3  A FLUSH that ends well guarantees the data that were acknowledged before. If a disk with a
//!      cache loses its power during a FLUSH, that FLUSH fails. So does the first FLUSH that is
//!      sent after a loss. The contents of the cache may be lost, and no other answer would report
//!      that. If all had been flushed before, nothing may be missing: that is not known here.
//!  P4  All commands of a request together have one deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bio::{Attr, Bio, Errno, Flags, Op};
use geom::{Core, Flow, Layer};
use wire::scsi::Sense;

use super::{CommandSet, DiskCommand};
use crate::bus::SharedBounds;
use crate::ccb::{CcbId, Ended, Outcome, Owner};
use crate::unit::Unit;

/// See the module.
pub(crate) struct DiskLayer {
    unit: Arc<Unit>,
    command_set: Box<dyn CommandSet>,
    bounds: Arc<SharedBounds>,
    /// P3: something was written that may have been in the cache.
    dirty: AtomicBool,
    /// P3: losses of power that were reported to a user.
    reported_power_losses: AtomicU64,
}

impl DiskLayer {
    pub(crate) fn new(
        unit: Arc<Unit>,
        language: Box<dyn CommandSet>,
        bounds: Arc<SharedBounds>,
    ) -> DiskLayer {
        let reported_power_losses = AtomicU64::new(unit.inspect(|device| device.power_losses()));
        DiskLayer {
            unit,
            command_set: language,
            bounds,
            dirty: AtomicBool::new(false),
            reported_power_losses,
        }
    }

    fn send(&self, bio: &mut Bio, command: &DiskCommand, end_ns: u64, core: &Core) -> CcbId {
        let owner = Owner::Bio { core: core.id() as usize, ticket: bio.ticket() };
        let (how, bounds) = ((bio.op, bio.flags), (self.bounds.get(), end_ns));
        let ccb = command.ccb(&*self.command_set, owner, how, bounds);
        let id = self.unit.with(core, |device| device.submit(ccb));
        bio.value = Some(Attr::Int(id.to_word()));
        id
    }

    fn resume(&self, bio: &mut Bio, mut id: CcbId, core: &Core) -> Flow {
        loop {
            let Some(ended) = self.unit.drive(bio, id, core) else { return Flow::Wait };
            match self.ended(bio, &ended, core) {
                NextStep::Done(result) => {
                    bio.value = self.bad_byte(bio, result, &ended.outcome).map(Attr::Int);
                    if bio.op == Op::Delete {
                        bio.data.clear();
                    }
                    return Flow::Done(result);
                }
                NextStep::Continue(command) => id = self.send(bio, &command, ended.end_ns, core),
            }
        }
    }

    /// Of a READ or WRITE that the medium failed: where, from its first byte, if reported.
    fn bad_byte(&self, bio: &Bio, result: Result<(), Errno>, outcome: &Outcome) -> Option<u64> {
        let moves = matches!(bio.op, Op::Read | Op::Write) && result == Err(Errno::Io);
        let sense = Sense::decode(outcome.sense.bytes()).ok().filter(|_| moves)?;
        let at = sense.information?.checked_mul(self.command_set.block_bytes()?)?;
        at.checked_sub(bio.offset).filter(|at| *at < bio.length)
    }

    fn ended(&self, bio: &mut Bio, ended: &Ended, core: &Core) -> NextStep {
        let moved = match ended.result {
            Ok(moved) => moved,
            Err(error) => return NextStep::Done(Err(error)),
        };
        // A disk that moves less than requested, and calls that good.
        let is_short = matches!(bio.op, Op::Read | Op::Write) && u64::from(moved) < bio.length;
        let is_flush = self.command_set.flush().is_some_and(|flush| flush.command == ended.command);
        if !ended.outcome.is_carried_out() || is_short && !is_flush {
            let error = Errno::RemoteIo;
            self.unit.with(core, |device| device.has_failed(ended, error, core.now()));
            return NextStep::Done(Err(error));
        }
        if is_flush {
            return NextStep::Done(self.check_power_losses(ended, bio.op));
        }
        match bio.op {
            Op::Write if bio.flags.has(Flags::FUA) && !self.command_set.has_fua() => {
                self.dirty.store(true, Ordering::Release);
                self.command_set.flush().map_or(NextStep::Done(Ok(())), NextStep::Continue)
            }
            Op::Write if !bio.flags.has(Flags::FUA) => {
                self.dirty.store(true, Ordering::Release);
                NextStep::Done(Ok(()))
            }
            Op::Delete => match self.command_set.delete_more(bio, core.pool()) {
                Some(Ok(command)) => NextStep::Continue(command),
                Some(Err(error)) => NextStep::Done(Err(error)),
                None => NextStep::Done(Ok(())),
            },
            _ => NextStep::Done(Ok(())),
        }
    }

    /// P3
    fn check_power_losses(&self, ended: &Ended, op: Op) -> Result<(), Errno> {
        if !self.command_set.has_cache() {
            return Ok(());
        }
        let (before, after) = ended.power_losses;
        let reported = match op {
            Op::Flush => self.reported_power_losses.fetch_max(after, Ordering::AcqRel),
            // A write with FUA vouches for itself alone: a FLUSH is still to fail.
            _ => self.reported_power_losses.load(Ordering::Acquire),
        };
        let lost = before != after || reported < before;
        if lost && self.dirty.load(Ordering::Acquire) { Err(Errno::Io) } else { Ok(()) }
    }
}

enum NextStep {
    Done(Result<(), Errno>),
    /// Another command of the same request.
    Continue(DiskCommand),
}

impl Layer for DiskLayer {
    fn delete_ranges(&self) -> u32 {
        self.command_set.delete_ranges()
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if bio.op == Op::Flush && self.command_set.flush().is_none() {
            // Nothing is volatile.
            return Flow::Done(Ok(()));
        }
        match self.command_set.command(bio, core.pool()) {
            Ok(command) => {
                let id = self.send(bio, &command, self.bounds.get().end_ns(core.now()), core);
                self.resume(bio, id, core)
            }
            Err(error) => Flow::Done(Err(error)),
        }
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        match bio.value {
            Some(Attr::Int(word)) => self.resume(bio, CcbId::from_word(word), core),
            _ => Flow::Done(Err(Errno::NxIo)),
        }
    }
}
