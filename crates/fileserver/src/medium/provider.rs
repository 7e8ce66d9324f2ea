//! A provider of the graph.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bio::{Errno, Op, Segs};
use geom::{Core, Edge, Local};

use super::Medium;

/// A provider that the file server opened.
pub struct Provider {
    name: String,
    core: Rc<Core>,
    edge: Edge,
    size: Arc<AtomicU64>,
}

impl Provider {
    /// `edge` leads to a provider of `size` bytes, opened for reading and writing.
    pub fn new(name: &str, core: Rc<Core>, edge: Edge, size: u64) -> Provider {
        Provider::growing(name, core, edge, Arc::new(size.into()))
    }

    /// One whose size somebody else keeps true.
    pub fn growing(name: &str, core: Rc<Core>, edge: Edge, size: Arc<AtomicU64>) -> Provider {
        Provider { name: name.into(), core, edge, size }
    }

    async fn io(&self, op: Op, at: u64, data: Segs) -> Result<(), Errno> {
        let len = data.len() as u64;
        let done = self
            .core
            .io(self.edge, |bio| {
                bio.op = op;
                bio.offset = at;
                bio.length = len;
                bio.data = data;
            })
            .await;
        done.status?;
        if done.completed == len { Ok(()) } else { Err(Errno::Io) }
    }
}

impl Medium for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(self.io(Op::Read, at, into))
    }

    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(self.io(Op::Write, at, from))
    }

    fn flush(&self) -> Local<'_, Result<(), Errno>> {
        Box::pin(self.core.flush(self.edge))
    }
}
