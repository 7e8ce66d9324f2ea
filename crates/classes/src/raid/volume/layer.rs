//! The data path of a volume.
//!
//! ```text
//!   read:   every piece's member is good --> down --> error? --> task: copies, or the row's rest
//!   write:  gate --> no redundancy: down             --> done
//!                \-> redundancy: task: all copies, or the row --> decision --> done
//! ```
//!
//! With parity DELETE is WRITE ZEROES: if some members of a row held the old data and some did not,
//! its parity would be wrong. It is offered where all members would read as zeroes after a DELETE.
//!
//! Plain reads, and writes without redundancy, allocate nothing here.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bio::{Attr, Bio, Errno, Flags, Op, Segs, append_range};
use geom::{Back, Core, Edge, Flow, Layer};

use super::lists::spots;
use super::map::{Piece, Spot};
use super::shared::{Path, Table, VolumeShared};
use super::task_util::{RequestContext, bit, is_members_fault};
use super::tasks::RequestTask;
use crate::members::{GateEntry, Loads};
use crate::raid::model::Level;

/// The word of a Bio that was cut; otherwise the original offset, and of a read the slot
/// in the bits that no offset has.
const CUT: u64 = u64::MAX;
const SLOT: u64 = 511;

/// Placement of the bytes of a volume, which every read needs: each at one place, copies at
/// different places of the members, or at the same place of all.
const SOLE: u8 = 0;
const SHIFTED: u8 = 1;
const SAME: u8 = 2;

/// The layer of a volume whose bytes lie in one of these ways.
pub(crate) struct VolumeLayer<const LIE: u8>(Arc<VolumeShared>);

pub(crate) fn layer(shared: Arc<VolumeShared>) -> Arc<dyn Layer> {
    match shared.shape.level {
        Level::Raid1 => Arc::new(VolumeLayer::<SAME>(shared)),
        _ if shared.shape.copies() > 1 => Arc::new(VolumeLayer::<SHIFTED>(shared)),
        _ => Arc::new(VolumeLayer::<SOLE>(shared)),
    }
}

impl<const LIE: u8> VolumeLayer<LIE> {
    const COPIES: bool = LIE != SOLE;

    fn is_gated(op: Op) -> bool {
        matches!(op, Op::Write | Op::Delete | Op::WriteZeroes)
    }

    fn is_redundant(&self) -> bool {
        self.0.shape.level.redundant()
    }

