//! A task as lists, the order of a unit and task management see it (SAM-5 section 8): its state,
//! its attribute, and the set that orders the tasks of a unit. Pure values; the life of a command
//! is in `command/mod.rs`.

pub(crate) mod set;

/// Commands of one session that may be outstanding; a further one ends with TASK SET FULL.
pub const DEPTH_MAX: u32 = 128;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CommandState {
    /// Waits for write data from the transport.
    DataWait = 1,
    /// Waits for its turn in the order of the unit.
    Dormant = 2,
    MemoryWait = 3,
    /// Requests are below.
    Executing = 4,
    /// Aborted, but requests are still below.
    Aborting = 5,
    /// The transport is sending the answer.
    Responding = 6,
    /// Waits until the unit has fewer commands than it can use (`qos/mod.rs`).
    Queued = 7,
}

impl CommandState {
    /// Every state, in the order of life.
    pub const ALL: [CommandState; 7] = [
        CommandState::DataWait,
        CommandState::Dormant,
        CommandState::MemoryWait,
        CommandState::Queued,
        CommandState::Executing,
        CommandState::Aborting,
        CommandState::Responding,
    ];

    /// Name for lists and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            CommandState::DataWait => "data-wait",
            CommandState::Dormant => "dormant",
            CommandState::MemoryWait => "memory-wait",
            CommandState::Executing => "executing",
            CommandState::Aborting => "aborting",
            CommandState::Responding => "responding",
            CommandState::Queued => "queued",
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<CommandState> {
        CommandState::ALL.into_iter().find(|s| *s as u8 == code)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TaskAttribute {
    /// May be reordered.
    #[default]
    Simple,
    /// After everything before it, before everything after it.
    Ordered,
    /// At once.
    HeadOfQueue,
    /// Only legal during an auto contingent allegiance that its nexus established.
    Aca,
}

/// How an aborted command ends towards its own initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AbortHow {
    /// No response is sent.
    Silent,
    /// TASK ABORTED status (TAS=1 and another nexus did it).
    Status,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_states_round_trip_through_their_codes() {
        for s in CommandState::ALL {
            assert_eq!(CommandState::from_code(s as u8), Some(s));
        }
        assert_eq!(CommandState::from_code(0), None);
    }
}
