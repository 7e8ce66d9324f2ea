//! Contents of disks in memory, which end with the disk or bus that a step removes.

use super::action::Action;
use super::risk::geom_is_open;
use crate::api::SystemState;
use crate::config::Catalog;
use crate::config::units::exact;

/// The contents that a step loses because they are in memory; `None`: it loses none. An empty disk
/// has none, unless it is open: data may be written to it until the step.
pub(super) fn lost_contents(
    action: &Action,
    state: &SystemState,
    catalog: &Catalog,
) -> Option<String> {
    match action {
        Action::RemoveBus { bus } if catalog.volatile_bus(&bus.kind) => {
            Some("the contents of its disks are in memory and are lost".to_owned())
        }
        Action::RemoveDisk { disk } if catalog.volatile(&disk.kind) => {
            let live = state.disks.iter().find(|live| live.name == disk.name);
            match live.and_then(|live| live.used_bytes) {
                Some(0) if !geom_is_open(state, &disk.name) => None,
                Some(0) => Some("it is empty, but open: data that is still written is lost".into()),
                Some(used) => Some(format!("its contents in memory are lost ({})", exact(used))),
                None => Some("its contents are lost".into()),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{DiskState, GeomState, ProviderState};
    use crate::config::{BusConfig, DiskConfig};
    use crate::fake::catalog;

    /// The loss by the removal of a disk of a kind with that much data.
    fn lost(kind: &str, used_bytes: Option<u64>, is_open: bool) -> Option<String> {
        let provider = ProviderState { r: u32::from(is_open), ..ProviderState::default() };
        let geom = GeomState {
            class: "disk".into(),
            name: "m".into(),
            providers: vec![provider],
            ..GeomState::default()
        };
        let state = SystemState {
            disks: vec![DiskState { name: "m".into(), used_bytes, ..DiskState::default() }],
            geoms: vec![geom],
            ..SystemState::default()
        };
        let disk = DiskConfig { name: "m".into(), kind: kind.into(), params: Default::default() };
        lost_contents(&Action::RemoveDisk { disk }, &state, &catalog())
    }

    #[test]
    fn removal_of_a_disk_in_memory_loses_what_it_contains() {
        let cases = [
            ("memory", Some(0), false, None),
            ("memory", Some(0), true, Some("data that is still written is lost")),
            ("memory", Some(64 << 10), false, Some("lost (64KiB)")),
            ("memory", None, false, Some("its contents are lost")),
            ("null", None, true, None),
            ("file", Some(64 << 10), false, None),
        ];
        for (kind, used, is_open, expected) in cases {
            let found = lost(kind, used, is_open);
            let matches = match (&found, expected) {
                (Some(found), Some(part)) => found.contains(part),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(matches, "{kind} {used:?} {is_open}: {found:?}");
        }
        let bus = BusConfig { kind: "virtual".into(), ..BusConfig::default() };
        let lost = lost_contents(&Action::RemoveBus { bus }, &SystemState::default(), &catalog());
        assert!(lost.is_some_and(|why| why.contains("its disks")));
    }
}
