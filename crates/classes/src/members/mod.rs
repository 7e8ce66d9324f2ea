//! members: what the classes that stand on several providers have in common.
//!
//! * [`WriteGate`]: nothing is written before the marks on the disks say so.
//! * [`Court`]: a write that one member failed waits until it is decided who is out.
//! * [`blank`]: zeroes to write.
//! * [`Lanes`]: what a core keeps of its own, without a lock, and the table it goes by.
//! * [`Divisor`]: division by the number of members, or the size of their strips.
//! * [`Loads`]: of members that hold the same, the least busy one is read.
//! * [`Said`]: what the journal was told of members and their state.
//! * [`Refusals`]: who was refused though its metadata names the geom, and why.
//! * [`RangeLocks`]: a rebuild, a stripe's parity and user writes take turns, over all cores.
//! * [`pay`]: passes and comparisons go no faster than they may.
//! * [`sparse`]: zeroes that a pass need not write.
//! * [`verified`]: what a comparison of members found.
//! * [`frame`]: the packed records that mirror, stripe, concat and multipath keep in the last
//!   sector.
//! * [`follow`]: the verb that brings a label to the end of a provider that grew.
//! * [`verbs`]: those that are the same in every class with labels.
//! * [`hand`]: verbs that read and write the last sectors of providers.
//!
//! How such a class is built:
//!
//! ```text
//!   control thread          Geom: members, their states, what the metadata shall say
//!      ^  told()               |  replace words of the shared state, WriteGate::open
//!      |  tell()               v
//!   cores                   Layer: reads the shared state (atomics), forks children
//! ```
//!
//! A layer never decides about members. It goes by what it reads, and tells its geom what it met:
//! an error of a member, a write that waits at the gate. The geom, one thread, decides, has the
//! metadata written by a task on core 0, and only then lets requests see the new state.

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
