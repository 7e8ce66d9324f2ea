//! Waits for files that a change or a stop has closed: close(2) hangs while a network file system
//! does not answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Daemon;

/// How long a change waits for the files that it has closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// The report of a file that is not closed in time.
fn still_open(path: &Path) -> String {
    let (path, most) = (path.display(), CLOSE_LIMIT.as_secs());
    format!(
        "{path}: is still being closed ({most} s, the limit): it stays open and locked until its \
         file system answers; `findmnt` lists file systems, `dmesg` shows errors"
    )
}

impl Daemon {
    /// Waits for the files that the last change has closed. Reports those that hang, and answers
    /// the reports.
    pub(super) fn wait_closed(&self) -> Vec<String> {
        let report = |path: PathBuf| {
            let text = still_open(&path);
            (self.warn)("daemon", text.clone());
            text
        };
        reactor::wait_closed(CLOSE_LIMIT).into_iter().map(report).collect()
    }
}

/// The same at a stop, which reports them in the log.
pub(super) fn wait_at_stop() {
    for path in reactor::wait_closed(CLOSE_LIMIT) {
        tracing::warn!(target: "ashlar", "{}", still_open(&path));
    }
}
