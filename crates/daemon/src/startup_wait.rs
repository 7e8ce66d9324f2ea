//! Startup wait for providers that appear late. Arrays that lack a member at the start appear later
//! than their disks, because they wait for it first. The geoms above them appear later still. The
//! same holds for disks of a bus that is still being scanned. Only a step that needs such a
//! provider waits here.

use std::time::Duration;

use cam::CamClass;
use engine::lun;
use geom::{Class, GraphControl, ProviderId, Topology};
use serde_json::Value;

/// Longest wait for a provider that may still appear. The longest wait of a class is that of an
/// Intel or DDF array, 30 s. A mirror above it may add 4 s of its own.
const WAIT_MAX: Duration = Duration::from_secs(45);

/// Longest wait of a whole start: present providers are served then, and the others later.
pub const START_WAIT_MAX: Duration = Duration::from_secs(2);

/// How often buses are looked at meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// When to stop waiting for missing providers, ns of the cores' clock.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimit {
    /// Of a start; `None` once it is over.
    pub start_ends_ns: Option<u64>,
}

impl WaitLimit {
    fn ends_ns(self, control: &GraphControl) -> u64 {
        let most_ns = u64::try_from(WAIT_MAX.as_nanos()).unwrap_or(u64::MAX);
        self.start_ends_ns.unwrap_or_else(|| control.now_ns().saturating_add(most_ns))
    }
}

/// The provider of that name; waits for it while some geom has members and is not there yet, or
/// some bus is being scanned.
pub fn find_provider(
    control: &mut GraphControl,
    cam: &CamClass,
    name: &str,
    max_wait: WaitLimit,
) -> Option<ProviderId> {
    wait_for(control, cam, max_wait, |t| t.find(name).is_some());
    control.topology.find(name)
}

/// The missing provider that a geom's parameters name, see [`geom::Class::missing_provider`]; waits
/// for it just as long.
pub fn missing_provider(
    control: &mut GraphControl,
    cam: &CamClass,
    class: &dyn Class,
    params: &Value,
    max_wait: WaitLimit,
) -> Option<String> {
    wait_for(control, cam, max_wait, |t| class.missing(t, params).is_none());
    class.missing(&control.topology, params)
}

/// Waits until it is so, or no awaited provider can change it.
fn wait_for(
    control: &mut GraphControl,
    cam: &CamClass,
    max_wait: WaitLimit,
    is_so: impl Fn(&Topology) -> bool,
) {
    let is_reached = |c: &GraphControl| is_so(&c.topology);
    let end = max_wait.ends_ns(control);
    if !is_reached(control) {
        // Put all found disks into the graph before a provider counts as missing.
        cam.apply_scan_results(control);
    }
    while !is_reached(control) && control.now_ns() < end {
        // Put all found disks into the graph before the wait is given up.
        let comes = cam.is_scanning();
        cam.apply_scan_results(control);
        if is_reached(control) || !(comes || is_forming(control)) {
            return;
        }
        control.wait_until(POLL_INTERVAL, is_reached);
    }
}

/// Some geom has claimed providers below and shows nothing above.
fn is_forming(control: &GraphControl) -> bool {
    control.topology.view(0).iter().any(|g| {
        let waits = !g.consumers.is_empty() && g.providers.is_empty();
        waits && !g.withering && g.class != lun::CLASS
    })
}
