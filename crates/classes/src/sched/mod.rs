//! Disk scheduler: chooses the next request that is sent to a disk.
//!
//! A layer with one provider below and one above. It keeps requests back, lets an algorithm select
//! the next one, and sends that one down. It has no metadata and shows the bytes of the provider
//! below. It is inserted under the users of a disk, changed, and removed again while requests are
//! in progress (`Control::insert` and `Control::remove` of the crate `geom`).
//!
//! Contents
//!
//! * `algorithms`: one file each, values without clock, cores or locks.
//! * `hub`: the one queue of a disk with the states of its requests; `parts`: its index by offset.
//!   Both do no I/O.
//! * `clients`: a bounded number of origins of requests, and the service that each received.
//! * `layer`: the data path; `geom`, `class`, `verbs`: the control path.
//!
//! A disk with one arm has one queue, regardless of the number of cores. The hub is therefore
//! protected by a lock, which is held for one step of an algorithm and never across a call into
//! another crate. The hub has no home core: the core with an event (an arrival, an end, a timer)
//! calls the algorithm. If the chosen request belongs to that core, the core starts it. A request
//! of another core is left in the slot of that core and its bell is rung: this wakes a task that
//! sleeps there. So a request needs no allocation.
//!
//! ```text
//!          a fence waits                      an overlapping one waits
//!   arrive -------------> Fenced --released-+ +----------> Held --that one has passed--+
//!      \___________________________________ v_/                                        v
//!                                         Queued <-------------------------------------+
//!                                           | the algorithm names it
//!                 own core, in start()      v            its core           ready()
//!        Started <---------------------- Decided ------------------> Called --------> Started
//!           | done()                                                                     |
//!           v                                                                            v
//!          Free <------------------------------------------------------------------------+
//! ```
//!
//! Invariants
//!  Q1  A request is in one state and in one list. It is sent down once, through `ready` or out of
//!      `start`, and its place is free when it has returned. Nothing here ends a request.
//!  Q2  ORDERED is a fence: it is sent down after all that preceded it, of all cores, have been
//!      named and those of its own core have been sent down. Later requests, FLUSH and DELETE too,
//!      are sent down when the fence has. Behind the fence order is kept by the disk's own queue
//!      (`disks/ordered.rs`). While a fence waits the algorithm hurries: it neither anticipates
//!      requests nor applies limits.
//!  Q3  A FLUSH that is not ORDERED covers acknowledged requests, all of which have completed. It
//!      is sent down at once, because otherwise a scan would delay a commit of another client.
//!  Q4  Of two requests that overlap, and one of which writes, the earlier is sent down first.
//!  Q5  A wait for an anticipated request or for a limit has an end. The algorithm names the time,
//!      and the core that called it wakes at that time and calls it again.
//!  Q6  While the layer is removed it hurries (`Geom::draining`). The gate above it is closed, and
//!      queued requests leave in the order that the algorithm chooses. If the disk does not answer
//!      in time, the gate opens again and the previous state is restored.
//!  Q7  A new algorithm takes over the waiting requests in their order of arrival and receives the
//!      number of requests in the disk. It is notified of the ends of these as of others.
//!  Q8  Clients are at most [`CLIENTS_MAX`]. A new one takes the place of the one that was idle
//!      longest, and if none is idle shares the place of the others.
//!  Q9  An algorithm that never keeps a request back (`fifo` without a depth) is not called.
//!      Requests bypass the hub, from the time when it was empty until it is configured. Each core
//!      counts its own requests by client and passes the counts to the hub before a query or a
//!      change.

mod algorithms;
mod class;
mod clients;
mod geom;
mod layer;
mod options;
mod params;
mod queue;
mod region_counts;
mod verbs;

#[cfg(test)]
mod queue_tests;

pub use class::SchedClass;
pub use clients::CLIENTS_MAX;

const NAME: &str = "sched";
