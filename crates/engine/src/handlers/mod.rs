//! Device handlers: the execution of commands for each kind of logical unit.
//!
//! A handler never sees a session, and a transport never sees a CDB. The engine calls a handler
//! three things: the needs of a command ([`Handler::plan`]), the answer of a command without I/O
//! ([`Handler::now`]), and a conversation with the medium ([`Handler::task`]). The engine itself
//! runs plain reads and writes from the plan, without any call.
//!
//! Adding a handler: a folder here, and a line in the list of `unit/kind.rs`.

pub mod cdrom;
pub mod disk;
pub mod null;
pub(crate) mod saved_modes;
mod tray;

use std::rc::Rc;
use std::sync::Arc;

use geom::{Core, Local};
use wire::scsi::{Asc, Command as Cdb, CommandInfo, Sense};

use crate::registry::{LunMap, Registry, TargetPort};
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::kind::{UnitKind, for_unit_kinds};
use crate::unit::unit_attention::{ItlNexus, Port};

pub use crate::job::{Job, Medium};
pub use crate::plan::{Blocks, Plan, Run};

/// Largest reply of a command that reads no blocks, bytes: REPORT LUNS with every LUN there can
/// be. An allocation length beyond it reserves no more memory.
pub const REPLY_MAX: u32 = 256 * 1024;

/// A command that is answered at once.
pub struct ImmediateCommand<'a> {
    pub command: &'a Cdb,
    /// The unit; `None` at a LUN that is not mapped.
    pub device: Option<&'a Arc<Device>>,
    /// The nexus, with its unit attentions; `None` at a LUN that is not mapped.
    pub nexus: Option<&'a Arc<ItlNexus>>,
    /// The unit takes no writes through this nexus.
    pub read_only: bool,
    /// The port at which the command arrived.
    pub port: &'a Arc<TargetPort>,
    pub initiator_port: &'a Arc<Port>,
    pub luns: &'a Arc<LunMap>,
    /// State that all engines share.
    pub registry: &'a Arc<Registry>,
    /// The core: clock and randomness.
    pub core: &'a Rc<Core>,
    /// The reply, empty at first; the engine cuts it to the allocation length.
    pub reply: &'a mut Vec<u8>,
    /// Bytes of zeroes after `reply`, zero at first: the engine writes them where they are sent
    /// from.
    pub zeroes: usize,
    /// Set to a unit attention that the reply reports.
    pub reported_attention: Option<Asc>,
}

/// A kind of logical unit.
pub trait Handler: Send + Sync {
    /// Whether it executes the commands of a row of the table, at this unit. The engine refuses all
    /// others, and REPORT SUPPORTED OPERATION CODES lists exactly these.
    fn serves(&self, info: &CommandInfo, device: &Device) -> bool;

    /// The needs of a command, or why it is refused. Checks everything that can be checked before
    /// data moves: support, ranges, limits.
    fn plan(&self, command: &Cdb, device: &Device) -> Result<Plan, Sense>;

    /// Answers a command whose plan is [`Run::Now`].
    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense>;

    /// Executes a command whose plan is [`Run::Task`]. All write data is there; data for the
    /// initiator is sent by [`Job::reply`]. It must not be dropped half-way: the engine waits for
    /// its end even when the command was aborted.
    fn task(&self, job: Job) -> Local<'static, Ending>;
}

pub const DISK: &dyn Handler = &disk::Disk;

macro_rules! device_handler {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $peripheral:ident, $handler:path;)*) => {
        impl Device {
            /// Handler of its commands.
            #[inline]
            pub fn handler(&self) -> &'static dyn Handler {
                match self.kind() {
                    $(UnitKind::$kind => &$handler,)*
                }
            }
        }
    };
}

for_unit_kinds!(device_handler);
