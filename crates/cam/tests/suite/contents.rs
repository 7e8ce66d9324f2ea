//! Model of the contents of a disk: the versions that each sector may hold, and the requests in
//! flight. It proves that no acknowledged write is lost, and that no old write is applied over a
//! newer one.

use std::collections::{BTreeMap, BTreeSet};

use bio::{Errno, Flags, Op};
use geom::Edge;

use crate::world::{End1, World, range};

const SECTOR: usize = 512;

/// A version of a sector, which differs from all other versions and from those of other sectors.
pub fn pattern(sector: u64, version: u64) -> Vec<u8> {
    let head = [sector.to_be_bytes(), version.to_be_bytes()].concat();
    head.iter().copied().cycle().take(SECTOR).collect()
}

/// A request in flight.
struct Request {
    at: u64,
    len: u64,
    /// Time of its submission, ns.
    began: u64,
    /// Versions that a READ may find in each sector. `None`: a WRITE.
    may: Option<Vec<BTreeSet<u64>>>,
}

pub struct Contents {
    seed: u64,
    /// Versions that each sector may hold.
    may: Vec<BTreeSet<u64>>,
    in_flight: BTreeMap<u64, Request>,
    /// Number of the last request, which is the version that it writes.
    last: u64,
    pub writes_done: u64,
    pub reads_done: u64,
}

impl Contents {
    /// Sectors of version 0.
    pub fn new(seed: u64, sectors: usize) -> Contents {
        let may = vec![BTreeSet::from([0]); sectors];
        Contents { seed, may, in_flight: BTreeMap::new(), last: 0, writes_done: 0, reads_done: 0 }
    }

    /// The bytes of version 0 of all sectors.
    pub fn initial(&self) -> Vec<u8> {
        (0..self.may.len() as u64).flat_map(|sector| pattern(sector, 0)).collect()
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Submits a READ of `len` sectors.
    pub fn read(&mut self, w: &mut World, edge: Edge, at: u64, len: u64) {
        self.last += 1;
        let may = self.may[at as usize..(at + len) as usize].to_vec();
        let request = Request { at, len, began: w.now(), may: Some(may) };
        self.in_flight.insert(self.last, request);
        let data = w.buffer(len as usize * SECTOR);
        w.start(edge, self.last, |bio| range(bio, Op::Read, at * SECTOR as u64, data));
    }

    /// Submits a WRITE of `len` sectors with the flags for its number. Nothing is submitted while
    /// another WRITE of these sectors is in flight: either of them could win.
    pub fn write(
        &mut self,
        w: &mut World,
        edge: Edge,
        (at, len): (u64, u64),
        flags: impl FnOnce(u64) -> Flags,
    ) {
        self.last += 1;
        let (tag, end) = (self.last, at + len);
        let overlaps = |r: &Request| r.may.is_none() && r.at < end && at < r.at + r.len;
        if self.in_flight.values().any(overlaps) {
            return;
        }
        let data = w.buffer(len as usize * SECTOR);
        for sector in at..end {
            data.copy_from((sector - at) as usize * SECTOR, &pattern(sector, tag));
            self.may[sector as usize].insert(tag);
        }
        for request in self.in_flight.values_mut() {
            let sectors = (request.at..).zip(request.may.iter_mut().flatten());
            for (_, may) in sectors.filter(|(sector, _)| (at..end).contains(sector)) {
                may.insert(tag);
            }
        }
        self.in_flight.insert(tag, Request { at, len, began: w.now(), may: None });
        w.start(edge, tag, |bio| {
            range(bio, Op::Write, at * SECTOR as u64, data);
            bio.flags = flags(tag);
        });
    }

    /// Checks a request that ended at `now`: within `longest` ns, and a READ with versions that its
    /// sectors may hold.
    pub fn end(&mut self, ended: &End1, now: u64, longest: u64) -> Result<(), Errno> {
        let (seed, tag) = (self.seed, ended.tag);
        let request = self.in_flight.remove(&tag).expect("ends once");
        let took = now - request.began;
        assert!(took <= longest, "seed {seed}: {tag} took {} ms", took / 1_000_000);
        ended.status?;
        match request.may {
            None => {
                self.writes_done += 1;
                let sectors = request.at as usize..(request.at + request.len) as usize;
                self.may[sectors].fill(BTreeSet::from([tag]));
            }
            Some(may) => {
                self.reads_done += 1;
                self.check_from(request.at, &ended.bytes, &may);
            }
        }
        Ok(())
    }

    /// Checks the bytes that the disk holds.
    pub fn check(&self, bytes: &[u8]) {
        self.check_from(0, bytes, &self.may);
    }

    fn check_from(&self, at: u64, bytes: &[u8], may: &[BTreeSet<u64>]) {
        let bytes = &bytes[..may.len() * SECTOR];
        for ((sector, may), found) in (at..).zip(may).zip(bytes.chunks(SECTOR)) {
            let is = |version: &u64| pattern(sector, *version) == found;
            assert!(
                may.iter().any(is),
                "seed {}: sector {sector} is {:?}, none of {may:?}: {:x?}",
                self.seed,
                (0..=self.last).find(is),
                &found[..16]
            );
        }
    }
}
