//! The main job on an embedded default, for somebody who has just built it.
//!
//! ```text
//!   images + configuration --> daemon (a child) --> partitions --> access
//!                                  |
//!               serve: until it is stopped      act: the initiator's part, then stop
//! ```

mod act;
mod setup;
mod tools;

pub use act::act;
pub use setup::{IQN, Site, how_to_connect, lay_out, start};
pub use tools::Tools;
