//! Local: LUNs for this machine, as network block devices of its kernel, or as files of file
//! systems that the kernel requests from this process.
//!
//! | file | holds |
//! | --- | --- |
//! | `params` | the parameters of a target |
//! | `per_core` | the driver on one core |
//! | `kernel` | one socket of the kernel's network block device |
//! | `serve` | one file system: requests read, answered or handed on |
//! | `processes` | the requesting process |
//! | `client` | the front of `block_requests`: how a request is answered |
//! | `line` | the descriptor of one file system, and what wakes its task |
//!
//! A translator: each attached LUN is a session of the engine like any initiator's. The initiator
//! is called `local:TARGET`; groups grant it LUNs as they do others. The kernel keeps nothing of
//! the file; what belongs to the machine (mounting, loop devices) is the daemon's.

mod client;
mod fuse_channel;
mod kernel;
mod params;
mod per_core;
mod processes;
mod serve;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use engine::registry::LunEntry;
use engine::{Engine, ModeBits, Registry, TargetPort};
use geom::{Error, Local as Future};
use reactor::{Address, ChannelEnd, Mailer};

use crate::driver::{Driver, TargetSpec};
use crate::nbd;
use per_core::{CoreMessage, Peer, ServeRequest};

pub use fuse_channel::ServingState;
pub use params::{By, LocalParams};
pub use per_core::FILES_MAX;
pub use serve::{REQUEST_MAX, request_max};

pub const NAME: &str = "local";

#[derive(Default)]
struct LocalState {
    targets: BTreeMap<String, LocalParams>,
    cores: Vec<Mailer<CoreMessage>>,
}

/// The driver.
pub struct Local {
    registry: Arc<Registry>,
    nbd: Arc<nbd::protocol::NbdGlobal>,
    state: Mutex<LocalState>,
}

/// A LUN as the machine may have it.
#[derive(Clone)]
pub struct GrantedLun {
    pub port: Arc<TargetPort>,
    /// The LUN and its unit.
    pub entry: Arc<LunEntry>,
    /// Nothing may be written.
    pub read_only: bool,
}

impl GrantedLun {
    /// Transmission flags of NBD: what may be done with the unit.
    pub fn flags(&self) -> u16 {
        nbd::kernel::flags(&self.entry)
    }

    /// Bytes of the unit now.
    pub fn bytes(&self) -> u64 {
        let device = &self.entry.device;
        device.blocks().saturating_mul(u64::from(device.block_bytes()))
    }
}

/// The name of this machine as an initiator at a target.
pub fn initiator(target: &str) -> String {
    format!("local:{target}")
}

/// Addresses of this machine on both sides.
pub(crate) fn local_address() -> Address {
    Address::Unix("local".into())
}

