//! A disk of a test's own: its layer, and nothing that could refuse anybody.

use std::any::Any;
use std::sync::Arc;

use bio::{Attr, Errno};
use geom::{
    Access, Class, Control, Geom, GeomId, Layer, Limits, NewProvider, ProviderId, Topology,
};

struct Plain;

impl Geom for Plain {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        Ok(())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

struct Disks(&'static str);

impl Class for Disks {
    fn name(&self) -> &'static str {
        self.0
    }

    fn doc(&self) -> &'static str {
        "Disks for tests."
    }
}

/// Adds a disk of `len` bytes in sectors of 512, and the class that bears its name.
pub fn add(control: &mut Control, name: &'static str, len: u64, layer: Arc<dyn Layer>) {
    add_with(control, name, len, layer, &[]);
}

/// The same, which says more of itself.
pub fn add_with(
    control: &mut Control,
    name: &'static str,
    len: u64,
    layer: Arc<dyn Layer>,
    more: &[(&'static str, Attr)],
) {
    control.topology.load(Arc::new(Disks(name))).unwrap();
    let limits =
        Limits { media_bytes: len, sector_bytes: 512, io_max_bytes: 0, delete_max_bytes: 0 };
    let provider = NewProvider {
        name: name.into(),
        layer,
        limits,
        stripe_bytes: 0,
        stripe_offset: 0,
        // It looks at data wherever that lies: drivers lend it what they have received.
        attrs: [&[("ASHLAR::any_memory", Attr::Int(1))], more].concat(),
    };
    let made = control.call(|t| {
        let geom = t.new_geom(name, name, "test", Box::new(Plain))?;
        t.new_provider(geom, provider)
    });
    made.unwrap();
}
