//! Units of the reactors' clock, which counts nanoseconds.

/// A millisecond, ns.
pub const MS: u64 = 1_000_000;

/// A second, ns.
pub const S: u64 = 1_000 * MS;
