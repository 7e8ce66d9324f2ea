//! One change, as a value: its effect on a configuration, and its inverse.

use super::rename::rename;
use super::renew::FileSection;
use super::sizes::section_size;
use crate::config::{
    AccessConfig, AluaConfig, ApiSections, BusConfig, Config, DaemonConfig, DiskConfig, GeomConfig,
    TargetConfig, UnitConfig, UnitProtection, WebhookConfig,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How dangerous a step is. Ordered: the greater is the worse.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// No host notices.
    #[default]
    Safe,
    /// A connected host loses a LUN or a session, or has to wait; or there is no second copy for
    /// a while.
    Disruptive,
    /// Data is lost.
    Destroys,
}

impl Risk {
    /// The word printed in plans.
    pub const fn label(self) -> &'static str {
        match self {
            Risk::Safe => "safe",
            Risk::Disruptive => "disruptive",
            Risk::Destroys => "destroys",
        }
    }
}

/// One change of the running system. Each carries both sides, so that its inverse is a swap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Settings of the daemon.
    Daemon {
        /// As they are.
        from: DaemonConfig,
        /// As they shall be.
        to: DaemonConfig,
    },
    /// Listeners and clients of the API over TCP.
    Api {
        /// As they are.
        from: Box<ApiSections>,
        /// As they shall be.
        to: Box<ApiSections>,
    },
    /// Servers that receive events.
    Webhooks {
        /// As they are: all of them.
        from: Vec<WebhookConfig>,
        /// As they shall be.
        to: Vec<WebhookConfig>,
    },
    /// A bus is added; its disks are found then, and later.
    CreateBus {
        /// Which.
        bus: BusConfig,
    },
    /// Requests of a bus may take another time, or it looks at more logical units; its disks stay.
    ModifyBus {
        /// As it is.
        from: BusConfig,
        /// As it shall be.
        to: BusConfig,
    },
    /// A bus is removed with its disks; nothing uses them any more.
    RemoveBus {
        /// Which.
        bus: BusConfig,
    },
    /// A disk is added.
    CreateDisk {
        /// Which.
        disk: DiskConfig,
    },
    /// An image file becomes larger under its users. The file is not made smaller again when a
    /// later step fails: initiators may have written there. A smaller size is refused.
    GrowDisk {
        /// As it is.
        from: DiskConfig,
        /// As it shall be: `size` differs.
        to: DiskConfig,
    },
    /// The configured identity of a disk changes under its users. No LUN shows it: those on the
    /// disk, and on its partitions, are withdrawn unless their units have an identity of their own.
    IdentifyDisk {
        /// As it is.
        from: DiskConfig,
        /// As it shall be: the identity differs.
        to: DiskConfig,
    },
    /// An open disk takes over keys of its section. Its users do not notice.
    ModifyDisk {
        /// As it is.
        from: DiskConfig,
        /// As it shall be: live keys of its kind differ.
        to: DiskConfig,
    },
    /// A disk has another name, under all who use it; providers named after it follow.
    RenameDisk {
        /// As it is.
        from: DiskConfig,
        /// As it shall be: the name differs.
        to: DiskConfig,
    },
    /// A disk is removed; nothing uses it any more.
    RemoveDisk {
        /// Which.
        disk: DiskConfig,
    },
    /// A geom is created; its providers exist.
    CreateGeom {
        /// Which.
        geom: GeomConfig,
    },
    /// Members or settings of a geom change while it is used; class and name stay.
    ModifyGeom {
        /// As it is.
        from: GeomConfig,
        /// As it shall be.
        to: GeomConfig,
    },
    /// A geom is removed; nothing uses it any more.
    RemoveGeom {
        /// Which.
        geom: GeomConfig,
    },
    /// How units are shown; for units of LUNs only values change of which hosts are notified while
    /// they work.
    Units {
        /// As it is: all of them.
        from: Vec<UnitConfig>,
        /// As it shall be.
        to: Vec<UnitConfig>,
    },
    /// Groups of target ports; none that is removed has a target.
    PortGroups {
        /// As they are: all of them.
        from: Vec<AluaConfig>,
        /// As they shall be.
        to: Vec<AluaConfig>,
    },
    /// A target is added, without groups.
    CreateTarget {
        /// Which.
        target: TargetConfig,
    },
    /// A target changes; name and driver stay.
    ModifyTarget {
        /// As it is.
        from: Box<TargetConfig>,
        /// As it shall be.
        to: Box<TargetConfig>,
    },
    /// A target is removed; it has no groups left.
    RemoveTarget {
        /// Which.
        target: TargetConfig,
    },
    /// A group is added; its target and its providers are there.
    CreateAccess {
        /// Which.
        access: AccessConfig,
    },
    /// A group changes its patterns or LUNs; target and name stay.
    ModifyAccess {
        /// As it is.
        from: AccessConfig,
        /// As it shall be.
        to: AccessConfig,
    },
    /// A group is removed; its members see nothing any more.
    RemoveAccess {
        /// Which.
        access: AccessConfig,
    },
    /// All groups of a target change in one step. An initiator that moves from one to another, or
    /// whose group has another name, continues with what both show it.
    Regroup {
        /// Whose.
        target: String,
        /// As they are: all of them.
        from: Vec<AccessConfig>,
        /// As they shall be.
        to: Vec<AccessConfig>,
    },
    /// Files that a section names are read again: secrets, certificates, keys. Their contents have
    /// changed, the configuration has not. The former contents are not kept, so taking it back
    /// reads them once more.
    Renew {
        /// Whose.
        of: FileSection,
    },
}

