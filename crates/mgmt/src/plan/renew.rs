//! Steps that read files again whose contents differ from those in use.
//!
//! They depend on files, not on configurations, and so stay outside of the laws of `plan`.

use super::action::{Action, Risk, Step};
use crate::config::Config;
use crate::plant::StaleFiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A section of the configuration that names files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum FileSection {
    /// A bus: secrets.
    Bus(String),
    /// A file server: certificates and keys.
    Fs(String),
    /// A target with its groups: secrets, certificates and keys.
    Target(String),
}

impl FileSection {
    /// The name of the section.
    pub fn name(&self) -> &str {
        match self {
            FileSection::Bus(name) | FileSection::Fs(name) | FileSection::Target(name) => name,
        }
    }

    /// Whether a configuration has it.
    pub fn is_in(&self, config: &Config) -> bool {
        match self {
            FileSection::Bus(name) => config.bus(name).is_some(),
            FileSection::Fs(name) => config.geom(name).is_some(),
            FileSection::Target(name) => config.target(name).is_some(),
        }
    }

    /// Whether an action makes it, which reads its files.
    fn is_made_by(&self, action: &Action) -> bool {
        match (self, action) {
            (FileSection::Bus(name), Action::CreateBus { bus }) => bus.name == *name,
            (FileSection::Fs(name), Action::CreateGeom { geom }) => geom.name == *name,
            (FileSection::Target(name), Action::CreateTarget { target }) => target.name == *name,
            _ => false,
        }
    }
}

impl std::fmt::Display for FileSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            FileSection::Bus(_) => "bus",
            FileSection::Fs(_) => "fs",
            FileSection::Target(_) => "target",
        };
        write!(f, "{kind} {}", self.name())
    }
}

/// Adds one step for each section of `stale` that the other steps leave in place. Disks are grown
/// and members appended after them, because that is not taken back when a later step fails.
pub fn renew(steps: &mut Vec<Step>, stale: Vec<StaleFiles>, desired: &Config) {
    let is_made = |of: &FileSection| steps.iter().any(|step| of.is_made_by(&step.action));
    let stays = |s: &StaleFiles| s.of.is_in(desired) && !is_made(&s.of);
    let step = |s: StaleFiles| Step::new(Action::Renew { of: s.of }, s.why, Risk::Safe);
    let more: Vec<Step> = stale.into_iter().filter(stays).map(step).collect();
    let grows = |step: &Step| match &step.action {
        Action::GrowDisk { .. } => true,
        Action::ModifyGeom { from, to } => {
            from.members != to.members && to.members.starts_with(&from.members)
        }
        _ => false,
    };
    let at = steps.iter().position(grows).unwrap_or(steps.len());
    steps.splice(at..at, more);
}
