//! Schedule of the examinations of paths: which one is due, under way, or does not end. It reads no
//! clock and no path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Weak;

use disks::PathState;

use super::folders::{FolderChange, FolderId};

/// Time from an examination to the next one of the same path, ns.
pub const INTERVAL_NS: u64 = 1_000_000_000;

/// The same for slow paths, at most, ns.
const INTERVAL_MAX_NS: u64 = 10_000_000_000;

/// Examinations take at most one part in so many of a thread's time; slow paths are examined more
/// seldom.
const SHARE: u64 = 50;

/// An examination that takes longer hangs: another thread takes the paths that are due, ns.
pub const SLOW_NS: u64 = 1_000_000_000;

/// After this time without a result, a path counts as one that does not answer, ns.
pub const SILENT_NS: u64 = 5_000_000_000;

/// A path to examine.
#[derive(Clone)]
pub struct WatchedPath {
    /// The path in the configuration.
    pub path: PathBuf,
    /// The state of the open disk; `None`: the disk has no medium.
    pub open: Option<Weak<PathState>>,
}

impl WatchedPath {
    fn is_same(&self, other: &WatchedPath) -> bool {
        let is_same_open = match (&self.open, &other.open) {
            (Some(own), Some(its)) => Weak::ptr_eq(own, its),
            (None, None) => true,
            _ => false,
        };
        is_same_open && self.path == other.path
    }
}

/// The object at the path of a disk without a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing that can be opened, with the reason.
    Absent(String),
    /// A file of so many bytes, which was opened.
    File(u64),
    /// A block device, which was opened.
    Device,
    /// Of any disk: the path does not answer. False: its examination could not begin, because the
    /// paths of other disks do not answer.
    Silent(bool),
}

/// The result of an examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examined {
    /// Of an open disk, whose state has the result. True: it differs from the previous one.
    Open(bool),
    /// Of a disk without a medium.
    Missing(Finding),
}

/// An examination that has begun.
pub struct Task {
    pub name: String,
    pub watched: WatchedPath,
    /// Whether the folder of the path is to be watched.
    pub needs_folder: bool,
    id: u64,
}

/// The examinations of a path that a caller waits for.
pub struct Goal {
    name: String,
    id: u64,
    rounds: u64,
}

struct Entry {
    /// Differs from that of another path of the same disk.
    id: u64,
    watched: WatchedPath,
    finding: Option<Finding>,
    /// When the next examination is due; while one is under way, when that one was.
    due_ns: u64,
    began_ns: Option<u64>,
    /// The one under way may be too old.
    again: bool,
    /// Ended examinations.
    rounds: u64,
    folder: Option<FolderId>,
}

impl Entry {
    fn has_waited(&self, now: u64, limit_ns: u64) -> bool {
        now.saturating_sub(self.began_ns.unwrap_or(self.due_ns)) >= limit_ns
    }
}

/// See the module.
#[derive(Default)]
pub struct Schedule {
    entries: BTreeMap<String, Entry>,
    /// Those that are not under way, by the time at which they are due.
    queue: BTreeSet<(u64, String)>,
    /// Watched folders of former paths.
    released: BTreeSet<FolderId>,
    last_id: u64,
}

impl Schedule {
    /// Examines these paths, by name of the disk, and no others. Returns the folders that are to be
    /// watched no more.
    pub fn replace(&mut self, wanted: BTreeMap<String, WatchedPath>, now: u64) -> Vec<FolderId> {
        let gone: Vec<String> =
            self.entries.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        for name in &gone {
            self.remove(name);
        }
        wanted.into_iter().for_each(|(name, watched)| self.add(name, watched, now));
        let used: BTreeSet<FolderId> = self.entries.values().filter_map(|e| e.folder).collect();
        std::mem::take(&mut self.released).difference(&used).copied().collect()
    }

