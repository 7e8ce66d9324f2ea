//! From the running configuration to the desired one, in steps that can be taken back.
//!
//! Laws (tested over seeded random configurations in `tests.rs`)
//!  L1  `plan(x, x)` is empty.
//!  L2  The steps of `plan(a, b)`, done in order from `a`, give `b`.
//!  L3  Their inverses, done in reverse order from there, give `a`.
//!  L4  Cut after any step, a new plan from there still leads to `b`.
//!  L5  No step creates an object whose provider is missing, or removes an object that is still in
//!      use.

mod action;
mod apply;
mod by_hand;
#[cfg(test)]
mod changed_tests;
mod depend;
mod diff;
mod edited;
mod identity;
mod rename;
mod renew;
mod risk;
mod settings;
mod sizes;
#[cfg(test)]
mod tests;

pub use action::{Action, Risk, Step};
pub use apply::{Applied, LeftOut, Undone, apply};
pub use by_hand::{by_hand, inserted, members};
pub(crate) use depend::Ground;
pub(crate) use depend::keep_lost;
pub use depend::{found, rests_on, running};
pub use diff::plan;
pub use edited::{edited, leaves_one_copy};
pub use identity::Foreseen;
pub use renew::FilesOf;
pub(crate) use renew::renew;
pub use settings::{as_it_works, say, settings};
pub use sizes::{larger, then_resize};
