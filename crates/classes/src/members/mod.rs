//! Common parts of the classes with several members.
//!
//! * [`WriteGate`]: nothing is written before the marks on the disks say so.
//! * [`Court`]: a write that failed on one member waits for the decision about that member.
//! * [`blank`]: zeroes to write.
//! * [`Lanes`]: per-core state without a lock, and the table of members that the core uses.
//! * [`Divisor`]: division by the number of members, or the size of their strips.
//! * [`Loads`]: reads go to the least busy of the members with the same content.
//! * [`Said`]: the facts about members and their state that were written to the journal.
//! * [`Refusals`]: providers that were refused though their metadata names the geom, and why.
//! * [`RangeLocks`]: a rebuild, a stripe's parity and user writes take turns, over all cores.
//! * [`pay`]: the rate limit of passes and comparisons.
//! * [`sparse`]: zeroes that a pass need not write.
//! * [`verified`]: results of a comparison of members.
//! * [`frame`]: the packed records that mirror, stripe, concat and multipath keep in the last
//!   sector.
//! * [`follow`]: the verb that moves a label to the end of a provider that grew.
//! * [`verbs`]: verbs that are the same in every class with labels.
//! * [`hand`]: access of verbs to the last sectors of providers.
//!
//! How such a class is built:
//!
//! ```text
//!   control thread          Geom: members, their states, the content of the metadata
//!      ^  told()               |  replace words of the shared state, WriteGate::open
//!      |  tell()               v
//!   cores                   Layer: reads the shared state (atomics), forks children
//! ```
//!
//! A layer never decides about members. It uses the shared state, and reports events to its geom:
//! an error of a member, or a write that waits at the gate. The geom runs in one thread. It
//! decides, has the metadata written by a task on core 0, and only then lets requests see the new
//! state.

mod blank;
mod court;
mod divisor;
pub(crate) mod follow;
pub(crate) mod frame;
pub(crate) mod hand;
mod joined;
pub(crate) mod known;
mod lanes;
mod load;
mod pace;
mod ranges;
mod refusals;
mod said;
pub(crate) mod sparse;
mod stopped;
mod sync;
mod unborn;
pub(crate) mod verbs;
mod verified;
pub(crate) mod waiting;
mod write_gate;

#[cfg(test)]
mod court_tests;
#[cfg(test)]
mod lanes_tests;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod ranges_tests;
#[cfg(test)]
mod write_gate_tests;

pub(crate) use blank::{BLANK, blank};
pub(crate) use court::{Court, Number};
pub use divisor::Divisor;
pub(crate) use joined::{joined, largest_stripe, zeroes};
pub(crate) use lanes::{Lanes, Own};
pub(crate) use load::Loads;
pub(crate) use pace::pay;
pub(crate) use ranges::{Held, Locked, RangeLocks, Waiter};
pub(crate) use refusals::{REFUSALS_MAX, Refusals};
pub(crate) use said::{Fact, Said};
pub(crate) use stopped::Stopped;
pub(crate) use unborn::Unborn;
pub(crate) use verified::{Ill, Place, Report, differences};
pub use waiting::Waiting;
pub(crate) use write_gate::{Entry, GateWord, WriteGate};
