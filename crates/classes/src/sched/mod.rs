//! sched: whose request a disk gets next.
//!
//! A layer with one provider below and one above. It keeps requests back, asks an algorithm which
//! of them goes next, and sends that one down. It has no metadata, shows the bytes of the provider
//! below, and is slipped in under those who use a disk, changed, and taken out again while
//! requests flow (`Control::insert` and `Control::remove` of the room geom).
//!
//! Where things are
//!
//! * `algorithms`: one file each, values without clock, cores or locks.
//! * `hub`: the one queue of a disk: what waits, in which state, who may go; `parts`: where. Pure.
//! * `clients`: on whose behalf requests come, a bounded number of them, and what they got.
//! * `layer`: the data path; `geom`, `class`, `verbs`: what is said to it.
//!
//! A disk with one arm has one queue, whatever the number of cores, so the hub stands behind a
//! lock that is held for one step of an algorithm and never across a call into another room. It
//! has no home core: whoever brings news (an arrival, an end, a timer) asks the algorithm. What it
//! chooses of its own core's requests it starts itself; that of another core is left in that
//! core's lane, and its bell rung: a task that sleeps there, so nothing is allocated for a request.
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
//!  Q1  A request is in one state and in one list. It goes down once, through `ready` or out of
//!      `start`, and its place is free when it has come back. Nothing here ends a request.
//!  Q2  ORDERED is a fence: it goes down when all that came before it, of all cores, have been
//!      named and those of its own core have gone down; what comes later, FLUSH and DELETE too,
//!      goes down when the fence has. Behind the fence order is kept by the disk's own queue
//!      (`disks/ordered.rs`). While a fence waits the algorithm hurries: nobody is anticipated and
//!      no limit holds anybody back.
//!  Q3  A FLUSH that is not ORDERED covers what was acknowledged before it, all of which has come
//!      back; it goes down at once, or a scan would hold up another's commit.
//!  Q4  Of two requests that overlap, and one of which writes, the earlier goes down first.
//!  Q5  A wait for somebody who may come (anticipation) or for a limit has an end: the algorithm
//!      names it, and the core that asked wakes at that time and asks again.
//!  Q6  While the layer is taken out it hurries (`Geom::hurry`); the gate above it is closed, and
//!      what is inside leaves in the order the algorithm likes. If the disk does not answer in
//!      time the gate opens again, and everything is as before.
//!  Q7  Another algorithm takes over what waits in the order in which it came, and is told how many
//!      are in the disk; their ends it hears of like others.
//!  Q8  Clients are at most [`CLIENTS_MAX`]; a new one takes the place of the one that was idle
//!      longest, and if none is idle shares the place of the others.
//!  Q9  An algorithm that never holds anybody back (`fifo` without a depth) is not asked: requests
//!      pass by the hub, from when it was empty until something is configured. Each core counts
//!      its own by client; the hub is told when somebody looks, or before it changes.

mod algorithms;
mod class;
mod clients;
mod geom;
mod hub;
mod layer;
mod options;
mod parts;
mod verbs;

#[cfg(test)]
mod hub_tests;

pub use class::SchedClass;
pub use clients::CLIENTS_MAX;

/// The class's name.
const NAME: &str = "sched";
