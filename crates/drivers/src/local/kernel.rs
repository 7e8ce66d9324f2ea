//! One socket of the kernel's network block device: a connection of the driver `nbd` that begins
//! behind the handshake.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bio::Errno;
use geom::Error;

use super::per_core::CoreState;
use super::{GrantedLun, ServingState};
use crate::nbd::kernel::{self as nbd_kernel, Entered};

/// Serves until it ends.
pub(super) async fn run(
    core_state: Rc<CoreState>,
    fd: OwnedFd,
    grant: GrantedLun,
    life: Arc<ServingState>,
    done: SyncSender<Result<(), Error>>,
) {
    let entered = match enter(&core_state, fd, &grant) {
        Ok(entered) => entered,
        Err(e) => {
            // The caller may have ended; it sees `life` end as well.
            let _ = done.send(Err(e));
            return life.end();
        }
    };
    core_state.files.set(core_state.files.get() + 1);
    core_state.sockets.borrow_mut().push((life.clone(), Box::new(entered.retires())));
    let _ = done.send(Ok(()));
    entered.run().await;
    core_state.sockets.borrow_mut().retain(|(l, _)| !Arc::ptr_eq(l, &life));
    core_state.files.set(core_state.files.get().saturating_sub(1));
    life.end();
}

fn enter(core_state: &CoreState, fd: OwnedFd, grant: &GrantedLun) -> Result<Entered, Error> {
    core_state.writes_for_kernel();
    let stream = core_state.engine.core().reactor().adopt(fd);
    let entered = nbd_kernel::enter(
        &core_state.nbd,
        stream,
        core_state.login(grant),
        &grant.entry,
        core_state.pool.clone(),
    );
    entered.map_err(|refused| Error::new(Errno::Perm, refused.text))
}
