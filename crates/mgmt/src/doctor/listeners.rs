//! Check of the listeners of the API and of metrics: their protection, and whether they are open.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::ListenerState;
use crate::service::configured_listeners;

/// See the module.
pub const CHECK: Check = Check {
    id: "listeners",
    doc: "whether the API and metrics over TCP are open and protected",
    findings,
};

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let mut all = facts.valid_config().map(configured_listeners).unwrap_or_default();
    if let Ok(state) = &facts.daemon {
        let is_running = |of: &ListenerState| {
            state.listeners.iter().any(|l| (&l.name, &l.address) == (&of.name, &of.address))
        };
        all.retain(|of| !is_running(of));
        all.extend(state.listeners.iter().cloned());
    }
    let found: Vec<CheckFinding> = all.iter().flat_map(of_listener).collect();
    match found.is_empty() {
        true => ok(format!("{} listeners of the API and metrics checked", all.len())),
        false => found,
    }
}

fn of_listener(listener: &ListenerState) -> Vec<CheckFinding> {
    let place = listener.place();
    let closed = (!listener.why.is_empty()).then(|| {
        bad(
            Severity::Fail,
            format!("{place} is not open: {}", listener.why),
            "callers of the network cannot connect",
            "ss -ltnp; free the address or correct [api], then run `ashlar apply`",
        )
    });
    let weak = listener.warning().map(|weak| {
        bad(Severity::Warn, format!("{place}: {}", weak.why), weak.consequence, weak.fix)
    });
    closed.into_iter().chain(weak).collect()
}
