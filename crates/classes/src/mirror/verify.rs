//! Members compared with each other, in the background.
//!
//! ```text
//!   verb --> Job::Verify (gate drained: from here on writes mind ranges) --> slab after slab, each
//!        under a range lock: read every ACTIVE member, compare, perhaps write --> Told::Verified
//! ```
//!
//! Invariants
//!  V1  Nothing is written between the reads that are compared: a write that is on some members and
//!      not yet on others is no difference.
//!  V2  Only with `repair` is anything written, and only what the chosen member holds, read under
//!      the same lock.
//!  V3  What is counted as repaired was flushed before it is said.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bio::Errno;
use geom::{Core, Edge};

use super::shared::{Failed, Shared, Told};
use super::tasks::pay;

/// Places kept for lists; further ones are only counted.
pub(super) const PLACES_MAX: usize = 16;

/// What a run was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ask {
    /// Differences are overwritten.
    pub(super) repair: bool,
    /// The slot of the member that is right.
    pub(super) right: usize,
    /// Bytes a second; zero: as fast as it goes.
    pub(super) rate: u64,
}

/// Something that is not as on the member that is right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) slot: usize,
    /// Bytes of the mirror.
    pub(super) range: Range<u64>,
    /// It could not be read.
    pub(super) unreadable: bool,
}

/// How far a run is, and what it found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Report {
    /// Number of the run; zero: there was none.
    pub(super) round: u64,
    pub(super) running: bool,
    /// It came to no end, and why.
    pub(super) fault: Option<&'static str>,
    pub(super) repair: bool,
    /// Bytes compared, of so many.
    pub(super) at: u64,
    pub(super) media_bytes: u64,
    /// Sectors that differ, that could not be read, and that were written anew.
    pub(super) differ: u64,
    pub(super) unreadable: u64,
    pub(super) repaired: u64,
    pub(super) places: Vec<Place>,
}

impl Report {
    /// In one line.
    pub(super) fn line(&self) -> String {
        let whole = self.media_bytes.max(1);
        let percent = u128::from(self.at) * 100 / u128::from(whole);
        let end = match (self.running, self.fault) {
            (true, _) => format!("{percent}%"),
            (false, None) => "done".to_owned(),
            (false, Some(why)) => format!("ended at {percent}%: {why}"),
        };
        let (differ, unreadable) = (self.differ, self.unreadable);
        let mut line = format!("{end}; {differ} sectors differ, {unreadable} cannot be read");
        if self.repair {
            line += &format!(", {} written anew", self.repaired);
        }
        line
    }

    fn note(&mut self, place: Place, sector: u64) {
        let sectors = (place.range.end - place.range.start) / sector.max(1);
        match place.unreadable {
            true => self.unreadable += sectors,
            false => self.differ += sectors,
        }
        if let Some(last) = self.places.last_mut()
            && last.slot == place.slot
            && last.unreadable == place.unreadable
            && last.range.end == place.range.start
        {
            last.range.end = place.range.end;
        } else if self.places.len() < PLACES_MAX {
            self.places.push(place);
        }
    }
}

/// Sectors in which two pieces of the same length differ, joined to runs, in bytes of the piece.
pub(super) fn differences(right: &[u8], other: &[u8], sector: usize) -> Vec<Range<usize>> {
    let sector = sector.max(1);
    let mut out: Vec<Range<usize>> = Vec::new();
    if right == other {
        return out;
    }
    let pairs = right.chunks(sector).zip(other.chunks(sector));
    for (at, _) in pairs.enumerate().filter(|(_, (a, b))| a != b) {
        let (start, end) = (at * sector, ((at + 1) * sector).min(right.len()));
        match out.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => out.push(start..end),
        }
    }
    out
}

/// Compares everything, as [`Report`] of the shared state was set up to.
pub(super) fn begin(shared: &Arc<Shared>, ask: Ask, sector: u64) {
    let (shared, board) = (shared.clone(), shared.board.clone());
    let (round, media_bytes) = {
        let report = shared.verified();
        (report.round, report.media_bytes)
    };
    board.call(
        0,
        Box::new(move |core| {
            let core = core.clone();
            core.reactor().clone().spawn("mirror verify", async move {
                let run = Run { core: &core, shared: &shared, ask, sector, round };
                run.all(media_bytes).await;
                shared.tell(Told::Verified(round));
            });
        }),
    );
}

struct Run<'a> {
    core: &'a Rc<Core>,
    shared: &'a Arc<Shared>,
    ask: Ask,
    sector: u64,
    round: u64,
}

