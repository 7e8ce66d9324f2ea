//! Identifiers of objects: of nodes of the page's graph, and of the counters that are sampled.

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
