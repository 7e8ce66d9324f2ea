//! Checks of a configuration that no schema can express: duplicate names, names without a target,
//! groups that claim the same initiator.

use super::catalog::Catalog;
use super::check_daemon;
use super::listeners;
use super::secret::HIDDEN_SECRET;
use super::suggest::suggest;
use super::types::{AccessConfig, Config, DiskConfig, TargetConfig};
use crate::api::Kind;
use crate::plan::{bus_may_provide, owner_names};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use wire::pattern::{Naming, PATTERN_MAX, Pattern};
use wire::portal::{PortalRule, any_overlaps};
use wire::scsi::{SERIAL_MAX, parse_eui64, parse_naa, parse_uuid};

/// Greatest LUN number: 24 bits, extended flat space addressing (SAM-5 4.7.7.5). Greater ones are
/// refused.
pub const LUN_MAX: u64 = wire::scsi::LUN_MAX as u64;

/// Longest path of a Unix socket, bytes: the kernel's `sun_path` (108) without its final zero.
pub const SOCKET_PATH_MAX: usize = 107;

/// A fault that concerns one key of one section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `disk`, `geom`, `target`, `access`, `daemon`.
    pub section: &'static str,
    /// Which section of that kind, from 0.
    pub index: usize,
    /// Which key of it.
    pub key: &'static str,
    /// Which element of the key's list, from 0.
    pub element: Option<usize>,
    /// For control flow.
    pub kind: Kind,
    /// What, one line.
    pub text: String,
}

/// Everything that is wrong with a configuration on its own. Whether the providers it names exist
/// is known only when it is carried out: tasting may create them.
pub fn check(config: &Config, catalog: &Catalog) -> Vec<Problem> {
    let mut problems = Vec::new();
    names(config, &mut problems);
    daemon(config, catalog, &mut problems);
    super::api::check(config, &mut problems);
    super::webhook::check(config, &mut problems);
    hidden_secrets(config, &mut problems);
    images(config, &mut problems);
    geoms(config, &mut problems);
    cycles(config, &mut problems);
    targets(config, catalog, &mut problems);
    listeners::check(config, catalog, &mut problems);
    units(config, &mut problems);
    ids(config, &mut problems);
    port_groups(config, &mut problems);
    groups(config, catalog, &mut problems);
    access_overlaps(config, &mut problems);
    problems
}

pub(super) fn problem(
    section: &'static str,
    index: usize,
    key: &'static str,
    kind: Kind,
    text: String,
) -> Problem {
    Problem { section, index, key, element: None, kind, text }
}

fn bad_name(name: &str) -> bool {
    name.chars().any(|c| c.is_whitespace() || c.is_control() || "\"'`\\".contains(c))
}

/// Checks the names. Buses, disks and geoms share one name space: disks and geoms become providers,
/// and the name of a bus identifies the users of its disks. Targets and groups have name spaces of
/// their own.
fn names(config: &Config, out: &mut Vec<Problem>) {
    let mut seen: HashMap<&str, &'static str> = HashMap::new();
    let buses = config.bus.iter().enumerate().map(|(i, b)| ("bus", i, b.name.as_str()));
    let disks = config.disk.iter().enumerate().map(|(i, d)| ("disk", i, d.name.as_str()));
    let geoms = config.geom.iter().enumerate().map(|(i, g)| ("geom", i, g.name.as_str()));
    for (section, i, name) in buses.chain(disks).chain(geoms) {
        if bad_name(name) {
            let text = "a name has no spaces, quotes or control characters".to_owned();
            out.push(problem(section, i, "name", Kind::ConfigValue, text));
        }
        if let Some(first) = seen.insert(name, section) {
            let text = format!("a {first} is already named `{name}`");
            out.push(problem(section, i, "name", Kind::ConfigName, text));
        }
    }
    for (i, bus) in config.bus.iter().enumerate() {
        let mut places: HashMap<&str, &str> = HashMap::new();
        for (name, place) in &bus.names {
            let text = if bad_name(name) || name.is_empty() {
                "a name has no spaces, quotes or control characters".to_owned()
            } else if let Some(first) = seen.insert(name, "name of a disk of a bus") {
                format!("a {first} is already named `{name}`")
            } else if let Some(other) = places.insert(place, name) {
                format!("`{other}` and `{name}` are the same disk, `{place}`")
            } else {
                continue;
            };
            out.push(problem("bus", i, "names", Kind::ConfigName, text));
        }
    }
    let mut seen = HashSet::new();
    for (i, target) in config.target.iter().enumerate() {
        if bad_name(&target.name) {
            let text = "a name has no spaces, quotes or control characters".to_owned();
            out.push(problem("target", i, "name", Kind::ConfigValue, text));
        }
        if !seen.insert(&target.name) {
            let text = format!("a target is already named `{}`", target.name);
            out.push(problem("target", i, "name", Kind::ConfigName, text));
        }
    }
    let mut seen = HashSet::new();
    for (i, access) in config.access.iter().enumerate() {
        if !seen.insert((&access.target, &access.group)) {
            let text = format!("{} already has a group `{}`", access.target, access.group);
            out.push(problem("access", i, "group", Kind::ConfigName, text));
        }
    }
}

