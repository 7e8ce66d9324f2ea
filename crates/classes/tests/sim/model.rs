//! What each sector may hold.
//!
//! A sector has a history since its last durable value: values written, in order, each
//! acknowledged or not (under way, or failed). Writes to one sector do not overlap in time.
//!
//!  * A read finds the last value that was acknowledged when it began, or a later one.
//!  * A flush that ended well makes the last value acknowledged before it began the durable one.
//!  * After a power cut any value of the history is found; and then it stays.
//!  * So it is when a disk lost its cache and what stands on top was lost with it, and came back.

use std::collections::BTreeMap;

use super::disk::SECTOR;

/// The version of what may be anything, until it is written.
const ANY: u64 = u64::MAX;
/// The version of what was there when the volume grew: nobody knows what, but always the same.
const FOUND: u64 = u64::MAX - 1;

#[derive(Clone, Debug)]
struct Entry {
    seq: u64,
    version: u64,
    acked: bool,
}

impl Entry {
    fn is(&self, found: &Result<u64, String>) -> bool {
        self.version == ANY || found.as_ref() == Ok(&self.version)
    }
}

#[derive(Default)]
pub struct Model {
    sectors: Vec<Vec<Entry>>,
    locked: Vec<bool>,
    /// Reads under way, and what left histories while they are.
    readers: u64,
    ghosts: Vec<(usize, Entry)>,
    seq: u64,
    versions: u64,
    /// What the sectors that were added turned out to hold.
    added: BTreeMap<u64, Result<u64, String>>,
    /// What was acknowledged up to then, and is not durable, may be lost.
    lost_up_to: u64,
    /// How much was proven.
    pub reads: u64,
    pub acked: u64,
    pub flushed: u64,
}

/// A write under way, or the moment at which a read or a flush began.
pub struct Mark {
    first: u64,
    seqs: Vec<u64>,
    pub version: u64,
}

/// The bytes of a sector that was written with a version; zero is zeroes.
pub fn sector(number: u64, version: u64) -> [u8; SECTOR as usize] {
    let mut out = [0; SECTOR as usize];
    if version != 0 {
        for pair in out.chunks_exact_mut(16) {
            pair[..8].copy_from_slice(&version.to_le_bytes());
            pair[8..].copy_from_slice(&number.to_le_bytes());
        }
    }
    out
}

/// The version in a sector's bytes.
fn version_of(number: u64, bytes: &[u8]) -> Result<u64, String> {
    let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
    match bytes == sector(number, version) {
        true => Ok(version),
        false => Err(format!("sector {number} is not whole: {:x?}", &bytes[..32])),
    }
}

impl Model {
    pub fn new(sectors: u64) -> Model {
        let mut model = Model::default();
        model.grow(sectors);
        model
    }

    pub fn grow(&mut self, sectors: u64) {
        let zero = vec![Entry { seq: 0, version: 0, acked: true }];
        self.sectors.resize(sectors as usize, zero);
        self.locked.resize(sectors as usize, false);
    }

    /// The volume has grown: what is added holds something, and the same at each look.
    pub fn grow_by_unknown(&mut self, sectors: u64) {
        let found = vec![Entry { seq: 0, version: FOUND, acked: true }];
        self.sectors.resize(sectors as usize, found);
        self.locked.resize(sectors as usize, false);
    }

    /// Whether a sector may still hold what it held when the volume grew, and holds it.
    fn is_as_found(&mut self, at: u64, since: u64, found: &Result<u64, String>) -> bool {
        let entries = &self.sectors[at as usize];
        let ghosts = self.ghosts.iter().filter(|(n, _)| *n as u64 == at).map(|(_, e)| e);
        let mut may = entries.iter().chain(ghosts).filter(|e| e.seq >= since);
        let junk = matches!(found, Err(_) | Ok(0));
        junk && may.any(|e| e.version == FOUND)
            && self.added.entry(at).or_insert_with(|| found.clone()) == found
    }

    pub fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    fn range(first: u64, count: u64) -> std::ops::Range<usize> {
        first as usize..(first + count) as usize
    }

    /// A write begins, if none is under way there. With `zero` it writes zeroes.
    pub fn write(&mut self, first: u64, count: u64, zero: bool) -> Option<Mark> {
        let range = Self::range(first, count);
        if self.locked[range.clone()].iter().any(|l| *l) {
            return None;
        }
        self.versions += 1;
        let version = if zero { 0 } else { self.versions };
        let mut seqs = Vec::new();
        for at in range {
            self.locked[at] = true;
            self.seq += 1;
            seqs.push(self.seq);
            self.sectors[at].push(Entry { seq: self.seq, version, acked: false });
        }
        Some(Mark { first, seqs, version })
    }