impl Action {
    /// The action that reverses this one.
    pub fn inverse(&self) -> Action {
        match self.clone() {
            Action::Daemon { from, to } => Action::Daemon { from: to, to: from },
            Action::Api { from, to } => Action::Api { from: to, to: from },
            Action::Webhooks { from, to } => Action::Webhooks { from: to, to: from },
            Action::CreateBus { bus } => Action::RemoveBus { bus },
            Action::ModifyBus { from, to } => Action::ModifyBus { from: to, to: from },
            Action::RemoveBus { bus } => Action::CreateBus { bus },
            Action::CreateDisk { disk } => Action::RemoveDisk { disk },
            Action::RemoveDisk { disk } => Action::CreateDisk { disk },
            Action::GrowDisk { from, to } => Action::GrowDisk { from: to, to: from },
            Action::IdentifyDisk { from, to } => Action::IdentifyDisk { from: to, to: from },
            Action::ModifyDisk { from, to } => Action::ModifyDisk { from: to, to: from },
            Action::RenameDisk { from, to } => Action::RenameDisk { from: to, to: from },
            Action::CreateGeom { geom } => Action::RemoveGeom { geom },
            Action::ModifyGeom { from, to } => Action::ModifyGeom { from: to, to: from },
            Action::RemoveGeom { geom } => Action::CreateGeom { geom },
            Action::Units { from, to } => Action::Units { from: to, to: from },
            Action::PortGroups { from, to } => Action::PortGroups { from: to, to: from },
            Action::CreateTarget { target } => Action::RemoveTarget { target },
            Action::ModifyTarget { from, to } => Action::ModifyTarget { from: to, to: from },
            Action::RemoveTarget { target } => Action::CreateTarget { target },
            Action::CreateAccess { access } => Action::RemoveAccess { access },
            Action::ModifyAccess { from, to } => Action::ModifyAccess { from: to, to: from },
            Action::RemoveAccess { access } => Action::CreateAccess { access },
            Action::Regroup { target, from, to } => Action::Regroup { target, from: to, to: from },
            Action::Renew { of } => Action::Renew { of },
        }
    }

    /// The names to give as consent where it destroys something.
    pub fn consent_names(&self) -> Vec<String> {
        match self {
            Action::Units { from, to } => {
                newly_protected(from, to).map(|unit| unit.provider.clone()).collect()
            }
            other => vec![other.name()],
        }
    }

    /// The disk that it makes.
    pub fn created_disk(&self) -> Option<&DiskConfig> {
        match self {
            Action::CreateDisk { disk } => Some(disk),
            _ => None,
        }
    }

    /// The geom that it is about, as it shall be.
    pub fn geom(&self) -> Option<&GeomConfig> {
        match self {
            Action::CreateGeom { geom }
            | Action::RemoveGeom { geom }
            | Action::ModifyGeom { to: geom, .. } => Some(geom),
            _ => None,
        }
    }

    /// The groups that it makes, as they shall be.
    pub fn groups(&self) -> impl Iterator<Item = &AccessConfig> {
        match self {
            Action::CreateAccess { access } => std::slice::from_ref(access),
            Action::ModifyAccess { to, .. } => std::slice::from_ref(to),
            Action::Regroup { to, .. } => to.as_slice(),
            _ => &[],
        }
        .iter()
    }

    /// Whether a configuration already contains exactly the object that the action makes.
    pub fn is_in(&self, config: &Config) -> bool {
        match self {
            Action::Daemon { to, .. } => config.daemon == *to,
            Action::CreateBus { bus } => config.bus.contains(bus),
            Action::CreateDisk { disk } => config.disk.contains(disk),
            Action::CreateGeom { geom } => config.geom.contains(geom),
            Action::CreateTarget { target } => config.target.contains(target),
            Action::CreateAccess { access } => config.access.contains(access),
            _ => false,
        }
    }