fn daemon(config: &Config, catalog: &Catalog, out: &mut Vec<Problem>) {
    use tracing_subscriber::filter::Targets;
    let daemon = &config.daemon;
    if daemon.log.parse::<Targets>().is_err() {
        let text = "a level (`info`) or a list (`info,geom=debug`) is wanted here".to_owned();
        out.push(problem("daemon", 0, "log", Kind::ConfigValue, text));
    }
    check_daemon::metrics(daemon, out);
    check_daemon::sandbox(config, catalog, out);
}

/// A document of `export` may have placeholders where secrets were: they are no secrets.
fn hidden_secrets(config: &Config, out: &mut Vec<Problem>) {
    let mut hidden = |section: &'static str, index, key: &'static str, name: &str| {
        let text = format!(
            "`{key}` of {section} {name}: `ashlar export` hid the secret that is written out here: \
             keep the file that has it, write it again, or use `ashlar export --secrets`"
        );
        out.push(problem(section, index, key, Kind::ConfigValue, text));
    };
    for (i, bus) in config.bus.iter().enumerate() {
        for key in ["chap", "mutual"] {
            let secret = bus.params.get(key).and_then(|account| account.get("secret"));
            if secret.and_then(Value::as_str) == Some(HIDDEN_SECRET) {
                hidden("bus", i, key, &bus.name);
            }
        }
    }
    for (i, target) in config.target.iter().enumerate() {
        for (key, account) in [
            ("chap", &target.chap),
            ("mutual_chap", &target.mutual_chap),
            ("discovery_chap", &target.discovery_chap),
        ] {
            if account.as_ref().is_some_and(|account| account.secret == HIDDEN_SECRET) {
                hidden("target", i, key, &target.name);
            }
        }
    }
    for (i, access) in config.access.iter().enumerate() {
        for (initiator, account) in access.accounts() {
            let mutual = account.mutual.as_ref().map(|mutual| &mutual.secret);
            if mutual.into_iter().chain([&account.secret]).any(|secret| secret == HIDDEN_SECRET) {
                let key = if initiator.is_some() { "initiator_chap" } else { "chap" };
                hidden("access", i, key, &format!("{}/{}", access.target, access.group));
            }
        }
    }
}

fn geoms(config: &Config, out: &mut Vec<Problem>) {
    for (i, geom) in config.geom.iter().enumerate() {
        let text = match (&geom.provider, geom.members.is_empty()) {
            (Some(_), false) => "either `provider` or `members`, not both",
            // A file server's config string or its lines name its devices.
            (None, true) if ["device", "settings"].iter().any(|k| geom.params.contains_key(*k)) => {
                continue;
            }
            (None, true) => "`provider` or `members` is missing",
            _ => continue,
        };
        out.push(problem("geom", i, "provider", Kind::ConfigKey, text.to_owned()));
    }
    for (i, geom) in config.geom.iter().enumerate() {
        let mut seen = HashSet::new();
        for (k, member) in geom.members.iter().enumerate() {
            if !seen.insert(member) {
                let text = format!("`{member}` is listed twice among the members");
                let p = problem("geom", i, "members", Kind::ConfigName, text);
                out.push(Problem { element: Some(k), ..p });
            }
        }
    }
}

