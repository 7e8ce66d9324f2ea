//! The loop that takes Bios through layers. Never recursion: depth costs no stack.
//!
//! ```text
//!            enter(edge)                     Down(edge)
//!   submit ------------> admit --> start ----------------> enter(edge) ...
//!                          |         |  Wait: parked in the slab until resume
//!                 refused, |         |  Fork: parked until the last child has ended
//!                 empty    |         |  Done
//!                          v         v
//!                        return <- leave (frame off, accounts)
//!                          |
//!                          +--> done() of the layer above: Up -> leave, Go(flow) -> act
//!                          +--> no frame left: deliver to parent, task or sink
//! ```
//!
//! Invariants
//!  D1  A layer's `start` runs only after access, sticky error, range, gate and size were checked.
//!  D2  A request that a layer has ended counts there once: see `inflight.rs`.
//!  D3  `NoMem` never reaches the originator: the request enters the same edge again later.
//!  D4  A child starts only after its parent's layer has answered; one whose parent was ended
//!      instead does not start.
//!  D5  A request at the end of the medium is cut, exactly at the end it is an empty success,
//!      beyond it is `Io`. Misaligned it is `Inval` (docs/reference/geom.md 1.7).
//!  D6  A Bio that waits continues by the newest ticket made for it, once; nothing older wakes it.
//!  D7  The pieces of a request that is cut take its place in the queue: no later request enters
//!      before or between them. Of more than one wave this holds for the first; see `split.rs`.
//!  D8  The operation, ranges and data of a request stay unchanged while layers pass it on; a layer
//!      moves its offset alone. So whether it is whole is checked once a descent.

use std::collections::VecDeque;
use std::ops::Range;

use bio::{Attr, Bio, BioId, End, Errno, Frame, LastRequest, Op, Status, Ticket};

use super::inflight::passed;
use super::table::{EdgeSlot, NodeSlot, Table};
use super::{Core, Delay, Go, NOMEM_RETRY_NS, SPLIT_NODE, SPLIT_WAVE, Work};
use crate::layer::{Back, Edge, Flow};
use crate::snapshot::{ORPHAN, is_open, required_flag};

pub(super) enum Admit {
    In,
    End(Status),
    Park,
    Split,
    /// D7: it waits until an earlier request has sent its pieces.
    Behind,
}

/// What to do next with a Bio that is out of the slab.
enum Next {
    Enter(Edge),
    Act(Flow),
    Return,
    /// It is parked, delivered or has another owner now.
    Gone,
}

impl Core {
    /// Runs a Bio, then all that became ready meanwhile. From inside itself it only queues.
    pub(super) fn run_one(&self, bio: Box<Bio>, go: Go) {
        if self.running.get() {
            self.ready.borrow_mut().push_back(Work { bio, go });
            return;
        }
        self.running.set(true);
        {
            let table = self.table.borrow();
            self.walk(&table, bio, go);
            self.walk_ready(&table);
        }
        self.running.set(false);
    }

    /// Runs until no Bio is ready. Does nothing when called from inside itself.
    pub(super) fn run(&self) {
        if self.ready.borrow().is_empty() || self.running.replace(true) {
            return;
        }
        self.walk_ready(&self.table.borrow());
        self.running.set(false);
    }

    fn walk_ready(&self, table: &Table) {
        loop {
            let next = self.ready.borrow_mut().pop_front();
            let Some(Work { bio, go }) = next else { return };
            self.walk(table, bio, go);
        }
    }

    pub(super) fn operation_ended(&self, ticket: Ticket, result: Result<u64, Errno>) {
        let Some(mut bio) = self.slab.borrow_mut().wake(ticket) else {
            return;
        };
        // As if from the loop: requests that the layer forks or submits here start after its
        // answer.
        let running = self.running.replace(true);
        let flow = self.resume_layer(&self.table.borrow(), &mut bio, result);
        self.running.set(running);
        self.run_one(bio, Go::Act(flow));
    }

    /// Resumes the layer that holds a Bio, after its wait.
    #[inline]
    fn resume_layer(&self, table: &Table, bio: &mut Bio, result: Result<u64, Errno>) -> Flow {
        let node = bio.frames.top_mut().and_then(|f| table.node(f.node));
        match node {
            Some(n) => n.layer.ready(bio, result, self),
            None => Flow::Done(Err(Errno::NxIo)),
        }
    }

