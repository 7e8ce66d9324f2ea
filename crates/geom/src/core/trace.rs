//! Recorder of one core for slow requests: a ring of parts, from which those of a slow request are
//! copied when it ends. It is off, and has no memory, unless a client traces slow requests.
//!
//! ```text
//!   layer ends a request --count_out--> ring of parts --the request was slow--> kept parts
//!                                                                                   |
//!   client reads again before the lease ends  <-----------------slow_requests--------+
//! ```
//!
//! Invariants
//!  K1  The recorder costs time only where a request is counted out, so only for requests that
//!      waited: one test if it is off, one copy into the ring if it is on.
//!  K2  Nothing is allocated while requests end: ring and kept parts have their full size before.
//!  K3  When its lease ends, a recorder is switched off and frees its memory. No client is needed
//!      for that.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bio::{Bio, End};

use super::Core;
use crate::layer::Edge;
use crate::trace::{SlowRequest, SlowRequests, TracePart};

const RING_PARTS: usize = 4096;
/// Slow requests kept between two questions; the ring is searched for each.
const REQUESTS_MAX: usize = 64;
/// Parts kept of one request.
const PARTS_MAX: usize = 64;
/// A part that took less than this share of the slow time explains nothing and is not recorded.
/// So fast requests do not overwrite the parts of slow ones.
const SHORT_SHARE: u64 = 64;

/// See the module.
#[derive(Default)]
pub(super) struct Recorder {
    is_on: Cell<bool>,
    records: RefCell<Option<Records>>,
}

/// The memory of a recorder that is on.
struct Records {
    slow_ns: u64,
    until_ns: u64,
    ring: VecDeque<TracePart>,
    /// The end of the newest part that was overwritten.
    overwritten_ns: Option<u64>,
    kept: Vec<TracePart>,
    /// Of each kept request: number of its parts, and whether they are all.
    requests: Vec<(usize, bool)>,
    missed: u64,
}

impl Records {
    fn new(slow_ns: u64, until_ns: u64) -> Records {
        Records {
            slow_ns,
            until_ns,
            ring: VecDeque::with_capacity(RING_PARTS),
            overwritten_ns: None,
            kept: Vec::with_capacity(REQUESTS_MAX * PARTS_MAX),
            requests: Vec::with_capacity(REQUESTS_MAX),
            missed: 0,
        }
    }

    fn record(&mut self, part: TracePart) {
        if part.took_ns() < self.slow_ns / SHORT_SHARE {
            return;
        }
        if self.ring.len() == RING_PARTS {
            self.overwritten_ns = self.ring.pop_front().map(|part| part.end_ns);
        }
        self.ring.push_back(part);
        if part.is_root() && part.took_ns() >= self.slow_ns {
            self.keep(&part);
        }
    }

    /// Copies the parts of a request whose last part is the newest of the ring. Every piece ends
    /// before its request, and every layer before the one above it.
    fn keep(&mut self, root: &TracePart) {
        if self.requests.len() == REQUESTS_MAX {
            self.missed += 1;
            return;
        }
        let mut members = [root.request; PARTS_MAX];
        let (mut known, begin) = (1, self.kept.len());
        let mut is_complete = self.overwritten_ns.is_none_or(|ns| ns < root.start_ns);
        for part in self.ring.iter().rev() {
            if part.end_ns < root.start_ns {
                break;
            }
            let members_known = &members[..known];
            if !members_known.contains(&part.request) {
                if !part.parent.is_some_and(|parent| members_known.contains(&parent)) {
                    continue;
                }
                if known == members.len() {
                    is_complete = false;
                    break;
                }
                members[known] = part.request;
                known += 1;
            }
            if self.kept.len() - begin == PARTS_MAX {
                is_complete = false;
                break;
            }
            self.kept.push(*part);
        }
        self.requests.push((self.kept.len() - begin, is_complete));
    }

    fn take(&mut self) -> SlowRequests {
        let mut parts = self.kept.drain(..);
        let slow = |(count, is_complete): (usize, bool)| SlowRequest {
            parts: parts.by_ref().take(count).collect(),
            is_complete,
        };
        let requests = self.requests.drain(..).map(slow).collect();
        SlowRequests { requests, missed: std::mem::take(&mut self.missed) }
    }
}

impl Recorder {
    /// K1
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// A layer has ended a Bio that it received at `start_ns`; its frame is removed.
    #[cold]
    #[inline(never)]
    pub fn record(&self, bio: &Bio, edge: Edge, is_cut: bool, (start_ns, end_ns): (u64, u64)) {
        let parent = match bio.end {
            End::Parent(id) => Some(id.to_word()),
            End::NoReceiver | End::Task(_) | End::Sink { .. } => None,
        };
        let part = TracePart {
            request: bio.id().to_word(),
            parent,
            depth: u8::try_from(bio.frames.as_slice().len()).unwrap_or(u8::MAX),
            edge,
            is_cut,
            op: bio.op,
            origin: bio.origin,
            offset: bio.offset,
            length: bio.length,
            start_ns,
            end_ns,
            status: bio.status,
        };
        if let Some(records) = self.records.borrow_mut().as_mut() {
            records.record(part);
        }
    }

    /// Time until the lease ends, ns; `None` if the recorder is off.
    fn left_ns(&self, now_ns: u64) -> Option<u64> {
        let records = self.records.borrow();
        records.as_ref().map(|records| records.until_ns.saturating_sub(now_ns))
    }

    fn stop(&self) {
        self.is_on.set(false);
        *self.records.borrow_mut() = None;
    }
}

impl Core {
    /// The slow requests since the last call, and records those that take at least `slow_ns` for
    /// another `lease_ns`. The first call, and the first after a lease, only begins.
    pub fn slow_requests(self: &Rc<Self>, slow_ns: u64, lease_ns: u64) -> SlowRequests {
        let until_ns = self.now().saturating_add(lease_ns);
        let mut records = self.recorder.records.borrow_mut();
        if let Some(on) = records.as_mut() {
            (on.slow_ns, on.until_ns) = (slow_ns, until_ns);
            return on.take();
        }
        *records = Some(Records::new(slow_ns, until_ns));
        drop(records);
        self.recorder.is_on.set(true);
        self.reactor.spawn("trace", end_lease(self.clone()));
        SlowRequests::default()
    }

    /// Whether slow requests are recorded.
    pub fn records_slow_requests(&self) -> bool {
        self.recorder.is_on()
    }
}

/// K3
async fn end_lease(core: Rc<Core>) {
    while let Some(left_ns) = core.recorder.left_ns(core.now()) {
        if left_ns == 0 {
            return core.recorder.stop();
        }
        core.reactor().sleep(left_ns).await;
    }
}
