//! The requests of one session: which is next, which are in flight, whether their data is right.
//!
//! Invariants
//!  J1  A slot is either in flight or in `idle`, never both.
//!  J2  With `Work::Verify` two slots of all sessions never share a byte of the medium.

use std::collections::VecDeque;

use bio::Segs;
use reactor::SeededRandom;

use super::line::{Moves, SendSide};
use super::out::exhausted;
use super::pattern;
use super::spec::{Order, Outcome, Spec, Work};
use crate::error::{Error, Kind};

/// SCSI status codes that mean "later".
pub(crate) const STATUS_BUSY: u8 = 0x08;
const STATUS_TASK_SET_FULL: u8 = 0x28;

struct Slot {
    /// First byte on the medium.
    place: u64,
    /// When it was sent, ns.
    begun: u64,
    /// Bytes of data received.
    got: u32,
    write: bool,
    in_flight: bool,
    /// It was refused and is to be sent again as it is.
    again: bool,
    /// Pattern of its data.
    seed: u64,
    /// Data of its write; empty before the first write.
    data: Segs,
}

/// The requests.
pub(crate) struct Jobs {
    spec: Spec,
    session: u32,
    block_bytes: u32,
    /// Places on the medium where a request can be.
    places: u64,
    cursor: u64,
    slots: Vec<Slot>,
    idle: VecDeque<u32>,
    /// Sent since the clock was read last.
    unstamped: Vec<u32>,
    in_flight: u32,
    issued: u64,
    random: SeededRandom,
    /// True: no new requests.
    pub stopping: bool,
    pub outcome: Outcome,
}

impl Jobs {
    pub fn new(spec: &Spec, session: u32, blocks: u64, block_bytes: u32) -> Result<Jobs, Error> {
        let refuse = |what: String| Err(Error::new(Kind::Options, what));
        if block_bytes == 0 || !spec.request_bytes.is_multiple_of(block_bytes) {
            return refuse(format!(
                "a request of {} bytes is not a multiple of the unit's block of {block_bytes}",
                spec.request_bytes
            ));
        }
        if !spec.start_bytes.is_multiple_of(u64::from(block_bytes)) {
            let start = spec.start_bytes;
            return refuse(format!("byte {start} is inside a block of {block_bytes} bytes"));
        }
        let bytes = blocks.saturating_mul(u64::from(block_bytes));
        let bytes = bytes.saturating_sub(spec.start_bytes);
        let span = spec.span_bytes.map_or(bytes, |span| span.min(bytes));
        let places = span / u64::from(spec.request_bytes);
        let all = u64::from(spec.sessions) * u64::from(spec.depth);
        if places == 0 || (spec.work == Work::Verify && places < all) {
            return refuse(format!("{span} bytes of medium are too few for this load"));
        }
        let seed = spec.seed ^ (u64::from(session) << 32);
        let slot = |_| Slot {
            place: 0,
            begun: 0,
            got: 0,
            write: false,
            in_flight: false,
            again: false,
            seed: spec.seed,
            data: Segs::new(),
        };
        Ok(Jobs {
            session,
            block_bytes,
            places,
            cursor: places / u64::from(spec.sessions) * u64::from(session),
            slots: (0..spec.depth).map(slot).collect(),
            idle: (0..spec.depth).collect(),
            unstamped: Vec::new(),
            in_flight: 0,
            issued: 0,
            random: SeededRandom::new(seed),
            stopping: false,
            outcome: Outcome::default(),
            spec: spec.clone(),
        })
    }

    /// Nothing in flight and nothing more to do.
    pub fn is_done(&self) -> bool {
        self.in_flight == 0 && !self.wants_more()
    }

    fn wants_more(&self) -> bool {
        !self.stopping && self.spec.requests.is_none_or(|all| self.issued < all)
    }

    /// The time at which everything sent since the last call was sent.
    pub fn stamp(&mut self, now: u64) {
        for tag in self.unstamped.drain(..) {
            if let Some(slot) = self.slots.get_mut(tag as usize) {
                slot.begun = now;
            }
        }
    }