    /// The ways to a piece for a read, with slots and places in the members' parts; none: a task
    /// finds one.
    fn read_edges<'a>(
        &self,
        table: &'a Table,
        piece: Piece,
    ) -> impl Iterator<Item = (usize, &'a Path, u64)> {
        let shape = &self.0.shape;
        (0..shape.copies()).filter_map(move |nth| {
            let spot = shape.spot(piece.at, nth);
            Some((spot.slot, table.good(spot.slot)?, spot.at))
        })
    }

    /// The way that a read takes, and where copies are chosen from it is counted: to the least busy
    /// one.
    fn read_edge(&self, core: &Core, table: &Table, piece: Piece) -> Option<(usize, Edge, u64)> {
        let loads = self.0.loads(core.id());
        let mut ways = self.read_edges(table, piece);
        let chooses = Self::COPIES && self.0.is_consistent(piece.at.saturating_add(piece.len));
        let (slot, path, at) = match chooses {
            true => loads.least_busy(ways)?,
            false => ways.next()?,
        };
        if Self::COPIES {
            loads.begun(slot, at.saturating_add(piece.len));
        }
        Some((slot, path.edge, path.offset.saturating_add(at)))
    }

    /// The way of nearly every read where there are no copies, without a call: to a good member
    /// that has all of it; else [`Self::read`].
    #[inline(always)]
    fn read_at_once(&self, bio: &mut Bio, core: &Core) -> Option<Flow> {
        let (good, loads) = self.0.fast_path(core.id())?;
        let spot = self.0.shape.sole_at_once(bio.offset, bio.length)?;
        if good >> spot.slot & 1 == 0 {
            return None;
        }
        Some(down(bio, loads, spot))
    }

    /// The same where there are: to the least busy of those that are alike.
    #[inline(always)]
    fn read_copy_at_once(&self, bio: &mut Bio, core: &Core) -> Option<Flow> {
        let (good, loads) = self.0.fast_path(core.id())?;
        let (alike, at) = match LIE {
            SAME => (u64::MAX, bio.offset),
            _ => self.0.shape.alike(bio.offset, bio.length)?,
        };
        let mut among = alike & good;
        if !self.0.is_consistent(bio.offset.wrapping_add(bio.length)) {
            // The first copy that there is.
            among &= among.wrapping_neg();
        }
        if among == 0 {
            return None;
        }
        let slot = loads.take(among, at, at.wrapping_add(bio.length));
        Some(down(bio, loads, Spot { slot, at }))
    }

    /// The same on the way up.
    #[inline(always)]
    fn was_read(&self, bio: &mut Bio, was: u64, core: &Core) -> bool {
        if bio.op != Op::Read || was == CUT || bio.status.is_err() {
            return false;
        }
        self.has_ended(core, (was & SLOT) as usize);
        bio.offset = was & !SLOT;
        true
    }

    /// A read that [`Self::read_edge`] found a way for has ended.
    #[inline]
    fn has_ended(&self, core: &Core, slot: usize) {
        if Self::COPIES {
            self.0.loads(core.id()).ended(slot);
        }
    }

    fn read(&self, bio: &mut Bio, core: &Core) -> Flow {
        let Some(spot) = self.0.shape.sole(bio.offset, bio.length) else {
            return self.read_pieces(bio, core);
        };
        if !Self::COPIES
            && let Some((good, loads)) = self.0.fast_path(core.id())
            && good & bit(spot.slot) != 0
        {
            return down(bio, loads, spot);
        }
        let piece = Piece { at: bio.offset, len: bio.length, skip: 0 };
        let way = self.read_edge(core, &self.0.core_state(core.id()).table, piece);
        let Some((slot, edge, at)) = way else { return self.task(bio, core) };
        let was = bio.offset & !SLOT | slot as u64;
        bio.offset = at;
        Flow::Down(edge, was)
    }

    fn read_pieces(&self, bio: &mut Bio, core: &Core) -> Flow {
        let core_state = self.0.core_state(core.id());
        let mut pieces = self.0.shape.pieces(bio.offset, bio.length).peekable();
        if pieces.peek().is_none() {
            return Flow::Done(Err(Errno::Inval));
        }
        if pieces.any(|piece| self.read_edges(&core_state.table, piece).next().is_none()) {
            drop(core_state);
            return self.task(bio, core);
        }
        for piece in self.0.shape.pieces(bio.offset, bio.length) {
            let Some((slot, edge, at)) = self.read_edge(core, &core_state.table, piece) else {
                continue;
            };
            if !fork(bio, core, edge, at, piece, slot) {
                return Flow::Done(Err(Errno::Inval));
            }
        }
        Flow::Fork(CUT)
    }

    /// Of a READ or WRITE that a member failed: where, from the first byte of the request, if the
    /// member reports it and each byte is on one member.
    #[cold]
    fn bad_byte(&self, parent: &Bio, child: &Bio, core: &Core) -> Option<u64> {
        let Some(Attr::Int(bad)) = child.value.as_ref() else { return None };
        if self.is_redundant() || !parent.op.has_data() {
            return None;
        }
        let (shape, slot) = (&self.0.shape, child.mark as usize);
        let first = self.0.table(core.id()).good(slot)?.offset;
        let at = child.offset.checked_sub(first)?;
        let is_its = |piece: &Piece| {
            let spot = shape.spot(piece.at, 0);
            (spot.slot, spot.at) == (slot, at)
        };
        let piece = shape.pieces(parent.offset, parent.length).find(is_its)?;
        piece.skip.checked_add(*bad)
    }

    /// A write at the gate.
    fn admit(&self, bio: &mut Bio, core: &Core) -> Flow {
        if self.0.records_failed.load(Relaxed) {
            return Flow::Done(Err(Errno::Io));
        }
        if bio.op == Op::Delete && self.0.shape.parities() > 0 && !self.0.deletes.load(Relaxed) {
            return Flow::Done(Err(Errno::NotSup));
        }
        if self.0.gate.enter(core.id() as usize, || bio.ticket()) == GateEntry::Wait {
            return Flow::Wait;
        }
        self.0.count_write(core.id());
        if self.is_redundant() {
            return self.task(bio, core);
        }
        let flow = self.straight(bio, core);
        if matches!(flow, Flow::Done(_)) {
            self.0.gate.leave(core.id() as usize);
        }
        flow
    }

    /// A write that each byte's one member gets.
    fn straight(&self, bio: &mut Bio, core: &Core) -> Flow {
        if bio.is_scattered() {
            return self.straight_list(bio, core);
        }
        let table = self.0.table(core.id());
        let deletes = bio.op == Op::Delete;
        let (mut sent, mut skipped) = (false, 0);
        for piece in self.0.shape.pieces(bio.offset, bio.length) {
            let spot = self.0.shape.spot(piece.at, 0);
            let Some(path) = table.good(spot.slot) else { return Flow::Done(Err(Errno::NxIo)) };
            if deletes && !path.deletes {
                // DELETE promises nothing.
                skipped += piece.len;
                continue;
            }
            let at = path.offset.saturating_add(spot.at);
            if !fork(bio, core, path.edge, at, piece, spot.slot) {
                return Flow::Done(Err(Errno::Inval));
            }
            sent = true;
        }
        if !sent {
            return Flow::Done(Err(Errno::NotSup));
        }
        bio.completed = skipped;
        Flow::Fork(CUT)
    }

    /// The same for a DELETE of several ranges.
    #[cold]
    fn straight_list(&self, bio: &mut Bio, core: &Core) -> Flow {
        let (table, shape) = (self.0.table(core.id()), &self.0.shape);
        let mut lists = vec![Vec::new(); shape.members()];
        let (mut lost, mut skipped) = (false, 0);
        spots(shape, bio.ranges(), |copies, len| {
            let spot = copies.next();
            let path = spot.and_then(|spot| Some((spot, table.good(spot.slot)?)));
            match path {
                None => lost = true,
                // DELETE promises nothing.
                Some((_, path)) if !path.deletes => skipped += len,
                Some((spot, path)) => {
                    let at = path.offset.saturating_add(spot.at);
                    if let Some(list) = lists.get_mut(spot.slot) {
                        append_range(list, at..at.saturating_add(len));
                    }
                }
            }
        });
        if lost {
            return Flow::Done(Err(Errno::NxIo));
        }
        let (mut sent, mut broken) = (false, false);
        for (slot, list) in lists.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
            let Some(path) = table.good(slot) else { continue };
            core.fork_with(bio, path.edge, |_, child| broken |= !child.delete_ranges(list));
            sent = true;
        }
        match (broken, sent) {
            (true, _) => Flow::Done(Err(Errno::Inval)),
            (_, false) => Flow::Done(Err(Errno::NotSup)),
            _ => {
                bio.completed = skipped;
                Flow::Fork(CUT)
            }
        }
    }

    /// A question about a range of which only the first piece is answered, by the first member that
    /// has it. Without one, everything may be taken for mapped.
    fn map_first(&self, bio: &mut Bio, core: &Core) -> Flow {
        let Some(piece) = self.0.shape.pieces(bio.offset, bio.length).next() else {
            return Flow::Done(Err(Errno::Inval));
        };
        let core_state = self.0.core_state(core.id());
        let way = self.read_edges(&core_state.table, piece).next();
        let way = way.map(|(slot, path, at)| (slot, path.edge, path.offset.saturating_add(at)));
        drop(core_state);
        let Some((slot, edge, at)) = way else { return Flow::Done(Err(Errno::NotSup)) };
        match fork(bio, core, edge, at, piece, slot) {
            true => Flow::Fork(CUT),
            false => Flow::Done(Err(Errno::Inval)),
        }
    }

    fn flush(&self, bio: &mut Bio, core: &Core) -> Flow {
        if self.is_redundant() {
            return self.task(bio, core);
        }
        for (_, path) in self.0.table(core.id()).all() {
            core.fork(bio, path.edge, |_| ());
        }
        Flow::Fork(CUT)
    }

    /// A task does it. One that has passed the gate leaves it by the task's hand.
    fn task(&self, bio: &mut Bio, core: &Core) -> Flow {
        let gated = Self::is_gated(bio.op);
        let mut data = Segs::new();
        let taken = !bio.op.has_data() || bio.data.slice_into(0, bio.data.len(), &mut data);
        let (Some(core), true) = (core.handle(), taken) else {
            if gated {
                self.0.gate.leave(core.id() as usize);
            }
            return Flow::Done(Err(Errno::NxIo));
        };
        let work = RequestTask {
            core: core.clone(),
            shared: self.0.clone(),
            context: RequestContext {
                flags: bio.flags.without(Flags::FAIL_FAST),
                origin: bio.origin,
            },
            op: bio.op,
            offset: bio.offset,
            length: bio.length,
            ranges: if bio.is_scattered() { bio.ranges().collect() } else { Vec::new() },
            data,
        };
        let ticket = bio.ticket();
        core.reactor().clone().spawn("raid request", async move {
            let status = match work.op {
                Op::Read => work.read().await,
                Op::Flush => work.flush().await,
                _ => work.write().await,
            };
            let RequestTask { core, shared, .. } = work;
            if gated {
                shared.gate.leave(core.id() as usize);
            }
            core.resume(ticket, Flow::Done(status));
        });
        Flow::Wait
    }

    /// Everything but a read of the fast path. `cold` does not mean that it is rare. Otherwise the
    /// compiler keeps values that a call would destroy in registers that every read would have to
    /// save.
    #[cold]
    #[inline(never)]
    fn begin(&self, bio: &mut Bio, core: &Core) -> Flow {
        match bio.op {
            Op::Read => self.read(bio, core),
            Op::Flush => self.flush(bio, core),
            Op::Map => self.map_first(bio, core),
            op if Self::is_gated(op) => self.admit(bio, core),
            _ => Flow::Done(Err(Errno::NotSup)),
        }
    }

    /// The same on the way up.
    #[cold]
    #[inline(never)]
    fn end(&self, bio: &mut Bio, was: u64, core: &Core) -> Back {
        if was != CUT && bio.op.has_range() {
            bio.offset = was & !SLOT;
            if bio.op == Op::Read {
                self.has_ended(core, (was & SLOT) as usize);
            }
        }
        if Self::is_gated(bio.op) {
            self.0.gate.leave(core.id() as usize);
            return Back::Up;
        }
        match bio.status {
            Err(e) if bio.op == Op::Read && self.is_redundant() && is_members_fault(e) => {
                // The request was on one member: an error of the task has no single place.
                bio.value = None;
                Back::Go(self.task(bio, core))
            }
            _ => Back::Up,
        }
    }
}

