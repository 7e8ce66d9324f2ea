//! Reattachment of disks whose medium disappeared, and of the geoms above them.
//!
//! ```text
//!   here --its medium goes: noted--> gone --the path is there, as large as it was--> opened, here
//!                                    ^ \--it is another disk, or smaller: noted----+
//!                                    +---- looked at again, ever more seldom ------+
//! ```
//!
//! Invariants
//!  T1  A disk is reattached by itself only if it is the same: of the same serial number, not
//!      smaller. Any other disk is reattached by the operator, with `apply`.
//!  T2  The search for a file neither makes it nor makes it longer.
//!  T3  The search costs the control thread little: `path_watch` looks at the paths, and `openings`
//!      opens them. A disk that is lost again soon after its return is tried less and less often.
//!  T4  No disk is reattached to a medium that another disk has open, unless both only read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bio::Attr;
use disks::{Arrivals, PathKind, path_kind};
use geom::{Error, GeomId, Topology};
use mgmt::api::Level;
use mgmt::config::{Config, DiskConfig, GeomConfig};
use mgmt::plan::Action;
use serde_json::Value;

use crate::path_watch::Finding;

/// How often paths of lost disks are looked at, ns.
pub const CHECK_INTERVAL_NS: u64 = 1_000_000_000;

/// Longest pause between two tries of one disk, ns.
const PAUSE_NS_MAX: u64 = 60_000_000_000;

/// A disk that is lost again within this time after its return is tried more seldom, ns.
const SETTLED_NS: u64 = 60_000_000_000;

/// Identity and size of a disk when it last worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskIdentity {
    ident: String,
    bytes: u64,
}

/// How a lost disk is looked for.
#[derive(Clone, Copy, Debug, Default)]
struct Search {
    next_ns: u64,
    pause_ns: u64,
    back_ns: Option<u64>,
}

/// See the module.
#[derive(Default)]
pub struct Reattach {
    known: BTreeMap<String, DiskIdentity>,
    /// Configured disks without a medium for which this was reported.
    missing: BTreeSet<String>,
    /// Geoms of the configuration that were removed with their disks, or declared before them.
    geoms: BTreeSet<String>,
    /// Missing disks whose loss is reported when their path has been examined.
    unexplained: BTreeSet<String>,
    /// Last findings at the paths of missing disks.
    findings: BTreeMap<String, Finding>,
    /// The same, also while a later examination hangs: changes are reported against these.
    last_findings: BTreeMap<String, Finding>,
    searches: BTreeMap<String, Search>,
    /// Missing disks that are being opened.
    attempts: BTreeSet<String>,
    /// Losses that were looked at; `None`: there is something new to look at.
    losses: Option<u64>,
    /// Further parts of the configuration that could not be carried out, and are tried again.
    pending: Vec<(Action, Search)>,
    /// The last reported reason why a disk or geom did not return.
    last_reported: BTreeMap<String, String>,
    next_ns: u64,
}

impl Reattach {
    /// A disk is there, or has another size.
    pub fn record_identity(&mut self, topology: &Topology, disk: &str) {
        let Some(provider) = topology.find(disk) else { return };
        let ident = match topology.attr(provider, "GEOM::ident") {
            Some(Attr::Text(ident)) => ident,
            _ => String::new(),
        };
        let bytes = topology.limits(provider).map_or(0, |l| l.media_bytes);
        self.known.insert(disk.to_owned(), DiskIdentity { ident, bytes });
        self.last_reported.remove(disk);
    }

    /// A lost disk is to have the serial number that its section gives.
    pub fn expect_serial(&mut self, disk: &DiskConfig) {
        let serial = disk.params.get("serial").and_then(Value::as_str).filter(|s| !s.is_empty());
        if let (Some(known), Some(serial)) = (self.known.get_mut(&disk.name), serial) {
            serial.clone_into(&mut known.ident);
        }
    }

    /// Whether a disk has been here since the start.
    pub fn is_known(&self, disk: &str) -> bool {
        self.known.contains_key(disk)
    }

    /// A disk is not wanted any more.
    pub fn forget(&mut self, disk: &str) {
        self.known.remove(disk);
        self.searches.remove(disk);
        self.attempts.remove(disk);
        self.last_reported.remove(disk);
    }

