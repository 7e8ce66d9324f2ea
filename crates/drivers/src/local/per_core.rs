//! The driver on one core, with the file systems and sockets that it serves.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bio::{Errno, Pool, PoolConfig};
use engine::{Engine, Login};
use geom::Error;
use reactor::{ChannelEnd, Mailbox, Mailer};

use super::{GrantedLun, ServingState, initiator, local_address};
use super::{kernel, serve};
use crate::{nbd, stream_target};

/// File systems and sockets of one core; a further one is refused.
pub const FILES_MAX: u32 = 256;

/// Bytes for write data of the file systems and sockets of one core. A request that finds none
/// waits until earlier requests have ended. Holds one request of each of [`FILES_MAX`] at least.
const MEMORY_BYTES: usize = FILES_MAX as usize * serve::REQUEST_MAX as usize + (32 << 20);

/// Channel through which the kernel sends requests.
pub(crate) enum Peer {
    /// `/dev/fuse`.
    Fuse(ChannelEnd),
    /// A socket of its network block device.
    Nbd(OwnedFd),
}

/// Serve this.
pub(crate) struct ServeRequest {
    pub peer: Peer,
    pub grant: GrantedLun,
    pub serving: Arc<ServingState>,
    pub done: SyncSender<Result<(), Error>>,
}

pub(crate) enum CoreMessage {
    Serve(Box<ServeRequest>),
    /// Read no further request of that socket; it ends when all are answered.
    Retire(Arc<ServingState>),
}

/// A socket that is served: its life, and what makes it retire.
type Socket = (Arc<ServingState>, Box<dyn Fn()>);

/// The driver on one core.
pub(super) struct CoreState {
    pub engine: Rc<Engine>,
    pub pool: Pool,
    pub nbd: Rc<nbd::protocol::PerCore>,
    pub files: Cell<u32>,
    pub sockets: RefCell<Vec<Socket>>,
    /// A warning that requests may wait for memory was logged.
    warned: Cell<bool>,
}

impl CoreState {
    /// This thread is one that the kernel may wait for, from now on.
    pub fn writes_for_kernel(&self) {
        if let Err(e) = self.engine.core().reactor().writes_for_kernel()
            && !self.warned.replace(true)
        {
            tracing::warn!(
                target: "local",
                "the kernel does not give this thread priority for memory ({e}): give the daemon \
                 CAP_SYS_RESOURCE, or do not write through attached LUNs more than memory holds"
            );
        }
    }

    /// How this machine logs in.
    pub fn login(&self, grant: &GrantedLun) -> Login {
        Login {
            target: grant.port.clone(),
            initiator: initiator(&grant.port.name),
            port_id: grant.entry.lun.to_be_bytes().to_vec(),
            transport_id: Vec::new(),
            portal: local_address(),
            from: local_address(),
            reinstates: false,
            labels: Vec::new(),
        }
    }
}

/// Installs the driver on a core; answers the mailer for its orders.
pub(super) fn install(
    shared: &Arc<nbd::protocol::NbdGlobal>,
    engine: &Rc<Engine>,
) -> Mailer<CoreMessage> {
    let (mailer, mailbox) = engine.core().reactor().mailbox();
    let core_state = Rc::new(CoreState {
        engine: engine.clone(),
        pool: Pool::new(PoolConfig { limit_bytes: MEMORY_BYTES }),
        nbd: stream_target::install(shared, engine, engine.clone()),
        files: Cell::default(),
        sockets: RefCell::default(),
        warned: Cell::default(),
    });
    drop(engine.core().reactor().spawn("local", receive_messages(core_state, mailbox)));
    mailer
}

async fn receive_messages(core_state: Rc<CoreState>, mailbox: Mailbox<CoreMessage>) {
    while let Some(note) = mailbox.recv().await {
        let order = match note {
            CoreMessage::Serve(order) => *order,
            CoreMessage::Retire(life) => {
                let sockets = core_state.sockets.borrow();
                let found = sockets.iter().find(|(l, _)| Arc::ptr_eq(l, &life));
                found.inspect(|(_, retire)| retire());
                continue;
            }
        };
        if core_state.files.get() >= FILES_MAX {
            let what = format!("{FILES_MAX} LUNs are attached on this core already");
            // The caller may have ended.
            let _ = order.done.send(Err(Error::new(Errno::Busy, what)));
            continue;
        }
        let reactor = core_state.engine.core().reactor().clone();
        let ServeRequest { peer, grant, serving: life, done } = order;
        match peer {
            Peer::Fuse(fd) => {
                let task = serve::run(core_state.clone(), fd, grant, life, done);
                drop(reactor.spawn("local file", task));
            }
            Peer::Nbd(fd) => {
                let task = kernel::run(core_state.clone(), fd, grant, life, done);
                drop(reactor.spawn("local socket", task));
            }
        }
    }
}
