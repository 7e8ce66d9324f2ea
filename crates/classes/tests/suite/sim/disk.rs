//! A disk that outlives worlds: a model of its contents, and the faults that it can have.
//!
//! It is like the kind `model` of `disks`, but a value of the test's: the next world is given the
//! same one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::{Attr, Bio, Errno, Flags, Op, Ticket};
use geom::{Core, Error, Flow, Layer, ProviderId, Topology};
use reactor::SeededRandom;
use reactor::model::{DiskModel, DiskShape, Timing};
use testkit::disk::{Provider, carry_out, model_op};

pub const SECTOR: u64 = 512;

/// Offset and bytes of a write under way.
type Write = (u64, Vec<u8>);

pub struct Inside {
    pub model: DiskModel,
    random: SeededRandom,
    /// Requests that fail, in percent, by kind, and how.
    pub faults: Vec<(Op, u64, Errno)>,
    /// The next of this kind fails.
    pub once: Option<(Op, Errno)>,
    /// It has failed a request, or was lost.
    pub failed: bool,
    pub hangs: bool,
    /// Requests of this kind hang.
    pub holds: Option<Op>,
    /// Only those that begin below this byte.
    pub holds_below: u64,
    /// Fail-fast requests are returned.
    pub in_transition: bool,
    /// So many of them do not yet.
    pub lets: u64,
    hung: Vec<(usize, Ticket)>,
    under_way: BTreeMap<(usize, u64), Option<Write>>,
    pub writes: u64,
    pub deletes: bool,
    /// It takes WRITE ZEROES.
    pub zeroes: bool,
    /// Its size when it was new, bytes.
    first: u64,
    /// Its serial number: made of the name by which it was plugged in first.
    serial: Option<String>,
}

thread_local! {
    /// Whether a mirror's record that is marked clean, after one that was marked dirty, is to be
    /// noticed, and whether one was. The power fails before it can be flushed.
    pub static CLEANED: Cell<Watch> = const { Cell::new(Watch::Off) };
}

/// How long a request takes, in ns, when a test sets it.
type Latency = Box<dyn FnMut() -> u64>;

thread_local! {
    /// Instead of the disks' own times.
    pub static LATENCY: RefCell<Option<Latency>> = const { RefCell::new(None) };
}

/// See [`CLEANED`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    Off,
    Armed,
    Seen,
}

#[derive(Clone)]
pub struct Disk(Arc<Mutex<Inside>>);