    /// Disks that have lost their medium since the last call, and why. Those with a path are left
    /// to [`Reattach::record_findings`].
    pub fn losses(
        &mut self,
        topology: &Topology,
        config: &Config,
        now: u64,
    ) -> Vec<(String, String)> {
        if Some(topology.losses()) == self.losses && self.missing.is_empty() {
            return Vec::new();
        }
        self.losses = Some(topology.losses());
        let gone: Vec<&DiskConfig> =
            config.disk.iter().filter(|d| topology.find(&d.name).is_none()).collect();
        let names: BTreeSet<String> = gone.iter().map(|d| d.name.clone()).collect();
        let fresh = gone.iter().filter(|d| !self.missing.contains(&d.name));
        let (with_path, others): (Vec<&DiskConfig>, Vec<&DiskConfig>) =
            fresh.copied().partition(|d| d.image().is_some());
        let reports = others.iter().map(|d| (d.name.clone(), self.pathless_reason(d))).collect();
        for disk in with_path {
            self.unexplained.insert(disk.name.clone());
            self.findings.remove(&disk.name);
            self.last_findings.remove(&disk.name);
        }
        for name in names.difference(&self.missing) {
            let search = self.searches.entry(name.clone()).or_default();
            let settled = search.back_ns.take().is_none_or(|at| now > at + SETTLED_NS);
            if settled {
                search.pause_ns = CHECK_INTERVAL_NS;
            }
            search.next_ns = now + search.pause_ns;
        }
        self.missing = names;
        let lost = config.geom.iter().filter(|g| {
            let exists = topology.find_geom(&g.class, &g.name).is_some();
            !exists && g.provider_names().any(|b| topology.find(b).is_none())
        });
        self.geoms.extend(lost.map(|g| g.name.clone()));
        reports
    }

    /// Whether a loss is not reported yet, because the path has not been examined.
    pub fn has_unexplained(&self) -> bool {
        !self.unexplained.is_empty()
    }

    /// Stores the findings at the paths of disks. Answers the events to report: a loss once, later
    /// another reason why the medium cannot be opened. Of a file that is too small, the first size
    /// is an event, since it may be copied; the state shows the current size.
    pub fn record_findings(
        &mut self,
        config: &Config,
        findings: BTreeMap<String, Finding>,
    ) -> Vec<(String, Level, String)> {
        let mut reports = Vec::new();
        let missing = config.disk.iter().filter(|d| self.missing.contains(&d.name));
        for disk in missing.cloned().collect::<Vec<_>>() {
            let name = &disk.name;
            let (Some(path), Some(now)) = (disk.image(), findings.get(name)) else { continue };
            let before = self.last_findings.insert(name.clone(), now.clone());
            let text = self.missing_reason(&disk, path, now);
            let is_small = self.is_too_small(&disk, now);
            if self.unexplained.remove(name) {
                if is_small || matches!(now, Finding::Silent(_)) {
                    self.new_report(name, &text);
                }
                reports.push((name.clone(), Level::Error, text));
                continue;
            }
            let Some(before) = before.filter(|before| before != now) else { continue };
            let was_small = self.is_too_small(&disk, &before);
            if is_small || matches!(now, Finding::Absent(_) | Finding::Silent(_)) {
                let text = self.new_report(name, &text).filter(|_| !(is_small && was_small));
                reports.extend(text.map(|text| (name.clone(), Level::Warn, text)));
            } else if was_small || matches!(before, Finding::Absent(_) | Finding::Silent(_)) {
                self.clear_report(name);
            }
        }
        self.unexplained.retain(|name| self.missing.contains(name));
        self.last_findings.retain(|name, _| self.missing.contains(name));
        self.findings = findings;
        reports
    }

    /// Bytes that the file of a disk must have, for the disk to be opened by itself: those that it
    /// had, and those of `size`. A disk that has not been here since the start had none.
    fn needed_bytes(&self, disk: &DiskConfig) -> (u64, u64) {
        let had = self.known.get(&disk.name).map_or(0, |known| known.bytes);
        (had, disk.params.get("size").and_then(Value::as_u64).unwrap_or(0))
    }

    fn is_too_small(&self, disk: &DiskConfig, finding: &Finding) -> bool {
        let (had, size) = self.needed_bytes(disk);
        let is_file = path_kind(&disk.kind) == PathKind::File;
        matches!(finding, Finding::File(bytes) if is_file && *bytes < had.max(size))
    }