/// Reports a geom that uses itself, directly or through others.
fn cycles(config: &Config, out: &mut Vec<Problem>) {
    let index: HashMap<&str, usize> =
        config.geom.iter().enumerate().map(|(i, g)| (g.name.as_str(), i)).collect();
    // Remove geoms whose providers are all resolved; the remaining ones are in or on a cycle.
    let mut left: HashSet<usize> = (0..config.geom.len()).collect();
    loop {
        let free: Vec<usize> = left
            .iter()
            .copied()
            .filter(|&i| {
                let below = config.geom.get(i).into_iter().flat_map(|g| g.provider_names());
                below.filter_map(|b| index.get(b)).all(|b| !left.contains(b))
            })
            .collect();
        if free.is_empty() {
            break;
        }
        left.retain(|i| !free.contains(i));
    }
    let mut left: Vec<usize> = left.into_iter().collect();
    left.sort_unstable();
    for i in left {
        let text = "uses itself through the geoms below (cycle)".to_owned();
        out.push(problem("geom", i, "name", Kind::ConfigName, text));
    }
}

fn targets(config: &Config, catalog: &Catalog, out: &mut Vec<Problem>) {
    for (i, target) in config.target.iter().enumerate() {
        if target.listen.is_empty() != catalog.driver(&target.driver).is_local {
            let text = match target.listen.is_empty() {
                true => "`listen` is missing: `listen = [\"0.0.0.0:3260\"]`",
                false => "a local target has no portals; leave `listen` out",
            };
            out.push(problem("target", i, "listen", Kind::ConfigValue, text.to_owned()));
        }
        for (k, address) in target.listen.iter().enumerate() {
            if let Some(text) = address_fault(address) {
                let p = problem("target", i, "listen", Kind::ConfigValue, text);
                out.push(Problem { element: Some(k), ..p });
            }
        }
        listed_portals(i, target, out);
        if let Some(text) = tls_mismatch(config.target.get(..i).unwrap_or_default(), target) {
            out.push(problem("target", i, "listen", Kind::ConfigValue, text));
        }
        if let (Some(chap), Some(mutual)) = (&target.chap, &target.mutual_chap)
            && chap.secret == mutual.secret
            && chap.secret != HIDDEN_SECRET
        {
            let text = "both directions use the same secret (RFC 7143 9.2.1 forbids it)";
            out.push(problem("target", i, "mutual_chap", Kind::ConfigValue, text.to_owned()));
        }
        if target.mutual_chap.is_some() && target.chap.is_none() {
            let text = "`mutual_chap` needs `chap`: the initiator authenticates first";
            out.push(problem("target", i, "mutual_chap", Kind::ConfigKey, text.to_owned()));
        }
    }
}

/// Why nothing can listen at an address of a target.
fn address_fault(address: &str) -> Option<String> {
    if let Some(path) = address.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        let bytes = path.len();
        return (bytes > SOCKET_PATH_MAX).then(|| {
            format!(
                "`{address}` has a path of {bytes} bytes; the path of a Unix socket has at most \
                 {SOCKET_PATH_MAX}"
            )
        });
    }
    let is_known = interface(address).is_some() || address.parse::<SocketAddr>().is_ok();
    (!is_known).then(|| {
        format!(
            "`{address}` is not an address with a port (127.0.0.1:3260), unix:PATH or \
             ether:INTERFACE"
        )
    })
}

/// Reports portals that a target lists twice: the second could not be bound.
fn listed_portals(i: usize, target: &TargetConfig, out: &mut Vec<Problem>) {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for (k, address) in target.listen.iter().enumerate() {
        let portal = match address.parse::<SocketAddr>() {
            // Each gets a free port of its own.
            Ok(at) if at.port() == 0 => continue,
            // An IPv4 address is the same one in IPv6's form.
            Ok(at) => match at.ip().to_canonical() {
                IpAddr::V4(ip) => SocketAddr::from((ip, at.port())).to_string(),
                IpAddr::V6(_) => at.to_string(),
            },
            Err(_) => address.clone(),
        };
        let Some(first) = seen.insert(portal, address) else { continue };
        let text = match first == address {
            true => format!("`{address}` is listed twice"),
            false => format!("`{address}` is the same address as `{first}`"),
        };
        let p = problem("target", i, "listen", Kind::ConfigValue, text);
        out.push(Problem { element: Some(k), ..p });
    }
}