impl Run<'_> {
    /// Changes the report; false when this run is not wanted any more.
    fn say(&self, f: impl FnOnce(&mut Report)) -> bool {
        let mut report = self.shared.verified();
        let wanted = report.round == self.round && report.running;
        if wanted {
            f(&mut report);
        }
        wanted
    }

    async fn all(&self, media_bytes: u64) {
        let mut at = 0;
        let mut paid = self.core.reactor().fresh_now();
        while at < media_bytes {
            let len = self.shared.tunables.slab_bytes.min(media_bytes - at);
            let held = self.shared.ranges.lock_task(at..at + len, true).await;
            // The last word of the run before is not this one's.
            let wanted = self.say(|_| ());
            let done = if wanted { self.slab(at, len).await } else { Ok(()) };
            self.shared.ranges.unlock(held);
            if let Err(why) = done {
                self.say(|report| report.fault = Some(why));
                return;
            }
            at += len;
            if !self.say(|report| report.at = at) {
                return;
            }
            paid = pay(self.core, self.ask.rate, paid, len).await;
        }
    }

    async fn slab(&self, at: u64, len: u64) -> Result<(), &'static str> {
        let members: Vec<(usize, Edge)> = {
            let lane = self.shared.lane(self.core.id() as usize);
            lane.table.active().map(|(slot, path)| (slot, path.edge)).collect()
        };
        let Some((right, _)) = members.iter().find(|(slot, _)| *slot == self.ask.right).copied()
        else {
            return Err("the member to compare with is no longer there");
        };
        let mut contents = Vec::new();
        for (slot, edge) in members {
            contents.push((slot, edge, self.read(slot, edge, at, len).await));
        }
        let Some((_, _, Ok(good))) = contents.iter().find(|(slot, ..)| *slot == right) else {
            // Nobody knows what is right; others are not compared with each other.
            self.note(right, at..at + len, true);
            return Ok(());
        };
        for (slot, edge, bytes) in contents.iter().filter(|(slot, ..)| *slot != right) {
            let wrong = match bytes {
                Ok(bytes) => differences(good, bytes, self.sector as usize),
                Err(_) => std::iter::once(0..good.len()).collect(),
            };
            for range in &wrong {
                let place = at + range.start as u64..at + range.end as u64;
                self.note(*slot, place, bytes.is_err());
            }
            if self.ask.repair && !wrong.is_empty() {
                self.repair((*slot, *edge), at, good, &wrong).await;
            }
        }
        Ok(())
    }

    fn note(&self, slot: usize, range: Range<u64>, unreadable: bool) {
        self.say(|report| report.note(Place { slot, range, unreadable }, self.sector));
    }

    async fn read(&self, slot: usize, edge: Edge, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let read = self.core.read(edge, at, len as usize).await;
        let read = read.and_then(|b| if b.len() as u64 == len { Ok(b) } else { Err(Errno::Io) });
        if read == Err(Errno::NxIo) {
            self.shared.tell(Told::Failed(Failed { slot, gone: true }));
        }
        read
    }

    /// V2, V3
    async fn repair(&self, to: (usize, Edge), at: u64, good: &[u8], wrong: &[Range<usize>]) {
        let (slot, edge) = to;
        let mut sectors = 0;
        for range in wrong {
            let Some(bytes) = good.get(range.clone()) else { continue };
            if let Err(e) = self.core.write(edge, at + range.start as u64, bytes).await {
                return self.shared.tell(Told::Failed(Failed { slot, gone: e == Errno::NxIo }));
            }
            sectors += bytes.len() as u64 / self.sector.max(1);
        }
        match self.core.flush(edge).await {
            Ok(()) | Err(Errno::NotSup) => {
                self.say(|report| report.repaired += sectors);
            }
            Err(e) => self.shared.tell(Told::Failed(Failed { slot, gone: e == Errno::NxIo })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_runs_of_whole_sectors() {
        let right = [0u8; 40];
        let mut other = right;
        assert!(differences(&right, &other, 8).is_empty());
        other[9] = 1;
        other[16] = 1;
        other[39] = 1;
        assert_eq!(differences(&right, &other, 8), [8..24, 32..40]);
    }

    #[test]
    fn runs_are_joined_over_slabs_and_only_some_are_kept() {
        let mut report = Report::default();
        for at in 0..4u64 {
            let range = at * 512..(at + 1) * 512;
            report.note(Place { slot: 1, range, unreadable: false }, 512);
        }
        assert_eq!(report.places.len(), 1);
        for at in 0..2 * PLACES_MAX as u64 {
            let range = at * 4096..at * 4096 + 512;
            report.note(Place { slot: 0, range, unreadable: true }, 512);
        }
        assert_eq!((report.differ, report.unreadable), (4, 2 * PLACES_MAX as u64));
        assert_eq!(report.places.len(), PLACES_MAX);
    }
}
