//! Drivers of buses, one file or folder each.

pub mod hba;
