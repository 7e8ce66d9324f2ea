//! Arrays that lack a member at the start come later than their disks: they wait for it first, and
//! what stands on them comes later still. Who needs such a provider waits here.

use std::time::Duration;

use geom::{Control, ProviderId};

/// Longest wait for a provider that may still come. The longest wait of a class is that of an
/// Intel or DDF array, 30 s; behind it may come a mirror on top, with 4 s of its own.
const PATIENCE: Duration = Duration::from_secs(45);

/// Logical units: they stand on providers and have none themselves.
const UNITS: &str = "lun";

/// The provider of that name; waits for it while some geom has members and is not there yet.
pub fn provider(control: &mut Control, name: &str) -> Option<ProviderId> {
    let here = |c: &Control| c.topology.find(name).is_some();
    if !here(control) {
        control.wait_until(PATIENCE, |c| here(c) || !is_forming(c));
    }
    control.topology.find(name)
}

/// Some geom has claimed providers below and shows nothing above.
fn is_forming(control: &Control) -> bool {
    control.topology.view(0).iter().any(|g| {
        let waits = !g.consumers.is_empty() && g.providers.is_empty();
        waits && !g.withering && g.class != UNITS
    })
}