/// To a spot of a member; the word is the source.
#[inline(always)]
fn down(bio: &mut Bio, loads: &Loads, spot: Spot) -> Flow {
    let was = bio.offset & !SLOT | spot.slot as u64;
    let (edge, first) = loads.way(spot.slot);
    // Both are on the disk: there is nothing to saturate.
    bio.offset = first.wrapping_add(spot.at);
    Flow::Down(edge, was)
}

fn fork(bio: &mut Bio, core: &Core, edge: Edge, at: u64, piece: Piece, slot: usize) -> bool {
    let mut fits = true;
    core.fork_with(bio, edge, |bio, child| {
        child.offset = at;
        child.length = piece.len;
        if bio.op.has_data() {
            let (skip, len) = (piece.skip as usize, piece.len as usize);
            fits = bio.data.slice_into(skip, len, &mut child.data);
        }
        child.mark = slot as u32;
    });
    fits
}

impl<const LIE: u8> Layer for VolumeLayer<LIE> {
    /// Zeroes, which is what DELETE is with parity, are of one range.
    fn delete_ranges(&self) -> u32 {
        if self.0.shape.parities() > 0 { 1 } else { u32::MAX }
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if bio.op != Op::Read {
            return self.begin(bio, core);
        }
        let flow = match Self::COPIES {
            true => self.read_copy_at_once(bio, core),
            false => self.read_at_once(bio, core),
        };
        match flow {
            Some(flow) => flow,
            None => self.begin(bio, core),
        }
    }

    /// The gate opened.
    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        self.admit(bio, core)
    }

    fn child_done(&self, parent: &mut Bio, child: &mut Bio, core: &Core) {
        if parent.op == Op::Read {
            self.has_ended(core, child.mark as usize);
        }
        match child.status {
            Ok(()) => {
                parent.completed += child.completed;
                if parent.op == Op::Map {
                    parent.value = child.value.take();
                }
            }
            // Nothing to flush there.
            Err(Errno::NotSup) if parent.op == Op::Flush => {}
            Err(e) => {
                if parent.status.is_ok() {
                    parent.value = self.bad_byte(parent, child, core).map(Attr::Int);
                }
                parent.fail(e);
            }
        }
    }

    fn done(&self, bio: &mut Bio, was: u64, core: &Core) -> Back {
        if self.was_read(bio, was, core) {
            return Back::Up;
        }
        self.end(bio, was, core)
    }
}
