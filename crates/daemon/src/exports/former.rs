//! Names that units had before their disk was renamed: returning NBD clients request them.

use engine::registry::Former;
use geom::Topology;

use super::Exports;

impl Exports {
    /// Units with a serial number that lose their names, by which clients request them.
    pub(super) fn dropped_names(&self, names: &[(String, String)]) -> Vec<(String, Former)> {
        let view = self.registry.view();
        let has_targets = |name: &str| view.targets.iter().any(|target| target.driver == name);
        if !self.drivers.iter().any(|driver| driver.has_unit_names() && has_targets(driver.name()))
        {
            return Vec::new();
        }
        let unit = |(from, to): &(String, String)| {
            let serial = self.registry.device(from)?.spec().serial.clone();
            Some((from.clone(), Former { serial, provider: to.clone() }))
        };
        names.iter().filter_map(unit).collect()
    }

    /// Passes the stored former names to the registry.
    pub(super) fn serve_former(&self) {
        self.registry.set_former(self.overrides.names().clone());
    }

    /// Former names that something else has now are not served any more, nor those of a disk that
    /// is removed.
    pub fn drop_former(&mut self, topology: &Topology, removed: Option<&str>) {
        if self.overrides.names().is_empty() {
            return;
        }
        let goes = |unit: &Former| {
            removed.is_some_and(|disk| mgmt::plan::name_depends_on(&unit.provider, disk))
        };
        if self.overrides.forget_names(|name, unit| topology.find(name).is_some() || goes(unit)) {
            self.serve_former();
        }
    }

    /// The operator ends a former name. False: there is none.
    pub fn forget_former(&mut self, name: &str) -> bool {
        let done = self.overrides.forget_names(|former, _| former == name);
        self.serve_former();
        done
    }
}
