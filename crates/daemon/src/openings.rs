//! Disks that are being opened, each on a thread of its own: opening blocks while a medium hangs.
//!
//! ```text
//!   begin --> under way --ends--> result --taken by the control thread--> in the graph
//!                 \--abandoned----------> discarded on its thread when it ends
//! ```
//!
//! Invariants
//!  O1  The control thread waits for no opening: it begins one, and takes a result that is there.
//!  O2  A disk has at most one opening of the same section at a time.
//!  O3  An opening that hangs occupies one thread. At most [`FILE_SYSTEM_MAX`] are under way on a
//!      file system, and [`THREADS_MAX`] in all.
//!  O4  A disk that nothing waits for is discarded on a thread: closed, and its file removed if its
//!      opening has made it. No disk of its name or path is opened meanwhile. No file is opened
//!      while an earlier opening of its path that nothing waits for is under way, nor while a
//!      former file of the path is being closed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bio::sync::{Condvar, Mutex};
use disks::{Arrivals, OpenedDisk, Opener};
use geom::Inbox;
use mgmt::api::{DiskState, Error, Health, Kind, Result, SystemState};
use mgmt::config::DiskConfig;
use serde_json::Value;

use crate::exports::Files;
use crate::media::FileChange;
use crate::within::Subject;

/// Openings under way on one file system; a further one is refused.
const FILE_SYSTEM_MAX: usize = 64;

/// The same in all.
const THREADS_MAX: usize = 256;

/// How often a caller that waits is informed.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait of an opening for an abandoned disk, or a file, that is being closed (O4).
const DISCARD_LIMIT: Duration = Duration::from_secs(3);

/// The operation of all errors here.
const OP: &str = "create disk";

/// Opens the medium of a disk.
pub trait DiskOpener: Send + Sync {
    /// Blocks while the medium does not answer.
    fn open_disk(&self, disk: &DiskConfig) -> std::result::Result<OpenedDisk, geom::Error>;
}

impl DiskOpener for Opener {
    fn open_disk(&self, disk: &DiskConfig) -> std::result::Result<OpenedDisk, geom::Error> {
        self.open(&disk.kind, &disk.name, &Value::Object(disk.params.clone()))
    }
}

/// The state of a disk that a step opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The disk is in the graph already.
    Present,
    /// Its opening began for this caller.
    Now,
    /// Its opening was under way, or has just ended.
    Before,
}

/// A disk that was opened, with the files of its section as they were before.
type Opened = (OpenedDisk, Files);

struct Opening {
    /// Differs from that of any other opening.
    id: u64,
    disk: DiskConfig,
    began_ns: u64,
    /// False: its caller has given up.
    is_wanted: bool,
    result: Option<Result<Opened>>,
}

#[derive(Default)]
struct OpeningTable {
    /// By name of the disk.
    openings: BTreeMap<String, Opening>,
    /// Openings under way whose places others have taken, by their numbers (O4).
    replaced: BTreeMap<u64, DiskConfig>,
    /// Disks that are being discarded, by the numbers of their openings (O4).
    discarded: BTreeMap<u64, DiskConfig>,
    threads: usize,
    last_id: u64,
    is_stopped: bool,
}

impl OpeningTable {
    fn is_under_way(&self, name: &str) -> bool {
        let opening = self.openings.get(name);
        !self.is_stopped && opening.is_some_and(|opening| opening.result.is_none())
    }

    /// O3: why no further disk can be opened where this one is.
    fn why_full(&self, disk: &DiskConfig) -> Option<String> {
        if self.threads >= THREADS_MAX {
            return Some(format!("{THREADS_MAX} disks are being opened, the most at a time"));
        }
        if self.threads < FILE_SYSTEM_MAX {
            return None;
        }
        let place = Subject::disk(disk).place();
        let opening = self.openings.values().filter(|opening| opening.result.is_none());
        let unwanted = self.replaced.values().chain(self.discarded.values());
        let all = opening.map(|opening| &opening.disk).chain(unwanted);
        let here = all.filter(|other| Subject::disk(other).place() == place).count();
        (here >= FILE_SYSTEM_MAX).then(|| {
            format!("{FILE_SYSTEM_MAX} disks of {place} are being opened, the most at a time")
        })
    }

