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
enum State {
    Free,
    /// The engine is being called with it.
    Boarding,
    /// It ended during the call of the engine.
    Landed(Outcome),
    Aloft,
}

/// The transfer that a CCB asks for; needed at its end.
#[derive(Clone, Copy)]
pub(super) struct Wants {
    /// Bytes.
    pub length: u32,
    /// They come from the device.
    pub reads: bool,
}

/// One CCB.
struct Flight {
    state: State,
    unit: Weak<Unit>,
    id: Option<CcbId>,
    wants: Wants,
    /// Destination of the data that is read. The list is kept for the next command.
    data: Segs,
    /// CAM wants it no longer.
    aborted: bool,
}

/// The CCB to be completed at the end of a command.
pub(super) struct Landing {
    pub unit: Weak<Unit>,
    pub id: CcbId,
    pub aborted: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Flights {
    places: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    /// A place for a CCB: its tag.
    pub fn board(&mut self, unit: Weak<Unit>, id: CcbId, wants: Wants, data: &Segs) -> u32 {
        let tag = self.free.pop().unwrap_or_else(|| {
            let wants = Wants { length: 0, reads: false };
            let (state, data) = (State::Free, Segs::new());
            self.places.push(Flight {
                state,
                unit: Weak::new(),
                id: None,
                wants,
                data,
                aborted: false,
            });
            self.places.len() as u32 - 1
        });
        if let Some(place) = self.places.get_mut(tag as usize) {
            if wants.reads {
                data.iter().for_each(|seg| place.data.push(seg.clone()));
            }
            place.state = State::Boarding;
            (place.unit, place.id, place.wants, place.aborted) = (unit, Some(id), wants, false);
        }
        tag
    }

    /// The call of the engine has returned: the outcome of a command that ended during the call.
    pub fn arrive(&mut self, tag: u32) -> Option<Outcome> {
        let place = self.places.get_mut(tag as usize)?;
        match std::mem::replace(&mut place.state, State::Aloft) {
            State::Landed(outcome) => {
                self.clear(tag);
                Some(outcome)
            }
            _ => None,
        }
    }

    /// The transfer of a tag's CCB, and its destination.
    pub fn data(&mut self, tag: u32) -> Option<(Wants, Segs)> {
        let place = self.places.get_mut(tag as usize)?;
        let lives = matches!(place.state, State::Boarding | State::Aloft);
        lives.then(|| (place.wants, std::mem::take(&mut place.data)))
    }

    /// Gives a list back for the next CCB of the tag.
    pub fn keep(&mut self, tag: u32, mut data: Segs) {
        data.clear();
        if let Some(place) = self.places.get_mut(tag as usize) {
            place.data = data;
        }
    }

    /// The command of a tag has ended. `None`: no CCB is to be completed now.
    pub fn land(&mut self, tag: u32, outcome: Outcome) -> Option<Landing> {
        let place = self.places.get_mut(tag as usize)?;
        match place.state {
            State::Boarding => {
                place.state = State::Landed(outcome);
                None
            }
            State::Aloft => {
                let (unit, aborted) = (std::mem::take(&mut place.unit), place.aborted);
                let id = place.id?;
                self.clear(tag);
                Some(Landing { unit, id, aborted })
            }
            State::Free | State::Landed(_) => None,
        }
    }

    fn clear(&mut self, tag: u32) {
        if let Some(place) = self.places.get_mut(tag as usize) {
            place.state = State::Free;
            place.data.clear();
            place.unit = Weak::new();
            place.id = None;
            self.free.push(tag);
        }
    }

    /// CAM wants a CCB no longer: its tag.
    pub fn abort(&mut self, unit: &Unit, id: CcbId) -> Option<u32> {
        let mine = |f: &Flight| {
            matches!(f.state, State::Aloft)
                && f.id == Some(id)
                && std::ptr::eq(f.unit.as_ptr(), unit)
        };
        let tag = self.places.iter().position(mine)?;
        self.places.get_mut(tag)?.aborted = true;
        u32::try_from(tag).ok()
    }
}
