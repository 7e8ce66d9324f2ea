//! Receivers of Bios that ended.
//!
//! Invariant R1: a number given out never reaches a later receiver. It carries the generation of
//! its place, and freed places are used again oldest first.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::layer::Sink;

/// Bits of a number that are the place; the others are the generation. A receiver beyond two to
/// this power gets a number that belongs to no sink.
const PLACE_BITS: u32 = 20;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
const NO_SINK: u32 = u32::MAX;

struct SinkSlot {
    generation: u32,
    sink: Option<Rc<dyn Sink>>,
}

#[derive(Default)]
pub(super) struct Sinks {
    slots: Vec<SinkSlot>,
    free: VecDeque<u32>,
}

impl Sinks {
    pub fn add(&mut self, sink: Rc<dyn Sink>) -> u32 {
        let at = match self.free.pop_front() {
            Some(at) => at,
            None if self.slots.len() >= PLACE_MASK as usize => return NO_SINK,
            None => {
                self.slots.push(SinkSlot { generation: 0, sink: None });
                self.slots.len() as u32 - 1
            }
        };
        let place = &mut self.slots[at as usize];
        place.sink = Some(sink);
        (place.generation << PLACE_BITS) | at
    }

    pub fn remove(&mut self, number: u32) {
        let at = number & PLACE_MASK;
        if let Some(place) = self.slots.get_mut(at as usize)
            && place.generation == number >> PLACE_BITS
            && place.sink.take().is_some()
        {
            place.generation = (place.generation + 1) & (u32::MAX >> PLACE_BITS);
            self.free.push_back(at);
        }
    }

    #[inline]
    pub fn get(&self, number: u32) -> Option<Rc<dyn Sink>> {
        let place = self.slots.get((number & PLACE_MASK) as usize)?;
        if place.generation != number >> PLACE_BITS {
            return None;
        }
        place.sink.clone()
    }
}
