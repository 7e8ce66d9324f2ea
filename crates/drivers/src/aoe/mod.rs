//! AoE: ATA commands in Ethernet frames.
//!
//! | file | holds |
//! | --- | --- |
//! | `params` | the parameters of a target |
//! | `shared`, `per_core` | what all cores share; the driver on the core that serves |
//! | `target_config` | settings that initiators store: config strings, masks, reservations |
//! | `portal` | one interface: its frames in and out, its sessions |
//! | `frames` | the dispatcher of received frames |
//! | `config` | the commands about config strings, masks and reservations |
//! | `ata` | ATA commands, IDENTIFY |
//! | `session` | the front of `block_requests`: answers |
//! | `replay_guard` | duplicate detection and ordering of writes |
//! | `announce` | announcements of new devices |
//!
//! A translator: an initiator's slot is a session of the engine like any other's, with the LUN of
//! that number in its group. A target is a shelf; the initiator is called `mac:ADDRESS`. One core
//! serves all interfaces: a request may arrive twice, over two interfaces, and the detection of
//! duplicates needs both copies.
//!
//! Invariants
//!  A1  An answer to a write is sent when its data are on stable storage: initiators never flush.
//!  A2  A write that was answered is never carried out again. A duplicate is not carried out after
//!      a later write of the same blocks (`replay_guard`).
//!  A3  An initiator that may see nothing gets no answer.
//!  A4  A setting of an initiator is acknowledged when it is in the state store.

mod announce;
mod ata;
mod config;
mod frames;
mod params;
mod per_core;
mod portal;
mod replay_guard;
mod session;
mod shared;
mod target_config;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use engine::{Engine, Registry};
use geom::{Error, Local};
use reactor::Address;

use crate::driver::{Driver, TargetSpec};
use params::Checked;
use per_core::CoreState;
use shared::AoeGlobal;

pub use params::AoeParams;
pub use portal::NEXUSES_MAX;

pub const NAME: &str = "aoe";

/// The driver.
pub struct Aoe {
    shared: Arc<AoeGlobal>,
}

impl Aoe {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Aoe {
        Aoe { shared: AoeGlobal::new(registry) }
    }
}

impl Driver for Aoe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn has_logins(&self) -> bool {
        false
    }

    fn doc(&self) -> &'static str {
        "ATA over Ethernet: a shelf on interfaces of this machine, its LUNs are slots."
    }

    fn schema(&self) -> serde_json::Value {
        params::schema()
    }

    fn edits(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("shelf", "live; hosts lose its devices and find them under the new number"),
            ("buffers", "new sessions only"),
            ("*", "live"),
        ]
    }

    fn check_target(&self, spec: TargetSpec) -> Result<(), Error> {
        Checked::new(spec).map(drop)
    }

    fn set_target(&self, spec: TargetSpec) -> Result<(), Error> {
        self.shared.set_target(Checked::new(spec)?)
    }

    fn remove_target(&self, name: &str) {
        self.shared.remove_target(name);
    }

    fn install(self: Arc<Self>, engine: &Rc<Engine>) {
        CoreState::install(&self.shared, engine);
    }

    fn open_portal(
        self: Arc<Self>,
        engine: Rc<Engine>,
        at: Address,
    ) -> Local<'static, io::Result<Address>> {
        Box::pin(async move {
            let not_here = "aoe was not installed on this core";
            let core_state =
                CoreState::find(&self.shared, &engine).ok_or(io::Error::other(not_here))?;
            match self.shared.is_serving_core(engine.core().id()) {
                true => portal::open(&core_state, at),
                false => Ok(at),
            }
        })
    }

    fn close_portal(&self, engine: &Rc<Engine>, at: Address) {
        if let Some(core_state) = CoreState::find(&self.shared, engine) {
            core_state.close_portal(&at);
        }
    }
}
