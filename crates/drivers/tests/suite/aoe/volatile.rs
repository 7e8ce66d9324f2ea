//! A disk with a write cache that is lost with the power.

use std::sync::{Arc, Mutex};

use bio::{Attr, Bio, Errno};
use geom::{Core, Flow, GraphControl, Layer};
use testkit::disk::Media;

use crate::common::disk;

/// Longest time that a request takes, ns.
const SLOWEST_NS: u64 = 2_000_000;

struct VolatileState {
    media: Media,
    /// Until then requests that were in flight at a power cut fail.
    down_until: u64,
}

/// See the module.
pub struct Volatile(Mutex<VolatileState>);

impl Volatile {
    /// Adds one of `len` bytes called `slow`.
    pub fn add(control: &mut GraphControl, len: usize) -> Arc<Volatile> {
        Volatile::add_as(control, "slow", len)
    }

    /// Adds one of another name.
    pub fn add_as(control: &mut GraphControl, name: &'static str, len: usize) -> Arc<Volatile> {
        let state = VolatileState { media: Media::cached(len), down_until: 0 };
        let disk = Arc::new(Volatile(Mutex::new(state)));
        let attrs = [("GEOM::candelete", Attr::Int(1)), ("GEOM::deletereadszero", Attr::Int(1))];
        disk::add_with(control, name, len as u64, disk.clone(), &attrs);
        disk
    }

    /// The power is cut and restored: for each sector in the cache `keeps` decides whether it was
    /// written.
    pub fn cut(&self, now_ns: u64, keeps: &mut dyn FnMut() -> bool) {
        let state = &mut *self.0.lock().unwrap();
        state.down_until = now_ns + SLOWEST_NS;
        state.media.cut(keeps);
    }

    /// Bytes as they read.
    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.0.lock().unwrap().media.bytes[at..at + len].to_vec()
    }
}

impl Layer for Volatile {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        core.wake(bio.ticket(), core.reactor().random() % SLOWEST_NS);
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let state = &mut *self.0.lock().unwrap();
        let fails = core.now() < state.down_until;
        if fails && core.reactor().random().is_multiple_of(2) {
            return Flow::Done(Err(Errno::Io));
        }
        let done = state.media.carry_out(bio);
        Flow::Done(if fails { Err(Errno::Io) } else { done })
    }
}
