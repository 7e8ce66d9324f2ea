//! Who may see what: a pure function of a target's groups, used by login, by discovery, by live
//! changes of the groups and by `ashlar access check`.

use std::sync::Arc;

use crate::registry::{Groups, LunMap};

/// The answer for one initiator at one target.
#[derive(Clone)]
pub struct Decision {
    /// The group that grants access; `None` when nobody does: the default is to deny.
    pub group: Option<String>,
    /// What the initiator sees; empty when denied.
    pub luns: Arc<LunMap>,
    /// The reason, for people.
    pub why: String,
}

impl Decision {
    /// True when the initiator sees at least one unit.
    pub fn grants(&self) -> bool {
        !self.luns.entries().is_empty()
    }
}

/// Decides by name. `target` is for the text only.
pub fn decide(target: &str, groups: &Groups, initiator: &str) -> Decision {
    if let Some(group) = groups.group_of(initiator) {
        let pattern = group.patterns.iter().find(|p| p.matches(initiator));
        let pattern = pattern.map_or("", |p| p.as_str());
        let units = group.luns.entries().len();
        let why = match units {
            0 => format!("{initiator} is in group {} ({pattern}), which has no LUN", group.name),
            n => format!("{initiator} is in group {} ({pattern}): {n} LUN(s)", group.name),
        };
        return Decision { group: Some(group.name.clone()), luns: group.luns.clone(), why };
    }
    let names: Vec<&str> = groups.groups().iter().map(|g| g.name.as_str()).collect();
    let why = match names.as_slice() {
        [] => format!("{target} has no access group, so nobody may log in"),
        _ => format!(
            "no access group of {target} ({}) names the initiator {initiator}; \
             add this name to one of them",
            names.join(", ")
        ),
    };
    Decision { group: None, luns: Arc::default(), why }
}
