//! Requests in a closed loop: so many in flight, the next when one ends.
//!
//! Invariant D1: a slot is in flight or in `free`, never both; each has a buffer of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bio::{Bio, End, Op, Segs};
use geom::{Core, Edge, Sink};
use reactor::WaitFor;

use crate::bed::{Bed, failed, thread_ns};
use crate::error::Error;
use crate::load::Histogram;

/// Longest wait for an answer.
const SILENCE: Duration = Duration::from_secs(20);
/// Longest sleep of a turn, ns.
const NAP_NS: u64 = 100_000_000;

struct Ends {
    free: RefCell<Vec<u32>>,
    ended: Cell<u64>,
    wrong: Cell<Option<bio::Errno>>,
    begun: RefCell<Vec<u64>>,
    latency: RefCell<Histogram>,
    /// Latencies are wanted: two readings of the clock a request.
    timed: Cell<bool>,
}

impl Sink for Ends {
    fn done(&self, slot: u64, bio: &mut Bio, core: &Core) {
        if let Err(e) = bio.status {
            self.wrong.set(Some(e));
        }
        if self.timed.get() {
            let begun = self.begun.borrow().get(slot as usize).copied().unwrap_or(0);
            let took = core.reactor().fresh_now().saturating_sub(begun);
            self.latency.borrow_mut().record(took);
        }
        self.ended.set(self.ended.get() + 1);
        self.free.borrow_mut().push(slot as u32);
    }
}

/// Cost of a run.
pub(crate) struct Took {
    /// Requests that ended.
    pub requests: u64,
    pub wall_ns: u64,
    /// Of the thread, ns.
    pub cpu_ns: u64,
    /// Empty when it was not timed.
    pub latency: Histogram,
}

impl Took {
    /// CPU time of a request, ns.
    pub fn cpu(&self) -> f64 {
        self.cpu_ns as f64 / (self.requests as f64).max(1.0)
    }

    /// Time between two answers, ns.
    pub fn wall(&self) -> f64 {
        self.wall_ns as f64 / (self.requests as f64).max(1.0)
    }
}

/// See the module.
pub(crate) struct Drive {
    ends: Rc<Ends>,
    sink: u32,
    buffers: Vec<Segs>,
    bytes: usize,
    submitted: u64,
    /// A turn without work sleeps.
    sleeps: bool,
}

impl Drive {
    /// Of requests of `bytes`, `depth` in flight.
    pub fn new(bed: &Bed, depth: u32, bytes: usize) -> Result<Drive, Error> {
        let ends = Rc::new(Ends {
            free: RefCell::new((0..depth).collect()),
            ended: Cell::new(0),
            wrong: Cell::new(None),
            begun: RefCell::new(vec![0; depth as usize]),
            latency: RefCell::default(),
            timed: Cell::new(false),
        });
        let buffers = (0..depth).map(|_| Segs::alloc(bed.core.pool(), bytes));
        let buffers: Option<Vec<Segs>> = buffers.collect();
        let buffers = buffers.ok_or_else(|| failed("no memory for buffers"))?;
        for buffer in &buffers {
            buffer.fill(0, bytes, 0x5a);
        }
        let sink = bed.core.add_sink(ends.clone());
        Ok(Drive { ends, sink, buffers, bytes, submitted: 0, sleeps: false })
    }

    /// Sleeps until an event arrives, as a daemon does: a thread that polls is charged for the time
    /// that it waits.
    pub fn sleeping(self) -> Drive {
        Drive { sleeps: true, ..self }
    }

    /// Makes requests while `goes_on(bed, requests so far)`: the nth at `place(n)`. Waits for
    /// requests beyond the last turn.
    pub fn run(
        &mut self,
        bed: &mut Bed,
        (op, timed): (Op, bool),
        mut place: impl FnMut(u64) -> (Edge, u64),
        mut goes_on: impl FnMut(&mut Bed, u64) -> bool,
    ) -> Result<Took, Error> {
        self.ends.timed.set(timed);
        self.ends.ended.set(0);
        self.ends.latency.take();
        self.submitted = 0;
        let (clock, cpu) = (bed.core.reactor().fresh_now(), thread_ns());
        let (mut last, mut ended_before) = (clock, 0);
        while goes_on(bed, self.submitted) {
            let free = self.ends.free.borrow_mut().pop();
            match free {
                Some(slot) => self.submit(&bed.core, (slot, op, timed), &mut place)?,
                None => self.listen(bed, &mut last, &mut ended_before)?,
            }
        }
        while self.ends.ended.get() < self.submitted {
            self.listen(bed, &mut last, &mut ended_before)?;
        }
        if let Some(error) = self.ends.wrong.take() {
            return Err(failed(format!("a request ended with {error}")));
        }
        Ok(Took {
            requests: self.submitted,
            wall_ns: bed.core.reactor().fresh_now().saturating_sub(clock),
            cpu_ns: thread_ns().saturating_sub(cpu),
            latency: self.ends.latency.take(),
        })
    }

    fn submit(
        &mut self,
        core: &Rc<Core>,
        (slot, op, timed): (u32, Op, bool),
        place: &mut impl FnMut(u64) -> (Edge, u64),
    ) -> Result<(), Error> {
        let (edge, offset) = place(self.submitted);
        self.submitted += 1;
        let Some(buffer) = self.buffers.get(slot as usize) else {
            return Err(failed("no such slot"));
        };
        if timed && let Some(begun) = self.ends.begun.borrow_mut().get_mut(slot as usize) {
            *begun = core.reactor().fresh_now();
        }
        core.submit(edge, End::Sink { sink: self.sink, tag: u64::from(slot) }, |bio| {
            (bio.op, bio.offset, bio.length) = (op, offset, self.bytes as u64);
            let fits = buffer.slice_into(0, self.bytes, &mut bio.data);
            debug_assert!(fits, "a buffer has the bytes of a request");
        });
        Ok(())
    }

    /// Lets the core work; an error when nothing ends for long.
    fn listen(&self, bed: &mut Bed, last: &mut u64, ended_before: &mut u64) -> Result<(), Error> {
        bed.core.turn(match self.sleeps {
            true => WaitFor::Until(bed.core.reactor().fresh_now() + NAP_NS),
            false => WaitFor::Peek,
        });
        bed.control.pump();
        let (now, ended) = (bed.core.reactor().fresh_now(), self.ends.ended.get());
        if ended != *ended_before {
            (*last, *ended_before) = (now, ended);
        }
        match now.saturating_sub(*last) > SILENCE.as_nanos() as u64 {
            true => Err(failed("requests do not end")),
            false => Ok(()),
        }
    }
}
