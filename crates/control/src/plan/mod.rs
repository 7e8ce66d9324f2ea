//! From the running configuration to the desired one, in steps that can be taken back.

mod action;

pub use action::{Action, Risk, Step};
