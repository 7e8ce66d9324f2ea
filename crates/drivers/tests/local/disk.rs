//! A disk in memory that answers after a while, in any order, and fails now and then.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bio::{Bio, Errno, Op};
use geom::{
    Access, Class, Control, Core, Flow, Geom, GeomId, Layer, Limits, NewProvider, ProviderId,
    Topology,
};

/// Longest time that a request takes, ns.
const SLOWEST_NS: u64 = 3_000_000;

struct SlowDisk {
    bytes: Mutex<Vec<u8>>,
    /// Requests of a thousand that fail; half of the writes that fail are done.
    failing: Arc<AtomicU64>,
}

impl Layer for SlowDisk {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        core.wake(bio.ticket(), core.reactor().random() % SLOWEST_NS);
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let fails = core.reactor().random() % 1000 < self.failing.load(Ordering::Relaxed);
        if fails && core.reactor().random().is_multiple_of(2) {
            return Flow::Done(Err(Errno::Io));
        }
        let mut bytes = self.bytes.lock().unwrap();
        let range = bio.offset as usize..(bio.offset + bio.length) as usize;
        match bio.op {
            Op::Read => {
                bio.data.copy_from(0, &bytes[range]);
            }
            Op::Write => {
                bio.data.copy_to(0, &mut bytes[range]);
            }
            Op::Delete | Op::WriteZeroes => bytes[range].fill(0),
            Op::Flush | Op::GetAttr | Op::Map => {}
        }
        Flow::Done(if fails { Err(Errno::Io) } else { Ok(()) })
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

struct SlowClass;

impl Class for SlowClass {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn doc(&self) -> &'static str {
        "Disks for tests that take their time."
    }
}

/// Adds a disk of `len` bytes called `slow`.
pub fn add(control: &mut Control, len: usize, failing: Arc<AtomicU64>) {
    control.topology.load(Arc::new(SlowClass)).unwrap();
    let layer = Arc::new(SlowDisk { bytes: Mutex::new(vec![0; len]), failing });
    let made = control.call(|t| {
        let geom = t.new_geom("slow", "slow", "test", Box::new(Plain))?;
        let limits = Limits {
            media_bytes: len as u64,
            sector_bytes: 512,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        };
        t.new_provider(
            geom,
            NewProvider {
                name: "slow".into(),
                layer,
                limits,
                stripe_bytes: 0,
                stripe_offset: 0,
                attrs: Vec::new(),
            },
        )
    });
    made.unwrap();
}