    /// Takes one Bio as far as possible.
    fn walk(&self, table: &Table, mut bio: Box<Bio>, go: Go) {
        LastRequest { op: bio.op, offset: bio.offset, len: bio.length }.record();
        let mut next = match go {
            Go::Enter(edge) => Next::Enter(edge),
            Go::Act(flow) => Next::Act(flow),
            Go::Resume => Next::Act(self.resume_layer(table, &mut bio, Ok(0))),
        };
        let mut held = Some(bio);
        // The tests are in the order of most requests, down and up, so that the next step is
        // predicted. A `match` would be a jump by a table for each.
        loop {
            if let Next::Enter(edge) = next {
                next = self.descend(table, &mut held, edge);
            }
            if let Next::Act(flow) = next {
                next = self.act(table, &mut held, flow);
            }
            if let Next::Return = next {
                next = self.ascend(table, &mut held);
            }
            if let Next::Gone = next {
                return;
            }
        }
    }

    /// Down through layers for as long as they pass it on.
    #[inline]
    fn descend(&self, table: &Table, held: &mut Option<Box<Bio>>, mut edge: Edge) -> Next {
        let Some(bio) = held.as_deref_mut() else {
            return Next::Gone;
        };
        // D8
        let closely = self.splitting.get() || !is_complete(bio);
        loop {
            bio.edge = edge.0;
            let Some(e) = table.edge(edge.0) else {
                bio.status = Err(Errno::NxIo);
                return Next::Return;
            };
            let node = &*e.node;
            debug_assert!(closely || is_complete(bio), "D8");
            if closely || !is_plain(e, bio) {
                let mut admitted = admit(e, bio);
                if self.splitting.get() && matches!(admitted, Admit::In | Admit::Split) {
                    admitted = self.behind_splits(bio, admitted);
                }
                if !matches!(admitted, Admit::In) {
                    return self.stop(table, held, e, admitted);
                }
            }
            let flow = node.layer.start(bio, self);
            if bio.open_children != 0 && matches!(flow, Flow::Done(_) | Flow::Down(..)) {
                self.recall(bio);
            }
            let word = match flow {
                Flow::Down(_, word) | Flow::Fork(word) => word,
                Flow::Done(status) if status != Err(Errno::NoMem) => {
                    ended(bio, status);
                    passed(e, bio);
                    return Next::Return;
                }
                Flow::Done(_) | Flow::Wait => 0,
            };
            if !bio.frames.push(Frame { edge: edge.0, node: node.index, word, start_ns: 0 }) {
                bio.status = Err(Errno::DeadLk);
                passed(e, bio);
                return Next::Return;
            }
            match flow {
                Flow::Down(below, _) => edge = below,
                other => return Next::Act(other),
            }
        }
    }

    /// What becomes of a request that does not enter a layer now.
    #[cold]
    #[inline(never)]
    fn stop(
        &self,
        table: &Table,
        held: &mut Option<Box<Bio>>,
        e: &EdgeSlot,
        admitted: Admit,
    ) -> Next {
        let Some(bio) = held.as_deref_mut() else {
            return Next::Gone;
        };
        let edge = bio.edge;
        match admitted {
            Admit::In => Next::Enter(Edge(edge)),
            Admit::Behind => {
                if let Some(mut bio) = held.take() {
                    self.count_in(table, &mut bio);
                    self.enqueue_behind(bio);
                }
                Next::Gone
            }
            Admit::End(status) => {
                bio.status = status;
                Next::Return
            }
            Admit::Park => {
                if let Some(mut bio) = held.take() {
                    self.count_in(table, &mut bio);
                    self.parked.borrow_mut().entry(e.node.index).or_default().push_back(bio);
                }
                Next::Gone
            }
            Admit::Split => {
                let frame = Frame { edge, node: SPLIT_NODE, word: 0, start_ns: 0 };
                if !bio.frames.push(frame) {
                    bio.status = Err(Errno::DeadLk);
                    return Next::Return;
                }
                self.split_more(table, held)
            }
        }
    }

