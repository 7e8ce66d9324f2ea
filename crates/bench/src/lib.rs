#![forbid(unsafe_code)]
//! Measurements that anyone can repeat: `ashlar bench` and `make bench`.

mod layers;

pub use layers::{LayerRow, layers};
