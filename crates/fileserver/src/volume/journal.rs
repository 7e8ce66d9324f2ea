//! The journal: a ring of records, each of which is one commit.
//!
//! Invariants
//!  J1  A record is written after the blocks that it names are durable in their slots; the commit
//!      has happened when the record is durable.
//!  J2  No record from the tail on is written over, and the last one never.
//!
//! ```text
//!   record: | seal, number = sequence | tail 8 · sets 4 · clears 4 | sets 16 | clears 4 | point |
//! ```
//! A record is stored in one piece; one that does not fit before the end of the ring is stored at
//! its start. After a loss of power the records are found by their sequences, wherever they are.

use std::collections::VecDeque;

use super::layout::Layout;
use super::point::Point;
use super::seal::{self, Decoder, Encoder};
use super::table::Slot;

const MAGIC: [u8; 4] = *b"ASHJ";
/// Bytes of a record beside its sets and clears, at most.
const REST: usize = 512;

/// The changes of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// One more than that of the record before it.
    pub seq: u64,
    /// Records before this sequence are not needed any more.
    pub tail: u64,
    /// Slots and their new contents.
    pub sets: Vec<(u32, Slot)>,
    /// Slots that hold nothing any more.
    pub clears: Vec<u32>,
    /// The state of the volume after the commit.
    pub point: Point,
}

impl Record {
    /// Bytes of the blocks that it takes.
    pub fn bytes(sets: usize, clears: usize) -> usize {
        seal::SEAL + REST + sets * 16 + clears * 4
    }

    /// As whole blocks of `block` bytes.
    pub fn encode(&self, volume: u64, block: usize) -> Vec<u8> {
        let mut body = Encoder::default();
        body.u64(self.tail).u32(self.sets.len() as u32).u32(self.clears.len() as u32);
        for (slot, held) in &self.sets {
            body.u64(held.addr).u32(held.crc).u32(*slot);
        }
        for slot in &self.clears {
            body.u32(*slot);
        }
        self.point.encode(&mut body);
        let mut out = vec![0; (seal::SEAL + body.0.len()).next_multiple_of(block)];
        seal::seal(&mut out, MAGIC, volume, self.seq, &body.0);
        out
    }

    /// From bytes that may begin with a record. The error has the reason.
    pub fn decode(bytes: &[u8], volume: u64) -> Result<Record, &'static str> {
        let s = seal::open(bytes, MAGIC)?;
        if s.volume != volume {
            return Err("the device belongs to another volume");
        }
        let mut t = Decoder(s.body);
        let (tail, sets, clears) = (t.u64(), t.u32() as usize, t.u32() as usize);
        let entries = t.bytes(sets.saturating_mul(16));
        let cleared = t.bytes(clears.saturating_mul(4));
        if entries.len() != sets * 16 || cleared.len() != clears * 4 {
            return Err("its lists are longer than itself");
        }
        let mut e = Decoder(entries);
        let sets = (0..sets).map(|_| {
            let held = Slot { addr: e.u64(), crc: e.u32() };
            (e.u32(), held)
        });
        let sets = sets.collect();
        let mut c = Decoder(cleared);
        let clears = (0..clears).map(|_| c.u32()).collect();
        let point = Point::decode(&mut t).ok_or("its point makes no sense")?;
        Ok(Record { seq: s.number, tail, sets, clears, point })
    }

    /// Bytes of the record that begins here, if one may: enough to read it whole.
    pub fn len_at(head: &[u8], volume: u64) -> Option<usize> {
        let mut t = Decoder(head.get(..seal::SEAL)?);
        if t.bytes(4) != MAGIC {
            return None;
        }
        t.u32();
        let (whose, _, len) = (t.u64(), t.u64(), t.u32());
        (whose == volume).then_some(seal::SEAL + len as usize)
    }
}

/// The places of records in the ring, and the needed ones.
#[derive(Debug)]
pub struct Ring {
    blocks: u64,
    head: u64,
    /// Sequence, first block, blocks; from the tail on.
    live: VecDeque<(u64, u64, u64)>,
}

