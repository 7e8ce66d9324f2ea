//! The life of a command, and where the commands of one session live.
//!
//! ```text
//!             command()
//!   (free) ---------------> DATA_WAIT --data()--+           turn()
//!      |                                        +--> DORMANT ----------+
//!      | no data wanted, first in order         |                      |
//!      +----------------------------------------+-----> begin() <------+
//!                                                         |
//!                          memory returns                 |  pool exhausted
//!                    +----------- MEMORY_WAIT <-----------+
//!                    v                                    v
//!                 begin() --room--> (*) -------------> EXECUTING --abort()--> ABORTING
//!                                                         |                      |
//!                                                     complete()             complete()
//!                                                         v                      v
//!   (free) <----------- respond() returned ---------- RESPONDING          discard(), (free)
//! ```
//! (*) A plain read or write is QUEUED here while its unit has enough of them (`qos/mod.rs`).
//!
//! A command that is aborted before it executes is freed at once. An ABORTING one is freed when
//! the last request below has ended, because only then it can no longer touch the medium.
//!
//! Invariants
//!  C1  A place is free exactly when its state is `None`; then its tag is not in the table.
//!  C2  Every accepted command ends with one `respond` or one `discard`, never both.
//!  C3  A word given to the layers below carries the place's generation: an answer for an earlier
//!      command in that place is discarded.

pub(crate) mod admission;
pub(crate) mod execute;
pub(crate) mod finish;
pub(crate) mod none;
pub(crate) mod serve;
pub(crate) mod spc;