/// The TLS settings of a target; settings that are off or empty count as absent.
fn tls_settings(target: &TargetConfig) -> BTreeMap<&str, &Value> {
    let chosen = target.params.iter().filter(|(key, value)| {
        key.starts_with("tls") && !value.as_str().is_some_and(|v| v.is_empty() || v == "off")
    });
    chosen.map(|(key, value)| (key.as_str(), value)).collect()
}

/// TLS begins before a peer has named its target: targets at one address have to agree about it.
fn tls_mismatch(before: &[TargetConfig], target: &TargetConfig) -> Option<String> {
    let mut same_driver = before.iter().filter(|t| t.driver == target.driver);
    same_driver.find_map(|other| {
        let address = target.listen.iter().find(|at| other.listen.contains(at))?;
        (tls_settings(other) != tls_settings(target)).then(|| {
            format!(
                "target `{}` listens at {address} too, with other TLS parameters; give both the \
                 same `tls`, `tls_certificate`, `tls_key` and `tls_client_ca`, or this one \
                 another address",
                other.name
            )
        })
    })
}

fn units(config: &Config, out: &mut Vec<Problem>) {
    let mut seen = HashSet::new();
    for (i, unit) in config.unit.iter().enumerate() {
        let percents = unit.thresholds.as_deref().unwrap_or_default();
        if percents.len() > 2 || percents.iter().any(|p| !(1..=99).contains(p)) {
            let text = "at most two percentages, 1 to 99, are wanted here".to_owned();
            out.push(problem("unit", i, "thresholds", Kind::ConfigValue, text));
        }
        if !seen.insert(&unit.provider) {
            let text = format!("there is a unit of `{}` already", unit.provider);
            out.push(problem("unit", i, "provider", Kind::ConfigName, text));
        }
        for (key, value) in
            [("vendor", &unit.vendor), ("product", &unit.product), ("revision", &unit.revision)]
        {
            if value.as_ref().is_some_and(|v| !v.bytes().all(|b| (0x20..0x7f).contains(&b))) {
                let text = "only printable ASCII characters can be shown".to_owned();
                out.push(problem("unit", i, key, Kind::ConfigValue, text));
            }
        }
    }
}

/// Sections of a document about an object that does not exist: a mistyped name. Between the steps
/// of a plan such a section is no fault.
pub(super) fn unused_sections(config: &Config) -> Vec<Problem> {
    let mut out = Vec::new();
    let luns = config.access.iter().flat_map(|a| a.luns.values());
    let mut names: Vec<&str> = luns.map(|lun| lun.provider.as_str()).collect();
    names.extend(config.disk.iter().map(|d| d.name.as_str()));
    names.extend(config.geom.iter().map(|g| g.name.as_str()));
    let known: HashSet<&str> = names.iter().copied().collect();
    for (i, unit) in config.unit.iter().enumerate() {
        let name = unit.provider.as_str();
        // Disks of buses, and providers named by a label, are known when they are found.
        let found = name.contains('/') || bus_may_provide(&config.bus, name);
        if found || owner_names(name).any(|owner| known.contains(owner)) {
            continue;
        }
        let meant = suggest(name, names.iter().copied());
        let meant = meant.map(|m| format!("; did you mean `{m}`?")).unwrap_or_default();
        let text = format!("there is no `{name}`: this section has no effect{meant}");
        out.push(problem("unit", i, "provider", Kind::ConfigName, text));
    }
    out
}

/// One file or device is one disk: two would write beside each other. Disks that only read may
/// share it.
fn images(config: &Config, out: &mut Vec<Problem>) {
    // Paths compare without `.`. Links are followed in a plan: a file system may block.
    let mut seen: HashMap<&Path, &DiskConfig> = HashMap::new();
    for (i, disk) in config.disk.iter().enumerate() {
        let Some(path) = disk.image() else { continue };
        let first = *seen.entry(path).or_insert(disk);
        if disk.conflicts_with(first) {
            let text = format!(
                "`{}` is the disk `{}` already; give this one another file, or both \
                 `read_only = true`",
                path.display(),
                first.name
            );
            out.push(problem("disk", i, "path", Kind::ConfigValue, text));
        }
    }
}

