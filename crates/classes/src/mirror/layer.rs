//! The data path of a mirror.
//!
//! ```text
//!   read:   choose a member --> down --> error? --> another member, until each was tried
//!   write:  gate --> range --> bits (with bitmaps) --> all members
//!             all did it --------------------------------------------> done
//!             some failed, some did it --> wait for the decision -----> done
//!             all failed --------------------------------------------> error
//! ```
//!
//! Invariants
//!  L1  A write or flush that failed on a member is acknowledged only after the records of the
//!      others mark that member. Otherwise it could be the master after a crash.
//!  L2  Only EIO, ENXIO and time-outs are errors of the member. Other errors belong to the request,
//!      except for a write that succeeded on another member.
//!  L3  A read is answered by a complete member, or fails when each has been tried.
//!  L4  Answers of a former member are ignored.
//!  L5  No member is reported for a failed write before that write has ended everywhere and waits
//!      for the decision, if it needs one. An earlier decision would not apply to it.
//!  L6  A member that does not take WRITE ZEROES is written with zeroes: others may have zeroed the
//!      range, or that member a part of it.
//!  L7  Writes of the same bytes take turns, on all cores. Two that are in flight together could
//!      end in one order on one member, and in the other on another.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bio::{Bio, Errno, Op};
use geom::{Back, Core, Edge, Flow, Layer};

use super::balance::{self, choose};
use super::shared::{Faults, MemberFailure, MirrorShared, Path};
use crate::members::{GateEntry, LockResult, Waiter};

pub(super) struct MirrorLayer(pub(super) Arc<MirrorShared>);

/// A frame's word. Reads that were sent down: the slot in 32..40. All: bits of slots that failed
/// below 32, and whether some member did it. Writes: whether one does not take WRITE ZEROES.
const SOME_DID: u64 = 1 << 63;
pub(super) const UNABLE: u64 = 1 << 62;
const SLOT_SHIFT: u32 = 32;

fn is_members_fault(e: Errno) -> bool {
    matches!(e, Errno::Io | Errno::NxIo | Errno::TimedOut | Errno::RemoteIo)
}

impl MirrorLayer {
    fn is_gated(op: Op) -> bool {
        matches!(op, Op::Write | Op::Delete | Op::WriteZeroes)
    }

    /// The path of nearly every read, without a call. `None`: the caller uses [`Self::read`].
    #[inline(always)]
    fn read_at_once(&self, bio: &Bio, core: &Core) -> Option<Flow> {
        let (among, loads) = self.0.fast_path(core.id() as usize)?;
        // The end of an admitted request fits in a word.
        let slot = loads.take(among, bio.offset, bio.offset.wrapping_add(bio.length));
        Some(Flow::Down(loads.way(slot).0, (slot as u64) << SLOT_SHIFT))
    }

    #[inline(never)]
    fn read(&self, bio: &mut Bio, core: &Core, tried: u32) -> Flow {
        let mut core_state = self.0.core_state(core.id() as usize);
        if tried == 0
            && let Some(parts) = balance::parts(&core_state, bio.length)
        {
            let sector = core_state.table.sector;
            let ways: Vec<(usize, Edge)> =
                core_state.table.active().map(|(i, p)| (i, p.edge)).collect();
            drop(core_state);
            return split(bio, core, &ways, parts, sector);
        }
        let loads = self.0.loads(core.id() as usize);
        match choose((&mut core_state, loads), bio.offset, bio.length, tried) {
            Some((slot, edge)) => Flow::Down(edge, (slot as u64) << SLOT_SHIFT | u64::from(tried)),
            None => Flow::Done(Err(Errno::NxIo)),
        }
    }

    /// A write at the gate.
    fn admit(&self, bio: &mut Bio, core: &Core) -> Flow {
        let at = core.id() as usize;
        if self.0.records_failed.load(Relaxed) {
            return Flow::Done(Err(Errno::Io));
        }
        if self.0.gate.enter(at, || bio.ticket()) == GateEntry::Wait {
            return Flow::Wait;
        }
        self.0.count_write(at);
        // L7
        let locked = if bio.is_scattered() {
            let parts = bio.ranges().collect();
            self.0.ranges.lock_all(parts, true, || Waiter::Bio(at, bio.ticket()))
        } else {
            let range = bio.offset..bio.offset.saturating_add(bio.length);
            self.0.ranges.lock(range, true, || Waiter::Bio(at, bio.ticket()))
        };
        let (LockResult::Now(held) | LockResult::Later(held)) = locked;
        self.0.core_state(at).held.push((bio.id().to_word(), held));
        if matches!(locked, LockResult::Later(_)) {
            return Flow::Wait;
        }
        self.send(bio, core)
    }

