//! Physical paths of the disks of a bus, as its enclosures report them.
//!
//! Invariants
//!  W1  A place is known only from an enclosure's last report. A disk that no enclosure names any
//!      more has no place, but nothing is removed while an enclosure cannot be read.
//!  W2  The layers above are notified once of each place that changed, and of no other place.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use geom::{Core, Event as GeomEvent, deadline};

use super::{Bus, KnownDevice};
use crate::address::Path;
use crate::events::Event;
use crate::periph::{Facts, ses};
use crate::unit::Unit;

/// The attribute of a provider with the place of its disk.
pub const PHYSPATH: &str = "GEOM::physpath";

/// How long enclosures are read after a scan, ns; later answers are ignored.
const PLACES_NS: u64 = 10_000_000_000;

impl Bus {
    /// The SAS address of a target's port, from the HBA or from the disk itself.
    pub(crate) fn sas_of(&self, path: Path, facts: &Facts) -> Option<u64> {
        let own_sas = match facts {
            Facts::Scsi(f) => u64::from_str_radix(&f.names.port, 16).ok(),
            _ => None,
        };
        self.sim().address(path.target).or(own_sas).filter(|sas| path.lun == 0 && *sas != 0)
    }

    /// Reads the enclosures, after a scan.
    pub(super) async fn read_enclosures(self: &Arc<Bus>, core: &Rc<Core>) {
        let is_ses = |k: &&KnownDevice| k.facts.role() == Some("ses");
        let shelf = |k: &KnownDevice| (k.unit.clone(), k.facts.clone());
        let shelves: Vec<(Arc<Unit>, Facts)> =
            self.known.lock().values().filter(is_ses).map(shelf).collect();
        let mut physpaths = BTreeMap::new();
        let mut complete = true;
        let read = async {
            for (unit, facts) in &shelves {
                match ses::read(unit, facts, core).await {
                    // The first that names a device has it.
                    Ok(shelf) => shelf.paths().for_each(|(sas, path)| {
                        physpaths.entry(sas).or_insert(path);
                    }),
                    Err(_) => complete = false,
                }
            }
        };
        let in_time = deadline(core, PLACES_NS, read).await.is_some();
        self.set_physpaths(&physpaths, complete && in_time);
    }

    /// W1, W2
    fn set_physpaths(&self, physpaths: &BTreeMap<u64, String>, complete: bool) {
        let mut moved = Vec::new();
        for (path, known) in &*self.known.lock() {
            let sas = self.sas_of(*path, &known.facts).filter(|_| known.facts.role().is_none());
            let place = sas.and_then(|sas| physpaths.get(&sas)).cloned();
            if (place.is_some() || complete) && known.unit.set_physpath(place) {
                moved.push((*path, known.provider.as_ref().map(|(provider, _)| *provider)));
            }
        }
        for (path, provider) in moved {
            self.log_event(path, Event::AdvInfoChanged);
            if let Some(provider) = provider {
                self.inbox.post(GeomEvent::Attr(provider, PHYSPATH));
            }
        }
    }
}
