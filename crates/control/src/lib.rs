//! The control path: what people and programs say to the daemon, and what it answers.
//!
//! * [`api`]: the types of every answer; JSON first.
//! * [`config`]: `ashlar.toml`. [`plan`]: the way from what runs to what is written there.
//! * [`Plant`]: the daemon, as this room sees it.
//!
//! Nothing here touches the data path.

#![forbid(unsafe_code)]

pub mod api;
pub mod config;
#[cfg(test)]
mod fake;
pub mod plan;
mod plant;

pub use plant::{Outcome, Plant, Progress};
