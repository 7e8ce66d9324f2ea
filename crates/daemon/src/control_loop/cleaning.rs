//! Clean records of geoms, so that the next start finds nothing to repair.

use geom::{CLEAN_RECORDS_DEADLINE, GeomId, Topology};
use mgmt::api::Level;

use super::ControlLoop;

impl ControlLoop {
    /// Writes clean records of some geoms.
    pub(super) fn clean_records(&mut self, which: impl Fn(&Topology, GeomId) -> bool) {
        for name in self.control.clean_records(CLEAN_RECORDS_DEADLINE, which) {
            let most = CLEAN_RECORDS_DEADLINE.as_secs();
            let text = format!("{name}: records are not clean after {most} s: a disk hangs");
            self.note(Level::Warn, &name, text);
        }
    }

    /// Writes clean records of geoms that a change has closed, before its answer. Geoms without
    /// records are not looked at: a start makes one change for each of its disks.
    pub(super) fn clean_closed(&mut self) {
        self.clean_records(|t, geom| !t.geom_is_open(geom));
    }
}
