//! State shared by all cores of the driver: its targets, and the core that serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use bio::sync::{Mutex, MutexGuard};
use engine::Registry;
use geom::Error;
use reactor::Address;
use transport::RepeatedLines;

use super::params::{AoeParams, Checked};
use super::target_config::TargetConfig;

/// A target.
pub(super) struct Shelf {
    pub name: String,
    pub listen: Vec<Address>,
    pub params: AoeParams,
    pub config: Arc<TargetConfig>,
}

#[derive(Default)]
struct AoeState {
    targets: BTreeMap<String, Arc<Shelf>>,
    /// Settings of targets, removed ones included: a target that is added again finds its own.
    configs: BTreeMap<String, Arc<TargetConfig>>,
    core_max: u32,
    serving_core: Option<u32>,
}

/// State shared by all cores.
pub(crate) struct AoeGlobal {
    pub registry: Arc<Registry>,
    /// Log lines about initiators, of all cores.
    pub repeated_lines: Arc<RepeatedLines>,
    state: Mutex<AoeState>,
}

impl AoeGlobal {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Arc<AoeGlobal> {
        Arc::new(AoeGlobal { registry, repeated_lines: Arc::default(), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, AoeState> {
        self.state.lock()
    }

    /// Makes or replaces a target. Refused when another has the same shelf at an interface of its.
    pub fn set_target(&self, target: Checked) -> Result<(), Error> {
        let Checked { spec, params } = target;
        let known = self.state().configs.get(&spec.name).cloned();
        let config = match known {
            Some(config) => config,
            None => Arc::new(TargetConfig::load(&*self.registry.state_store(), &spec.name)?),
        };
        let mut state = self.state();
        let same = |other: &&Arc<Shelf>| {
            other.name != spec.name
                && other.params.shelf == params.shelf
                && other.listen.iter().any(|at| spec.listen.contains(at))
        };
        if let Some(other) = state.targets.values().find(same) {
            let what = format!(
                "aoe target {}: target {} is shelf {} at the same interface already",
                spec.name, other.name, params.shelf
            );
            return Err(Error::inval(what));
        }
        state.configs.insert(spec.name.clone(), config.clone());
        let shelf = Shelf { name: spec.name.clone(), listen: spec.listen, params, config };
        state.targets.insert(spec.name, Arc::new(shelf));
        Ok(())
    }

    pub fn remove_target(&self, name: &str) {
        self.state().targets.remove(name);
    }

    /// The targets at an interface, by name.
    pub fn targets_at(&self, portal: &Address) -> Vec<Arc<Shelf>> {
        let state = self.state();
        state.targets.values().filter(|t| t.listen.contains(portal)).cloned().collect()
    }

    /// Notes a core, before any portal is opened.
    pub fn add_core(&self, core: u32) {
        let mut state = self.state();
        state.core_max = state.core_max.max(core);
    }

    /// Whether a core is the one that serves: the last, as the first has other duties.
    pub fn is_serving_core(&self, core: u32) -> bool {
        let mut state = self.state();
        let last = state.core_max;
        *state.serving_core.get_or_insert(last) == core
    }
}
