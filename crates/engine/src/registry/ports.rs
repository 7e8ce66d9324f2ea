//! The registry's side of asymmetric access: the port groups, and changes of their states. The
//! states are drawn in `alua.rs`.

use std::sync::Arc;

use bio::Errno;
use geom::Error;
use wire::scsi::{AccessState, PortGroup as PortGroupData, StateCause, asc};

use super::{Registry, RegistryState, TargetPort};
use crate::unit::Device;
use crate::unit::alua::{
    DEFAULT_GROUP, GroupTransition, PORT_GROUPS_MAX, PortGroup, PortGroupSpec, Stage, Transition,
};
use crate::unit::message::Message;
use crate::unit::unit_attention::ItlNexus;

impl Registry {
    /// Makes these the target port groups; the default group is added when it is not among them.
    /// Groups that were there keep the state that they have now, unless it is `specs` that changes
    /// their first state. Refused while a removed group has a port, and while one is
    /// transitioning.
    pub fn set_port_groups(&self, specs: &[PortGroupSpec]) -> Result<(), Error> {
        let mut specs = specs.to_vec();
        if !specs.iter().any(|s| s.name == DEFAULT_GROUP) {
            specs.push(PortGroupSpec::default_group());
        }
        check(&specs)?;
        let mut state = self.state();
        let kept = |name: &str| specs.iter().any(|s| s.name == name);
        let user = state.targets.values().find(|t| !kept(t.port_group().name()));
        if let Some(target) = user {
            let group = target.port_group().name().to_owned();
            let what = format!("port group {group} has the target {}; move it first", target.name);
            return Err(Error::new(Errno::Busy, what));
        }
        let mut new = Vec::with_capacity(specs.len());
        for spec in &specs {
            let was = state.port_groups.iter().find(|g| g.name() == spec.name).cloned();
            let group = match was {
                Some(group) if group.id() == spec.id => group,
                _ => Arc::new(PortGroup::new(spec)),
            };
            group.set_marks(spec.preferred, spec.explicit);
            new.push(group);
        }
        new.sort_by_key(|g| g.id());
        state.port_groups = new;
        for target in state.targets.values() {
            let name = target.port_group().name().to_owned();
            if let Some(group) = state.port_groups.iter().find(|g| g.name() == name) {
                target.join(group.clone());
            }
        }
        drop(state);
        self.notify_engines();
        Ok(())
    }

    /// The target port groups by growing identifier.
    pub fn port_groups(&self) -> Vec<Arc<PortGroup>> {
        self.state().port_groups.clone()
    }

    /// Puts a target's port into a group.
    pub fn set_port_group(&self, driver: &str, name: &str, group: &str) -> Result<(), Error> {
        let state = self.state();
        let Some(target) = state.targets.get(&(driver.to_string(), name.to_string())) else {
            return Err(Error::new(Errno::NoEnt, format!("no {driver} target {name}")));
        };
        let Some(group) = state.port_groups.iter().find(|g| g.name() == group) else {
            return Err(Error::new(Errno::NoEnt, format!("no target port group {group}")));
        };
        if !Arc::ptr_eq(&target.port_group(), group) {
            target.join(group.clone());
            raise_changed(&state, None);
        }
        drop(state);
        self.notify_engines();
        Ok(())
    }

