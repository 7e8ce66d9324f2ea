//! LUNs attached to this machine: which there shall be, and which there are.
//!
//! ```text
//!   WAITING --login, device--> ATTACHED --detach, no longer wanted--> gone
//!      ^  |                      |
//!      |  +--refused: again      | its sessions have ended (kicked, unit exchanged)
//!      +-------------------------+
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `worker` | the thread that attaches and detaches |
//! | `nbd`, `netlink` | by the kernel's network block device, and the conversation about it |
//! | `fuse` | by a loop device on a file that FUSE serves |
//! | `reclaim_guard` | memory of the daemon that the kernel's own depends on |
//! | `host` | tools, mounts, who uses a device |
//! | `openers` | processes that hold a device open |
//!
//! All of it on a thread of its own: the machine's tools wait for I/O, which the cores serve.
//!
//! Invariants
//!  A1  An attached LUN was granted by a group; it is detached when it is granted no longer and has
//!      no users.
//!  A2  A device that some process has open is detached only by an explicit request, or by the end
//!      of its target or of the daemon. In the last case a network block device waits for the next
//!      daemon.

mod fuse;
mod host;
mod nbd;
mod netlink;
mod openers;
mod reclaim_guard;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bio::sync::{Condvar, Mutex, MutexGuard};
use drivers::local::{By, Local};
use geom::Inbox;
use mgmt::api::{AttachedState, Error, Kind, Result};

pub use host::mount_point;
use openers::Openers;
use worker::{Attached, Worker};

/// Writes a line for people: about what, and the text; true when it is an error.
pub type LogFn = Arc<dyn Fn(&str, String, bool) + Send + Sync>;

/// A LUN of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LunKey {
    /// The target.
    pub target: String,
    /// The LUN.
    pub lun: u64,
}

impl std::fmt::Display for LunKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LUN {} of {}", self.lun, self.target)
    }
}

/// A request to the worker.
enum Job {
    Attach(LunKey, By),
    /// True: by force, even when it is in use.
    Detach(LunKey, bool),
    /// All LUNs of a target, even those in use.
    DropTarget(String),
    /// The daemon ends: what can wait for the next one is left to it.
    ShutDown,
}

type JobResult = Arc<Mutex<Option<std::result::Result<(), String>>>>;

/// Why something wanted is not there.
struct MissingLun {
    why: String,
    since: std::time::Instant,
    /// The last message to people about it.
    last_report: Option<String>,
}

#[derive(Default)]
struct AttachTable {
    jobs: Vec<(Job, JobResult)>,
    /// Requested by a verb.
    requested: BTreeMap<LunKey, By>,
    /// Detached by a verb, though the configuration wants it.
    paused: BTreeSet<LunKey>,
    attached: BTreeMap<LunKey, Attached>,
    /// Why something wanted is not there.
    missing: BTreeMap<LunKey, MissingLun>,
    /// Something may have changed.
    must_check: bool,
    is_stopping: bool,
}

/// State that the worker and its callers share.
struct WorkerState {
    local: Arc<Local>,
    table: Mutex<AttachTable>,
    wakeup: Condvar,
    inbox: Arc<Inbox>,
    log: LogFn,
}

impl WorkerState {
    fn table(&self) -> MutexGuard<'_, AttachTable> {
        self.table.lock()
    }
}

/// The handle of requesters.
pub struct Attachments {
    shared: Arc<WorkerState>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// A job under way.
pub struct Ticket(JobResult);

impl Ticket {
    /// The result; `None` while it continues.
    pub fn result(&self) -> Option<std::result::Result<(), String>> {
        self.0.lock().clone()
    }
}

impl Attachments {
    /// Starts the thread; `inbox` is nudged when a job has ended.
    pub fn start(
        local: Arc<Local>,
        inbox: Arc<Inbox>,
        tell: LogFn,
    ) -> std::io::Result<Attachments> {
        let shared = Arc::new(WorkerState {
            local,
            table: Mutex::default(),
            wakeup: Condvar::new(),
            inbox,
            log: tell,
        });
        let mut worker = Worker::new(shared.clone());
        let builder = std::thread::Builder::new().name("ashlar-local".into());
        let thread = builder.spawn(move || worker.run())?;
        Ok(Attachments { shared, thread: Some(thread) })
    }