    /// Begins to discard the disk of an opening, if it has one. The thread of an opening that is
    /// under way discards its disk later.
    fn begin_discard(&mut self, opening: Opening) -> Option<(u64, OpenedDisk)> {
        let Some(result) = opening.result else {
            self.replaced.insert(opening.id, opening.disk);
            return None;
        };
        let (opened, _) = result.ok()?;
        self.threads += 1;
        self.discarded.insert(opening.id, opening.disk);
        Some((opening.id, opened))
    }

    /// O4: whether opening number `id`, of this disk, has to wait for another one. Of two openings
    /// only the later one waits.
    fn has_to_wait(&self, disk: &DiskConfig, id: u64) -> bool {
        let path = disk.image();
        let has_path = |other: &DiskConfig| path.is_some() && other.image() == path;
        let is_same = |other: &DiskConfig| other.name == disk.name || has_path(other);
        let is_earlier = |other: &&Opening| other.id < id && other.result.is_none();
        let unwanted = self.openings.values().filter(|other| !other.is_wanted);
        self.discarded.values().any(is_same)
            || self.replaced.range(..id).any(|(_, other)| has_path(other))
            || unwanted.filter(is_earlier).any(|other| has_path(&other.disk))
    }
}

struct Inner {
    state: Mutex<OpeningTable>,
    /// An opening has ended.
    ended: Condvar,
    opener: Arc<dyn DiskOpener>,
    inbox: Arc<Inbox>,
    arrivals: Arc<Arrivals>,
    clock: fn() -> u64,
}

/// See the module. Clones are handles of one table.
#[derive(Clone)]
pub struct Openings(Arc<Inner>);

impl Openings {
    /// A table whose ends wake the control thread through `inbox`.
    pub fn new(opener: Arc<dyn DiskOpener>, inbox: Arc<Inbox>, clock: fn() -> u64) -> Openings {
        let (state, ended) = (Mutex::default(), Condvar::new());
        let arrivals = Arc::new(Arrivals::new(inbox.clone()));
        Openings(Arc::new(Inner { state, ended, opener, inbox, arrivals, clock }))
    }

    /// Receives the names of disks whose servers answer, and wakes the control thread.
    pub fn arrivals(&self) -> &Arc<Arrivals> {
        &self.0.arrivals
    }

