//! Mailbox of the control thread, for questions and changes of other threads.
//!
//! Invariants
//!  K1  Changes are carried out one at a time, in the order of the requests.
//!  K2  Questions are answered also while a change waits for its disks, or for the records of
//!      identities of disks and of layouts of geoms.
//!  K3  No thread waits for a control thread that has ended, for any reason. The waiting requests
//!      of the mailbox are dropped then, and new ones are refused.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use bio::ReadAhead;
use bio::sync::Mutex;
use disks::Medium;
use engine::lun::OpenSpec;
use geom::{Edge, Inbox};
use mgmt::Outcome;
use mgmt::api::{Error, Kind, Result, SystemState};
use mgmt::config::{BusConfig, Config, DiskConfig, GeomConfig};
use mgmt::plan::{Action, Step, bus_may_provide, owner_names};
use serde_json::Value;

use crate::exports::clashes::PredictedDisks;
use crate::images::Images;
use crate::openings::Begun;
use crate::own_work::OwnWork;
use crate::state::Detail;
use crate::traces::Names;

/// Questions and changes that may wait at once; a further one is refused.
const WAITING_MAX: usize = 1024;

/// A question: answered between any two events.
pub enum Query {
    /// The state now, with these details.
    State(Detail, SyncSender<SystemState>),
    /// Does the control thread answer?
    Ping(SyncSender<()>),
    /// Would this step succeed?
    Check(Box<Step>, PriorSteps, SyncSender<Result<()>>),
    /// Which step has a unit that could not be opened? With the disks that the steps make.
    Clash(Box<[Step]>, PredictedDisks, SyncSender<Option<(usize, Error)>>),
    /// Addresses of the open portals.
    Portals(SyncSender<BTreeSet<String>>),
    /// The configuration that has been carried out.
    Config(SyncSender<Config>),
    /// Names of connections.
    Edges(Vec<Edge>, SyncSender<Names>),
}

/// Effects of the steps ahead of a step.
#[derive(Clone, Default)]
pub struct PriorSteps {
    /// Disks and geoms that they make and that the step names, or something on them.
    pub created: HashSet<String>,
    /// They make disks or geoms at all.
    pub creates_any: bool,
    /// Buses that they make.
    pub buses: Vec<BusConfig>,
    /// Names of buses that they remove.
    pub removed_buses: Vec<String>,
    /// Class and name of the geoms that they remove.
    pub removed_geoms: Vec<(String, String)>,
    /// Class and name of geoms that they change, each with a member that it gives up.
    pub released: Vec<(String, String, String)>,
    /// Disks that they remove.
    pub removed_disks: Vec<String>,
    /// Disks and geoms that they remove and that the LUNs of the step name, or something on them.
    pub gone: HashSet<String>,
    /// Disks that they make and that can only be read.
    pub read_only: Vec<String>,
    /// Their changes of access groups, if the step makes or changes a geom.
    pub groups: Vec<Action>,
}

impl PriorSteps {
    /// The effects of the steps before a step, as far as they concern that step.
    pub fn of(current: &Step, before: &[Step]) -> PriorSteps {
        let luns = current.action.groups().flat_map(|group| group.luns.values());
        let mut named: Vec<&str> = luns.map(|lun| lun.provider.as_str()).collect();
        let removes = match &current.action {
            Action::CreateGeom { geom } => {
                named.extend(geom.provider_names());
                false
            }
            Action::ModifyGeom { to, .. } => {
                named.extend(to.provider_names());
                false
            }
            action => matches!(action, Action::RemoveDisk { .. } | Action::RemoveGeom { .. }),
        };
        let takes = matches!(current.action, Action::CreateGeom { .. } | Action::ModifyGeom { .. });
        let exports = current.action.groups().next().is_some();
        // A group may have many thousand LUNs, and a plan as many disks.
        let owners: HashSet<&str> = named.into_iter().flat_map(owner_names).collect();
        let mut prior = PriorSteps::default();
        for step in before {
            if takes {
                prior.add_releases(&step.action);
            }
            let removed = match &step.action {
                Action::RemoveDisk { disk } => Some(&disk.name),
                Action::RemoveGeom { geom } => Some(&geom.name),
                _ => None,
            };
            let concerns = |name: &&String| owners.contains(name.as_str());
            prior.gone.extend(removed.filter(|name| exports && concerns(name)).cloned());
            let made = match &step.action {
                Action::CreateDisk { disk } | Action::RenameDisk { to: disk, .. } => &disk.name,
                Action::CreateGeom { geom } => &geom.name,
                // One that changes releases the disks that are removed after it.
                Action::RemoveGeom { geom } | Action::ModifyGeom { from: geom, .. } if removes => {
                    prior.removed_geoms.push((geom.class.clone(), geom.name.clone()));
                    continue;
                }
                Action::ModifyGeom { to, .. } if to.disks().next().is_some() => &to.name,
                Action::CreateBus { bus } => {
                    prior.buses.push(bus.clone());
                    continue;
                }
                Action::RemoveBus { bus } => {
                    prior.removed_buses.push(bus.name.clone());
                    continue;
                }
                _ => continue,
            };
            prior.creates_any = true;
            // Disks of a file server have names of their own.
            if let Some(geom) = step.action.geom() {
                let disks = geom.disks().map(|(name, _)| name);
                let named = disks.filter(|disk| owners.contains(disk));
                prior.created.extend(named.map(str::to_owned));
            }
            if owners.contains(made.as_str()) {
                prior.created.insert(made.clone());
            }
        }
        prior
    }

