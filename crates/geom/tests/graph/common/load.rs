//! Continuous load: tasks that write a block several times without waiting, and read it back.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bio::{End, Op, Segs};
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
            for _ in 0..2 {
                version += 1;
                let Some(data) = Segs::alloc(core.pool(), BLOCK as usize) else { continue };
                data.copy_from(0, &pattern(at, BLOCK, version));
                core.submit(edge, End::Nobody, |b| {
                    b.op = Op::Write;
                    b.offset = at;
                    b.length = BLOCK;
                    b.data = data;
                });
            }
            version += 1;
            core.write(edge, at, &pattern(at, BLOCK, version)).await.expect("a write under load");
            let read = core.read(edge, at, BLOCK as usize).await.expect("a read under load");
            assert!(read == pattern(at, BLOCK, version), "block {block} is not version {version}");
            self.rounds.fetch_add(1, Relaxed);
            match core.reactor().random() % 4 {
                0 => core.reactor().sleep(core.reactor().random() % 30_000).await,
                _ => core.reactor().yield_now().await,
            }
        }
    }
}
