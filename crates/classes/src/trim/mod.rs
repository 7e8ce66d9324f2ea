//! trim: a queue of deletes over any provider.
//!
//! Deletes are acknowledged at once, merged, and sent to the device in batches, when the device is
//! idle. A write to waiting bytes removes them from the queue. [`extents::trim`] describes the
//! handling of ranges and the effect of a power cut (none: the queue may be lost at any moment).
//!
//! * `queue`: where the cores meet the queue. * `layer`: the data path. * `issuer`: sends.
//! * `geom`, `class`, `params`, `show`, `verbs`.

mod class;
mod geom;
mod issuer;
mod layer;
mod params;
mod queue;
mod shared;
mod show;
mod sync;
mod verbs;

pub use class::TrimClass;
pub use params::{TrimParams, Zeroes};

pub(crate) const NAME: &str = "trim";