    /// Carries out a layer's decision about a Bio whose frame is on the stack.
    fn act(&self, table: &Table, held: &mut Option<Box<Bio>>, flow: Flow) -> Next {
        let Some(bio) = held.as_deref_mut() else {
            return Next::Gone;
        };
        match flow {
            Flow::Down(edge, word) => {
                self.recall(bio);
                if let Some(top) = bio.frames.top_mut() {
                    top.word = word;
                }
                Next::Enter(edge)
            }
            Flow::Done(Err(Errno::NoMem)) => {
                self.recall(bio);
                if let Some(bio) = held.take() {
                    self.retry_later(table, bio);
                }
                Next::Gone
            }
            Flow::Done(status) => {
                self.recall(bio);
                ended(bio, status);
                if let Some(frame) = bio.frames.top() {
                    let since = bio.frames.pop();
                    if let Some(e) = table.inside(frame.edge) {
                        self.account(e, since, bio);
                    }
                }
                Next::Return
            }
            Flow::Fork(word) => {
                if let Some(top) = bio.frames.top_mut() {
                    top.word = word;
                }
                // D6: tickets made before the children do not wake this Bio.
                let _ = bio.ticket();
                if bio.open_children == 0 { Next::Return } else { self.park(table, held) }
            }
            Flow::Wait => {
                debug_assert!(bio.open_children == 0, "children end a Fork, not a Wait");
                self.park(table, held)
            }
        }
    }

    fn park(&self, table: &Table, held: &mut Option<Box<Bio>>) -> Next {
        if let Some(mut bio) = held.take() {
            self.count_in(table, &mut bio);
            self.slab.borrow_mut().park(bio);
        }
        Next::Gone
    }

    /// Ascends through layers as long as they add no work; then delivers the result to its
    /// receiver.
    #[inline]
    fn ascend(&self, table: &Table, held: &mut Option<Box<Bio>>) -> Next {
        let Some(bio) = held.as_deref_mut() else {
            return Next::Gone;
        };
        while let Some(frame) = bio.frames.top() {
            if frame.node == SPLIT_NODE {
                return self.split_more(table, held);
            }
            let Some(e) = table.inside(frame.edge) else {
                bio.frames.pop();
                continue;
            };
            if let Back::Go(flow) = e.node.layer.done(bio, frame.word, self) {
                bio.completed = 0;
                bio.status = Ok(());
                return Next::Act(flow);
            }
            let since = bio.frames.pop();
            self.account(e, since, bio);
        }
        self.deliver(table, held)
    }

    /// Sends the next pieces of a split request; ends it when none is left.
    fn split_more(&self, table: &Table, held: &mut Option<Box<Bio>>) -> Next {
        let Some(bio) = held.as_deref_mut() else {
            return Next::Gone;
        };
        let Some(frame) = bio.frames.top_mut() else {
            return Next::Return;
        };
        let (edge, mut sent) = (Edge(frame.edge), frame.word);
        let node = table.edge(edge.0).map(|e| &e.node);
        let max = node.and_then(|n| piece_max(n, bio.op)).unwrap_or(bio.length).max(1);
        let most = if bio.is_scattered() { node.map_or(1, |n| ranges_max(n, bio.op)) } else { 1 };
        let all = bio.bytes();
        let mut pieces = 0;
        while sent < all && pieces < SPLIT_WAVE && bio.status.is_ok() {
            if most > 1 {
                sent += self.send_list(bio, edge, &bio.pieces(sent, max, most));
            } else {
                let Some((at, n)) = bio.piece(sent, max) else { break };
                // One beyond the end of the data would end with `Inval` at its edge.
                self.fork_with(bio, edge, |bio, child| {
                    child.flags = bio.flags;
                    child.offset = at;
                    child.length = n;
                    if bio.op.has_data() {
                        let _ = bio.data.slice_into(sent as usize, n as usize, &mut child.data);
                    }
                });
                sent += n;
            }
            pieces += 1;
        }
        if let Some(frame) = bio.frames.top_mut() {
            frame.word = sent;
        }
        let more = pieces != 0 && sent < all;
        let mut first = pieces as usize;
        if more || self.splitting.get() {
            first += self.note_split(bio, edge, more);
        }
        // D7: the pieces enter the queue before all later requests.
        self.ready.borrow_mut().rotate_right(first);
        if pieces == 0 {
            let since = bio.frames.pop();
            self.pieces_ended(edge, since, bio);
            return Next::Return;
        }
        self.park(table, held)
    }