    /// bitmap B1
    #[cold]
    fn await_bits(&self, bio: &mut Bio, core: &Core) -> Flow {
        let at = core.id() as usize;
        self.0.core_state(at).marking.insert(bio.id().to_word());
        let places = bio.ranges().map(|r| (r.start, r.end - r.start));
        if self.0.await_bits(at, bio.ticket(), places) {
            return Flow::Wait;
        }
        self.0.core_state(at).marking.remove(&bio.id().to_word());
        self.release(bio, core);
        Flow::Done(Err(Errno::NxIo))
    }

    /// To every member that takes it.
    fn send(&self, bio: &mut Bio, core: &Core) -> Flow {
        let table = self.0.core_state(core.id() as usize).table.clone();
        if Self::is_gated(bio.op)
            && let Some(bits) = &table.bits
            && !bio.ranges().all(|r| bits.covers(r.start, r.end - r.start))
        {
            return self.await_bits(bio, core);
        }
        let deletes = bio.op == Op::Delete;
        let wipes = |path: &Path| deletes && table.zeroes && !path.zeroes;
        let takes = |path: &Path| path.deletes || !deletes || wipes(path);
        let mut sent = 0;
        for (slot, path) in table.all().filter(|(_, p)| takes(p)) {
            let wipes = wipes(path);
            core.fork_with(bio, path.edge, |bio, child| {
                child.copy_range_from(bio);
                if bio.op.has_data() {
                    let _all = bio.data.slice_into(0, bio.data.len(), &mut child.data);
                }
                child.mark = slot as u32;
                if wipes {
                    child.op = Op::WriteZeroes;
                }
            });
            sent += 1;
        }
        if sent > 0 {
            // L1: of those just lost nothing is on record yet.
            return Flow::Fork(u64::from(table.unrecorded));
        }
        self.release(bio, core);
        let none = if bio.op == Op::Delete { Errno::NotSup } else { Errno::NxIo };
        Flow::Done(Err(none))
    }

    /// A write is over: others may have its range, and the gate may close behind it.
    fn release(&self, bio: &Bio, core: &Core) {
        if !Self::is_gated(bio.op) {
            return;
        }
        let at = core.id() as usize;
        let held = self.0.core_state(at).take_held_range(bio.id().to_word());
        if let Some(held) = held {
            self.0.ranges.unlock(held);
        }
        self.0.gate.leave(at);
    }

    #[inline(never)]
    fn begin(&self, bio: &mut Bio, core: &Core) -> Flow {
        match bio.op {
            Op::Read => self.read(bio, core, 0),
            Op::Flush => self.send(bio, core),
            Op::Map => {
                let core_state = self.0.core_state(core.id() as usize);
                let edge = core_state.table.active().next().map(|(_, path)| path.edge);
                edge.map_or(Flow::Done(Err(Errno::NxIo)), |edge| Flow::Down(edge, 0))
            }
            op if Self::is_gated(op) => self.admit(bio, core),
            _ => Flow::Done(Err(Errno::NotSup)),
        }
    }

    #[inline(never)]
    fn end(&self, bio: &mut Bio, word: u64, core: &Core) -> Back {
        match bio.op {
            Op::Read if word & SOME_DID == 0 => self.read_done(bio, word, core),
            Op::Read if word as u32 != 0 => {
                bio.status = Err(Errno::Io);
                self.retry(bio, core, word as u32)
            }
            Op::Flush => self.written(bio, word, core),
            op if Self::is_gated(op) => self.written(bio, word, core),
            _ => Back::Up,
        }
    }

    fn report_failure(&self, slot: usize, error: Errno) {
        let gone = error == Errno::NxIo;
        self.0.post(super::shared::Message::Failed(MemberFailure { slot, gone }));
    }

    /// A member failed a write: it is reported when that has ended.
    #[cold]
    pub(super) fn record_failure(&self, bio: &Bio, slot: u32, error: Errno, core: &Core) {
        let mut core_state = self.0.core_state(core.id() as usize);
        let faults: &mut Faults = core_state.faults.entry(bio.id().to_word()).or_default();
        let bit = 1u32.checked_shl(slot).unwrap_or(0);
        match error {
            Errno::NxIo => faults.gone |= bit,
            _ => faults.broken |= bit,
        }
    }

    fn read_done(&self, bio: &mut Bio, word: u64, core: &Core) -> Back {
        let slot = (word >> SLOT_SHIFT & 0xff) as usize;
        self.0.loads(core.id() as usize).ended(slot);
        match bio.status {
            Err(e) if is_members_fault(e) => {
                self.report_failure(slot, e);
                self.retry(bio, core, word as u32 | 1 << slot)
            }
            _ => Back::Up,
        }
    }

    /// L3: a member that was not tried, if there is one.
    fn retry(&self, bio: &mut Bio, core: &Core, tried: u32) -> Back {
        match self.read(bio, core, tried) {
            Flow::Done(_) => Back::Up,
            flow => Back::Go(flow),
        }
    }

