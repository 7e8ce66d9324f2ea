//! How dangerous a change is for those connected now.

use super::action::{Action, Risk, newly_protected};
use crate::api::{SessionState, State};
use crate::config::{AccessConfig, AluaConfig, AluaState, Catalog};

/// The risk of one change, given what runs.
pub fn risk(action: &Action, state: &State, catalog: &Catalog) -> Risk {
    let disruptive = |yes: bool| if yes { Risk::Disruptive } else { Risk::Safe };
    match action {
        Action::Daemon { .. }
        | Action::CreateBus { .. }
        | Action::CreateDisk { .. }
        | Action::GrowDisk { .. }
        | Action::CreateGeom { .. }
        | Action::CreateTarget { .. }
        | Action::CreateAccess { .. } => Risk::Safe,
        Action::Units { from, to } => match newly_protected(from, to).next() {
            Some(_) => Risk::Destroys,
            None => Risk::Safe,
        },
        Action::PortGroups { from, to } => {
            let loses = |g: &AluaConfig| {
                let was = from.iter().find(|f| f.name == g.name).map(|f| f.state);
                was != Some(g.state) && !is_active(g.state)
            };
            disruptive(to.iter().any(loses) && state.sessions().next().is_some())
        }
        Action::RemoveBus { bus } if catalog.volatile_bus(&bus.kind) => Risk::Destroys,
        Action::RemoveBus { bus } => {
            let buses = state.buses.iter().filter(|b| b.name == bus.name);
            disruptive(buses.flat_map(|b| &b.devices).any(|device| open(state, &device.name)))
        }
        Action::RemoveDisk { disk } if catalog.volatile(&disk.kind) => Risk::Destroys,
        Action::RemoveDisk { disk } => disruptive(open(state, &disk.name)),
        Action::RemoveGeom { geom } => disruptive(open(state, &geom.name)),
        Action::RemoveTarget { target } => disruptive(sessions(state, &target.name) > 0),
        Action::ModifyTarget { from, to } => {
            disruptive(from.listen != to.listen && sessions(state, &to.name) > 0)
        }
        Action::RemoveAccess { access } => disruptive(members(state, access).next().is_some()),
        Action::ModifyAccess { from, to } => {
            disruptive(members(state, from).any(|session| suffers(session, from, to)))
        }
    }
}

fn is_active(state: AluaState) -> bool {
    matches!(state, AluaState::Optimized | AluaState::NonOptimized)
}

/// Whether anything that the geom offers is open.
fn open(state: &State, geom: &str) -> bool {
    let mut providers = state.geoms.iter().filter(|g| g.name == geom).flat_map(|g| &g.providers);
    providers.any(|p| p.r > 0 || p.w > 0 || p.e > 0)
}

fn sessions(state: &State, target: &str) -> usize {
    state.targets.iter().filter(|t| t.name == target).map(|t| t.sessions.len()).sum()
}

fn members<'s>(
    state: &'s State,
    access: &'s AccessConfig,
) -> impl Iterator<Item = &'s SessionState> {
    let here = state.targets.iter().filter(|t| t.name == access.target);
    here.flat_map(|t| &t.sessions).filter(|s| s.group.as_ref() == Some(&access.group))
}

/// Whether a session loses something: its group, or one of its LUNs, or the way a LUN was.
fn suffers(session: &SessionState, from: &AccessConfig, to: &AccessConfig) -> bool {
    let belongs = to.initiators.iter().any(|p| wire::pattern::matches(p, &session.initiator));
    !belongs || from.luns.iter().any(|(lun, was)| to.luns.get(lun) != Some(was))
}
