//! Storm test of the disks of a virtual HBA, in seeded worlds: faults, hangs, duplicate answers,
//! stops, power cuts, disks removed and inserted. Acknowledged data are found, flushed data
//! survive, every request ends once, freezes balance, and nothing hangs.
//!
//! More of them: see `testkit::seeds`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bio::{Errno, Flags, Op};
use cam::Path;
use cam::sims::hba::{DiskSpec, Faults, Transport, VirtualHba};
use geom::Edge;
use reactor::SeededRandom;
use reactor::model::{DiskShape, Timing};
use testkit::Seeds;

use crate::world::{World, range};

const SECTORS: u64 = 32;
const SECTOR: u64 = 512;
const SEEDS: u64 = 1000;

/// Values of a sector, each the number of the write that stored it; 0 is the initial content.
#[derive(Clone)]
struct Sector {
    /// Values that a read may find now.
    now: BTreeSet<u64>,
    /// Values that it may hold after a power cut.
    kept: BTreeSet<u64>,
}

enum Operation {
    /// The values of each sector that must not return, now and for good, once it is acknowledged.
    Write { at: u64, over: Vec<(BTreeSet<u64>, BTreeSet<u64>)>, fua: bool },
    /// What each sector may be found to hold.
    Read { at: u64, may: Vec<BTreeSet<u64>> },
    /// What each sector cannot hold any more, even after a power cut.
    Flush { gone: Vec<BTreeSet<u64>>, cuts: u64 },
}

