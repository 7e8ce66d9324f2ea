//! From the running configuration to the desired one, in steps that can be taken back.
//!
//! Laws (tested over seeded random configurations in `tests.rs`)
//!  L1  `plan(x, x)` is empty.
//!  L2  The steps of `plan(a, b)`, done in order from `a`, give `b`, or sections that mean the same
//!      as those of `b` in other words.
//!  L3  Their inverses, done in reverse order from there, give `a`.
//!  L4  Cut after any step, a new plan from there still leads to `b`.
//!  L5  No step creates an object whose provider is missing, or removes an object that is still in
//!      use.

mod action;
mod apply;
#[cfg(test)]
mod changed_tests;
mod changes;
mod created_geoms;
mod depend;
mod diff;
mod disk_edits;
mod file_server;
mod identity;
mod logins;
mod manual_changes;
mod memory_disks;
mod mirror_edits;
mod open_listeners;
mod rename;
mod renew;
mod risk;
mod settings;
mod sizes;
#[cfg(test)]
mod tests;

pub use action::{Action, DataLoss, Risk, Step, consent_names};
pub use apply::{Applied, Deferred, DeferredPart, apply, refusals};
pub(crate) use changes::{CHANGE, kind_schema, section_schema};
pub use created_geoms::{CreatedGeoms, adopt_created};
pub(crate) use depend::DependencyGraph;
pub(crate) use depend::keep_lost_objects;
pub use depend::{
    adopt_found_members, bus_may_provide, name_depends_on, owner_names, running_config,
};
pub use diff::plan;
pub(crate) use disk_edits::stays_awaited;
pub use identity::PredictedSerials;
pub use manual_changes::{inserted, manual_changes, members};
pub use mirror_edits::{defer_mirror_edits, leaves_one_copy};
pub use renew::FileSection;
pub(crate) use renew::renew;
pub use settings::{adopt_settings, set_params, settings};
pub use sizes::{grown_disks, resize_commands};
