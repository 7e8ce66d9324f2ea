//! CCBs that are with the engine, by the tag that their command has there.
//!
//! ```text
//!   (free) --board--> Boarding --ends inside the call--> Landed --arrive--> (free)
//!                        |
//!                        +------arrive: still there----> Aloft ---land----> (free)
//! ```
//!
//! Invariant F1: a tag is used again when the engine has answered or discarded its command, which
//! it does once.

use std::sync::Weak;

use bio::Segs;
use cam::{CcbId, Outcome, Unit};

/// How far it is.
enum CcbState {
    Free,
    /// The engine is being called with it.
    Submitting,
    /// It ended during the call of the engine.
    Completed(Outcome),
    Outstanding,
}

/// The transfer that a CCB requests; needed at its end.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    /// Bytes.
    pub length: u32,
    /// The device sends them.
    pub reads: bool,
}

struct InflightCcb {
    state: CcbState,
    unit: Weak<Unit>,
    id: Option<CcbId>,
    transfer: Transfer,
    /// Destination of the data that is read. The list is kept for the next command.
    data: Segs,
    /// CAM wants it no longer.
    aborted: bool,
}

/// The CCB to be completed at the end of a command.
pub(super) struct CompletedCcb {
    pub unit: Weak<Unit>,
    pub id: CcbId,
    pub aborted: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct InflightCcbs {
    slots: Vec<InflightCcb>,
    free: Vec<u32>,
}

impl InflightCcbs {
    /// A place for a CCB: its tag.
    pub fn insert(&mut self, unit: Weak<Unit>, id: CcbId, wants: Transfer, data: &Segs) -> u32 {
        let tag = self.free.pop().unwrap_or_else(|| {
            let wants = Transfer { length: 0, reads: false };
            let (state, data) = (CcbState::Free, Segs::new());
            self.slots.push(InflightCcb {
                state,
                unit: Weak::new(),
                id: None,
                transfer: wants,
                data,
                aborted: false,
            });
            self.slots.len() as u32 - 1
        });
        if let Some(place) = self.slots.get_mut(tag as usize) {
            if wants.reads {
                data.iter().for_each(|seg| place.data.push(seg.clone()));
            }
            place.state = CcbState::Submitting;
            (place.unit, place.id, place.transfer, place.aborted) = (unit, Some(id), wants, false);
        }
        tag
    }

    /// The call of the engine has returned: the outcome of a command that ended during the call.
    pub fn submitted(&mut self, tag: u32) -> Option<Outcome> {
        let place = self.slots.get_mut(tag as usize)?;
        match std::mem::replace(&mut place.state, CcbState::Outstanding) {
            CcbState::Completed(outcome) => {
                self.clear(tag);
                Some(outcome)
            }
            _ => None,
        }
    }

    pub fn data(&mut self, tag: u32) -> Option<(Transfer, Segs)> {
        let place = self.slots.get_mut(tag as usize)?;
        let lives = matches!(place.state, CcbState::Submitting | CcbState::Outstanding);
        lives.then(|| (place.transfer, std::mem::take(&mut place.data)))
    }

    /// Gives a list back for the next CCB of the tag.
    pub fn return_list(&mut self, tag: u32, mut data: Segs) {
        data.clear();
        if let Some(place) = self.slots.get_mut(tag as usize) {
            place.data = data;
        }
    }

    /// The command of a tag has ended. `None`: no CCB is to be completed now.
    pub fn complete(&mut self, tag: u32, outcome: Outcome) -> Option<CompletedCcb> {
        let place = self.slots.get_mut(tag as usize)?;
        match place.state {
            CcbState::Submitting => {
                place.state = CcbState::Completed(outcome);
                None
            }
            CcbState::Outstanding => {
                let (unit, aborted) = (std::mem::take(&mut place.unit), place.aborted);
                let id = place.id?;
                self.clear(tag);
                Some(CompletedCcb { unit, id, aborted })
            }
            CcbState::Free | CcbState::Completed(_) => None,
        }
    }

    fn clear(&mut self, tag: u32) {
        if let Some(place) = self.slots.get_mut(tag as usize) {
            place.state = CcbState::Free;
            place.data.clear();
            place.unit = Weak::new();
            place.id = None;
            self.free.push(tag);
        }
    }

    /// CAM wants a CCB no longer: its tag.
    pub fn abort(&mut self, unit: &Unit, id: CcbId) -> Option<u32> {
        let mine = |f: &InflightCcb| {
            matches!(f.state, CcbState::Outstanding)
                && f.id == Some(id)
                && std::ptr::eq(f.unit.as_ptr(), unit)
        };
        let tag = self.slots.iter().position(mine)?;
        self.slots.get_mut(tag)?.aborted = true;
        u32::try_from(tag).ok()
    }
}
