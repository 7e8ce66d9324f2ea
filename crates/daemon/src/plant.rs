//! The handle that the control path holds.

mod answering;
mod checking;
mod closing;
mod control_files;
mod opening;
mod reading;
mod start_waits;
mod started;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use bio::sync::Mutex;
use cam::{CAM_CLASS, CamClass, SimKind};
use disks::{DiskClass, Opener};
use drivers::Driver;
use drivers::bus::LocalKind;
use engine::Registry;
use engine::lun::LunClass;
use fileserver::{FileServers, FsClass};
use geom::{Class, Runtime, RuntimeConfig};
use mgmt::api::{
    CoreState, Error, Event, Kind, Level, Result, SystemState, TraceQuery, TraceState,
};
use mgmt::config::{Config, DaemonConfig, DiskConfig, GeomConfig, Port, TargetConfig};
use mgmt::plan::{Action, DataLoss, Deferred, PredictedSerials, Step};
use mgmt::{AddParts, FileService, Outcome, Plant, Progress, StaleFiles};
use reactor::{PortChoice, PortReport};
use serde_json::Value;

use crate::attach::Attachments;
use crate::buses;
use crate::catalog::{site, wall_s};
use crate::control_loop::{ControlLoop, Published};
use crate::cycle_check::CycleCheck;
use crate::exports::{self, Exports, FilesInUse, clashes};
use crate::file_service::ServedFiles;
use crate::geom_layouts::GeomLayouts;
use crate::identities::IdentityKeeper;
use crate::images::Images;
use crate::initiator::OwnName;
use crate::journal::Journal;
use crate::last_sizes::LastSizes;
use crate::mailbox::{Change, Mailbox, PriorSteps, Query};
use crate::media;
use crate::medium_index::MediumIndex;
use crate::metrics_listener::MetricsListener;
use crate::openings::{DiskOpener, Openings};
use crate::overrides::Overrides;
use crate::path_checks::PathChecks;
use crate::path_watch::PathWatch;
use crate::persistent_names::PersistentNames;
use crate::reattach::Reattach;
use crate::sandbox;
use crate::served_volumes::ServedVolumes;
use crate::state::Detail;
use crate::state_store::{FileStateStore, ReportFn};
use crate::traces::Traces;
use crate::verbs;
use crate::within::{CHECKS_LIMIT, Subject, within};

use answering::Answering;
use reading::current_state;
use start_waits::StartWaits;
use started::Started;

/// Bytes of buffers of all cores together when the configuration gives none.
const POOL_BYTES: u64 = 256 << 20;

/// Spin before a core sleeps when the configuration sets none, ns: none. Measured against
/// initiators that sleep themselves, 50 us bought no latency and cost a third more CPU a command.
const SPIN_NS: u64 = 0;