    /// Applies the change to a configuration.
    pub fn apply_to(&self, config: &mut Config) {
        match self {
            Action::Daemon { to, .. } => config.daemon = to.clone(),
            Action::Api { to, .. } => {
                config.api.clone_from(&to.api);
                config.api_client.clone_from(&to.api_client);
            }
            Action::Webhooks { to, .. } => config.webhook.clone_from(to),
            Action::CreateBus { bus } => config.bus.push(bus.clone()),
            Action::ModifyBus { to, .. } => {
                let place = config.bus.iter_mut().find(|b| b.name == to.name);
                place.into_iter().for_each(|b| *b = to.clone());
            }
            Action::RemoveBus { bus } => config.bus.retain(|b| b.name != bus.name),
            Action::CreateDisk { disk } => config.disk.push(disk.clone()),
            Action::RemoveDisk { disk } => config.disk.retain(|d| d.name != disk.name),
            Action::GrowDisk { to, .. }
            | Action::IdentifyDisk { to, .. }
            | Action::ModifyDisk { to, .. } => {
                let place = config.disk.iter_mut().find(|d| d.name == to.name);
                place.into_iter().for_each(|d| *d = to.clone());
            }
            Action::RenameDisk { from, to } => rename(config, &from.name, to),
            Action::CreateGeom { geom } => config.geom.push(geom.clone()),
            Action::ModifyGeom { to, .. } => {
                let place = config.geom.iter_mut().find(|g| g.name == to.name);
                place.into_iter().for_each(|g| *g = to.clone());
            }
            Action::RemoveGeom { geom } => config.geom.retain(|g| g.name != geom.name),
            Action::Units { to, .. } => config.unit.clone_from(to),
            Action::PortGroups { to, .. } => config.alua.clone_from(to),
            Action::CreateTarget { target } => config.target.push(target.clone()),
            Action::ModifyTarget { to, .. } => {
                let place = config.target.iter_mut().find(|t| t.name == to.name);
                place.into_iter().for_each(|t| *t = (**to).clone());
            }
            Action::RemoveTarget { target } => config.target.retain(|t| t.name != target.name),
            Action::CreateAccess { access } => config.access.push(access.clone()),
            Action::ModifyAccess { to, .. } => {
                let same = |a: &&mut AccessConfig| a.target == to.target && a.group == to.group;
                let place = config.access.iter_mut().find(same);
                place.into_iter().for_each(|a| *a = to.clone());
            }
            Action::RemoveAccess { access } => {
                config.access.retain(|a| a.target != access.target || a.group != access.group);
            }
            Action::Regroup { target, to, .. } => {
                config.access.retain(|a| a.target != *target);
                config.access.extend(to.iter().cloned());
            }
            Action::Renew { .. } => {}
        }
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        match self {
            Action::Daemon { .. } => "change settings of the daemon".to_owned(),
            Action::Api { .. } => "change the API over the network".to_owned(),
            Action::Webhooks { .. } => "change webhooks".to_owned(),
            Action::CreateBus { bus } => format!("create bus {} ({})", bus.name, bus.kind),
            Action::ModifyBus { to, .. } => format!("change bus {}", to.name),
            Action::RemoveBus { bus } => format!("remove bus {} ({})", bus.name, bus.kind),
            Action::CreateDisk { disk } => format!("create disk {} ({})", disk.name, disk.kind),
            Action::RemoveDisk { disk } => format!("remove disk {} ({})", disk.name, disk.kind),
            Action::GrowDisk { from, to } => {
                let is_larger = section_size(from).is_some_and(|was| Some(was) < section_size(to));
                let verb = if is_larger { "grow" } else { "resize" };
                format!("{verb} disk {} ({})", to.name, to.kind)
            }
            Action::IdentifyDisk { to, .. } => {
                format!("change the identity of disk {} ({})", to.name, to.kind)
            }
            Action::ModifyDisk { to, .. } => format!("change disk {} ({})", to.name, to.kind),
            Action::RenameDisk { from, to } => format!("rename disk {} to {}", from.name, to.name),
            Action::CreateGeom { geom } => format!("create geom {} ({})", geom.name, geom.class),
            Action::ModifyGeom { to, .. } => format!("change geom {} ({})", to.name, to.class),
            Action::RemoveGeom { geom } => format!("remove geom {} ({})", geom.name, geom.class),
            Action::Units { .. } => "change how units are shown".to_owned(),
            Action::PortGroups { .. } => "change target port groups".to_owned(),
            Action::CreateTarget { target } => {
                format!("create target {} ({})", target.name, target.driver)
            }
            Action::ModifyTarget { to, .. } => format!("change target {}", to.name),
            Action::RemoveTarget { target } => {
                format!("remove target {} ({})", target.name, target.driver)
            }
            Action::CreateAccess { access } => {
                format!("create group {} of {}", access.group, access.target)
            }
            Action::ModifyAccess { to, .. } => {
                format!("change group {} of {}", to.group, to.target)
            }
            Action::RemoveAccess { access } => {
                format!("remove group {} of {}", access.group, access.target)
            }
            Action::Regroup { target, .. } => format!("change the groups of {target}"),
            Action::Renew { of } => format!("read files of {of} anew"),
        }
    }

