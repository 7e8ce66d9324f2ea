//! Check for loops through local buses: a LUN of a target must not be on a bus that shows the LUNs
//! of the same target.
//!
//! ```text
//!   target t: LUN 1 --> mirror m --> da0 --> bus loop0 --> target t     refused
//! ```
//! Even where such a chain would end (LUN 1 on the disk that is LUN 0), both ends would draw on one
//! nexus's command slots. Those of LUN 1 can take the last one that LUN 0 needs for them.
//!
//! A provider can depend on itself in another way, such as a member that is put into a mirror below
//! it. It is not refused here, because no LUN is made. Such a loop ends like unanswered commands:
//! every CCB has its deadline, and the disk is lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use cam::{CAM_CLASS, CamClass};
use drivers::bus::LocalKind;
use geom::Topology;
use mgmt::api::{Error, Kind, Result};

/// The local buses, and the targets that they reach.
pub struct CycleCheck {
    cam: Arc<CamClass>,
    local: Arc<LocalKind>,
}

impl CycleCheck {
    /// For the buses of `cam`.
    pub fn new(cam: Arc<CamClass>, local: Arc<LocalKind>) -> CycleCheck {
        CycleCheck { cam, local }
    }

    /// All buses.
    pub fn cam(&self) -> &CamClass {
        &self.cam
    }

    /// The daemon ends.
    pub fn shut_down(&self) {
        self.local.stop_watching();
    }

    /// Refuses a provider as LUN of a target on which it depends.
    pub fn refuse(
        &self,
        topology: &Topology,
        provider: &str,
        driver: &str,
        target: &str,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut left = vec![provider.to_owned()];
        while let Some(name) = left.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some(geom) = topology.find(&name).and_then(|p| topology.geom_of(p)) else {
                continue;
            };
            let below = topology.consumers_of(geom).iter().filter_map(|c| topology.below(*c));
            left.extend(below.map(|p| topology.provider_name(p).to_owned()));
            let is_cam = topology.find_geom(CAM_CLASS, &name) == Some(geom);
            let Some(bus) = is_cam.then(|| self.bus_of(&name)).flatten() else { continue };
            let Some(faces) = self.local.nexus_id(&bus) else { continue };
            if faces.driver == driver && faces.target == target {
                let why = format!(
                    "{provider} is built on {name}, a disk of the local bus {bus} of the same \
                     target (cycle)"
                );
                let next = "Export it through another target.";
                return Err(Error::new(Kind::Usage, "export", why).at(provider).next(next));
            }
            left.extend(self.local.reachable_providers(&faces));
        }
        Ok(())
    }

    /// Numbers of the buses that show the LUNs of a target.
    pub fn buses_at(&self, driver: &str, target: &str) -> Vec<u64> {
        let at = |bus: &Arc<cam::Bus>| {
            let faces = self.local.nexus_id(&bus.sim().facts().name);
            faces.is_some_and(|f| f.driver == driver && f.target == target)
        };
        self.cam.buses().iter().filter(|bus| at(bus)).map(|bus| bus.number()).collect()
    }

    fn bus_of(&self, disk: &str) -> Option<String> {
        let buses = self.cam.buses();
        let bus = buses.iter().find(|b| b.devices().iter().any(|(.., name)| name == disk))?;
        Some(bus.sim().facts().name)
    }
}
