//! A disk on which nothing ends while a switch is on.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bio::{Bio, Errno};
use geom::{
    Access, Class, Control, Core, Flow, Geom, GeomId, Layer, Limits, NewProvider, ProviderId,
    Topology,
};

/// Bytes of the disk.
pub const STUCK_BYTES: u64 = 16 << 20;

/// How often the switch is looked at, ns.
const LOOK_NS: u64 = 5_000_000;

struct StuckDisk(Arc<AtomicBool>);

impl Layer for StuckDisk {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if !self.0.load(Ordering::Acquire) {
            return Flow::Done(Ok(()));
        }
        core.wake(bio.ticket(), LOOK_NS);
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        self.start(bio, core)
    }
}

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

struct StuckClass;

impl Class for StuckClass {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn doc(&self) -> &'static str {
        "Disks for tests that hang."
    }
}

/// Adds a disk called `stuck`; answers its switch.
pub fn add(control: &mut Control) -> Arc<AtomicBool> {
    let switch = Arc::new(AtomicBool::new(false));
    control.topology.load(Arc::new(StuckClass)).unwrap();
    let layer = Arc::new(StuckDisk(switch.clone()));
    let made = control.call(|t| {
        let geom = t.new_geom("stuck", "stuck", "test", Box::new(Plain))?;
        let limits = Limits {
            media_bytes: STUCK_BYTES,
            sector_bytes: 512,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        };
        t.new_provider(
            geom,
            NewProvider {
                name: "stuck".into(),
                layer,
                limits,
                stripe_bytes: 0,
                stripe_offset: 0,
                attrs: Vec::new(),
            },
        )
    });
    made.unwrap();
    switch
}
