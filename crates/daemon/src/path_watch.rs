//! Examination of the paths of disks on threads of its own, because a path may hang.
//!
//! The control thread sets the examined paths and reads the last results. Each path is
//! examined once a second, and at once when its folder changes. A path that hangs keeps one thread
//! busy, and another thread takes the other paths; a stop waits for none of them.
//!
//! ```text
//!   control thread --paths--> schedule <--next, result-- threads --stat, open--> file systems
//!        ^                     |    ^--changed names-- inotify
//!        +------- wakes -------+
//! ```

mod folders;
mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bio::sync::{Condvar, Mutex};
use geom::Inbox;

use folders::Folders;
use schedule::{Examined, INTERVAL_NS, Schedule};

pub use schedule::{Finding, WatchedPath};

/// Threads at once: so many paths may hang while others are examined.
const THREADS_MAX: usize = 16;

/// Examines paths.
pub trait Prober: Send + Sync {
    /// Examines a path. Blocks while it hangs.
    fn probe(&self, watched: &WatchedPath) -> Examined;
}

/// The paths of this machine.
struct SystemProber;

impl Prober for SystemProber {
    fn probe(&self, watched: &WatchedPath) -> Examined {
        match &watched.open {
            Some(open) => Examined::Open(open.upgrade().is_some_and(|open| open.examine())),
            // It is opened, too: a server that answers the one may not answer the other.
            None => Examined::Missing(match bio::open_image(&watched.path) {
                Ok((_, facts)) if facts.is_file() => Finding::File(facts.len()),
                Ok(_) => Finding::Device,
                Err(e) => Finding::Absent(e.to_string()),
            }),
        }
    }
}

#[derive(Default)]
struct WatchState {
    schedule: Schedule,
    threads: usize,
    /// Threads that wait for an examination that is due.
    idle: usize,
    is_notified: bool,
    has_news: bool,
    is_stopped: bool,
}

struct Inner {
    state: Mutex<WatchState>,
    /// An examination may be due.
    due: Condvar,
    /// No examination is due any more.
    done: Condvar,
    prober: Box<dyn Prober>,
    folders: Option<Folders>,
    inbox: Arc<Inbox>,
    clock: fn() -> u64,
}

/// See the module. Clones are handles of one watch.
#[derive(Clone)]
pub struct PathWatch(Arc<Inner>);

impl PathWatch {
    /// A watch that wakes the control thread through `inbox`.
    pub fn new(inbox: Arc<Inbox>) -> PathWatch {
        let prober = Box::new(SystemProber);
        PathWatch::of(prober, Folders::new(), inbox, reactor::monotonic_ns)
    }

    fn of(
        prober: Box<dyn Prober>,
        folders: Option<Folders>,
        inbox: Arc<Inbox>,
        clock: fn() -> u64,
    ) -> PathWatch {
        let (due, done) = (Condvar::new(), Condvar::new());
        let state = Mutex::default();
        PathWatch(Arc::new(Inner { state, due, done, prober, folders, inbox, clock }))
    }

    /// Examines these paths, by name of the disk, and no others.
    pub fn watch(&self, wanted: BTreeMap<String, WatchedPath>) {
        let now = (self.0.clock)();
        let unused = self.0.state.lock().schedule.replace(wanted, now);
        if let Some(folders) = &self.0.folders {
            unused.into_iter().for_each(|folder| folders.remove(folder));
        }
        self.start_threads(now);
    }

    /// Examines the path of one more disk.
    pub fn add(&self, name: &str, watched: WatchedPath) {
        let now = (self.0.clock)();
        self.0.state.lock().schedule.add(name.to_owned(), watched, now);
        self.start_threads(now);
    }

    /// Starts the first thread, or a further one while paths hang. One that cannot be started now
    /// is started when this is called again.
    fn start_threads(&self, now: u64) {
        let mut state = self.0.state.lock();
        self.0.due.notify_all();
        let is_needed = match state.threads {
            0 => state.schedule.next_ns().is_some(),
            threads => threads < THREADS_MAX && state.schedule.lacks_thread(now),
        };
        if state.is_stopped || !is_needed {
            return;
        }
        let inner = self.0.clone();
        let thread = std::thread::Builder::new().name("ashlar-paths".into());
        state.threads += usize::from(thread.spawn(move || examine(&inner)).is_ok());
        if !state.is_notified && self.0.folders.is_some() {
            let inner = self.0.clone();
            let thread = std::thread::Builder::new().name("ashlar-folders".into());
            state.is_notified = thread.spawn(move || follow_folders(&inner)).is_ok();
        }
    }

    /// Whether there are new results since [`PathWatch::take_news`].
    pub fn has_news(&self) -> bool {
        self.0.state.lock().has_news
    }

    /// The news are read now.
    pub fn take_news(&self) {
        self.0.state.lock().has_news = false;
    }

    /// The last findings, by name of the disk: see [`Finding`].
    pub fn findings(&self) -> BTreeMap<String, Finding> {
        self.0.state.lock().schedule.findings((self.0.clock)())
    }

    /// Examines all paths now and waits for that, so long at most. Does not wait for paths that
    /// hang already.
    pub fn refresh(&self, limit: Duration) {
        let mut state = self.0.state.lock();
        let goals = state.schedule.hasten_all((self.0.clock)());
        self.0.due.notify_all();
        let is_behind = |state: &mut WatchState| {
            !state.is_stopped && goals.iter().any(|goal| !state.schedule.is_reached(goal))
        };
        drop(self.0.done.wait_timeout_while(state, limit, is_behind));
    }

