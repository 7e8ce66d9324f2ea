//! Requests under way on one connection.
//!
//! ```text
//!   FREE --put--> OPEN --issue--> at the engine --respond: GOOD--> next piece, or answered: FREE
//!                  ^                  |
//!                  +-- again <--------+  unit attention, aborted by others; TRIES_MAX times
//!                  +-- later <--------+  unit not ready, after a pause; for READY_WAIT_NS
//! ```
//! A request that is too large for one command is sent in pieces. A large WRITE arrives piece by
//! piece too: its pieces are requests of their own, and their parent is answered after the last.
//!
//! Invariants
//!  Q1  A place that is open is answered exactly once, or the connection ends.
//!  Q2  Write data is held until the command has ended: it can be sent to the engine again.

use bio::Segs;
use wire::nbd::{Error, Request};

use super::patch::Patch;

/// Purpose of a command within a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    /// Waits for its pieces; nothing of its own.
    #[default]
    Parent,
    Read,
    Write,
    /// UNMAP.
    Trim,
    /// WRITE SAME; true when blocks may be freed.
    Zero(bool),
    /// SYNCHRONIZE CACHE.
    Flush,
    /// PRE-FETCH.
    Cache,
    /// GET LBA STATUS.
    Status,
    /// READ of a block that is to be changed in part.
    Fetch,
    /// COMPARE AND WRITE of that block.
    Swap,
}

impl Work {
    /// It changes the medium, or is a step of what does.
    pub fn writes(self) -> bool {
        matches!(self, Work::Write | Work::Trim | Work::Zero(_) | Work::Fetch | Work::Swap)
    }
}

/// One place of the table.
#[derive(Default)]
pub(crate) struct RequestSlot {
    pub open: bool,
    pub request: Request,
    pub work: Work,
    /// First byte of the command under way.
    pub at: u64,
    /// Bytes of the command under way.
    pub current_bytes: u64,
    /// Bytes after it that no command was issued for.
    pub remaining: u64,
    /// A flush follows the last piece.
    pub then_flush: bool,
    /// Write data (Q2).
    pub data: Segs,
    /// The data to be written into one block.
    pub patch: Option<Box<Patch>>,
    /// The request that this one is a piece of.
    pub parent: Option<u32>,
    /// Of a parent: pieces that have not ended.
    pub pieces: u32,
    /// Of a parent: all pieces are on their way.
    pub all_issued: bool,
    /// Of a parent: the error of the first piece that failed.
    pub error: Option<Error>,
    pub tries: u8,
    /// When it ends if its unit is still not ready, ns; None: the unit was ready.
    pub ready_wait_ends_ns: Option<u64>,
    /// The requesting process of this machine; zero: not known.
    pub process: u32,
    /// Some of the reply is out.
    pub begun: bool,
    /// The peer has withdrawn the request.
    pub interrupted: bool,
}

/// The table; the place of a request is its tag at the engine.
#[derive(Default)]
pub(crate) struct Requests {
    slots: Vec<RequestSlot>,
    free: Vec<u32>,
    open: u32,
    /// The process whose requests arrive now; zero: not known.
    pub current_process: u32,
}

impl Requests {
    /// Requests under way.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Takes a place; its lists are empty and keep their capacity.
    pub fn put(&mut self, request: Request, work: Work, at: u64, len: u64) -> u32 {
        let tag = self.free.pop().unwrap_or_else(|| {
            self.slots.push(RequestSlot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.open += 1;
        let process = self.current_process;
        if let Some(place) = self.get(tag) {
            let data = std::mem::take(&mut place.data);
            let new = RequestSlot {
                open: true,
                request,
                work,
                at,
                remaining: len,
                ..RequestSlot::default()
            };
            *place = RequestSlot { data, process, ..new };
        }
        tag
    }

    /// A place that is open.
    pub fn get(&mut self, tag: u32) -> Option<&mut RequestSlot> {
        let place = self.slots.get_mut(usize::try_from(tag).ok()?)?;
        Some(place)
    }

    /// A place that is open, to look at.
    pub fn open_at(&mut self, tag: u32) -> Option<&mut RequestSlot> {
        self.get(tag).filter(|p| p.open)
    }

    /// The place of the request that the peer knows by that name.
    pub fn find(&self, cookie: u64) -> Option<u32> {
        let is = |p: &RequestSlot| p.open && p.parent.is_none() && p.request.cookie == cookie;
        (0u32..).zip(&self.slots).find(|(_, p)| is(p)).map(|(tag, _)| tag)
    }

    /// Gives a place back.
    pub fn free(&mut self, tag: u32) {
        if let Some(place) = self.open_at(tag) {
            place.open = false;
            place.data.clear();
            place.patch = None;
            self.open -= 1;
            self.free.push(tag);
        }
    }

    /// Tags of all that are open.
    pub fn tags(&self) -> Vec<u32> {
        let open = (0u32..).zip(&self.slots).filter(|(_, p)| p.open);
        open.map(|(tag, _)| tag).collect()
    }
}
