//! Clean records: the state that geoms write to disk before a stop or their removal.

use std::time::Duration;

use crate::control::GraphControl;
use crate::topology::{GeomId, Topology};

/// Longest wait for clean records at a stop, or before a geom is removed.
pub const CLEAN_RECORDS_DEADLINE: Duration = Duration::from_secs(10);

impl GraphControl {
    /// Requests clean records of the geoms that keep records and that `which` selects
    /// ([`crate::Geom::clean_records`]), and waits until all have them. Returns the names of those
    /// that had none at the deadline.
    pub fn clean_records(
        &mut self,
        most: Duration,
        which: impl Fn(&Topology, GeomId) -> bool,
    ) -> Vec<String> {
        let end = self.now_ns().saturating_add(most.as_nanos() as u64);
        let mut calm = 0;
        loop {
            let t = &mut self.topology;
            let mut geoms: Vec<GeomId> = t.record_keepers().filter(|g| which(t, *g)).collect();
            // A geom that was removed or is changing has no answer.
            geoms
                .retain(|geom| t.with_geom(*geom, |g, t| g.clean_records(t, *geom)) == Some(false));
            // A record of one geom is a write to the geom below it, which may have had its request
            // before. Two calm rounds in a row show that no such write was under way.
            calm = if geoms.is_empty() { calm + 1 } else { 0 };
            if calm == 2 {
                return Vec::new();
            }
            if self.now_ns() >= end {
                let name = |geom: &GeomId| self.topology.geom_name(*geom).to_owned();
                return geoms.iter().map(name).collect();
            }
            self.wait_until(Duration::from_millis(if calm == 0 { 5 } else { 0 }), |_| false);
        }
    }
}
