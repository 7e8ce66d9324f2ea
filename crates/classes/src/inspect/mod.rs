//! inspect: everything on a provider that somebody would take it for, and how to clear it.
//!
//! The pure half does no I/O: [`step`] is a probe over sectors that the caller reads. The table
//! of signatures is [`SIGNS`]; what a format keeps in more than one place is in `copies`.
//! The class on top ([`InspectClass`]) has the verbs `scan` and `wipe` and tastes nothing.
//!
//! Invariants
//!  I1  What is found is found by what stands on the media alone, not by who holds it: a scan
//!      of the same bytes answers the same.
//!  I2  Clearing every finding leaves nothing to find, except what lies inside a partition.
//!  I3  Clearing goes from the inside out, copies before what they are copies of, one flushed
//!      write each: at no instant does anything show that did not show before.

mod boot;
mod class;
mod copies;
mod firmware;
mod scan;
mod signs;
mod varied;
mod weak;

pub use class::InspectClass;
pub(crate) use class::report;
pub use scan::{Finding, Report, Standing, step};
pub(crate) use scan::{leftover, membership};
pub use signs::{At, SIGNS, Sign};