    /// Why a disk without a path is lost, and the command that reattaches it.
    fn pathless_reason(&self, disk: &DiskConfig) -> String {
        if let Some(place) = remote(disk).and_then(|(_, kind, params)| kind.location(&params)) {
            return match self.known.contains_key(&disk.name) {
                true => format!("{place} does not answer; it is retried automatically"),
                false => format!("{place} does not answer; the disk is added when it does"),
            };
        }
        "medium lost; restore it, then run `ashlar apply`".to_owned()
    }

    /// The same of a disk with a path.
    fn missing_reason(&self, disk: &DiskConfig, path: &Path, finding: &Finding) -> String {
        let file = path.display();
        let absent = |why: &str| match self.known.contains_key(&disk.name) {
            true => format!("medium lost: {file}: {why}; the disk is used again when it returns"),
            false => format!("medium missing: {file}: {why}; the disk is added when it appears"),
        };
        match finding {
            Finding::Absent(why) => absent(why),
            Finding::Silent(has_begun) => absent(silence(*has_begun)),
            Finding::File(has) if self.is_too_small(disk, finding) => {
                let (had, size) = self.needed_bytes(disk);
                let takes = match disk.params.contains_key("size") {
                    true => "extends it to the configured size with zeroes",
                    false => "accepts the smaller size",
                };
                match *has < had {
                    true => format!(
                        "medium lost: {file} has {has} bytes and had {had}; nothing is written to \
                         it until it has that size again; `ashlar apply` {takes}"
                    ),
                    false => format!(
                        "medium missing: {file} has {has} bytes and `size` is {size}; nothing is \
                         written to it until it has that size; `ashlar apply` {takes}"
                    ),
                }
            }
            _ if self.known.contains_key(&disk.name) => {
                format!("medium lost: {file} does not answer; it is retried automatically")
            }
            Finding::File(_) | Finding::Device => {
                format!("medium missing: {file} cannot be opened yet; it is retried automatically")
            }
        }
    }

    /// Whether there is something to look for.
    pub fn has_missing(&self) -> bool {
        !self.missing.is_empty() || !self.geoms.is_empty() || !self.pending.is_empty()
    }

    /// Whether it is time to look; then the next time is a while later.
    pub fn is_due(&mut self, now: u64) -> bool {
        let due = now >= self.next_ns;
        if due {
            self.next_ns = now + CHECK_INTERVAL_NS;
        }
        due
    }

    /// Whether one of these disks, whose servers answer, is without a medium: then it is time to
    /// look.
    pub fn is_any_missing(&self, arrived: &[String]) -> bool {
        arrived.iter().any(|name| self.missing.contains(name))
    }

    /// Disks that may be back: their path is there, and T2. Without those that are being opened.
    /// The servers of the others are probed, and post their answers to `arrivals`.
    pub fn returned_disks(
        &mut self,
        config: &Config,
        now: u64,
        is_opening: impl Fn(&str) -> bool,
        arrivals: &Arc<Arrivals>,
    ) -> Vec<DiskConfig> {
        let here = |disk: &&DiskConfig| {
            let due = self.searches.get(&disk.name).is_none_or(|s| now >= s.next_ns);
            let is_sought = self.missing.contains(&disk.name) && !is_opening(&disk.name);
            is_sought && due && self.is_present(disk, arrivals)
        };
        config.disk.iter().filter(here).cloned().collect()
    }

    fn is_present(&self, disk: &DiskConfig, arrivals: &Arc<Arrivals>) -> bool {
        if let Some((_, kind, params)) = remote(disk) {
            return kind.is_reachable(&disk.name, &params, arrivals) == Some(true);
        }
        match (path_kind(&disk.kind), self.findings.get(&disk.name)) {
            (PathKind::File, Some(finding @ Finding::File(_))) => !self.is_too_small(disk, finding),
            (PathKind::Device, Some(Finding::Device)) => true,
            _ => false,
        }
    }

    /// T1: looks at a disk that was just opened, before any other code does.
    pub fn check_identity(
        &self,
        topology: &Topology,
        geom: GeomId,
        name: &str,
    ) -> Result<(), Error> {
        let Some(known) = self.known.get(name) else { return Ok(()) };
        let provider = topology.providers_of(geom).first().copied();
        let ident = provider.and_then(|p| topology.attr(p, "GEOM::ident"));
        let bytes = provider.and_then(|p| topology.limits(p)).map_or(0, |l| l.media_bytes);
        let why = if ident != Some(Attr::Text(known.ident.clone())) {
            let ident = match ident {
                Some(Attr::Text(ident)) => ident,
                _ => "none".to_owned(),
            };
            format!("replaced by another disk: serial number {ident}, not {}", known.ident)
        } else if bytes < known.bytes {
            format!("returned with {bytes} bytes, not {}", known.bytes)
        } else {
            return Ok(());
        };
        let what = format!("{why}; `ashlar apply` accepts it");
        Err(Error::new(bio::Errno::NxIo, what))
    }