    /// Sends as much as depth, window and options allow.
    pub fn pump(&mut self, line: &mut SendSide) -> Result<(), Error> {
        while line.is_open() && self.wants_more() {
            let Some(tag) = self.idle.pop_front() else { break };
            self.choose(tag, line)?;
            self.send(tag, line)?;
        }
        Ok(())
    }

    /// Chooses the next request of an idle slot.
    fn choose(&mut self, tag: u32, line: &SendSide) -> Result<(), Error> {
        let place = self.place(tag);
        let fresh = self.random.next_u64();
        let Some(slot) = self.slots.get_mut(tag as usize) else { return Err(unknown(tag)) };
        if std::mem::take(&mut slot.again) {
            return Ok(());
        }
        let was_write = std::mem::take(&mut slot.write);
        if self.spec.work == Work::Verify && was_write {
            return Ok(()); // The same place, to be read now.
        }
        slot.place = place;
        slot.write = matches!(self.spec.work, Work::Write | Work::Fill | Work::Verify);
        if !slot.write {
            return Ok(());
        }
        if self.spec.work == Work::Verify {
            slot.seed = fresh;
        }
        let has_data = !slot.data.is_empty();
        if !has_data {
            let len = self.spec.request_bytes as usize;
            slot.data = Segs::alloc(line.out.pool(), len).ok_or_else(exhausted)?;
        }
        if !has_data || self.spec.work != Work::Write {
            let mut at = slot.place;
            for seg in slot.data.iter() {
                seg.with_mut(|bytes| pattern::fill(slot.seed, at, bytes));
                at += seg.len() as u64;
            }
        }
        Ok(())
    }

    /// Place of a slot's next request.
    fn place(&mut self, tag: u32) -> u64 {
        // J2: each slot has a stripe of its own.
        let (first, count) = match self.spec.work {
            Work::Verify => {
                let depth = u64::from(self.spec.depth);
                let stripe = self.places / (u64::from(self.spec.sessions) * depth);
                ((u64::from(self.session) * depth + u64::from(tag)) * stripe, stripe)
            }
            _ => (0, self.places),
        };
        let nth = match self.spec.order {
            Order::Random => self.random.below(count),
            Order::Sequential => {
                self.cursor = (self.cursor + 1) % self.places;
                (self.cursor + self.places - 1) % self.places % count
            }
        };
        self.spec.start_bytes + (first + nth) * u64::from(self.spec.request_bytes)
    }

    fn send(&mut self, tag: u32, line: &mut SendSide) -> Result<(), Error> {
        let Some(slot) = self.slots.get_mut(tag as usize) else { return Err(unknown(tag)) };
        let lba = slot.place / u64::from(self.block_bytes);
        let cdb = cdb(slot.write, lba, self.spec.request_bytes / self.block_bytes);
        (slot.got, slot.in_flight) = (0, true);
        let moves =
            if slot.write { Moves::Out(&slot.data) } else { Moves::In(self.spec.request_bytes) };
        line.command(tag, cdb, &moves)?;
        self.unstamped.push(tag);
        self.in_flight += 1;
        self.issued += 1;
        Ok(())
    }

    pub fn data_of(&self, tag: u32) -> Result<&Segs, Error> {
        let slot = self.slots.get(tag as usize).filter(|s| s.in_flight && s.write);
        slot.map(|s| &s.data).ok_or_else(|| unknown(tag))
    }

    /// Takes received data of a read: `bytes` at `offset` of the request.
    pub fn data(&mut self, tag: u32, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        let slot = self.slots.get_mut(tag as usize).filter(|s| s.in_flight && !s.write);
        let slot = slot.ok_or_else(|| unknown(tag))?;
        slot.got = slot.got.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        if !matches!(self.spec.work, Work::Check | Work::Verify) {
            return Ok(());
        }
        match pattern::first_wrong(slot.seed, slot.place + u64::from(offset), bytes) {
            None => Ok(()),
            Some(at) => Err(Error::new(
                Kind::Data,
                format!("byte {at} of the unit does not read as it was written"),
            )),
        }
    }