    fn submit(&self, job: Job) -> Ticket {
        let place = JobResult::default();
        self.shared.table().jobs.push((job, place.clone()));
        self.shared.wakeup.notify_all();
        Ticket(place)
    }

    /// Makes the worker look for changes now.
    pub fn check_now(&self) {
        self.shared.table().must_check = true;
        self.shared.wakeup.notify_all();
    }

    /// Attaches a LUN until the daemon ends.
    pub fn attach(&self, key: LunKey, by: By) -> Ticket {
        self.submit(Job::Attach(key, by))
    }

    /// The daemon ends: nothing more is attached, and network block devices in use are left to the
    /// next one.
    pub fn shut_down(&self) -> Ticket {
        self.submit(Job::ShutDown)
    }

    /// Detaches a LUN that is not in use; with `force` also one that is.
    pub fn detach(&self, key: LunKey, force: bool) -> Ticket {
        self.submit(Job::Detach(key, force))
    }

    /// Detaches all LUNs of a target, even those in use.
    pub fn drop_target(&self, target: &str) -> Ticket {
        self.submit(Job::DropTarget(target.to_owned()))
    }

    /// True when something of the target is attached or shall be.
    pub fn has_target(&self, target: &str) -> bool {
        let table = self.shared.table();
        table.attached.keys().chain(table.missing.keys()).any(|k| k.target == target)
    }

    /// The attached LUNs, and the reason for each missing one.
    pub fn view(&self) -> Vec<AttachedState> {
        view(&self.shared)
    }

    /// A way to look from other threads.
    pub fn viewer(&self) -> impl Fn() -> Vec<AttachedState> + Send + use<> {
        let shared = self.shared.clone();
        move || view(&shared)
    }

    /// The LUN that `what` names: a number, a unit's name, or a device.
    pub fn find(&self, what: &str, target: Option<&str>) -> Result<LunKey> {
        let targets = self.shared.local.targets();
        let view = self.view();
        let right = |t: &str| target.is_none_or(|wanted| wanted == t);
        let is = |a: &&AttachedState| right(&a.target) && (a.device == what || a.unit == what);
        if let Some(a) = view.iter().find(is) {
            return Ok(LunKey { target: a.target.clone(), lun: a.lun });
        }
        let mut names = targets.keys().filter(|t| right(t));
        let op = "attach";
        let (Some(name), None) = (names.next(), names.next()) else {
            let all: Vec<&str> = targets.keys().map(String::as_str).collect();
            let why = match all.is_empty() {
                true => "there is no target with driver = \"local\"".to_owned(),
                false => format!("which target: {}?", all.join(", ")),
            };
            let next = "Configure `[[target]]` with driver = \"local\" and a name, and an \
                        `[[access]]` that names it; with several, add target=NAME.";
            return Err(Error::new(Kind::NotFound, op, why).at(what).next(next));
        };
        if let Ok(lun) = what.parse() {
            return Ok(LunKey { target: name.clone(), lun });
        }
        match self.shared.local.find_unit(name, what) {
            Some(lun) => Ok(LunKey { target: name.clone(), lun }),
            None => {
                let why = format!("no LUN that {name} may have is called so");
                let next = "Give the LUN's number; `ashlar list luns` shows names and numbers.";
                Err(Error::new(Kind::NotFound, op, why).at(what).next(next))
            }
        }
    }
}

fn view(shared: &WorkerState) -> Vec<AttachedState> {
    let any = !shared.table().attached.is_empty();
    let openers = if any { Openers::scan_quickly() } else { Openers::default() };
    let table = shared.table();
    let states = table.attached.iter().map(|(k, a)| a.state(k, &openers));
    let mut out: Vec<AttachedState> = states.collect();
    out.extend(table.missing.iter().filter(|(k, _)| !table.attached.contains_key(k)).map(
        |(k, why)| AttachedState {
            target: k.target.clone(),
            lun: k.lun,
            why: why.why.clone(),
            ..AttachedState::default()
        },
    ));
    out.sort_by(|a, b| (&a.target, a.lun).cmp(&(&b.target, b.lun)));
    out
}

impl Drop for Attachments {
    fn drop(&mut self) {
        self.shared.table().is_stopping = true;
        self.shared.wakeup.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of attached LUNs panicked");
        }
    }
}