    fn written(&self, bio: &mut Bio, mut word: u64, core: &Core) -> Back {
        if word & UNABLE != 0
            && let Some(flow) = self.zero_others(bio, &mut word, core)
        {
            return Back::Go(flow);
        }
        let (failed, some) = (word as u32, word & SOME_DID != 0);
        let at = core.id() as usize;
        let faults = match failed {
            0 => None,
            _ => self.0.core_state(at).faults.remove(&bio.id().to_word()),
        };
        let mut faults = faults.unwrap_or_default();
        if bio.status == Err(Errno::NotSup) {
            // The sender of the request does it in another way.
            self.0.report_failures(faults);
            self.release(bio, core);
            return Back::Up;
        }
        if failed != 0 && some {
            if bio.status.is_err() {
                // L2: a failure on one member that succeeds on another is the member's fault.
                faults.broken |= failed & !faults.gone;
                bio.status = Ok(());
            }
            // L1
            if self.0.await_decision((at, bio.ticket()), failed, faults) {
                return Back::Go(Flow::Wait);
            }
        } else {
            self.0.report_failures(faults);
        }
        if failed != 0 && bio.status.is_ok() {
            bio.status = Err(Errno::Io);
        }
        self.release(bio, core);
        Back::Up
    }
}

/// A large read in parts, by all members at once.
fn split(bio: &mut Bio, core: &Core, ways: &[(usize, Edge)], parts: u64, sector: u64) -> Flow {
    let sector = sector.max(1);
    let each = bio.length.div_ceil(parts).div_ceil(sector) * sector;
    let (mut at, length, offset) = (0, bio.length, bio.offset);
    for (slot, edge) in ways.iter().cycle() {
        if at >= length {
            break;
        }
        let len = each.min(length - at);
        let mut fits = false;
        core.fork_with(bio, *edge, |bio, child| {
            child.offset = offset + at;
            child.length = len;
            fits = bio.data.slice_into(at as usize, len as usize, &mut child.data);
            child.mark = *slot as u32;
        });
        if !fits {
            return Flow::Done(Err(Errno::Inval));
        }
        at += len;
    }
    Flow::Fork(SOME_DID)
}

impl Layer for MirrorLayer {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if bio.op == Op::Read
            && let Some(flow) = self.read_at_once(bio, core)
        {
            return flow;
        }
        self.begin(bio, core)
    }

    /// The gate opened, the range is free, the bits are set, or the decision is made.
    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let (at, id) = (core.id() as usize, bio.id().to_word());
        let word = bio.frames.top_mut().map_or(0, |top| top.word);
        let marked = self.0.core_state(at).marking.remove(&id);
        if marked {
            let refused = self.0.was_refused(at, id);
            if refused {
                self.release(bio, core);
                return Flow::Done(Err(Errno::Io));
            }
            return self.send(bio, core);
        }
        if word & SOME_DID != 0 {
            let refused = self.0.was_refused(at, id);
            self.release(bio, core);
            return Flow::Done(if refused { Err(Errno::Io) } else { Ok(()) });
        }
        let has_range = self.0.core_state(at).held.iter().any(|(of, _)| *of == id);
        match has_range {
            true => self.send(bio, core),
            false => self.admit(bio, core),
        }
    }

    fn child_done(&self, parent: &mut Bio, child: &mut Bio, core: &Core) {
        let slot = child.mark;
        let member = {
            let core_state = self.0.core_state(core.id() as usize);
            core_state.table.paths.get(slot as usize).copied().flatten()
        };
        let mut bits = 0;
        match child.status {
            // L6
            Err(Errno::NotSup) if child.op == Op::WriteZeroes => {
                self.unable(parent, slot, core);
                bits = UNABLE;
            }
            // A member without a cache has nothing to flush.
            Ok(()) | Err(Errno::NotSup) if child.status.is_ok() || parent.op == Op::Flush => {
                if parent.op == Op::Read {
                    parent.completed += child.completed;
                } else {
                    parent.completed = parent.completed.max(child.completed);
                }
                // L4; and one that is being rebuilt cannot answer for the mirror.
                if member.is_some_and(|path| path.active) {
                    bits = SOME_DID;
                }
            }
            Err(e) if is_members_fault(e) => {
                bits = 1 << slot;
                match parent.op {
                    _ if member.is_none() => {}
                    Op::Read => self.report_failure(slot as usize, e),
                    // L5
                    _ => self.record_failure(parent, slot, e, core),
                }
            }
            Err(e) => {
                parent.fail(e);
                // A range of reads is read elsewhere only for a member's fault.
                if e != Errno::NotSup && parent.op != Op::Read {
                    bits = 1 << slot;
                }
            }
            Ok(()) => {}
        }
        if let Some(top) = parent.frames.top_mut() {
            top.word |= bits;
        }
    }

    fn done(&self, bio: &mut Bio, word: u64, core: &Core) -> Back {
        if bio.op == Op::Read && word & SOME_DID == 0 && bio.status.is_ok() {
            self.0.loads(core.id() as usize).ended((word >> SLOT_SHIFT) as usize);
            return Back::Up;
        }
        self.end(bio, word, core)
    }
}
