//! nop: a layer that passes requests on, and on demand fails them, delays them or shows another
//! size, offset or sector size. For tests of everything above it; it has no metadata.
//!
//! Invariants
//!  N1  A request is either failed without being passed on, or passed on exactly once.
//!  N2  FLUSH, DELETE and GETATTR are never failed or delayed (geom.md 2.7).
//!  N3  Where it changes neither size nor sector size it can be slipped in and out under load.
//!
//! ```text
//!   start --count not used up--------------------> down
//!         --fail probability---------------------> done(error)
//!         --delay probability--> wait --timer----> down      (later ones may overtake it)
//! ```

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use bio::{Attr, Bio, Errno, Op};
use geom::{
    Access, Back, Class, ConsumerId, Control, Core, Create, Deletes, Edge, Error, Event, Flow,
    Geom, GeomId, Layer, Limits, MADE_BY_HAND, NewProvider, ProviderId, Settings, Topology,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::slice;

/// Error of failed requests where none is given.
const USUAL_ERROR: &str = "EIO";

/// Longest delay, ms: a request that takes longer is better made to hang by a modelled disk.
pub const DELAY_MS_MAX: u32 = 3_600_000;

/// What goes wrong, and how often. In `create` what is absent is zero; in `configure` what is
/// absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NopFaults {
    /// Error of failed requests, by its name; at first EIO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Reads that fail, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub read_fail_percent: Option<u8>,
    /// Writes that fail, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub write_fail_percent: Option<u8>,
    /// Reads that are delayed, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub read_delay_percent: Option<u8>,
    /// Writes that are delayed, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub write_delay_percent: Option<u8>,
    /// Deletes that fail, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub delete_fail_percent: Option<u8>,
    /// Deletes that are delayed, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub delete_delay_percent: Option<u8>,
    /// How long delayed requests wait, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 3_600_000))]
    pub delay_ms: Option<u32>,
    /// Reads and writes let through untouched before all of them fail; zero switches it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_until_fail: Option<u64>,
}

/// A layer that injects errors and delays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NopParams {
    /// Error of failed requests, by its name: `EIO`, `ENXIO`, ...; absent: EIO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Reads that fail, in percent.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub read_fail_percent: u8,
    /// Writes that fail, in percent.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub write_fail_percent: u8,
    /// Reads that are delayed, in percent.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub read_delay_percent: u8,
    /// Writes that are delayed, in percent.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub write_delay_percent: u8,
    /// Deletes that fail, in percent.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub delete_fail_percent: u8,
    /// Deletes that are delayed, in percent.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub delete_delay_percent: u8,
    /// How long delayed requests wait, in ms.
    #[serde(default)]
    #[schemars(range(max = 3_600_000))]
    pub delay_ms: u32,
    /// Reads and writes let through untouched before all of them fail; zero: no such end.
    #[serde(default)]
    pub count_until_fail: u64,
    /// First byte of the provider below that is shown, a multiple of the sector size.
    #[serde(default)]
    pub offset: u64,
    /// Size shown, in bytes; absent: all there is behind the offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Sector size shown, in bytes: a multiple of the one below; absent: the one below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
    /// Stripe size shown, in bytes; absent: as below.
    #[serde(default)]
    pub stripe_size: u64,
    /// Offset of the first byte in a stripe, in bytes.
    #[serde(default)]
    pub stripe_offset: u64,
    /// Physical path shown; absent: that of the disk below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physpath: Option<String>,
}

impl NopFaults {
    /// What is given, and of `before` what is not.
    fn over(self, before: NopFaults) -> NopFaults {
        NopFaults {
            error: self.error.or(before.error),
            read_fail_percent: self.read_fail_percent.or(before.read_fail_percent),
            write_fail_percent: self.write_fail_percent.or(before.write_fail_percent),
            read_delay_percent: self.read_delay_percent.or(before.read_delay_percent),
            write_delay_percent: self.write_delay_percent.or(before.write_delay_percent),
            delete_fail_percent: self.delete_fail_percent.or(before.delete_fail_percent),
            delete_delay_percent: self.delete_delay_percent.or(before.delete_delay_percent),
            delay_ms: self.delay_ms.or(before.delay_ms),
            count_until_fail: self.count_until_fail.or(before.count_until_fail),
        }
    }