    /// Begins a change of the states of groups, by identifier. When it answers, commands that may
    /// not run in the new state are refused already; [`Transition::stage`] reports the end of the
    /// others. [`Registry::give_up`] takes back a change that takes too long. `except` is the
    /// requesting nexus, if it is one.
    ///
    /// # Errors
    /// `NoEnt` for a group that does not exist, `Busy` when one is transitioning already.
    pub fn set_access_states(
        &self,
        wanted: &[(u16, AccessState)],
        cause: StateCause,
        except: Option<Arc<ItlNexus>>,
    ) -> Result<Arc<Transition>, Error> {
        let state = self.state();
        let mut legs = Vec::new();
        for (id, to) in wanted {
            let Some(group) = state.port_groups.iter().find(|g| g.id() == *id) else {
                return Err(Error::new(Errno::NoEnt, format!("no target port group {id}")));
            };
            let was = (group.state(), group.cause());
            if was.0 == AccessState::Transitioning {
                let what = format!("port group {} is transitioning", group.name());
                return Err(Error::new(Errno::Busy, what));
            }
            if was.0 != *to {
                legs.push(GroupTransition { group: group.clone(), was, to: *to });
            }
        }
        let loses = |leg: &&GroupTransition| leg.was.0.is_active() && !leg.to.is_active();
        let of = |t: &&Arc<TargetPort>| {
            let group = t.port_group();
            legs.iter().filter(loses).any(|l| Arc::ptr_eq(&l.group, &group))
        };
        let targets: Vec<Arc<TargetPort>> = state.targets.values().filter(of).cloned().collect();
        for leg in legs.iter().filter(loses) {
            leg.group.set_state(AccessState::Transitioning, cause);
        }
        let ports = targets.iter().map(|t| t.port).collect();
        let transition = Arc::new(Transition::new(legs, ports, cause, except));
        // L2.
        targets.iter().for_each(|t| t.groups().touch(false));
        if !targets.is_empty() {
            for (_, engine) in &state.engines {
                transition.add_engine();
                if engine.send(Message::Drain(transition.clone())).is_err() {
                    // A core that has stopped has nothing in flight; a full mailbox belongs to one
                    // that would never answer.
                    transition.engine_done();
                }
            }
        }
        drop(state);
        self.drained(&transition);
        Ok(transition)
    }

    /// An engine has nothing of the old state at a medium any more. The last one to report it ends
    /// the change.
    pub(crate) fn drained(&self, transition: &Transition) {
        if transition.engine_done() {
            self.settle(transition, Stage::Done);
        }
    }

    /// Takes a change back that is not through; answers what became of it.
    pub fn give_up(&self, transition: &Transition) -> Stage {
        self.settle(transition, Stage::Failed);
        transition.stage()
    }

    fn settle(&self, transition: &Transition, end: Stage) {
        let state = self.state();
        let mut stage = transition.lock_stage();
        if *stage != Stage::Draining {
            return;
        }
        for leg in &transition.groups {
            match end {
                Stage::Done => leg.group.set_state(leg.to, transition.cause),
                _ => leg.group.set_state(leg.was.0, leg.was.1),
            }
        }
        for target in state.targets.values() {
            let group = target.port_group();
            if transition.groups.iter().any(|l| Arc::ptr_eq(&l.group, &group)) {
                target.groups().touch(false);
            }
        }
        if end == Stage::Done && !transition.groups.is_empty() {
            raise_changed(&state, transition.except.as_ref());
        }
        *stage = end;
    }

    /// The groups through whose ports a unit is reached, with these ports.
    pub(crate) fn port_groups_of(&self, device: &Device) -> Vec<PortGroupData> {
        let state = self.state();
        let ports = device.ports();
        let data = |g: &Arc<PortGroup>| {
            let is_member =
                |t: &&Arc<TargetPort>| Arc::ptr_eq(&t.port_group(), g) && ports.contains(&t.port);
            PortGroupData {
                group: g.id(),
                state: g.state(),
                preferred: g.is_preferred(),
                cause: g.cause(),
                ports: state.targets.values().filter(is_member).map(|t| t.port).collect(),
            }
        };
        state.port_groups.iter().map(data).filter(|g| !g.ports.is_empty()).collect()
    }
}

fn raise_changed(state: &RegistryState, except: Option<&Arc<ItlNexus>>) {
    state.devices.values().for_each(|d| d.raise(asc::ALUA_STATE_CHANGED, except));
}

fn check(specs: &[PortGroupSpec]) -> Result<(), Error> {
    if specs.len() > PORT_GROUPS_MAX {
        let what = format!("more than {PORT_GROUPS_MAX} target port groups");
        return Err(Error::new(Errno::NoSpc, what));
    }
    for (i, spec) in specs.iter().enumerate() {
        if spec.id == 0 || spec.state == AccessState::Transitioning {
            let what = format!("port group {}: no identifier, or no state to be in", spec.name);
            return Err(Error::inval(what));
        }
        let before = specs.get(..i).unwrap_or_default();
        if let Some(other) = before.iter().find(|o| o.name == spec.name || o.id == spec.id) {
            let what = format!(
                "port groups {} and {} have a name or number in common",
                other.name, spec.name
            );
            return Err(Error::new(Errno::Exist, what));
        }
    }
    Ok(())
}
