//! The control side of a running daemon: the plant, the configuration that was applied, and the
//! archive of those before.
//!
//! Invariants
//!  C1  Changing calls to the plant are made by the command that has its turn, never otherwise.
//!  C2  `running` is the configuration that the plant has reached; it follows every step, not every
//!      plan.
//!  C3  `generation` grows whenever `running` changes, so that an old plan is recognised.
//!  C4  A command waits at most [`TURN_WAIT`] for its turn, and as long for work of the daemon
//!      itself. Only a start, a stop, a reload and the next question of a verb that is carried out
//!      wait longer.

mod archive;
mod figures;
mod listeners;
mod request_keys;
mod turns;

pub use archive::{Archive, Archived};
pub(crate) use listeners::configured as configured_listeners;
pub(crate) use request_keys::KeyedRequest;

use crate::api::{
    Error, Event, Kind, ProgressLine, Result, SystemState, TraceQuery, TraceState, WebhookState,
};
use crate::audit::AuditLog;
use crate::auth::{Scope, TokenStore, WebSessions};
use crate::config::{
    ApiSections, Catalog, Config, DiskConfig, GeomConfig, WebhookConfig, check, webhook,
};
use crate::plan::{self, Action, Applied, Deferred, FileSection, Step};
use crate::plant::{Plant, Progress};
use crate::samples::SampleStore;
use crate::text::shell_word;
use listeners::ApiListeners;
use request_keys::RequestKeys;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use turns::{Turn, Turns};

/// Longest wait of a command for its turn: most changes are over before.
const TURN_WAIT: Duration = Duration::from_secs(5);

/// See the module.
pub struct Control {
    shared: Arc<ControlShared>,
    /// The objects that its user sees.
    scope: Scope,
}

/// The parts that all users of a daemon share.
struct ControlShared {
    plant: Box<dyn Plant>,
    catalog: Catalog,
    archive: Archive,
    running: Mutex<Running>,
    turns: Turns,
    deferred: Mutex<Vec<Deferred>>,
    /// How far the start is; `None` once it is over.
    start: Mutex<Option<ProgressLine>>,
    tokens: TokenStore,
    web_sessions: WebSessions,
    audit: AuditLog,
    request_keys: RequestKeys,
    api_listeners: ApiListeners,
    /// How often the files of a section were to be read again.
    renewals: Mutex<BTreeMap<FileSection, u64>>,
    webhooks: Mutex<Vec<WebhookState>>,
    samples: SampleStore,
}

#[derive(Clone, Default)]
struct Running {
    config: Config,
    generation: u64,
}

/// A plan, with the configuration and generation that it was made for.
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Generation of the running configuration.
    pub generation: u64,
    base: Config,
    /// Sections of geoms that work with other settings: `base` has those.
    declared: Vec<GeomConfig>,
    /// Sections of geoms that verbs made as they are declared now.
    adopted: Vec<GeomConfig>,
    /// At a start: the configuration that was carried out last before it.
    before: Option<Config>,
}

impl Plan {
    /// Class and name of geoms that verbs made and that belong to the configuration once it is
    /// applied, as they are.
    pub fn adopted(&self) -> impl Iterator<Item = String> {
        self.adopted.iter().map(|geom| format!("{} {}", geom.class, geom.name))
    }

    /// A configuration that was reached from here, where geoms that no step has changed still have
    /// the sections that they were declared with.
    fn as_declared(&self, mut reached: Config) -> Config {
        for geom in &mut reached.geom {
            let section = self.declared.iter().find(|section| section.name == geom.name);
            if let Some(section) = section.filter(|_| self.base.geom(&geom.name) == Some(&*geom)) {
                *geom = section.clone();
            }
        }
        reached
    }
}

/// Permissions and conditions for carrying out a plan.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// Names of things whose data may be lost.
    pub destroy: Vec<String>,
    /// Refuse when the running configuration is of another generation.
    pub if_generation: Option<u64>,
    /// Stop before the first change.
    pub dry_run: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded value is always replaced whole, so a panic elsewhere leaves no partial value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ControlShared {
    /// Adds the parts that the plant does not know: listeners and certificates of the API,
    /// webhooks.
    fn add_parts(&self, state: &mut SystemState) {
        let tokens = self.tokens.count();
        self.api_listeners.add_to(state, &lock(&self.running).config, tokens);
        state.webhooks = lock(&self.webhooks).clone();
    }
}

