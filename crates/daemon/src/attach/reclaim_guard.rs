//! Guard against memory-reclaim deadlock while LUNs are attached. The daemon's memory is not
//! swapped out, and the kernel does not end the daemon to free memory. The writing of other pages
//! may wait for the daemon's pages.

use std::fs;

use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{Resource, getrlimit};

/// Never chosen when memory is short.
const OOM_EXEMPT: &str = "-1000";

const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// The right to lock any memory: number of the bit in `CapEff`.
const CAP_IPC_LOCK: u32 = 14;

/// The changed settings, to be restored.
#[derive(Default)]
pub struct ReclaimGuard {
    is_active: bool,
    locked: bool,
    score: Option<String>,
}

/// A limit on locked memory would fail later allocations, so there must be none.
fn may_lock() -> bool {
    let unlimited = getrlimit(Resource::Memlock).current.is_none();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let rights = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok()).unwrap_or(0);
    unlimited || rights >> CAP_IPC_LOCK & 1 == 1
}

fn lock_memory() -> Result<(), String> {
    if !may_lock() {
        return Err("there is a limit on locked memory".to_owned());
    }
    // Pages are locked when they are used: reserved pages cost nothing.
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(all).map_err(|e| e.to_string())
}

impl ReclaimGuard {
    /// From now on; answers what could not be had, for people. Nothing when it holds already.
    pub fn hold(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        if std::mem::replace(&mut self.is_active, true) {
            return lines;
        }
        match lock_memory() {
            Ok(()) => self.locked = true,
            Err(e) => lines.push(format!(
                "memory is not locked ({e}): give the daemon CAP_IPC_LOCK or \
                 LimitMEMLOCK=infinity, or have no swap that its LUNs' users depend on"
            )),
        }
        let was = fs::read_to_string(OOM_SCORE_FILE).map(|text| text.trim().to_owned());
        match was.and_then(|was| fs::write(OOM_SCORE_FILE, OOM_EXEMPT).map(|()| was)) {
            Ok(was) => self.score = Some(was),
            Err(e) => lines.push(format!(
                "the daemon may be ended when memory is short ({e}): give it CAP_SYS_RESOURCE, or \
                 OOMScoreAdjust=-1000"
            )),
        }
        lines
    }

    /// Nothing is attached any more.
    pub fn release(&mut self) {
        self.is_active = false;
        if std::mem::take(&mut self.locked)
            && let Err(e) = munlockall()
        {
            tracing::warn!(target: "local", "memory stays locked: {e}");
        }
        if let Some(was) = self.score.take()
            && let Err(e) = fs::write(OOM_SCORE_FILE, was)
        {
            tracing::warn!(target: "local", "{OOM_SCORE_FILE} stays at {OOM_EXEMPT}: {e}");
        }
    }
}
