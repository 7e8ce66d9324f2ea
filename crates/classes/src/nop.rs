//! nop: a layer that hands requests on, and on demand fails them, delays them or shows another
//! size, offset or sector size. For tests of everything above it; it has no metadata.
//!
//! Invariants
//!  N1  A request is either failed without being passed on, or passed on exactly once (F1).
//!  N2  FLUSH and GETATTR are never failed or delayed: layers above rely on them.
//!  N3  Where it changes neither size nor sector size it can be slipped in and out under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bio::sync::Mutex;
use bio::{Attr, Bio, Errno, Op};
use geom::{ClassParams, Core, Error, Filter, FilterAction, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A layer that injects errors and delays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NopParams {
    /// Error of failed requests.
    #[schemars(extend("enum" = error_names()))]
    pub error: String,
    /// Reads that fail, in percent.
    #[schemars(range(max = 100))]
    pub read_fail_percent: u8,
    /// Writes that fail, in percent.
    #[schemars(range(max = 100))]
    pub write_fail_percent: u8,
    /// Reads that are delayed, in percent.
    #[schemars(range(max = 100))]
    pub read_delay_percent: u8,
    /// Writes that are delayed, in percent.
    #[schemars(range(max = 100))]
    pub write_delay_percent: u8,
    /// Deletes that fail, in percent.
    #[schemars(range(max = 100))]
    pub delete_fail_percent: u8,
    /// Deletes that are delayed, in percent.
    #[schemars(range(max = 100))]
    pub delete_delay_percent: u8,
    /// Delay of delayed requests, in ms.
    #[schemars(range(max = 3_600_000))]
    pub delay_ms: u32,
    /// Number of reads and writes that pass unchanged before all of them fail, counted from the
    /// last change of settings; 0: no limit.
    pub count_until_fail: u64,
    /// Offset in the provider below of the first byte shown, in bytes, a multiple of the sector
    /// size.
    pub offset: u64,
    /// Size shown, in bytes; absent: up to the end of the provider below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Sector size shown, in bytes: a multiple of that of the provider below; absent: the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
    /// Stripe size shown, in bytes; zero: that of the provider below.
    pub stripe_size: u64,
    /// Offset of the first byte in a stripe, in bytes.
    pub stripe_offset: u64,
    /// Physical path shown; absent: that of the disk below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physpath: Option<String>,
}

impl ClassParams for NopParams {
    const FIXED: &'static [&'static str] =
        &["offset", "size", "sector_size", "stripe_size", "stripe_offset", "physpath"];
}

impl Default for NopParams {
    fn default() -> NopParams {
        NopParams {
            error: Errno::Io.name().to_owned(),
            read_fail_percent: 0,
            write_fail_percent: 0,
            read_delay_percent: 0,
            write_delay_percent: 0,
            delete_fail_percent: 0,
            delete_delay_percent: 0,
            delay_ms: 0,
            count_until_fail: 0,
            offset: 0,
            size: None,
            sector_size: None,
            stripe_size: 0,
            stripe_offset: 0,
            physpath: None,
        }
    }
}

/// All but ENOMEM: such a request would be sent again for ever (D3 of the dispatcher).
fn errors() -> impl Iterator<Item = Errno> {
    Errno::ALL.iter().copied().filter(|e| *e != Errno::NoMem)
}

fn error_names() -> Vec<&'static str> {
    errors().map(|e| e.name()).collect()
}

/// Faults, as the data path needs them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Faults {
    error: Errno,
    /// Percent of reads, writes and deletes that fail, and that are delayed.
    fail: [u8; 3],
    delay: [u8; 3],
    delay_ns: u64,
    /// Reads and writes until all fail; `None`: no such end.
    count: Option<u64>,
}

impl Faults {
    const NONE: Faults =
        Faults { error: Errno::Io, fail: [0; 3], delay: [0; 3], delay_ns: 0, count: None };

    fn of(p: &NopParams) -> Result<Faults, Error> {
        let fail = [p.read_fail_percent, p.write_fail_percent, p.delete_fail_percent];
        let delay = [p.read_delay_percent, p.write_delay_percent, p.delete_delay_percent];
        let is_named = |e: &Errno| e.name().eq_ignore_ascii_case(&p.error);
        let error = errors().find(is_named).ok_or_else(|| {
            let known = error_names().join(", ");
            Error::inval(format!("error {:?} is none of {known}", p.error))
        })?;
        let count = (p.count_until_fail > 0).then_some(p.count_until_fail);
        Ok(Faults { error, fail, delay, delay_ns: u64::from(p.delay_ms) * 1_000_000, count })
    }

