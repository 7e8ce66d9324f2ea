//! The watch over files that are in use: a thread of its own, because a file system may hang.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bio::sync::Mutex;
use control::Stale;

use super::{File, Inner};
use crate::vault::Tell;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// File attributes that change with its content: when they differ, the content may differ.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outside {
    place: (u64, u64),
    size: u64,
    times: [i64; 4],
}

impl Outside {
    fn of(path: &str) -> Option<Outside> {
        let m = std::fs::metadata(path).ok()?;
        let times = [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()];
        Some(Outside { place: (m.dev(), m.ino()), size: m.size(), times })
    }
}

/// A file as it was read: its path, and the digest of its content.
type Key = (String, [u8; 32]);

fn key_of(file: &File) -> Key {
    (file.path.clone(), file.digest)
}

/// How it looked last, and whether its contents were others.
type Seen = HashMap<Key, (Option<Outside>, bool)>;

/// Begins to watch; false when there can be no thread.
pub(super) fn begin(inner: Weak<Mutex<Inner>>, tell: Arc<Tell>) -> bool {
    let thread = std::thread::Builder::new().name("ashlar-files".into());
    let watch = move || {
        let mut seen = Seen::new();
        loop {
            std::thread::sleep(LOOK);
            let Some(inner) = inner.upgrade() else { return };
            if !look(&inner, &mut seen, &*tell) {
                return;
            }
        }
    };
    thread.spawn(watch).is_ok()
}

/// Looks at all files once; false when there are none, and the watch is over.
fn look(inner: &Mutex<Inner>, seen: &mut Seen, tell: &Tell) -> bool {
    let all = {
        let mut inner = inner.lock();
        if inner.all.is_empty() {
            inner.is_watched = false;
            return false;
        }
        inner.all.clone()
    };
    let mut now = Seen::new();
    for file in all.values().flat_map(super::Of::all) {
        let (key, outside) = (key_of(file), Outside::of(&file.path));
        let changed = match seen.get(&key) {
            Some((before, changed)) if *before == outside => *changed,
            _ => file.has_changed(),
        };
        now.insert(key, (outside, changed));
    }
    *seen = now;
    let news = publish(inner, seen);
    for stale in news {
        let text = format!("{}; `ashlar apply` reads it again", stale.why);
        tell(&stale.of.to_string(), text);
    }
    true
}

/// Those that are in use now and have changed; answers those of which that is new.
fn publish(inner: &Mutex<Inner>, seen: &Seen) -> Vec<Stale> {
    let mut inner = inner.lock();
    let has_changed = |file: &File| seen.get(&key_of(file)).is_some_and(|(_, changed)| *changed);
    let changed: Vec<Stale> =
        inner.all.iter().filter_map(|(of, files)| files.stale(of, has_changed)).collect();
    let news = changed.iter().filter(|stale| !inner.changed.contains(stale)).cloned().collect();
    inner.changed = changed;
    news
}
