//! Cost of very many logical units: the time to change one and to report all, and the memory of
//! each.
//!
//! In process: 16,384 units without data, 256 sessions that send commands to all of them, and a
//! caller that changes one LUN after the other.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bio::sync::Mutex;
use engine::registry::Addressing;
use engine::{DeviceSpec, Engine, GroupSpec, LunChange, LunSpec, Registry};
use geom::{Edge, Runtime, RuntimeConfig};
use reactor::PortChoice;

use crate::error::{Error, Kind};
use crate::inproc::Caller;
use crate::options::Options;
use crate::process_costs;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};

pub(crate) const CASE: &str = "luns-16384";
const UNITS: u64 = 16_384;
/// Units of the smaller group, whose list is requested.
const REPORTED: u64 = 4096;
const CORES: u32 = 2;
/// Sessions of each core.
const SESSIONS: u32 = 128;
/// Goals: us for a change, us for a list, bytes of a mapping, KiB of a session.
const CHANGE_US: f64 = 1000.0;
const REPORT_US: f64 = 1000.0;
const MAPPING_BYTES: f64 = 2048.0;
const SESSION_KIB: f64 = 64.0;
/// Longest wait for the sessions to begin.
const START_MAX: Duration = Duration::from_secs(30);

const DRIVER: &str = "bench";
/// The target of everything, and that of the smaller group.
const TARGETS: [(&str, u64); 2] = [("all", UNITS), ("some", REPORTED)];

#[derive(Default)]
struct LunsShared {
    ready: AtomicU32,
    stop: AtomicBool,
    over: AtomicU32,
    commands: AtomicU64,
    failed: Mutex<Option<Error>>,
    report_us: Mutex<Vec<f64>>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(Kind::System, format!("luns: {error}"))
}

fn line(lun: u64) -> LunSpec {
    LunSpec { lun, device: format!("u{lun}"), read_only: false }
}

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    progress(Progress { done: 0, of: 1, step: "luns: 16,384 of them".into() });
    let registry = Registry::new();
    for n in 0..UNITS {
        let name = format!("u{n}");
        let spec = DeviceSpec::new(&name, &name, Edge(0), 1 << 30, 512);
        registry.add_device("null", spec).map_err(failed)?;
    }
    let own = std::process::id();
    let before = process_costs::resident_bytes(own)?;
    for (target, many) in TARGETS {
        registry.set_target(DRIVER, target).map_err(failed)?;
        let group = GroupSpec {
            name: "all".into(),
            initiators: vec!["*".into()],
            addressing: Addressing::Flat,
            luns: (0..many).map(line).collect(),
            ..GroupSpec::default()
        };
        registry.set_groups(DRIVER, target, &[group]).map_err(failed)?;
    }
    let mapped = TARGETS.iter().map(|(_, many)| many).sum::<u64>();
    let mapping = process_costs::resident_bytes(own)?.saturating_sub(before) as f64 / mapped as f64;
    let shared = Arc::new(LunsShared::default());
    let (known, its) = (registry.clone(), shared.clone());
    let config = RuntimeConfig {
        cores: CORES as usize,
        port: PortChoice::Auto,
        spin_ns: 0,
        pool_bytes: 16 << 20,
    };
    let before = process_costs::resident_bytes(own)?;
    let mut runtime = Runtime::start(config, move |core| {
        let engine = Engine::new(core.clone(), known.clone());
        drop(core.reactor().spawn("bench", work(engine, its.clone())));
    })
    .map_err(failed)?;
    let figures = changes(options, &registry, &shared, before);
    shared.stop.store(true, Ordering::Release);
    let begun = Instant::now();
    while shared.over.load(Ordering::Acquire) < CORES && begun.elapsed() < START_MAX {
        std::thread::sleep(Duration::from_millis(1));
    }
    runtime.stop();
    let (session, mut change_us) = figures?;
    change_us.sort_by(f64::total_cmp);
    let report_us = std::mem::take(&mut *shared.report_us.lock());
    let rows = [
        (("change of one LUN", "us"), change_us, CHANGE_US),
        (("REPORT LUNS of 4,096", "us"), report_us, REPORT_US),
        (("memory of a mapping", "bytes"), vec![mapping], MAPPING_BYTES),
        (("memory of a session", "KiB"), vec![session / 1024.0], SESSION_KIB),
    ];
    for (figure, ours, at_most) in rows {
        let series = Series { ours, theirs: vec![] };
        let goal = Goal { of: Of::Ours, at_most };
        let row = series.row(CASE, figure, None);
        report.add(options, "luns", row, Some(goal));
    }
    let commands = shared.commands.load(Ordering::Relaxed);
    report.notes.push(format!("luns: {commands} commands ended meanwhile"));
    Ok(())
}

