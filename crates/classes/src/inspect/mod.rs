//! Signature scan of a provider: everything that a tool could recognize, and how to clear it.
//!
//! The pure half does no I/O: [`step`] is a probe over sectors that the caller reads. The table of
//! signatures is [`SIGNATURES`]; further copies that a format keeps are in `backups`. The class on
//! top ([`InspectClass`]) has the verbs `scan` and `wipe` and tastes nothing.
//!
//! Invariants
//!  I1  A finding depends only on the content of the media, not on its holder: a scan of the same
//!      bytes gives the same answer.
//!  I2  Clearing every finding leaves nothing to find, except inside partitions.
//!  I3  Clearing proceeds from the inside out, copies before originals, one flushed write each: at
//!      no instant does anything show that did not show before.

mod answer;
mod backups;
mod boot;
mod class;
mod firmware;
mod image;
mod scan;
mod signatures;
mod validate;
mod varied;
mod verbs;

pub use answer::{ByteRange, InspectAnswer, SignatureFinding, TasteResult};
pub use class::InspectClass;
pub(crate) use class::report;
pub use image::image;
pub use scan::{Finding, FindingRole, InspectReport, step};
pub(crate) use scan::{leftover, membership};
pub use signatures::{MagicLocation, SIGNATURES, Signature};
