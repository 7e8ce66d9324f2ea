//! The driver on one core: what it is told to serve.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bio::{Errno, Pool, PoolConfig};
use geom::Error;
use reactor::{Mailbox, Mailer};
use target::Engine;

use super::serve;
use super::{Grant, Life};

/// File systems of one core; a further one is refused.
pub const FILES_MAX: u32 = 256;

/// Bytes for write data of the file systems of one core; whoever finds none waits until the
/// requests before have ended. Holds one request of each of [`FILES_MAX`] at least.
const MEMORY_BYTES: usize = FILES_MAX as usize * serve::REQUEST_MAX as usize + (32 << 20);

/// What a core is told: serve this.
pub(crate) struct Order {
    pub channel: OwnedFd,
    pub grant: Grant,
    pub life: Arc<Life>,
    pub done: SyncSender<Result<(), Error>>,
}

/// The driver on one core.
pub(super) struct Here {
    pub engine: Rc<Engine>,
    pub pool: Pool,
    pub files: Cell<u32>,
    /// It was said that memory may be waited for.
    pub warned: Cell<bool>,
}

/// Settles on a core; answers where it is told.
pub(super) fn install(engine: &Rc<Engine>) -> Mailer<Order> {
    let (mailer, mailbox) = engine.core().reactor().mailbox();
    let here = Rc::new(Here {
        engine: engine.clone(),
        pool: Pool::new(PoolConfig { limit_bytes: MEMORY_BYTES }),
        files: Cell::default(),
        warned: Cell::default(),
    });
    drop(engine.core().reactor().spawn("local", listen(here, mailbox)));
    mailer
}

async fn listen(here: Rc<Here>, mailbox: Mailbox<Order>) {
    while let Some(order) = mailbox.recv().await {
        if here.files.get() >= FILES_MAX {
            let what = format!("{FILES_MAX} LUNs are attached on this core already");
            // Whoever asked may be gone.
            let _ = order.done.send(Err(Error::new(Errno::Busy, what)));
            continue;
        }
        let reactor = here.engine.core().reactor().clone();
        drop(reactor.spawn("local file", serve::run(here.clone(), order)));
    }
}
