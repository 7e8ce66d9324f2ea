//! Addresses at which targets, file servers and metrics listen.
//!
//! Targets of one driver share a listener. Listeners of two drivers do not overlap, and a listener
//! of a file server, of the API or of metrics overlaps no other one.

use super::api::ApiConfig;
use super::catalog::Catalog;
use super::check::{Problem, problem};
use super::daemon::DaemonConfig;
use super::types::{Config, GeomConfig, TargetConfig};
use crate::api::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wire::portal::{LocalAddress, listeners_overlap};

/// Owner of the listeners of `[api]`.
const API: &str = "[api]";

/// The part that opens a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source<'a> {
    /// A target of that driver.
    Target(&'a str),
    /// A geom that serves clients itself: a file server.
    Geom,
    Api,
    Metrics,
}

impl Source<'_> {
    /// Whether listeners of the same source at one address are one.
    fn shares(self) -> bool {
        !matches!(self, Source::Geom | Source::Api)
    }
}

/// A listener of a target, a file server, the API or metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener<'a> {
    source: Source<'a>,
    address: &'a str,
    /// Name of the target or file server, or [`API`]; empty for metrics.
    owner: &'a str,
}

impl<'a> Listener<'a> {
    /// The listeners of a target, in the order of its key `listen`.
    pub(crate) fn of_target(target: &'a TargetConfig) -> impl Iterator<Item = Listener<'a>> {
        let (source, owner) = (Source::Target(&target.driver), target.name.as_str());
        target.listen.iter().map(move |address| Listener { source, address, owner })
    }

    /// The listeners of the API, in the order of its key `listen`.
    pub(crate) fn of_api(api: &'a ApiConfig) -> impl Iterator<Item = Listener<'a>> {
        api.listen.iter().map(|address| Listener { source: Source::Api, address, owner: API })
    }

    /// The listeners of a file server, each with its key and its place in the list of that key.
    pub(crate) fn of_geom(
        geom: &'a GeomConfig,
        catalog: &Catalog,
    ) -> impl Iterator<Item = (&'static str, usize, Listener<'a>)> + use<'a> {
        catalog.facts(&geom.class).listen_keys.iter().flat_map(move |key| {
            let list = geom.params.get(*key).and_then(Value::as_array);
            list.into_iter().flatten().enumerate().filter_map(move |(i, address)| {
                let address = address.as_str()?;
                Some((*key, i, Listener { source: Source::Geom, address, owner: &geom.name }))
            })
        })
    }

    /// The listener of metrics, if there is one.
    pub(crate) fn of_daemon(daemon: &'a DaemonConfig) -> Option<Listener<'a>> {
        let address = daemon.metrics_listen.as_deref()?;
        Some(Listener { source: Source::Metrics, address, owner: "" })
    }

    /// The address, as its section has it.
    pub(crate) fn address(&self) -> &'a str {
        self.address
    }

    /// Whether only one of two listeners can be open.
    fn conflicts_with(&self, other: &Listener<'_>) -> bool {
        let is_shared = self.source == other.source && self.source.shares();
        !is_shared && overlap(self.address, other.address)
    }
}

impl fmt::Display for Listener<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self.source {
            Source::Api => return write!(f, "`{}` of {API}", self.address),
            Source::Metrics => return write!(f, "`{}` of `metrics_listen`", self.address),
            Source::Geom => "file server",
            Source::Target(_) => "target",
        };
        write!(f, "`{}` of {owner} `{}`", self.address, self.owner)
    }
}

/// Interfaces are shared: their protocols have different types.
fn overlap(a: &str, b: &str) -> bool {
    match (LocalAddress::parse(a), LocalAddress::parse(b)) {
        (Some(LocalAddress::Inet(a)), Some(LocalAddress::Inet(b))) => listeners_overlap(a, b),
        (Some(LocalAddress::Unix(a)), Some(LocalAddress::Unix(b))) => a == b,
        _ => false,
    }
}

/// Two listeners of which only one can be open.
pub(crate) fn conflict(new: Listener<'_>, other: Listener<'_>) -> String {
    let whose = if new.source == other.source { "another listener" } else { "another driver" };
    format!("{new} overlaps {other}, with {whose}: write another address or port")
}

/// Listeners that are open together.
#[derive(Default)]
pub(crate) struct Listeners<'a> {
    /// Owners by source and address.
    owners: BTreeMap<(Source<'a>, &'a str), BTreeSet<&'a str>>,
}