    /// The fate of a request (N2).
    fn decide(&mut self, op: Op, core: &Core) -> FilterAction {
        let kind = match op {
            Op::Read => 0,
            Op::Write | Op::WriteZeroes => 1,
            Op::Delete => 2,
            _ => return FilterAction::Pass,
        };
        match &mut self.count {
            Some(0) if op != Op::Delete => return FilterAction::Fail(self.error),
            Some(left) if op != Op::Delete => {
                *left -= 1;
                return FilterAction::Pass;
            }
            _ => {}
        }
        if happens(self.fail[kind], core) {
            return FilterAction::Fail(self.error);
        }
        match self.delay_ns {
            ns if ns > 0 && happens(self.delay[kind], core) => FilterAction::After(ns),
            _ => FilterAction::Pass,
        }
    }
}

fn happens(percent: u8, core: &Core) -> bool {
    match percent {
        0 => false,
        100.. => true,
        some => core.reactor().random() % 100 < u64::from(some),
    }
}

/// The filter.
pub struct Nop {
    faults: Mutex<Faults>,
    /// There are faults: without, a request costs this load and its counters.
    armed: AtomicBool,
    ops: [AtomicU64; Op::COUNT],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    failed: AtomicU64,
    delayed: AtomicU64,
}

impl Nop {
    fn count(&self, bio: &Bio) {
        if let Some(counter) = self.ops.get(bio.op as usize) {
            counter.fetch_add(1, Relaxed);
        }
        match bio.op {
            Op::Read => self.read_bytes.fetch_add(bio.length, Relaxed),
            Op::Write | Op::WriteZeroes => self.written_bytes.fetch_add(bio.length, Relaxed),
            _ => 0,
        };
    }
}

impl Filter for Nop {
    const NAME: &'static str = "nop";
    const DOC: &'static str = "Pass-through layer with configurable errors, delays and size.";
    const EXAMPLE: &'static str = "nop configure --read-fail-percent 5 n0";
    type Params = NopParams;

    fn new(params: &NopParams) -> Result<Nop, Error> {
        let nop = Nop {
            faults: Mutex::new(Faults::NONE),
            armed: AtomicBool::new(false),
            ops: Default::default(),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
        };
        nop.configure(params).map(|()| nop)
    }

    fn configure(&self, params: &NopParams) -> Result<(), Error> {
        let faults = Faults::of(params)?;
        *self.faults.lock() = faults;
        self.armed.store(faults != Faults { error: faults.error, ..Faults::NONE }, Relaxed);
        Ok(())
    }

    fn start(&self, bio: &Bio, core: &Core) -> FilterAction {
        self.count(bio);
        if !self.armed.load(Relaxed) {
            return FilterAction::Pass;
        }
        let fate = self.faults.lock().decide(bio.op, core);
        match fate {
            FilterAction::Pass => 0,
            FilterAction::After(_) => self.delayed.fetch_add(1, Relaxed),
            FilterAction::Fail(_) => self.failed.fetch_add(1, Relaxed),
        };
        fate
    }

    fn window(p: &NopParams) -> Window {
        Window {
            offset: p.offset,
            size: p.size,
            sector: p.sector_size,
            stripe: (p.stripe_size > 0 || p.stripe_offset > 0)
                .then_some((p.stripe_size, p.stripe_offset)),
            attrs: p.physpath.iter().map(|x| ("GEOM::physpath", Attr::Text(x.clone()))).collect(),
        }
    }

    fn counters(&self) -> Vec<(&'static str, String)> {
        let op = |op: Op| self.ops.get(op as usize).map_or(0, |c| c.load(Relaxed));
        let left = self.faults.lock().count;
        let all = [
            ("reads", op(Op::Read)),
            ("writes", op(Op::Write)),
            ("deletes", op(Op::Delete)),
            ("getattrs", op(Op::GetAttr)),
            ("flushes", op(Op::Flush)),
            ("write-zeroes", op(Op::WriteZeroes)),
            ("maps", op(Op::Map)),
            ("read bytes", self.read_bytes.load(Relaxed)),
            ("written bytes", self.written_bytes.load(Relaxed)),
            ("failed", self.failed.load(Relaxed)),
            ("delayed", self.delayed.load(Relaxed)),
        ];
        let left = left.map(|left| ("left until all fail", left));
        all.into_iter().chain(left).map(|(name, value)| (name, value.to_string())).collect()
    }

    fn reset(&self) {
        let bytes = [&self.read_bytes, &self.written_bytes, &self.failed, &self.delayed];
        self.ops.iter().chain(bytes).for_each(|c| c.store(0, Relaxed));
    }
}