impl Ring {
    /// Of so many blocks, empty.
    pub fn new(l: &Layout) -> Ring {
        Ring { blocks: l.ring.1, head: 0, live: VecDeque::new() }
    }

    /// Blocks that one record may take so that a checkpoint always frees space for it.
    pub fn record_max(&self) -> u64 {
        self.blocks / 3
    }

    /// Enters a record that was found; in the order of their sequences.
    pub fn found(&mut self, seq: u64, first: u64, blocks: u64) {
        self.live.push_back((seq, first, blocks));
        self.head = (first + blocks) % self.blocks;
    }

    /// The place of a record of `blocks` blocks; `None` until the tail has moved (J2). Behind it
    /// there is space for the one that moves the tail.
    pub fn place(&self, blocks: u64) -> Option<u64> {
        if blocks > self.record_max() {
            return None;
        }
        self.find_space(blocks + 1)
    }

    /// The place of the record that moves the tail: one block.
    pub fn place_last(&self) -> Option<u64> {
        self.find_space(1)
    }

    fn find_space(&self, blocks: u64) -> Option<u64> {
        let first = if self.head + blocks <= self.blocks { self.head } else { 0 };
        let meets = |(_, at, n): &(u64, u64, u64)| first < at + n && *at < first + blocks;
        (!self.live.iter().any(meets)).then_some(first)
    }

    /// It is durable there.
    pub fn written(&mut self, seq: u64, first: u64, blocks: u64) {
        self.found(seq, first, blocks);
    }

    /// Records before `tail` are not needed, but for the last one.
    pub fn trim(&mut self, tail: u64) {
        while self.live.len() > 1 && self.live.front().is_some_and(|(seq, ..)| *seq < tail) {
            self.live.pop_front();
        }
    }

    /// Part of the ring that is taken, in thousandths.
    pub fn fill(&self) -> u64 {
        self.live.iter().map(|(_, _, n)| n).sum::<u64>() * 1000 / self.blocks.max(1)
    }
}

/// Of all records in the ring (first block, blocks, record): the valid ones, in order.
pub fn choose(mut found: Vec<(u64, u64, Record)>) -> Result<Vec<(u64, u64, Record)>, String> {
    found.sort_by_key(|(_, _, r)| r.seq);
    let Some((_, _, last)) = found.last() else {
        return Err(
            "the journal has no record: the creation of the volume was not completed".into()
        );
    };
    let (tail, end) = (last.tail.min(last.seq), last.seq);
    found.retain(|(_, _, r)| r.seq >= tail);
    for (wanted, (_, _, r)) in (tail..).zip(&found) {
        if r.seq != wanted {
            return Err(format!("record {wanted} of {tail} to {end} is missing in the journal"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use reactor::SeededRandom;
    use testkit::Seeds;

    use super::*;

    #[test]
    fn j2_no_needed_record_is_written_over() {
        for seed in Seeds::of(100) {
            let mut random = SeededRandom::new(seed);
            let mut ring = Ring { blocks: 30, head: 0, live: VecDeque::new() };
            let mut needed: Vec<(u64, u64, u64)> = Vec::new();
            for seq in 0..200 {
                let wanted = 1 + random.below(ring.record_max());
                let (first, blocks, tail) = match ring.place(wanted) {
                    Some(first) => (first, wanted, None),
                    None => (ring.place_last().expect("room behind a record"), 1, Some(seq)),
                };
                let meets = |(_, at, n): &(u64, u64, u64)| first < at + n && *at < first + blocks;
                assert!(!needed.iter().any(meets), "seed {seed}, record {seq}");
                ring.written(seq, first, blocks);
                needed.push((seq, first, blocks));
                if let Some(tail) = tail {
                    ring.trim(tail);
                    needed.retain(|(seq, ..)| *seq >= tail);
                }
            }
        }
    }
}
