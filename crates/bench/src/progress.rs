//! Where a run is.

/// Where a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Steps done.
    pub done: u32,
    /// Steps in all.
    pub of: u32,
    /// What is measured now.
    pub what: String,
}