    /// A missing disk is being opened.
    pub fn begin_attempt(&mut self, disk: &str) {
        self.attempts.insert(disk.to_owned());
    }

    /// The same is over, or is no search any more.
    pub fn end_attempt(&mut self, disk: &str) {
        self.attempts.remove(disk);
    }

    /// Missing disks that are being opened.
    pub fn attempts(&self) -> Vec<String> {
        self.attempts.iter().cloned().collect()
    }

    /// Records the result of a try (T3). Answers the text to report; no text is reported twice.
    pub fn record_attempt(
        &mut self,
        disk: &str,
        done: &mgmt::api::Result<()>,
        now: u64,
    ) -> Option<String> {
        self.end_attempt(disk);
        let search = self.searches.entry(disk.to_owned()).or_default();
        search.pause_ns = search.pause_ns.saturating_mul(2).clamp(CHECK_INTERVAL_NS, PAUSE_NS_MAX);
        search.next_ns = now + search.pause_ns;
        match done {
            Ok(()) => {
                search.back_ns = Some(now);
                self.missing.remove(disk);
                None
            }
            Err(e) => self.new_report(disk, &e.source),
        }
    }

    /// Disks without a medium that could not be opened, each with the reason of the last try.
    pub fn refused_disks(&self) -> BTreeMap<String, String> {
        let refused = self.last_reported.iter().filter(|(name, _)| self.missing.contains(*name));
        refused.map(|(name, why)| (name.clone(), why.clone())).collect()
    }

    /// The text, unless it is the last one reported about this.
    pub fn new_report(&mut self, about: &str, text: &str) -> Option<String> {
        let last = self.last_reported.insert(about.to_owned(), text.to_owned());
        (last.as_deref() != Some(text)).then(|| text.to_owned())
    }

    /// Forgets the last report about an object that works again.
    pub fn clear_report(&mut self, about: &str) {
        self.last_reported.remove(about);
    }

    /// Records a part of the configuration that could not be carried out, and tries it again. Disks
    /// and geoms are tried when the providers that they need are there.
    pub fn retry_later(&mut self, action: &Action, now: u64) {
        match action {
            Action::CreateDisk { .. } => self.losses = None,
            Action::CreateGeom { geom } => self.expect(&geom.name),
            Action::Daemon { .. }
            | Action::Api { .. }
            | Action::Webhooks { .. }
            | Action::Units { .. }
            | Action::PortGroups { .. } => {}
            _ => {
                let search = Search {
                    next_ns: now + CHECK_INTERVAL_NS,
                    pause_ns: CHECK_INTERVAL_NS,
                    ..Search::default()
                };
                self.pending.push((action.clone(), search));
            }
        }
    }

    /// Drops the parts that are not in the configuration any more.
    pub fn retain_configured(&mut self, config: &Config) {
        self.pending.retain(|(action, _)| action.is_in(config));
    }

    /// Parts that are to be tried again now, in the order in which they were to be carried out.
    pub fn take_due(&mut self, now: u64) -> Vec<Action> {
        let mut due = Vec::new();
        for (action, search) in self.pending.iter_mut().filter(|(_, s)| now >= s.next_ns) {
            search.pause_ns = search.pause_ns.saturating_mul(2).min(PAUSE_NS_MAX);
            search.next_ns = now + search.pause_ns;
            due.push(action.clone());
        }
        due
    }

    /// A part is still to be carried out.
    pub fn is_pending(&self, action: &Action) -> bool {
        self.pending.iter().any(|(other, _)| other == action)
    }

    /// Parts that are the groups of a target.
    pub fn groups_of(&self, target: &str) -> Vec<Action> {
        let is_its = |action: &&Action| action.groups().any(|group| group.target == target);
        self.pending.iter().map(|(action, _)| action).filter(is_its).cloned().collect()
    }

    /// A part has been carried out: others may be possible now.
    pub fn completed(&mut self, action: &Action) {
        self.pending.retain(|(other, _)| other.name() != action.name());
        self.pending.iter_mut().for_each(|(_, search)| search.next_ns = 0);
    }

    /// A geom whose disks were not there when the daemon started is made when they are.
    pub fn expect(&mut self, geom: &str) {
        self.geoms.insert(geom.to_owned());
    }

