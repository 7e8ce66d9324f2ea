//! Kinds of SIMs: how a bus of the configuration gets its driver.

use std::sync::Arc;

use geom::{Error, Notifier};
use serde_json::Value;

use crate::sim::Sim;

/// Environment of a bus: the services of the daemon that SIMs need.
#[derive(Clone)]
pub struct Site {
    /// The way to every core.
    pub notifier: Notifier,
    /// Cores that will send CCBs, and on which a SIM may run tasks.
    pub cores: usize,
}

/// A request to open a bus.
pub struct Open<'a> {
    /// Its name: the name of the SIM in lists.
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

    /// True when the contents of its disks are lost with the bus.
    fn volatile(&self) -> bool {
        false
    }

    /// Keys of its parameters that an open bus takes over without closing its disks.
    fn live_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether such a bus logs in with an iSCSI name, which the key `initiator` may give.
    fn has_initiator_name(&self) -> bool {
        false
    }

    /// A section that can be pasted into the configuration.
    fn example(&self) -> &'static str;

    /// Checks the parameters as [`SimKind::open`] does, and opens nothing.
    ///
    /// # Errors
    /// Parameters that no schema can refuse; the error names the parameter and the remedy.
    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        let _ = (name, params);
        Ok(())
    }

    /// Creates the driver without waiting for devices, which may appear later.
    ///
    /// # Errors
    /// Those of [`SimKind::check`].
    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error>;
}
