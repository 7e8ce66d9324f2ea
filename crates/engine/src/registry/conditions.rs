//! Units of the registry by condition: without a LUN, without a provider, on a thin disk.

use std::sync::Arc;

use super::Registry;
use crate::unit::Device;

impl Registry {
    /// Names of devices that no group maps.
    pub fn unmapped(&self) -> Vec<String> {
        let state = self.state();
        let free = state.devices.values().filter(|d| d.ports().is_empty());
        free.map(|d| d.name()).collect()
    }

    /// Whether a device has lost its provider. Reads one number (C1 of `unit/loss.rs`).
    pub fn has_lost(&self) -> bool {
        self.common.has_lost()
    }

    /// Names of devices that have lost their provider.
    pub fn lost(&self) -> Vec<String> {
        if !self.has_lost() {
            return Vec::new();
        }
        let state = self.state();
        let lost = state.devices.values().filter(|d| d.lost().is_some());
        lost.map(|d| d.name()).collect()
    }

    /// Devices whose disk reports its space.
    pub(crate) fn thin_devices(&self) -> Vec<Arc<Device>> {
        let state = self.state();
        if state.thin == 0 {
            return Vec::new();
        }
        state.devices.values().filter(|d| d.space().is_some()).cloned().collect()
    }

    /// Whether the disk of some device reports its space.
    pub fn has_thin(&self) -> bool {
        self.state().thin > 0
    }
}
