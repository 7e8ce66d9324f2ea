//! A disk in memory that answers after a while, in any order, and fails when it is told to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bio::{Bio, Errno, Op};
use geom::{Control, Core, Flow, Layer};

use super::disk;

/// Longest time that a request takes, ns.
const SLOWEST_NS: u64 = 3_000_000;

struct SlowDisk {
    bytes: Mutex<Vec<u8>>,
    /// Requests of a thousand that fail; half of the writes that fail are done.
    failing: Arc<AtomicU64>,
    /// Nothing ends while it is set.
    held: Arc<AtomicBool>,
}

impl Layer for SlowDisk {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        core.wake(bio.ticket(), core.reactor().random() % SLOWEST_NS);
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        if self.held.load(Ordering::Relaxed) {
            return self.start(bio, core);
        }
        let failing = self.failing.load(Ordering::Relaxed);
        let fails = failing > 0 && core.reactor().random() % 1000 < failing;
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

/// Adds a disk of `len` bytes called `slow`, of whose requests `failing` in a thousand fail;
/// answers the switch that holds them all.
pub fn add(control: &mut Control, len: usize, failing: Arc<AtomicU64>) -> Arc<AtomicBool> {
    let held = Arc::<AtomicBool>::default();
    let bytes = Mutex::new(vec![0; len]);
    let layer = Arc::new(SlowDisk { bytes, failing, held: held.clone() });
    disk::add(control, "slow", len as u64, layer);
    held
}