/// A running daemon.
pub struct Daemon {
    mailbox: Arc<Mailbox>,
    journal: Arc<Journal>,
    registry: Arc<Registry>,
    files: FilesInUse,
    identities: Arc<IdentityKeeper>,
    paths: PathWatch,
    openings: Openings,
    start_waits: StartWaits,
    metrics: MetricsListener,
    /// The parts of a state that the control side adds for scrapes.
    scraped_parts: Arc<OnceLock<Box<AddParts>>>,
    /// Passes warnings to the journal.
    warn: Arc<ReportFn>,
    traces: Traces,
    served_files: ServedFiles,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Daemon {
    /// Starts the cores and the control thread. Nothing is configured yet: the plan does that.
    pub fn start(config: &DaemonConfig) -> Result<Daemon> {
        Daemon::start_with(config, Box::new(|opener| -> Arc<dyn DiskOpener> { Arc::new(opener) }))
    }

    /// The same, with another opener of disks.
    pub(crate) fn start_with(config: &DaemonConfig, wrap: WrapOpener) -> Result<Daemon> {
        let (ready, started) = mpsc::sync_channel(1);
        let journal = Arc::new(Journal::default());
        let registry = Registry::new();
        registry.login_gate().shut();
        let warn = report_fn(&journal, Level::Warn);
        let files = FilesInUse::new(warn.clone());
        let (config, noted, exported) = (config.clone(), journal.clone(), registry.clone());
        let (used, file_servers) = (files.clone(), FileServers::default());
        let listed = file_servers.clone();
        let thread = std::thread::Builder::new()
            .name("ashlar-mgmt".into())
            .spawn(move || control_thread(&config, noted, exported, (used, listed), wrap, &ready))
            .map_err(|e| system("start the control thread", &e))?;
        match started.recv() {
            Ok(Ok(Started { mailbox, identities, paths, openings, cores })) => {
                let thread = Mutex::new(Some(thread));
                let traces = Traces::new(cores, registry.origins().clone());
                let (scraped, watched, gated) = (mailbox.clone(), paths.clone(), registry.clone());
                let parts: Arc<OnceLock<Box<AddParts>>> = Arc::default();
                let added = parts.clone();
                let state = move |at: SocketAddr| -> Result<SystemState> {
                    let paths = (&watched, gated.login_gate());
                    let mut state = current_state(&scraped, paths, Detail::Figures)?;
                    state.daemon.metrics_listen = Some(at.to_string());
                    if let Some(add) = added.get() {
                        add(&mut state);
                    }
                    Ok(state)
                };
                let metrics = MetricsListener::new(Arc::new(state));
                Ok(Daemon {
                    mailbox,
                    journal,
                    registry,
                    files,
                    identities,
                    paths,
                    openings,
                    start_waits: StartWaits::default(),
                    metrics,
                    scraped_parts: parts,
                    warn,
                    traces,
                    served_files: ServedFiles(file_servers),
                    thread,
                })
            }
            Ok(Err(e)) => Err(e),
            Err(_) => Err(Error::new(Kind::Internal, "start", "the control thread ended")),
        }
    }
}

fn system(op: &str, error: &io::Error) -> Error {
    Error::new(Kind::System, op, error.to_string())
}

/// Result of the start for its caller.
type Ready = SyncSender<Result<Started>>;

/// Makes the opener of disks from that of this machine.
type WrapOpener = Box<dyn FnOnce(Opener) -> Arc<dyn DiskOpener> + Send>;

/// Something that the start needs; an error ends it.
fn ok_or_report<T>(ready: &Ready, result: Result<T>) -> Option<T> {
    result.map_err(|e| drop(ready.send(Err(e)))).ok()
}

fn control_thread(
    config: &DaemonConfig,
    journal: Arc<Journal>,
    registry: Arc<Registry>,
    (files, file_servers): (FilesInUse, FileServers),
    wrap: WrapOpener,
    ready: &Ready,
) {
    reactor::close_elsewhere();
    bio::must_not_block();
    let store = set_store(&registry, config, &report_fn(&journal, Level::Error));
    let Some(()) = ok_or_report(ready, store) else { return };
    let drivers = drivers::all(&registry);
    let runtime = start_cores(config, &registry, &drivers);
    let Some(mut runtime) = ok_or_report(ready, runtime) else { return };
    let reports = runtime.reports().to_vec();
    note_cores(&journal, &reports);
    let Some(mut control) = runtime.take_control() else { return };
    control.topology.set_origins(registry.origins().clone());
    let local = LocalKind::new(registry.clone());
    let volumes = ServedVolumes::load(registry.state_store(), report_fn(&journal, Level::Warn));
    let fs = FsClass::new(site(Arc::new(volumes))).listed_in(file_servers);
    let identities = identities(&registry, &journal);
    let disk = DiskClass::new(control.inbox().clone(), reports.len()).keeping(identities.clone());
    let opener = wrap(disk.opener(&control.topology));
    let openings = Openings::new(opener, control.inbox().clone(), reactor::monotonic_ns);
    let cam = load_classes(&mut control, reports.len(), disk, (local.clone(), fs), &journal);
    let (ended, ends) = LastSizes::load(registry.state_store(), report_fn(&journal, Level::Warn));
    control.topology.set_size_keeper(ended, Box::new(ends));
    let mailbox = Arc::new(Mailbox::new(control.inbox().clone()));
    let published: Arc<Mutex<Published>> = Arc::default();
    let started_ns = control.now_ns();
    let attachments = attachments(&drivers, &control, &journal);
    let Some(attachments) = ok_or_report(ready, attachments) else { return };
    control.topology.set_listener(listener(&journal));
    let answering = Answering {
        mailbox: mailbox.clone(),
        published: published.clone(),
        registry: registry.clone(),
        cam: cam.clone(),
        drivers: drivers.clone(),
        files: files.clone(),
        openings: openings.clone(),
        attached: Box::new(attachments.viewer()),
        started_ns,
        cores: reports.iter().map(core_state).collect(),
        pool_bytes: pool_bytes(config),
    };
    control.set_watch(Box::new(move |topology, now_ns| answering.answer(topology, now_ns)));
    let warn = report_fn(&journal, Level::Warn);
    let by_hand = Overrides::load(registry.state_store(), warn.clone());
    let names = PersistentNames::load(registry.state_store(), warn.clone(), cam.clone());
    let initiator = OwnName::load(registry.state_store());
    let loops = CycleCheck::new(cam.clone(), local);
    let mut control_loop = ControlLoop {
        path_watch: PathWatch::new(control.inbox().clone()),
        control,
        cam,
        layouts: GeomLayouts::load(registry.state_store(), warn),
        exports: Exports::new(
            (registry, drivers),
            attachments,
            (by_hand, identities),
            loops,
            files,
            started_ns,
        ),
        published,
        journal,
        own_work: mailbox.own_work().clone(),
        started_ns,
        openings: openings.clone(),
        medium_index: MediumIndex::default(),
        reattach: Reattach::default(),
        names,
        initiator,
        noted_troubles: buses::NotedTroubles::new(),
        next_space_check_ns: 0,
        path_checks: PathChecks::default(),
        consent: Vec::new(),
        images: Images::new(),
        is_remade: false,
    };
    control_loop.exports.remember();
    let _ = ready.send(Ok(Started::of(&control_loop, &mailbox, openings)));
    let attended = mailbox.serve_guard();
    control_loop.serve(&mailbox);
    drop(attended);
    drop(control_loop);
    stop_cores(runtime);
}

fn note_cores(journal: &Journal, reports: &[PortReport]) {
    for (i, port) in reports.iter().enumerate() {
        journal.note(0, Level::Info, "daemon", format!("core {i} uses {port}"));
    }
}

fn stop_cores(mut runtime: Runtime) {
    for left in runtime.stop() {
        tracing::error!(target: "ashlar", "abandoned because it does not answer: {left}");
    }
}

fn start_cores(
    config: &DaemonConfig,
    registry: &Arc<Registry>,
    drivers: &[Arc<dyn drivers::Driver>],
) -> Result<Runtime> {
    let (registry, drivers) = (registry.clone(), drivers.to_vec());
    let on_core = move |core: &std::rc::Rc<geom::Core>| {
        reactor::close_elsewhere();
        #[cfg(debug_assertions)]
        crate::fail_stop::force(core);
        exports::install(core, &registry, &drivers)
    };
    let runtime = Runtime::start(runtime_config(config), on_core);
    runtime.map_err(|e| system("start the cores", &e))
}

fn core_state(report: &PortReport) -> CoreState {
    CoreState {
        port_kind: format!("{:?}", report.kind).to_lowercase(),
        why: report.why.clone(),
        ..CoreState::default()
    }
}

/// Identities of disks, from the state folder.
fn identities(registry: &Registry, journal: &Arc<Journal>) -> Arc<IdentityKeeper> {
    let (store, known) = (registry.state_store(), registry.known_serials());
    Arc::new(IdentityKeeper::load(store, report_fn(journal, Level::Warn), known))
}

/// Every class there is; the buses are answered, for they are no geoms.
fn load_classes(
    control: &mut geom::GraphControl,
    cores: usize,
    disk: DiskClass,
    (local, fs): (Arc<LocalKind>, FsClass),
    journal: &Journal,
) -> Arc<CamClass> {
    let kinds = bus_kinds(local);
    let cam = Arc::new(CamClass::new(control.inbox().clone(), kinds, cores));
    let ends: [Arc<dyn Class>; 4] = [Arc::new(disk), cam.clone(), Arc::new(LunClass), Arc::new(fs)];
    for class in ends.into_iter().chain(classes::all_at(wall_s)) {
        if let Err(e) = control.topology.load(class) {
            journal.note(0, Level::Error, "daemon", e.to_string());
        }
    }
    cam
}

/// Every kind of bus: CAM's own, and the one above the target engine.
pub(crate) fn bus_kinds(local: Arc<LocalKind>) -> Vec<Arc<dyn SimKind>> {
    let mut kinds = cam::sims::kinds();
    kinds.push(local);
    kinds
}

/// Passes messages of the state store and its users to the journal.
fn report_fn(journal: &Arc<Journal>, level: Level) -> Arc<ReportFn> {
    let (journal, started) = (journal.clone(), std::time::Instant::now());
    Arc::new(move |serial: &str, text: String| {
        let at_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        journal.note(at_ns, level, serial, text);
    })
}

/// Passes events of geoms to the journal.
fn listener(journal: &Arc<Journal>) -> geom::Listener {
    let (journal, started) = (journal.clone(), std::time::Instant::now());
    Box::new(move |remark| {
        let at_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let level = match remark.severity {
            geom::Severity::Good => Level::Info,
            geom::Severity::Degraded => Level::Warn,
            geom::Severity::Failed => Level::Error,
        };
        journal.note(at_ns, level, &format!("{} {}", remark.class, remark.name), remark.text);
    })
}

/// Stores the persistent state of units in the state folder; without one nothing is kept. `tell`
/// reports records that cannot be read, and later what operators should know of units.
fn set_store(registry: &Registry, config: &DaemonConfig, tell: &Arc<ReportFn>) -> Result<()> {
    registry.set_operator_notifier(tell.clone());
    let Some(folder) = &config.state else { return Ok(()) };
    let store = FileStateStore::start(Path::new(folder), tell.clone()).map_err(|e| {
        system("open the state folder", &e)
            .at(folder)
            .next("Name a folder that can be written: `state` in [daemon].")
    })?;
    registry.set_state_store(Arc::new(store));
    Ok(())
}

/// The thread that makes LUNs block devices of this machine.
fn attachments(
    drivers: &[Arc<dyn Driver>],
    control: &geom::GraphControl,
    journal: &Arc<Journal>,
) -> Result<Attachments> {
    let local = drivers.iter().find_map(|d| d.clone().local());
    let start = "start the thread of attached LUNs";
    let none = || system(start, &io::Error::other("there is no local driver"));
    let local = local.ok_or_else(none)?;
    let (journal, started) = (journal.clone(), std::time::Instant::now());
    let tell = move |about: &str, text: String, is_error: bool| {
        let at_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let level = if is_error { Level::Error } else { Level::Info };
        journal.note(at_ns, level, about, text);
    };
    Attachments::start(local, control.inbox().clone(), Arc::new(tell))
        .map_err(|e| system(start, &e))
}

fn runtime_config(config: &DaemonConfig) -> RuntimeConfig {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = config.cores.map_or(available, |c| c as usize).max(1);
    RuntimeConfig {
        cores,
        port: match config.port {
            Port::Auto => PortChoice::Auto,
            Port::Uring => PortChoice::Uring,
            Port::Poll => PortChoice::Poll,
        },
        spin_ns: config.spin_us.map_or(SPIN_NS, |us| u64::from(us) * 1000),
        pool_bytes: (pool_bytes(config) / cores as u64) as usize,
    }
}

fn pool_bytes(config: &DaemonConfig) -> u64 {
    config.memory.unwrap_or(POOL_BYTES)
}

impl Daemon {
    /// Why a target could not be made, or its portals not be opened, after the steps `before`. A
    /// start opens the portals that it can. A file server that is removed or edited frees its
    /// addresses, and metrics that move free theirs.
    fn check_target(&self, target: &TargetConfig, before: &[Step]) -> Result<()> {
        let own = target.clone();
        self.check_in_time("create target", &target.name, move || exports::check_target(&own))?;
        if self.registry.login_gate().is_shut() {
            return Ok(());
        }
        let may_be_freed = before.iter().any(checking::frees_address);
        let (own, open) = (target.clone(), self.mailbox.query(Query::Portals)?);
        let check = move || exports::check_portals(&own, &open, may_be_freed);
        self.check_in_time("create target", &target.name, check)
    }
}

impl Plant for Daemon {
    fn state(&self) -> Result<SystemState> {
        let mut state = self.read(Detail::All)?;
        state.daemon.sandbox = sandbox::folders();
        state.daemon.sandbox_problem = sandbox::problem();
        Ok(state)
    }