    /// A request ended. `record`: its latency counts. Answers whether it ended well.
    pub fn ended(&mut self, tag: u32, status: u8, now: Option<u64>) -> Result<bool, Error> {
        let slot = self.slots.get_mut(tag as usize).filter(|s| s.in_flight);
        let slot = slot.ok_or_else(|| unknown(tag))?;
        slot.in_flight = false;
        self.in_flight -= 1;
        self.idle.push_back(tag);
        match status {
            0 => {}
            STATUS_BUSY | STATUS_TASK_SET_FULL => {
                slot.again = true;
                self.issued -= 1;
                self.outcome.busy += 1;
                return Ok(false);
            }
            other => {
                let what = format!("a command ended with SCSI status {other:02x}");
                return Err(Error::new(Kind::Status, what));
            }
        }
        if !slot.write && slot.got != self.spec.request_bytes {
            let what = format!("a read returned {} of {} bytes", slot.got, self.spec.request_bytes);
            return Err(Error::new(Kind::Data, what));
        }
        if let Some(now) = now {
            self.outcome.latency.record(now.saturating_sub(slot.begun));
        }
        self.outcome.requests += 1;
        let compared = !slot.write && matches!(self.spec.work, Work::Check | Work::Verify);
        self.outcome.compared += u64::from(compared);
        Ok(true)
    }
}

fn unknown(tag: u32) -> Error {
    Error::new(Kind::Protocol, format!("the target speaks of task {tag:#x}, which is not known"))
}

/// READ or WRITE, of ten bytes where that is enough, else of sixteen (SBC-3).
fn cdb(write: bool, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => {
            cdb[0] = if write { 0x2a } else { 0x28 };
            cdb[2..6].copy_from_slice(&lba.to_be_bytes());
            cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        }
        _ => {
            cdb[0] = if write { 0x8a } else { 0x88 };
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
    }
    cdb
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scsi::{Command, Extent};

    #[test]
    fn commands_are_parsed_as_intended() {
        for (lba, blocks) in [(0, 1), (7, 8), (1 << 20, 65535), (5, 65536), (1 << 33, 1)] {
            let extent = Extent::new(lba, blocks);
            assert_eq!(Command::parse(&cdb(false, lba, blocks)), Ok(Command::Read(extent)));
            assert_eq!(Command::parse(&cdb(true, lba, blocks)), Ok(Command::Write(extent)));
        }
    }

    #[test]
    fn j2_stripes_do_not_overlap() {
        let mut spec = Spec::new(([127, 0, 0, 1], 1).into(), "iqn.x", 0);
        (spec.sessions, spec.depth, spec.work) = (3, 5, Work::Verify);
        spec.start_bytes = 1 << 20;
        let mut owner = std::collections::HashMap::new();
        for session in 0..3 {
            let mut jobs = Jobs::new(&spec, session, 16_384, 512).unwrap();
            for tag in (0..5).cycle().take(5000) {
                let place = jobs.place(tag);
                assert!(place >= 1 << 20 && place + 4096 <= 16_384 * 512);
                assert_eq!(*owner.entry(place).or_insert((session, tag)), (session, tag));
            }
        }
        assert!(owner.len() > 1000);
        assert!(Jobs::new(&spec, 0, 2048 + 64, 512).is_err(), "too few places");
        assert!(Jobs::new(&spec, 0, 1 << 20, 8192).is_err(), "not a multiple of the block");
    }

    #[test]
    fn sequential_sessions_cover_the_medium() {
        let mut spec = Spec::new(([127, 0, 0, 1], 1).into(), "iqn.x", 0);
        (spec.sessions, spec.order) = (4, Order::Sequential);
        let mut seen = Vec::new();
        for session in 0..4 {
            let mut jobs = Jobs::new(&spec, session, 128, 512).unwrap();
            seen.extend((0..4).map(|_| jobs.place(0) / 4096));
        }
        assert_eq!(seen, (0..16).collect::<Vec<u64>>());
    }
}
