//! Load over iSCSI: an initiator of ours on a thread and a reactor of its own.
//!
//! [`start`] logs in and makes requests until it is stopped; [`run`] makes a given number of them.
//! With [`Work::Verify`], [`Work::Fill`] and [`Work::Check`] every byte read is compared.

mod histogram;
mod intake;
mod jobs;
mod line;
mod out;
pub(crate) mod pattern;
mod pipe;
mod running;
mod session;
mod spec;
mod thread;

pub use histogram::Histogram;
pub(crate) use pipe::{Caller, Pipe, RequestTable, work_all, work_beside};
pub use running::Running;
pub(crate) use running::{LoadShared, WAIT};
pub use spec::{DEPTH_MAX, Order, Outcome, REQUEST_BYTES_MAX, SESSIONS_MAX, Spec, Work};
pub use thread::{run, start};
