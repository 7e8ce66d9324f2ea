//! Facts of the path and the file system of an open file or block device, as last examined.
//!
//! An examination blocks while the server of a network file system does not answer. So the control
//! thread reads the stored facts, and the caller of [`PathState::examine`] is another thread.

use std::path::PathBuf;
use std::sync::Arc;

use bio::sync::Mutex;
use geom::Trouble;
use reactor::File;

use crate::kind::SpaceUsage;
use crate::place;
use crate::watch::Watch;

/// The result of one examination.
#[derive(Clone, Debug, Default)]
struct PathFacts {
    troubles: Vec<Trouble>,
    /// `None` for block devices and simulated disks.
    space: Option<SpaceUsage>,
    length: Option<u64>,
}

/// The examined object.
enum Subject {
    File(File),
    /// The node and the numbers of a block device. A descriptor would keep the device open while an
    /// examination is under way, and a disk that is made anew could not open it exclusively.
    Device(PathBuf, (u32, u32)),
}

/// See the module.
pub struct PathState {
    subject: Subject,
    watch: Arc<Watch>,
    facts: Mutex<PathFacts>,
}

impl PathState {
    /// Of a file that was just opened, which is examined at once.
    pub(crate) fn new(file: &File, watch: &Arc<Watch>) -> Arc<PathState> {
        let subject = match file.is_block_device() && file.as_fd().is_some() {
            true => Subject::Device(file.path().to_owned(), file.facts().device),
            false => Subject::File(file.local()),
        };
        let state = PathState { subject, watch: watch.clone(), facts: Mutex::default() };
        state.examine();
        Arc::new(state)
    }

    /// Examines the path and the file system, and stores the facts. Blocks while they do not
    /// answer. True: the troubles differ from the previous ones.
    pub fn examine(&self) -> bool {
        let now = match &self.subject {
            Subject::File(file) => PathFacts {
                troubles: place::file_troubles(file, self.watch.is_refusing()),
                space: space_usage(file),
                length: file.size().ok(),
            },
            Subject::Device(path, number) => PathFacts {
                troubles: place::node_trouble(path, *number).into_iter().collect(),
                ..PathFacts::default()
            },
        };
        let mut facts = self.facts.lock();
        let is_other = facts.troubles != now.troubles;
        *facts = now;
        is_other
    }

    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        self.facts.lock().troubles.clone()
    }

    pub(crate) fn space(&self) -> Option<SpaceUsage> {
        self.facts.lock().space
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.facts.lock().length
    }
}

/// Blocks of the file, and those that its file system has left for all users.
fn space_usage(file: &File) -> Option<SpaceUsage> {
    let fd = file.as_fd()?;
    let (stat, system) = (rustix::fs::fstat(fd).ok()?, rustix::fs::fstatvfs(fd).ok()?);
    let used = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    Some(SpaceUsage { used, free, is_shared: true })
}