    fn figures(&self) -> Result<SystemState> {
        self.read(Detail::Figures)
    }

    fn ping(&self) -> Result<()> {
        self.mailbox.query(Query::Ping)
    }

    fn check(&self, step: &Step, before: &[Step]) -> Result<()> {
        // Not on the control thread: files are read, which may block.
        self.check_sandbox(&step.action)?;
        match &step.action {
            Action::Daemon { to, .. } => return self.metrics.check(to, before),
            Action::CreateTarget { target } => self.check_target(target, before)?,
            Action::ModifyTarget { to, .. } => self.check_target(to, before)?,
            Action::CreateDisk { disk } => {
                self.check_existed(disk)?;
                return self.check_disk(disk, media::check);
            }
            Action::CreateBus { .. } | Action::ModifyBus { .. } => {
                return self.check_section(&step.action);
            }
            Action::Renew { of } => return self.check_renewed(of, before),
            action => self.check_section(action)?,
        }
        let prior = PriorSteps::of(step, before);
        if let Action::ModifyGeom { from, to } = &step.action {
            self.check_listeners(from, to, before)?;
            let change = Box::new((from.clone(), to.clone()));
            return self.mailbox.submit(|to| Change::CheckModify(change, prior, to))?;
        }
        if let Action::GrowDisk { to: disk, .. } = &step.action
            && let Some(bytes) = disk.params.get("size").and_then(Value::as_u64)
        {
            self.check_disk(disk, media::check_section)?;
            return self.mailbox.submit(|to| Change::MayGrow(disk.name.clone(), bytes, to))?;
        }
        let found = match &step.action {
            Action::CreateGeom { geom } => Some((geom.clone(), prior.clone())),
            _ => None,
        };
        let step = Box::new(step.clone());
        self.mailbox.query(|to| Query::Check(step, prior, to))??;
        let Some((geom, prior)) = found else { return Ok(()) };
        let none = GeomConfig { members: Vec::new(), provider: None, ..geom.clone() };
        let change = Box::new((none, geom));
        self.mailbox.submit(|to| Change::CheckModify(change, prior, to))?
    }