    /// Geoms that were lost with a disk and can be made again, those below first as far as the
    /// configuration has them so.
    pub fn geoms(&mut self, topology: &Topology, config: &Config) -> Vec<GeomConfig> {
        let lost = |g: &&GeomConfig| {
            self.geoms.contains(&g.name) && topology.find_geom(&g.class, &g.name).is_none()
        };
        let lost: Vec<_> = config.geom.iter().filter(lost).cloned().collect();
        self.geoms = lost.iter().map(|g| g.name.clone()).collect();
        let is_complete = |g: &GeomConfig| {
            let names = topology.class(&g.class).and_then(|class| {
                let params = Value::Object(g.params.clone());
                class.missing(topology, &params)
            });
            names.is_none() && g.provider_names().all(|b| topology.find(b).is_some())
        };
        lost.into_iter().filter(is_complete).collect()
    }
}

/// The reason why a path has no finding. `has_begun`: its examination has begun.
pub fn silence(has_begun: bool) -> &'static str {
    match has_begun {
        true => "path does not answer (for 5 s)",
        false => "not examined for 5 s, because the paths of other disks do not answer",
    }
}

/// A disk whose medium is reached over a network, its kind, and the parameters of the kind.
pub fn remote(disk: &DiskConfig) -> Option<(&DiskConfig, &'static dyn disks::Kind, Value)> {
    let params = Value::Object(disk.params.clone());
    let kind = disks::kind(&disk.kind)?;
    kind.location(&params).is_some().then_some((disk, kind, params))
}

#[cfg(test)]
mod tests {
    use mgmt::api::{Error, Kind};

    use super::*;

    #[test]
    fn missing_disk_shows_why_its_last_try_failed() {
        let missing = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let mut reattach = Reattach { missing, ..Reattach::default() };
        let failed = Err(Error::new(Kind::Busy, "create disk", "the device of disk c"));
        assert!(reattach.record_attempt("a", &failed, 0).is_some());
        assert!(reattach.record_attempt("a", &failed, 0).is_none(), "reported once");
        let refusals =
            |reattach: &Reattach| reattach.refused_disks().into_iter().collect::<Vec<_>>();
        assert_eq!(refusals(&reattach), [("a".to_owned(), "the device of disk c".to_owned())]);
        reattach.record_attempt("a", &Ok(()), 0);
        assert!(refusals(&reattach).is_empty());
    }

    #[test]
    fn answer_of_a_server_counts_only_while_its_disk_is_missing() {
        let missing = BTreeSet::from(["a".to_owned()]);
        let mut reattach = Reattach { missing, ..Reattach::default() };
        assert!(reattach.is_any_missing(&["b".to_owned(), "a".to_owned()]));
        assert!(!reattach.is_any_missing(&["b".to_owned()]));
        reattach.record_attempt("a", &Ok(()), 0);
        assert!(!reattach.is_any_missing(&["a".to_owned()]));
    }

    /// A configuration with the disk `a` of `/images/a.img`.
    fn config() -> Config {
        let disk = serde_json::json!({ "name": "a", "kind": "file", "path": "/images/a.img" });
        Config { disk: vec![serde_json::from_value(disk).unwrap()], ..Config::default() }
    }

    fn found(finding: Finding) -> BTreeMap<String, Finding> {
        BTreeMap::from([("a".to_owned(), finding)])
    }

    #[test]
    fn loss_is_reported_once_when_the_path_was_examined_or_does_not_answer() {
        for (finding, words) in [
            (Finding::Absent("No such file".into()), "/images/a.img: No such file; the disk is"),
            (Finding::File(512), "/images/a.img has 512 bytes and had 1024; nothing is written"),
            (Finding::Silent(true), "/images/a.img: path does not answer"),
        ] {
            let names = || BTreeSet::from(["a".to_owned()]);
            let known = DiskIdentity { ident: String::new(), bytes: 1024 };
            let known = BTreeMap::from([("a".to_owned(), known)]);
            let (missing, unexplained) = (names(), names());
            let mut reattach = Reattach { missing, unexplained, known, ..Reattach::default() };
            assert!(reattach.record_findings(&config(), BTreeMap::new()).is_empty());
            assert!(reattach.has_unexplained(), "the path has not been examined");
            let reports = reattach.record_findings(&config(), found(finding.clone()));
            assert!(reports.len() == 1 && reports[0].1 == Level::Error, "{reports:?}");
            let text = &reports[0].2;
            assert!(text.starts_with("medium lost: ") && text.contains(words), "{text}");
            assert!(!reattach.has_unexplained());
            assert!(reattach.record_findings(&config(), found(finding)).is_empty());
        }
    }