    /// What the geom of a step may use after this action.
    fn add_releases(&mut self, action: &Action) {
        match action {
            Action::RemoveGeom { geom } => {
                self.removed_geoms.push((geom.class.clone(), geom.name.clone()));
            }
            Action::ModifyGeom { from, to } => {
                let gone = from.members.iter().filter(|member| !to.members.contains(member));
                let of = |member: &String| (from.class.clone(), from.name.clone(), member.clone());
                self.released.extend(gone.map(of));
            }
            Action::RemoveDisk { disk } => self.removed_disks.push(disk.name.clone()),
            Action::CreateDisk { disk } => {
                let is_read_only = disk.params.get("read_only") == Some(&Value::Bool(true));
                self.read_only.extend(is_read_only.then(|| disk.name.clone()));
            }
            Action::CreateAccess { .. }
            | Action::ModifyAccess { .. }
            | Action::RemoveAccess { .. }
            | Action::Regroup { .. } => self.groups.push(action.clone()),
            _ => {}
        }
    }

    /// Whether they remove the geom, which the step makes anew.
    pub fn removes_geom(&self, geom: &GeomConfig) -> bool {
        self.removed_geoms.iter().any(|(class, name)| *class == geom.class && *name == geom.name)
    }

    /// Whether they make the provider of that name, or one below it, in the place of another.
    pub fn replaces(&self, name: &str) -> bool {
        bus_may_provide(&self.buses, name)
            || owner_names(name).any(|owner| self.created.contains(owner))
    }

    /// Whether the provider of that name is not there any more then, and nothing makes another.
    pub fn takes(&self, name: &str) -> bool {
        let is_gone = owner_names(name).any(|owner| self.gone.contains(owner));
        is_gone && !self.may_provide(name)
    }

    /// Whether a provider of that name may be there then. It is one that they make, a partition of
    /// it, a disk that a bus of theirs may attach, or one found by its record (`CLASS/NAME`).
    pub fn may_provide(&self, name: &str) -> bool {
        let found = name.contains('/') && self.creates_any;
        found || self.replaces(name)
    }
}

/// A change.
pub enum Change {
    /// The configuration for initiators after the next steps, and the names that they may destroy.
    SetDesired {
        /// All of it.
        config: Box<Config>,
        /// Providers.
        lent: BTreeSet<String>,
        /// Names that were given as consent.
        consent: Vec<String>,
        /// To answer.
        to: SyncSender<()>,
    },
    /// The data that a geom's members would lose if it were made, or if it were changed from the
    /// second.
    DataLost {
        geom: Box<GeomConfig>,
        from: Option<Box<GeomConfig>>,
        /// Those of its members that are made before it.
        images: Images,
        /// An earlier step removes the geom.
        is_remade: bool,
        to: SyncSender<Option<String>>,
    },
    /// The data that these providers hold.
    DataHeld(Vec<String>, SyncSender<Option<String>>),
    /// The data that protection information of these units would overwrite, with their providers.
    LostToProtection(BTreeMap<String, OpenSpec>, SyncSender<Vec<(String, String)>>),
    /// Whether a disk may become so large, bytes.
    MayGrow(String, u64, SyncSender<Result<()>>),
    /// The file or device of each open disk.
    OpenMedia(SyncSender<Vec<(String, Medium)>>),
    /// Why a geom of the first section would not become that of the second while it is used.
    CheckModify(Box<(GeomConfig, GeomConfig)>, PriorSteps, SyncSender<Result<()>>),
    /// Geoms that verbs made belong to the configuration now.
    Adopt(Vec<GeomConfig>, SyncSender<()>),
    /// A step that could not be carried out and is wanted all the same.
    RetryLater(Box<Action>, SyncSender<()>),
    /// Begin to open a disk, for the step that makes it.
    OpenDisk(Box<DiskConfig>, SyncSender<Result<Begun>>),
    /// One step of a plan, and the files that it uses.
    CarryOut(Box<Action>, ReadAhead, SyncSender<Result<Outcome>>),
    /// A verb of a class: class, verb, parameters; and the files that it uses.
    Verb(String, String, Value, ReadAhead, SyncSender<Result<Value>>),
    /// Does the control thread take changes? This one changes nothing.
    Ready(SyncSender<()>),
    /// Stop serving.
    Stop(SyncSender<()>),
}

