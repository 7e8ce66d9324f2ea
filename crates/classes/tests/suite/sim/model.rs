//! Model of the values that each sector may hold.
//!
//! A sector has a history since its last durable value: values written, in the order in which they
//! began, each acknowledged or not (under way, or failed). A value is over when another was
//! acknowledged that began after it had ended. Of two writes that overlap in time neither is over
//! by the other, and only some runs have them ([`Model::overlaps`]).
//!
//!  * A read finds a value that was not over when it began, or a later one.
//!  * A flush that ended well removes all values that were over before it began.
//!  * After a power cut any value of the history is found; and then it stays.
//!  * The same holds when a disk lost its cache, and the top provider was lost with it and
//!    returned.

use std::collections::BTreeMap;

use super::disk::SECTOR;

/// The version of a sector that may hold anything until it is written.
const ANY: u64 = u64::MAX;
/// The version of the data found when the volume grew: unknown, but always the same.
const FOUND: u64 = u64::MAX - 1;

#[derive(Clone, Debug)]
struct Entry {
    seq: u64,
    /// When it ended; [`UNDER_WAY`] before.
    end: u64,
    version: u64,
    acked: bool,
}

/// No end is as late.
const UNDER_WAY: u64 = u64::MAX;

impl Entry {
    fn is(&self, found: &Result<u64, String>) -> bool {
        self.version == ANY || found.as_ref() == Ok(&self.version)
    }
}

#[derive(Default)]
pub struct Model {
    sectors: Vec<Vec<Entry>>,
    /// Whether writes of one sector may overlap in time.
    pub overlaps: bool,
    /// Sectors that are being written.
    locked: Vec<bool>,
    /// Reads under way, and values that left histories meanwhile.
    readers: u64,
    ghosts: Vec<(usize, Entry)>,
    seq: u64,
    versions: u64,
    /// The content found in added sectors.
    added: BTreeMap<u64, Result<u64, String>>,
    /// The largest former size in sectors: data written up to there may appear again.
    given_up: u64,
    /// Writes acknowledged up to this point, and not durable, may be lost.
    lost_up_to: u64,
    /// How much was proven.
    pub reads: u64,
    pub acked: u64,
    pub flushed: u64,
}