    /// As a section has them.
    fn settings(&self) -> Settings {
        let all = serde_json::to_value(self).unwrap_or_default();
        let mut all = all.as_object().cloned().unwrap_or_default();
        let error = self.error.as_deref().unwrap_or(USUAL_ERROR).to_uppercase();
        all.insert("error".to_owned(), error.into());
        all
    }
}

impl NopParams {
    fn faults(&self) -> NopFaults {
        NopFaults {
            error: self.error.clone(),
            read_fail_percent: Some(self.read_fail_percent),
            write_fail_percent: Some(self.write_fail_percent),
            read_delay_percent: Some(self.read_delay_percent),
            write_delay_percent: Some(self.write_delay_percent),
            delete_fail_percent: Some(self.delete_fail_percent),
            delete_delay_percent: Some(self.delete_delay_percent),
            delay_ms: Some(self.delay_ms),
            count_until_fail: Some(self.count_until_fail),
        }
    }
}

/// Settings and counters, shared by the data path of all cores and the control path.
struct State {
    /// Index in `Errno::ALL`.
    error: AtomicU8,
    read_fail: AtomicU8,
    write_fail: AtomicU8,
    read_delay: AtomicU8,
    write_delay: AtomicU8,
    delete_fail: AtomicU8,
    delete_delay: AtomicU8,
    delay_ms: AtomicU32,
    count: AtomicU64,
    ops: [AtomicU64; Op::COUNT],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    failed: AtomicU64,
    delayed: AtomicU64,
}

fn inval(what: impl Into<String>) -> Error {
    Error::new(Errno::Inval, what)
}

fn error_index(name: &str) -> Result<u8, Error> {
    let found = Errno::ALL.iter().position(|e| e.name().eq_ignore_ascii_case(name));
    match found.map(|i| (i, u8::try_from(i))) {
        // D3 of the dispatcher: such a request would be sent again for ever.
        Some((i, _)) if Errno::ALL[i] == Errno::NoMem => {
            Err(inval("error: ENOMEM never reaches anybody, it is tried again; take another"))
        }
        Some((_, Ok(index))) => Ok(index),
        _ => {
            let known: Vec<&str> = Errno::ALL.iter().map(|e| e.name()).collect();
            Err(inval(format!("no error {name}; there are {}", known.join(", "))))
        }
    }
}

impl State {
    fn new() -> State {
        State {
            error: AtomicU8::new(error_index(USUAL_ERROR).unwrap_or(0)),
            read_fail: AtomicU8::new(0),
            write_fail: AtomicU8::new(0),
            read_delay: AtomicU8::new(0),
            write_delay: AtomicU8::new(0),
            delete_fail: AtomicU8::new(0),
            delete_delay: AtomicU8::new(0),
            delay_ms: AtomicU32::new(0),
            count: AtomicU64::new(0),
            ops: Default::default(),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
        }
    }

    /// Takes over what is given, all of it or nothing.
    fn configure(&self, f: &NopFaults) -> Result<(), Error> {
        let percents = [
            ("read_fail_percent", f.read_fail_percent, &self.read_fail),
            ("write_fail_percent", f.write_fail_percent, &self.write_fail),
            ("read_delay_percent", f.read_delay_percent, &self.read_delay),
            ("write_delay_percent", f.write_delay_percent, &self.write_delay),
            ("delete_fail_percent", f.delete_fail_percent, &self.delete_fail),
            ("delete_delay_percent", f.delete_delay_percent, &self.delete_delay),
        ];
        for (name, value, _) in &percents {
            if value.is_some_and(|v| v > 100) {
                return Err(inval(format!("{name} is more than 100")));
            }
        }
        if f.delay_ms.is_some_and(|d| d > DELAY_MS_MAX) {
            return Err(inval(format!("delay_ms is more than {DELAY_MS_MAX}")));
        }
        if let Some(name) = &f.error {
            self.error.store(error_index(name)?, Relaxed);
        }
        for (_, value, place) in percents {
            if let Some(v) = value {
                place.store(v, Relaxed);
            }
        }
        if let Some(ms) = f.delay_ms {
            self.delay_ms.store(ms, Relaxed);
        }
        if let Some(count) = f.count_until_fail {
            self.count.store(count, Relaxed);
        }
        Ok(())
    }

