//! Check of the buses: whether they reach the expected disks.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::{BusState, Health};

/// See the module.
pub const CHECK: Check =
    Check { id: "buses", doc: "whether the buses reach their disks", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Ok(state) = &facts.daemon else { return ok("no daemon answers: buses are not checked") };
    let out: Vec<CheckFinding> = state.buses.iter().flat_map(troubles).collect();
    if out.is_empty() { ok(format!("{} looked at", state.buses.len())) } else { out }
}

fn troubles(bus: &BusState) -> impl Iterator<Item = CheckFinding> {
    bus.troubles.iter().filter(|t| t.health != Health::Ok).map(|trouble| {
        let consequence = match bus.devices.is_empty() {
            true => "none of its disks is available, and none of their geoms",
            false => "disks or ways to disks are missing",
        };
        let fix = format!(
            "correct the named problem or the section [[bus]]; `ashlar cam rescan {}` searches \
             again at once",
            bus.number
        );
        bad(Severity::Fail, format!("{}: {}", bus.name, trouble.why), consequence, fix)
    })
}