impl Disk {
    pub fn new(bytes: u64, seed: u64) -> Disk {
        let shape = DiskShape {
            size: bytes,
            timing: Timing::Between { min_ns: 5_000, max_ns: 150_000 },
            ..DiskShape::default()
        };
        let model = DiskModel::new(shape, seed).expect("a shape");
        Disk(Arc::new(Mutex::new(Inside {
            model,
            random: SeededRandom::new(seed ^ 0x51),
            faults: Vec::new(),
            once: None,
            failed: false,
            hangs: false,
            holds: None,
            holds_below: u64::MAX,
            in_transition: false,
            lets: 0,
            hung: Vec::new(),
            under_way: BTreeMap::new(),
            writes: 0,
            deletes: true,
            zeroes: true,
            first: bytes,
            serial: None,
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A power cut of this disk: writes under way are torn, unflushed ones may be lost.
    pub fn power_cut(&self) {
        let mut inside = self.lock();
        for (offset, bytes) in std::mem::take(&mut inside.under_way).into_values().flatten() {
            inside.model.tear(offset, &bytes);
        }
        inside.model.power_cut();
        (inside.hangs, inside.holds) = (false, None);
        inside.hung.clear();
        inside.heal();
    }

    pub fn release(&self) -> Vec<(usize, Ticket)> {
        let mut inside = self.lock();
        (inside.hangs, inside.holds) = (false, None);
        std::mem::take(&mut inside.hung)
    }

    /// So many of those that are held are released, others hang.
    pub fn let_go(&self, count: u64) -> Vec<(usize, Ticket)> {
        let mut inside = self.lock();
        inside.lets = count;
        std::mem::take(&mut inside.hung)
    }

    /// The cable is pulled: requests under way fail; with `dark`, the cache is lost too.
    pub fn pull(&self, dark: bool) -> Vec<(usize, Ticket)> {
        let mut inside = self.lock();
        let torn = std::mem::take(&mut inside.under_way);
        for (offset, bytes) in torn.into_values().flatten() {
            inside.model.tear(offset, &bytes);
        }
        if dark {
            inside.model.power_cut();
        }
        inside.heal();
        drop(inside);
        self.release()
    }

    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let mut inside = self.lock();
        inside.heal();
        inside.model.read(at, &mut out).expect("healed");
        out
    }

    /// Puts bytes there, for good.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.lock().model.write(at, bytes, true).expect("written");
    }

    pub fn size(&self) -> u64 {
        self.lock().model.size()
    }

    /// Grows the disk. The added sectors hold different bytes on each disk.
    pub fn grow(&self, by: u64) -> u64 {
        let mut inside = self.lock();
        let (old, size) = (inside.model.size(), inside.model.size() + by);
        inside.model.set_size(size);
        let junk: Vec<u8> = (0..by).map(|_| inside.random.below(256) as u8).collect();
        inside.model.write(old, &junk, true).expect("written");
        size
    }

    /// The end of its label, or its size if no label is found: a label may not have been moved when
    /// the disk grew.
    pub fn labelled_end(&self, by: u64) -> u64 {
        let mut end = self.size();
        while end > self.first() && !self.bytes(end - SECTOR, 6).starts_with(b"GEOM::") {
            end -= by;
        }
        end
    }

    fn first(&self) -> u64 {
        self.lock().first
    }

    pub fn attach(&self, t: &mut Topology, name: &str) -> Result<ProviderId, Error> {
        let deletes = u64::from(self.lock().deletes);
        let named = || format!("serial-{name}");
        // By its name: one, three or any number.
        let ranges = [1, 3, u32::MAX][name.bytes().map(usize::from).sum::<usize>() % 3];
        let serial = self.lock().serial.get_or_insert_with(named).clone();
        let attrs = [
            ("GEOM::ident", Attr::Text(serial)),
            ("GEOM::candelete", Attr::Int(deletes)),
            ("GEOM::deletereadszero", Attr::Int(1)),
        ];
        let provider = Provider::new(name, self.size()).io_max(65536).with_attrs(&attrs);
        provider.make(t, Arc::new(DiskLayer(self.clone(), ranges)))
    }
}

impl Inside {
    pub fn heal(&mut self) {
        self.faults.clear();
        self.once = None;
    }

    /// It fails nothing.
    pub fn is_well(&self) -> bool {
        self.faults.is_empty() && self.once.is_none()
    }

    fn holds(&self, bio: &Bio) -> bool {
        self.holds == Some(bio.op) && bio.offset < self.holds_below
    }

    fn fails(&mut self, op: Op) -> Option<Errno> {
        if let Some((which, error)) = self.once
            && which == op
        {
            (self.once, self.failed) = (None, true);
            return Some(error);
        }
        for (which, percent, error) in &self.faults {
            if *which == op && self.random.below(100) < *percent {
                self.failed = true;
                return Some(*error);
            }
        }
        None
    }

    fn watch(&mut self, at: u64, bytes: &[u8]) {
        let is_record = bytes.starts_with(b"GEOM::MIRROR") && at + SECTOR == self.model.size();
        if !is_record || CLEANED.get() != Watch::Armed {
            return;
        }
        let mut old = [0; 96];
        let read = self.model.read(at, &mut old);
        if read.is_ok() && old.starts_with(b"GEOM::MIRROR") && old[87] & 1 > bytes[87] & 1 {
            CLEANED.set(Watch::Seen);
        }
    }

    fn carry_out(&mut self, bio: &mut Bio) -> Result<(), Errno> {
        if let Some(error) = self.fails(bio.op) {
            return Err(error);
        }
        match bio.op {
            Op::Write => {
                self.writes += 1;
                self.watch(bio.offset, &bio.data.to_vec());
            }
            Op::Delete if !self.deletes => return Err(Errno::NotSup),
            Op::WriteZeroes if !self.zeroes => return Err(Errno::NotSup),
            _ => {}
        }
        carry_out(&mut self.model, bio)
    }
}

/// With the ranges that one DELETE may name.
struct DiskLayer(Disk, u32);

impl Layer for DiskLayer {
    fn delete_ranges(&self) -> u32 {
        self.1
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let what = match model_op(bio.op) {
            Ok(what) => what,
            Err(error) => return Flow::Done(Err(error)),
        };
        let mut inside = self.0.lock();
        if inside.in_transition && bio.flags.has(Flags::FAIL_FAST) {
            return Flow::Done(Err(Errno::Again));
        }
        let torn = (bio.op == Op::Write).then(|| (bio.offset, bio.data.to_vec()));
        let at = core.id() as usize;
        inside.under_way.insert((at, bio.id().to_word()), torn);
        if inside.hangs || inside.holds(bio) && inside.lets == 0 {
            inside.hung.push((at, bio.ticket()));
            return Flow::Wait;
        }
        let now = core.now();
        let end = inside.model.begin(now, what, bio.offset, bio.length);
        let latency_ns = LATENCY.with(|l| l.borrow_mut().as_mut().map(|latency| latency()));
        core.wake(bio.ticket(), latency_ns.unwrap_or(end.saturating_sub(now)));
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let mut inside = self.0.lock();
        let at = core.id() as usize;
        let held = inside.holds(bio);
        if inside.hangs || held && inside.lets == 0 {
            inside.hung.push((at, bio.ticket()));
            return Flow::Wait;
        }
        inside.lets = inside.lets.saturating_sub(u64::from(held));
        match inside.under_way.remove(&(at, bio.id().to_word())) {
            Some(_) => Flow::Done(inside.carry_out(bio)),
            None => Flow::Done(Err(Errno::NxIo)),
        }
    }
}