impl Control {
    /// A control side for a plant that was launched with the daemon settings of `config` and runs
    /// nothing else yet.
    pub fn new(
        plant: Box<dyn Plant>,
        catalog: Catalog,
        launched: &Config,
        archive: Archive,
    ) -> Control {
        let config = Config { daemon: launched.daemon.clone(), ..Config::default() };
        let running = Mutex::new(Running { config, generation: 0 });
        let shared = ControlShared {
            plant,
            catalog,
            archive,
            running,
            turns: Turns::default(),
            deferred: Mutex::default(),
            start: Mutex::default(),
            tokens: TokenStore::none(),
            web_sessions: WebSessions::default(),
            audit: AuditLog::none(),
            request_keys: RequestKeys::default(),
            api_listeners: ApiListeners::default(),
            renewals: Mutex::default(),
            webhooks: Mutex::default(),
            samples: SampleStore::default(),
        };
        Control { shared: Arc::new(shared), scope: Scope::default() }
    }

    /// The same daemon for a caller whose role is limited (A10).
    pub fn limited_to(self: &Arc<Control>, scope: &Scope) -> Arc<Control> {
        if scope.is_whole() {
            return self.clone();
        }
        Arc::new(Control { shared: self.shared.clone(), scope: scope.clone() })
    }

