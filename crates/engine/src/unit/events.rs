//! Events of nexuses and resets, for those parts of a unit that keep state for a nexus or until a
//! reset. Each has its line here.

use std::sync::Arc;

use crate::unit::Device;
use crate::unit::unit_attention::ItlNexus;

/// A nexus has just been enlisted with its unit. Rights of the past that belong to its port are
/// its own from the first command on.
pub(crate) fn nexus_made(device: &Arc<Device>, nexus: &Arc<ItlNexus>) {
    device.reservations().apply_to_nexus(nexus);
}

/// A nexus has ended, its commands too: logout, lost connection, reinstatement, a LUN taken away;
/// or I_T NEXUS RESET, after which it continues.
pub(crate) fn nexus_lost(device: &Arc<Device>, nexus: &Arc<ItlNexus>) {
    device.reservations().session_ended(device, nexus.port().session);
    device.history().ended(nexus);
    device.initiator_data().state().buffers.remove(&nexus.port().session);
    if device.spec().removable {
        device.condition().prevent(nexus, false);
    }
    device.operations().forget(nexus);
}

/// LOGICAL UNIT RESET, before any nexus is notified.
pub(crate) fn device_reset(device: &Arc<Device>) {
    device.reservations().reset(device);
    device.condition().allow_all();
}
