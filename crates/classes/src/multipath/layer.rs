//! The data path of a multipath device.
//!
//! ```text
//!   start: choose a path --> down --> EIO, ENXIO? --> another path, until each was asked
//!                |                                        |
//!                +-- none is good, and requests may wait -+--> wait --> a path is back: again
//!                |                                        |             time is up: ENXIO
//!                +-- none, or each was asked -------------+--> error
//! ```
//!
//! Invariants
//!  L1  A request goes by no path twice, but once more after it has waited.
//!  L2  Only EIO and ENXIO speak of the path; other errors are the request's own.
//!  L3  What fails everywhere after it has waited ends with its error: it waits again only for
//!      ENXIO, which no medium answers.

use std::sync::Arc;

use bio::{Bio, Errno, Op};
use geom::{Back, Core, Edge, Flow, Layer};

use super::metadata::Mode;
use super::shared::{LaneState, Path, Shared, Told};

/// The layer.
pub(super) struct MultipathLayer(pub(super) Arc<Shared>);

/// A frame's word: in 0..32 the paths that were tried, a bit a slot; in 32..40 the slot of the one
/// that has it; in 40..56 that one's round; then flags.
#[derive(Clone, Copy)]
struct Word(u64);

/// It is counted in the path's load.
const COUNTED: u64 = 1 << 56;
/// The path was not good when it was chosen.
const LAST_HOPE: u64 = 1 << 57;
/// The request has waited for a path.
const WAITED: u64 = 1 << 58;

impl Word {
    fn new(path: &Path, tried: u32, flags: u64) -> Word {
        Word(u64::from(tried) | path.in_frame() | flags)
    }

    fn tried(self) -> u32 {
        self.0 as u32
    }

    fn slot(self) -> usize {
        usize::from((self.0 >> 32) as u8)
    }

    fn round(self) -> u16 {
        (self.0 >> 40) as u16
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

/// The path for a request that has not tried it.
fn choose(lane: &mut LaneState, op: Op, tried: u32, waited: u64) -> Option<(Edge, Word)> {
    let LaneState { table, bad, loads, choices, .. } = lane;
    let not = *bad | tried;
    let spreads = match table.mode {
        Mode::Passive => false,
        Mode::Active => true,
        Mode::Read => op == Op::Read,
    };
    let chosen = if spreads {
        let good = table.paths.iter().filter(|p| p.good && not & p.bit() == 0);
        let mut least: Option<(&Path, _)> = None;
        for path in good {
            let load = loads.get(path.slot).map_or((0, 0), |l| (l.in_flight, l.chosen));
            let load = (!path.best, load);
            if least.is_none_or(|(_, least)| load < least) {
                least = Some((path, load));
            }
        }
        least.map(|(path, _)| path)
    } else {
        table.straight(not)
    };
    if let Some(path) = chosen {
        let mut flags = waited;
        if spreads && let Some(load) = loads.get_mut(path.slot) {
            *choices += 1;
            *load = super::shared::Load { in_flight: load.in_flight + 1, chosen: *choices };
            flags |= COUNTED;
        }
        return Some((path.edge, Word::new(path, tried, flags)));
    }
    if table.queues && table.checked {
        return None;
    }
    // Nothing good is left: one that failed may serve it all the same.
    let path = table.paths.iter().find(|p| tried & p.bit() == 0)?;
    Some((path.edge, Word::new(path, tried, waited | LAST_HOPE)))
}

impl MultipathLayer {
    /// The way of nearly every request that is not spread, without a call; else [`Self::send`].
    #[inline(always)]
    fn send_at_once(&self, core: &Core) -> Option<Flow> {
        let path = self.0.straight(core.id() as usize)?;
        Some(Flow::Down(path.edge(), path.in_frame()))
    }

    /// Sends it on, has it wait, or gives up with `error`.
    #[inline(never)]
    fn send(&self, bio: &Bio, core: &Core, tried: u32, waited: u64, error: Errno) -> Flow {
        let chosen = choose(&mut self.0.lane(core.id() as usize), bio.op, tried, waited);
        match chosen {
            Some((edge, word)) => Flow::Down(edge, word.0),
            None => self.without(bio, core, tried, waited, error),
        }
    }

    /// There is no path for it.
    #[cold]
    fn without(&self, bio: &Bio, core: &Core, tried: u32, waited: u64, error: Errno) -> Flow {
        let at = core.id() as usize;
        let table = {
            let mut lane = self.0.lane(at);
            if !lane.table.queues || (waited != 0 && error != Errno::NxIo) {
                return Flow::Done(Err(error));
            }
            if lane.table.paths.iter().any(|p| p.good && lane.bad & p.bit() == 0) {
                // One that it had tried is back already. L1
                return match (waited, choose(&mut lane, bio.op, 0, WAITED)) {
                    (0, Some((edge, word))) => Flow::Down(edge, word.0),
                    _ => Flow::Done(Err(error)),
                };
            }
            lane.table.clone()
        };
        match self.0.wait(at, &table, bio.ticket()) {
            true => Flow::Wait,
            // T2: the paths have changed meanwhile.
            false => self.send(bio, core, tried, waited, error),
        }
    }

    /// A path failed it: the geom hears of it, this core stays clear of the path, and the request
    /// goes on.
    fn failed(&self, bio: &Bio, word: Word, core: &Core, error: Errno) -> Back {
        let (slot, round) = (word.slot(), word.round());
        self.0.close(core.id() as usize);
        let tried = {
            let mut lane = self.0.lane(core.id() as usize);
            let bit = 1u32.checked_shl(slot as u32).unwrap_or(0);
            if lane.table.paths.iter().any(|p| p.slot == slot && p.round == round) {
                lane.bad |= bit;
            }
            word.tried() | bit
        };
        self.0.tell(Told::Failed { slot, round, tried });
        match self.send(bio, core, tried, word.0 & WAITED, error) {
            Flow::Done(_) => Back::Up,
            flow => Back::Go(flow),
        }
    }

    /// The counts of a request that has come back, what it says of its path, and its error.
    #[inline(never)]
    fn end(&self, bio: &mut Bio, word: Word, core: &Core) -> Back {
        if word.has(COUNTED) {
            let mut lane = self.0.lane(core.id() as usize);
            if let Some(load) = lane.loads.get_mut(word.slot()) {
                load.in_flight = load.in_flight.saturating_sub(1);
            }
        }
        match bio.status {
            Err(error @ (Errno::Io | Errno::NxIo)) => self.failed(bio, word, core, error),
            _ => {
                if word.has(LAST_HOPE) {
                    self.0.tell(Told::Works { slot: word.slot(), round: word.round() });
                }
                Back::Up
            }
        }
    }
}

impl Layer for MultipathLayer {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        match self.send_at_once(core) {
            Some(flow) => flow,
            None => self.send(bio, core, 0, 0, Errno::NxIo),
        }
    }

    /// A path is back, or there will be none.
    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        self.send(bio, core, 0, WAITED, Errno::NxIo)
    }

    fn done(&self, bio: &mut Bio, word: u64, core: &Core) -> Back {
        if bio.status.is_ok() && !Word(word).has(COUNTED | LAST_HOPE) {
            return Back::Up;
        }
        self.end(bio, Word(word), core)
    }
}