/// Names by which hosts know a unit: the key, and its meaning.
const IDS: [(&str, &str); 4] =
    [("serial", "serial number"), ("naa", "NAA name"), ("uuid", "UUID"), ("eui64", "EUI-64")];

/// A name that is configured for a unit: where, and of which provider.
struct UnitId<'c> {
    section: &'static str,
    index: usize,
    provider: &'c str,
    text: &'c str,
}

/// A unit has one serial number, and one of every other name, wherever it is written; no other unit
/// has it.
fn ids(config: &Config, out: &mut Vec<Problem>) {
    let exported: HashSet<&str> = config
        .access
        .iter()
        .flat_map(|a| a.luns.values())
        .map(|lun| lun.provider.as_str())
        .collect();
    for (key, what) in IDS {
        let mut all = unit_ids(config, key, &exported);
        all.retain(|identity| match id_fault(key, identity.text) {
            None => true,
            Some(text) => {
                out.push(problem(identity.section, identity.index, key, Kind::ConfigValue, text));
                false
            }
        });
        duplicate_ids(&all, (key, what), out);
    }
}

fn unit_ids<'c>(config: &'c Config, key: &str, exported: &HashSet<&str>) -> Vec<UnitId<'c>> {
    let units = config.unit.iter().enumerate().filter_map(|(index, unit)| {
        let text = match key {
            "serial" => &unit.serial,
            "naa" => &unit.naa,
            "uuid" => &unit.uuid,
            _ => &unit.eui64,
        };
        Some(UnitId { section: "unit", index, provider: &unit.provider, text: text.as_deref()? })
    });
    let groups = config.access.iter().enumerate().filter(|_| key == "serial");
    let luns = groups.flat_map(|(index, access)| {
        access.luns.values().filter_map(move |lun| {
            let text = lun.serial.as_deref()?;
            Some(UnitId { section: "access", index, provider: &lun.provider, text })
        })
    });
    // Paths of one disk have one serial number, and are not shown.
    let disks = config.disk.iter().enumerate().filter_map(|(index, disk)| {
        let text = disk.params.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())?;
        let counts = key != "serial" || exported.contains(disk.name.as_str());
        counts.then_some(UnitId { section: "disk", index, provider: &disk.name, text })
    });
    units.chain(luns).chain(disks).collect()
}

/// The fault in the form of a name.
fn id_fault(key: &str, text: &str) -> Option<String> {
    match key {
        "naa" => parse_naa(text).err(),
        "uuid" => parse_uuid(text).err(),
        "eui64" => parse_eui64(text).err(),
        _ => {
            let fits = (1..=SERIAL_MAX).contains(&text.len());
            let is_shown = text.bytes().all(|b| (0x20..0x7f).contains(&b));
            (!fits || !is_shown).then(|| {
                format!(
                    "a serial number has 1 to {SERIAL_MAX} printable ASCII characters, this one {}",
                    text.chars().count()
                )
            })
        }
    }
}

fn duplicate_ids(all: &[UnitId<'_>], (key, what): (&'static str, &str), out: &mut Vec<Problem>) {
    let (mut of, mut whose) = (HashMap::new(), HashMap::new());
    for identity in all {
        // A setting of the unit overrides the same setting of its disk.
        if identity.section == "disk" && of.contains_key(identity.provider) {
            continue;
        }
        // Letters of a serial number count as they are; hexadecimal digits do not.
        let value =
            if key == "serial" { identity.text.to_owned() } else { identity.text.to_lowercase() };
        let first = of.entry(identity.provider).or_insert(value.clone());
        let owner = *whose.entry(value.clone()).or_insert(identity.provider);
        let text = if *first != value {
            format!("`{}` has two {what}s, `{first}` and `{value}`", identity.provider)
        } else if owner != identity.provider {
            format!(
                "`{owner}` and `{}` have the same {what}, `{value}`: hosts would take them for \
                 one disk",
                identity.provider
            )
        } else {
            continue;
        };
        let place = if identity.section == "access" { "luns" } else { key };
        out.push(problem(identity.section, identity.index, place, Kind::ConfigName, text));
    }
}