    /// Begins to open a disk, after `check` on the same thread; `may` limits the changes to its
    /// file. An opening of the same section that is under way is used instead, and so is its disk.
    ///
    /// # Errors
    /// Too many openings hang, or there is no thread.
    pub fn begin(
        &self,
        disk: &DiskConfig,
        may: FileChange,
        check: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<Begun> {
        let mut state = self.0.state.lock();
        let is_usable = |o: &&mut Opening| o.disk == *disk && !matches!(o.result, Some(Err(_)));
        if let Some(opening) = state.openings.get_mut(&disk.name).filter(is_usable) {
            let was_wanted = std::mem::replace(&mut opening.is_wanted, true);
            return Ok(if was_wanted { Begun::Before } else { Begun::Now });
        }
        if let Some(why) = state.why_full(disk) {
            let next = "`ashlar status` lists disks that do not answer; remove them, or wait.";
            return Err(Error::new(Kind::Limit, OP, why).at(&disk.name).next(next));
        }
        let former = state.openings.remove(&disk.name);
        let former = former.and_then(|former| state.begin_discard(former));
        state.last_id += 1;
        state.threads += 1;
        let (id, began_ns) = (state.last_id, (self.0.clock)());
        let opening = Opening { id, disk: disk.clone(), began_ns, is_wanted: true, result: None };
        state.openings.insert(disk.name.clone(), opening);
        drop(state);
        // The new opening may need its file.
        Inner::discard_all(&self.0, former);
        let (inner, own) = (self.0.clone(), disk.clone());
        let thread = std::thread::Builder::new().name("ashlar-open".into());
        if let Err(e) = thread.spawn(move || inner.run(&own, id, may, check)) {
            let mut state = self.0.state.lock();
            state.threads -= 1;
            state.openings.remove(&disk.name);
            let why = format!("no thread can be started to open it: {e}");
            return Err(Error::new(Kind::System, OP, why).at(&disk.name));
        }
        Ok(Begun::Now)
    }

    /// Waits until the opening of a disk has ended, for so long at most. `report` receives the
    /// seconds waited, once a second. False: the opening is still under way.
    pub fn wait(&self, name: &str, limit: Duration, mut report: impl FnMut(u64)) -> bool {
        let mut waited = Duration::ZERO;
        loop {
            let pause = REPORT_INTERVAL.min(limit.saturating_sub(waited));
            let is_under_way = |state: &mut OpeningTable| state.is_under_way(name);
            let state = self.0.state.lock();
            let state = self.0.ended.wait_timeout_while(state, pause, is_under_way);
            let is_over = !state.is_under_way(name);
            drop(state);
            waited += pause;
            if is_over || waited >= limit {
                return is_over;
            }
            report(waited.as_secs());
        }
    }

    /// Whether the opening of a disk with this section has ended; `None`: it has none.
    pub fn has_ended(&self, disk: &DiskConfig) -> Option<bool> {
        let state = self.0.state.lock();
        let opening = state.openings.get(&disk.name).filter(|opening| opening.disk == *disk);
        opening.map(|opening| opening.result.is_some())
    }

    /// The result of an opening that has ended, once.
    pub fn take(&self, disk: &DiskConfig) -> Option<Result<Opened>> {
        if self.has_ended(disk) != Some(true) {
            return None;
        }
        self.0.state.lock().openings.remove(&disk.name)?.result
    }

    /// Nothing waits for the opening of a disk any more: its result is dropped.
    pub fn abandon(&self, name: &str) {
        let mut state = self.0.state.lock();
        let under_way = state.openings.get_mut(name).filter(|opening| opening.result.is_none());
        let unused = match under_way {
            Some(opening) => {
                opening.is_wanted = false;
                None
            }
            None => state.openings.remove(name),
        };
        let unused = unused.and_then(|opening| state.begin_discard(opening));
        drop(state);
        Inner::discard_all(&self.0, unused);
    }

    /// Whether a disk has an opening, also one that was abandoned and hangs.
    pub fn has(&self, name: &str) -> bool {
        self.0.state.lock().openings.contains_key(name)
    }

    /// Whether a disk has an opening that was not abandoned.
    pub fn is_wanted(&self, name: &str) -> bool {
        self.0.state.lock().openings.get(name).is_some_and(|opening| opening.is_wanted)
    }

    /// Ends all waits, and discards the results. Waits for no opening.
    pub fn stop(&self) {
        let mut state = self.0.state.lock();
        state.is_stopped = true;
        let all = std::mem::take(&mut state.openings).into_values();
        let unused: Vec<_> = all.filter_map(|opening| state.begin_discard(opening)).collect();
        drop(state);
        Inner::discard_all(&self.0, unused);
        self.0.ended.notify_all();
    }

    /// Adds the disks to the state whose opening takes a second or longer.
    pub fn show(&self, system: &mut SystemState) {
        let now = (self.0.clock)();
        let state = self.0.state.lock();
        let under_way = state.openings.values().filter(|o| o.is_wanted && o.result.is_none());
        for opening in under_way {
            let disk = &opening.disk;
            let seconds = now.saturating_sub(opening.began_ns) / 1_000_000_000;
            if seconds == 0 {
                continue;
            }
            let why = opening_text(seconds, None);
            if let Some(shown) = system.disks.iter_mut().find(|shown| shown.name == disk.name) {
                let before = std::mem::take(&mut shown.health_why);
                let whys = [why, before].into_iter().filter(|why| !why.is_empty());
                shown.health_why = whys.collect::<Vec<_>>().join("; ");
                continue;
            }
            system.disks.push(DiskState {
                name: disk.name.clone(),
                kind: disk.kind.clone(),
                health: Health::Degraded,
                health_why: why,
                ..DiskState::default()
            });
        }
    }
}

impl Inner {
    /// A thread: one opening.
    fn run(&self, disk: &DiskConfig, id: u64, may: FileChange, check: impl FnOnce() -> Result<()>) {
        let waits = |state: &mut OpeningTable| state.has_to_wait(disk, id);
        let state = self.ended.wait_timeout_while(self.state.lock(), DISCARD_LIMIT, waits);
        let is_taken = state.has_to_wait(disk, id);
        drop(state);
        let is_closing = |path: &Path| !reactor::is_closed_within(path, DISCARD_LIMIT);
        let is_free = match is_taken || disk.image().is_some_and(is_closing) {
            true => Err(still_closing(disk)),
            false => Ok(()),
        };
        let opened = is_free.and_then(|()| check()).and_then(|()| {
            // F1 of `exports::files`.
            let files = Files::of_disk(disk);
            let opened = self.opener.open_disk(&may.section(disk)).map(|opened| (opened, files));
            opened.map_err(|e| may.refusal(disk, e))
        });
        let mut state = self.state.lock();
        let opening = state.openings.get_mut(&disk.name).filter(|opening| opening.id == id);
        let unused = match opening {
            Some(opening) if opening.is_wanted => {
                opening.result = Some(opened);
                None
            }
            Some(_) => {
                state.openings.remove(&disk.name);
                opened.ok()
            }
            None => opened.ok(),
        };
        if let Some((opened, _)) = unused {
            state.discarded.insert(id, disk.clone());
            drop(state);
            opened.discard();
            state = self.state.lock();
            state.discarded.remove(&id);
        }
        state.replaced.remove(&id);
        state.threads -= 1;
        drop(state);
        self.ended.notify_all();
        self.inbox.wake();
    }

