//! Queue of freed ranges that the device does not know of yet.
//!
//! A trim of one range costs as much as a trim of many, and it may cost as much as a flush. So
//! freed ranges wait here and merge; a write takes its range out again. The rest is sent in few
//! commands when it is worth it.
//!
//! ```text
//!            free()                       take()                     ended(Done)
//!   IN USE ----------> QUEUED --------------------------> IN FLIGHT -------------> CLEAN
//!     ^                |  ^  |                             |    |                    |
//!     |   written()    |  |  |    ended(Failed), often     |    | ended(Unknown)     |
//!     +----------------+  |  |    enough, (Unsupported)    |    v                    |
//!     |                   |  +--expire()----> STALE <------+  DOUBT (in flight still) |
//!     |                   |                   | ^  |            |                    |
//!     |                   +--- all(), free() -+ +--|-- expire() +                    |
//!     +------------------------- written() --------+                                 |
//!     +------------------------------------------------------------------------------+
//! ```
//!
//! CLEAN is not kept. A range that is neither queued, stale nor in flight is in use or clean, and
//! the queue does not know which.
//!
//! Invariants
//!  Q1  A unit is in at most one of queued, stale and in flight.
//!  Q2  A unit that was written after it was freed is in none of them, but for one that was in
//!      flight at that moment: then the writer had to wait.
//!  Q3  A command holds whole granules only, each of which was freed as a whole and not written
//!      since. Its ranges ascend, do not touch further than a cut, and keep the limits.
//!  Q4  One command is in flight at a time. It stays so until its outcome is known, or was unknown
//!      for as long as the device may still carry it out.
//!  Q5  Failed ranges are queued again only where no writer waits.
//!  Q6  Memory is bounded: of too many ranges the shortest become stale, of too many stale ones
//!      the shortest are forgotten, which is counted.
//!  Q7  Nothing depends on being sent: the queue may be lost at any moment.
//!  Q8  A full trim ends with the ranges that were queued at its request, regardless of ranges that
//!      are freed later.
//!
//! Races and crash rules that such a queue has to get right, and where each is tested. `races.rs`
//! and `crash.rs` have a test named after each but for R9 and T2; besides, in every order or by
//! chance (`class_trim` and `interleavings` are tests of the classes). R9 and the rules are for a
//! file system above the queue, which `crash.rs` models:
//!
//! | race or rule | also in |
//! |---|---|
//! | R1 a block is written while it is taken for a command | `explore.rs`, `interleavings` |
//! | R2 a write overtakes the older trim of its blocks | `explore.rs`, `class_trim` |
//! | R3 a file is cut and grows again | `crash.rs` (files that are made, removed and grown) |
//! | R4 neighbours merge, and are cut to the limits | `model.rs` |
//! | R5 a part of a granule is freed | `model.rs` |
//! | R6 the device knows no trims | `class_trim` |
//! | R7 no answer, and carried out later | `explore.rs`, `class_trim` |
//! | R8 the end: what flies is waited for, the rest dropped | `class_trim` (J2, E4) |
//! | R9 reading free blocks | - |
//! | R10 whole granules only, wherever the first begins | `limits.rs`, `model.rs` |
//! | T1 the freeing metadata is durable first | `crash.rs` (a crash at any step) |
//! | T2 the bitmap may lag behind | `crash.rs` (a crash at any step) |
//! | T3 new data follows the trim, a flush or not | `explore.rs`, `class_trim` |
//! | T4 a commit and a flush send nothing and wait for nothing | `class_trim` (L2) |
//! | T5 after a crash nothing is queued; free space is trimmed on request | `crash.rs` |
//! | T6 trims belong to the commit that holds the free | `crash.rs` |

mod full_trim;
mod limits;
mod pacing;
mod queue;

pub use limits::{Limits, Policy};
pub use pacing::{Load, Pacer, Pacing};
pub use queue::{Command, Outcome, Queue, Totals, WriteCheck};
