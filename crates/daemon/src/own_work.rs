//! Work that the control thread does by itself, such as a geom whose disk has returned. A change
//! that waits too long for its end is refused with its name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bio::sync::Mutex;
use mgmt::api::{Error, Kind};

struct CurrentWork {
    /// In the words of a plan.
    what: String,
    since: Instant,
}

/// See the module. Clones are handles of one place.
#[derive(Clone, Default)]
pub struct OwnWork(Arc<Mutex<Option<CurrentWork>>>);

/// Work under way, until it is dropped.
pub struct OwnWorkGuard(OwnWork);

impl OwnWork {
    /// The control thread begins this.
    pub fn begin(&self, what: String) -> OwnWorkGuard {
        *self.0.lock() = Some(CurrentWork { what, since: Instant::now() });
        OwnWorkGuard(self.clone())
    }

    /// The refusal of a change that has waited so long.
    pub fn refusal(&self, limit: Duration) -> Error {
        let doing = match &*self.0.lock() {
            Some(work) => format!("`{}` for {} s", work.what, work.since.elapsed().as_secs()),
            None => "work of its own".to_owned(),
        };
        let most = limit.as_secs();
        let why = format!("busy: the daemon does {doing} by itself (waited {most} s, the limit)");
        let next = "`ashlar status` lists disks that do not answer; repeat the command later.";
        Error::new(Kind::Busy, "change", why).at("daemon").next(next)
    }
}

impl Drop for OwnWorkGuard {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_the_work_until_it_has_ended() {
        let work = OwnWork::default();
        let begun = work.begin("create geom m (mirror)".to_owned());
        let refused = work.refusal(Duration::ZERO);
        assert_eq!(refused.kind, Kind::Busy);
        let named = "busy: the daemon does `create geom m (mirror)` for";
        assert!(refused.source.contains(named), "{refused}");
        assert!(refused.source.contains("(waited 0 s, the limit)"), "{refused}");
        drop(begun);
        assert!(!work.refusal(Duration::ZERO).source.contains("mirror"));
    }
}