    fn check_disks(&self, steps: &[Step]) -> HashMap<usize, Result<()>> {
        self.check_side_by_side(steps)
    }

    fn refused_media(&self, running: &[DiskConfig], steps: &[Step]) -> Vec<(usize, Error)> {
        media::refused(running, steps.iter().map(|step| &step.action), &self.media())
    }

    fn clash(&self, steps: &[Step]) -> Option<(usize, Error)> {
        if !steps.iter().any(clashes::must_export) {
            return None;
        }
        let config = self.mailbox.query(Query::Config).ok()?;
        let subject = Subject::objects("predict", steps.iter().map(|step| step.what.as_str()));
        let (own, identities) = (steps.to_vec(), self.identities.clone());
        let predict = move || clashes::PredictedDisks::of(&own, &config, &identities);
        let foreseen = within(CHECKS_LIMIT, &subject, predict).unwrap_or_default();
        let steps = steps.to_vec().into_boxed_slice();
        // An error means that it is stopping.
        self.mailbox.query(|to| Query::Clash(steps, foreseen, to)).ok()?
    }

    fn wait_ready(&self, limit: Duration) -> Result<()> {
        self.mailbox.wait_ready(limit)
    }

    fn set_desired(&self, config: &Config, consent: &[String]) {
        self.ask_servers(config);
        let lent = exports::lent(config);
        let (config, consent) = (Box::new(config.clone()), consent.to_vec());
        // An error means that it is stopping.
        let _ = self.mailbox.submit(|to| Change::SetDesired { config, lent, consent, to });
    }