    #[test]
    fn path_of_a_missing_disk_that_begins_to_hang_is_shown_until_it_answers() {
        let missing = BTreeSet::from(["a".to_owned()]);
        let mut reattach = Reattach { missing, ..Reattach::default() };
        let config = config();
        let mut record = |findings| {
            let count = reattach.record_findings(&config, findings).len();
            (count, reattach.refused_disks().remove("a").unwrap_or_default())
        };
        let nothing = || (0, String::new());
        assert_eq!(record(found(Finding::Absent("No such file".into()))), nothing());
        // The finding is left out before the path counts as silent.
        assert_eq!(record(BTreeMap::new()), nothing());
        let (count, why) = record(found(Finding::Silent(true)));
        assert!(count == 1 && why.contains("path does not answer"), "{count}: {why}");
        let (count, why) = record(found(Finding::Absent("Stale file handle".into())));
        assert!(count == 1 && why.contains("Stale file handle"), "{count}: {why}");
        assert_eq!(record(found(Finding::File(1))), nothing(), "the reason is over");
    }

    /// T1.
    #[test]
    fn file_that_returns_smaller_is_reported_once_and_its_size_is_shown() {
        let missing = BTreeSet::from(["a".to_owned()]);
        let known = DiskIdentity { ident: String::new(), bytes: 1024 };
        let known = BTreeMap::from([("a".to_owned(), known)]);
        let mut reattach = Reattach { missing, known, ..Reattach::default() };
        let config = config();
        let mut record = |finding| {
            let reports = reattach.record_findings(&config, found(finding));
            let shown = reattach.refused_disks().remove("a").unwrap_or_default();
            (reports, shown, reattach.returned_disks(&config, 0, |_| false, &Arc::default()).len())
        };
        let absent = || Finding::Absent("No such file".into());
        record(absent());
        let (reports, shown, tried) = record(Finding::File(512));
        let [(name, Level::Warn, text)] = reports.as_slice() else { panic!("{reports:?}") };
        assert_eq!((name.as_str(), text, tried), ("a", &shown, 0));
        assert!(text.contains("has 512 bytes and had 1024") && text.contains("`ashlar apply`"));
        // It is copied.
        let (reports, shown, tried) = record(Finding::File(768));
        assert!(reports.is_empty() && shown.contains("has 768 bytes"), "{reports:?}: {shown}");
        assert_eq!(tried, 0);
        assert_eq!(record(Finding::File(1024)), (Vec::new(), String::new(), 1));
        record(absent());
        assert_eq!(record(Finding::File(0)).0.len(), 1, "another absence");
    }

    #[test]
    fn awaited_file_that_is_smaller_than_its_section_says_is_reported() {
        let missing = BTreeSet::from(["a".to_owned()]);
        let mut reattach = Reattach { missing, ..Reattach::default() };
        let mut config = config();
        config.disk[0].params.insert("size".into(), 1024.into());
        reattach.record_findings(&config, found(Finding::Absent("No such file".into())));
        let reports = reattach.record_findings(&config, found(Finding::File(512)));
        let [(_, _, text)] = reports.as_slice() else { panic!("{reports:?}") };
        assert!(text.starts_with("medium missing: /images/a.img has 512 bytes and `size` is 1024"));
    }

    #[test]
    fn missing_disk_is_tried_only_while_its_path_answers_and_fits() {
        let missing = BTreeSet::from(["a".to_owned()]);
        let mut reattach = Reattach { missing, ..Reattach::default() };
        let config = config();
        let mut is_tried = |findings| {
            let reports = reattach.record_findings(&config, findings);
            let returned = reattach.returned_disks(&config, 0, |_| false, &Arc::default());
            (!returned.is_empty(), reports.len())
        };
        assert_eq!(is_tried(found(Finding::Absent("No such file".into()))), (false, 0));
        assert_eq!(is_tried(found(Finding::Silent(true))), (false, 1), "it is reported");
        assert_eq!(is_tried(BTreeMap::new()), (false, 0));
        assert_eq!(is_tried(found(Finding::Device)), (false, 0), "not of its kind");
        assert_eq!(is_tried(found(Finding::File(1))), (true, 0));
    }
}
