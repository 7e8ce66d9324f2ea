//! A laboratory: simulated cores, a control thread's own, and geoms that do as they are told.

mod lab;
mod leaf;
mod shim;
mod taster;
mod user;

pub use lab::{Ended, Lab, pattern};
pub use leaf::{Leaf, Mode};
pub use shim::Shim;
pub use taster::{MAGIC, Taste, Tasting};
pub use user::{Log, Manner, User, log};

pub const SECTOR: u64 = 512;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