    fn expect_disks(&self, disks: &[&DiskConfig]) {
        self.expect_at_start(disks);
    }

    fn adopt(&self, geoms: &[GeomConfig]) {
        let geoms = geoms.to_vec();
        // An error means that it is stopping.
        let _ = self.mailbox.submit(|to| Change::Adopt(geoms, to));
    }

    fn retry_later(&self, action: &Action) {
        let action = Box::new(action.clone());
        // An error means that it is stopping.
        let _ = self.mailbox.submit(|to| Change::RetryLater(action, to));
    }

    fn data_lost(&self, action: &Action, before: &[Step], now: &Config) -> Option<DataLoss> {
        let (geom, from) = match action {
            Action::CreateGeom { geom } => (geom, None),
            Action::ModifyGeom { from, to } => (to, Some(Box::new(from.clone()))),
            Action::Units { .. } => {
                let names = action.consent_names();
                let held = names.clone();
                let why = self.mailbox.submit(|to| Change::DataHeld(held, to)).ok()??;
                return Some(DataLoss { why, names });
            }
            _ => {
                let ask = |units| self.mailbox.submit(|to| Change::LostToProtection(units, to));
                return exports::lost_to_protection(action, before, now, ask);
            }
        };
        let images = self.images_below(geom, before);
        let removes = |step: &Step| match &step.action {
            Action::RemoveGeom { geom: gone } => gone.class == geom.class && gone.name == geom.name,
            _ => false,
        };
        let is_remade = before.iter().any(removes);
        let geom = Box::new(geom.clone());
        let lost = |to| Change::DataLost { geom, from, images, is_remade, to };
        let why = self.mailbox.submit(lost).ok()??;
        Some(DataLoss { why, names: action.consent_names() })
    }

