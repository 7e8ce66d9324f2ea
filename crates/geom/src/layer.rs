//! Contract between the dispatcher and a layer, which carries out a class's work on a Bio.

use bio::{Bio, Errno, Status};

use crate::core::Core;

/// A consumer's number: the path from a layer (or an originator) down to a provider. It carries the
/// slot and the generation of the slot's tenant. So a number that was kept for too long ends
/// requests with ENXIO and does not lead to another provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Edge(pub u32);

impl Edge {
    /// The number of no consumer.
    pub(crate) const NO_EDGE: Edge = Edge(u32::MAX);
    const SLOT_BITS: u32 = 20;
    /// Slots that numbers can name; the last is [`Edge::NOWHERE`]'s.
    pub(crate) const SLOTS: usize = (1 << Edge::SLOT_BITS) - 1;

    /// The number of a slot's tenant. Numbers of tenants wrap around after 4096.
    pub(crate) const fn new(slot: usize, tenant: u32) -> Edge {
        Edge((tenant << Edge::SLOT_BITS) | slot as u32)
    }

    /// The consumer's slot: its index in tables, used again when it is removed.
    #[inline(always)]
    pub const fn slot(self) -> usize {
        (self.0 & ((1 << Edge::SLOT_BITS) - 1)) as usize
    }

    /// Which tenant, counted from zero.
    pub(crate) const fn tenant(self) -> u32 {
        self.0 >> Edge::SLOT_BITS
    }
}

/// A layer's decision about a Bio that it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Continue below through this edge; hand the word back to [`Layer::done`].
    Down(Edge, u64),
    /// Children made with [`Core::fork`] run below; `done` is called once, with this word, when
    /// the last one has ended.
    Fork(u64),
    /// It ends here.
    Done(Status),
    /// It continues when the newest [`bio::Ticket`] of the Bio is used: by an operation or timer
    /// that the layer started, or by [`Core::resume`]. Older tickets are void.
    Wait,
}

/// A layer's decision about a Bio that has returned from below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Back {
    /// Pass it up as it is.
    Up,
    /// Do something else first; the status is reset.
    Go(Flow),
}

/// The data path of one provider.
///
/// `start` receives every request; everything that it changed in the Bio it puts back in `done`. No
/// method may block, and none is called with a lock held.
pub trait Layer: Send + Sync + 'static {
    /// A Bio arrives. Access, error, range and size were checked by the dispatcher.
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow;

    /// Ranges of one DELETE that it takes; one with more is cut before it arrives. A layer that
    /// passes a DELETE on unchanged, or moved by a constant, returns `u32::MAX`.
    fn delete_ranges(&self) -> u32 {
        1
    }

    /// An operation of the core that carried the Bio's id ended (`result` is bytes moved).
    fn ready(&self, bio: &mut Bio, result: Result<u64, Errno>, core: &Core) -> Flow {
        let _ = core;
        Flow::Done(match result {
            Ok(n) if bio.op.has_data() && n < bio.length => Err(Errno::Io),
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        })
    }

    /// A Bio that was sent down has returned; `bio.status` is its result.
    fn done(&self, bio: &mut Bio, word: u64, core: &Core) -> Back {
        let _ = (bio, word, core);
        Back::Up
    }

    /// One child ended. The default: the first error wins, bytes add up.
    fn child_done(&self, parent: &mut Bio, child: &mut Bio, core: &Core) {
        let _ = core;
        match child.status {
            Ok(()) => parent.completed += child.completed,
            Err(e) => parent.fail(e),
        }
    }
}

/// A receiver of Bios that ended: [`bio::End::Sink`].
pub trait Sink {
    /// The Bio ended. Its buffers return to the pool after the call unless they are taken out.
    fn done(&self, tag: u64, bio: &mut Bio, core: &Core);
}
