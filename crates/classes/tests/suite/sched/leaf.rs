//! A disk that reports the order in which requests reached it.
//!
//! A request takes effect when it arrives, so that its order is seen in the bytes. The model
//! decides when it ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::{Bio, End, Errno, Flags, Op, Ticket};
use geom::{Core, Error, Flow, Layer, ProviderId, Topology};
use reactor::SeededRandom;
use reactor::model::{DiskModel, DiskOp, DiskShape, Timing};
pub use testkit::clock::MS;
use testkit::disk::{Provider, carry_out, model_op};

pub const BLOCK: u64 = 4096;

/// Flash that answers in about 100 us, any number at once.
pub const FLASH: Timing = Timing::Between { min_ns: 80_000, max_ns: 120_000 };

/// The newest request that touched a block, and the newest that wrote it: tags of one core.
type Touched = BTreeMap<(usize, u64), (u64, u64)>;

pub struct Inside {
    model: DiskModel,
    random: SeededRandom,
    pub errors_percent: u64,
    pub gone: bool,
    pub holds: bool,
    held: Vec<(usize, Ticket)>,
    ends: BTreeMap<(usize, u64), Result<(), Errno>>,
    /// Per core: the newest tag seen, and that of the newest fence.
    newest: BTreeMap<usize, (u64, u64)>,
    touched: Touched,
    /// The first fault in the order.
    pub fault: Option<String>,
    pub seen: u64,
    pub fences: u64,
}

/// A handle on it.
#[derive(Clone)]
pub struct Leaf(pub Arc<Mutex<Inside>>);

impl Leaf {
    pub fn new(bytes: u64, timing: Timing, seed: u64) -> Leaf {
        let shape = DiskShape { size: bytes, timing, sector: 4096, ..DiskShape::default() };
        Leaf(Arc::new(Mutex::new(Inside {
            model: DiskModel::new(shape, seed).expect("a shape"),
            random: SeededRandom::new(seed ^ 0x5ced),
            errors_percent: 0,
            gone: false,
            holds: false,
            held: Vec::new(),
            ends: BTreeMap::new(),
            newest: BTreeMap::new(),
            touched: Touched::new(),
            fault: None,
            seen: 0,
            fences: 0,
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn create(&self, t: &mut Topology, name: &str, io_max: u32) -> Result<ProviderId, Error> {
        let provider = Provider::new(name, self.lock().model.size());
        provider.sector(BLOCK as u32).io_max(io_max).make(t, Arc::new(self.clone()))
    }

    pub fn release(&self) -> Vec<(usize, Ticket)> {
        let mut inside = self.lock();
        inside.holds = false;
        std::mem::take(&mut inside.held)
    }
}

impl Inside {
    /// Checks the order that the tag demands: after requests that it overlaps, on its side of every
    /// fence.
    fn order(&mut self, core: usize, bio: &Bio) {
        // Pieces of one that was cut have no tag.
        let End::Sink { tag, .. } = bio.end else { return };
        self.seen += 1;
        let (newest, fence) = *self.newest.get(&core).unwrap_or(&(0, 0));
        let ordered = bio.flags.has(Flags::ORDERED);
        let mut wrong = (tag < fence).then_some("behind a later fence");
        if ordered && tag < newest {
            wrong = Some("a fence behind later ones");
        }
        let fence = if ordered { tag } else { fence };
        self.fences += u64::from(ordered);
        self.newest.insert(core, (newest.max(tag), fence));
        for block in bio.offset / BLOCK..(bio.offset + bio.length).div_ceil(BLOCK) {
            let touched = self.touched.entry((core, block)).or_default();
            let before = if bio.op == Op::Read { touched.1 } else { touched.0 };
            if tag < before {
                wrong = Some("behind a later one that it overlaps");
            }
            touched.0 = touched.0.max(tag);
            if bio.op != Op::Read {
                touched.1 = touched.1.max(tag);
            }
        }
        if let Some(wrong) = wrong {
            let what = format!("{} {tag} of core {core} came {wrong}", bio.op.name());
            self.fault.get_or_insert(what);
        }
    }

    fn carry_out(&mut self, bio: &mut Bio) -> Result<(), Errno> {
        if self.gone {
            return Err(Errno::NxIo);
        }
        if self.errors_percent > 0 && self.random.below(100) < self.errors_percent {
            return Err(Errno::Io);
        }
        carry_out(&mut self.model, bio)
    }
}

impl Layer for Leaf {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let mut inside = self.lock();
        let (me, now) = (core.id() as usize, core.now());
        inside.order(me, bio);
        let end = inside.carry_out(bio);
        inside.ends.insert((me, bio.id().to_word()), end);
        if inside.holds {
            inside.held.push((me, bio.ticket()));
            return Flow::Wait;
        }
        let op = model_op(bio.op).unwrap_or(DiskOp::Write);
        let due = inside.model.begin(now, op, bio.offset, bio.length);
        core.wake(bio.ticket(), due.saturating_sub(now));
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let end = self.lock().ends.remove(&(core.id() as usize, bio.id().to_word()));
        Flow::Done(end.unwrap_or(Err(Errno::Io)))
    }
}