    fn predict_serials(&self, disks: &[DiskConfig], gone: &BTreeSet<String>) -> PredictedSerials {
        let names = disks.iter().map(|disk| disk.name.as_str());
        let subject = Subject::objects("predict serials", names);
        let (disks, gone, identities) = (disks.to_vec(), gone.clone(), self.identities.clone());
        let predict = move || identities.predict_serials(&disks, &gone);
        within(CHECKS_LIMIT, &subject, predict).unwrap_or_default()
    }

    fn stale(&self) -> Vec<StaleFiles> {
        let files = self.files.clone();
        let subject = Subject::objects("read files in use", []);
        // A step whose files hang is refused; their watch reports them later.
        within(CHECKS_LIMIT, &subject, move || files.stale()).unwrap_or_default()
    }

    fn carry_out(&self, action: &Action, progress: &mut Progress<'_>) -> Result<Outcome> {
        if let Action::CreateDisk { disk } = action
            && let Some(away) = self.open_disk(disk, progress)?
        {
            // The disk is awaited, as a lost one is.
            self.retry_later(action);
            let deferred = vec![Deferred::of_action(action, away)];
            return Ok(Outcome { deferred, ..Outcome::default() });
        }
        let files = self.read_ahead(action)?;
        if let Action::Daemon { to, .. } = action {
            // Not on the control thread: scrapes wait for it.
            self.metrics.set(to)?;
        }
        let own = Box::new(action.clone());
        let done = self.mailbox.submit(|to| Change::CarryOut(own, files, to))?;
        if done.is_ok() {
            self.note_control_files(action);
        }
        let left = self.wait_closed();
        done.map(|mut outcome| {
            outcome.notes.extend(left);
            outcome
        })
    }

