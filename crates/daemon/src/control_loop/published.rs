//! State that the control thread publishes for questions.

use std::collections::BTreeMap;

use geom::Trouble;
use mgmt::config::Config;

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