    /// Examines a path, too; at once if it is a new one.
    pub fn add(&mut self, name: String, watched: WatchedPath, now: u64) {
        if self.entries.get(&name).is_some_and(|entry| entry.watched.is_same(&watched)) {
            return;
        }
        let former = self.remove(&name);
        let is_beside = |entry: &Entry| entry.watched.path.parent() == watched.path.parent();
        let folder = former.filter(is_beside).and_then(|entry| entry.folder);
        self.last_id += 1;
        self.queue.insert((now, name.clone()));
        let entry = Entry {
            id: self.last_id,
            watched,
            finding: None,
            due_ns: now,
            began_ns: None,
            again: false,
            rounds: 0,
            folder,
        };
        self.entries.insert(name, entry);
    }

    fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.queue.remove(&(entry.due_ns, name.to_owned()));
        self.released.extend(entry.folder);
        Some(entry)
    }

    /// Begins the next examination that is due.
    pub fn begin(&mut self, now: u64) -> Option<Task> {
        if self.next_ns()? > now {
            return None;
        }
        let (_, name) = self.queue.pop_first()?;
        let entry = self.entries.get_mut(&name)?;
        entry.began_ns = Some(now);
        let (watched, needs_folder) = (entry.watched.clone(), entry.folder.is_none());
        Some(Task { id: entry.id, name, watched, needs_folder })
    }

    /// An examination has ended. Answers whether the result is a new one. `folder`: the folder of
    /// the path, if it is watched now.
    pub fn end(
        &mut self,
        task: &Task,
        examined: Examined,
        folder: Option<FolderId>,
        now: u64,
    ) -> bool {
        let entry = self.entries.get_mut(&task.name).filter(|entry| entry.id == task.id);
        let Some(entry) = entry else {
            self.released.extend(folder);
            return false;
        };
        let took = now.saturating_sub(entry.began_ns.take().unwrap_or(now));
        let was_silent = took >= SILENT_NS;
        let pause = took.saturating_mul(SHARE).clamp(INTERVAL_NS, INTERVAL_MAX_NS);
        entry.due_ns = if std::mem::take(&mut entry.again) { now } else { now + pause };
        entry.rounds += 1;
        entry.folder = entry.folder.or(folder);
        self.queue.insert((entry.due_ns, task.name.clone()));
        let is_other = match examined {
            Examined::Open(is_other) => is_other,
            Examined::Missing(finding) => {
                let is_other = entry.finding.as_ref() != Some(&finding);
                entry.finding = Some(finding);
                is_other
            }
        };
        is_other || was_silent
    }

    /// When the next examination is due.
    pub fn next_ns(&self) -> Option<u64> {
        self.queue.first().map(|(due_ns, _)| *due_ns)
    }

    /// Whether the threads that there are do not begin the examinations that are due.
    pub fn lacks_thread(&self, now: u64) -> bool {
        self.next_ns().is_some_and(|due_ns| now >= due_ns.saturating_add(SLOW_NS))
    }

    /// Examines changed names at once.
    pub fn record_changes(&mut self, changes: &[FolderChange], now: u64) {
        let concerns = |entry: &Entry| {
            let name = entry.watched.path.file_name();
            changes.iter().any(|change| {
                let is_its = change.name.as_deref().is_none_or(|changed| Some(changed) == name);
                is_its && (change.folder.is_none() || change.folder == entry.folder)
            })
        };
        let names = self.entries.iter().filter(|(_, entry)| concerns(entry));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.hasten(name, now));
        for change in changes.iter().filter(|change| change.is_last) {
            let lost = self.entries.values_mut().filter(|entry| entry.folder == change.folder);
            lost.for_each(|entry| entry.folder = None);
            self.released.extend(change.folder);
        }
    }

    /// Examines a path at once, and once more if that is under way.
    fn hasten(&mut self, name: &str, now: u64) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.began_ns.is_some() {
            entry.again = true;
        } else if entry.due_ns > now {
            self.queue.remove(&(entry.due_ns, name.to_owned()));
            entry.due_ns = now;
            self.queue.insert((now, name.to_owned()));
        }
    }

    /// Examines all paths at once. Returns the examinations that a caller can wait for: paths that
    /// hang are left out.
    pub fn hasten_all(&mut self, now: u64) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (name, entry) in self.entries.iter().filter(|(_, e)| !e.has_waited(now, SLOW_NS)) {
            let ahead = if entry.began_ns.is_some() { 2 } else { 1 };
            goals.push(Goal { name: name.clone(), id: entry.id, rounds: entry.rounds + ahead });
        }
        goals.iter().for_each(|goal| self.hasten(&goal.name, now));
        goals
    }

    /// Whether the examinations have ended; those of a path that is examined no more have.
    pub fn is_reached(&self, goal: &Goal) -> bool {
        let entry = self.entries.get(&goal.name).filter(|entry| entry.id == goal.id);
        entry.is_none_or(|entry| entry.rounds >= goal.rounds)
    }

    /// The last findings, by name of the disk: of disks without a medium, and of paths that do not
    /// answer. A finding is left out while a later examination hangs.
    pub fn findings(&self, now: u64) -> BTreeMap<String, Finding> {
        let finding = |entry: &Entry| match entry.began_ns {
            began_ns if entry.has_waited(now, SILENT_NS) => {
                Some(Finding::Silent(began_ns.is_some()))
            }
            Some(_) if entry.has_waited(now, SLOW_NS) => None,
            _ => entry.finding.clone(),
        };
        let all = self.entries.iter();
        all.filter_map(|(name, entry)| Some((name.clone(), finding(entry)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(path: &str) -> WatchedPath {
        WatchedPath { path: path.into(), open: None }
    }

    fn schedule(names: &[&str]) -> Schedule {
        let mut schedule = Schedule::default();
        let watched = |name: &&str| (name.to_string(), missing(&format!("/images/{name}")));
        assert!(schedule.replace(names.iter().map(watched).collect(), 0).is_empty());
        schedule
    }

    fn file(bytes: u64) -> Examined {
        Examined::Missing(Finding::File(bytes))
    }

    #[test]
    fn path_that_hangs_is_silent_after_5_s_and_holds_up_no_other() {
        let mut schedule = schedule(&["a", "b"]);
        let hangs = schedule.begin(0).unwrap();
        assert_eq!(hangs.name, "a");
        assert!(!schedule.lacks_thread(SLOW_NS - 1));
        assert!(schedule.lacks_thread(SLOW_NS), "b is due and no thread takes it");
        let other = schedule.begin(SLOW_NS).unwrap();
        assert!(schedule.end(&other, file(1), None, SLOW_NS));
        assert!(schedule.begin(SLOW_NS).is_none(), "a is not begun twice");
        let b = ("b".to_owned(), Finding::File(1));
        let found = |schedule: &Schedule, now| Vec::from_iter(schedule.findings(now));
        assert_eq!(found(&schedule, SILENT_NS - 1), std::slice::from_ref(&b));
        let other = schedule.begin(SILENT_NS - 1).unwrap();
        assert!(!schedule.end(&other, file(1), None, SILENT_NS - 1), "nothing new");
        let a = |finding| ("a".to_owned(), finding);
        assert_eq!(found(&schedule, SILENT_NS), [a(Finding::Silent(true)), b.clone()]);
        assert!(schedule.end(&hangs, file(2), None, SILENT_NS));
        assert_eq!(found(&schedule, SILENT_NS), [a(Finding::File(2)), b]);
    }

    #[test]
    fn finding_is_not_used_while_a_later_examination_hangs() {
        let mut schedule = schedule(&["a"]);
        let task = schedule.begin(0).unwrap();
        schedule.end(&task, file(1), None, 0);
        schedule.begin(INTERVAL_NS).unwrap();
        assert_eq!(schedule.findings(INTERVAL_NS + SLOW_NS - 1).len(), 1);
        assert!(schedule.findings(INTERVAL_NS + SLOW_NS).is_empty());
    }

    #[test]
    fn path_that_no_thread_examines_is_reported_as_such() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.begin(0).unwrap();
        assert_eq!(schedule.findings(SILENT_NS)["b"], Finding::Silent(false));
    }

    #[test]
    fn late_result_of_a_replaced_path_is_dropped() {
        let mut schedule = schedule(&["a"]);
        let old = schedule.begin(0).unwrap();
        schedule.replace([("a".to_owned(), missing("/other"))].into(), 1);
        let new = schedule.begin(1).unwrap();
        assert!(!schedule.end(&old, file(1), None, 2));
        assert!(schedule.findings(2).is_empty());
        assert!(schedule.end(&new, file(2), None, 2));
        assert_eq!(schedule.findings(2)["a"], Finding::File(2));
    }

    #[test]
    fn changed_name_is_examined_at_once_and_its_neighbour_is_not() {
        let mut schedule = schedule(&["a", "b"]);
        for _ in 0..2 {
            let task = schedule.begin(0).unwrap();
            assert!(task.needs_folder);
            schedule.end(&task, file(1), Some(7), 0);
        }
        assert!(schedule.begin(1).is_none());
        let change = |name: &str, is_last: bool| FolderChange {
            folder: Some(7),
            name: (!is_last).then(|| name.into()),
            is_last,
        };
        schedule.record_changes(&[change("b", false)], 1);
        let task = schedule.begin(1).unwrap();
        assert!(task.name == "b" && !task.needs_folder);
        // A change during the examination: its result may be too old.
        schedule.record_changes(&[change("b", false)], 2);
        schedule.end(&task, file(1), None, 3);
        let again = schedule.begin(3).unwrap();
        schedule.end(&again, file(1), None, 3);
        assert!(schedule.begin(4).is_none());
        // The folder was removed, and another one has its path later.
        schedule.record_changes(&[change("", true)], 4);
        assert!(schedule.begin(4).unwrap().needs_folder);
    }

    #[test]
    fn folders_without_a_path_are_returned_once() {
        let mut schedule = schedule(&["a", "b"]);
        for folder in [1, 2] {
            let task = schedule.begin(0).unwrap();
            schedule.end(&task, file(1), Some(folder), 0);
        }
        let keep = || [("b".to_owned(), missing("/images/b"))].into();
        assert_eq!(schedule.replace(keep(), 1), [1]);
        assert!(schedule.replace(keep(), 2).is_empty());
    }

    #[test]
    fn folder_of_a_replaced_path_is_kept_for_a_neighbour_and_else_returned() {
        let mut schedule = schedule(&["a"]);
        let task = schedule.begin(0).unwrap();
        schedule.end(&task, file(1), Some(7), 0);
        schedule.add("a".into(), missing("/images/other"), 1);
        let task = schedule.begin(1).unwrap();
        assert!(!task.needs_folder, "it is the same one");
        schedule.end(&task, file(1), None, 1);
        schedule.add("a".into(), missing("/elsewhere/a"), 2);
        let late = schedule.begin(2).unwrap();
        assert!(late.needs_folder);
        let last = || missing("/third/a");
        schedule.add("a".into(), last(), 3);
        schedule.end(&late, file(1), Some(8), 3);
        assert_eq!(schedule.replace([("a".to_owned(), last())].into(), 4), [7, 8]);
        assert!(schedule.replace([("a".to_owned(), last())].into(), 5).is_empty());
    }

    #[test]
    fn caller_waits_for_an_examination_that_begins_after_its_question() {
        let mut schedule = schedule(&["a", "b"]);
        let hangs = schedule.begin(0).unwrap();
        let under_way = schedule.begin(SLOW_NS).unwrap();
        let goals = schedule.hasten_all(SLOW_NS);
        assert_eq!(goals.len(), 1, "a hangs: {}", hangs.name);
        schedule.end(&under_way, file(1), None, SLOW_NS);
        assert!(!schedule.is_reached(&goals[0]));
        let next = schedule.begin(SLOW_NS).unwrap();
        schedule.end(&next, file(1), None, SLOW_NS);
        assert!(schedule.is_reached(&goals[0]));
    }
}
