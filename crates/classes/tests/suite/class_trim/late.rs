//! A disk that is slow with deletes. It carries them out at any moment until they end, or long
//! after it gave no answer, and fills deleted blocks with garbage. It outlives worlds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::{Attr, Bio, Errno, Op, Status};
use geom::{Core, Flow, Layer, ProviderId, Topology};
use reactor::SeededRandom;
use reactor::model::{DiskModel, DiskShape};
use testkit::disk::{Provider, carry_out};

use super::MS;

pub const SECTOR: u64 = 512;

/// Execution of deletes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deletes {
    /// In so many ns, each carried out at its end.
    Take(u64),
    /// By chance: quick, slow up to a minute, failing, or without an answer and carried out later.
    AnyHow,
    /// It knows no such command.
    Unknown,
    Fail,
    /// It gives no answer, and carries it out 50 s later.
    NoAnswer,
}

/// A delete under way, or one that gave no answer.
struct Late {
    range: Range<u64>,
    at: u64,
    done: bool,
}

pub struct Inside {
    pub model: DiskModel,
    pub deletes: Deletes,
    /// Requests that deleted something.
    pub commands: u64,
    pub zeroes: bool,
    /// Every delete received, in order.
    pub seen: Vec<Range<u64>>,
    /// How those under way end.
    ends: BTreeMap<(usize, u64), Status>,
    late: Vec<Late>,
    random: SeededRandom,
}

/// A handle on it.
#[derive(Clone)]
pub struct LateDisk {
    inside: Arc<Mutex<Inside>>,
    /// Ranges that a delete may name.
    ranges: u32,
}

impl LateDisk {
    pub fn new(bytes: u64, seed: u64, deletes: Deletes) -> LateDisk {
        LateDisk::of_ranges(bytes, seed, deletes, 1)
    }

    /// One that takes so many ranges at once, and carries each out at a time of its own.
    pub fn of_ranges(bytes: u64, seed: u64, deletes: Deletes, ranges: u32) -> LateDisk {
        let shape = DiskShape { size: bytes, ..DiskShape::default() };
        let model = DiskModel::new(shape, seed).expect("a shape");
        let inside = Arc::new(Mutex::new(Inside {
            model,
            deletes,
            commands: 0,
            zeroes: false,
            seen: Vec::new(),
            ends: BTreeMap::new(),
            late: Vec::new(),
            random: SeededRandom::new(seed ^ 0x7a1e),
        }));
        LateDisk { inside, ranges }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn attach(&self, t: &mut Topology, name: &str, granule: u64) -> ProviderId {
        let size = self.lock().model.size();
        let zeroes = self.lock().zeroes;
        let attrs = [
            ("GEOM::candelete", Attr::Int(1)),
            ("GEOM::deletereadszero", Attr::Int(u64::from(zeroes))),
        ];
        let provider =
            Provider::new(name, size).io_max(65536).stripe(granule, 0).with_attrs(&attrs);
        provider.make(t, Arc::new(self.clone())).expect("a disk")
    }

    /// A power cut: deletes under way are carried out or not, unflushed writes may be lost.
    pub fn power_cut(&self) {
        let mut inside = self.lock();
        let late = std::mem::take(&mut inside.late);
        for one in late.into_iter().filter(|l| !l.done) {
            if inside.random.below(2) == 0 {
                inside.spoil(&one.range);
            }
        }
        inside.ends.clear();
        inside.model.power_cut();
    }
}

impl Inside {
    fn spoil(&mut self, range: &Range<u64>) {
        let len = (range.end - range.start) as usize;
        let garbage: Vec<u8> = (0..len).map(|_| self.random.below(256) as u8).collect();
        let lasts = self.random.below(2) == 0;
        self.model.write(range.start, &garbage, lasts).expect("within the disk");
    }

    /// Carries out the deletes that are due.
    fn pass(&mut self, now: u64) {
        let mut late = std::mem::take(&mut self.late);
        for one in late.iter_mut().filter(|l| !l.done && l.at <= now) {
            one.done = true;
            self.spoil(&one.range);
        }
        late.retain(|l| !l.done);
        self.late = late;
    }

    /// When a delete ends and how; it is noted when its ranges are carried out.
    fn delete(&mut self, ranges: &[Range<u64>], now: u64) -> (u64, Status) {
        self.seen.extend(ranges.iter().cloned());
        self.commands += 1;
        let at_once = |at: u64| {
            let late = |range: &Range<u64>| Late { range: range.clone(), at, done: false };
            ranges.iter().map(late).collect::<Vec<_>>()
        };
        let (ns, status) = match self.deletes {
            Deletes::Unknown => return (1_000, Err(Errno::NotSup)),
            Deletes::Fail => return (1_000, Err(Errno::Io)),
            Deletes::NoAnswer => {
                self.late.extend(at_once(now + 50_000 * MS));
                return (MS, Err(Errno::TimedOut));
            }
            Deletes::Take(ns) => {
                self.late.extend(at_once(now + ns));
                return (ns, Ok(()));
            }
            Deletes::AnyHow => match self.random.below(10) {
                0..6 => ((1 + self.random.below(50)) * MS, Ok(())),
                6 | 7 => (self.random.below(60_000) * MS, Ok(())),
                8 => return (self.random.below(20) * MS, Err(Errno::Io)),
                _ => ((1 + self.random.below(5_000)) * MS, Err(Errno::TimedOut)),
            },
        };
        // Without an answer it may be carried out long after.
        let most = if status.is_ok() { ns } else { ns + 59_000 * MS };
        for range in ranges {
            let at = now + self.random.below(most + 1);
            self.late.push(Late { range: range.clone(), at, done: false });
        }
        (ns, status)
    }
}

impl Layer for LateDisk {
    fn delete_ranges(&self) -> u32 {
        self.ranges
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let (mut inside, now) = (self.lock(), core.now());
        let ns = match bio.op {
            Op::GetAttr | Op::Map => return Flow::Done(Err(Errno::NoAttr)),
            Op::Delete => {
                let ranges: Vec<_> = bio.ranges().collect();
                let (ns, status) = inside.delete(&ranges, now);
                inside.ends.insert((core.id() as usize, bio.id().to_word()), status);
                ns
            }
            _ => 5_000 + inside.random.below(145_000),
        };
        core.wake(bio.ticket(), ns);
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let mut inside = self.lock();
        inside.pass(core.now());
        match bio.op {
            Op::Delete => {
                let key = (core.id() as usize, bio.id().to_word());
                Flow::Done(inside.ends.remove(&key).unwrap_or(Err(Errno::Io)))
            }
            _ => Flow::Done(carry_out(&mut inside.model, bio)),
        }
    }
}
