//! Check for exported disks that are named by the order of discovery. `da0` is then another disk
//! when the first one is away at a start. The daemon keeps the names of disks that report an
//! identity; others are known by their places.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::{BusState, DeviceState};
use crate::config::Config;

/// See the module.
pub const CHECK: Check =
    Check { id: "names", doc: "whether disk names depend on the order of discovery", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Ok(state) = &facts.daemon else { return ok("no daemon answers: names are not checked") };
    let Some(config) = facts.valid_config() else {
        return ok("no configuration calls a disk by a name");
    };
    let all = || state.buses.iter().flat_map(|bus| bus.devices.iter().map(move |d| (bus, d)));
    let out: Vec<CheckFinding> = all()
        .filter(|(bus, disk)| is_named_by_order(bus, disk, config))
        .filter(|(_, disk)| {
            all().filter(|(_, d)| name_letters(&d.name) == name_letters(&disk.name)).count() > 1
        })
        .filter(|(_, disk)| config.used_names().any(|name| name == disk.name))
        .map(|(bus, disk)| unstable_name(bus, disk))
        .collect();
    if out.is_empty() { ok("no used disk is named by the order of discovery") } else { out }
}

fn name_letters(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Whether no identity or configuration assigns this name to the disk.
fn is_named_by_order(bus: &BusState, disk: &DeviceState, config: &Config) -> bool {
    let section = config.bus.iter().find(|b| b.name == bus.name);
    let ordered = section.is_some_and(|b| !b.names.contains_key(&disk.name));
    ordered && !disk.kept && !disk.name.is_empty() && !disk.lost
}

fn unstable_name(bus: &BusState, disk: &DeviceState) -> CheckFinding {
    let name = &disk.name;
    bad(
        Severity::Warn,
        format!("{name} {} of {} has its name by the order of discovery", disk.device, bus.name),
        format!(
            "the disk has no identity (no serial number, no NAA name), so its name cannot be kept: \
             if an earlier disk is missing at a start, {name} is another disk"
        ),
        format!(
            "add names = {{ {name} = \"{}:{}\" }} (target and LUN) to the section [[bus]] of {}",
            disk.target, disk.lun, bus.name
        ),
    )
}
