//! Calls that hang while a path does not answer, each on a thread of its own with a deadline.
//!
//! Invariants
//!  C1  While a call hangs, further calls of its subject are refused without being made. Calls of
//!      other subjects on its file system are refused only when the limit of hanging calls there is
//!      reached.
//!  C2  The number of hanging calls of a subject and of a file system is bounded, and so is the
//!      number of all calls under way.
//!  C3  Calls for many items are made side by side: those that hang together take the time of one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bio::sync::Mutex;
use disks::{PathKind, path_kind};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::DiskConfig;

use crate::attach::mount_point;

/// Calls of one subject that hang; a further one is not made.
const SAME_MAX: usize = 2;

/// The same on one file system.
const FILE_SYSTEM_MAX: usize = 64;

/// Calls under way at once, of all subjects; a further one is not made.
const CALLS_MAX: usize = 256;

/// Calls that [`side_by_side`] makes at once: as many as may hang on one file system.
const SIDE_BY_SIDE_MAX: usize = FILE_SYSTEM_MAX;

/// Longest check of the files of all disks of a plan. The check of a single disk names its file.
pub const CHECKS_LIMIT: Duration = Duration::from_secs(15);

/// The files that a call waits for.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Path of a disk, or the operation and the names of its objects.
    name: String,
    /// The image file, whose file system may hang.
    file: Option<PathBuf>,
}

impl Subject {
    /// The medium of a disk.
    pub fn disk(disk: &DiskConfig) -> Subject {
        let path = disk.image();
        let name = path.map_or(disk.name.clone(), |path| path.display().to_string());
        let file = path.filter(|_| path_kind(&disk.kind) == PathKind::File).map(PathBuf::from);
        Subject { name, file }
    }

    /// All files of some objects.
    pub fn objects<'n>(op: &str, names: impl IntoIterator<Item = &'n str>) -> Subject {
        let mut name = op.to_owned();
        for object in names {
            name.push(' ');
            name.push_str(object);
        }
        Subject { name, file: None }
    }

    /// The mount point of the file system. An object that has no file is alone.
    pub fn place(&self) -> String {
        let mounted = self.file.as_deref().and_then(mount_point);
        mounted.unwrap_or_else(|| self.name.clone())
    }
}

/// A call under way.
struct UnderWay {
    subject: String,
    /// Mount point, or name of the object, once the caller has given up.
    hangs_at: Option<String>,
}

/// The calls under way.
struct Calls {
    by_id: BTreeMap<u64, UnderWay>,
    last_id: u64,
}

impl Calls {
    const fn new() -> Calls {
        Calls { by_id: BTreeMap::new(), last_id: 0 }
    }

    fn hanging(&self) -> impl Iterator<Item = (&UnderWay, &String)> {
        self.by_id.values().filter_map(|call| Some((call, call.hangs_at.as_ref()?)))
    }

    /// Begins a call. `None`: too many hang. `place` is needed only while some hang.
    fn begin(&mut self, subject: &Subject, place: impl FnOnce() -> String) -> Option<u64> {
        if self.by_id.len() >= CALLS_MAX {
            return None;
        }
        if self.hanging().next().is_some() {
            let place = place();
            let same = self.hanging().filter(|(call, _)| call.subject == subject.name);
            let beside = self.hanging().filter(|(_, at)| **at == place);
            if same.count() >= SAME_MAX || beside.count() >= FILE_SYSTEM_MAX {
                return None;
            }
        }
        self.last_id += 1;
        let call = UnderWay { subject: subject.name.clone(), hangs_at: None };
        self.by_id.insert(self.last_id, call);
        Some(self.last_id)
    }

    /// The caller has given up; the call may have ended meanwhile.
    fn give_up(&mut self, id: u64, place: String) {
        if let Some(call) = self.by_id.get_mut(&id) {
            call.hangs_at = Some(place);
        }
    }
}

static CALLS: Mutex<Calls> = Mutex::new(Calls::new());

/// One of [`CALLS`], until it is dropped.
struct Call(u64);

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.lock().by_id.remove(&self.0);
    }
}

/// The result of a call. `None`: it has not ended within `limit`, or could not be made. The call
/// continues then, and its result is dropped.
pub fn within<T: Send + 'static>(
    limit: Duration,
    subject: &Subject,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let id = CALLS.lock().begin(subject, || subject.place())?;
    let counted = Call(id);
    let (to, answer) = mpsc::sync_channel(1);
    let run = move || {
        let result = call();
        drop(counted);
        // The caller may have disconnected.
        let _ = to.send(result);
    };
    std::thread::Builder::new().name("ashlar-checks".into()).spawn(run).ok()?;
    let result = answer.recv_timeout(limit).ok();
    if result.is_none() {
        let place = subject.place();
        CALLS.lock().give_up(id, place);
    }
    result
}

/// The results of a call for each of these items, in the order of the items (C3). The deadline of
/// each call is its own.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], call: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = call(item);
            results.lock().push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..items.len().min(SIDE_BY_SIDE_MAX) {
            let thread = std::thread::Builder::new().name("ashlar-checks".into());
            // If no further thread can start, the others make its calls.
            if thread.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let mut results = results.into_inner();
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The result of a check of the files and names of an object, or the error that they do not answer.
pub fn checked_within<T: Send + 'static>(
    limit: Duration,
    (op, at): (&str, &str),
    check: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let subject = Subject::objects(op, [at]);
    within(limit, &subject, check).unwrap_or_else(|| Err(late_files(op, at, limit)))
}

