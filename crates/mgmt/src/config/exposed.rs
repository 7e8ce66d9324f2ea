//! Warnings about targets that let in more hosts than their owner may expect: targets without
//! authentication, and targets where one host can use the name of another one.

use super::catalog::Catalog;
use super::types::{AccessConfig, Config, TargetConfig};
use std::net::SocketAddr;
use wire::pattern::Naming;

/// Patterns that every host of a protocol matches.
const ALL: [&str; 4] = ["*", "iqn.*", "nqn.*", "ip:*"];

/// A warning about one target; it does not make a configuration invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The target.
    pub target: String,
    /// The possible consequence.
    pub why: String,
    /// The line to write.
    pub fix: String,
}

/// Every such target, in the order of the configuration.
pub fn exposures(config: &Config, catalog: &Catalog) -> Vec<Exposure> {
    let mut out = Vec::new();
    for target in &config.target {
        let groups: Vec<&AccessConfig> =
            config.access.iter().filter(|a| a.target == target.name).collect();
        let naming = catalog.driver(&target.driver).naming;
        out.extend(unauthenticated(target, naming, &groups));
        out.extend(shared_account(target, &groups));
    }
    out
}

/// Whether it can be reached from another machine.
fn is_beyond_loopback(target: &TargetConfig) -> bool {
    target.listen.iter().any(|at| match at.parse::<SocketAddr>() {
        Ok(at) => !at.ip().to_canonical().is_loopback(),
        Err(_) => at.starts_with("ether:"),
    })
}

/// Whether every client must use TLS. Where it is only allowed, a client without it has to prove
/// nothing, and `tls_client_ca` does not change that.
fn requires_tls(target: &TargetConfig) -> bool {
    target.params.get("tls").and_then(serde_json::Value::as_str) == Some("require")
}

/// A pattern of a group that every host matches.
fn pattern_of_all(access: &AccessConfig) -> Option<&str> {
    access.initiators.iter().map(String::as_str).find(|pattern| ALL.contains(pattern))
}

/// Any host on the network is let in, without proof.
fn unauthenticated(
    target: &TargetConfig,
    naming: Naming,
    groups: &[&AccessConfig],
) -> Option<Exposure> {
    let proves = |a: &&&AccessConfig| target.chap.is_some() || a.accounts().next().is_some();
    let mut unproven = groups.iter().filter(|a| !a.luns.is_empty() && !proves(a));
    let (open, pattern) = unproven.find_map(|a| Some((a, pattern_of_all(a)?)))?;
    if !is_beyond_loopback(target) || requires_tls(target) {
        return None;
    }
    let fix = match naming {
        Naming::Iscsi => "name its initiators, or give the group `chap`",
        Naming::Address => {
            "name its initiators, or give the target `tls = \"require\"` and `tls_client_ca`"
        }
        Naming::Plain => "name its initiators, and isolate that network",
    };
    Some(Exposure {
        target: target.name.clone(),
        why: format!(
            "group {} admits every host that reaches {} (pattern `{pattern}`, neither CHAP nor \
             required TLS)",
            open.group,
            target.listen.join(", ")
        ),
        fix: fix.to_owned(),
    })
}

/// Several groups, and one account for them all: a host that knows it can take the name of any
/// other.
fn shared_account(target: &TargetConfig, groups: &[&AccessConfig]) -> Option<Exposure> {
    let account = target.chap.as_ref()?;
    let sharing: Vec<&str> =
        groups.iter().filter(|a| a.accounts().next().is_none()).map(|a| a.group.as_str()).collect();
    (sharing.len() > 1).then(|| Exposure {
        target: target.name.clone(),
        why: format!(
            "groups {} share the account `{}`: an initiator of one can log in under a name of \
             another and write its LUNs",
            sharing.join(", "),
            account.user
        ),
        fix: "give each [[access]] group its own `chap`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Chap, InitiatorChap};
    use crate::fake::catalog;

    fn config(listen: &str, patterns: &[&str]) -> Config {
        let target = TargetConfig {
            driver: "iscsi".into(),
            name: "iqn.t".into(),
            listen: vec![listen.into()],
            chap: None,
            mutual_chap: None,
            discovery_chap: None,
            header_digest: Default::default(),
            data_digest: Default::default(),
            port_group: None,
            port_id: None,
            params: Default::default(),
        };
        let lun = crate::config::LunConfig {
            provider: "d".into(),
            mode: Default::default(),
            serial: None,
        };
        let group = |(i, pattern): (usize, &&str)| AccessConfig {
            target: "iqn.t".into(),
            group: format!("g{i}"),
            initiators: vec![(*pattern).to_owned()],
            luns: [(0, lun.clone())].into(),
            ..AccessConfig::default()
        };
        let access = patterns.iter().enumerate().map(group).collect();
        Config { target: vec![target], access, ..Config::default() }
    }

    fn chap() -> Chap {
        Chap { user: "u".into(), secret: "file:/s".into() }
    }

    #[test]
    fn open_targets_are_reported_unless_they_authenticate() {
        let exposures = |config: &Config| exposures(config, &catalog());
        assert_eq!(exposures(&config("127.0.0.1:3260", &["*"])), []);
        assert_eq!(exposures(&config("[::ffff:127.0.0.1]:3260", &["*"])), []);
        assert_eq!(exposures(&config("0.0.0.0:3260", &["iqn.h:*"])), []);
        let open = config("0.0.0.0:3260", &["*"]);
        let exposed = exposures(&open);
        assert!(exposed.len() == 1 && exposed[0].why.contains("group g0"), "{exposed:?}");
        let exposed = exposures(&config("0.0.0.0:3260", &["iqn.h:*", "iqn.*"]));
        assert!(exposed.len() == 1 && exposed[0].why.contains("pattern `iqn.*`"), "{exposed:?}");
        let mut proven = open.clone();
        proven.target[0].chap = Some(chap());
        assert_eq!(exposures(&proven), []);
        let mut proven = open.clone();
        let account = InitiatorChap { user: "u".into(), secret: "file:/s".into(), mutual: None };
        proven.access[0].chap = Some(account);
        assert_eq!(exposures(&proven), []);
        let with_tls = |tls: &str| {
            let mut to = open.clone();
            to.target[0].params.insert("tls".into(), tls.into());
            to.target[0].params.insert("tls_client_ca".into(), "/ca.pem".into());
            to
        };
        assert_eq!(exposures(&with_tls("allow")).len(), 1, "a client in the clear proves nothing");
        assert_eq!(exposures(&with_tls("require")), []);
        let mut encrypted = open.clone();
        encrypted.target[0].params.insert("tls".into(), "require".into());
        assert_eq!(exposures(&encrypted), []);
    }

    #[test]
    fn account_shared_by_several_groups_is_reported() {
        let exposures = |config: &Config| exposures(config, &catalog());
        let mut two = config("127.0.0.1:3260", &["iqn.a", "iqn.b"]);
        two.target[0].chap = Some(chap());
        assert!(exposures(&two)[0].why.contains("groups g0, g1 share"));
        let own = InitiatorChap { user: "b".into(), secret: "file:/b".into(), mutual: None };
        two.access[1].chap = Some(own);
        assert_eq!(exposures(&two), []);
    }
}
