//! The data path of a modelled disk, and the state that all cores share.

use std::collections::BTreeMap;
use std::sync::Arc;

use bio::sync::Mutex;
use bio::{Attr, Bio, Errno, Extent, Flags, HOLE, MAPPED, Op, Status, Ticket};
use geom::{Core, Flow, Layer};
use reactor::SeededRandom;
use reactor::model::{DiskModel, DiskOp};

/// Errors that occur at a rate, not each time.
pub(super) struct Rate {
    pub(super) op: DiskOp,
    pub(super) range: Extent,
    pub(super) percent: u8,
    pub(super) error: Errno,
}

/// Ranges of one DELETE: as many as NVMe has.
const RANGES_MAX: u32 = 256;

/// A request: its core and its Bio's id as a word.
type Key = (usize, u64);

/// Bytes that a power cut may leave half written.
pub(super) struct Unwritten {
    offset: u64,
    bytes: Vec<u8>,
}

/// The disk and its requests.
pub(super) struct ModelState {
    pub(super) disk: DiskModel,
    pub(super) rates: Vec<Rate>,
    /// Added to each request's time, ns.
    pub(super) extra_ns: u64,
    pub(super) hangs: bool,
    /// D3: asleep until the release.
    hung: Vec<(usize, Ticket)>,
    under_way: BTreeMap<Key, Option<Unwritten>>,
    random: SeededRandom,
}

fn kind_of(op: Op) -> Option<DiskOp> {
    match op {
        Op::Read => Some(DiskOp::Read),
        Op::Write => Some(DiskOp::Write),
        Op::Delete => Some(DiskOp::Discard),
        Op::Flush => Some(DiskOp::Flush),
        Op::WriteZeroes => Some(DiskOp::Zero),
        // As long as a read of nothing.
        Op::Map => Some(DiskOp::Read),
        Op::GetAttr => None,
    }
}

impl ModelState {
    pub(super) fn new(disk: DiskModel, seed: u64) -> ModelState {
        ModelState {
            disk,
            rates: Vec::new(),
            extra_ns: 0,
            hangs: false,
            hung: Vec::new(),
            under_way: BTreeMap::new(),
            random: SeededRandom::new(seed ^ 0x6d6f_6465_6c20_6469),
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Resumes hung requests.
    pub(super) fn release(&mut self) -> Vec<(usize, Ticket)> {
        self.hangs = false;
        std::mem::take(&mut self.hung)
    }

    /// D2. Ends a hang, too; the requests that hung are to be woken.
    pub(super) fn power_cut(&mut self) -> Vec<(usize, Ticket)> {
        for torn in std::mem::take(&mut self.under_way).into_values().flatten() {
            self.disk.tear(torn.offset, &torn.bytes);
        }
        self.disk.power_cut();
        self.release()
    }

    /// Begins a request at `now` and returns its end; None while the disk hangs.
    fn begin(&mut self, key: Key, bio: &Bio, op: DiskOp, now: u64) -> Option<u64> {
        let torn = (bio.op == Op::Write)
            .then(|| Unwritten { offset: bio.offset, bytes: bio.data.to_vec() });
        self.under_way.insert(key, torn);
        if self.hangs {
            self.hung.push((key.0, bio.ticket()));
            return None;
        }
        let bytes = if bio.op == Op::Map { 0 } else { bio.bytes() };
        Some(self.disk.begin(now, op, bio.offset, bytes).saturating_add(self.extra_ns))
    }

    fn fails_by_chance(&mut self, op: DiskOp, bio: &Bio) -> Option<Errno> {
        let range = Extent::new(bio.offset, bio.length)?;
        for rate in &self.rates {
            let meant = rate.op == op && (op == DiskOp::Flush || rate.range.overlaps(range));
            if meant && self.random.below(100) < u64::from(rate.percent) {
                return Some(rate.error);
            }
        }
        None
    }

    fn carry_out(&mut self, op: DiskOp, bio: &mut Bio) -> Status {
        if let Some(error) = self.fails_by_chance(op, bio) {
            return Err(error);
        }
        let durable = bio.flags.has(Flags::FUA);
        match op {
            DiskOp::Read if bio.op == Op::Map => {
                let (is_held, run) = self.disk.run_at(bio.offset, bio.length);
                bio.completed = run;
                bio.value = Some(Attr::Int(if is_held { MAPPED } else { HOLE }));
                Ok(())
            }
            DiskOp::Read => {
                let mut bytes = vec![0; bio.data.len()];
                let n = self.disk.read(bio.offset, &mut bytes)?;
                bio.data.copy_from(0, &bytes);
                if n == bytes.len() { Ok(()) } else { Err(Errno::Io) }
            }
            DiskOp::Write => self.disk.write(bio.offset, &bio.data.to_vec(), durable),
            DiskOp::Flush => self.disk.flush(),
            DiskOp::Discard => {
                bio.ranges().try_for_each(|r| self.disk.discard(r.start, r.end - r.start))
            }
            DiskOp::Zero if self.disk.shape().discards && !bio.flags.has(Flags::NO_HOLE) => {
                self.disk.zero(bio.offset, bio.length)?;
                if durable { self.disk.flush() } else { Ok(()) }
            }
            DiskOp::Zero => {
                // Without the command, or to be held: as writing zeroes.
                let zeroes = vec![0; usize::try_from(bio.length).map_err(|_| Errno::NoMem)?];
                self.disk.write(bio.offset, &zeroes, durable)
            }
        }
    }
}

pub(super) struct ModelLayer {
    pub(super) state: Arc<Mutex<ModelState>>,
}

impl Layer for ModelLayer {
    fn delete_ranges(&self) -> u32 {
        RANGES_MAX
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let Some(op) = kind_of(bio.op) else { return Flow::Done(Err(Errno::NoAttr)) };
        let mut state = self.state.lock();
        if op == DiskOp::Discard && !state.disk.shape().discards {
            return Flow::Done(Err(Errno::NotSup));
        }
        let key = (core.id() as usize, bio.id().to_word());
        let now = core.now();
        if let Some(end) = state.begin(key, bio, op, now) {
            core.wake(bio.ticket(), end.saturating_sub(now));
        }
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let Some(op) = kind_of(bio.op) else { return Flow::Done(Err(Errno::NoAttr)) };
        let core = core.id() as usize;
        let key = (core, bio.id().to_word());
        let mut state = self.state.lock();
        if state.hangs && state.under_way.contains_key(&key) {
            state.hung.push((core, bio.ticket()));
            return Flow::Wait;
        }
        match state.under_way.remove(&key) {
            Some(_) => Flow::Done(state.carry_out(op, bio)),
            None => Flow::Done(Err(Errno::Io)), // D2
        }
    }
}
