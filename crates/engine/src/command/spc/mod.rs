//! Commands that the engine answers itself, for every kind of unit: each has a file here and a line
//! in [`find`]. They have the two forms that handlers have: [`EngineCommand::now`] for an answer
//! without waiting, [`EngineCommand::task`] for a conversation. [`serves`] is the same decision for
//! rows of the table of commands.
//!
//! `restore` reads the saved state of a new unit: each command that saves state has its line there.

mod alua;
mod copy;
mod identifying;
mod opcodes;
mod persistent;
mod report_luns;
mod request_sense;
mod reserve;
mod timestamp;

use std::sync::Arc;

use geom::{Error, Local};
use wire::scsi::{Command as Cdb, CommandInfo, Sense, asc};

use crate::handlers::disk::medium_operation;
use crate::handlers::{ImmediateCommand, saved_modes};
use crate::job::Job;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::state_store::StateStore;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::spec::DeviceSpec;

pub(crate) use report_luns::answer as report_luns;

/// A command that every kind of unit answers in the same way.
pub(crate) trait EngineCommand: Sync {
    /// The needs of the command, or why it is refused; as [`crate::handlers::Handler::plan`].
    fn plan(&self, command: &Cdb, device: &Device) -> Result<Plan, Sense>;

    /// Answers when the plan is [`crate::handlers::Run::Now`].
    fn now(&self, _ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        Err(Sense::new(asc::INTERNAL_FAILURE))
    }

    /// Executes when the plan is [`crate::handlers::Run::Task`]. All write data is there, data
    /// for the initiator is sent by [`Job::reply`]. It must not be dropped half-way.
    fn task(&self, _job: Job) -> Local<'static, Ending> {
        Box::pin(async { Ending::check(asc::INTERNAL_FAILURE) })
    }
}

/// The engine's own command, if it is one.
#[inline]
pub(crate) fn find(command: &Cdb) -> Option<&'static dyn EngineCommand> {
    Some(match command {
        Cdb::CopyOut { .. } | Cdb::CopyAbort { .. } | Cdb::CopyStatus { .. } => &copy::Copy,
        Cdb::ReportLuns { .. } => &report_luns::ReportLuns,
        Cdb::ReportOpcodes { .. } | Cdb::ReportTaskManagement { .. } => &opcodes::Opcodes,
        Cdb::ReportTimestamp { .. } | Cdb::SetTimestamp { .. } => &timestamp::Timestamp,
        Cdb::ReportIdentifying { .. } | Cdb::SetIdentifying { .. } => &identifying::Identifying,
        Cdb::PersistentIn { .. } => &persistent::PersistentIn,
        Cdb::PersistentOut { .. } => &persistent::PersistentOut,
        Cdb::Reserve | Cdb::Release => &reserve::Reserve,
        Cdb::RequestSense { .. } => &request_sense::RequestSense,
        Cdb::ReportTargetPortGroups { .. } => &alua::ReportTargetPortGroups,
        Cdb::SetTargetPortGroups { .. } => &alua::SetTargetPortGroups,
        _ => return None,
    })
}

/// Whether the engine executes the commands of a row itself: those that [`find`] knows.
pub(crate) fn serves(info: &CommandInfo) -> bool {
    matches!(
        (info.opcode, info.service_action),
        (0x03 | 0x16 | 0x17 | 0x83 | 0x84 | 0x56 | 0x57 | 0x5E | 0x5F | 0xA0, _)
            | (0xA3, Some(0x05 | 0x0A | 0x0C | 0x0D | 0x0F))
            | (0xA4, Some(0x06 | 0x0A | 0x0F))
    )
}

impl Registry {
    /// Makes a logical unit with its saved state. The name must be free; the serial number must not
    /// be that of another unit, or initiators would take the two for one.
    pub fn add_device(&self, handler: &str, spec: DeviceSpec) -> Result<Arc<Device>, Error> {
        self.insert_device(handler, spec, restore)
    }
}

/// Restores the state of a new unit from the state store before any nexus sees it. An error
/// keeps the unit from being exported.
fn restore(device: &Arc<Device>, store: &dyn StateStore) -> Result<(), Error> {
    persistent::load(device, store)?;
    medium_operation::recall(device, store)?;
    saved_modes::load(device, store)?;
    identifying::load(device, store)
}
