//! Access decisions: a pure function of a target's groups, used by login, by discovery, by live
//! changes of the groups and by `ashlar access check`.

use std::sync::Arc;

use reactor::Address;
use wire::portal::LocalAddress;

use crate::registry::{Groups, LunMap, LunMapView, RequiredAuth};

/// The answer for one initiator at one target.
#[derive(Clone)]
pub struct Decision {
    /// The group that grants access; `None` when no group does: the default is to deny.
    pub group: Option<String>,
    /// LUN map of the initiator; empty when denied.
    pub luns: Arc<LunMap>,
    /// Authentication that its group requires.
    pub required_auth: RequiredAuth,
    /// The reason, for people.
    pub reason: String,
    /// Where changes show.
    pub(crate) view: Arc<LunMapView>,
}

impl Decision {
    /// True when the initiator sees at least one unit, or will when it is added.
    pub fn grants(&self) -> bool {
        !self.luns.is_empty() || self.luns.awaited().next().is_some()
    }
}

/// An address as rules know it.
fn place(at: &Address) -> LocalAddress<'_> {
    match at {
        Address::Inet(at) => LocalAddress::Inet(*at),
        Address::Unix(path) => LocalAddress::Unix(path),
        Address::Ether(name) => LocalAddress::Ether(name),
    }
}

/// Decides by the initiator's name and its portal. `target` is for the text only.
pub fn decide(target: &str, groups: &Groups, initiator: &str, portal: &Address) -> Decision {
    let at = place(portal);
    if let Some(group) = groups.group_of(initiator, at) {
        let pattern = group.admits(initiator, at).map_or("", |p| p.as_str());
        let luns = group.luns();
        let is = format!("{initiator} is in group {} ({pattern})", group.name);
        let why = match (luns.len(), luns.awaited().count()) {
            (0, 0) => format!("{is}, which has no LUN"),
            (n, 0) => format!("{is}: {n} LUN(s)"),
            (n, more) => format!("{is}: {n} LUN(s), and {more} not there yet"),
        };
        let view = group.view.clone();
        let auth = group.auth.of(initiator);
        return Decision {
            group: Some(group.name.clone()),
            luns,
            required_auth: auth,
            reason: why,
            view,
        };
    }
    let why = refusal(target, groups, initiator, portal);
    let (luns, auth) = (Arc::default(), RequiredAuth::Nothing);
    Decision { group: None, luns, required_auth: auth, reason: why, view: groups.ungrouped.clone() }
}

fn refusal(target: &str, groups: &Groups, initiator: &str, portal: &Address) -> String {
    let elsewhere =
        groups.groups().iter().find(|g| g.patterns.iter().any(|p| p.matches(initiator)));
    if let Some(group) = elsewhere {
        let rules: Vec<String> = group.portals.iter().map(|r| r.to_string()).collect();
        return format!(
            "group {} of {target} names the initiator {initiator}, but only at {}; it \
             connected at {portal}",
            group.name,
            rules.join(", ")
        );
    }
    let names: Vec<&str> = groups.groups().iter().map(|g| g.name.as_str()).collect();
    match names.as_slice() {
        [] => format!("{target} has no access group, so no initiator may log in"),
        _ => format!(
            "no access group of {target} ({}) names the initiator {initiator}; \
             add this name to one of them",
            names.join(", ")
        ),
    }
}