/// Waits for the load, then removes one LUN and adds it again, repeatedly: bytes of a session, and
/// how long each change took, us.
fn changes(
    options: &Options,
    registry: &Registry,
    shared: &LunsShared,
    before: u64,
) -> Result<(f64, Vec<f64>), Error> {
    let begun = Instant::now();
    while shared.ready.load(Ordering::Acquire) < CORES {
        if begun.elapsed() > START_MAX {
            return Err(Error::new(Kind::Timeout, "luns: the sessions do not begin"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let now = process_costs::resident_bytes(std::process::id())?;
    let session = now.saturating_sub(before) as f64 / f64::from(CORES * SESSIONS);
    let end = Duration::from_secs(u64::from(options.seconds) * u64::from(options.rounds));
    let (begun, mut took, mut lun) = (Instant::now(), Vec::new(), 0);
    while begun.elapsed() < end {
        for change in [LunChange::Remove(lun), LunChange::Set(line(lun))] {
            let at = Instant::now();
            registry.change_luns(DRIVER, TARGETS[0].0, "all", &[change]).map_err(failed)?;
            took.push(at.elapsed().as_secs_f64() * 1e6);
        }
        lun = (lun + 257) % UNITS;
        std::thread::sleep(Duration::from_millis(1));
        if let Some(error) = shared.failed.lock().take() {
            return Err(error);
        }
    }
    Ok((session, took))
}

/// The sessions of one core: TEST UNIT READY everywhere, and now and then a list.
async fn work(engine: Rc<Engine>, shared: Arc<LunsShared>) {
    if let Err(error) = sessions(&engine, &shared).await {
        *shared.failed.lock() = Some(error);
        shared.ready.fetch_add(1, Ordering::AcqRel);
    }
    shared.over.fetch_add(1, Ordering::AcqRel);
}

async fn sessions(engine: &Rc<Engine>, shared: &LunsShared) -> Result<(), Error> {
    let login = |target: &str, n: u32| Caller::login(engine, (DRIVER, target), n);
    let mut all = Vec::new();
    for n in 0..SESSIONS {
        all.push(login(TARGETS[0].0, n)?);
    }
    let lister = login(TARGETS[1].0, SESSIONS)?;
    shared.ready.fetch_add(1, Ordering::AcqRel);
    let mut list = [0; 12];
    list[0] = 0xa0;
    let bytes = (REPORTED as u32 + 1) * 8;
    list[6..10].copy_from_slice(&bytes.to_be_bytes());
    let (mut turn, mut lun) = (0u32, 0);
    while !shared.stop.load(Ordering::Acquire) {
        for caller in &all {
            // The status is ignored: some LUNs are absent just now, and unit attentions are
            // pending.
            caller.ask(lun, &[0; 6], 0);
            lun = (lun + 61) % UNITS as u32;
        }
        shared.commands.fetch_add(all.len() as u64, Ordering::Relaxed);
        if turn.is_multiple_of(64) {
            let at = Instant::now();
            caller_lists(&lister, &list, bytes)?;
            shared.report_us.lock().push(at.elapsed().as_secs_f64() * 1e6);
        }
        turn = turn.wrapping_add(1);
        engine.core().reactor().yield_now().await;
    }
    all.iter().chain([&lister]).for_each(Caller::close);
    Ok(())
}

fn caller_lists(lister: &Caller, cdb: &[u8], bytes: u32) -> Result<(), Error> {
    match lister.ask(0, cdb, bytes) {
        Some((0, got)) if got == bytes as usize => Ok(()),
        other => Err(failed(format!("REPORT LUNS ended with {other:?}, not {bytes} bytes"))),
    }
}
