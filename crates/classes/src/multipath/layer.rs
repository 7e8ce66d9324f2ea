//! The data path of a multipath device.
//!
//! ```text
//!   start: choose a path --> down --> EIO, ENXIO? --> another path, until each was tried
//!                |            +--> EAGAIN, in haste? -----+  (L4)
//!                |                                        |
//!                +-- none is good, and requests may wait -+--> wait --> a path is back: again
//!                |                                        |             time is up: ENXIO
//!                +-- none, or each was tried -------------+--> error
//! ```
//!
//! Invariants
//!  L1  A request uses no path twice, except once more after it has waited, and on paths that it
//!      left with EAGAIN.
//!  L2  Only EIO and ENXIO are errors of the path; other errors belong to the request.
//!  L3  A request that fails everywhere after it has waited ends with its error: it waits again
//!      only for ENXIO, which no medium answers.
//!  L4  While another path is good a request is sent fail-fast ([`Flags::FAIL_FAST`]), a limited
//!      number of times. A path on which it would have waited has not failed. When no good path is
//!      left, it is sent without the flag on a path that it, or another request, has left so.

use std::sync::Arc;

use bio::{Bio, Errno, Flags, Op};
use geom::{Back, Core, Edge, Flow, Layer};

use super::metadata::Mode;
use super::shared::{CoreState, HASTY, Message, MultipathShared, Path};

pub(super) struct MultipathLayer(pub(super) Arc<MultipathShared>);

/// A frame's word: in 0..32 the paths that were tried, a bit a slot; in 32..37 the slot of the
/// present path; in 37..40 how many the request left with EAGAIN; in 40..56 the round of the
/// present path; then flags.
#[derive(Clone, Copy)]
struct PathFrame(u64);

/// It is counted in the path's load.
const COUNTED: u64 = 1 << 56;
/// The path was not good when it was chosen.
const LAST_RESORT: u64 = 1 << 57;
/// The request has waited for a path.
const WAITED: u64 = 1 << 58;
/// L4: one path left. After [`LEFT_MOST`] the request is no longer sent fail-fast. Paths that are
/// known to be in transition are not tried at all, so a request will hardly ever leave so many.
const LEFT: u64 = 1 << 37;
const LEFT_MOST: u64 = 7 * LEFT;
/// The bits that stay with the request.
const KEPT: u64 = WAITED | LEFT_MOST;

impl PathFrame {
    fn new(path: &Path, tried: u32, flags: u64) -> PathFrame {
        PathFrame(u64::from(tried) | path.in_frame() | flags)
    }

    fn tried(self) -> u32 {
        self.0 as u32
    }

    fn slot(self) -> usize {
        ((self.0 >> 32) & 0x1f) as usize
    }

    fn round(self) -> u16 {
        (self.0 >> 40) as u16
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

/// The state of a request for the choice of a path.
#[derive(Clone, Copy)]
struct PathChoice {
    /// Paths it has tried, a bit a slot.
    tried: u32,
    /// Of [`KEPT`].
    kept: u64,
    /// The consumer above already set fail-fast.
    is_hasty: bool,
}

impl PathChoice {
    fn new(bio: &Bio, tried: u32, kept: u64) -> PathChoice {
        PathChoice { tried, kept, is_hasty: bio.flags.has(Flags::FAIL_FAST) }
    }
}

/// The path for a request that has not tried it.
fn choose(core_state: &mut CoreState, op: Op, way: PathChoice) -> Option<(Edge, PathFrame)> {
    let CoreState { table, bad, left_with_eagain: left, loads, choices } = core_state;
    let PathChoice { tried, kept, is_hasty } = way;
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
        table.direct_path(not)
    };
    if let Some(path) = chosen {
        let mut flags = kept;
        if !is_hasty && kept & LEFT_MOST != LEFT_MOST && table.has_other(path, not) {
            flags |= HASTY;
        }
        if spreads && let Some(load) = loads.get_mut(path.slot) {
            *choices += 1;
            *load = super::shared::Load { in_flight: load.in_flight + 1, chosen: *choices };
            flags |= COUNTED;
        }
        return Some((path.edge, PathFrame::new(path, tried, flags)));
    }
    // Nothing good is left: one that is in transition (L4), or failed, may serve it all the same.
    let mut others = table.paths.iter().filter(|p| tried & p.bit() == 0);
    let soon = |p: &&Path| p.in_transition || *left & p.bit() != 0;
    let any = !(table.queues && table.checked);
    let path = others.clone().find(soon).or_else(|| others.next().filter(|_| any))?;
    Some((path.edge, PathFrame::new(path, tried, kept | LAST_RESORT)))
}

/// As a path was chosen.
fn down(bio: &mut Bio, (edge, word): (Edge, PathFrame)) -> Flow {
    if word.has(HASTY) {
        bio.flags |= Flags::FAIL_FAST;
    }
    Flow::Down(edge, word.0)
}

impl MultipathLayer {
    /// The path of nearly every request that is not spread, without a call; else [`Self::send`].
    #[inline(always)]
    fn send_at_once(&self, bio: &mut Bio, core: &Core) -> Option<Flow> {
        let path = self.0.direct_path(core.id() as usize)?;
        let word = path.in_frame();
        if word & HASTY != 0 {
            if bio.flags.has(Flags::FAIL_FAST) {
                return None;
            }
            bio.flags |= Flags::FAIL_FAST;
        }
        Some(Flow::Down(path.edge(), word))
    }

