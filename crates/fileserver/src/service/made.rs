//! The file systems that were served here, over restarts of the daemon: `create` makes no new one
//! in the place of one whose devices are missing.

/// See the module. Called on any thread, but [`Made::served`] on the control thread only.
pub trait Made: Send + Sync {
    /// Number of the volume that was last served under a name; 0 for an image.
    fn existed(&self, name: &str) -> Option<u64>;
    /// One is served; may wait until that is stored.
    fn served(&self, name: &str, volume: u64);
}

/// Keeps nothing.
pub struct Forgets;

impl Made for Forgets {
    fn existed(&self, _: &str) -> Option<u64> {
        None
    }

    fn served(&self, _: &str, _: u64) {}
}