fn port_groups(config: &Config, out: &mut Vec<Problem>) {
    for (i, group) in config.alua.iter().enumerate() {
        let before = config.alua.get(..i).unwrap_or_default();
        if before.iter().any(|g| g.name == group.name) {
            let text = format!("there is a port group `{}` already", group.name);
            out.push(problem("alua", i, "name", Kind::ConfigName, text));
        }
        // Group 1 is the default group while the configuration does not describe that group.
        let described = config.alua.iter().any(|g| g.name == "default");
        let taken = !described && group.id == 1 && group.name != "default";
        if taken || before.iter().any(|g| g.id == group.id) {
            let text = format!("another port group has the identifier {}", group.id);
            out.push(problem("alua", i, "id", Kind::ConfigName, text));
        }
    }
    for (i, target) in config.target.iter().enumerate() {
        let before = config.target.get(..i).unwrap_or_default();
        let same = |t: &&TargetConfig| t.port_id.is_some() && t.port_id == target.port_id;
        if let Some(other) = before.iter().find(same) {
            let text = format!("target `{}` has that identifier", other.name);
            out.push(problem("target", i, "port_id", Kind::ConfigName, text));
        }
        let Some(name) = &target.port_group else { continue };
        if name != "default" && !config.alua.iter().any(|g| g.name == *name) {
            let meant = suggest(name, config.alua.iter().map(|g| g.name.as_str()));
            let meant = meant.map(|m| format!("; did you mean `{m}`?")).unwrap_or_default();
            let text = format!("no [[alua]] group `{name}`{meant}");
            out.push(problem("target", i, "port_group", Kind::ConfigName, text));
        }
    }
}

fn groups(config: &Config, catalog: &Catalog, out: &mut Vec<Problem>) {
    for (i, access) in config.access.iter().enumerate() {
        if config.target(&access.target).is_none() {
            let names = config.target.iter().map(|t| t.name.as_str());
            let meant = suggest(&access.target, names).map(|m| format!("; did you mean `{m}`?"));
            let text = format!("no target `{}`{}", access.target, meant.unwrap_or_default());
            out.push(problem("access", i, "target", Kind::ConfigName, text));
        }
        for (k, rule) in access.portals.iter().enumerate() {
            if PortalRule::new(rule).is_none() {
                let text =
                    "ADDRESS, ADDRESS:PORT, *:PORT, unix:PATH or ether:INTERFACE is wanted here"
                        .to_owned();
                let p = problem("access", i, "portals", Kind::ConfigValue, text);
                out.push(Problem { element: Some(k), ..p });
            }
        }
        for (k, pattern) in access.initiators.iter().enumerate() {
            if let Some(why) = bad_address_pattern((config, catalog), access, pattern) {
                let p = problem("access", i, "initiators", Kind::ConfigValue, why);
                out.push(Problem { element: Some(k), ..p });
            }
            if Pattern::new(pattern).is_none() || bad_name(pattern) {
                let text = format!("not a pattern of up to {} bytes", PATTERN_MAX);
                let p = problem("access", i, "initiators", Kind::ConfigValue, text);
                out.push(Problem { element: Some(k), ..p });
            }
        }
        accounts((config, catalog), i, access, out);
        if let Some(lun) = access.luns.keys().find(|&&lun| lun > LUN_MAX) {
            let text = format!("LUN {lun} is too large: at most {LUN_MAX}");
            out.push(problem("access", i, "luns", Kind::ConfigValue, text));
        }
    }
}

/// Why a pattern of an address matches no initiator, if it does not: initiators of other protocols
/// may have names, and addresses are no networks.
fn bad_address_pattern(
    (config, catalog): (&Config, &Catalog),
    access: &AccessConfig,
    pattern: &str,
) -> Option<String> {
    let address = pattern.strip_prefix("ip:")?;
    let driver = config.target(&access.target)?.driver.as_str();
    if catalog.driver(driver).naming != Naming::Address {
        return Some(format!(
            "`{pattern}` matches no initiator: those of {driver} are known by their names; limit \
             them to addresses of ours by `portals`"
        ));
    }
    let (net, _) = address.split_once('/')?;
    Some(format!(
        "`{pattern}` matches no initiator: write a pattern of addresses, as in `ip:{net}` or \
                  `ip:10.0.0.*`"
    ))
}

