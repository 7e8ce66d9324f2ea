//! Figures of a running daemon, for metrics and samples.

use super::{Control, lock};
use crate::api::{Result, SystemState};

impl Control {
    /// The parts of [`Control::state`] that metrics and samples show.
    ///
    /// # Errors
    /// Those of [`crate::Plant::figures`].
    pub fn figures(&self) -> Result<SystemState> {
        Ok(self.limited(self.plant().figures()?))
    }

    /// Most series of a scrape.
    pub fn metrics_series_max(&self) -> u32 {
        lock(&self.shared.running).config.daemon.metrics_series_max
    }
}
