//! The control thread: carries out changes one at a time.

mod changing;
mod checking;
mod cleaning;
mod guarding;
mod hotplug;
mod members;
mod opening;
mod published;
mod renewing;
mod stopping;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bio::sync::Mutex;
use cam::CamClass;
use classes::part::request::is_kept_in_memory;
use disks::DISK_CLASS;
use geom::{Class, Create, GraphControl, ProviderId};
use mgmt::Outcome;
use mgmt::api::{Error, Kind, Level, Result};
use mgmt::config::{AccessConfig, Config, DaemonConfig, GeomConfig, LunConfig};
use mgmt::plan::{Action, Deferred};
use mgmt::shell_word;
use serde_json::{Value, json};

use crate::buses;
use crate::errors::{find_persistent, from_geom, next_with_consent};
use crate::exports::{Exports, Files, ProviderSources, units_of};
use crate::geom_layouts::GeomLayouts;
use crate::images::Images;
use crate::initiator::OwnName;
use crate::insert_layer;
use crate::journal::Journal;
use crate::listing;
use crate::mailbox::{Change, Mailbox};
use crate::medium_index::MediumIndex;
use crate::openings::Openings;
use crate::own_work::OwnWork;
use crate::path_checks::{self, PathChecks};
use crate::path_watch::PathWatch;
use crate::persistent_names::PersistentNames;
use crate::reattach::Reattach;
use crate::startup_wait;
use crate::verbs;

pub use checking::check;
pub use published::Published;
pub use renewing::{check_disk, check_files};

/// Longest sleep of the control thread; everything that needs it wakes it before.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// How often the used space of thin disks is queried: a write at full speed takes a few GB
/// meanwhile.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// These queries take at most one part in so many of the control thread's time; many disks are
/// queried less often.
pub(crate) const CHECK_SHARE: u64 = 50;

/// The control thread's own.
pub struct ControlLoop {
    /// The graph and its driver.
    pub control: GraphControl,
    /// Buses and their disks.
    pub cam: Arc<CamClass>,
    /// The exports to initiators.
    pub exports: Exports,
    /// For questions.
    pub published: Arc<Mutex<Published>>,
    /// For people.
    pub journal: Arc<Journal>,
    /// For changes that wait meanwhile.
    pub own_work: OwnWork,
    /// When the daemon started, ns of the cores' clock.
    pub started_ns: u64,
    /// Disks that are being opened.
    pub openings: Openings,
    /// Files and devices of open disks.
    pub medium_index: MediumIndex,
    /// Disks that disappeared, and what may return.
    pub reattach: Reattach,
    /// Names that the configuration calls disks of buses by.
    pub names: PersistentNames,
    /// Our own name for buses that give none.
    pub initiator: OwnName,
    /// How geoms were put together that no record on a disk describes.
    pub layouts: GeomLayouts,
    /// The noted objects that buses could not reach.
    pub noted_troubles: buses::NotedTroubles,
    /// When the used space of the disks is queried next, ns of the cores' clock.
    pub next_space_check_ns: u64,
    /// The noted problems with the paths of disks.
    pub path_checks: PathChecks,
    /// The watch over the paths of disks.
    pub path_watch: PathWatch,
    /// Names given as consent to lose their data, for the steps being carried out.
    pub consent: Vec<String>,
    /// Disks that earlier steps make, for the step of a plan that is judged.
    pub images: Images,
    /// Whether an earlier step removes the geom that this step makes.
    pub is_remade: bool,
}

impl ControlLoop {
    /// Serves the mailbox until a stop is requested.
    pub fn serve(&mut self, mailbox: &Mailbox) {
        loop {
            self.control.pump();
            buses::update_graph(self);
            buses::note_troubles(self);
            self.update_names();
            self.report_losses();
            self.check_space();
            path_checks::check_paths(self);
            self.reopen_returned();
            self.control.run_watch();
            match mailbox.next_change() {
                Some(Change::Stop(done)) => {
                    self.path_watch.stop();
                    self.openings.stop();
                    self.exports.identities.store();
                    self.stop();
                    mailbox.close();
                    let _ = done.send(());
                    return;
                }
                Some(change) => self.handle_change(change),
                None => {
                    if self.exports.identities.store_if_due(&mut self.control) {
                        continue;
                    }
                    let is_unsaved = self.exports.identities.is_unsaved();
                    // Known units of initiators are saved while it serves.
                    let looks = self.exports.is_serving()
                        || self.reattach.has_missing()
                        || is_unsaved
                        || self.path_checks.is_watching()
                        || self.exports.has_thin()
                        || self.exports.has_lost();
                    let nap = if looks { CHECK_INTERVAL } else { SLEEP_MAX };
                    self.control.inbox().clone().sleep(nap);
                }
            }
        }
    }