/// The accounts of a group: of a protocol that has them, of initiators that belong to it, with
/// two different secrets each.
fn accounts(
    (config, catalog): (&Config, &Catalog),
    i: usize,
    access: &AccessConfig,
    out: &mut Vec<Problem>,
) {
    let driver = config.target(&access.target).map(|t| t.driver.as_str());
    let theirs = config.target(&access.target).and_then(|t| t.mutual_chap.as_ref());
    let mut seen: HashMap<String, &str> = HashMap::new();
    for (initiator, account) in access.accounts() {
        let key = if initiator.is_some() { "initiator_chap" } else { "chap" };
        let belongs = |name: &str| {
            let mut patterns = access.initiators.iter().filter_map(|p| Pattern::new(p));
            patterns.any(|p| p.matches(name))
        };
        let mutual = account.mutual.as_ref().or(theirs);
        let folded = initiator.and_then(|name| wire::iscsi::normalise_name(name).ok());
        let first = folded.zip(initiator).and_then(|(name, typed)| seen.insert(name, typed));
        let text = if driver.is_some_and(|d| catalog.driver(d).naming != Naming::Iscsi) {
            format!("only iSCSI has CHAP; {} is a {} target", access.target, driver.unwrap_or(""))
        } else if mutual.is_some_and(|m| m.secret == account.secret)
            && account.secret != HIDDEN_SECRET
        {
            format!(
                "the account `{}` and the target use the same secret (RFC 7143 9.2.1 forbids it)",
                account.user
            )
        } else if let Some(name) = initiator
            && wire::iscsi::normalise_name(name).is_err()
        {
            format!("`{name}` is not an iSCSI name, which begins with iqn., eui. or naa.")
        } else if let Some(name) = initiator
            && !belongs(name)
        {
            format!("`{name}` matches no pattern of `initiators` of group `{}`", access.group)
        } else if let (Some(first), Some(name)) = (first, initiator) {
            format!("`{first}` and `{name}` are one iSCSI name: give it one account")
        } else {
            continue;
        };
        out.push(problem("access", i, key, Kind::ConfigValue, text));
    }
}

/// The interface in a text of the form `ether:NAME`, where NAME is a valid interface name.
pub(crate) fn interface(text: &str) -> Option<&str> {
    let name = text.strip_prefix("ether:")?;
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    let fits = (1..=15).contains(&name.len()) && !name.contains(odd);
    (fits && name != "." && name != "..").then_some(name)
}

/// True when an initiator could reach a portal of both groups.
fn portals_overlap(a: &AccessConfig, b: &AccessConfig) -> bool {
    let rules = |g: &AccessConfig| -> Vec<PortalRule> {
        g.portals.iter().filter_map(|r| PortalRule::new(r)).collect()
    };
    any_overlaps(&rules(a), &rules(b))
}

fn access_overlaps(config: &Config, out: &mut Vec<Problem>) {
    for (i, later) in config.access.iter().enumerate() {
        for earlier in config.access.iter().take(i).filter(|a| a.target == later.target) {
            if earlier.group == later.group || !portals_overlap(earlier, later) {
                continue;
            }
            let pairs = later.initiators.iter().enumerate();
            let clash = pairs
                .flat_map(|(k, x)| earlier.initiators.iter().map(move |y| (k, x, y)))
                .find_map(|(k, x, y)| {
                    Pattern::new(x)?.common(&Pattern::new(y)?).map(|name| (k, x, y, name))
                });
            if let Some((k, x, y, name)) = clash {
                let text = format!(
                    "`{x}` and `{y}` of group `{}` both match an initiator named `{name}`{}",
                    earlier.group,
                    match earlier.portals.is_empty() && later.portals.is_empty() {
                        true => "",
                        false => ", and some portal is of both groups",
                    }
                );
                let p = problem("access", i, "initiators", Kind::AccessOverlap, text);
                out.push(Problem { element: Some(k), ..p });
            }
        }
    }
}
