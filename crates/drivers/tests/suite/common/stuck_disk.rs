//! A disk on which nothing ends while a switch is on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bio::{Bio, Errno};
use geom::{Control, Core, Flow, Layer};

use super::disk;

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

/// Adds a disk called `stuck`; answers its switch.
pub fn add(control: &mut Control) -> Arc<AtomicBool> {
    let switch = Arc::new(AtomicBool::new(false));
    disk::add(control, "stuck", STUCK_BYTES, Arc::new(StuckDisk(switch.clone())));
    switch
}