    /// The name of the thing that changes; for a group `TARGET/GROUP`.
    pub fn name(&self) -> String {
        match self {
            Action::Daemon { .. } => "daemon".to_owned(),
            Action::Api { .. } => "api".to_owned(),
            Action::Webhooks { .. } => "webhooks".to_owned(),
            Action::Units { .. } => "units".to_owned(),
            Action::PortGroups { .. } => "alua".to_owned(),
            Action::CreateBus { bus }
            | Action::RemoveBus { bus }
            | Action::ModifyBus { to: bus, .. } => bus.name.clone(),
            Action::CreateDisk { disk }
            | Action::RemoveDisk { disk }
            | Action::GrowDisk { to: disk, .. }
            | Action::IdentifyDisk { to: disk, .. }
            | Action::ModifyDisk { to: disk, .. }
            | Action::RenameDisk { to: disk, .. } => disk.name.clone(),
            Action::CreateGeom { geom }
            | Action::RemoveGeom { geom }
            | Action::ModifyGeom { to: geom, .. } => geom.name.clone(),
            Action::CreateTarget { target } | Action::RemoveTarget { target } => {
                target.name.clone()
            }
            Action::ModifyTarget { to, .. } => to.name.clone(),
            Action::Regroup { target, .. } => target.clone(),
            Action::Renew { of } => of.name().to_owned(),
            Action::CreateAccess { access }
            | Action::RemoveAccess { access }
            | Action::ModifyAccess { to: access, .. } => {
                format!("{}/{}", access.target, access.group)
            }
        }
    }
}

/// Data that a step would destroy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataLoss {
    /// Which data, in words.
    pub why: String,
    /// The names to give as consent.
    pub names: Vec<String>,
}

/// Names that consent to each loss of data by these steps, each once.
pub fn consent_names<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in steps.into_iter().flat_map(|step| &step.consent_names) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// What happens, one line.
    pub what: String,
    /// Why it is needed, one sentence.
    pub why: String,
    /// How dangerous it is.
    pub risk: Risk,
    /// Names to give as consent, because the data there is lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consent_names: Vec<String>,
    /// Initiators that are logged in now and notice it; a disk that is lost may concern others.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The change itself.
    pub action: Action,
    /// What takes it back.
    pub inverse: Action,
    /// When it fails it is left out, and the daemon continues trying: the daemon starts, or the
    /// thing was there before and was removed.
    #[serde(skip)]
    pub may_wait: bool,
}

impl Step {
    /// A step for `action`.
    pub fn new(action: Action, why: impl Into<String>, risk: Risk) -> Step {
        let (what, why, inverse) = (action.summary(), why.into(), action.inverse());
        let consent_names =
            if risk == Risk::Destroys { action.consent_names() } else { Vec::new() };
        Step { what, why, risk, consent_names, hosts: Vec::new(), action, inverse, may_wait: false }
    }

    /// Marks that the data on the objects of these names is lost.
    pub fn set_destroys(&mut self, loss: DataLoss) {
        self.why = match self.risk == Risk::Destroys && !self.hosts.is_empty() {
            true => format!("{}; {}", self.why, loss.why),
            false => loss.why,
        };
        self.risk = Risk::Destroys;
        for name in loss.names {
            if !self.consent_names.contains(&name) {
                self.consent_names.push(name);
            }
        }
    }
}

impl Step {
    /// The risk in words, with whom it concerns.
    pub fn risk_text(&self) -> String {
        let word = self.risk.label();
        let more = self.hosts.len().saturating_sub(HOSTS_SHOWN);
        let mut hosts = self.hosts.iter().take(HOSTS_SHOWN).cloned().collect::<Vec<_>>().join(", ");
        if more > 0 {
            hosts.push_str(&format!(" and {more} more"));
        }
        match (hosts.is_empty(), self.risk) {
            (true, _) => word.to_owned(),
            (false, Risk::Destroys) => format!("{word}: in use by {hosts}"),
            (false, _) => format!("{word}: {hosts}"),
        }
    }
}

/// Initiators that a line of a plan names; the rest are counted.
const HOSTS_SHOWN: usize = 2;

/// Units that get protection information which they did not have: it is written over the end of
/// their providers.
pub(super) fn newly_protected<'a>(
    from: &'a [UnitConfig],
    to: &'a [UnitConfig],
) -> impl Iterator<Item = &'a UnitConfig> {
    to.iter().filter(move |unit| {
        let was = from.iter().find(|f| f.provider == unit.provider).map(|f| f.protection);
        unit.protection != UnitProtection::None && was.unwrap_or_default() == UnitProtection::None
    })
}
