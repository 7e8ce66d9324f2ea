//! A daemon without disks. It keeps the configuration that was applied and refuses each change that
//! the real one must refuse, so that tests of the control path can fail.

use crate::api::*;
use crate::config::{
    Catalog, ClassFacts, Config, DiskConfig, DriverFacts, Entry, GeomConfig, LunMode, UnitConfig,
    check,
};
use crate::fake_files::FakeFiles;
use crate::file_service::FileService;
use crate::plan::{Action, FileSection, Step, name_depends_on};
use crate::plant::{Outcome, Plant, Progress, StaleFiles};
use crate::service::{Archive, Control};
use classes::part::request::{Delete, Edit, Show};
use geom::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use wire::pattern::Naming;

#[derive(Serialize, Deserialize, JsonSchema)]
struct FileParams {
    /// Image file.
    path: String,
    /// Size of a new file, in bytes.
    size_bytes: Option<u64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct SizeParams {
    /// Size, in bytes.
    size_bytes: Option<u64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct NopParams {
    /// How long every request waits, in microseconds.
    #[serde(default)]
    delay_us: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct NoParams {}

/// A mirror has two settings, other classes none.
fn settings(geom: &GeomConfig) -> Map<String, Value> {
    if geom.class != "mirror" {
        return Map::new();
    }
    let all = [("balance", Value::from("load")), ("slice", 4096.into())];
    let setting = |(key, usual)| (key, geom.params.get(key).cloned().unwrap_or(usual));
    all.map(setting).map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

/// Members of a mirror may be any, a concat may grow.
fn may_become(from: &GeomConfig, to: &GeomConfig) -> bool {
    match from.class.as_str() {
        "mirror" => true,
        "concat" => to.members.starts_with(&from.members),
        _ => from.members == to.members,
    }
}

/// Facts about the real classes. Those of LUNs are not in the list of classes.
pub fn class_facts(name: &str) -> ClassFacts {
    static CLASSES: LazyLock<Vec<Arc<dyn Class>>> = LazyLock::new(classes::all);
    if name == "lun" {
        return ClassFacts { passes_serial: true, ..ClassFacts::default() };
    }
    if name == "fs" {
        return ClassFacts { listen_keys: &["plan9", "console"], ..ClassFacts::default() };
    }
    let class = CLASSES.iter().find(|class| class.name() == name);
    class.map_or_else(ClassFacts::default, |class| ClassFacts::of(class.as_ref()))
}

/// Facts about the driver of iSCSI.
pub const ISCSI: DriverFacts =
    DriverFacts { is_local: false, naming: Naming::Iscsi, has_unit_names: false };

/// The catalog of the fake. Tests request it thousands of times, so its schemas are made once.
pub fn catalog() -> Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(new_catalog);
    CATALOG.clone()
}

fn new_catalog() -> Catalog {
    let example = "[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize_bytes = \"64MiB\"\n";
    Catalog {
        buses: vec![
            Entry::of::<SizeParams>("virtual", "Disks of a bus.").volatile(),
            Entry::of::<SizeParams>("far", "Disks elsewhere."),
        ],
        disks: vec![
            Entry::of::<FileParams>("file", "An image file.").sized_by(&["create", "size"]),
            Entry::of::<SizeParams>("memory", "Memory.").volatile().example(example),
            Entry::of::<SizeParams>("null", "Nothing."),
        ],
        classes: vec![
            Entry::of::<NopParams>("nop", "Faults and delays."),
            Entry::of::<NoParams>("part", "Partition tables.").tasted_only(),
        ],
        check_target: None,
        check_start: None,
        settings: Some(settings),
        may_become: Some(may_become),
        class_facts: Some(class_facts),
        class_verbs: None,
        drivers: vec![
            Entry::of::<NoParams>("iscsi", "iSCSI.").driver(ISCSI),
            Entry::of::<NoParams>("other", "Another."),
        ],
    }
}

/// A daemon that runs nothing, with its archive in a folder.
pub fn control(plant: &Arc<FakePlant>, folder: &Path) -> Control {
    let archive = Archive::new(folder, 2);
    Control::new(Box::new(plant.clone()), catalog(), &Config::default(), archive)
}

#[derive(Default)]
struct Inner {
    config: Config,
    /// The last argument of `intend`.
    desired: Config,
    /// Calls of `carry_out`.
    calls: usize,
    /// From which call on how many calls fail.
    fail: Option<(usize, usize)>,
    refuse: Option<Error>,
    busy: Option<Error>,
    /// By name, what `check_disks` answers.
    refused_disks: HashMap<String, Error>,
    /// Names in the last argument of `expect_disks`.
    expected_disks: Vec<String>,
    stale: Vec<StaleFiles>,
    /// Additions to the state that follows from the configuration.
    extra: SystemState,
    tables: Vec<PartTable>,
    stopped: bool,
    /// Arguments of `retry_later`.
    retried: Vec<Action>,
    /// The answer of `slow_requests`.
    traced: TraceState,
    /// The answer of `state`, instead of one.
    no_state: Option<Error>,
}

/// See the module.
#[derive(Default)]
pub struct FakePlant(Mutex<Inner>);

impl FakePlant {
    pub fn new() -> FakePlant {
        FakePlant::default()
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().expect("no test panics while holding it"))
    }

    pub fn config(&self) -> Config {
        self.with(|i| i.config.clone())
    }

    /// The last argument of `intend`.
    pub fn desired(&self) -> Config {
        self.with(|i| i.desired.clone())
    }

    pub fn calls(&self) -> usize {
        self.with(|i| i.calls)
    }

    /// The arguments of `retry_later`.
    pub fn retried(&self) -> Vec<Action> {
        self.with(|i| i.retried.clone())
    }

    /// Lets `skip` calls of `carry_out` pass, then fails `times` of them.
    pub fn fail_after(&self, skip: usize, times: usize) {
        self.with(|i| i.fail = Some((i.calls + skip, times)));
    }

    /// Makes every `check` answer so.
    pub fn refuse(&self, error: Error) {
        self.with(|i| i.refuse = Some(error));
    }

    /// Makes the check of a disk answer so.
    pub fn refuse_disk(&self, name: &str, error: Error) {
        self.with(|i| i.refused_disks.insert(name.to_owned(), error));
    }

    /// The disks of the last call of `expect_disks`.
    pub fn expected_disks(&self) -> Vec<String> {
        self.with(|i| i.expected_disks.clone())
    }

    /// Makes every `wait_ready` answer so.
    pub fn set_busy(&self, error: Error) {
        self.with(|i| i.busy = Some(error));
    }

    /// Makes every `state` answer so.
    pub fn refuse_state(&self, error: Error) {
        self.with(|i| i.no_state = Some(error));
    }

    /// A target uses a file that has changed.
    pub fn stale(&self, target: &str, why: &str) {
        self.stale_files(FileSection::Target(target.into()), why);
    }

    /// The same for any section.
    pub fn stale_files(&self, of: FileSection, why: &str) {
        self.with(|i| i.stale.push(StaleFiles { of, why: why.into(), drops_client_ca: false }));
    }

    /// Sessions, denials, geoms and daemon facts that `state` shows.
    pub fn set_extra(&self, extra: SystemState) {
        self.with(|i| i.extra = extra);
    }

    /// The state that was passed to [`Self::set_extra`].
    pub fn extra_state(&self) -> SystemState {
        self.with(|i| i.extra.clone())
    }

    pub fn tables(&self, tables: Vec<PartTable>) {
        self.with(|i| i.tables = tables);
    }

    /// Slow requests that the fake has from now on.
    pub fn set_traced(&self, traced: TraceState) {
        self.with(|i| i.traced = traced);
    }

    pub fn stopped(&self) -> bool {
        self.with(|i| i.stopped)
    }
}

fn refuse(kind: Kind, why: impl Into<String>) -> Result<Outcome> {
    Err(Error::new(kind, "fake", why.into()))
}

/// Whether a provider of that name would exist: something configured carries it.
fn exists(config: &Config, reference: &str) -> bool {
    if config.bus.iter().any(|bus| disk_of_bus(&bus.name) == reference) {
        return true;
    }
    let disks = config.disk.iter().map(|d| &d.name);
    disks.chain(config.geom.iter().map(|g| &g.name)).any(|owner| name_depends_on(reference, owner))
}

/// The one disk of a bus: its name has no form that shows its bus.
fn disk_of_bus(bus: &str) -> String {
    format!("da-{bus}")
}

/// A remaining user of the disk or geom `owner`.
fn remaining_user(config: &Config, owner: &str) -> Option<String> {
    let geom = config.geom.iter().find(|g| g.provider_names().any(|b| name_depends_on(b, owner)));
    let lun = |a: &&crate::config::AccessConfig| {
        a.luns.values().any(|l| name_depends_on(&l.provider, owner))
    };
    let access = config.access.iter().find(lun);
    geom.map(|g| g.name.clone()).or(access.map(|a| a.group.clone()))
}

impl Inner {
    fn end_session(&mut self, params: &Value) -> Result<Value> {
        let id = params.get("id").and_then(Value::as_u64);
        for target in &mut self.extra.targets {
            target.sessions.retain(|session| Some(session.id) != id);
        }
        Ok(serde_json::json!({ "ended": true }))
    }

    /// Partition tables: those that a test has set.
    fn part_verb(&mut self, verb: &str, params: &Value) -> Result<Value> {
        let op = format!("part {verb}");
        let none = |geom: &str| Error::new(Kind::NotFound, &op, "no table").at(geom.to_owned());
        let answer = if verb == "show" {
            let Show { geoms } = serde_json::from_value(params.clone()).expect("well-formed");
            let wanted = |t: &&PartTable| geoms.is_empty() || geoms.contains(&t.geom);
            let tables: Vec<_> = self.tables.iter().filter(wanted).cloned().collect();
            if let Some(lost) = geoms.iter().find(|g| !tables.iter().any(|t| t.geom == **g)) {
                return Err(none(lost));
            }
            PartAnswer { tables, ..PartAnswer::default() }
        } else {
            let edit: Edit<Delete> = serde_json::from_value(params.clone()).expect("well-formed");
            let Delete { geom, index, .. } = edit.of;
            let table = self.tables.iter_mut().find(|t| t.geom == geom);
            let table = table.ok_or_else(|| none(&geom))?;
            table.entries.retain(|e| e.index != index);
            let message = format!("{geom}p{index} deleted");
            PartAnswer { message, tables: vec![table.clone()], warnings: vec![] }
        };
        Ok(serde_json::to_value(answer).expect("it is plain"))
    }

    fn carry_out(&mut self, action: &Action) -> Result<Outcome> {
        let config = &self.config;
        match action {
            Action::RemoveBus { bus } => {
                if let Some(by) = remaining_user(config, &disk_of_bus(&bus.name)) {
                    return refuse(Kind::Busy, format!("used by {by}"));
                }
            }
            Action::CreateDisk { disk } if exists_exactly(config, &disk.name) => {
                return refuse(Kind::Exists, "a disk of that name");
            }
            Action::RemoveDisk { disk } => {
                if let Some(by) = remaining_user(config, &disk.name) {
                    return refuse(Kind::Busy, format!("used by {by}"));
                }
            }
            Action::CreateGeom { geom } => {
                if let Some(lost) = geom.provider_names().find(|b| !exists(config, b)) {
                    return refuse(Kind::NotFound, format!("no provider {lost}"));
                }
            }
            Action::RemoveGeom { geom } => {
                if let Some(by) = remaining_user(config, &geom.name) {
                    return refuse(Kind::Busy, format!("used by {by}"));
                }
            }
            Action::RemoveTarget { target }
                if config.access.iter().any(|a| a.target == target.name) =>
            {
                return refuse(Kind::Busy, "it has groups");
            }
            Action::CreateAccess { access } | Action::ModifyAccess { to: access, .. } => {
                if config.target(&access.target).is_none() {
                    return refuse(Kind::NotFound, "no such target");
                }
                if let Some(lun) = access.luns.values().find(|l| !exists(config, &l.provider)) {
                    return refuse(Kind::NotFound, format!("no provider {}", lun.provider));
                }
            }
            Action::Regroup { target, to, .. } => {
                if config.target(target).is_none() {
                    return refuse(Kind::NotFound, "no such target");
                }
                let mut luns = to.iter().flat_map(|a| a.luns.values());
                if let Some(lun) = luns.find(|l| !exists(config, &l.provider)) {
                    return refuse(Kind::NotFound, format!("no provider {}", lun.provider));
                }
            }
            Action::Units { from, to } => {
                let changes = |p: &String| changes_unit(config, p, (from, to));
                let luns = config.access.iter().flat_map(|a| a.luns.values());
                if let Some(lun) = luns.map(|l| &l.provider).find(|p| changes(p)) {
                    return refuse(Kind::Busy, format!("{lun} has a LUN"));
                }
            }
            Action::Renew { of } => {
                if !of.is_in(config) {
                    return refuse(Kind::NotFound, "no such section");
                }
                self.stale.retain(|s| s.of != *of);
                return Ok(Outcome::default());
            }
            _ => {}
        }
        let mut after = config.clone();
        action.apply_to(&mut after);
        if let Some(problem) = check(&after, &catalog()).first() {
            return refuse(Kind::ConfigValue, format!("half way: {problem:?}"));
        }
        if after.is_equivalent(config) {
            return refuse(Kind::NotFound, "no object has that name");
        }
        if let Some(problem) = check(&after, &catalog()).into_iter().next() {
            return refuse(problem.kind, problem.text);
        }
        self.config = after;
        let restart = matches!(action, Action::Daemon { from, to } if from.needs_restart(to));
        let notes =
            if restart { vec!["takes effect at the next start".to_owned()] } else { vec![] };
        Ok(Outcome { notes, ..Outcome::default() })
    }

    fn state(&self) -> SystemState {
        let config = &self.config;
        let mut state = self.extra.clone();
        state.schema_version = SCHEMA_VERSION;
        state.generation = u64::try_from(self.calls).unwrap_or(0);
        state.daemon.version = env!("CARGO_PKG_VERSION").to_owned();
        state.daemon.metrics_listen.clone_from(&config.daemon.metrics_listen);
        let known: Vec<String> = state.geoms.iter().map(|g| g.name.clone()).collect();
        let known_disks: Vec<String> = state.disks.iter().map(|d| d.name.clone()).collect();
        for (number, bus) in config.bus.iter().enumerate() {
            let name = disk_of_bus(&bus.name);
            state.geoms.push(geom_state("cam", &name, 1, &[], &name));
            state.buses.push(BusState {
                name: bus.name.clone(),
                number: u64::try_from(number).unwrap_or(0),
                configured: true,
                health: crate::api::Health::Ok,
                troubles: Vec::new(),
                devices: vec![DeviceState { name, ..DeviceState::default() }],
                ..BusState::default()
            });
        }
        for disk in config.disk.iter().filter(|d| !known_disks.contains(&d.name)) {
            state.disks.push(DiskState {
                name: disk.name.clone(),
                kind: disk.kind.clone(),
                size_bytes: 64 << 20,
                sector_bytes: 512,
                serial: format!("S-{}", disk.name),
                ..DiskState::default()
            });
        }
        for disk in config.disk.iter().filter(|d| !known.contains(&d.name)) {
            state.geoms.push(geom_state("disk", &disk.name, 1, &[], &disk.name));
        }
        for geom in config.geom.iter().filter(|g| !known.contains(&g.name)) {
            let below: Vec<&str> = geom.provider_names().collect();
            state.geoms.push(geom_state(&geom.class, &geom.name, 2, &below, &geom.name));
        }
        for target in &config.target {
            let mut index = state.targets.iter().position(|t| t.name == target.name);
            if index.is_none() {
                state.targets.push(TargetState {
                    driver: target.driver.clone(),
                    name: target.name.clone(),
                    portals: target.listen.clone(),
                    ..TargetState::default()
                });
                index = state.targets.len().checked_sub(1);
            }
            let Some(place) = index.and_then(|i| state.targets.get_mut(i)) else {
                continue;
            };
            let of = config.access.iter().filter(|a| a.target == target.name);
            place.groups = of.map(group_state).collect();
        }
        state.targets.retain(|t| config.target(&t.name).is_some());
        state.health = state.worst();
        state
    }
}

fn exists_exactly(config: &Config, name: &str) -> bool {
    config.disk(name).is_some() || config.geom(name).is_some()
}

/// The serial number of a unit without a configured one.
fn shown_serial(provider: &str, lun: u64) -> String {
    format!("{provider}-{lun}")
}

/// Whether a provider's `[[unit]]` becomes another one for hosts. A serial number may be written
/// down as they see it.
fn changes_unit(config: &Config, p: &String, (from, to): (&[UnitConfig], &[UnitConfig])) -> bool {
    let is_shown = |p: &str, serial: &String| {
        let mut luns = config.access.iter().flat_map(|a| &a.luns);
        luns.any(|(n, lun)| lun.provider == p && *serial == shown_serial(p, *n))
    };
    let bare = |u: &UnitConfig| UnitConfig {
        thresholds: None,
        serial: u.serial.clone().filter(|s| !is_shown(&u.provider, s)),
        ..u.clone()
    };
    let of = |all: &[UnitConfig]| {
        let section = all.iter().find(|u| u.provider == *p).map(bare);
        section.unwrap_or(UnitConfig { provider: p.clone(), ..Default::default() })
    };
    of(from) != of(to)
}

fn group_state(access: &crate::config::AccessConfig) -> GroupState {
    let lun = |(&lun, of): (&u64, &crate::config::LunConfig)| LunState {
        lun,
        provider: of.provider.clone(),
        read_only: of.mode == LunMode::Ro,
        serial: shown_serial(&of.provider, lun),
        ..LunState::default()
    };
    GroupState {
        name: access.group.clone(),
        initiators: access.initiators.clone(),
        portals: access.portals.clone(),
        addressing: String::new(),
        luns: access.luns.iter().map(lun).collect(),
        awaited: Vec::new(),
    }
}

/// A geom with one provider.
pub fn geom_state(class: &str, name: &str, rank: u32, below: &[&str], provider: &str) -> GeomState {
    let consumer =
        |b: &&str| ConsumerState { provider: Some((*b).to_owned()), ..ConsumerState::default() };
    GeomState {
        class: class.to_owned(),
        name: name.to_owned(),
        rank,
        why: "configured".to_owned(),
        configured: true,
        consumers: below.iter().map(consumer).collect(),
        providers: vec![ProviderState {
            name: provider.to_owned(),
            size_bytes: 64 << 20,
            sector_bytes: 512,
            ..ProviderState::default()
        }],
        ..GeomState::default()
    }
}

impl Plant for FakePlant {
    fn state(&self) -> Result<SystemState> {
        self.with(|i| i.no_state.clone().map_or_else(|| Ok(i.state()), Err))
    }

    fn check(&self, _step: &Step, _before: &[Step]) -> Result<()> {
        self.with(|i| i.refuse.clone().map_or(Ok(()), Err))
    }

    fn check_disks(&self, steps: &[Step]) -> HashMap<usize, Result<()>> {
        self.with(|i| {
            let refused = |(at, step): (usize, &Step)| {
                let error = i.refused_disks.get(&step.action.created_disk()?.name)?;
                Some((at, Err(error.clone())))
            };
            steps.iter().enumerate().filter_map(refused).collect()
        })
    }

    fn expect_disks(&self, disks: &[&DiskConfig]) {
        self.with(|i| i.expected_disks = disks.iter().map(|disk| disk.name.clone()).collect());
    }

    fn wait_ready(&self, _limit: Duration) -> Result<()> {
        self.with(|i| i.busy.clone().map_or(Ok(()), Err))
    }

    fn set_desired(&self, config: &Config, _consent: &[String]) {
        self.with(|i| i.desired = config.clone());
    }

    fn stale(&self) -> Vec<StaleFiles> {
        self.with(|i| i.stale.clone())
    }

    fn carry_out(&self, action: &Action, progress: &mut Progress<'_>) -> Result<Outcome> {
        progress(ProgressLine { what: action.summary(), ..ProgressLine::default() });
        self.with(|i| {
            let call = i.calls;
            i.calls += 1;
            match i.fail {
                Some((from, times)) if call >= from && call < from + times => {
                    refuse(Kind::Device, "the test made it fail")
                }
                _ => i.carry_out(action),
            }
        })
    }

    /// The object is added at once if nothing of it is missing.
    fn retry_later(&self, action: &Action) {
        self.with(|i| {
            i.retried.push(action.clone());
            drop(i.carry_out(action));
        });
    }

    fn verb(
        &self,
        class: &str,
        verb: &str,
        params: &Value,
        _progress: &mut Progress<'_>,
    ) -> Result<Value> {
        use serde_json::json;
        match (class, verb) {
            ("part", "backup") => Ok(json!({ "text": "GPT 128\n", "scheme": "GPT" })),
            ("part", "status" | "list") => Ok(json!({ "text": format!("{verb} {params}\n") })),
            ("part", "show" | "delete") => self.with(|i| i.part_verb(verb, params)),
            ("part", _) => Ok(json!({ "message": params.to_string() })),
            ("sessions", "end") => self.with(|i| i.end_session(params)),
            _ => Ok(json!({ "class": class, "verb": verb, "params": params })),
        }
    }

    fn files(&self) -> &dyn FileService {
        &FakeFiles
    }

    fn journal(&self, after: u64, limit: usize) -> Vec<Event> {
        let all = (1..=3).map(|id| Event {
            id,
            at_ns: id * 1_000_000_000,
            text: format!("event {id}"),
            ..Event::default()
        });
        all.filter(|e| e.id > after).take(limit).collect()
    }

    fn slow_requests(&self, query: &TraceQuery) -> Result<TraceState> {
        let mut all = self.with(|i| i.traced.clone());
        all.requests.retain(|request| query.accepts(request));
        // Its requests end after the first question.
        all.last = if query.after.is_some() { all.last } else { 0 };
        Ok(all)
    }

    fn open(&self) {}

    fn stop(&self) {
        self.with(|i| i.stopped = true);
    }
}

impl Plant for std::sync::Arc<FakePlant> {
    fn state(&self) -> Result<SystemState> {
        self.as_ref().state()
    }

    fn check(&self, step: &Step, before: &[Step]) -> Result<()> {
        self.as_ref().check(step, before)
    }

    fn wait_ready(&self, limit: Duration) -> Result<()> {
        self.as_ref().wait_ready(limit)
    }

    fn set_desired(&self, config: &Config, consent: &[String]) {
        self.as_ref().set_desired(config, consent);
    }

    fn stale(&self) -> Vec<StaleFiles> {
        Plant::stale(self.as_ref())
    }

    fn carry_out(&self, action: &Action, progress: &mut Progress<'_>) -> Result<Outcome> {
        self.as_ref().carry_out(action, progress)
    }

    fn retry_later(&self, action: &Action) {
        self.as_ref().retry_later(action);
    }

    fn verb(
        &self,
        class: &str,
        verb: &str,
        params: &Value,
        progress: &mut Progress<'_>,
    ) -> Result<Value> {
        self.as_ref().verb(class, verb, params, progress)
    }

    fn files(&self) -> &dyn FileService {
        self.as_ref().files()
    }

    fn journal(&self, after: u64, limit: usize) -> Vec<Event> {
        self.as_ref().journal(after, limit)
    }

    fn slow_requests(&self, query: &TraceQuery) -> Result<TraceState> {
        self.as_ref().slow_requests(query)
    }

    fn open(&self) {
        self.as_ref().open();
    }

    fn stop(&self) {
        self.as_ref().stop();
    }
}