    /// Ends the threads, without waiting for them.
    pub fn stop(&self) {
        self.0.state.lock().is_stopped = true;
        self.0.due.notify_all();
        self.0.done.notify_all();
    }
}

/// A thread: one examination after the other. A further thread ends when another one is idle.
fn examine(inner: &Inner) {
    let mut state = inner.state.lock();
    loop {
        let now = (inner.clock)();
        let task = if state.is_stopped { None } else { state.schedule.begin(now) };
        let Some(task) = task else {
            if state.is_stopped || state.idle > 0 {
                state.threads -= 1;
                return;
            }
            inner.done.notify_all();
            let pause = state.schedule.next_ns().map_or(INTERVAL_NS, |at| at.saturating_sub(now));
            state.idle += 1;
            state = inner.due.wait_timeout(state, Duration::from_nanos(pause));
            state.idle -= 1;
            continue;
        };
        drop(state);
        let examined = inner.prober.probe(&task.watched);
        let folders = inner.folders.as_ref().filter(|_| task.needs_folder);
        let folder = folders.and_then(|folders| folders.add(&task.watched.path));
        state = inner.state.lock();
        if state.schedule.end(&task, examined, folder, (inner.clock)()) {
            state.has_news = true;
            inner.inbox.wake();
        }
    }
}

/// A thread: hastens the examination of names that change.
fn follow_folders(inner: &Inner) {
    let Some(folders) = &inner.folders else { return };
    loop {
        let changes = folders.wait();
        let mut state = inner.state.lock();
        if state.is_stopped {
            return;
        }
        if !changes.is_empty() {
            state.schedule.record_changes(&changes, (inner.clock)());
            inner.due.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;
    use testkit::Folder;

    /// A wait that is over when it fails.
    const LONG: Duration = Duration::from_secs(60);

    /// Reports each path that it begins to examine. `/hangs` does not answer until it is released.
    struct FakeProber {
        begun: Mutex<Sender<String>>,
        released: Mutex<Receiver<()>>,
    }

    impl Prober for FakeProber {
        fn probe(&self, watched: &WatchedPath) -> Examined {
            let _ = self.begun.lock().send(watched.path.display().to_string());
            if watched.path == Path::new("/hangs") {
                let _ = self.released.lock().recv();
            }
            Examined::Missing(Finding::File(1))
        }
    }

    /// A watch with a clock, the paths that it begins to examine, and the release of `/hangs`.
    fn watch(clock: fn() -> u64) -> (PathWatch, Receiver<String>, Sender<()>) {
        let (begun, begins) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let prober = FakeProber { begun: Mutex::new(begun), released: Mutex::new(released) };
        (PathWatch::of(Box::new(prober), None, Arc::default(), clock), begins, release)
    }

    fn missing(paths: &[&str]) -> BTreeMap<String, WatchedPath> {
        let watched = |path: &&str| WatchedPath { path: path.into(), open: None };
        paths.iter().map(|path| (path[1..].to_owned(), watched(path))).collect()
    }

    #[test]
    fn refresh_returns_results_and_wakes_the_control_thread() {
        let (watch, _begins, _release) = watch(|| 0);
        watch.watch(missing(&["/a", "/b"]));
        watch.refresh(LONG);
        assert!(watch.has_news() && !watch.0.inbox.is_empty());
        watch.take_news();
        let found = watch.findings();
        assert!(found.len() == 2 && found.values().all(|f| *f == Finding::File(1)), "{found:?}");
        watch.refresh(LONG);
        assert!(!watch.has_news(), "the results are the same");
        watch.stop();
    }

    #[test]
    fn path_that_hangs_leaves_the_others_to_a_second_thread() {
        /// The time passes by as much as an examination may take with each look at the clock.
        fn clock() -> u64 {
            use std::sync::atomic::{AtomicU64, Ordering};
            static NOW: AtomicU64 = AtomicU64::new(0);
            NOW.fetch_add(schedule::SLOW_NS, Ordering::Relaxed)
        }
        let (watch, begins, release) = watch(clock);
        watch.watch(missing(&["/hangs"]));
        assert_eq!(begins.recv_timeout(LONG).unwrap(), "/hangs");
        let paths = missing(&["/hangs", "/other"]);
        watch.watch(paths.clone());
        watch.watch(paths);
        assert_eq!(begins.recv_timeout(LONG).unwrap(), "/other");
        // Neither a question nor a stop waits for it.
        while watch.findings().get("hangs") != Some(&Finding::Silent(true)) {}
        watch.stop();
        watch.refresh(LONG);
        assert!(watch.0.state.lock().threads > 0, "it hangs still");
        drop(release);
    }

    #[test]
    #[cfg(not(miri))]
    fn paths_of_missing_disks_are_opened_unless_that_would_block() {
        let folder = Folder::new("paths");
        let probe = |name: &str| {
            let path = folder.join(name);
            SystemProber.probe(&WatchedPath { path, open: None })
        };
        let absent = |examined| matches!(examined, Examined::Missing(Finding::Absent(_)));
        assert!(absent(probe("a.img")));
        std::fs::write(folder.join("a.img"), "12345").unwrap();
        assert_eq!(probe("a.img"), Examined::Missing(Finding::File(5)));
        let fifo = std::process::Command::new("mkfifo").arg(folder.join("fifo")).status();
        assert!(fifo.unwrap().success());
        assert!(absent(probe("fifo")));
    }
}
