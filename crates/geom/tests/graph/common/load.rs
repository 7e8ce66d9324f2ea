//! Continuous load: tasks that write a block several times without waiting, and read it back.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;

use geom::{Core, Edge};

use super::{SECTOR, pattern};

pub const BLOCK: u64 = 4 * SECTOR;

/// Shared by the load's tasks and the test.
#[derive(Default)]
pub struct Load {
    stop: AtomicBool,
    rounds: AtomicU64,
    running: AtomicU64,
}

impl Load {
    pub fn start(self: &Arc<Self>, core: &Rc<Core>, edge: Edge, blocks: std::ops::Range<u64>) {
        for block in blocks {
            self.running.fetch_add(1, Relaxed);
            let (load, own) = (self.clone(), core.clone());
            core.reactor().spawn("load", async move {
                load.hammer(&own, edge, block).await;
                load.running.fetch_sub(1, Relaxed);
            });
        }
    }

    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }

    pub fn is_over(&self) -> bool {
        self.running.load(Relaxed) == 0
    }

    /// Writes to one block must not pass each other: the last one sent is the one that stays.
    async fn hammer(&self, core: &Rc<Core>, edge: Edge, block: u64) {
        let (at, mut version) = (block * BLOCK, block);
        while !self.stop.load(Relaxed) {
            // Two on their way at once, the second some time after the first.
            let (early, late) = (pattern(at, BLOCK, version + 1), pattern(at, BLOCK, version + 2));
            version += 2;
            let mut first = Box::pin(core.write(edge, at, &early));
            let sent = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await;
            self.pause(core).await;
            core.write(edge, at, &late).await.expect("a write under load");
            match sent {
                Poll::Ready(ended) => ended,
                Poll::Pending => first.await,
            }
            .expect("a write under load");
            let read = core.read(edge, at, BLOCK as usize).await.expect("a read under load");
            assert!(
                read == late,
                "block {block} is not version {version}: writes passed each other"
            );
            self.rounds.fetch_add(1, Relaxed);
            self.pause(core).await;
        }
    }

    async fn pause(&self, core: &Rc<Core>) {
        match core.reactor().random() % 4 {
            0 => core.reactor().sleep(core.reactor().random() % 30_000).await,
            _ => core.reactor().yield_now().await,
        }
    }
}
