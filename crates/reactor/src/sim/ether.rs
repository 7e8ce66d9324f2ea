//! Simulated Ethernet: segments with stations, frames that get lost, doubled, late and overtaken.
//!
//! Invariants
//!  E1  A frame arrives whole and unchanged, any number of times, at the addressed stations of its
//!      segment. A frame for a group arrives at all but its sender.
//!  E2  Each station's own wire carries one frame at a time, at its speed.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;

use crate::link::{ETHERNET_LEN, LinkFacts, down_error, too_long_error};
use crate::sim::links::Waiters;
use crate::sim::{Event, World, WorldState};

/// Frames that a station holds for one reader; a further one is lost.
const HELD_MAX: usize = 4096;

/// How a segment behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentShape {
    /// A frame travels at least so long, in ns, after it left its sender.
    pub delay_ns_min: u64,
    /// And at most, in ns.
    pub delay_ns_max: u64,
    /// Frames to one station do not overtake each other.
    pub in_order: bool,
    /// Frames of a million that never arrive.
    pub lost_per_million: u32,
    /// Frames of a million that arrive twice.
    pub doubled_per_million: u32,
    /// How long a byte keeps its sender's wire busy, in thousandths of a ns (8,000: 1 Gb/s).
    pub ps_per_byte: u64,
}

impl Default for SegmentShape {
    fn default() -> SegmentShape {
        SegmentShape {
            delay_ns_min: 5_000,
            delay_ns_max: 50_000,
            in_order: true,
            lost_per_million: 0,
            doubled_per_million: 0,
            ps_per_byte: 800,
        }
    }
}

struct Station {
    segment: usize,
    facts: LinkFacts,
    /// Its wire is busy until then.
    wire_free: u64,
    /// When the last frame to it is due.
    last_due: u64,
}

/// A reader at a station.
struct Tap {
    station: usize,
    ethertype: u16,
    frames: VecDeque<Rc<[u8]>>,
    waiters: Waiters,
    open: bool,
    /// The interface is down; reported once.
    fell: bool,
}

#[derive(Default)]
pub(crate) struct Ether {
    shapes: Vec<SegmentShape>,
    names: BTreeMap<String, usize>,
    stations: Vec<Station>,
    taps: Vec<Tap>,
    /// From which station nothing reaches which.
    cut: Vec<(usize, usize)>,
}

impl Ether {
    fn tap(&mut self, tap: u32) -> Option<&mut Tap> {
        self.taps.get_mut(tap as usize)
    }

    pub(crate) fn open(&mut self, name: &str, ethertype: u16) -> io::Result<u32> {
        let station = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let (frames, waiters) = Default::default();
        let tap = Tap { station, ethertype, frames, waiters, open: true, fell: false };
        self.taps.push(tap);
        Ok((self.taps.len() - 1) as u32)
    }

    pub(crate) fn close(&mut self, tap: u32) {
        if let Some(tap) = self.tap(tap) {
            tap.open = false;
            tap.frames.clear();
        }
    }

    pub(crate) fn facts(&self, tap: u32) -> Option<LinkFacts> {
        let tap = self.taps.get(tap as usize)?;
        Some(self.stations.get(tap.station)?.facts)
    }

    pub(crate) fn waiters(&mut self, tap: u32) -> Option<&mut Waiters> {
        Some(&mut self.tap(tap)?.waiters)
    }

    /// True when there is an event to read: frames, or that the interface is down.
    pub(crate) fn has_news(&self, tap: u32) -> bool {
        let tap = self.taps.get(tap as usize);
        tap.is_some_and(|tap| tap.fell || !tap.frames.is_empty())
    }