/// The waiting requests of the mailbox, in the order of arrival.
struct Queue<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { waiting: VecDeque::new(), closed: false }
    }
}

fn push<T>(queue: &Mutex<Queue<T>>, what: T) -> Result<()> {
    let mut queue = queue.lock();
    if queue.closed {
        return Err(stopping());
    }
    if queue.waiting.len() >= WAITING_MAX {
        let why = format!("too many requests are waiting (limit {WAITING_MAX})");
        return Err(Error::new(Kind::Limit, "ask the daemon", why));
    }
    queue.waiting.push_back(what);
    Ok(())
}

/// Closes a queue (K3): the senders of dropped requests learn that the daemon stops.
fn close<T>(queue: &Mutex<Queue<T>>) {
    let mut queue = queue.lock();
    queue.closed = true;
    let dropped = std::mem::take(&mut queue.waiting);
    drop(queue);
    drop(dropped);
}

fn stopping() -> Error {
    Error::new(Kind::Stopping, "ask the daemon", "the daemon is stopping")
}

/// The mailbox.
pub struct Mailbox {
    queries: Mutex<Queue<Query>>,
    changes: Mutex<Queue<Change>>,
    inbox: Arc<Inbox>,
    own_work: OwnWork,
}

impl Mailbox {
    /// A mailbox whose control thread sleeps on `inbox`.
    pub fn new(inbox: Arc<Inbox>) -> Mailbox {
        let (queries, changes) = (Mutex::default(), Mutex::default());
        Mailbox { queries, changes, inbox, own_work: OwnWork::default() }
    }

    /// What the control thread does without a change.
    pub fn own_work(&self) -> &OwnWork {
        &self.own_work
    }

    /// Sends a request and waits for the answer.
    pub fn query<T>(&self, question: impl FnOnce(SyncSender<T>) -> Query) -> Result<T> {
        let (tx, rx) = mpsc::sync_channel(1);
        push(&self.queries, question(tx))?;
        self.wait(rx)
    }

    /// Orders a change and waits for its end.
    pub fn submit<T>(&self, change: impl FnOnce(SyncSender<T>) -> Change) -> Result<T> {
        let (tx, rx) = mpsc::sync_channel(1);
        push(&self.changes, change(tx))?;
        self.wait(rx)
    }

    /// Waits until the control thread takes changes.
    ///
    /// # Errors
    /// [`Kind::Busy`]: work of its own has not ended within `limit`.
    pub fn wait_ready(&self, limit: Duration) -> Result<()> {
        let (tx, rx) = mpsc::sync_channel(1);
        push(&self.changes, Change::Ready(tx))?;
        self.inbox.wake();
        rx.recv_timeout(limit).map_err(|e| match e {
            RecvTimeoutError::Timeout => self.own_work.refusal(limit),
            RecvTimeoutError::Disconnected => stopping(),
        })
    }

    fn wait<T>(&self, rx: Receiver<T>) -> Result<T> {
        self.inbox.wake();
        rx.recv().map_err(|_| stopping())
    }

    /// The next question.
    pub fn next_query(&self) -> Option<Query> {
        self.queries.lock().waiting.pop_front()
    }

    /// The next change.
    pub fn next_change(&self) -> Option<Change> {
        self.changes.lock().waiting.pop_front()
    }

    /// K3.
    pub fn close(&self) {
        close(&self.queries);
        close(&self.changes);
    }

    /// Closes the mailbox when this is dropped, also where its thread panics.
    pub fn serve_guard(&self) -> ServeGuard<'_> {
        ServeGuard(self)
    }
}

/// Guard of a served mailbox: closes it when dropped.
pub struct ServeGuard<'a>(&'a Mailbox);