    /// A write has ended; `durable` when it was to be on stable storage.
    pub fn wrote(&mut self, mark: &Mark, ok: bool, durable: bool) {
        for (at, seq) in (mark.first as usize..).zip(&mark.seqs) {
            self.locked[at] = false;
            if !ok {
                continue;
            }
            self.acked += 1;
            let entries = &mut self.sectors[at];
            let place = entries.iter().position(|e| e.seq == *seq).expect("it is there");
            entries[place].acked = true;
            if durable {
                self.forget(at, place);
            }
        }
    }

    /// What came before has become impossible.
    fn forget(&mut self, at: usize, place: usize) {
        let gone = self.sectors[at].drain(..place);
        if self.readers > 0 {
            self.ghosts.extend(gone.map(|e| (at, e)));
        }
    }

    /// A read begins.
    pub fn look(&mut self, first: u64, count: u64) -> Mark {
        self.readers += 1;
        self.mark(first, count)
    }

    /// A read has ended, well or not.
    pub fn looked(&mut self) {
        self.readers -= 1;
        if self.readers == 0 {
            self.ghosts.clear();
        }
    }

    fn floor(&self, entries: &[Entry]) -> u64 {
        let stays = |e: &&Entry| e.acked && e.seq > self.lost_up_to;
        let last = entries.iter().rev().find(stays);
        last.or(entries.first()).map_or(0, |e| e.seq)
    }

    /// What stood on top was lost, with a cache below it, and is back.
    pub fn came_back(&mut self) {
        self.lost_up_to = self.seq;
    }

    /// A read or a flush begins.
    pub fn mark(&self, first: u64, count: u64) -> Mark {
        let range = Self::range(first, count);
        let seqs = self.sectors[range].iter().map(|e| self.floor(e)).collect();
        Mark { first, seqs, version: 0 }
    }

    pub fn flushed(&mut self, mark: &Mark) {
        self.flushed += 1;
        for (at, seq) in mark.seqs.iter().enumerate() {
            let place = self.sectors[at].iter().position(|e| e.seq == *seq).unwrap_or(0);
            self.forget(at, place);
        }
    }

    /// Checks what a read found.
    pub fn read(&mut self, mark: &Mark, bytes: &[u8]) -> Result<(), String> {
        for ((at, seq), bytes) in (mark.first..).zip(&mark.seqs).zip(bytes.chunks(SECTOR as usize))
        {
            let found = version_of(at, bytes);
            let entries = &self.sectors[at as usize];
            let ghosts = self.ghosts.iter().filter(|(n, _)| *n as u64 == at).map(|(_, e)| e);
            let mut may = entries.iter().chain(ghosts).filter(|e| e.seq >= *seq);
            let known = may.any(|e| e.is(&found));
            if !known && !self.is_as_found(at, *seq, &found) {
                let entries = &self.sectors[at as usize];
                let was = self.added.get(&at);
                return Err(format!(
                    "sector {at} read as {found:?}, and may be {entries:?} since {seq} ({was:?})"
                ));
            }
            self.reads += 1;
        }
        Ok(())
    }

    /// Power is back: what is found must be one of the history, and stays.
    pub fn found(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.found_with_holes(bytes, |at| at, 0).map(drop)
    }

    /// The same of a volume that parity alone spoke for in part: of those sectors that share a
    /// parity (as `shared` says), if one was being written, so many may be anything. Returns how
    /// many were.
    pub fn found_with_holes(
        &mut self,
        bytes: &[u8],
        shared: impl Fn(u64) -> u64,
        most: usize,
    ) -> Result<u64, String> {
        self.locked.fill(false);
        self.readers = 0;
        self.ghosts.clear();
        let mut holes: BTreeMap<u64, usize> = BTreeMap::new();
        for (at, entries) in (0..).zip(&self.sectors) {
            if entries.len() > 1 {
                holes.insert(shared(at), 0);
            }
        }
        for (at, bytes) in (0..).zip(bytes.chunks(SECTOR as usize)) {
            let found = version_of(at, bytes);
            let as_found = self.is_as_found(at, 0, &found);
            let entries = &mut self.sectors[at as usize];
            let is = |e: &Entry| e.is(&found) || as_found && e.version == FOUND;
            let mut entry = match entries.iter().rposition(is) {
                Some(place) => entries[place].clone(),
                None => match holes.get_mut(&shared(at)).filter(|count| **count < most) {
                    Some(count) => {
                        *count += 1;
                        let seq = entries.last().map_or(0, |e| e.seq);
                        Entry { seq, version: ANY, acked: true }
                    }
                    None => {
                        return Err(format!(
                            "sector {at} is {found:?} after a power cut, and may be {entries:?}"
                        ));
                    }
                },
            };
            entry.acked = true;
            *entries = vec![entry];
            self.reads += 1;
        }
        Ok(holes.values().map(|count| *count as u64).sum())
    }
}