/// A write under way, or the moment at which a read or a flush began.
pub struct Mark {
    first: u64,
    at: u64,
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
        let zero = vec![Entry { seq: 0, end: 0, version: 0, acked: true }];
        self.sectors.resize(sectors as usize, zero);
        self.locked.resize(sectors as usize, false);
    }

    /// The volume has grown: the added sectors hold unknown data, the same at each read.
    pub fn grow_by_unknown(&mut self, sectors: u64) {
        let found = vec![Entry { seq: 0, end: 0, version: FOUND, acked: true }];
        self.sectors.resize(sectors as usize, found);
        self.locked.resize(sectors as usize, false);
    }

    /// The volume was made smaller while it was not in use: nothing is promised any more of the
    /// data behind its end.
    pub fn shrink(&mut self, sectors: u64) {
        self.given_up = self.given_up.max(self.sectors());
        self.sectors.truncate(sectors as usize);
        self.locked.truncate(sectors as usize);
        self.added.retain(|at, _| *at < sectors);
    }

    /// Whether a sector may still hold its content from when the volume grew, and does.
    fn is_as_found(&mut self, at: u64, since: u64, found: &Result<u64, String>) -> bool {
        let junk = matches!(found, Err(_) | Ok(0)) || at < self.given_up;
        junk && self.may(at, since).any(|e| e.version == FOUND)
            && self.added.entry(at).or_insert_with(|| found.clone()) == found
    }

    /// The values that a sector may hold for a read that began at `since`.
    fn may(&self, at: u64, since: u64) -> impl Iterator<Item = &Entry> {
        let ghosts = move || self.ghosts.iter().filter(move |(n, _)| *n as u64 == at);
        let all = move || self.sectors[at as usize].iter().chain(ghosts().map(|(_, e)| e));
        all().filter(move |e| !self.is_over(e, all(), since))
    }

    fn is_over<'a>(
        &self,
        entry: &Entry,
        mut all: impl Iterator<Item = &'a Entry>,
        since: u64,
    ) -> bool {
        let holds = |e: &Entry| e.acked && e.end <= since && e.seq > self.lost_up_to;
        all.any(|e| holds(e) && e.seq > entry.end)
    }

    pub fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    fn range(first: u64, count: u64) -> std::ops::Range<usize> {
        first as usize..(first + count) as usize
    }

    /// A write begins, if none is under way there that it may not overlap. With `zero` it writes
    /// zeroes.
    pub fn write(&mut self, first: u64, count: u64, zero: bool) -> Option<Mark> {
        let range = Self::range(first, count);
        if !self.overlaps && self.locked[range.clone()].iter().any(|l| *l) {
            return None;
        }
        self.versions += 1;
        let version = if zero { 0 } else { self.versions };
        let mut seqs = Vec::new();
        for at in range {
            self.locked[at] = true;
            self.seq += 1;
            seqs.push(self.seq);
            self.sectors[at].push(Entry { seq: self.seq, end: UNDER_WAY, version, acked: false });
        }
        Some(Mark { first, at: self.seq, seqs, version })
    }

    /// A write has ended; `durable` when it was to be on stable storage.
    pub fn wrote(&mut self, mark: &Mark, ok: bool, durable: bool) {
        self.seq += 1;
        for (at, seq) in (mark.first as usize..).zip(&mark.seqs) {
            self.locked[at] = false;
            let mut entries = self.sectors[at].iter_mut();
            let entry = entries.find(|e| e.seq == *seq).expect("it is there");
            (entry.end, entry.acked) = (self.seq, ok);
            if ok {
                self.acked += 1;
            }
            if ok && durable {
                self.forget(at, |e| e.end < *seq);
            }
        }
    }

    /// Removes values that are over: they have become impossible.
    fn forget(&mut self, at: usize, over: impl Fn(&Entry) -> bool) {
        let all = std::mem::take(&mut self.sectors[at]);
        let (gone, stays): (Vec<Entry>, Vec<Entry>) = all.into_iter().partition(over);
        self.sectors[at] = stays;
        if self.readers > 0 {
            self.ghosts.extend(gone.into_iter().map(|e| (at, e)));
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

    /// The top provider was lost, with a cache below it, and is back.
    pub fn top_restored(&mut self) {
        self.lost_up_to = self.seq;
    }

    /// A read or a flush begins.
    pub fn mark(&self, first: u64, count: u64) -> Mark {
        let _within = &self.sectors[Self::range(first, count)];
        Mark { first, at: self.seq, seqs: Vec::new(), version: 0 }
    }

    /// All that had ended when a flush began is on stable storage.
    pub fn flushed(&mut self, mark: &Mark) {
        self.flushed += 1;
        for at in 0..self.sectors.len() {
            let all = &self.sectors[at];
            let over = all.iter().filter(|e| self.is_over(e, all.iter(), mark.at));
            let over: Vec<u64> = over.map(|e| e.seq).collect();
            if !over.is_empty() {
                self.forget(at, |e| over.contains(&e.seq));
            }
        }
    }

    /// Checks the data of a read.
    pub fn read(&mut self, mark: &Mark, bytes: &[u8]) -> Result<(), String> {
        for (at, bytes) in (mark.first..).zip(bytes.chunks(SECTOR as usize)) {
            let (found, since) = (version_of(at, bytes), mark.at);
            let known = self.may(at, since).any(|e| e.is(&found));
            if !known && !self.is_as_found(at, since, &found) {
                let entries = &self.sectors[at as usize];
                let was = self.added.get(&at);
                return Err(format!(
                    "sector {at} read as {found:?}, and may be {entries:?} since {since} ({was:?})"
                ));
            }
            self.reads += 1;
        }
        Ok(())
    }

    /// Power is back: the content must be one of the history, and stays.
    pub fn found(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.found_with_holes(bytes, |at| at, 0).map(drop)
    }

    /// The same of a volume that parity alone protected in part. Of those sectors that share a
    /// parity (by `shared`), if one was being written, so many may be anything. Returns how many
    /// were.
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
                        Entry { seq, end: seq, version: ANY, acked: true }
                    }
                    None => {
                        return Err(format!(
                            "sector {at} is {found:?} after a power cut, and may be {entries:?}"
                        ));
                    }
                },
            };
            (entry.acked, entry.end) = (true, entry.end.min(self.seq));
            *entries = vec![entry];
            self.reads += 1;
        }
        Ok(holes.values().map(|count| *count as u64).sum())
    }
}
