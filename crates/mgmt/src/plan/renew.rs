//! Steps that read files again whose contents differ from those in use.
//!
//! They depend on files, not on configurations, and so stay outside of the laws of `plan`.

use super::action::{Action, Risk, Step};
use super::risk::renewal_risk;
use crate::api::SystemState;
use crate::config::Config;
use crate::plant::StaleFiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A section of the configuration that names files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum FileSection {
    /// `[api]`: certificates and keys.
    Api,
    /// A bus: secrets.
    Bus(String),
    /// A disk: certificates and keys of its connections.
    Disk(String),
    /// A file server: certificates and keys.
    Fs(String),
    /// A target with its groups: secrets, certificates and keys.
    Target(String),
    /// A webhook: its secret, and the certificates that verify its server.
    Webhook(String),
}

impl FileSection {
    /// The name of the section.
    pub fn name(&self) -> &str {
        match self {
            FileSection::Api => "api",
            FileSection::Bus(name)
            | FileSection::Disk(name)
            | FileSection::Fs(name)
            | FileSection::Target(name)
            | FileSection::Webhook(name) => name,
        }
    }

    /// Whether a configuration has it.
    pub fn is_in(&self, config: &Config) -> bool {
        match self {
            FileSection::Api => config.api.tls_files().is_some(),
            FileSection::Bus(name) => config.bus(name).is_some(),
            FileSection::Disk(name) => config.disk(name).is_some(),
            FileSection::Fs(name) => config.geom(name).is_some(),
            FileSection::Target(name) => config.target(name).is_some(),
            FileSection::Webhook(name) => config.webhook.iter().any(|hook| hook.name == *name),
        }
    }

    /// Whether an action makes or changes it, which reads its files.
    fn is_created_by(&self, action: &Action) -> bool {
        match (self, action) {
            (FileSection::Api, Action::Api { .. }) => true,
            (FileSection::Bus(name), Action::CreateBus { bus }) => bus.name == *name,
            (
                FileSection::Disk(name),
                Action::CreateDisk { disk } | Action::ModifyDisk { to: disk, .. },
            ) => disk.name == *name,
            (FileSection::Fs(name), Action::CreateGeom { geom }) => geom.name == *name,
            (FileSection::Target(name), Action::CreateTarget { target }) => target.name == *name,
            (FileSection::Webhook(name), Action::Webhooks { from, to }) => {
                to.iter().any(|hook| hook.name == *name && !from.contains(hook))
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for FileSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            FileSection::Api => return f.write_str(self.name()),
            FileSection::Bus(_) => "bus",
            FileSection::Disk(_) => "disk",
            FileSection::Fs(_) => "fs",
            FileSection::Target(_) => "target",
            FileSection::Webhook(_) => "webhook",
        };
        write!(f, "{kind} {}", self.name())
    }
}

/// Adds one step for each section of `stale` that the other steps leave in place. Disks are grown
/// and members appended after them, because that is not taken back when a later step fails.
pub fn renew(steps: &mut Vec<Step>, stale: Vec<StaleFiles>, desired: &Config, state: &SystemState) {
    let is_created = |of: &FileSection| steps.iter().any(|step| of.is_created_by(&step.action));
    let stays = |s: &StaleFiles| s.of.is_in(desired) && !is_created(&s.of);
    let step = |s: StaleFiles| {
        let judged = renewal_risk(&s, state);
        let why = match judged.risk {
            Risk::Safe => s.why,
            _ => format!("{}; the next login of clients of the former CA fails", s.why),
        };
        let step = Step::new(Action::Renew { of: s.of }, why, judged.risk);
        Step { hosts: judged.hosts, ..step }
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{SessionState, TargetState};
    use crate::config::WebhookConfig;
    use crate::fake::catalog;

    #[test]
    fn section_that_another_step_changes_is_not_read_twice() {
        let text = "[[webhook]]\nname = 'a'\nurl = 'http://127.0.0.1:1/'\n";
        let config = crate::config::read(text, "a.toml", &catalog()).expect("well-formed");
        let planned = |from: Vec<WebhookConfig>| {
            let to = config.webhook.clone();
            let mut steps = vec![Step::new(Action::Webhooks { from, to }, "", Risk::Safe)];
            let stale = ["a", "gone"].map(|name| StaleFiles {
                of: FileSection::Webhook(name.into()),
                why: "secret has changed".into(),
                drops_client_ca: false,
            });
            renew(&mut steps, stale.into(), &config, &SystemState::default());
            steps.iter().skip(1).map(|step| step.what.clone()).collect::<Vec<_>>()
        };
        assert_eq!(planned(config.webhook.clone()), ["read files of webhook a anew"]);
        assert_eq!(planned(Vec::new()), [""; 0]);
    }

    #[test]
    fn dropped_client_ca_is_disruptive_for_hosts_with_tls() {
        let text = "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['127.0.0.1:0']\n";
        let config = crate::config::read(text, "a.toml", &catalog()).expect("well-formed");
        let session = |initiator: &str, tls: Option<&str>| SessionState {
            initiator: initiator.into(),
            tls: tls.map(str::to_owned),
            ..SessionState::default()
        };
        let target = TargetState {
            name: "iqn.a:t".into(),
            sessions: vec![session("alice", Some("alice")), session("bob", None)],
            ..TargetState::default()
        };
        let state = SystemState { targets: vec![target], ..SystemState::default() };
        let planned = |drops_client_ca| {
            let of = FileSection::Target("iqn.a:t".into());
            let stale = vec![StaleFiles { of, why: "it has changed".into(), drops_client_ca }];
            let mut steps = Vec::new();
            renew(&mut steps, stale, &config, &state);
            (steps[0].risk_text(), steps[0].why.clone())
        };
        assert_eq!(planned(false), ("safe".into(), "it has changed".into()));
        let why = "it has changed; the next login of clients of the former CA fails";
        assert_eq!(planned(true), ("disruptive: alice".into(), why.into()));
    }
}