impl Local {
    /// Without targets.
    pub fn new(registry: Arc<Registry>) -> Local {
        // Each core counts its own requests.
        let nbd = nbd::protocol::share(registry.clone(), 2 * FILES_MAX as usize);
        Local { registry, nbd, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, LocalState> {
        self.state.lock()
    }

    /// The targets and their parameters. Any thread.
    pub fn targets(&self) -> BTreeMap<String, LocalParams> {
        self.state().targets.clone()
    }

    /// The LUN that the groups of a target grant this machine; an error names the missing setting.
    /// Any thread.
    pub fn find(&self, target: &str, lun: u64) -> Result<GrantedLun, Error> {
        let Some(port) = self.registry.target(NAME, target) else {
            let what = format!("no target {target} with driver = \"local\"");
            return Err(Error::new(Errno::NoEnt, what));
        };
        let decision = port.decide(&initiator(target), &local_address());
        if !decision.grants() {
            let what = format!(
                "{}: an [[access]] with target = \"{target}\" and initiators = [\"{}\"] grants it",
                decision.reason,
                initiator(target)
            );
            return Err(Error::new(Errno::Perm, what));
        }
        let Some(entry) = decision.luns.get(lun).cloned() else {
            let group = decision.group.unwrap_or_default();
            let what = format!("group {group} of {target} has no LUN {lun}: add it to its luns");
            return Err(Error::new(Errno::NoEnt, what));
        };
        let spec = entry.device.spec();
        let swp = entry.device.mode().has(ModeBits::SWP);
        let read_only = entry.read_only || spec.read_only || swp;
        Ok(GrantedLun { port, entry, read_only })
    }

    /// The LUN under which a target may have a unit of that name. Any thread.
    pub fn find_unit(&self, target: &str, unit: &str) -> Option<u64> {
        let port = self.registry.target(NAME, target)?;
        let luns = port.decide(&initiator(target), &local_address()).luns;
        let found = luns.iter().find(|e| e.device.name() == unit)?;
        Some(found.lun)
    }

    /// Cores that serve.
    pub fn cores(&self) -> usize {
        self.state().cores.len()
    }

    /// Serves a file system with one file, the unit, to the kernel at the other end of `channel`.
    /// `done` receives the result of the login; after that `life` shows whether the file system is
    /// still served. Any thread.
    pub fn serve(
        &self,
        channel: impl Into<ChannelEnd>,
        grant: GrantedLun,
        life: Arc<ServingState>,
        done: SyncSender<Result<(), Error>>,
    ) {
        let core = usize::try_from(grant.entry.device.number()).unwrap_or(0);
        self.send_serve_request(
            core,
            ServeRequest { peer: Peer::Fuse(channel.into()), grant, serving: life, done },
        );
    }

    /// Serves a socket of the kernel's network block device, on the core of that number. It is a
    /// stream socket on which transmission has begun, with simple replies and the flags of
    /// [`GrantedLun::flags`]. The rest as with [`Local::serve`].
    pub fn serve_socket(
        &self,
        core: usize,
        socket: OwnedFd,
        grant: GrantedLun,
        life: Arc<ServingState>,
        done: SyncSender<Result<(), Error>>,
    ) {
        self.send_serve_request(
            core,
            ServeRequest { peer: Peer::Nbd(socket), grant, serving: life, done },
        );
    }

    fn send_serve_request(&self, core: usize, order: ServeRequest) {
        let cores = self.state().cores.clone();
        let Some(core) = cores.get(core.checked_rem(cores.len()).unwrap_or(0)) else {
            // The caller may have ended.
            let what = "no core serves local targets";
            let _ = order.done.send(Err(Error::new(Errno::NoEnt, what)));
            return;
        };
        // A core that takes no more drops the order, and with it `done`.
        drop(core.send(CoreMessage::Serve(Box::new(order))));
    }

    /// No further request is read of the socket of that life; it ends when all before are answered.
    /// Any thread.
    pub fn retire(&self, life: &Arc<ServingState>) {
        for core in self.state().cores.clone() {
            // A core that ends has ended its sockets.
            drop(core.send(CoreMessage::Retire(life.clone())));
        }
    }
}

impl Driver for Local {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "LUNs as block devices of this machine, by its kernel's NBD, or by FUSE and loop devices."
    }

    fn schema(&self) -> serde_json::Value {
        params::schema()
    }

    fn edits(&self) -> &'static [(&'static str, &'static str)] {
        &[("attach", "live; LUNs are attached and detached"), ("*", "new attachments only")]
    }

    fn check_target(&self, spec: TargetSpec) -> Result<(), Error> {
        params::check(&spec).map(drop)
    }

    fn set_target(&self, spec: TargetSpec) -> Result<(), Error> {
        let (name, params) = params::check(&spec)?;
        self.state().targets.insert(name, params);
        Ok(())
    }

    fn remove_target(&self, name: &str) {
        self.state().targets.remove(name);
    }

    fn install(self: Arc<Self>, engine: &Rc<Engine>) {
        let mailer = per_core::install(&self.nbd, engine);
        self.state().cores.push(mailer);
    }

    fn open_portal(
        self: Arc<Self>,
        _: Rc<Engine>,
        at: Address,
    ) -> Future<'static, io::Result<Address>> {
        let what = format!("{at}: a local target has no portals; leave `listen` out");
        Box::pin(async { Err(io::Error::new(io::ErrorKind::Unsupported, what)) })
    }

    fn close_portal(&self, _: &Rc<Engine>, _: Address) {}

    fn local(self: Arc<Self>) -> Option<Arc<Local>> {
        Some(self)
    }
}
