//! Identifiers of objects: of nodes of the page's graph, of other objects that have a detail, and
//! of the counters that are sampled.

use crate::api::{GeomState, SessionState, TargetState};

/// Class of the geoms that hold the units of LUNs open.
pub const LUN_CLASS: &str = "lun";

/// Identifier of a geom.
pub fn geom_id(geom: &GeomState) -> String {
    format!("{}:{}", geom.class, geom.name)
}

/// Identifier of a LUN.
pub fn lun_id(target: &str, group: &str, lun: u64) -> String {
    format!("lun:{target}/{group}/{lun}")
}

/// Identifier of a session.
pub fn session_id(target: &TargetState, session: &SessionState) -> String {
    let isid = if session.isid.is_empty() { &session.address } else { &session.isid };
    format!("session:{}/{}/{isid}", target.name, session.initiator)
}

/// Identifier of a core, by its number.
pub fn core_id(number: usize) -> String {
    format!("core:{number}")
}

/// Identifier of a target.
pub fn target_id(name: &str) -> String {
    format!("target:{name}")
}

/// Identifier of an access group.
pub fn group_id(target: &str, group: &str) -> String {
    format!("group:{target}/{group}")
}

/// Identifier of an initiator, of all its sessions.
pub fn initiator_id(name: &str) -> String {
    format!("initiator:{name}")
}

/// Identifier of a bus.
pub fn bus_id(name: &str) -> String {
    format!("bus:{name}")
}

/// Identifier of a listener of the API or of metrics.
pub fn listener_id(name: &str, address: &str) -> String {
    format!("listener:{name}/{address}")
}

/// Identifier of a webhook.
pub fn webhook_id(name: &str) -> String {
    format!("webhook:{name}")
}