    /// Queries the used space of thin disks at intervals.
    fn check_space(&mut self) {
        let began = self.control.now_ns();
        if began < self.next_space_check_ns {
            return;
        }
        self.exports.check_space(&self.control.topology);
        let took = self.control.now_ns().saturating_sub(began);
        self.next_space_check_ns = began
            + u64::try_from(CHECK_INTERVAL.as_nanos())
                .unwrap_or(0)
                .max(took.saturating_mul(CHECK_SHARE));
    }

    fn handle_change(&mut self, change: Change) {
        // The caller may have disconnected; its change is carried out all the same.
        match change {
            Change::SetDesired { config, lent, consent, to } => {
                self.control.topology.set_exported(lent);
                self.reattach.retain_configured(&config);
                self.exports.identities.set_desired(&config);
                self.exports.sources = ProviderSources::of(*config);
                self.exports.consent.clone_from(&consent);
                self.consent = consent;
                let _ = to.send(());
            }
            Change::DataLost { geom, from, images, is_remade, to } => {
                (self.images, self.is_remade) = (images, is_remade);
                let lost = match from {
                    Some(from) => self.added_data_lost(&from, &geom),
                    None => self.data_lost(&geom),
                };
                (self.images, self.is_remade) = (Images::new(), false);
                let _ = to.send(lost);
            }
            Change::DataHeld(names, to) => drop(to.send(self.data_at_ends(&names))),
            Change::LostToProtection(units, to) => {
                drop(to.send(self.exports.lost_to_protection(&mut self.control, &units)));
            }
            Change::MayGrow(disk, bytes, to) => drop(to.send(self.may_grow(&disk, bytes))),
            Change::OpenMedia(to) => drop(to.send(self.open_media())),
            Change::CheckModify(change, prior, to) => {
                drop(to.send(self.check_modify(&change.0, &change.1, &prior)));
            }
            Change::Adopt(geoms, to) => {
                self.adopt_geoms(&geoms);
                let _ = to.send(());
            }
            Change::RetryLater(action, to) => {
                self.retry_later(&action);
                let _ = to.send(());
            }
            Change::OpenDisk(disk, to) => drop(to.send(self.open_disk(&disk))),
            Change::CarryOut(action, files, to) => {
                drop(to.send(files.replay(|| self.carry_out(&action))));
            }
            Change::Verb(class, verb, params, files, to) => {
                drop(to.send(files.replay(|| self.verb(&class, &verb, &params))));
            }
            Change::Ready(to) | Change::Stop(to) => drop(to.send(())),
        }
    }

    pub(crate) fn config(&self) -> Config {
        self.published.lock().config.clone()
    }

    pub(crate) fn note(&self, level: Level, about: &str, text: String) {
        let at = self.control.now_ns().saturating_sub(self.started_ns);
        self.journal.note(at, level, about, text);
    }

    /// One step of a plan, wholly or not at all, and a line in the journal.
    fn carry_out(&mut self, action: &Action) -> Result<Outcome> {
        let done = self.step(action);
        match &done {
            Ok(_) => self.note(Level::Info, &action.name(), action.summary()),
            Err(e) => self.note_failed(action, e),
        }
        done
    }

    fn note_failed(&self, action: &Action, e: &Error) {
        let text = format!("{}: {}: {}", action.summary(), e.at, e.source);
        self.note(Level::Error, &action.name(), text);
    }

