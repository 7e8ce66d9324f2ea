//! Common parts of the classes with several members.
//!
//! * [`WriteGate`]: nothing is written before the marks on the disks exist.
//! * [`PartialFailures`]: a write that failed on one member waits for the decision about it.
//! * [`zero_page`]: zeroes to write.
//! * [`PerCore`]: per-core state without a lock, and the table of members that the core uses.
//! * [`Divisor`]: division by the number of members, or the size of their strips.
//! * [`Loads`]: reads are sent to the least busy of the members with the same content.
//! * [`Said`]: the facts about members and their state that were written to the journal.
//! * [`Refusals`]: providers that were refused though their metadata names the geom, and why.
//! * [`RangeLocks`]: a rebuild, a stripe's parity and user writes take turns, over all cores.
//! * [`Throttle`]: the rate limit of passes and comparisons, and the pause of passes.
//! * [`geom::CopyMeter`]: position and rate of a pass; [`pause`] has the verbs that pause it.
//! * [`sparse`]: zeroes that a pass need not write.
//! * [`verified`]: results of a comparison of members.
//! * [`frame`]: the packed records that mirror, stripe, concat and multipath keep in the last
//!   sector.
//! * [`relocate`]: the verb that moves a label to the end of a provider that grew.
//! * [`verbs`]: verbs that are the same in every class with labels.
//! * [`attach_alone`]: exclusive attachment of a geom to a member.
//! * [`post_after`]: a message to a geom after a while.
//! * [`provider_access`]: access of verbs to the last sectors of providers.
//!
//! How such a class is built:
//!
//! ```text
//!   control thread          Geom: members, their states, the content of the metadata
//!      ^  on_notice()          |  replace words of the shared state, WriteGate::open
//!      |  post()               v
//!   cores                   Layer: reads the shared state (atomics), forks children
//! ```
//!
//! A layer never decides about members. It uses the shared state, and reports events to its geom:
//! an error of a member, or a write that waits at the gate. The geom runs in one thread. It
//! decides, has the metadata written by a task on core 0, and only then lets requests see the new
//! state.

mod attach;
mod attributes;
mod divisor;
mod event_log;
pub(crate) mod frame;
mod load;
mod partial_failures;
pub(crate) mod pause;
mod per_core;
mod placeholder;
pub(crate) mod provider_access;
mod ranges;
mod rejected;
pub(crate) mod relocate;
pub(crate) mod sparse;
mod stopped;
mod sync;
mod throttle;
mod timer;
pub(crate) mod verb_util;
pub(crate) mod verbs;
mod verified;
pub(crate) mod waiting;
mod write_gate;
mod zero_page;

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod partial_failures_tests;
#[cfg(test)]
mod per_core_tests;
#[cfg(test)]
mod ranges_tests;
#[cfg(test)]
mod write_gate_tests;

pub(crate) use attach::attach_alone;
pub(crate) use attributes::{attributes, largest_stripe, zeroes};
pub use divisor::Divisor;
pub(crate) use event_log::{ComponentState, EventLog};
pub(crate) use load::Loads;
pub(crate) use partial_failures::{FailureId, PartialFailures};
pub(crate) use per_core::{CoreLocal, PerCore};
pub(crate) use placeholder::PlaceholderGeom;
pub(crate) use ranges::{LockId, LockResult, RangeLocks, Waiter};
pub(crate) use rejected::{REFUSALS_MAX, Refusals};
pub(crate) use stopped::Stopped;
pub(crate) use throttle::{Throttle, Throttles, wait_for_rate, wait_while_paused};
pub(crate) use timer::post_after;
pub(crate) use verified::{ComparisonReport, Mismatch, MismatchKind, VerifyReport, differences};
pub use waiting::Waiting;
pub(crate) use write_gate::{GateEntry, GateNotice, WriteGate};
pub(crate) use zero_page::{BLANK, zero_page};
