//! Requests that are cut into more pieces than one wave, and the requests that wait for them.
//!
//! Invariants
//!  C1  While a request has pieces left to send, a later one with ORDERED waits in front of the
//!      same edge. So do all requests after that. While the cut one is ORDERED itself,
//!      everything later waits. So below an edge all pieces of a request are before, or after,
//!      every piece of a request with ORDERED. No other request waits.
//!  C2  A request that waits here has not entered: no meter, no gate counts it, only the drain of
//!      its edge. When no piece is left to send, the waiting requests enter in the order of their
//!      arrival, after the pieces.
//!
//! A request through another edge is not held back: pieces that have not been sent are not in the
//! disk's queue yet.

use std::collections::VecDeque;

use bio::{Bio, BioId, End, Flags};

use super::dispatch::Admit;
use super::{Core, Go, Work};
use crate::layer::Edge;

/// A request with pieces left to send.
struct OpenSplit {
    edge: u32,
    parent: BioId,
    ordered: bool,
}

#[derive(Default)]
pub(super) struct Splits {
    open: Vec<OpenSplit>,
    /// In the order of arrival; `Bio::edge` is the edge where each waits.
    behind: VecDeque<Box<Bio>>,
}

impl Core {
    /// C1: whether a request that was admitted has to wait for one that is being cut.
    #[cold]
    pub(super) fn behind_splits(&self, bio: &Bio, admitted: Admit) -> Admit {
        let cuts = self.splits.borrow();
        let on_edge = |cut: &&OpenSplit| cut.edge == bio.edge;
        let own = |cut: &OpenSplit| bio.end == End::Parent(cut.parent);
        if !cuts.open.iter().any(|cut| on_edge(&cut)) || cuts.open.iter().filter(on_edge).any(own) {
            return admitted;
        }
        let waits = bio.flags.has(Flags::ORDERED)
            || cuts.open.iter().filter(on_edge).any(|cut| cut.ordered)
            || cuts.behind.iter().any(|other| other.edge == bio.edge);
        if waits { Admit::Behind } else { admitted }
    }

    pub(super) fn enqueue_behind(&self, bio: Box<Bio>) {
        self.splits.borrow_mut().behind.push_back(bio);
    }

    /// Notes that a request has pieces left to send, or has none; then C2. How many requests it
    /// put at the end of the queue.
    #[cold]
    pub(super) fn note_split(&self, bio: &Bio, edge: Edge, more: bool) -> usize {
        let mut cuts = self.splits.borrow_mut();
        let mut entering = 0;
        let known = cuts.open.iter().position(|cut| cut.parent == bio.id());
        match (known, more) {
            (None, true) => {
                let ordered = bio.flags.has(Flags::ORDERED);
                cuts.open.push(OpenSplit { edge: edge.0, parent: bio.id(), ordered });
            }
            (Some(at), false) => {
                cuts.open.swap_remove(at);
                if !cuts.open.iter().any(|cut| cut.edge == edge.0) {
                    entering = self.release_behind(&mut cuts, edge.0);
                }
            }
            _ => {}
        }
        self.splitting.set(!cuts.open.is_empty());
        entering
    }

    fn release_behind(&self, cuts: &mut Splits, edge: u32) -> usize {
        let all = std::mem::take(&mut cuts.behind);
        let (now, later): (VecDeque<_>, _) = all.into_iter().partition(|bio| bio.edge == edge);
        cuts.behind = later;
        let entering = now.len();
        let enter = |bio| Work { bio, go: Go::Enter(Edge(edge)) };
        self.ready.borrow_mut().extend(now.into_iter().map(enter));
        entering
    }

    /// Requests that wait in front of an edge.
    pub(super) fn waiting_behind(&self, edge: u32) -> usize {
        self.splits.borrow().behind.iter().filter(|bio| bio.edge == edge).count()
    }
}
