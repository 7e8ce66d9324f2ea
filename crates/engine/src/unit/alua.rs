//! Asymmetric logical unit access: groups of target ports, their states, and how they change.
//!
//! Every target port belongs to one group; the group called [`DEFAULT_GROUP`] is there from the
//! beginning. A state concerns every unit that is reached through the group's ports.
//!
//! ```text
//!   active <--------> active (optimized, non-optimized)          at once
//!   active --begin()--> TRANSITIONING --last command has ended--> standby, unavailable, offline
//!                             '--give_up()--> as it was
//!   standby, unavailable, offline --begin()--> any other         at once
//! ```
//!
//! Invariants
//!  L1  A group in standby, unavailable or offline has no command at a medium. Until the last
//!      started command has ended, the group reports transitioning and starts no further command.
//!  L2  A session knows the state of its port's group before its next command: the view that it
//!      compares has a new generation before any initiator is notified of the change.
//!  L3  ASYMMETRIC ACCESS STATE CHANGED is raised at every nexus but the requesting one, after the
//!      last state is set and before the asker is answered. A nexus that does not exist yet begins
//!      with a condition that covers it (`nexus/paths.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bio::sync::{Mutex, MutexGuard};

pub use wire::scsi::{AccessState, StateCause};

use crate::unit::unit_attention::ItlNexus;

/// The group of ports that the configuration puts into no other.
pub const DEFAULT_GROUP: &str = "default";
/// Its identifier, unless the configuration has another.
pub const DEFAULT_GROUP_ID: u16 = 1;
/// Groups of one daemon; a further one is refused.
pub const PORT_GROUPS_MAX: usize = 1024;
/// Longest time that a group is transitioning, seconds; REPORT TARGET PORT GROUPS reports it. If a
/// command is still at its medium after this time, the change fails.
pub const TRANSITION_S_MAX: u8 = 10;

/// A target port group as the configuration gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortGroupSpec {
    /// Name, unique.
    pub name: String,
    /// TARGET PORT GROUP, unique, not zero.
    pub id: u16,
    /// The state at first.
    pub state: AccessState,
    /// PREF.
    pub preferred: bool,
    /// Initiators may change the state by SET TARGET PORT GROUPS.
    pub explicit: bool,
}

impl PortGroupSpec {
    /// The group of ports that are in no other.
    pub fn default_group() -> PortGroupSpec {
        PortGroupSpec {
            name: DEFAULT_GROUP.into(),
            id: DEFAULT_GROUP_ID,
            state: AccessState::Optimized,
            preferred: false,
            explicit: false,
        }
    }
}

/// Variable properties of a group, read without a lock: state, cause, preferred, explicit.
const PREFERRED: u32 = 1 << 16;
const EXPLICIT: u32 = 1 << 17;

pub struct PortGroup {
    name: String,
    id: u16,
    packed: AtomicU32,
}

impl PortGroup {
    pub(crate) fn new(spec: &PortGroupSpec) -> PortGroup {
        let group = PortGroup { name: spec.name.clone(), id: spec.id, packed: AtomicU32::new(0) };
        group.set_state(spec.state, StateCause::None);
        group.set_marks(spec.preferred, spec.explicit);
        group
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn id(&self) -> u16 {
        self.id
    }

    fn packed(&self) -> u32 {
        self.packed.load(Ordering::Acquire)
    }

    pub fn state(&self) -> AccessState {
        // The word holds codes of states only.
        AccessState::from_code((self.packed() & 0xff) as u8).unwrap_or(AccessState::Transitioning)
    }

    pub fn cause(&self) -> StateCause {
        match self.packed() >> 8 & 0xff {
            1 => StateCause::Explicit,
            2 => StateCause::Implicit,
            _ => StateCause::None,
        }
    }

    /// PREF.
    pub fn is_preferred(&self) -> bool {
        self.packed() & PREFERRED != 0
    }

    /// Initiators may change its state.
    pub fn is_explicit(&self) -> bool {
        self.packed() & EXPLICIT != 0
    }

    fn change(&self, mask: u32, bits: u32) {
        let next = |old: u32| Some(old & !mask | bits & mask);
        let _ = self.packed.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    pub(crate) fn set_state(&self, state: AccessState, cause: StateCause) {
        self.change(0xffff, u32::from(state.code()) | (cause as u32) << 8);
    }

    pub(crate) fn set_marks(&self, preferred: bool, explicit: bool) {
        let bits = if preferred { PREFERRED } else { 0 } | if explicit { EXPLICIT } else { 0 };
        self.change(PREFERRED | EXPLICIT, bits);
    }
}

pub(crate) struct GroupTransition {
    pub group: Arc<PortGroup>,
    pub was: (AccessState, StateCause),
    pub to: AccessState,
}

/// Where a change of states is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Commands that were started before are waited for.
    Draining,
    /// The groups have their new states.
    Done,
    /// It took too long; the groups are as they were.
    Failed,
}

/// A change of the states of some groups, wholly or not at all.
pub struct Transition {
    pub(crate) groups: Vec<GroupTransition>,
    /// Relative identifiers of the target ports that lose access: their commands are waited for.
    pub(crate) ports: Vec<u16>,
    pub(crate) cause: StateCause,
    /// The requesting nexus, which is not notified.
    pub(crate) except: Option<Arc<ItlNexus>>,
    /// Engines that have not answered, and one more until all are notified.
    left: AtomicU32,
    stage: Mutex<Stage>,
}

impl Transition {
    pub(crate) fn new(
        legs: Vec<GroupTransition>,
        ports: Vec<u16>,
        cause: StateCause,
        except: Option<Arc<ItlNexus>>,
    ) -> Transition {
        Transition {
            groups: legs,
            ports,
            cause,
            except,
            left: AtomicU32::new(1),
            stage: Mutex::new(Stage::Draining),
        }
    }

    pub(crate) fn lock_stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock()
    }

    /// Where it is.
    pub fn stage(&self) -> Stage {
        *self.lock_stage()
    }

    pub(crate) fn add_engine(&self) {
        self.left.fetch_add(1, Ordering::AcqRel);
    }

    /// One engine has nothing of it at a medium any more; true when it was the last.
    pub(crate) fn engine_done(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_cause_and_marks_of_a_group_change_independently() {
        let group =
            PortGroup::new(&PortGroupSpec { explicit: true, ..PortGroupSpec::default_group() });
        for state in AccessState::ALL {
            for cause in [StateCause::None, StateCause::Explicit, StateCause::Implicit] {
                for preferred in [false, true] {
                    group.set_state(state, cause);
                    group.set_marks(preferred, !preferred);
                    assert_eq!((group.state(), group.cause()), (state, cause));
                    assert_eq!(
                        (group.is_preferred(), group.is_explicit()),
                        (preferred, !preferred)
                    );
                }
            }
        }
    }
}
