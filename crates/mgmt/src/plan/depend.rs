//! Dependencies between providers, geoms and disks, from names and the running graph.
//!
//! A reference in a configuration may name a provider that tasting makes (`d0p1`, `gpt/root`). So
//! two sources are used: the graph for existing providers, and the form of the name for others.

use super::apply::{Deferred, DeferredPart};
use super::manual_changes::members;
use super::rename::{is_bsd_letter, is_part};
use crate::api::{SystemState, TargetHealth, TargetState};
use crate::config::{AccessConfig, BusConfig, Catalog, Config, GeomConfig, SectionKey};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Whether a provider of that name belongs, by the form of the name, to the disk or geom `owner`.
/// That is the same name, `owner` behind a class and a slash, or `owner` with `p1`, `s1`, `.suffix`
/// or `/suffix` appended. It is a letter (BSD) where `owner` ends in a digit.
pub fn name_depends_on(reference: &str, owner: &str) -> bool {
    let bare = match reference.split_once('/') {
        Some((_, tail)) if tail.starts_with(owner) => tail,
        _ => reference,
    };
    let Some(rest) = bare.strip_prefix(owner) else {
        return false;
    };
    let has_digit = || owner.ends_with(|c: char| c.is_ascii_digit());
    rest.starts_with(['.', '/']) || is_part(rest) && (!is_bsd_letter(rest) || has_digit())
}

/// Prefixes of `name` that [`name_depends_on`] accepts as owners of `reference`, the longest first.
fn owning_prefixes<'a>(reference: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let prefixes = (1..=name.len()).rev().filter_map(move |end| name.get(..end));
    prefixes.filter(move |owner| name_depends_on(reference, owner))
}

/// Every name that [`name_depends_on`] accepts as the owner of a provider. Among thousands of disks
/// and geoms, looking these few names up replaces a comparison with each of them.
pub fn owner_names(reference: &str) -> impl Iterator<Item = &str> {
    let tail = reference.split_once('/').map_or("", |(_, tail)| tail);
    owning_prefixes(reference, reference).chain(owning_prefixes(reference, tail))
}

/// Whether a bus of a configuration may add a provider of that name. That is a disk that it names
/// or that is named by its kind, or a geom that is found by its record (`CLASS/NAME`).
pub fn bus_may_provide(buses: &[BusConfig], name: &str) -> bool {
    let is_own = |own: &String| name_depends_on(name, own);
    let kinds = ["da", "ada", "cd"];
    let is_numbered = |kind: &&str| {
        name.strip_prefix(*kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    !buses.is_empty()
        && (name.contains('/')
            || kinds.iter().any(is_numbered)
            || buses.iter().flat_map(|bus| bus.names.keys()).any(is_own))
}

/// The entry of the disk or geom of a provider of that name, by [`name_depends_on`]; of several
/// owners that with the longest name.
pub(super) fn owner_entry<'a, T>(all: &'a HashMap<String, T>, reference: &str) -> Option<&'a T> {
    owning_prefixes(reference, reference).find_map(|owner| all.get(owner))
}

/// The buses, disks and geoms below every provider of the running graph, through any number of
/// layers.
pub struct DependencyGraph {
    below: HashMap<String, HashSet<String>>,
}

impl DependencyGraph {
    /// From a snapshot.
    pub fn new(state: &SystemState) -> DependencyGraph {
        let mut below: HashMap<String, HashSet<String>> = HashMap::new();
        let mut geoms: Vec<_> = state.geoms.iter().collect();
        geoms.sort_by_key(|g| g.rank);
        for geom in geoms {
            let mut all = HashSet::from([geom.name.clone()]);
            for provider in geom.consumers.iter().filter_map(|c| c.provider.as_ref()) {
                all.extend(below.get(provider).into_iter().flatten().cloned());
            }
            for provider in &geom.providers {
                below.entry(provider.name.clone()).or_default().extend(all.iter().cloned());
            }
        }
        let devices = state.buses.iter().flat_map(|bus| {
            bus.devices.iter().map(move |device| (device.name.as_str(), bus.name.as_str()))
        });
        let buses: HashMap<&str, &str> = devices.collect();
        if !buses.is_empty() {
            for all in below.values_mut() {
                let its = all.iter().filter_map(|name| buses.get(name.as_str()));
                let its: Vec<String> = its.map(|bus| (*bus).to_owned()).collect();
                all.extend(its);
            }
        }
        for disk in &state.disks {
            below.entry(disk.name.clone()).or_default().insert(disk.name.clone());
        }
        DependencyGraph { below }
    }

    /// Whether the provider `reference` depends on the disk or geom `owner`. For existing providers
    /// the graph decides and not the names: `mirror/r0` need not depend on a disk `r0`.
    pub fn depends_on(&self, reference: &str, owner: &str) -> bool {
        let known = self.below.get(reference).map(|names| names.contains(owner));
        reference == owner || known.unwrap_or_else(|| name_depends_on(reference, owner))
    }

