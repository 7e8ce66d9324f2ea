//! A disk in memory that answers by its mode, with a geom that counts its opens.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use bio::{Attr, Errno};
use geom::{Access, Error, Geom, GeomId, Limits, ProviderId, Topology};
use testkit::disk::{Disk, Provider};

pub use testkit::disk::Mode;

pub struct Leaf {
    disk: Arc<Disk>,
    pub opens: Mutex<Access>,
    /// Next access with a positive delta fails with it.
    pub refuse: Mutex<Option<Errno>>,
    pub limits: Limits,
}

impl Deref for Leaf {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        &self.disk
    }
}

impl Leaf {
    pub fn new(bytes: u64) -> Arc<Leaf> {
        Leaf::shaped(Provider::new("", bytes).limits)
    }

    pub fn shaped(limits: Limits) -> Arc<Leaf> {
        let disk = Disk::new(limits.media_bytes);
        Arc::new(Leaf { disk, opens: Mutex::default(), refuse: Mutex::default(), limits })
    }

    pub fn create(self: &Arc<Self>, t: &mut Topology, name: &str) -> Result<ProviderId, Error> {
        let ident = Attr::Text(format!("ident of {name}"));
        let mut provider = Provider::new(name, 0).with_attrs(&[("GEOM::ident", ident)]);
        provider.limits = self.limits;
        provider.make_in(t, self.disk.clone(), Box::new(LeafGeom(self.clone())))
    }
}

pub struct LeafGeom(Arc<Leaf>);

impl Geom for LeafGeom {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let positive = delta.r > 0 || delta.w > 0 || delta.e > 0;
        if positive && let Some(e) = self.0.refuse.lock().unwrap().take() {
            return Err(e);
        }
        let mut opens = self.0.opens.lock().unwrap();
        *opens = opens.plus(delta);
        let whole = opens.r >= 0 && opens.w >= 0 && opens.e >= 0;
        assert!(whole, "the geom was told of more closes than opens: {opens}");
        Ok(())
    }
}