    pub(crate) fn next(&mut self, tap: u32) -> io::Result<Rc<[u8]>> {
        let tap = self.tap(tap).ok_or(io::ErrorKind::NotFound)?;
        match tap.frames.pop_front() {
            Some(frame) => Ok(frame),
            None if std::mem::take(&mut tap.fell) => Err(down_error()),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl WorldState {
    /// A frame leaves a station.
    pub(crate) fn transmit(&mut self, tap: u32, frame: Vec<u8>) -> io::Result<()> {
        let now = self.now;
        let Some(from) = self.ether.tap(tap).map(|t| t.station) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let Some(sender) = self.ether.stations.get_mut(from) else { return Err(down_error()) };
        if !sender.facts.up {
            return Err(down_error());
        }
        if frame.len() > ETHERNET_LEN + sender.facts.mtu as usize {
            return Err(too_long_error());
        }
        let segment = sender.segment;
        let shape = self.ether.shapes.get(segment).copied().unwrap_or_default();
        let busy = (frame.len() as u64).saturating_mul(shape.ps_per_byte) / 1000;
        sender.wire_free = sender.wire_free.max(now).saturating_add(busy);
        let left = sender.wire_free;
        let to = frame.first_chunk::<6>().copied().unwrap_or_default();
        let frame: Rc<[u8]> = frame.into();
        for station in 0..self.ether.stations.len() {
            let other = &self.ether.stations[station];
            let for_it = to[0] & 1 == 1 || to == other.facts.mac;
            if station == from || other.segment != segment || !for_it {
                continue;
            }
            if self.ether.cut.contains(&(from, station)) || self.odds(shape.lost_per_million) {
                continue;
            }
            let copies = if self.odds(shape.doubled_per_million) { 2 } else { 1 };
            for _ in 0..copies {
                let more = shape.delay_ns_max.saturating_sub(shape.delay_ns_min);
                let delay = shape.delay_ns_min + self.random.below(more.saturating_add(1));
                let mut due = left.saturating_add(delay);
                if shape.in_order {
                    let last = &mut self.ether.stations[station].last_due;
                    due = due.max(*last);
                    *last = due;
                }
                self.at(due, Event::Frame { station: station as u32, frame: frame.clone() });
            }
        }
        Ok(())
    }

    fn odds(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.random.below(1_000_000) < u64::from(per_million)
    }

    pub(crate) fn frame_arrives(&mut self, station: u32, frame: &Rc<[u8]>) {
        let station = station as usize;
        let Some(facts) = self.ether.stations.get(station).map(|s| s.facts) else { return };
        if !facts.up || frame.len() > ETHERNET_LEN + facts.mtu as usize {
            return;
        }
        let ethertype = frame.get(12..14).map_or(0, |t| u16::from_be_bytes([t[0], t[1]]));
        let mut wake = Waiters::new();
        for tap in &mut self.ether.taps {
            let its = tap.open && tap.station == station && tap.ethertype == ethertype;
            if its && tap.frames.len() < HELD_MAX {
                tap.frames.push_back(frame.clone());
                wake.append(&mut tap.waiters);
            }
        }
        self.wake(wake);
    }
}

/// A simulated Ethernet segment: a switch with its wires.
#[derive(Clone)]
pub struct Segment {
    world: World,
    number: usize,
}

impl World {
    /// A segment without stations.
    pub fn segment(&self, shape: SegmentShape) -> Segment {
        let mut state = self.state.borrow_mut();
        state.ether.shapes.push(shape);
        Segment { world: self.clone(), number: state.ether.shapes.len() - 1 }
    }
}

impl Segment {
    /// Plugs a station in, which is up: reactors of the world open it by its name. One that was of
    /// that name before is found no longer.
    pub fn plug(&self, name: &str, mac: [u8; 6], mtu: u32) {
        let ether = &mut self.world.state.borrow_mut().ether;
        let index = ether.stations.len();
        let facts = LinkFacts { index: index as u32 + 1, mac, mtu, up: true };
        ether.stations.push(Station { segment: self.number, facts, wire_free: 0, last_due: 0 });
        ether.names.insert(name.to_owned(), index);
    }

    /// Another behaviour from now on.
    pub fn set_shape(&self, shape: SegmentShape) {
        let ether = &mut self.world.state.borrow_mut().ether;
        if let Some(to) = ether.shapes.get_mut(self.number) {
            *to = shape;
        }
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut LinkFacts)) {
        let mut state = self.world.state.borrow_mut();
        let Some(index) = state.ether.names.get(name).copied() else { return };
        let Some(station) = state.ether.stations.get_mut(index) else { return };
        let was = station.facts.up;
        change(&mut station.facts);
        if !was || station.facts.up {
            return;
        }
        let mut wake = Waiters::new();
        for tap in state.ether.taps.iter_mut().filter(|t| t.station == index) {
            tap.fell = true;
            wake.append(&mut tap.waiters);
        }
        state.wake(wake);
    }

    /// Another MTU; longer frames neither leave nor enter the station.
    pub fn set_mtu(&self, name: &str, mtu: u32) {
        self.change(name, |facts| facts.mtu = mtu);
    }

    /// Down: nothing leaves or enters, and its readers are notified.
    pub fn set_up(&self, name: &str, up: bool) {
        self.change(name, |facts| facts.up = up);
    }

    /// From now on nothing (or again all) that one station sends reaches another.
    pub fn lose(&self, from: &str, to: &str, yes: bool) {
        let ether = &mut self.world.state.borrow_mut().ether;
        let (Some(from), Some(to)) = (ether.names.get(from), ether.names.get(to)) else { return };
        let pair = (*from, *to);
        ether.cut.retain(|cut| *cut != pair);
        if yes {
            ether.cut.push(pair);
        }
    }
}