impl Drop for ServeGuard<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use mgmt::config::AccessConfig;
    use mgmt::plan::Risk;

    use super::*;

    fn disk(name: &str) -> DiskConfig {
        DiskConfig { name: name.into(), kind: "null".into(), params: Default::default() }
    }

    fn group(providers: &[&str]) -> Step {
        let lun = |name: &&str| serde_json::from_value(Value::from(*name)).expect("a LUN");
        let luns = (0..).zip(providers.iter().map(lun)).collect();
        let access = AccessConfig { luns, ..AccessConfig::default() };
        Step::new(Action::CreateAccess { access }, "new", Risk::Safe)
    }

    #[test]
    fn prior_steps_have_only_the_owners_of_named_luns() {
        let create = |name: &str| Action::CreateDisk { disk: disk(name) };
        let remove = |name: &str| Action::RemoveDisk { disk: disk(name) };
        let geom = Value::from_iter([("class", "mirror"), ("name", "m0")]);
        let geom: GeomConfig = serde_json::from_value(geom).expect("a geom");
        let made = [create("d1"), create("d10"), create("x"), Action::CreateGeom { geom }];
        let actions = made.into_iter().chain([remove("old"), remove("other")]);
        let before: Vec<Step> = actions.map(|a| Step::new(a, "new", Risk::Safe)).collect();
        let prior = PriorSteps::of(&group(&["d10", "d1p2", "mirror/m0", "old.nop"]), &before);
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let created: HashSet<String> = names(&["d1", "d10", "m0"]);
        let gone: HashSet<String> = names(&["old"]);
        assert_eq!((&prior.created, &prior.gone), (&created, &gone));
        for (name, may_be_there) in [("d1s1", true), ("mirror/m0", true), ("d2", false)] {
            assert_eq!(prior.may_provide(name), may_be_there, "{name}");
        }
        assert!(prior.takes("old.nop") && !prior.takes("d1") && !prior.takes("older"));
    }

    /// A wait that is over when it fails.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn change_is_refused_while_the_control_thread_does_work_of_its_own() {
        let mailbox = Mailbox::new(Arc::default());
        let working = mailbox.own_work().begin("create geom m (mirror)".to_owned());
        let refused = mailbox.wait_ready(Duration::ZERO).expect_err("none is taken");
        assert!(refused.kind == Kind::Busy && refused.source.contains("geom m"), "{refused}");
        drop(working);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| mailbox.wait_ready(LONG));
            // The receiver of the first one has gone.
            let mut taken = 0;
            while taken < 2 {
                match mailbox.next_change() {
                    Some(Change::Ready(to)) => {
                        taken += 1;
                        let _ = to.send(());
                    }
                    _ => std::thread::yield_now(),
                }
            }
            assert_eq!(waits.join().expect("no panic"), Ok(()));
        });
    }

    /// The answers to requests from threads of their own.
    fn waiting_requests(mailbox: &Arc<Mailbox>) -> [Receiver<Kind>; 2] {
        let begin = |f: fn(&Mailbox) -> Kind| {
            let (mailbox, (to, answer)) = (mailbox.clone(), mpsc::channel());
            std::thread::spawn(move || to.send(f(&mailbox)));
            answer
        };
        let question =
            |mailbox: &Mailbox| mailbox.query(|to| Query::State(Detail::All, to)).unwrap_err().kind;
        let change = |mailbox: &Mailbox| mailbox.submit(Change::Stop).unwrap_err().kind;
        [begin(question), begin(change)]
    }

    fn expect_stopping(asked: [Receiver<Kind>; 2]) {
        for answer in asked {
            assert_eq!(answer.recv_timeout(LONG), Ok(Kind::Stopping));
        }
    }

    #[test]
    fn k3_requests_to_an_ended_or_panicked_thread_do_not_wait() {
        for panics in [false, true] {
            let mailbox = Arc::new(Mailbox::new(Arc::default()));
            let before = waiting_requests(&mailbox);
            let own = mailbox.clone();
            let thread = std::thread::spawn(move || {
                let _attended = own.serve_guard();
                // One query is in progress, and a change still waits.
                let _in_hand = loop {
                    let lies = !own.changes.lock().waiting.is_empty();
                    match lies.then(|| own.next_query()).flatten() {
                        Some(question) => break question,
                        None => std::thread::yield_now(),
                    }
                };
                assert!(!panics, "as it was told");
            });
            assert_eq!(thread.join().is_err(), panics);
            expect_stopping(before);
            expect_stopping(waiting_requests(&mailbox));
        }
    }
}
