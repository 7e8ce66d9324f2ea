//! LUNs of our own targets as disks of our own graph: the kind `local` of `[[bus]]`.
//!
//! ```text
//!   da0 --CCB--> CAM --Sim--> nexus of this core --Command--> Session --> LUN --> provider below
//! ```
//! The module is a driver of a bus on one side and a transport of the target engine on the other.
//! The requests of this machine to a disk that it exports pass through the same masking,
//! reservations, unit attentions and access states as the requests of other initiators.
//!
//! | file | holds |
//! | --- | --- |
//! | `kind` | the parameters; which buses there are, and of what |
//! | `sim` | the bus: its units, and the watch for added and removed LUNs |
//! | `nexus` | the nexus on one core: CCBs in, answers out |
//! | `inflight` | commands that are with the engine, by tag |
//!
//! The module is here and not among CAM's own SIMs, because CAM and the target engine are crates of
//! one layer and do not depend on each other.
//!
//! Invariants
//!  L1  A bus is one initiator port. Each core that sends CCBs has a session of its own there, so
//!      that a CCB stays on its core. All of them have one TransportID, by which reservations know
//!      them for one nexus.
//!  L2  A CCB at the engine ends when the engine reports that it can no longer touch the medium:
//!      aborts and resets are task management.
//!  L3  Write data are shared with the engine, not copied. Data that is read is copied once, into
//!      the request's own buffers. A CCB that CAM has given up has its buffers back, and no late
//!      answer may reach them.
//!  L4  While the engine or CAM is called, no cell of a nexus is borrowed.
//!  L5  29/00 of a unit reports a login or a reset, not lost power. Data that a unit acknowledged
//!      is lost with this process only; disks below report lost data by errors of a FLUSH.

mod inflight;
mod kind;
mod nexus;
mod sim;

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use engine::{Engine, Registry};
use geom::Core;

pub use kind::{BusNexusId, LocalKind};

thread_local! {
    /// The engines of this thread's cores: one, but for simulations.
    static ENGINES: RefCell<Vec<Weak<Engine>>> = const { RefCell::new(Vec::new()) };
}

/// Settles on a core, on the core's thread and before a bus is opened.
pub fn install(engine: &Rc<Engine>) {
    ENGINES.with_borrow_mut(|all| {
        all.retain(|e| e.strong_count() > 0);
        all.push(Rc::downgrade(engine));
    });
}

fn engine(registry: &Arc<Registry>, core: &Core) -> Option<Rc<Engine>> {
    let fits = |e: &Rc<Engine>| {
        std::ptr::eq(Rc::as_ptr(e.core()), core) && Arc::ptr_eq(e.registry(), registry)
    };
    ENGINES.with_borrow(|all| all.iter().rev().filter_map(Weak::upgrade).find(fits))
}
