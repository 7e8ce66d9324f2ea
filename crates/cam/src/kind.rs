//! What a kind of SIM is: how a bus of the configuration gets its driver.

use std::sync::Arc;

use geom::{Error, Switchboard};
use serde_json::Value;

use crate::sim::Sim;

/// Where buses are opened: what SIMs need of the daemon.
#[derive(Clone)]
pub struct Site {
    /// The way to every core.
    pub switchboard: Switchboard,
    /// Cores that will send CCBs, and on which a SIM may run tasks.
    pub cores: usize,
}

/// A request to open a bus.
pub struct Open<'a> {
    /// Its name: what the SIM is called in lists.
    pub name: &'a str,
    /// The kind's own parameters, an object that its schema allows.
    pub params: &'a Value,
    /// Where.
    pub site: &'a Site,
}

/// A kind of SIM. A new one is a file in `sims/` and a line in its `mod.rs`.
pub trait SimKind: Send + Sync {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// One sentence.
    fn doc(&self) -> &'static str;

    /// JSON Schema of its parameters: an object.
    fn schema(&self) -> Value;

    /// True when what its disks hold is lost with the bus.
    fn volatile(&self) -> bool {
        false
    }

    /// A section that can be pasted into the configuration.
    fn example(&self) -> &'static str;

    /// Makes the driver. Waits for nobody: devices come when they come.
    ///
    /// # Errors
    /// Parameters that no schema can refuse; they name the parameter and what to do about it.
    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error>;
}