    fn reset(&self) {
        let bytes = [&self.read_bytes, &self.written_bytes, &self.failed, &self.delayed];
        self.ops.iter().chain(bytes).for_each(|c| c.store(0, Relaxed));
    }

    fn error(&self) -> Errno {
        Errno::ALL.get(usize::from(self.error.load(Relaxed))).copied().unwrap_or(Errno::Io)
    }

    fn note(&self, bio: &Bio) {
        if let Some(counter) = self.ops.get(bio.op as usize) {
            counter.fetch_add(1, Relaxed);
        }
        match bio.op {
            Op::Read => self.read_bytes.fetch_add(bio.length, Relaxed),
            Op::Write | Op::WriteZeroes => self.written_bytes.fetch_add(bio.length, Relaxed),
            _ => 0,
        };
    }

    /// What happens to a request (N2).
    fn fate(&self, op: Op, core: &Core) -> Fate {
        let (fail, delay) = match op {
            Op::Read => (&self.read_fail, &self.read_delay),
            Op::Write | Op::WriteZeroes => (&self.write_fail, &self.write_delay),
            Op::Delete => (&self.delete_fail, &self.delete_delay),
            _ => return Fate::Pass,
        };
        if op != Op::Delete && self.count.load(Relaxed) > 0 {
            let left = self.count.fetch_update(Relaxed, Relaxed, |c| c.checked_sub(1));
            if left == Ok(1) {
                self.read_fail.store(100, Relaxed);
                self.write_fail.store(100, Relaxed);
            }
            if left.is_ok() {
                return Fate::Pass;
            }
        }
        if happens(fail.load(Relaxed), core) {
            return Fate::Fail(self.error());
        }
        match self.delay_ms.load(Relaxed) {
            ms if ms > 0 && happens(delay.load(Relaxed), core) => {
                Fate::Delay(u64::from(ms) * 1_000_000)
            }
            _ => Fate::Pass,
        }
    }
}

enum Fate {
    Pass,
    Fail(Errno),
    Delay(u64),
}

fn happens(percent: u8, core: &Core) -> bool {
    match percent {
        0 => false,
        100.. => true,
        some => core.reactor().random() % 100 < u64::from(some),
    }
}

struct NopLayer {
    state: Arc<State>,
    offset: u64,
    below: Edge,
}

impl Layer for NopLayer {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        self.state.note(bio);
        let fate = self.state.fate(bio.op, core);
        if let Fate::Fail(error) = fate {
            self.state.failed.fetch_add(1, Relaxed);
            return Flow::Done(Err(error));
        }
        let was = bio.offset;
        if bio.op.has_range() {
            // The dispatcher saw that the range lies inside this provider, which lies inside the
            // one below.
            bio.offset = bio.offset.saturating_add(self.offset);
        }
        let down = Flow::Down(self.below, was);
        if let Fate::Delay(ns) = fate {
            self.state.delayed.fetch_add(1, Relaxed);
            core.after(ns, bio.ticket(), down);
            return Flow::Wait;
        }
        down
    }

    fn done(&self, bio: &mut Bio, was: u64, _: &Core) -> Back {
        bio.offset = was;
        Back::Up
    }
}

struct NopGeom {
    state: Arc<State>,
    /// The faults as they were configured; `state` counts down.
    said: NopFaults,
    offset: u64,
    /// As configured.
    size: Option<u64>,
    sector: u32,
    physpath: Option<String>,
}

impl NopGeom {
    /// Size shown over a provider of `below` bytes; None when it does not fit (any more).
    fn size_over(&self, below: u64) -> Option<u64> {
        let room = below.checked_sub(self.offset)?;
        let sector = u64::from(self.sector).max(1);
        match self.size {
            Some(size) => (size <= room).then_some(size),
            None => Some(room / sector * sector).filter(|s| *s > 0),
        }
    }
}

impl Geom for NopGeom {
    fn access(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        topology.access_all_below(me, delta)
    }

    fn resizes(&self) -> bool {
        true
    }

