//! Arrays that lack a member at the start come later than their disks: they wait for it first, and
//! what stands on them comes later still. So do disks of a bus that is still being asked. Who needs
//! such a provider waits here, and nobody else does.

use std::time::Duration;

use cam::CamClass;
use geom::{Class, Control, ProviderId, Topology};
use serde_json::Value;

/// Longest wait for a provider that may still come. The longest wait of a class is that of an
/// Intel or DDF array, 30 s; behind it may come a mirror on top, with 4 s of its own.
const PATIENCE: Duration = Duration::from_secs(45);

/// How often buses are looked at meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// Logical units: they stand on providers and have none themselves.
const UNITS: &str = "lun";

/// The provider of that name; waits for it while some geom has members and is not there yet, or
/// some bus is being asked.
pub fn provider(control: &mut Control, cam: &CamClass, name: &str) -> Option<ProviderId> {
    await_that(control, cam, |t| t.find(name).is_some());
    control.topology.find(name)
}

/// What a geom's parameters name below it, as [`geom::Class::missing`] has it; waits for that as
/// long.
pub fn missing(
    control: &mut Control,
    cam: &CamClass,
    class: &dyn Class,
    params: &Value,
) -> Option<String> {
    await_that(control, cam, |t| class.missing(t, params).is_none());
    class.missing(&control.topology, params)
}

/// Waits until it is so, or nothing is to come that could make it so.
fn await_that(control: &mut Control, cam: &CamClass, is_so: impl Fn(&Topology) -> bool) {
    let here = |c: &Control| is_so(&c.topology);
    let most_ns = u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX);
    let end = control.now_ns().saturating_add(most_ns);
    while !here(control) && control.now_ns() < end {
        // What was found is in the graph before it is said that nothing is to come.
        let comes = cam.is_asking();
        cam.catch_up(control);
        if here(control) || !(comes || is_forming(control)) {
            return;
        }
        control.wait_until(LOOK, here);
    }
}

/// Some geom has claimed providers below and shows nothing above.
fn is_forming(control: &Control) -> bool {
    control.topology.view(0).iter().any(|g| {
        let waits = !g.consumers.is_empty() && g.providers.is_empty();
        waits && !g.withering && g.class != UNITS
    })
}