struct Storm {
    seed: u64,
    random: SeededRandom,
    w: World,
    hba: Arc<VirtualHba>,
    edge: Edge,
    sectors: Vec<Sector>,
    under_way: BTreeMap<u64, Operation>,
    deletes: BTreeSet<u64>,
    next: u64,
    ended: u64,
    failed: u64,
    power_cuts: u64,
    lost: u64,
    /// Something acknowledged may have been lost, and no flush has reported it.
    unreported_loss: bool,
    wrote: bool,
    fua_is_native: bool,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut random = SeededRandom::new(seed);
        let sas = random.below(2) == 0;
        let transport = if sas { Transport::Sas } else { Transport::Sata };
        let spec = DiskSpec {
            shape: DiskShape {
                size: SECTORS * SECTOR,
                timing: Timing::Between { min_ns: 0, max_ns: 2_000_000 },
                ..DiskShape::default()
            },
            depth: 1 + random.below(16) as u8,
            ..DiskSpec::default()
        };
        let (w, hba, edge) = World::of_disk(seed, transport, spec);
        let first = Sector { now: BTreeSet::from([0]), kept: BTreeSet::from([0]) };
        Storm {
            seed,
            w,
            hba,
            edge,
            sectors: vec![first; SECTORS as usize],
            under_way: BTreeMap::new(),
            deletes: BTreeSet::from([0]),
            next: 0,
            ended: 0,
            failed: 0,
            power_cuts: 0,
            lost: 0,
            unreported_loss: false,
            wrote: false,
            fua_is_native: sas,
            random,
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn submit(&mut self) {
        self.next += 1;
        let tag = self.next;
        let at = self.random.below(SECTORS);
        let n = 1 + self.random.below((SECTORS - at).min(4));
        let here = at as usize..(at + n) as usize;
        let ordered = if self.chance(5) { Flags::ORDERED } else { Flags::NONE };
        let kind = self.random.below(20);
        if kind == 0 {
            let gone = self.sectors.iter().map(|s| &s.kept - &s.now).collect();
            self.under_way.insert(tag, Operation::Flush { gone, cuts: self.power_cuts });
            self.w.start(self.edge, tag, |bio| {
                bio.op = Op::Flush;
                bio.flags = ordered;
            });
            return;
        }
        if kind < 8 {
            let may = self.sectors[here].iter().map(|s| s.now.clone()).collect();
            self.under_way.insert(tag, Operation::Read { at, may });
            let data = self.w.buffer((n * SECTOR) as usize);
            data.fill(0, data.len(), 0xa5);
            self.w.start(self.edge, tag, |bio| {
                range(bio, Op::Read, at * SECTOR, data);
                bio.flags = ordered;
            });
            return;
        }
        self.write(tag, at, n, ordered, kind < 10);
    }

    fn write(&mut self, tag: u64, at: u64, n: u64, ordered: Flags, delete: bool) {
        let here = at as usize..(at + n) as usize;
        let fua = !delete && self.chance(15);
        let ended = |set: &BTreeSet<u64>| -> BTreeSet<u64> {
            set.iter().copied().filter(|v| !self.under_way.contains_key(v)).collect()
        };
        // Some deletes name two ranges, and the sectors between them keep their data.
        let between = (delete && n > 2 && tag.is_multiple_of(2)).then_some(at + 1);
        let over = (at..).zip(&self.sectors[here.clone()]).map(|(sector, s)| {
            if Some(sector) == between {
                Default::default()
            } else {
                (ended(&s.now), ended(&s.kept))
            }
        });
        let what = Operation::Write { at, over: over.collect(), fua };
        for (_, sector) in (at..).zip(&mut self.sectors[here]).filter(|(s, _)| Some(*s) != between)
        {
            sector.now.insert(tag);
            sector.kept.insert(tag);
        }
        for (sector, may) in self.under_way.values_mut().flat_map(Operation::reads) {
            if (at..at + n).contains(&sector) && Some(sector) != between {
                may.insert(tag);
            }
        }
        self.under_way.insert(tag, what);
        if delete {
            self.deletes.insert(tag);
            self.w.start(self.edge, tag, |bio| {
                let (start, end) = (at * SECTOR, (at + n) * SECTOR);
                let cut = between.map_or((end, end), |b| (b * SECTOR, (b + 1) * SECTOR));
                assert!(bio.delete_ranges(&[start..cut.0, cut.1..end]), "in order");
                bio.flags = ordered;
            });
            return;
        }
        let data = self.w.buffer((n * SECTOR) as usize);
        let one: Vec<u8> = tag.to_le_bytes().repeat(SECTOR as usize / 8);
        for i in 0..n {
            data.copy_from((i * SECTOR) as usize, &one);
        }
        let flags = if fua { Flags::FUA | ordered } else { ordered };
        self.w.start(self.edge, tag, |bio| {
            range(bio, Op::Write, at * SECTOR, data);
            bio.flags = flags;
        });
    }

    /// The power fails and returns. Each sector holds the data of its last flush or of any write
    /// since.
    fn power_cut(&mut self) {
        self.power_cuts += 1;
        self.unreported_loss |= self.wrote;
        for sector in &mut self.sectors {
            sector.now = sector.kept.clone();
        }
        let sectors = &self.sectors;
        for (sector, may) in self.under_way.values_mut().flat_map(Operation::reads) {
            may.extend(&sectors[sector as usize].now);
        }
    }

    fn end(&mut self, tag: u64, status: Result<(), Errno>, bytes: &[u8]) {
        let seed = self.seed;
        let what = self.under_way.remove(&tag);
        let what = what.unwrap_or_else(|| panic!("seed {seed}: {tag} ended twice"));
        self.ended += 1;
        self.failed += u64::from(status.is_err());
        match (what, status) {
            (Operation::Write { at, over, fua }, Ok(())) => {
                // Deleted data may return, and FUA writes are not lost.
                self.wrote |= !fua && !self.deletes.contains(&tag);
                let sectors = self.sectors.iter_mut().skip(at as usize);
                for (sector, (now, kept)) in sectors.zip(&over) {
                    sector.now.retain(|v| !now.contains(v));
                    if fua {
                        sector.kept.retain(|v| !kept.contains(v));
                    }
                }
            }
            (Operation::Read { at, may }, Ok(())) => {
                for (i, (may, found)) in may.iter().zip(bytes.chunks(SECTOR as usize)).enumerate() {
                    let (words, _) = found.as_chunks::<8>();
                    assert!(words.iter().all(|w| *w == words[0]), "seed {seed}: a torn sector");
                    let value = u64::from_le_bytes(words[0]);
                    let zero = value == 0 && may.iter().any(|v| self.deletes.contains(v));
                    let sector = at + i as u64;
                    assert!(
                        zero || may.contains(&value),
                        "seed {seed}: read {tag} found {value} in sector {sector}, not of {may:?}"
                    );
                }
            }
            (Operation::Flush { gone, cuts }, Ok(())) => {
                let is_reported = !self.unreported_loss && cuts == self.power_cuts || !self.wrote;
                assert!(is_reported, "seed {seed}: flush {tag} vouches for what a power cut took");
                for (sector, gone) in self.sectors.iter_mut().zip(&gone) {
                    sector.kept.retain(|v| !gone.contains(v));
                }
            }
            (Operation::Flush { .. }, Err(_)) => self.unreported_loss = false,
            (_, Err(error)) => {
                let device = matches!(error, Errno::TimedOut | Errno::RemoteIo);
                let known = device || matches!(error, Errno::Io | Errno::NxIo | Errno::Busy);
                assert!(known, "seed {seed}: {tag} ended with {error}");
            }
        }
    }

    fn go_on(&mut self, ns: u64) {
        self.w.turn(ns);
        for ended in self.w.ended() {
            self.end(ended.tag, ended.status, &ended.bytes);
        }
    }

    /// Everything that was sent ends.
    fn drain(&mut self) {
        let end = self.w.now() + 3_600_000_000_000;
        while !self.under_way.is_empty() {
            assert!(
                self.w.now() < end,
                "seed {}: it hangs: {:?}",
                self.seed,
                self.under_way.keys()
            );
            self.go_on(1_000_000_000);
        }
        if let Some(unit) = self.w.buses[0].unit(Path::new(0, 0, 0)) {
            // Requests that ended at their deadline do not wait for resets and checks.
            while unit.inspect(|device| device.is_reset() || device.is_in_doubt()) {
                assert!(self.w.now() < end, "seed {}: a reset does not end", self.seed);
                self.go_on(1_000_000_000);
            }
            unit.inspect(|device| {
                let (made, released) = device.freezes();
                assert_eq!(made, released, "seed {}: freezes", self.seed);
                assert_eq!(device.live(), 0, "seed {}: CCBs are left", self.seed);
            });
        }
    }

    /// When a disk was lost, by its own fault or ours: it is found again, as another provider.
    fn find_again(&mut self) {
        self.hba.set_present(0, true);
        self.hba.set_faults(0, Faults::default());
        self.drain();
        let unit = self.w.buses[0].unit(Path::new(0, 0, 0));
        if unit.is_some_and(|unit| unit.inspect(|device| !device.is_lost())) {
            return;
        }
        self.lost += 1;
        let names = self.w.scan(0);
        assert_eq!(names.len(), 1, "seed {}: it is there again", self.seed);
        self.edge = self.w.open(&names[0]).1;
        // The new provider vouches for nothing that was before it.
        self.unreported_loss = false;
        self.wrote = false;
    }

    fn mishap(&mut self) {
        match self.random.below(12) {
            0..4 => {
                let percent = |r: &mut SeededRandom, most| r.below(most) as u8;
                let r = &mut self.random;
                let faults = Faults {
                    fails: percent(r, 15),
                    lies: percent(r, 8),
                    hangs: percent(r, 4),
                    echoes: percent(r, 30),
                    full: percent(r, 20),
                    deaf: percent(r, 60),
                    mute: percent(r, 60),
                    ..Faults::default()
                };
                self.hba.set_faults(0, faults);
            }
            4..6 => self.hba.set_faults(0, Faults::default()),
            6..9 => {
                self.power_cut();
                self.hba.power_cut(0);
            }
            9 => self.hba.stop(0),
            10 => {
                // Out of its bay it has no power, either.
                self.hba.set_present(0, false);
                self.power_cut();
                self.hba.power_cut(0);
                self.go_on(self.seed % 8 * 1_000_000_000);
                self.find_again();
            }
            _ => self.find_again(),
        }
    }

    fn run(mut self) -> (u64, u64, u64, u64) {
        for _ in 0..60 {
            for _ in 0..self.random.below(8) {
                self.submit();
            }
            if self.chance(10) {
                self.mishap();
            }
            let ns = self.random.below(3_000_000);
            self.go_on(ns + 1);
        }
        self.find_again();
        // The present contents equal the acknowledged ones and survive a power cut.
        for at in 0..SECTORS / 4 {
            self.next += 1;
            let may = (0..4).map(|i| self.sectors[(at * 4 + i) as usize].now.clone()).collect();
            self.under_way.insert(self.next, Operation::Read { at: at * 4, may });
            let (tag, data) = (self.next, self.w.buffer(4 * SECTOR as usize));
            self.w.start(self.edge, tag, |bio| range(bio, Op::Read, at * 4 * SECTOR, data));
        }
        self.drain();
        assert_eq!(self.ended, self.next, "seed {}: each ends once", self.seed);
        (self.ended, self.failed, self.power_cuts, self.lost)
    }
}

impl Operation {
    /// The sectors of a read, each with the values that it may hold.
    fn reads(&mut self) -> impl Iterator<Item = (u64, &mut BTreeSet<u64>)> {
        let (at, may) = match self {
            Operation::Read { at, may } => (*at, may.as_mut_slice()),
            _ => (0, &mut [][..]),
        };
        may.iter_mut().enumerate().map(move |(i, may)| (at + i as u64, may))
    }
}

/// P2 of periph/disk.rs.
#[test]
fn acknowledged_writes_survive_random_faults() {
    let all = Seeds::of(SEEDS);
    let seeds = all.count();
    let (mut ended, mut failed, mut cuts, mut lost, mut native) = (0, 0, 0, 0, 0);
    for seed in all.clone() {
        let storm = Storm::new(seed);
        native += u64::from(storm.fua_is_native);
        let (e, f, c, l) = storm.run();
        (ended, failed, cuts, lost) = (ended + e, failed + f, cuts + c, lost + l);
    }
    if !all.are_enough() {
        return;
    }
    // The storms are not all alike, and not all lost.
    assert!(failed > seeds && failed < ended / 2, "{failed} of {ended} failed");
    assert!(cuts > seeds / 2 && lost > seeds / 10, "{cuts} cuts, {lost} lost");
    assert!(native > seeds / 4 && native < seeds * 3 / 4);
}