    /// The same, with tokens and the audit log of the API in `folder`.
    pub fn with_api_folder(mut self, folder: &Path) -> Control {
        // A new value: no other user shares the parts yet.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.tokens = TokenStore::open(folder);
            shared.audit = AuditLog::open(folder);
        }
        self
    }

    /// Tokens of the API.
    pub fn tokens(&self) -> &TokenStore {
        &self.shared.tokens
    }

    /// Sessions of browsers that logged in with a token.
    pub fn web_sessions(&self) -> &WebSessions {
        &self.shared.web_sessions
    }

    /// The audit log of the API.
    pub fn audit(&self) -> &AuditLog {
        &self.shared.audit
    }

    /// Keys of changes that were carried out.
    pub(crate) fn request_keys(&self) -> &RequestKeys {
        &self.shared.request_keys
    }

    /// Has the listener of metrics show the same state as [`Control::state`]. Called at most once.
    pub fn complete_scrapes(&self) {
        // The plant belongs to the shared parts.
        let shared = Arc::downgrade(&self.shared);
        let add = move |state: &mut SystemState| {
            if let Some(shared) = shared.upgrade() {
                shared.add_parts(state);
            }
        };
        self.plant().complete_scrapes(Box::new(add));
    }

    /// Listeners of the API over TCP, to which their server reports.
    pub(crate) fn api_listeners(&self) -> &ApiListeners {
        &self.shared.api_listeners
    }

    /// Samples of the last hour.
    pub fn samples(&self) -> &SampleStore {
        &self.shared.samples
    }

    /// The sections of the API in the running configuration.
    pub fn api(&self) -> ApiSections {
        ApiSections::of(&lock(&self.shared.running).config)
    }

    /// How often the files of a section were to be read again: with each new number its user reads
    /// them.
    pub(crate) fn renewals(&self, of: &FileSection) -> u64 {
        lock(&self.shared.renewals).get(of).copied().unwrap_or(0)
    }

    /// The webhooks of the running configuration.
    pub fn webhooks(&self) -> Vec<WebhookConfig> {
        lock(&self.shared.running).config.webhook.clone()
    }

    /// Reports the deliveries of webhooks, for the state.
    pub fn set_webhook_states(&self, states: Vec<WebhookState>) {
        *lock(&self.shared.webhooks) = states;
    }

    /// Generation of the running configuration.
    pub fn generation(&self) -> u64 {
        lock(&self.shared.running).generation
    }

    /// The catalog of the configuration.
    pub fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }

    /// The configurations kept.
    pub fn archive(&self) -> &Archive {
        &self.shared.archive
    }

    /// The daemon, for questions.
    pub fn plant(&self) -> &dyn Plant {
        self.shared.plant.as_ref()
    }

    /// The daemon, for changes; waits for its turn (C1, C4).
    ///
    /// # Errors
    /// [`Kind::Busy`] when another command keeps its turn, and those of `f`.
    pub fn change<T>(&self, f: impl FnOnce(&dyn Plant) -> Result<T>) -> Result<T> {
        let turn = self.shared.turns.take_ready(self.plant(), "command", TURN_WAIT);
        let _turn = turn.map_err(|busy| self.limited_refusal(busy))?;
        f(self.plant())
    }

    /// As [`Self::change`], for an object that the user's scope must cover alone (A2). `is_own`
    /// decides that by the whole state.
    ///
    /// # Errors
    /// [`Kind::Forbidden`] for another object, and those of [`Self::change`].
    pub fn change_own<T>(
        &self,
        (op, at): (&str, &str),
        is_own: impl FnOnce(&Scope, &SystemState) -> bool,
        f: impl FnOnce(&dyn Plant) -> Result<T>,
    ) -> Result<T> {
        self.change(|plant| {
            if !self.scope.is_whole() && !is_own(&self.scope, &plant.state()?) {
                let why = format!("no object of {} alone has this name", self.scope);
                let next = "Use a token without --target and --group.";
                return Err(Error::new(Kind::Forbidden, op, why).at(at).next(next));
            }
            f(plant)
        })
    }

    /// Slow requests of hosts that the user sees.
    ///
    /// # Errors
    /// Those of [`Plant::slow_requests`] and [`Plant::state`].
    pub fn slow_requests(&self, query: &TraceQuery) -> Result<TraceState> {
        let mut trace = self.plant().slow_requests(query)?;
        if !self.scope.is_whole() && !trace.requests.is_empty() {
            self.scope.limit_trace(&mut trace, &self.state()?);
        }
        Ok(trace)
    }

    /// A refusal because of another command, as far as the user sees it (A10): the progress of that
    /// command may name any object.
    fn limited_refusal(&self, busy: Error) -> Error {
        match self.scope.is_whole() || busy.kind != Kind::Busy {
            true => busy,
            false => Error { source: "busy: another command runs".to_owned(), ..busy },
        }
    }

    /// The same, however long another command keeps its turn.
    pub fn change_when_free<T>(&self, f: impl FnOnce(&dyn Plant) -> T) -> T {
        let _turn = self.shared.turns.take("command");
        f(self.plant())
    }

    /// Has a class carry out a verb, and reads its answer as `A`.
    ///
    /// # Errors
    /// Those of the verb; [`Kind::Internal`] when the answer is no `A`.
    pub fn verb<A: DeserializeOwned>(
        &self,
        (class, verb): (&str, &str),
        params: &Value,
        progress: &mut Progress<'_>,
    ) -> Result<A> {
        let answer = self.change(|plant| plant.verb(class, verb, params, progress))?;
        let op = || format!("{class} {verb}");
        A::deserialize(&answer).map_err(|e| Error::new(Kind::Internal, op(), e))
    }

    /// Everything that the user sees, now.
    ///
    /// # Errors
    /// Those of [`Plant::state`].
    pub fn state(&self) -> Result<SystemState> {
        Ok(self.limited(self.plant().state()?))
    }

    /// A state of the plant as the user sees it.
    fn limited(&self, mut state: SystemState) -> SystemState {
        self.shared.add_parts(&mut state);
        self.scope.limit_state(&mut state);
        state
    }

    /// Events with an id above `after` that the user sees, oldest first, at most `limit` of them.
    pub fn journal(&self, after: u64, limit: usize) -> Vec<Event> {
        self.journal_part(after, limit).0
    }

    /// The same, and the id of the last event that was examined. The next part begins behind it,
    /// also if the user sees none of these events. Without a state, none is examined.
    pub fn journal_part(&self, after: u64, limit: usize) -> (Vec<Event>, u64) {
        let last = |events: &[Event]| events.last().map(|event| event.id);
        let mut events = self.plant().journal(after, limit);
        let Some(mut examined) = last(&events) else { return (events, after) };
        if self.scope.is_whole() {
            return (events, examined);
        }
        // It takes time of the control thread, so only new events have it read.
        let Ok(state) = self.state() else { return (Vec::new(), after) };
        let mut seen = self.scope.limit_events(&events, &state);
        // Events that the user does not see do not hide later ones.
        while seen.is_empty() && events.len() >= limit {
            events = self.plant().journal(examined, limit);
            let Some(id) = last(&events) else { break };
            examined = id;
            seen = self.scope.limit_events(&events, &state);
        }
        (seen, examined)
    }

    /// The configuration that was carried out last, as far as the user sees it, and its generation.
    pub fn config(&self) -> (Config, u64) {
        let (mut config, generation) = {
            let running = lock(&self.shared.running);
            (running.config.clone(), running.generation)
        };
        if !self.scope.is_whole() {
            self.scope.limit_config(&mut config, &self.state().unwrap_or_default());
        }
        (config, generation)
    }

    /// The parts that could not be carried out at the last try, and are still missing. A limited
    /// user sees them as parts that its target lacks.
    pub fn deferred(&self) -> Vec<Deferred> {
        match self.scope.is_whole() {
            true => lock(&self.shared.deferred).clone(),
            false => Vec::new(),
        }
    }

    /// How far the start is; `None` once it is over. A limited user sees only that it runs (A10):
    /// its steps may name any object.
    pub fn start_progress(&self) -> Option<ProgressLine> {
        let line = lock(&self.shared.start).clone()?;
        Some(if self.scope.is_whole() { line } else { ProgressLine::default() })
    }

    /// The daemon is starting, or has started.
    pub fn set_starting(&self, starts: bool) {
        *lock(&self.shared.start) = starts.then(ProgressLine::default);
    }

    /// The way to `desired` from what runs.
    ///
    /// # Errors
    /// Problems that `config::check` finds, and those of [`Plant::state`].
    pub fn plan(&self, desired: &Config) -> Result<Plan> {
        if let Some(problem) = check(desired, self.catalog()).into_iter().next() {
            return Err(Error::new(problem.kind, "plan", problem.text).at(problem.section));
        }
        webhook::check_paths(desired)?;
        let (config, generation) = self.config();
        let state = self.state()?;
        let mut base = plan::running_config(&config, &state);
        plan::adopt_found_members(&mut base, &lock(&self.shared.deferred), &state, self.catalog());
        plan::keep_lost_objects(&mut base, &config, desired);
        let adopted = plan::adopt_created(&mut base, desired, &state, self.catalog());
        let declared = plan::adopt_settings(&mut base, &state, self.catalog());
        let foreseen = self.predict_serials(&base, desired);
        let mut steps = plan::plan(&base, desired, (&state, &foreseen), self.catalog());
        plan::renew(&mut steps, self.plant().stale(), desired, &state);
        let mut now = base.clone();
        for at in 0..steps.len() {
            let (before, rest) = steps.split_at_mut(at);
            // A start shows no risks: disks are inspected when they are in the graph.
            let before = if self.start_progress().is_some() { &[] } else { &*before };
            let Some(step) = rest.first_mut() else { continue };
            if let Some(loss) = self.plant().data_lost(&step.action, before, &now) {
                step.set_destroys(loss);
            }
            step.action.apply_to(&mut now);
            step.may_wait = step.action.is_in(&config)
                || plan::stays_awaited(&step.action, (&config, desired), &state)
                    && self.plant().check(step, before).is_err_and(|e| e.kind == Kind::NotFound);
            if let Action::ModifyGeom { to, .. } = &step.action
                && declared.contains(to)
            {
                step.why = format!("changed by hand, set back to ashlar.toml: {}", step.why);
            }
            if let Action::ModifyGeom { from, to } = &step.action
                && plan::leaves_one_copy(from, to, &state, self.catalog())
            {
                let name = &to.name;
                step.why +=
                    &format!("; one copy until the rebuild ends (ashlar mirror status {name})");
            }
        }
        Ok(Plan { steps, generation, base, declared, adopted, before: None })
    }

    /// The identities by which hosts would know the disks that a plan makes; empty when no LUN has
    /// been exported, as at a start.
    fn predict_serials(&self, base: &Config, desired: &Config) -> plan::PredictedSerials {
        if base.access.is_empty() {
            return plan::PredictedSerials::new();
        }
        let live: HashMap<&str, &DiskConfig> =
            base.disk.iter().map(|d| (d.name.as_str(), d)).collect();
        let is_new = |disk: &&DiskConfig| live.get(disk.name.as_str()) != Some(disk);
        let created: Vec<DiskConfig> = desired.disk.iter().filter(is_new).cloned().collect();
        if created.is_empty() {
            return plan::PredictedSerials::new();
        }
        let stay: HashSet<&str> = desired.disk.iter().map(|d| d.name.as_str()).collect();
        let gone = live.keys().filter(|name| !stay.contains(*name));
        self.plant().predict_serials(&created, &gone.map(|name| (*name).to_owned()).collect())
    }

    /// Steps of a plan that the daemon would refuse, each with why: those for which it refuses the
    /// whole, and those that it leaves out and waits for.
    pub fn refused_steps(&self, plan: &Plan) -> (Vec<String>, Vec<String>) {
        let (mut refused, mut awaited) = (Vec::new(), Vec::new());
        let why = |step: &Step, error: Error| {
            let at = if error.at.is_empty() { String::new() } else { format!("{}: ", error.at) };
            format!("{}: {at}{}", step.what, error.source)
        };
        let errors = plan::refusals((self.plant(), self.catalog()), &plan.steps, &plan.base);
        for (step, error) in plan.steps.iter().zip(errors) {
            let list = if step.may_wait { &mut awaited } else { &mut refused };
            list.extend(error.map(|error| why(step, error)));
        }
        (refused, awaited)
    }

    /// Changes the daemon to `desired`, wholly or not at all, and archives it. Objects that existed
    /// before and are missing now may stay missing.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another command keeps its turn, [`Kind::Stale`], [`Kind::WouldDestroy`]
    /// and those of [`plan::apply`].
    pub fn apply(
        &self,
        desired: &Config,
        consent: &Consent,
        progress: &mut Progress<'_>,
    ) -> Result<(Plan, Applied)> {
        let turn = self.shared.turns.take_ready(self.plant(), "apply", TURN_WAIT)?;
        self.apply_in(&turn, desired, consent, progress)
    }

    /// The same without consent, however long another command keeps its turn.
    ///
    /// # Errors
    /// Those of [`Control::apply`], but for [`Kind::Busy`].
    pub fn reload(&self, to: &Config, progress: &mut Progress<'_>) -> Result<(Plan, Applied)> {
        let turn = self.shared.turns.take("reload");
        self.apply_in(&turn, to, &Consent::default(), progress)
    }

    fn apply_in(
        &self,
        turn: &Turn<'_>,
        desired: &Config,
        consent: &Consent,
        progress: &mut Progress<'_>,
    ) -> Result<(Plan, Applied)> {
        let mut reported = |line: ProgressLine| {
            turn.report(&line);
            progress(line);
        };
        let plan = self.plan(desired)?;
        if let Some(wanted) = consent.if_generation.filter(|&g| g != plan.generation) {
            let why = format!("planned against generation {wanted}, now {}", plan.generation);
            return Err(Error::new(Kind::Stale, "apply", why));
        }
        check_consent(&plan.steps, consent)?;
        if consent.dry_run {
            let errors = plan::refusals((self.plant(), self.catalog()), &plan.steps, &plan.base);
            let mut all = plan.steps.iter().zip(errors).filter(|(step, _)| !step.may_wait);
            if let Some((step, e)) = all.find_map(|(step, e)| Some((step, e?))) {
                return Err(with_step(e, &step.what));
            }
            return Ok((plan, Applied::default()));
        }
        let mut applied = self.carry_out(&plan, desired, &consent.destroy, &mut reported)?;
        let still =
            |l: &Deferred| format!("{}: not yet: {}; the daemon waits for it", l.subject, l.why);
        applied.notes.extend(applied.deferred.iter().map(still));
        Ok((plan, applied))
    }

    /// Changes a daemon that has just been launched to `desired`: all that can be carried out is,
    /// the rest is left out and wanted. Records of units on their disks are restored.
    ///
    /// # Errors
    /// Problems that `config::check` finds, and those of [`Plant::state`].
    pub fn start(&self, desired: &Config) -> Result<Applied> {
        let turn = self.shared.turns.take("start");
        let mut plan = self.plan(desired)?;
        let mut refused = Vec::new();
        let (mut steps, none) = (Vec::new(), Consent::default());
        for step in plan.steps {
            let brought_back = matches!(step.action, Action::Units { .. });
            match check_consent([&step], &none) {
                Err(e) if !brought_back => refused.push((step, e)),
                _ => steps.push(Step { may_wait: true, ..step }),
            }
        }
        plan.steps = steps;
        let mut progress = |line: ProgressLine| {
            tracing::debug!("{}", line.what);
            turn.report(&line);
            if let Some(place) = &mut *lock(&self.shared.start) {
                *place = line;
            }
        };
        plan.before = self.shared.archive.newest(self.catalog());
        let mut applied = self.carry_out(&plan, desired, &[], &mut progress)?;
        // Not wanted by itself: `apply` requests the consent that it needs.
        let destroys = |(step, e): (Step, Error)| Deferred::new(&step, e);
        applied.deferred.extend(refused.into_iter().map(destroys));
        lock(&self.shared.deferred).clone_from(&applied.deferred);
        Ok(applied)
    }

    fn carry_out(
        &self,
        plan: &Plan,
        desired: &Config,
        consent: &[String],
        progress: &mut Progress<'_>,
    ) -> Result<Applied> {
        let mut reached = plan.base.clone();
        self.plant().set_desired(desired, consent);
        let at = (self.plant(), self.catalog());
        let result = plan::apply(at, &plan.steps, &mut reached, progress);
        // Those of a step that was taken back are read once more.
        for step in &plan.steps {
            if let Action::Renew { of } = &step.action {
                *lock(&self.shared.renewals).entry(of.clone()).or_default() += 1;
            }
        }
        let mut reached = plan.as_declared(reached);
        match &result {
            Ok(_) if plan.adopted.is_empty() => {}
            Ok(_) => self.plant().adopt(&plan.adopted),
            Err(_) => reached.geom.retain(|geom| !plan.adopted.contains(geom)),
        }
        if result.is_err() {
            // Lost and awaited objects are wanted as before.
            let (config, _) = self.config();
            plan::keep_lost_objects(&mut reached, &config, &plan.base);
            self.plant().set_desired(&reached, &[]);
        }
        let mut desired = desired.clone();
        let result = result.and_then(|mut applied| {
            if let Some(before) = &plan.before {
                let (state, catalog) = (self.state()?, self.catalog());
                let edited = plan::defer_mirror_edits(before, &mut desired, &state, catalog);
                applied.deferred.extend(edited);
            }
            Ok(applied)
        });
        let changed = {
            let mut running = lock(&self.shared.running);
            // A section may describe settings that a geom already works with: no step is needed for
            // that.
            let accepted = if result.is_ok() { &desired } else { &reached };
            let changed = [&reached, accepted].iter().any(|to| !running.config.is_equivalent(to));
            running.config = accepted.clone();
            running.generation += u64::from(changed);
            changed
        };
        let mut applied = result?;
        lock(&self.shared.deferred).clone_from(&applied.deferred);
        if changed && let Err(e) = self.shared.archive.keep(&desired) {
            applied.notes.push(format!("the configuration could not be archived: {}", e.source));
        }
        Ok(applied)
    }
}