    /// Every name on which a provider depends by [`DependencyGraph::depends_on`].
    pub fn owners<'a>(&'a self, reference: &'a str) -> Vec<&'a str> {
        match self.below.get(reference) {
            Some(names) => names.iter().map(String::as_str).chain([reference]).collect(),
            None => owner_names(reference).collect(),
        }
    }
}

/// The geoms of `config`, those below first. Where names show no dependency, the order of the
/// document stays.
pub fn bottom_up<'c>(config: &'c Config, ground: &DependencyGraph) -> Vec<&'c GeomConfig> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, geom) in config.geom.iter().enumerate() {
        places.entry(geom.name.as_str()).or_default().push(place);
    }
    // Geoms above each one, and the number of geoms below it that are not in the list yet.
    let mut above: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut missing: HashMap<usize, usize> = HashMap::new();
    for (place, geom) in config.geom.iter().enumerate() {
        let owners = geom.provider_names().flat_map(|name| ground.owners(name));
        let owners: BTreeSet<&str> = owners.filter(|owner| *owner != geom.name).collect();
        for below in owners.into_iter().filter_map(|owner| places.get(owner)).flatten() {
            above.entry(*below).or_default().push(place);
            *missing.entry(place).or_default() += 1;
        }
    }
    let mut left: BTreeMap<usize, &GeomConfig> = config.geom.iter().enumerate().collect();
    let mut free: BTreeSet<usize> =
        left.keys().copied().filter(|place| !missing.contains_key(place)).collect();
    let mut out = Vec::with_capacity(left.len());
    // Names that seem to form a ring: the document's order is as good as any.
    while let Some(place) = free.pop_first().or_else(|| left.keys().next().copied()) {
        out.extend(left.remove(&place));
        for user in above.remove(&place).unwrap_or_default() {
            let count = missing.entry(user).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 && left.contains_key(&user) {
                free.insert(user);
            }
        }
    }
    out
}

/// The part of `config`, the configuration carried out last, that still exists. A bus, disk, geom
/// or target that disappeared on its own is left out, so that a plan adds it again.
pub fn running_config(config: &Config, state: &SystemState) -> Config {
    let mut left = config.clone();
    // The listener of metrics could not be opened.
    if state.daemon.metrics_listen.is_none() {
        left.daemon.metrics_listen = None;
        left.daemon.metrics_token = None;
    }
    // A disk that lost its medium is listed, and has no provider.
    let listed: HashSet<&str> = state.disks.iter().map(|d| d.name.as_str()).collect();
    let providers = state.geoms.iter().flat_map(|g| &g.providers);
    let live: HashSet<&str> = providers.map(|p| p.name.as_str()).collect();
    left.disk.retain(|d| [&listed, &live].iter().all(|s| s.contains(d.name.as_str())));
    let buses: HashSet<&str> = state.buses.iter().map(|s| s.name.as_str()).collect();
    left.bus.retain(|b| buses.contains(b.name.as_str()));
    let mut withering: HashMap<(&str, &str), bool> = HashMap::new();
    for geom in &state.geoms {
        withering.entry((geom.class.as_str(), geom.name.as_str())).or_insert(geom.withering);
    }
    left.geom.retain(|g| withering.get(&(g.class.as_str(), g.name.as_str())) == Some(&false));
    // A target that could not be made is listed, and is down.
    let up = state.targets.iter().filter(|s| s.state != TargetHealth::Down);
    let up: HashMap<&str, &TargetState> = up.map(|s| (s.name.as_str(), s)).collect();
    left.target.retain(|t| up.contains_key(t.name.as_str()));
    left.access.retain(|a| {
        let target = up.get(a.target.as_str());
        target.is_some_and(|t| t.groups.iter().any(|g| g.name == a.group))
    });
    left
}

/// Members of geoms that were found by their records although their sections were refused: in
/// `base` they are as in the records.
pub fn adopt_found_members(
    base: &mut Config,
    left_out: &[Deferred],
    state: &SystemState,
    catalog: &Catalog,
) {
    let was_refused = |geom: &GeomConfig| {
        let of = left_out.iter().filter_map(|left| match &left.part {
            DeferredPart::Step(action) => action.geom(),
            DeferredPart::Export(_) => None,
        });
        of.into_iter().any(|refused| refused == geom)
    };
    for geom in base.geom.iter_mut().filter(|geom| was_refused(geom)) {
        let named = |now: &Vec<String>| geom.members.iter().any(|member| now.contains(member));
        if let Some(now) = members(geom, state, catalog).filter(|now| !named(now)) {
            geom.members = now;
        }
    }
}

