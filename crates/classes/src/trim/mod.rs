//! trim: a queue of deletes over any provider.
//!
//! Deletes are acknowledged at once, merge, and go to the device in batches, when they cost nobody
//! anything; a write to bytes that wait takes them back. What the queue does with ranges, and what
//! a power cut may do to it (nothing: it may be lost at any moment), stands in `space::trim`.
//!
//! * `desk`: where the cores meet the queue. * `layer`: the data path. * `issuer`: sends.
//! * `geom`, `class`, `params`, `show`, `verbs`.

mod class;
mod desk;
mod geom;
mod issuer;
mod layer;
mod params;
mod shared;
mod show;
mod sync;
mod verbs;

pub use class::TrimClass;
pub use params::{TrimParams, Zeroes};

/// The class's name.
pub(crate) const NAME: &str = "trim";
