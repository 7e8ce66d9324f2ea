//! Disks of tests.
//!
//! * [`Provider`]: a provider of any layer, with a geom that refuses no one.
//! * [`Media`]: the contents of a disk, and the part of them that survives a power cut.
//! * [`Disk`]: a disk in memory whose answers a test scripts.
//! * [`carry_out`]: requests on a model of a disk, for layers with faults of their own.

mod media;
mod modelled;
mod scripted;

use std::sync::Arc;

use bio::Attr;
use geom::{Class, Error, Geom, GraphControl, Layer, Limits, NewProvider, ProviderId, Topology};

pub use media::Media;
pub use modelled::{carry_out, model_op};
pub use scripted::{Asked, Disk, Mode, SLOW};

/// The class of all disks of tests.
pub const CLASS: &str = "test";

/// Adds a disk from outside of the topology.
///
/// # Panics
///
/// When the topology refuses it.
pub fn add(control: &mut GraphControl, provider: Provider, layer: Arc<dyn Layer>) -> ProviderId {
    load(&mut control.topology);
    control.call(|t| provider.make(t, layer)).expect("a disk")
}

/// Loads [`CLASS`] if it is not there.
pub fn load(t: &mut Topology) {
    if t.class(CLASS).is_none() {
        t.load(Arc::new(Disks)).expect("a new class");
    }
}

struct Disks;

impl Class for Disks {
    fn name(&self) -> &'static str {
        CLASS
    }

    fn doc(&self) -> &'static str {
        "Disks of tests."
    }
}

/// The geom of a disk: it has nothing below and refuses no one.
pub struct Open;

impl Geom for Open {}

/// Properties of a disk's provider.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its name, and that of its geom.
    pub name: String,
    /// Sizes in bytes.
    pub limits: Limits,
    /// Bytes of a stripe, and where the first begins.
    pub stripe: (u64, u64),
    /// Answers to GETATTR.
    pub attrs: Vec<(&'static str, Attr)>,
}

impl Provider {
    /// Of so many bytes in sectors of 512, without other limits.
    pub fn new(name: &str, media_bytes: u64) -> Provider {
        let limits =
            Limits { media_bytes, sector_bytes: 512, io_max_bytes: 0, delete_max_bytes: 0 };
        Provider { name: name.into(), limits, stripe: (0, 0), attrs: Vec::new() }
    }

    /// The same, which takes so many bytes at a time; 0: any number.
    pub fn io_max(mut self, bytes: u32) -> Provider {
        self.limits.io_max_bytes = bytes;
        self
    }

    /// The same in sectors of so many bytes.
    pub fn sector(mut self, bytes: u32) -> Provider {
        self.limits.sector_bytes = bytes;
        self
    }

    /// The same in stripes of so many bytes, the first of which begins there.
    pub fn stripe(mut self, bytes: u64, offset: u64) -> Provider {
        self.stripe = (bytes, offset);
        self
    }

    /// The same with more attributes.
    pub fn with_attrs(mut self, attrs: &[(&'static str, Attr)]) -> Provider {
        self.attrs.extend_from_slice(attrs);
        self
    }

    /// Made of this layer, with a geom of [`CLASS`], which is loaded.
    pub fn make(self, t: &mut Topology, layer: Arc<dyn Layer>) -> Result<ProviderId, Error> {
        self.make_in(t, layer, Box::new(Open))
    }

    /// The same with another geom.
    pub fn make_in(
        self,
        t: &mut Topology,
        layer: Arc<dyn Layer>,
        geom: Box<dyn Geom>,
    ) -> Result<ProviderId, Error> {
        let geom = t.new_geom(CLASS, &self.name, "a test", geom)?;
        let Provider { name, limits, stripe: (stripe_bytes, stripe_offset), attrs } = self;
        let made = NewProvider { name, layer, limits, stripe_bytes, stripe_offset, attrs };
        t.new_provider(geom, made)
    }
}