    fn take_back(&self, inverse: &Action, progress: &mut Progress<'_>) -> Result<Outcome> {
        if let Action::CreateDisk { disk } = inverse {
            self.check_disk(disk, media::check_removed)?;
        }
        self.carry_out(inverse, progress)
    }

    fn verb(&self, class: &str, verb: &str, params: &Value, _: &mut Progress<'_>) -> Result<Value> {
        let bus = match (class, verb) {
            (CAM_CLASS, "attach") => verbs::bus_of_attach(params).transpose()?,
            _ => None,
        };
        let files = bus.map(|bus| self.read_ahead(&Action::CreateBus { bus })).transpose()?;
        let files = files.unwrap_or_default();
        let (class, verb, params) = (class.to_owned(), verb.to_owned(), params.clone());
        let done = self.mailbox.submit(|to| Change::Verb(class, verb, params, files, to))?;
        self.wait_closed();
        done
    }

    fn files(&self) -> &dyn FileService {
        &self.served_files
    }

    fn journal(&self, after: u64, limit: usize) -> Vec<Event> {
        self.journal.after(after, limit)
    }

    fn slow_requests(&self, query: &TraceQuery) -> Result<TraceState> {
        self.traces.poll(query, |edges| self.mailbox.query(|to| Query::Edges(edges, to)))
    }

    fn complete_scrapes(&self, add: Box<AddParts>) {
        // A second call has no effect.
        let _ = self.scraped_parts.set(add);
    }

    fn open(&self) {
        self.registry.login_gate().open();
    }

    fn stop(&self) {
        let thread = self.thread.lock().take();
        let Some(thread) = thread else { return };
        self.metrics.close();
        // An error means that it is stopping already.
        let _ = self.mailbox.submit(Change::Stop);
        if thread.join().is_err() {
            tracing::error!("the control thread panicked");
        }
        closing::wait_at_stop();
    }
}

#[cfg(test)]
mod tests {
    use engine::state_store::{RecordKind, StateStore, save_channel};

    use super::*;

    #[test]
    fn unreadable_record_of_known_units_is_reported() {
        let name = format!("ashlar-known-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let silent: Arc<ReportFn> = Arc::new(|_: &str, _: String| {});
        let store = FileStateStore::start(&folder, silent).expect("a folder");
        let (done, saved) = save_channel();
        store.save("known-units", RecordKind::KnownUnits, b"damaged".to_vec(), done);
        saved.wait().expect("saved");
        drop(store);
        let journal = Arc::new(Journal::default());
        let state = Some(folder.display().to_string());
        let config = DaemonConfig { state, ..DaemonConfig::default() };
        let tell = report_fn(&journal, Level::Error);
        set_store(&Registry::new(), &config, &tell).expect("a state folder");
        let events = journal.after(0, 10);
        let is_said = |e: &Event| e.level == Level::Error && e.text.contains("known-units.known");
        assert!(events.iter().any(is_said), "{events:?}");
        std::fs::remove_dir_all(&folder).expect("scratch");
    }
}