/// The error for an object whose files, or the names of its listeners, do not answer.
pub fn late_files(op: &str, at: &str, limit: Duration) -> Error {
    let why = format!("its files or addresses do not answer ({limit:?}, the limit)");
    let next = "Check the file systems of the files that its section names, and the resolver: \
                `findmnt` lists file systems, `dmesg` shows errors. Then run `ashlar apply`.";
    Error::new(Kind::Timeout, op, why).at(at).next(next)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A wait that is over when it fails.
    const LONG: Duration = Duration::from_secs(60);

    fn file(path: &str) -> Subject {
        Subject { name: path.to_owned(), file: None }
    }

    #[test]
    fn call_that_hangs_is_given_up_and_others_are_made() {
        let (release, released) = channel::<()>();
        let (slow, other) = (file("/given-up/slow"), file("/given-up/other"));
        assert_eq!(within(Duration::ZERO, &slow, move || released.recv().is_err()), None);
        assert_eq!(within(LONG, &other, || 7), Some(7));
        assert_eq!(within(LONG, &slow, || 7), Some(7), "it may answer again");
        drop(release);
    }

    #[test]
    fn c1_further_call_of_a_hanging_subject_is_not_made() {
        let (release, released) = channel::<()>();
        let released = std::sync::Arc::new(Mutex::new(released));
        let slow = file("/further/slow");
        for _ in 0..SAME_MAX {
            let released = released.clone();
            let hangs = move || released.lock().recv().is_err();
            assert_eq!(within(Duration::ZERO, &slow, hangs), None);
        }
        assert_eq!(within(LONG, &slow, || 7), None, "its threads hang");
        assert_eq!(within(LONG, &file("/further/other"), || 7), Some(7));
        drop(release);
    }

    #[test]
    fn c2_file_system_that_hangs_leaves_room_for_others() {
        let mut calls = Calls::new();
        let on = |mount: &'static str| move || mount.to_owned();
        let image = |number: usize| file(&format!("/nfs/{number}"));
        for number in 0..FILE_SYSTEM_MAX {
            let id = calls.begin(&image(number), on("/nfs")).expect("there is room");
            calls.give_up(id, "/nfs".to_owned());
        }
        assert_eq!(calls.begin(&image(FILE_SYSTEM_MAX), on("/nfs")), None);
        let healthy = file("/images/a");
        let id = calls.begin(&healthy, on("/images")).expect("its file system answers");
        calls.by_id.remove(&id);
        while calls.by_id.len() < CALLS_MAX {
            calls.begin(&healthy, on("/images")).expect("none of them was given up");
        }
        assert_eq!(calls.begin(&healthy, on("/images")), None);
    }

    #[test]
    fn c3_calls_side_by_side_are_under_way_at_once_and_answer_in_order() {
        // Each call waits for the two others.
        let all_began = std::sync::Barrier::new(3);
        let doubled = side_by_side(&[1, 2, 3], |number| {
            all_began.wait();
            2 * number
        });
        assert_eq!(doubled, [2, 4, 6]);
        let many: Vec<usize> = (0..2 * SIDE_BY_SIDE_MAX + 1).collect();
        assert_eq!(side_by_side(&many, |number| *number), many);
        assert!(side_by_side(&many[..0], |number| *number).is_empty());
    }

    #[test]
    fn subjects_of_disks_are_their_paths_and_places_their_file_systems() {
        let disk = |kind: &str, path: &str| -> DiskConfig {
            let section = serde_json::json!({ "name": "d", "kind": kind, "path": path });
            serde_json::from_value(section).expect("a disk")
        };
        let image = Subject::disk(&disk("file", "/proc/a.img"));
        assert_eq!((image.name.as_str(), image.place().as_str()), ("/proc/a.img", "/proc"));
        let device = Subject::disk(&disk("blockdev", "/dev/sdx"));
        assert_eq!((device.name.as_str(), device.place().as_str()), ("/dev/sdx", "/dev/sdx"));
        let memory = serde_json::json!({ "name": "d", "kind": "memory" });
        let memory = serde_json::from_value(memory).expect("a disk");
        assert_eq!(Subject::disk(&memory).name, "d");
        assert_eq!(Subject::objects("read", ["a", "b"]).place(), "read a b");
    }

    #[test]
    fn check_whose_files_hang_is_refused_with_the_object_and_the_limit() {
        let (release, released) = channel::<()>();
        let hangs = move || {
            let _ = released.recv();
            Ok(())
        };
        let late = checked_within(Duration::ZERO, ("create target", "t"), hangs);
        drop(release);
        let late = late.expect_err("it hangs");
        assert!(late.kind == Kind::Timeout && late.at == "t", "{late}");
        assert!(late.source.contains("do not answer (0ns, the limit)"), "{late}");
        assert_eq!(checked_within(LONG, ("create target", "t"), || Ok(7)), Ok(7));
    }
}
