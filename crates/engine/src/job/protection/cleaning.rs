//! Removal of marks from idle regions, so that a restart repairs only regions with recent writes.
//!
//! ```text
//!   write --> mark (durable) --> ... rests for IDLE_NS --> flush --> map without it
//! ```
//! One task looks at all marks of a unit as long as one may still be removed; the first write that
//! finds none starts it. A unit that is closed is cleaned at once ([`clean_now`]).

use std::rc::Rc;
use std::sync::{Arc, Weak};

use bio::{Flags, Op, Segs};
use geom::Core;

use super::memory;
use crate::job::Medium;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::protection::Protection;

/// A region in which nothing was written for so long, and at most twice as long, loses its mark.
pub(super) const IDLE_NS: u64 = 5_000_000_000;

impl Protection {
    /// Starts the task that removes marks, unless it runs already.
    pub(super) fn clean_when_idle(&self, medium: &Medium) {
        if self.regions.must_start_cleaner() {
            let (core, device) = (medium.core.clone(), Arc::downgrade(medium.device()));
            let reactor = medium.core.reactor().clone();
            drop(
                reactor.spawn("protection marks", async move { cleaner_task(core, device).await }),
            );
        }
    }

    /// Takes back the marks that have rested since `before` was seen. Answers those that rest now.
    async fn clean(
        &self,
        medium: &Medium,
        before: Option<&[(u64, u64)]>,
    ) -> Result<Vec<(u64, u64)>, Ending> {
        // The turn also excludes formatting (`begin_format`).
        let _map = self.regions.lock_map().await;
        let now = self.regions.idle_regions(0, 0, 0);
        let rested: Vec<_> =
            now.iter().filter(|r| before.is_none_or(|b| b.contains(r))).copied().collect();
        if rested.is_empty() {
            return Ok(now);
        }
        let buffer = memory(medium, self.layout().map().1, false).await?;
        medium.below(Op::Flush, 0, 0, Segs::new(), Flags::NONE).await?;
        let marks = self.regions.clean(&rested);
        self.save_map(medium, &marks, buffer).await?;
        Ok(now)
    }
}

/// The task of a unit.
async fn cleaner_task(core: Rc<Core>, device: Weak<Device>) {
    let mut before = Vec::new();
    loop {
        core.reactor().sleep(IDLE_NS).await;
        let Some(device) = device.upgrade() else { return };
        let Some(protection) = device.protection() else { return };
        if device.lost().is_some() {
            // A provider that returns is made ready anew.
            protection.regions.cleaner_stopped();
            return;
        }
        // Marks that cannot be removed now stay until the next look.
        let medium = Medium::standalone(&core, device.clone());
        before = protection.clean(&medium, Some(&before)).await.unwrap_or_default();
        if !protection.regions.needs_cleaner() {
            return;
        }
    }
}

/// Takes all marks back that can be, for a unit that is given back. A write that has not ended
/// keeps its own.
pub(crate) async fn clean_now(core: &Rc<Core>, device: &Arc<Device>) {
    if let Some(protection) = device.protection() {
        // A unit that cannot be cleaned is repaired at the next start.
        let _ = protection.clean(&Medium::standalone(core, device.clone()), None).await;
    }
}

/// Whether [`clean_now`] has something to do.
pub(crate) fn is_marked(device: &Device) -> bool {
    device.protection().is_some_and(|p| p.regions.is_marked())
}
