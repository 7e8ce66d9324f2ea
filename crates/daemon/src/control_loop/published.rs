//! State that the control thread publishes for questions.

use std::collections::BTreeMap;

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
}

impl Published {
    /// Applies an action to the configuration. A lost object is still in it, and is made anew.
    pub fn record(&mut self, action: &Action) {
        let config = &mut self.config;
        match action {
            Action::CreateBus { bus } => config.bus.retain(|b| b.name != bus.name),
            Action::CreateDisk { disk } => config.disk.retain(|d| d.name != disk.name),
            Action::CreateGeom { geom } => config.geom.retain(|g| g.name != geom.name),
            Action::CreateTarget { target } => config.target.retain(|t| t.name != target.name),
            Action::CreateAccess { access } => config.access.retain(|a| !a.same_group(access)),
            _ => {}
        }
        action.apply_to(config);
    }
}