    /// Several ranges of a DELETE as one piece; how many bytes they are.
    #[cold]
    fn send_list(&self, bio: &mut Bio, edge: Edge, list: &[Range<u64>]) -> u64 {
        self.fork_with(bio, edge, |bio, child| {
            child.flags = bio.flags;
            let in_order = child.delete_ranges(list);
            debug_assert!(in_order, "a part of a list in order is in order");
        });
        list.iter().map(|r| r.end - r.start).sum()
    }

    fn deliver(&self, table: &Table, held: &mut Option<Box<Bio>>) -> Next {
        let Some(mut bio) = held.take() else {
            return Next::Gone;
        };
        match bio.end {
            End::NoReceiver => {}
            End::Task(slot) => self.waiting.borrow_mut().end(slot, &mut bio),
            End::Sink { sink, tag } => {
                let receiver = self.sinks.borrow().get(sink);
                if let Some(receiver) = receiver {
                    receiver.done(tag, &mut bio, self);
                }
            }
            End::Parent(id) => return self.child_ended(table, bio, id, held),
        }
        self.slab.borrow_mut().free(bio);
        Next::Gone
    }

    /// Notifies the parent; continues with it when this was its last child.
    fn child_ended(
        &self,
        table: &Table,
        mut child: Box<Bio>,
        id: BioId,
        held: &mut Option<Box<Bio>>,
    ) -> Next {
        let parent = self.slab.borrow_mut().take(id);
        let Some(mut parent) = parent else {
            self.slab.borrow_mut().free(child);
            return Next::Gone;
        };
        let node = parent.frames.top_mut().and_then(|f| table.node(f.node));
        match node {
            Some(n) => n.layer.child_done(&mut parent, &mut child, self),
            None => match child.status {
                Ok(()) => parent.completed += child.completed,
                Err(e) => fail_at(&mut parent, &child, e),
            },
        }
        parent.open_children = parent.open_children.saturating_sub(1);
        let mut slab = self.slab.borrow_mut();
        slab.free(child);
        if parent.open_children == 0 {
            *held = Some(parent);
            return Next::Return;
        }
        slab.park(parent);
        Next::Gone
    }

    /// Takes back the children that were forked and have not started: the layer changed its mind.
    fn recall(&self, parent: &mut Bio) {
        if parent.open_children == 0 {
            return;
        }
        let (end, mut slab) = (End::Parent(parent.id()), self.slab.borrow_mut());
        let mut kept = VecDeque::new();
        for work in self.ready.borrow_mut().drain(..) {
            if work.bio.end == end && matches!(work.go, Go::Enter(_)) {
                parent.open_children = parent.open_children.saturating_sub(1);
                slab.free(work.bio);
            } else {
                kept.push_back(work);
            }
        }
        *self.ready.borrow_mut() = kept;
    }

    /// D3: gives the frame back and enters the same edge again after a while.
    fn retry_later(&self, table: &Table, mut bio: Box<Bio>) {
        if let Some(frame) = bio.frames.top() {
            let counted = bio.frames.pop().is_some();
            if let Some(e) = table.edge(frame.edge).filter(|_| counted) {
                e.meter.leave(self.now(), &e.node.queue);
            }
            bio.edge = frame.edge;
        }
        self.count_in(table, &mut bio);
        bio.status = Ok(());
        let ticket = bio.ticket();
        self.slab.borrow_mut().park(bio);
        self.delay(NOMEM_RETRY_NS, Delay { ticket, flow: Flow::Wait, again: true });
    }
}

/// A piece of a request failed: where, as the request counts.
#[cold]
fn fail_at(parent: &mut Bio, piece: &Bio, error: Errno) {
    if parent.status.is_ok() && !parent.is_scattered() {
        parent.value = match piece.value {
            Some(Attr::Int(at)) => {
                Some(Attr::Int(piece.offset.saturating_sub(parent.offset).saturating_add(at)))
            }
            _ => None,
        };
    }
    parent.fail(error);
}

/// Notes how a layer ended a Bio; all of it is done when it ended well.
#[inline]
fn ended(bio: &mut Bio, status: Status) {
    bio.status = status;
    if status.is_ok() && bio.completed == 0 && bio.op.has_range() {
        bio.completed = bio.bytes();
    }
}

/// True when [`admit`] would find nothing in the request itself, at any node: it is one
/// range, and its data is as long.
#[inline(always)]
fn is_complete(bio: &Bio) -> bool {
    (!bio.op.has_data() || bio.length == bio.data.len() as u64) && !bio.is_scattered()
}

