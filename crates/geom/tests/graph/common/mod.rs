//! Test bench of the graph's tests: simulated cores, a control thread, and scripted geoms.

mod lab;
mod leaf;
mod load;
mod pass_through;
mod taster;
mod user;

pub use lab::{Lab, pattern};
pub use leaf::{Leaf, Mode};
pub use load::{BLOCK, Load};
pub use pass_through::plain;
pub use taster::{MAGIC, Taste, Tasting};
pub use testkit::clock::{MS, S as SECOND};
pub use user::{Log, Manner, User, log};

pub const SECTOR: u64 = 512;

/// The classes of the laboratory's geoms.
pub fn classes(t: &mut geom::Topology) {
    testkit::disk::load(t);
    t.load(std::sync::Arc::new(pass_through::PassThroughClass)).unwrap();
    t.load(std::sync::Arc::new(user::UserClass)).unwrap();
}