    fn resized(&mut self, topology: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let below = topology.below(consumer).and_then(|p| topology.limits(p));
        let size = below.and_then(|l| self.size_over(l.media_bytes));
        match (size, topology.providers_of(me).first().copied()) {
            (Some(size), Some(provider)) => topology.post(Event::Resize(provider, size)),
            _ => topology.wither_geom(me, Errno::NxIo),
        }
    }

    fn attr_changed(&mut self, topology: &mut Topology, me: GeomId, _: ConsumerId, name: &str) {
        slice::tell_above(topology, me, name);
    }

    fn attr(&self, topology: &Topology, me: GeomId, _: ProviderId, name: &str) -> Option<Attr> {
        match (&self.physpath, name) {
            (Some(path), "GEOM::physpath") => Some(Attr::Text(path.clone())),
            _ => topology.attr_below(me, name),
        }
    }

    fn deletes(&self, topology: &Topology, me: GeomId, _: ProviderId) -> Deletes {
        topology.deletes_below(me).moved(self.offset)
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let s = &self.state;
        let op = |op: Op| s.ops[op as usize].load(Relaxed).to_string();
        let percent = |p: &AtomicU8| format!("{} %", p.load(Relaxed));
        vec![
            ("offset", self.offset.to_string()),
            ("read fail", percent(&s.read_fail)),
            ("write fail", percent(&s.write_fail)),
            ("read delay", percent(&s.read_delay)),
            ("write delay", percent(&s.write_delay)),
            ("delete fail", percent(&s.delete_fail)),
            ("delete delay", percent(&s.delete_delay)),
            ("delay", format!("{} ms", s.delay_ms.load(Relaxed))),
            ("count until fail", s.count.load(Relaxed).to_string()),
            ("error", s.error().name().to_string()),
            ("reads", op(Op::Read)),
            ("writes", op(Op::Write)),
            ("deletes", op(Op::Delete)),
            ("getattrs", op(Op::GetAttr)),
            ("flushes", op(Op::Flush)),
            ("write-zeroes", op(Op::WriteZeroes)),
            ("maps", op(Op::Map)),
            ("read bytes", s.read_bytes.load(Relaxed).to_string()),
            ("written bytes", s.written_bytes.load(Relaxed).to_string()),
            ("failed", s.failed.load(Relaxed).to_string()),
            ("delayed", s.delayed.load(Relaxed).to_string()),
        ]
    }

    fn settings(&self, _: &Topology, _: GeomId) -> Settings {
        self.said.settings()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// The class.
pub struct Nop;

fn params_of<P: DeserializeOwned>(value: &Value) -> Result<P, Error> {
    let object = if value.is_null() { json!({}) } else { value.clone() };
    serde_json::from_value(object).map_err(|e| inval(format!("nop: {e}")))
}

impl Class for Nop {
    fn name(&self) -> &'static str {
        "nop"
    }

    fn doc(&self) -> &'static str {
        "Passes requests on; on demand fails them, delays them or shows another size."
    }

    fn params(&self) -> Option<Value> {
        Some(schemars::schema_for!(NopParams).to_value())
    }

    fn create(&self, topology: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let p: NopParams = params_of(request.params)?;
        let &[below] = request.members else {
            return Err(inval("nop stands on exactly one provider"));
        };
        let Some(limits) = topology.limits(below) else {
            return Err(Error::new(Errno::NxIo, "the provider below is gone"));
        };
        let state = Arc::new(State::new());
        state.configure(&p.faults())?;
        let geom = NopGeom {
            state: state.clone(),
            said: p.faults(),
            offset: p.offset,
            size: p.size,
            sector: sector_over(&p, &limits)?,
            physpath: p.physpath.clone(),
        };
        let size = checked_size(&geom, &limits)?;
        let sector_bytes = geom.sector;
        let (stripe_bytes, stripe_offset) = match p.stripe_size {
            // As below, seen from where this begins. FreeBSD says none.
            0 => {
                let (bytes, offset) = topology.stripe(below);
                (bytes, offset.saturating_add(p.offset).checked_rem(bytes).unwrap_or(0))
            }
            bytes => (bytes, p.stripe_offset),
        };
        let id = topology.new_geom("nop", request.name, MADE_BY_HAND, Box::new(geom))?;
        let made = provider_on(topology, id, below, |edge| NewProvider {
            name: request.name.into(),
            layer: Arc::new(NopLayer { state, offset: p.offset, below: edge }),
            limits: Limits {
                media_bytes: size,
                sector_bytes,
                io_max_bytes: 0,
                delete_max_bytes: 0,
            },
            stripe_bytes,
            stripe_offset,
            attrs: p.physpath.iter().map(|x| ("GEOM::physpath", Attr::Text(x.clone()))).collect(),
        });
        made.inspect_err(|_| topology.wither_geom(id, Errno::NxIo)).map(|_| id)
    }

