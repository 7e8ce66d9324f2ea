//! State that the control thread publishes for questions.

use std::collections::{BTreeMap, HashSet};

use geom::Trouble;
use mgmt::config::Config;
use mgmt::plan::Action;

/// The data for answers to questions, besides the graph.
#[derive(Default)]
pub struct Published {
    /// The configuration that has been carried out.
    pub config: Config,
    /// Portals by target.
    pub portals: BTreeMap<String, Vec<String>>,
    /// Providers of LUNs that cannot be exported, with why.
    pub refused: BTreeMap<String, String>,
    /// Disks whose medium could not be opened when it returned, with why.
    pub refused_disks: BTreeMap<String, String>,
    /// Open disks whose path does not answer.
    pub silent_paths: BTreeMap<String, Trouble>,
    /// Names of the disks in the configuration: a start adds many thousand, one by one.
    disk_names: HashSet<String>,
}

impl Published {
    /// Applies an action to the configuration. A lost object is still in it, and is made anew.
    pub fn record(&mut self, action: &Action) {
        let config = &mut self.config;
        match action {
            Action::CreateBus { bus } => config.bus.retain(|b| b.name != bus.name),
            Action::CreateDisk { disk } => {
                let is_new = self.disk_names.insert(disk.name.clone());
                if !is_new {
                    config.disk.retain(|d| d.name != disk.name);
                }
            }
            Action::RemoveDisk { disk } => drop(self.disk_names.remove(&disk.name)),
            Action::RenameDisk { from, to } => {
                self.disk_names.remove(&from.name);
                self.disk_names.insert(to.name.clone());
            }
            Action::CreateGeom { geom } => config.geom.retain(|g| g.name != geom.name),
            Action::CreateTarget { target } => config.target.retain(|t| t.name != target.name),
            Action::CreateAccess { access } => config.access.retain(|a| !a.same_group(access)),
            _ => {}
        }
        action.apply_to(config);
    }
}

#[cfg(test)]
mod tests {
    use mgmt::config::DiskConfig;

    use super::*;

    fn disk(name: &str, bytes: u64) -> DiskConfig {
        let params = serde_json::Map::from_iter([("size".to_owned(), bytes.into())]);
        DiskConfig { name: name.into(), kind: "null".into(), params }
    }

    #[test]
    fn lost_disk_that_is_made_again_replaces_its_section() {
        let mut published = Published::default();
        let mut record = |action: Action| {
            published.record(&action);
            published.config.disk.clone()
        };
        let create = |name, bytes| Action::CreateDisk { disk: disk(name, bytes) };
        assert_eq!(record(create("a", 1)), [disk("a", 1)]);
        assert_eq!(record(create("b", 1)), [disk("a", 1), disk("b", 1)]);
        assert_eq!(record(create("a", 2)), [disk("b", 1), disk("a", 2)]);
        record(Action::RenameDisk { from: disk("b", 1), to: disk("c", 1) });
        assert_eq!(record(create("c", 2)), [disk("a", 2), disk("c", 2)]);
        assert_eq!(record(Action::RemoveDisk { disk: disk("c", 2) }), [disk("a", 2)]);
        assert_eq!(record(create("c", 3)), [disk("a", 2), disk("c", 3)]);
    }
}
