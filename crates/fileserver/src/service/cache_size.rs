//! Resizing of the block cache of a file server that serves.

use std::rc::Rc;

use super::host::Host;
use crate::files::Served;
use crate::volume::GivenBack;

/// Pause while dirty blocks or unsent replies hold memory beyond the size, ns.
const HELD_NS: u64 = 100_000_000;

impl Host {
    /// Sets the bytes of the block cache. A larger one is used at once. A smaller one frees memory
    /// a part in each turn: dropping all blocks at once takes the core from clients.
    pub(super) fn resize_cache(self: &Rc<Self>, files: Served, bytes: usize) {
        files.set_memory(bytes);
        self.server.update_cache_shares();
        let (host, life) = (self.clone(), self.generation.get());
        self.reactor.spawn("fs-memory", async move {
            while host.generation.get() == life {
                match files.give_back_some() {
                    GivenBack::All if !host.server.is_cache_share_exceeded() => return,
                    GivenBack::Part => host.reactor.yield_now().await,
                    // Memory that replies hold is replaced for other clients until they are sent.
                    GivenBack::All | GivenBack::Lent => host.reactor.sleep(HELD_NS).await,
                    GivenBack::Nothing => {
                        // After an error nothing is served until the file system is opened again.
                        if files.facts().dirty > 0 && files.sync().await.is_err() {
                            return;
                        }
                        host.reactor.sleep(HELD_NS).await;
                    }
                }
            }
        });
    }
}