    fn layout(&self, params: &Value, _: &[u64]) -> Option<String> {
        let offset = params.get("offset").and_then(Value::as_u64).unwrap_or(0);
        Some(format!("what is {offset} bytes behind the start of its member"))
    }

    fn settings(&self, params: &Value) -> Result<Settings, Error> {
        let faults = params_of::<NopParams>(params)?.faults();
        State::new().configure(&faults)?;
        Ok(faults.settings())
    }

    fn work_as(&self, control: &mut Control, name: &str, params: &Value) -> Result<(), Error> {
        let faults = params_of::<NopParams>(params)?.faults();
        let error = faults.error.clone().unwrap_or_else(|| USUAL_ERROR.to_owned());
        configure(control, name, NopFaults { error: Some(error), ..faults })
    }

    /// `configure` changes what goes wrong, `reset` sets the counters to zero.
    fn verb(
        &self,
        control: &mut Control,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        match verb {
            "configure" => configure(control, on, params_of::<NopFaults>(params)?)?,
            "reset" => with(control, on, |g| {
                g.state.reset();
                Ok(())
            })?,
            other => {
                let what = format!("nop has no verb {other}; configure, reset");
                return Err(Error::new(Errno::NotSup, what));
            }
        }
        Ok(json!({}))
    }
}

/// Runs `f` with a geom's own state.
fn with(
    control: &mut Control,
    on: &str,
    f: impl FnOnce(&mut NopGeom) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(id) = control.topology.find_geom("nop", on) else {
        return Err(Error::new(Errno::NoEnt, format!("no nop {on}")));
    };
    let done = control.topology.with(id, |g: &mut NopGeom, _| f(g));
    done.unwrap_or_else(|| Err(Error::new(Errno::NxIo, format!("nop {on} is going"))))
}

/// What is given goes wrong from now on; the rest stays.
fn configure(control: &mut Control, on: &str, faults: NopFaults) -> Result<(), Error> {
    with(control, on, |g| {
        g.state.configure(&faults)?;
        let before = std::mem::take(&mut g.said);
        g.said = faults.over(before);
        Ok(())
    })
}

fn provider_on(
    topology: &mut Topology,
    geom: GeomId,
    below: ProviderId,
    new: impl FnOnce(Edge) -> NewProvider,
) -> Result<ProviderId, Error> {
    let consumer = topology.attach_new(geom, below).map_err(|e| Error::of(e, "attach nop"))?;
    let edge = topology.edge(consumer);
    topology.new_provider(geom, new(edge))
}

fn sector_over(p: &NopParams, below: &Limits) -> Result<u32, Error> {
    let sector = p.sector_size.unwrap_or(below.sector_bytes);
    if sector == 0 || !sector.is_multiple_of(below.sector_bytes.max(1)) {
        let what = format!("sector_size {sector} is no multiple of {}", below.sector_bytes);
        return Err(inval(what));
    }
    let odd = |v: u64| !v.is_multiple_of(u64::from(sector));
    if odd(p.offset) || p.size.is_some_and(|s| odd(s) || s == 0) {
        return Err(inval(format!("offset and size are multiples of the sector size, {sector}")));
    }
    if p.stripe_size > 0 && p.stripe_offset >= p.stripe_size
        || p.stripe_size == 0 && p.stripe_offset > 0
    {
        return Err(inval("stripe_offset lies inside a stripe: less than stripe_size"));
    }
    Ok(sector)
}

fn checked_size(geom: &NopGeom, below: &Limits) -> Result<u64, Error> {
    geom.size_over(below.media_bytes).ok_or_else(|| {
        let have = below.media_bytes;
        inval(format!("offset and size reach beyond the {have} bytes below, or leave nothing"))
    })
}
