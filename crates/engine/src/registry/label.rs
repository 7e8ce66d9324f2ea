//! Units that are called otherwise while hosts use them.

use super::Registry;
use crate::unit::spec::Label;

impl Registry {
    /// A device is called as `label` says from now on; false: there is none called `name`, or
    /// another has the new name. No command ends; hosts hear of what they can see.
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
