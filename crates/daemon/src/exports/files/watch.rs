//! The watch over files that are in use: a thread of its own, because a file system may hang.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bio::sync::Mutex;
use mgmt::StaleFiles;

use super::{File, TrackedFiles};
use crate::state_store::ReportFn;

/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// File attributes that change with its content: when they differ, the content may differ.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    place: (u64, u64),
    size: u64,
    times: [i64; 4],
}

impl FileStamp {
    fn of(path: &str) -> Option<FileStamp> {
        let m = std::fs::metadata(bio::named_path(path).ok()?).ok()?;
        let times = [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()];
        Some(FileStamp { place: (m.dev(), m.ino()), size: m.size(), times })
    }
}

/// A file as it was read: its key and path, and the digest of its content.
type Key = (String, String, [u8; 32]);

fn key_of(file: &File) -> Key {
    (file.key.clone(), file.path.clone(), file.digest)
}

/// How it looked last, and how it differed from the file that was read.
type FileStamps = HashMap<Key, (Option<FileStamp>, Option<String>)>;

/// Begins to watch; false when there can be no thread.
pub(super) fn begin(inner: Weak<Mutex<TrackedFiles>>, tell: Arc<ReportFn>) -> bool {
    let thread = std::thread::Builder::new().name("ashlar-files".into());
    let watch = move || {
        let mut seen = FileStamps::new();
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let Some(inner) = inner.upgrade() else { return };
            if !poll(&inner, &mut seen, &*tell) {
                return;
            }
        }
    };
    thread.spawn(watch).is_ok()
}

/// Looks at all files once; false when there are none, and the watch is over.
fn poll(inner: &Mutex<TrackedFiles>, seen: &mut FileStamps, tell: &ReportFn) -> bool {
    let all = {
        let mut inner = inner.lock();
        if inner.all.is_empty() {
            inner.is_watched = false;
            return false;
        }
        inner.all.clone()
    };
    let mut now = FileStamps::new();
    for file in all.values().flat_map(super::SectionFiles::all) {
        let (key, outside) = (key_of(file), FileStamp::of(&file.path));
        let changed = match seen.get(&key) {
            Some((before, change)) if *before == outside => change.clone(),
            _ => file.warning(),
        };
        now.insert(key, (outside, changed));
    }
    *seen = now;
    let news = publish(inner, seen);
    for stale in news {
        let text = format!("{}; what was read stays in use until `ashlar apply`", stale.why);
        tell(&stale.of.to_string(), text);
    }
    true
}

/// Those that are in use now and have changed; answers those of which that is new.
fn publish(inner: &Mutex<TrackedFiles>, seen: &FileStamps) -> Vec<StaleFiles> {
    let mut inner = inner.lock();
    let change = |file: &File| seen.get(&key_of(file)).and_then(|(_, change)| change.clone());
    let changed: Vec<StaleFiles> =
        inner.all.iter().filter_map(|(of, files)| files.stale(of, change)).collect();
    let news = changed.iter().filter(|stale| !inner.changed.contains(stale)).cloned().collect();
    inner.changed = changed;
    news
}
