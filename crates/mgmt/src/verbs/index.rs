//! Index of a state by name: the users of each provider, found without a search through many
//! thousand units.

use crate::api::{DiskState, GeomState, GroupState, Health, LunState, ProviderState};
use crate::api::{SessionState, SystemState, TargetHealth, TargetState};
use std::collections::HashMap;

/// A LUN and where it is shown.
pub(crate) type ExportedLun<'s> = (&'s TargetState, &'s GroupState, &'s LunState);

/// See the module. Everything keeps the order that it has in the state.
pub(crate) struct Index<'s> {
    disks: HashMap<&'s str, &'s DiskState>,
    providers: HashMap<&'s str, (&'s GeomState, &'s ProviderState)>,
    geoms: HashMap<&'s str, Vec<&'s GeomState>>,
    luns: HashMap<&'s str, Vec<ExportedLun<'s>>>,
    /// By target, group and number.
    sessions: HashMap<(&'s str, &'s str, u64), Vec<&'s SessionState>>,
}

impl<'s> Index<'s> {
    pub(crate) fn new(state: &'s SystemState) -> Index<'s> {
        let mut out = Index {
            disks: state.disks.iter().map(|d| (d.name.as_str(), d)).collect(),
            providers: HashMap::new(),
            geoms: HashMap::new(),
            luns: HashMap::new(),
            sessions: HashMap::new(),
        };
        state.geoms.iter().for_each(|geom| out.add_geom(geom));
        state.targets.iter().for_each(|target| out.add_target(target));
        out
    }

    fn add_geom(&mut self, geom: &'s GeomState) {
        for provider in &geom.providers {
            self.providers.entry(&provider.name).or_insert((geom, provider));
        }
        for below in geom.consumers.iter().filter_map(|c| c.provider.as_deref()) {
            let above = self.geoms.entry(below).or_default();
            // A geom may have several consumers on a provider.
            if !above.last().is_some_and(|last| std::ptr::eq(*last, geom)) {
                above.push(geom);
            }
        }
    }

    fn add_target(&mut self, target: &'s TargetState) {
        for group in &target.groups {
            for lun in &group.luns {
                self.luns.entry(&lun.provider).or_default().push((target, group, lun));
            }
        }
        for session in &target.sessions {
            let Some(group) = session.group.as_deref() else { continue };
            for lun in &session.luns {
                let key = (target.name.as_str(), group, *lun);
                self.sessions.entry(key).or_default().push(session);
            }
        }
    }

    pub(crate) fn disk(&self, name: &str) -> Option<&'s DiskState> {
        self.disks.get(name).copied()
    }

    /// A provider, and the geom that offers it.
    pub(crate) fn provider(&self, name: &str) -> Option<(&'s GeomState, &'s ProviderState)> {
        self.providers.get(name).copied()
    }

    /// Geoms that use a provider.
    pub(crate) fn users_of(&self, provider: &str) -> &[&'s GeomState] {
        self.geoms.get(provider).map_or(&[], Vec::as_slice)
    }

    /// LUNs that a provider is.
    pub(crate) fn luns(&self, provider: &str) -> &[ExportedLun<'s>] {
        self.luns.get(provider).map_or(&[], Vec::as_slice)
    }

    /// Health of a LUN: other LUNs of its target may lack their disks.
    pub(crate) fn lun_health(&self, (target, _, lun): ExportedLun<'s>) -> Health {
        let provider = self.provider(&lun.provider);
        let is_whole = provider.is_some_and(|(_, p)| p.error.is_none());
        match target.state == TargetHealth::Down || !is_whole {
            true => Health::Failed,
            false => Health::Ok,
        }
    }

    /// Sessions that see a LUN.
    pub(crate) fn sessions(&self, (target, group, lun): ExportedLun<'s>) -> &[&'s SessionState] {
        let key = (target.name.as_str(), group.name.as_str(), lun.lun);
        self.sessions.get(&key).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PendingLunState;
    use crate::fake::geom_state;

    #[test]
    fn lun_is_healthy_while_another_group_awaits_one() {
        let lun = LunState { provider: "d0".to_owned(), ..LunState::default() };
        let awaited = PendingLunState { lun: 1, provider: "d1".to_owned() };
        let group = |name: &str| GroupState { name: name.to_owned(), ..GroupState::default() };
        let target = TargetState {
            name: "iqn.t".to_owned(),
            state: TargetHealth::Listening,
            health: Health::Degraded,
            health_why: "LUN 1 (d1) is not there yet".to_owned(),
            groups: vec![
                GroupState { luns: vec![lun], ..group("a") },
                GroupState { awaited: vec![awaited], ..group("b") },
            ],
            ..TargetState::default()
        };
        let geoms = vec![geom_state("disk", "d0", 1, &[], "d0")];
        let mut state = SystemState { geoms, targets: vec![target], ..SystemState::default() };
        let health = |state: &SystemState| {
            let index = Index::new(state);
            index.luns("d0").iter().map(|lun| index.lun_health(*lun)).collect::<Vec<_>>()
        };
        assert_eq!(health(&state), [Health::Ok]);
        state.geoms.clear();
        assert_eq!(health(&state), [Health::Failed], "its own disk is missing");
    }
}
