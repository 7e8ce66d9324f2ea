//! A layer that passes everything on.

use std::sync::Arc;

use bio::{Bio, Errno};
use geom::{
    Access, Back, Class, ConsumerId, Core, Create, Edge, Error, Flow, Geom, GeomId, Layer,
    NewProvider, ProviderId, Topology,
};

/// Words in the parameters: `extra-e` takes an e below while open, `smaller` hides the last sector,
/// `keeps` has the disk open for itself, `refuses` cannot be opened, `spoils`, `resizes`,
/// `waits` holds every request for 50 us.
pub struct PassThrough {
    params: String,
}

impl PassThrough {
    fn has(&self, word: &str) -> bool {
        self.params.split(' ').any(|w| w == word)
    }
}

struct PassThroughLayer {
    below: Edge,
    waits: bool,
}

/// The word that a shim gets back in `done`.
const WORD: u64 = 0x5113;

impl Layer for PassThroughLayer {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if self.waits {
            core.after(50_000, bio.ticket(), Flow::Down(self.below, WORD));
            return Flow::Wait;
        }
        Flow::Down(self.below, WORD)
    }

    fn done(&self, _: &mut Bio, word: u64, _: &Core) -> Back {
        assert_eq!(word, WORD, "a request came up through a layer that it did not go down");
        Back::Up
    }
}

impl Geom for PassThrough {
    fn access(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        _: ProviderId,
        mut delta: Access,
    ) -> Result<(), Errno> {
        let positive = delta.r > 0 || delta.w > 0 || delta.e > 0;
        if positive && self.has("refuses") {
            return Err(Errno::Perm);
        }
        if self.has("keeps") {
            return Ok(());
        }
        if self.has("extra-e") {
            let was = t.consumers_of(me).first().map_or(Access::NONE, |c| t.consumer_counts(*c));
            let extra = i32::from(was != Access::NONE);
            let upper = Access { e: was.e - extra, ..was }.plus(delta);
            delta.e += i32::from(upper != Access::NONE) - extra;
        }
        t.access_all_below(me, delta)
    }

    fn spoils(&self) -> bool {
        self.has("spoils")
    }

    fn resizes(&self) -> bool {
        self.has("resizes")
    }

    fn resized(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let Some(limits) = t.below(consumer).and_then(|p| t.limits(p)) else { return };
        for p in t.providers_of(me).to_vec() {
            t.post(geom::Event::Resize(p, limits.media_bytes));
        }
    }
}

pub struct PassThroughClass;

impl Class for PassThroughClass {
    fn name(&self) -> &'static str {
        "shim"
    }

    fn doc(&self) -> &'static str {
        "Layers that pass everything on."
    }

    fn create(&self, t: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let below = request.members.first().copied();
        let below = below.ok_or_else(|| Error::of(Errno::Inval, "a disk is needed"))?;
        let params = request.params.as_str().unwrap_or("").to_string();
        if params == "impossible" {
            return Err(Error::of(Errno::NoSys, "this one cannot be made"));
        }
        let shim = PassThrough { params };
        let (smaller, keeps, waits) = (shim.has("smaller"), shim.has("keeps"), shim.has("waits"));
        let geom = t.new_geom("shim", request.name, "a test", Box::new(shim))?;
        fill(t, geom, request.name, below, smaller, waits)?;
        let own = t.consumers_of(geom)[0];
        if keeps && let Err(e) = t.access(own, Access::EXCLUSIVE) {
            t.wither_geom(geom, Errno::NxIo);
            return Err(Error::of(e, "keeping it open"));
        }
        Ok(geom)
    }
}

pub fn plain(params: &str) -> Box<dyn Geom> {
    Box::new(PassThrough { params: params.into() })
}

/// Gives a geom its consumer on `below` and its provider; withers it when that fails.
pub fn fill(
    t: &mut Topology,
    geom: GeomId,
    name: &str,
    below: ProviderId,
    smaller: bool,
    waits: bool,
) -> Result<GeomId, Error> {
    let filled = t.attach_new(geom, below).map_err(|e| Error::of(e, "attach")).and_then(|c| {
        let mut limits = t.limits(below).expect("it exists");
        limits.io_max_bytes = 0;
        limits.delete_max_bytes = 0;
        if smaller {
            limits.media_bytes -= u64::from(limits.sector_bytes);
        }
        let new = NewProvider {
            name: name.into(),
            layer: Arc::new(PassThroughLayer { below: t.edge(c), waits }),
            limits,
            stripe_bytes: 0,
            stripe_offset: 0,
            attrs: Vec::new(),
        };
        t.new_provider(geom, new)
    });
    match filled {
        Ok(_) => Ok(geom),
        Err(e) => {
            t.wither_geom(geom, Errno::NxIo);
            Err(e)
        }
    }
}
