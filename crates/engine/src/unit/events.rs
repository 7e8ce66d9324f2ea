//! Events of nexuses and resets, for those parts of a unit that keep state for a nexus or until a
//! reset. Each has its line here.

use std::sync::Arc;

use crate::unit::Device;
use crate::unit::lun_usage::LunUsage;
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
    end_counts(device, nexus);
    device.initiator_data().state().buffers.remove(&nexus.port().session);
    if device.spec().removable {
        device.condition().prevent(nexus, false);
    }
    device.operations().forget(nexus);
}

/// A nexus belongs to this LUN of a group from now on: it is new, or its session has another group.
pub(crate) fn nexus_mapped(device: &Device, nexus: &Arc<ItlNexus>, to: &Arc<LunUsage>) {
    let from = nexus.usage();
    if from.as_ref().is_some_and(|from| Arc::ptr_eq(from, to)) {
        return;
    }
    end_counts(device, nexus);
    if let Some(from) = from {
        from.remove(nexus);
    }
    to.enlist(nexus);
}

/// Counters of a nexus begin at zero; the unit and the LUN of the group keep them. Called on its
/// core, also after its last command: that may end after the nexus.
pub(crate) fn end_counts(device: &Device, nexus: &ItlNexus) {
    let end = || device.history().ended(nexus);
    match nexus.usage() {
        Some(usage) => usage.keep(nexus, end),
        None => end(),
    }
}

/// LOGICAL UNIT RESET, before any nexus is notified.
pub(crate) fn device_reset(device: &Arc<Device>) {
    device.reservations().reset(device);
    device.condition().allow_all();
}