    /// Discards disks (O4), each on a thread of its own.
    fn discard_all(inner: &Arc<Inner>, all: impl IntoIterator<Item = (u64, OpenedDisk)>) {
        for (id, opened) in all {
            let own = inner.clone();
            let end = move |inner: &Inner| {
                let mut state = inner.state.lock();
                state.discarded.remove(&id);
                state.threads -= 1;
                drop(state);
                inner.ended.notify_all();
            };
            let thread = std::thread::Builder::new().name("ashlar-open".into());
            let run = move || {
                opened.discard();
                end(&own);
            };
            // Without a thread the disk is closed by the call, and its file stays.
            if thread.spawn(run).is_err() {
                end(inner);
            }
        }
    }
}

/// The error for a disk while another one of its name or path is being discarded.
fn still_closing(disk: &DiskConfig) -> Error {
    let path = disk.image().map(|path| format!(" {}", path.display())).unwrap_or_default();
    let most = DISCARD_LIMIT.as_secs();
    let why =
        format!("its former file{path} is still being opened or closed ({most} s, the limit)");
    let next = "Check its file system: `findmnt` lists file systems, `dmesg` shows errors. Then \
                run `ashlar apply`.";
    Error::new(Kind::Busy, OP, why).at(&disk.name).next(next)
}

/// The progress of an opening, for which its caller waits so long at most.
pub fn opening_text(seconds: u64, limit: Option<Duration>) -> String {
    let most = limit.map(|limit| format!(", at most {} s", limit.as_secs())).unwrap_or_default();
    format!("is being opened (for {seconds} s{most})")
}

#[cfg(test)]
#[path = "openings_tests.rs"]
mod tests;
