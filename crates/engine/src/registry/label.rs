//! Changes of a unit's label while hosts use the unit.

use super::Registry;
use crate::unit::spec::Label;

impl Registry {
    /// Sets the label of a device; false: no device has the name `name`, or another has the new
    /// name. No command ends; hosts are notified of visible changes.
    pub fn relabel(&self, name: &str, label: Label) -> bool {
        let mut state = self.state();
        if label.name != name && state.devices.contains_key(&label.name) {
            return false;
        }
        let Some(device) = state.devices.remove(name) else { return false };
        let ids = device.spec().ids().all();
        state.ids.extend(ids.into_iter().map(|id| (id, label.name.clone())));
        state.devices.insert(label.name.clone(), device.clone());
        drop(state);
        device.set_label(label);
        true
    }
}