impl<'a> Listeners<'a> {
    /// Adds a listener, unless it conflicts with one of them, which is returned.
    pub(crate) fn add(&mut self, new: Listener<'a>) -> Option<Listener<'a>> {
        let key = (new.source, new.address);
        if !new.source.shares() || !self.owners.contains_key(&key) {
            let mut all = self.owners.iter().filter_map(|(&(source, address), owners)| {
                Some(Listener { source, address, owner: owners.first().copied()? })
            });
            let other = all.find(|other| other.conflicts_with(&new));
            if other.is_some() {
                return other;
            }
        }
        self.owners.entry(key).or_default().insert(new.owner);
        None
    }

    /// Removes a listener, if it was added.
    pub(crate) fn remove(&mut self, old: Listener<'a>) {
        let key = (old.source, old.address);
        let Some(owners) = self.owners.get_mut(&key) else { return };
        owners.remove(old.owner);
        if owners.is_empty() {
            self.owners.remove(&key);
        }
    }
}

/// Reports listeners of a configuration that conflict.
pub(super) fn check(config: &Config, catalog: &Catalog, out: &mut Vec<Problem>) {
    let targets = config.target.iter().enumerate().flat_map(|(i, target)| {
        let all = Listener::of_target(target).enumerate();
        all.map(move |(k, listener)| ("target", i, "listen", k, listener))
    });
    let servers = config.geom.iter().enumerate().flat_map(|(i, geom)| {
        let all = Listener::of_geom(geom, catalog);
        all.map(move |(key, k, listener)| ("geom", i, key, k, listener))
    });
    let api = Listener::of_api(&config.api).enumerate();
    let api = api.map(|(k, listener)| ("api", 0, "listen", k, listener));
    let mut open = Listeners::default();
    for (section, i, key, k, listener) in targets.chain(servers).chain(api) {
        let Some(other) = open.add(listener) else { continue };
        let p = problem(section, i, key, Kind::ConfigValue, conflict(listener, other));
        out.push(Problem { element: Some(k), ..p });
    }
    if let Some(listener) = Listener::of_daemon(&config.daemon)
        && let Some(other) = open.add(listener)
    {
        let text = conflict(listener, other);
        out.push(problem("daemon", 0, "metrics_listen", Kind::ConfigValue, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::catalog;

    fn target(name: &str, driver: &str, listen: &[&str]) -> TargetConfig {
        let section = serde_json::json!({ "name": name, "driver": driver, "listen": listen });
        serde_json::from_value(section).expect("a target")
    }

    fn server(name: &str, plan9: &str, console: &str) -> GeomConfig {
        let section = serde_json::json!({
            "class": "fs", "name": name, "members": ["c", "w"], "plan9": [plan9],
            "console": [console],
        });
        serde_json::from_value(section).expect("a geom")
    }

    fn texts(target: Vec<TargetConfig>, geom: Vec<GeomConfig>) -> Vec<String> {
        let mut out = Vec::new();
        check(&Config { target, geom, ..Config::default() }, &catalog(), &mut out);
        let place = |p: &Problem| (p.section, p.index, p.key, p.element);
        out.iter().map(|p| format!("{:?} {}", place(p), p.text)).collect()
    }

    #[test]
    fn listeners_of_two_drivers_are_refused_where_they_overlap() {
        let iscsi = target("a", "iscsi", &["10.0.0.1:3260", "unix:/run/a"]);
        for (listen, k, other) in [
            (&["[::1]:1", "10.0.0.1:3260"][..], 1, "`10.0.0.1:3260` of target `a`"),
            (&["0.0.0.0:3260"][..], 0, "`10.0.0.1:3260` of target `a`"),
            (&["[::]:3260"][..], 0, "`10.0.0.1:3260` of target `a`"),
            (&["unix:/run/a"][..], 0, "`unix:/run/a` of target `a`"),
        ] {
            let found = texts(vec![iscsi.clone(), target("n", "nbd", listen)], Vec::new());
            let [one] = found.as_slice() else { panic!("{listen:?}: {found:?}") };
            let place = format!("(\"target\", 1, \"listen\", Some({k}))");
            assert!(one.starts_with(&place) && one.contains("of target `n`"), "{one}");
            assert!(one.contains(other) && one.contains("with another driver"), "{one}");
        }
        for at in ["10.0.0.2:3260", "0.0.0.0:3261", "unix:/run/b"] {
            let found = texts(vec![iscsi.clone(), target("n", "nbd", &[at])], Vec::new());
            assert!(found.is_empty(), "{found:?}");
        }
        let same = target("b", "iscsi", &["0.0.0.0:3260", "unix:/run/a"]);
        assert!(texts(vec![iscsi, same], Vec::new()).is_empty(), "they share listeners");
    }

    #[test]
    fn listener_of_metrics_overlaps_no_others() {
        let daemon = DaemonConfig {
            metrics_listen: Some("127.0.0.1:3260".into()),
            ..DaemonConfig::default()
        };
        let config = |at: &str| Config {
            daemon: daemon.clone(),
            target: vec![target("a", "iscsi", &[at])],
            ..Config::default()
        };
        let mut out = Vec::new();
        check(&config("127.0.0.1:3261"), &catalog(), &mut out);
        assert_eq!(out, []);
        check(&config("0.0.0.0:3260"), &catalog(), &mut out);
        let [one] = out.as_slice() else { panic!("{out:?}") };
        assert_eq!((one.section, one.key), ("daemon", "metrics_listen"));
        assert!(one.text.starts_with("`127.0.0.1:3260` of `metrics_listen`"), "{}", one.text);
        assert!(one.text.contains("of target `a`"), "{}", one.text);
    }

    #[test]
    fn listeners_of_file_servers_overlap_no_others() {
        let nbd = || vec![target("n", "nbd", &["127.0.0.1:564", "127.0.0.1:0"])];
        let found = texts(nbd(), vec![server("main", "0.0.0.0:564", "ether:eth0")]);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert!(one.starts_with("(\"geom\", 0, \"plan9\", Some(0))"), "{one}");
        assert!(one.contains("of file server `main`") && one.contains("of target `n`"), "{one}");
        let two = vec![server("a", "127.0.0.1:565", "unix:/c"), server("b", "[::]:565", "unix:/d")];
        let found = texts(nbd(), two);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert!(one.contains("of file server `a`, with another listener"), "{one}");
        let free = |name: &str, console: &str| server(name, "127.0.0.1:0", console);
        let apart = vec![free("a", "unix:/c"), free("b", "unix:/d")];
        assert!(texts(nbd(), apart).is_empty());
    }
}
