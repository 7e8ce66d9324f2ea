//! Resets that are carried out beside a unit's queue: of a port, of a bus, of a session.

use std::sync::Arc;

use geom::Core;

use crate::device::{ResetId, SETTLE_NS};
use crate::unit::Unit;

/// A reset of a unit that is under way: nothing is sent to the unit until this is dropped and the
/// unit has settled. Commands that returned as victims are then sent first, and lose no retry.
#[must_use = "the reset is over when this is dropped"]
pub struct UnitReset {
    unit: Arc<Unit>,
    id: Option<ResetId>,
    settle_ns: u64,
}

impl UnitReset {
    /// A reset of a unit begins, which takes no longer than `most_ns`.
    pub fn begin(unit: &Arc<Unit>, most_ns: u64, core: &Core) -> UnitReset {
        let now = core.now();
        let id = unit.with(core, |device| device.reset_begins(most_ns, now));
        UnitReset { unit: unit.clone(), id: Some(id), settle_ns: SETTLE_NS }
    }

    /// It is known to be over, and the unit to be ready.
    pub fn is_settled(mut self) {
        self.settle_ns = 0;
    }
}

impl Drop for UnitReset {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        self.unit.reset_ends(id, self.settle_ns);
    }
}
