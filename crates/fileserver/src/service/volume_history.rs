//! The file systems that were served here, over restarts of the daemon. `create` makes no new one
//! in the place of one whose devices are missing.

/// See the module. Called on any thread, but [`VolumeHistory::record_served`] on the control thread
/// only.
pub trait VolumeHistory: Send + Sync {
    /// Number of the volume that was last served under a name; 0 for an image.
    fn last_volume(&self, name: &str) -> Option<u64>;
    /// One is served; may wait until that is stored.
    fn record_served(&self, name: &str, volume: u64);
}

/// Keeps nothing.
pub struct NoHistory;

impl VolumeHistory for NoHistory {
    fn last_volume(&self, _: &str) -> Option<u64> {
        None
    }

    fn record_served(&self, _: &str, _: u64) {}
}