    /// Sends it on, has it wait, or gives up with `error`.
    #[inline(never)]
    fn send(&self, bio: &mut Bio, core: &Core, tried: u32, kept: u64, error: Errno) -> Flow {
        let way = PathChoice::new(bio, tried, kept);
        let chosen = choose(&mut self.0.core_state(core.id() as usize), bio.op, way);
        match chosen {
            Some(chosen) => down(bio, chosen),
            None => self.without_path(bio, core, way, error),
        }
    }

    /// There is no path for it.
    #[cold]
    fn without_path(&self, bio: &mut Bio, core: &Core, way: PathChoice, error: Errno) -> Flow {
        let at = core.id() as usize;
        let waited = way.kept & WAITED != 0;
        let table = {
            let mut core_state = self.0.core_state(at);
            if !core_state.table.queues || (waited && error != Errno::NxIo) {
                return Flow::Done(Err(error));
            }
            if core_state.table.paths.iter().any(|p| p.good && core_state.bad & p.bit() == 0) {
                if waited {
                    return Flow::Done(Err(error));
                }
                // One that it had tried is back already. L1
                let chosen =
                    choose(&mut core_state, bio.op, PathChoice { tried: 0, kept: WAITED, ..way });
                return match chosen {
                    Some(chosen) => down(bio, chosen),
                    None => Flow::Done(Err(error)),
                };
            }
            core_state.table.clone()
        };
        match self.0.wait(at, &table, bio.ticket()) {
            true => Flow::Wait,
            // T2: the paths have changed meanwhile.
            false => self.send(bio, core, way.tried, way.kept, error),
        }
    }

    /// A request failed on a path, or left it. The geom is notified, this core avoids the path, and
    /// the request continues.
    fn failed(&self, bio: &mut Bio, word: PathFrame, core: &Core, error: Errno) -> Back {
        let (slot, round) = (word.slot(), word.round());
        let (is_left, mut kept) = (error == Errno::Again, word.0 & KEPT);
        self.0.close(core.id() as usize);
        let tried = {
            let mut core_state = self.0.core_state(core.id() as usize);
            let bit = 1u32.checked_shl(slot as u32).unwrap_or(0);
            if core_state.table.paths.iter().any(|p| p.slot == slot && p.round == round) {
                core_state.bad |= bit;
                core_state.left_with_eagain |= if is_left { bit } else { 0 };
            }
            word.tried() | if is_left { 0 } else { bit }
        };
        let mut error = error;
        if is_left {
            kept += LEFT;
            // The consumer above did not set fail-fast.
            error = Errno::NxIo;
            bio.status = Err(error);
            self.0.post(Message::Left { slot, round });
        } else {
            self.0.post(Message::Failed { slot, round, tried });
        }
        match self.send(bio, core, tried, kept, error) {
            Flow::Done(_) => Back::Up,
            flow => Back::Go(flow),
        }
    }

    /// Ends a returned request: updates the counts, reports the state of its path, and decides on
    /// its error.
    #[inline(never)]
    fn end(&self, bio: &mut Bio, word: PathFrame, core: &Core) -> Back {
        if word.has(COUNTED) {
            let mut core_state = self.0.core_state(core.id() as usize);
            if let Some(load) = core_state.loads.get_mut(word.slot()) {
                load.in_flight = load.in_flight.saturating_sub(1);
            }
        }
        match bio.status {
            Err(error @ (Errno::Io | Errno::NxIo | Errno::TimedOut | Errno::RemoteIo)) => {
                self.failed(bio, word, core, error)
            }
            Err(error @ Errno::Again) if word.has(HASTY) => self.failed(bio, word, core, error),
            _ => {
                if word.has(LAST_RESORT) {
                    self.0.post(Message::Works { slot: word.slot(), round: word.round() });
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
        match self.send_at_once(bio, core) {
            Some(flow) => flow,
            None => self.send(bio, core, 0, 0, Errno::NxIo),
        }
    }

    /// A path is back, or there will be none.
    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        self.send(bio, core, 0, WAITED, Errno::NxIo)
    }

    fn done(&self, bio: &mut Bio, word: u64, core: &Core) -> Back {
        if word & HASTY != 0 {
            bio.flags = bio.flags.without(Flags::FAIL_FAST);
        }
        if bio.status.is_ok() && !PathFrame(word).has(COUNTED | LAST_RESORT) {
            return Back::Up;
        }
        self.end(bio, PathFrame(word), core)
    }
}
