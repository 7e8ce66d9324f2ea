//! The queue of what was freed and the device does not know of yet.
//!
//! Telling a device of one range costs as much as telling it of many, and it may cost as much as a
//! flush. So what is freed waits here, merges, is taken back by whoever writes there, and goes out
//! in few commands when it is worth it.
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
//! CLEAN is not kept: a range that is neither queued, stale nor in flight is in use or clean, and
//! the queue does not know which.
//!
//! Invariants
//!  Q1  A unit is in at most one of queued, stale and in flight.
//!  Q2  A unit that was written after it was freed is in none of them, but for one that was in
//!      flight at that moment: then the writer was told to wait.
//!  Q3  A command holds whole granules only, each of which was freed as a whole and not written
//!      since; its ranges ascend, do not touch further than a cut, and keep the limits.
//!  Q4  One command is in flight at a time; it stays so until its outcome is known, or was unknown
//!      for as long as the device may still carry it out.
//!  Q5  What fails goes back only where nobody waits to write.
//!  Q6  Memory is bounded: of too many ranges the shortest become stale, of too many stale ones
//!      the shortest are forgotten, which is counted.
//!  Q7  Nothing depends on being sent: the queue may be lost at any moment.

mod limits;
mod pace;
mod queue;

pub use limits::{Limits, Policy};
pub use pace::{Load, Pace, Pacing};
pub use queue::{Command, Outcome, Queue, Totals, Written};