/// An error of a step, in the words of a plan.
fn with_step(e: Error, what: &str) -> Error {
    let at = if e.at.is_empty() { what.to_owned() } else { format!("{what}: {}", e.at) };
    e.at(at)
}

/// Every step that destroys has been consented to by name.
fn check_consent<'a>(steps: impl IntoIterator<Item = &'a Step>, consent: &Consent) -> Result<()> {
    let mut missing = plan::consent_names(steps);
    missing.retain(|name| !consent.destroy.contains(name));
    if missing.is_empty() {
        return Ok(());
    }
    let flag = |name: &String| format!("--yes-destroy {}", shell_word(name));
    let flags: Vec<String> = missing.iter().map(flag).collect();
    let why = format!("the data on {} would be lost", missing.join(", "));
    let next = format!("Repeat the command with {}.", flags.join(" "));
    Err(Error::new(Kind::WouldDestroy, "apply", why).next(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakePlant, control};
    use testkit::Folder;

    #[test]
    fn a10_progress_of_others_names_no_object_to_a_limited_user() {
        let folder = Folder::new("progress");
        let control = Arc::new(control(&Arc::new(FakePlant::new()), &folder));
        let what = "create disk foreign0".to_owned();
        let line = ProgressLine { what, ..ProgressLine::default() };
        *lock(&control.shared.start) = Some(line.clone());
        let scope = Scope { target: Some("iqn.a:own".to_owned()), group: None };
        let limited = control.limited_to(&scope);
        assert_eq!(control.start_progress(), Some(line));
        assert_eq!(limited.start_progress(), Some(ProgressLine::default()));
        let busy = || Error::new(Kind::Busy, "command", "busy: disk foreign0 is being opened");
        assert_eq!(control.limited_refusal(busy()), busy());
        let refused = limited.limited_refusal(busy());
        assert!(refused.kind == Kind::Busy && !refused.source.contains("foreign0"), "{refused}");
    }
}