    /// One step of a plan.
    pub(super) fn step(&mut self, action: &Action) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        match action {
            Action::Daemon { from, to } => {
                outcome.notes = daemon_notes(from, to);
                Ok(())
            }
            // The server of the API and webhooks follow the running configuration by themselves.
            Action::Api { .. } | Action::Webhooks { .. } => Ok(()),
            Action::CreateBus { bus } => {
                buses::create(self, bus).map(|note| outcome.notes.extend(note))
            }
            Action::ModifyBus { to, .. } => buses::modify(self, to),
            Action::RemoveBus { bus } => buses::remove(self, &bus.name),
            Action::CreateDisk { disk } => self.create_disk(disk, false),
            Action::RemoveDisk { disk } => {
                let done = self.destroy(DISK_CLASS, &disk.name);
                done.inspect(|()| self.forget_disk(&disk.name))
            }
            Action::GrowDisk { to, .. } => {
                let params = json!({ "size": to.params.get("size") });
                self.call_verb(DISK_CLASS, "resize", &to.name, &params).map(drop)
            }
            Action::IdentifyDisk { to, .. } => self.identify_disk(to),
            Action::ModifyDisk { to, .. } => self.update_disk("change disk", to),
            Action::RenameDisk { from, to } => self.rename_disk(&from.name, &to.name),
            Action::CreateGeom { geom } => self.create_geom(geom),
            Action::ModifyGeom { from, to } => self.modify_geom(from, to),
            Action::RemoveGeom { geom } => {
                let done = self.destroy(&geom.class, &geom.name);
                done.inspect(|()| self.forget_files(geom))
            }
            Action::Units { from, to } => {
                let config = Config { unit: to.clone(), ..self.config() };
                self.exports.set_thresholds(from, to).map(|()| self.exports.set_labels(&config))
            }
            Action::PortGroups { from, to } => {
                self.exports.set_port_groups(&mut self.control, from, to)
            }
            Action::CreateTarget { target } => {
                self.exports.create_target(&mut self.control, target)
            }
            Action::ModifyTarget { from, to } => {
                self.exports.modify_target(&mut self.control, from, to)
            }
            Action::RemoveTarget { target } => {
                self.exports.remove_target(&mut self.control, target)
            }
            Action::Renew { of } => self.renew(of),
            Action::CreateAccess { .. }
            | Action::ModifyAccess { .. }
            | Action::RemoveAccess { .. }
            | Action::Regroup { .. } => {
                self.groups(action).map(|left| outcome.deferred.extend(left))
            }
        }?;
        self.reattach.completed(action);
        let removed = match action {
            Action::RemoveDisk { disk } => Some(disk.name.as_str()),
            _ => None,
        };
        self.exports.drop_former(&self.control.topology, removed);
        self.clean_closed();
        let mut published = self.published.lock();
        published.record(action);
        published.portals = self.exports.portals();
        published.refused = self.exports.refused_luns();
        drop(published);
        self.reopen_units();
        self.store_names();
        Ok(outcome)
    }

    fn class(&self, class: &str, op: &str) -> Result<Arc<dyn Class>> {
        let found = self.control.topology.class(class);
        found.ok_or_else(|| Error::new(Kind::NotFound, op, "no such class").at(class))
    }

    fn create_geom(&mut self, geom: &GeomConfig) -> Result<()> {
        let (mut members, max_wait) = (Vec::new(), self.exports.wait_limit());
        for name in geom.provider_names() {
            let found = startup_wait::find_provider(&mut self.control, &self.cam, name, max_wait);
            if found.is_none() && self.exports.may_wait(&self.control.topology, name) {
                self.wait_for_provider(geom, name);
                return Ok(());
            }
            members.push(self.provider(name, "create geom")?);
        }
        let params = Value::Object(geom.params.clone());
        let class = self.class(&geom.class, "create geom")?;
        let lacks = startup_wait::missing_provider(
            &mut self.control,
            &self.cam,
            class.as_ref(),
            &params,
            max_wait,
        );
        if let Some(disk) = lacks.filter(|_| self.exports.is_starting()) {
            self.wait_for_provider(geom, &disk);
            return Ok(());
        }
        let layout = self.layout_of(geom);
        let scrambles = self.layout_conflict(geom);
        if let Some(why) = scrambles
            .or_else(|| self.overwritten_data(geom))
            .or_else(|| self.replacement_conflict(geom))
            .filter(|_| !self.consent.contains(&geom.name))
        {
            let next = format!(
                "Restore its former section; or run `ashlar apply --yes-destroy {}` if its data \
                 may be lost.",
                shell_word(&geom.name)
            );
            return Err(Error::new(Kind::WouldDestroy, "create geom", why)
                .at(&geom.name)
                .next(next));
        }
        let files = Files::of_fs(geom);
        self.create(&geom.class, &geom.name, &members, &params)?;
        self.keep_files(geom, files);
        if let Some(layout) = layout {
            self.layouts.record(&mut self.control, (&geom.class, &geom.name), layout);
        }
        self.keep_members(geom);
        Ok(())
    }

    fn create(
        &mut self,
        class: &str,
        name: &str,
        members: &[ProviderId],
        params: &Value,
    ) -> Result<()> {
        let op = format!("create {class}");
        let found = self.class(class, &op)?;
        let request = Create { name, members, params };
        let consent = self.consent.clone();
        found.declare(&mut self.control, &request, &consent).map_err(|e| {
            let error = from_geom(&op, name, e);
            match error.kind {
                // A plan requests consent by the name of the object that it makes.
                Kind::WouldDestroy => error.next(next_with_consent(name)),
                _ => error,
            }
        })
    }

    fn provider(&self, name: &str, op: &str) -> Result<ProviderId> {
        find_persistent(&self.control.topology, op, name)
    }

    fn destroy(&mut self, class: &str, name: &str) -> Result<()> {
        let op = format!("remove {class}");
        let found = self.class(class, &op)?;
        let Some(geom) = self.control.topology.find_geom(class, name) else {
            // It was removed before: a lost disk. There is nothing left to remove.
            return Ok(());
        };
        // A class that is looking at it has it open for a moment. What hangs is found by `destroy`.
        let _ = self.control.settle();
        if !self.control.topology.geom_is_open(geom) {
            self.clean_records(|_, show| show == geom);
        }
        self.control.call(|t| found.destroy(t, geom, false)).map_err(|e| from_geom(&op, name, e))
    }

    fn groups(&mut self, action: &Action) -> Result<Vec<Deferred>> {
        if let Action::ModifyAccess { from, to } = action
            && from.differs_in_luns_only(to)
        {
            return self.luns(from, to);
        }
        let mut after = self.config();
        if let Action::CreateAccess { access } = action {
            // One that could not be made is in the configuration still.
            after.access.retain(|a| !a.same_group(access));
        }
        action.apply_to(&mut after);
        let name = match action {
            Action::CreateAccess { access } | Action::RemoveAccess { access } => &access.target,
            Action::ModifyAccess { to, .. } => &to.target,
            Action::Regroup { target, .. } => target,
            _ => return Ok(Vec::new()),
        };
        let Some(target) = after.target(name) else {
            let why = "no such target";
            return Err(Error::new(Kind::NotFound, "set access group", why).at(name));
        };
        let target = target.clone();
        let made: Vec<AccessConfig> = action.groups().cloned().collect();
        let left = self.exports.set_groups(&mut self.control, &target, &after, &made)?;
        buses::rescan_target(self, &target);
        Ok(left)
    }

    /// Some LUNs of a group change; the others are not touched.
    fn luns(&mut self, from: &AccessConfig, to: &AccessConfig) -> Result<Vec<Deferred>> {
        let published = self.published.clone();
        let published = published.lock();
        let Some(target) = published.config.target(&to.target).cloned() else {
            let why = "no such target";
            return Err(Error::new(Kind::NotFound, "set access group", why).at(&to.target));
        };
        let changes: Vec<(u64, Option<LunConfig>)> = from.lun_changes(to).collect();
        let news = changes.iter().filter_map(|(_, lun)| Some(lun.as_ref()?.provider.as_str()));
        let news: BTreeSet<&str> = news.collect();
        let here = published.config.access.iter().filter(|a| a.target == to.target);
        let groups = here.map(|a| match a.same_group(to) {
            true => to,
            false => a,
        });
        let wanted =
            units_of(groups, (&published.config.unit, &published.config.disk), Some(&news));
        // Questions are answered while disks open.
        drop(published);
        let exports = &mut self.exports;
        let left = exports.change_luns(&mut self.control, &target, to, &changes, &wanted)?;
        buses::rescan_target(self, &target);
        Ok(left)
    }

    /// A verb of a class. The word that names the object (`on=`, `geom=` ...) is taken out of the
    /// parameters. `insert` and `remove` are the graph's own, for any class that is one layer.
    fn verb(&mut self, class: &str, verb: &str, params: &Value) -> Result<Value> {
        if let Some(own) = verbs::find(class, verb) {
            return (own.run)(self, &format!("{class} {verb}"), params);
        }
        if let Some(unknown) = self.unknown_verb(class, verb) {
            return Err(unknown);
        }
        let mut params = params.as_object().cloned().unwrap_or_default();
        let own = |verb| self.has_verb(class, verb);
        if verb == "insert" && !own("insert") {
            let name = params.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
            let done = insert_layer::insert(&mut self.control, class, params)?;
            self.note(Level::Info, &name, format!("{class} inserted"));
            return Ok(done);
        }
        let mut keys = ["on", "geom", "provider", "name"].into_iter();
        let on = keys.find_map(|k| params.get(k)?.is_string().then(|| params.remove(k))?);
        let on = on.as_ref().and_then(Value::as_str).unwrap_or("").to_owned();
        let names = params.get("names").and_then(Value::as_array).cloned().unwrap_or_default();
        let no_commit = params.get("no_commit") == Some(&Value::Bool(true));
        let flags = params.get("flags").and_then(Value::as_str);
        let waits = match class == "part" && is_kept_in_memory(no_commit, flags) {
            true => " (not written yet)",
            false => "",
        };
        let done = match verb {
            "remove" if !own("remove") => insert_layer::remove(&mut self.control, class, &on)?,
            "status" | "list" if !own(verb) => {
                let found = self.class(class, &format!("{class} {verb}"))?;
                return listing::answer(&self.control, found.name(), verb, &params);
            }
            _ => self.call_verb(class, verb, &on, &Value::Object(params))?,
        };
        let message = done.get("message").and_then(Value::as_str);
        let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        let on = if on.is_empty() { names.join(", ") } else { on };
        match (class, verb, message) {
            // A question.
            ("part", "backup" | "show", _) => {}
            // A verb with a text to read is a question too, and so is one that is unfinished.
            _ if done.get("text").is_some() || done.get("unfinished").is_some() => {}
            ("part" | fileserver::FS_CLASS, _, Some(message)) => {
                let message = message.lines().collect::<Vec<_>>().join(", ");
                self.note(Level::Info, &on, format!("{class} {verb}: {message}{waits}"));
            }
            _ => self.note(Level::Info, &on, format!("{class} {verb}")),
        }
        Ok(done)
    }

    /// Whether a class has a verb of its own by that name.
    fn has_verb(&self, class: &str, verb: &str) -> bool {
        let class = self.control.topology.class(class);
        class.is_some_and(|c| c.verbs().iter().any(|v| v.name == verb))
    }

    /// The error for a verb that does not exist, of a class whose verbs are all the daemon's own.
    fn unknown_verb(&self, class: &str, verb: &str) -> Option<Error> {
        let (known, found) = (verbs::names(class), self.control.topology.class(class));
        let is_listing = found.is_some() && ["status", "list"].contains(&verb);
        let has_verbs = found.is_some_and(|class| !class.verbs().is_empty());
        if known.is_empty() || is_listing || has_verbs {
            return None;
        }
        let next = format!("Verbs of {class}: {}.", known.join(", "));
        Some(Error::new(Kind::UnknownVerb, class, "no such verb").at(verb).next(next))
    }

    pub(crate) fn call_verb(
        &mut self,
        class: &str,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value> {
        let op = format!("{class} {verb}");
        let found = self.class(class, &op)?;
        let spec = found.verbs().iter().find(|spec| spec.name == verb);
        if let Some(lacks) = spec.and_then(|spec| spec.missing_words(class, on, params)) {
            return Err(Error::new(Kind::Usage, &op, lacks));
        }
        if (class, verb) == (DISK_CLASS, "resize")
            && let Some(bytes) = params.get("size").and_then(Value::as_u64)
        {
            self.may_grow(on, bytes)?;
        }
        let done = self.call_guarded(&found, verb, on, params);
        self.control.settle().map_err(|e| from_geom(&op, on, e))?;
        self.clean_closed();
        if done.is_ok() {
            self.keep_more_members(class, on);
        }
        if (class, verb) == (DISK_CLASS, "resize") {
            self.reattach.record_identity(&self.control.topology, on);
        }
        done.map_err(|e| from_geom(&op, on, e))
    }
}

fn daemon_notes(from: &DaemonConfig, to: &DaemonConfig) -> Vec<String> {
    if !from.needs_restart(to) {
        return Vec::new();
    }
    vec!["settings of [daemon] take effect at the next start, except those of metrics".to_owned()]
}