/// True when [`admit`] would let a request that [`is_complete`] in without changing it: one look
/// for nearly all.
#[inline(always)]
fn is_plain(e: &EdgeSlot, bio: &Bio) -> bool {
    let node = &*e.node;
    let (offset, length, end) = (bio.offset, bio.length, node.plain_end.get());
    e.state.permits(bio.op)
        && (offset | length) & node.mask == 0
        // An empty one is none.
        && length.wrapping_sub(1) < node.longest[bio.op as usize]
        && offset <= end
        && length <= end - offset
}

/// The checks between any two layers (D1, D5), in GEOM's order.
#[cold]
#[inline(never)]
fn admit(e: &EdgeSlot, bio: &mut Bio) -> Admit {
    let flags = e.state.flags();
    if !is_open(flags, bio.op) {
        return Admit::End(Err(refusal(e, flags, required_flag(bio.op))));
    }
    let node = &*e.node;
    if node.is_closed() {
        return Admit::Park;
    }
    if bio.op.has_range() {
        return check_range(node, bio);
    }
    if bio.op == Op::GetAttr
        && let Some((_, value)) = node.attrs.iter().find(|(name, _)| *name == bio.attr)
    {
        bio.value = Some(value.clone());
        return Admit::End(Ok(()));
    }
    Admit::In
}

#[cold]
fn refusal(e: &EdgeSlot, flags: u8, need: u8) -> Errno {
    if flags & need == 0 && flags & ORPHAN == 0 {
        return Errno::Perm;
    }
    match e.node.state.error() {
        Some(error) => error,
        None => Errno::NxIo,
    }
}

fn check_range(node: &NodeSlot, bio: &mut Bio) -> Admit {
    let media = node.limits.media_bytes;
    if media == 0 {
        return Admit::End(Err(Errno::NxIo));
    }
    let misaligned = if node.odd_sector {
        let sector = u64::from(node.limits.sector_bytes).max(1);
        !bio.offset.is_multiple_of(sector) || !bio.length.is_multiple_of(sector)
    } else {
        (bio.offset | bio.length) & node.mask != 0
    };
    if bio.is_scattered() {
        return check_ranges(node, bio);
    }
    if misaligned || (bio.op.has_data() && bio.length != bio.data.len() as u64) {
        return Admit::End(Err(Errno::Inval));
    }
    if bio.offset > media {
        return Admit::End(Err(Errno::Io));
    }
    let left = media - bio.offset;
    if bio.length > left {
        bio.length = left;
        if bio.op.has_data() {
            bio.data.truncate(left as usize);
        }
    }
    if bio.length == 0 {
        return Admit::End(Ok(()));
    }
    match piece_max(node, bio.op) {
        Some(max) if bio.length > max => Admit::Split,
        _ => Admit::In,
    }
}

/// The same for several ranges: each of them. Zeroes are always cut (X2 of `bio::scatter`).
#[cold]
#[inline(never)]
fn check_ranges(node: &NodeSlot, bio: &mut Bio) -> Admit {
    let (media, sector) = (node.limits.media_bytes, u64::from(node.limits.sector_bytes).max(1));
    let aligned = |at: u64| at.is_multiple_of(sector);
    if !matches!(bio.op, Op::Delete | Op::WriteZeroes)
        || !bio.ranges().all(|r| aligned(r.start) && aligned(r.end))
    {
        return Admit::End(Err(Errno::Inval));
    }
    if bio.offset > media {
        return Admit::End(Err(Errno::Io));
    }
    bio.cut_off(media - bio.offset);
    if bio.length == 0 {
        return Admit::End(Ok(()));
    }
    let most = ranges_max(node, bio.op);
    let long = piece_max(node, bio.op).is_some_and(|max| bio.bytes() > max);
    if bio.range_count() > most || long { Admit::Split } else { Admit::In }
}

/// Ranges of one request that the layer takes: several of a DELETE alone (X2 of `bio::scatter`).
#[inline]
fn ranges_max(node: &NodeSlot, op: Op) -> usize {
    let taken = if op == Op::Delete { node.layer.delete_ranges() } else { 1 };
    usize::try_from(taken).unwrap_or(usize::MAX).max(1)
}

/// Largest piece the layer takes, a multiple of its sector; `None` when it takes any.
fn piece_max(node: &NodeSlot, op: Op) -> Option<u64> {
    Some(node.longest[op as usize]).filter(|max| *max != u64::MAX)
}
