//! A provider of the graph.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use bio::{Errno, Op, Segs};
use geom::{Core, Edge, Local};

use super::Medium;

/// The path to a provider that may disappear, return and grow: the owner of the graph updates it.
#[derive(Clone, Debug)]
pub struct ProviderPath {
    edge: Arc<AtomicU32>,
    size: Arc<AtomicU64>,
}

impl ProviderPath {
    /// To a provider of so many bytes.
    pub fn new(edge: Edge, size: u64) -> ProviderPath {
        ProviderPath { edge: Arc::new(edge.0.into()), size: Arc::new(size.into()) }
    }

    /// It is another one from now on.
    pub fn redirect(&self, edge: Edge) {
        self.edge.store(edge.0, Relaxed);
    }

    /// The provider has so many bytes now.
    pub fn resize(&self, size: u64) {
        self.size.store(size, Relaxed);
    }

    fn edge(&self) -> Edge {
        Edge(self.edge.load(Relaxed))
    }
}

/// A provider that the file server opened.
pub struct Provider {
    name: String,
    core: Rc<Core>,
    path: ProviderPath,
}

impl Provider {
    /// `edge` leads to a provider of `size` bytes, opened for reading and writing.
    pub fn new(name: &str, core: Rc<Core>, edge: Edge, size: u64) -> Provider {
        Provider::with_path(name, core, ProviderPath::new(edge, size))
    }

    /// The same by a path that another object owns.
    pub fn with_path(name: &str, core: Rc<Core>, way: ProviderPath) -> Provider {
        Provider { name: name.into(), core, path: way }
    }

    async fn io(&self, op: Op, at: u64, data: Segs) -> Result<(), Errno> {
        let len = data.len() as u64;
        let done = self
            .core
            .io(self.path.edge(), |bio| {
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
        self.path.size.load(Relaxed)
    }

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(self.io(Op::Read, at, into))
    }

    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(self.io(Op::Write, at, from))
    }

    fn flush(&self) -> Local<'_, Result<(), Errno>> {
        Box::pin(self.core.flush(self.path.edge()))
    }
}