/// Puts lost objects that are not `wanted` any more back into `base`, the present part of `config`.
/// A plan takes it out, lest it return by itself.
pub fn keep_lost_objects(base: &mut Config, config: &Config, wanted: &Config) {
    fn keep<T: Clone>(base: &mut Vec<T>, all: &[T], wanted: &[T], key: SectionKey<T>) {
        let present: HashSet<_> = base.iter().chain(wanted).map(key).collect();
        let lost = all.iter().filter(|one| !present.contains(&key(one)));
        let lost: Vec<T> = lost.cloned().collect();
        drop(present);
        base.extend(lost);
    }
    keep(&mut base.bus, &config.bus, &wanted.bus, |bus| ("", bus.name.as_str()));
    keep(&mut base.disk, &config.disk, &wanted.disk, |disk| ("", disk.name.as_str()));
    keep(&mut base.geom, &config.geom, &wanted.geom, |geom| ("", geom.name.as_str()));
    keep(&mut base.target, &config.target, &wanted.target, |target| ("", target.name.as_str()));
    keep(&mut base.access, &config.access, &wanted.access, AccessConfig::key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_follow_the_graph_rather_than_names() {
        let provider =
            |name: &str| crate::api::ProviderState { name: name.into(), ..Default::default() };
        let geom = |name: &str, rank, below: &[&str], up: &str| crate::api::GeomState {
            name: name.into(),
            rank,
            consumers: below
                .iter()
                .map(|p| crate::api::ConsumerState {
                    provider: Some((*p).into()),
                    ..Default::default()
                })
                .collect(),
            providers: vec![provider(up)],
            ..Default::default()
        };
        let geoms = vec![
            geom("r0", 1, &[], "r0"),
            geom("r1", 1, &[], "r1"),
            geom("one", 2, &["r1"], "mirror/r0"),
        ];
        let ground = DependencyGraph::new(&SystemState { geoms, ..SystemState::default() });
        assert!(!ground.depends_on("mirror/r0", "r0"), "a disk that is called alike");
        assert!(ground.depends_on("mirror/r0", "r1") && ground.depends_on("mirror/r0", "one"));
        assert!(
            ground.depends_on("r0", "r0") && ground.depends_on("mirror/r0p1", "r0"),
            "as names tell"
        );
        for reference in ["r0", "r1", "mirror/r0", "mirror/r0p1", "r0.nop", "gpt/root"] {
            let owners = ground.owners(reference);
            for owner in ["r0", "r1", "one", "mirror/r0", "mirror", "gpt", reference] {
                let is_owner = ground.depends_on(reference, owner);
                assert_eq!(owners.contains(&owner), is_owner, "{reference} on {owner}");
            }
        }
    }

    #[test]
    fn lost_disks_that_are_not_wanted_are_kept_for_their_removal() {
        let disk = |name: &&str| crate::config::DiskConfig {
            name: (*name).to_owned(),
            kind: "null".to_owned(),
            params: Default::default(),
        };
        let of =
            |names: &[&str]| Config { disk: names.iter().map(disk).collect(), ..Config::default() };
        let mut base = of(&["here"]);
        keep_lost_objects(&mut base, &of(&["here", "lost", "wanted"]), &of(&["wanted"]));
        assert_eq!(base, of(&["here", "lost"]));
    }

    #[test]
    fn geoms_are_ordered_from_the_bottom_up_as_the_document_has_them() {
        let geom = |(name, below): &(&str, &str)| GeomConfig {
            class: "nop".to_owned(),
            name: (*name).to_owned(),
            provider: Some((*below).to_owned()),
            members: Vec::new(),
            params: Default::default(),
        };
        let sorted = |geoms: &[(&str, &str)]| -> Vec<String> {
            let config = Config { geom: geoms.iter().map(geom).collect(), ..Config::default() };
            let ground = DependencyGraph::new(&SystemState::default());
            bottom_up(&config, &ground).into_iter().map(|geom| geom.name.clone()).collect()
        };
        let chain = [("top", "mid.nop"), ("x", "d0"), ("mid", "nop/low"), ("low", "d1")];
        assert_eq!(sorted(&chain), ["x", "low", "mid", "top"]);
        let ring = [("above", "a"), ("a", "b"), ("b", "a.nop"), ("y", "d0")];
        assert_eq!(sorted(&ring), ["y", "above", "a", "b"]);
    }

    #[test]
    fn provider_names_identify_their_owner() {
        for (reference, owner, rests) in [
            ("d0", "d0", true),
            ("d0p1", "d0", true),
            ("d0s2", "d0", true),
            ("d0.nop", "d0", true),
            ("mirror/m0", "m0", true),
            ("mirror/m0p2", "m0", true),
            ("mirror/m0", "mirror", true),
            ("mirror/m0", "mirror/m0", true),
            ("d0a", "d0", true),
            ("d0s1a", "d0", true),
            ("d0u", "d0", false),
            ("data", "dat", false),
            ("d01", "d0", false),
            ("d0pool", "d0", false),
            ("gpt/root", "d0", false),
            ("d", "d0", false),
        ] {
            assert_eq!(name_depends_on(reference, owner), rests, "{reference} on {owner}");
            let is_named = owner_names(reference).any(|name| name == owner);
            assert_eq!(is_named, rests, "{owner} among the owners of {reference}");
        }
    }
}
