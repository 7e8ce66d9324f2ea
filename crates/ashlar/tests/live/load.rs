//! Many sessions over many logical units. Every byte is compared while LUNs are added, removed,
//! changed and grown, and over SIGKILLs of the daemon.
//!
//! `ASHLAR_LOAD_SESSIONS`, `ASHLAR_LOAD_LUNS`, `ASHLAR_LOAD_SECONDS`: the sizes;
//! `docs/verification.md` has those of the full run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bench::load::{self, Order, Running, Spec, Work};
use rig::proc;

use crate::fixture::writer::{Kept, Writer};
use crate::fixture::{Fixture, IQN, file_disk};
use testkit::iscsi::initiator::Client;

/// Bytes of a memory disk: space for a stripe of each session.
const DISK_BYTES: u64 = 8 << 20;
const REQUEST_BYTES: u32 = 512;
const SESSIONS_A_THREAD: u32 = 1024;
/// Units that are filled with a pattern of their own number, spread over all.
const MARKED: usize = 24;
/// Bytes filled in each.
const MARKED_BYTES: u64 = 64 << 10;
/// Resident memory may grow by so much over the whole run, by its slope.
const GROWTH_BYTES: u64 = 16 << 20;
/// Changes, at least: memory fills its reserves during the first half of so many.
const ROUNDS: usize = 16;
/// Lines of the daemon's log, at most: nothing of this is worth one for each session or LUN.
const LINES: usize = 100;
/// Units that the changes are about: the last ones.
const MOVING: usize = 32;

fn size(name: &str, short: usize) -> usize {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(short)
}

/// The configuration: memory disks, one file that grows, and the provider of each LUN.
struct Plan {
    disks: usize,
    file_mib: u64,
    luns: BTreeMap<u64, String>,
}

impl Plan {
    fn write(&self, fixture: &Fixture) {
        let mut text = String::from("[daemon]\ncores = 2\nlog = \"warn\"\n\n");
        for n in 0..self.disks {
            text +=
                &format!("[[disk]]\nname = \"d{n}\"\nkind = \"memory\"\nsize = \"{DISK_BYTES}\"\n");
        }
        let size = format!("size = \"{}MiB\"\n", self.file_mib);
        text += &format!("{}{size}", file_disk("grows", "grows.img"));
        let luns: Vec<String> = self.luns.iter().map(|(l, d)| format!("{l} = \"{d}\"")).collect();
        fixture.configure(&text, &luns.join(", "));
    }

    /// One more change: each of the moving LUNs is removed, is added, becomes another unit or its
    /// own again, each in its own turn. Now and then the file grows. Answers how many LUNs changed.
    fn change(&mut self, round: usize) -> usize {
        let first = self.disks - MOVING;
        for n in 0..MOVING {
            let at = (first + n) as u64;
            match (round + n) % 4 {
                0 => drop(self.luns.remove(&at)),
                1 | 3 => drop(self.luns.insert(at, format!("d{at}"))),
                _ => drop(self.luns.insert(at, format!("d{}", first - 1))),
            }
        }
        self.file_mib += u64::from(round.is_multiple_of(4));
        MOVING
    }
}

/// The numbers that REPORT LUNS gives.
fn reported(raw: &mut Client) -> Vec<u64> {
    let mut cdb = [0; 12];
    cdb[0] = 0xa0;
    cdb[6..10].copy_from_slice(&(1u32 << 20).to_be_bytes());
    let data = raw.must(&cdb, 1 << 20);
    let length = u32::from_be_bytes([data[0], data[1], data[2], data[3]]) as usize;
    assert_eq!(length, data.len() - 8);
    // Peripheral and flat addressing (SAM-5 4.7.7): 14 bits of number in the first two bytes.
    let number = |l: &[u8]| u64::from(u16::from_be_bytes([l[0] & 0x3f, l[1]]));
    let mut all: Vec<u64> = data[8..].chunks_exact(8).map(number).collect();
    all.sort_unstable();
    all
}

/// Writes or compares the pattern of a unit's own number.
fn mark(fixture: &Fixture, lun: usize, work: Work) {
    let requests = MARKED_BYTES / 4096;
    let spec = Spec {
        work,
        order: Order::Sequential,
        span_bytes: Some(MARKED_BYTES),
        requests: Some(requests),
        seed: lun as u64 + 1,
        ..Spec::new(fixture.portal(), IQN, lun as u32)
    };
    let done = load::run(&spec).unwrap_or_else(|e| panic!("LUN {lun}: {e}"));
    assert_eq!(done.requests, requests, "LUN {lun}");
}

fn start(fixture: &Fixture, sessions: u32, luns: &[u32]) -> Vec<Running> {
    let threads = sessions.div_ceil(SESSIONS_A_THREAD);
    let slice = luns.len() / threads as usize;
    let one = |n: u32| {
        let luns = &luns[n as usize * slice..][..slice];
        let spec = Spec {
            luns: luns.to_vec(),
            sessions: (sessions - n * SESSIONS_A_THREAD).min(SESSIONS_A_THREAD),
            first: n * SESSIONS_A_THREAD,
            request_bytes: REQUEST_BYTES,
            work: Work::Verify,
            seed: u64::from(n) + 1,
            ..Spec::new(fixture.portal(), IQN, 0)
        };
        load::start(&spec).unwrap()
    };
    (0..threads).map(one).collect()
}

#[test]
fn units_are_added_and_removed_while_all_sessions_work() {
    let sessions = size("ASHLAR_LOAD_SESSIONS", 256);
    let units = size("ASHLAR_LOAD_LUNS", 2048);
    let time = Duration::from_secs(size("ASHLAR_LOAD_SECONDS", 5) as u64);
    let mut fixture = Fixture::alone("load");
    let luns = (0..units).map(|n| (n as u64, format!("d{n}"))).collect();
    let mut plan = Plan { disks: units, file_mib: 8, luns };
    plan.luns.insert(0, "grows".into());
    fixture.image("grows.img", plan.file_mib << 20);
    plan.write(&fixture);
    let begun = Instant::now();
    fixture.start();
    println!("{units} LUNs are there after {:?}", begun.elapsed());

    // The load has no business on LUN 0, on those that move and on those that are marked.
    let marked: Vec<usize> = (0..MARKED).map(|n| 1 + n * (units - MOVING - 2) / MARKED).collect();
    marked.iter().for_each(|lun| mark(&fixture, *lun, Work::Fill));
    let stay: Vec<u32> = (1..units - MOVING)
        .filter(|n| !marked.contains(n))
        .map(|n| u32::try_from(n).unwrap())
        .collect();
    let mut running = start(&fixture, sessions as u32, &stay);
    println!("{sessions} sessions work {:?} after the start", begun.elapsed());
    let mut watcher = Client::session(fixture.portal(), "iqn.2026-11.test:watcher", IQN).unwrap();
    let (begun, mut round, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    let (mut changes, mut resident, mut status) = (0, Vec::new(), Duration::ZERO);
    while begun.elapsed() < time || round < ROUNDS {
        changes += plan.change(round);
        plan.write(&fixture);
        let at = Instant::now();
        // Numbers get other disks while hosts are there.
        fixture.ok(&["apply", "--yes-destroy", &format!("{IQN}/all")]);
        slowest = slowest.max(at.elapsed());
        let want: Vec<u64> = plan.luns.keys().copied().collect();
        assert!(reported(&mut watcher) == want, "round {round}: other LUNs are reported");
        round += 1;
        if let Some(ended) = running.iter().position(Running::is_finished) {
            let why = running.swap_remove(ended).stop();
            panic!("after {round} changes: the load has ended: {why:?}\n{}", fixture.log());
        }
        if round % 8 == 4 {
            let at = Instant::now();
            let output = fixture.ashlar(&["status"]);
            status = status.max(at.elapsed());
            assert!(output.out.lines().count() < 64, "nobody reads that at night:\n{output}");
        }
        resident.push((begun.elapsed(), proc::resident_bytes(fixture.pid()).unwrap()));
    }
    let mut capacity = [0; 16];
    (capacity[0], capacity[1], capacity[13]) = (0x9e, 0x10, 32);
    let data = watcher.must(&capacity, 32);
    let last = u64::from_be_bytes(data[..8].try_into().unwrap());
    assert_eq!(last + 1, plan.file_mib << 11, "the file has grown");
    let (mut requests, mut compared) = (0, 0);
    for one in running {
        let done = one.stop().unwrap();
        requests += done.requests;
        compared += done.compared;
    }
    marked.iter().for_each(|lun| mark(&fixture, *lun, Work::Check));
    assert!(compared > sessions as u64, "{compared} reads were compared");
    let mib = |at: usize| resident[at].1 >> 20;
    let growth = growth(&resident);
    println!(
        "{sessions} sessions, {units} LUNs, {:?}: {requests} requests, {compared} compared; \
         {changes} LUNs changed in {round} steps, the slowest {slowest:?}; \
         status {status:?}; resident {} .. {} .. {} MiB, {:+.1} MiB a minute",
        begun.elapsed(),
        mib(0),
        mib(resident.len() / 2),
        mib(resident.len() - 1),
        growth * 60.0 / f64::from(1 << 20),
    );
    println!("{resident:?}");
    let grown = growth * begun.elapsed().as_secs_f64();
    assert!(grown < GROWTH_BYTES as f64, "{grown} bytes: {resident:?}");
    let lines = fixture.log().lines().count();
    assert!(lines < LINES, "{lines} lines in the log:\n{}", fixture.log());
    fixture.assert_alive();
    fixture.stop();
}

/// Bytes a second by which resident memory grows. The slope of the line of least squares through
/// the second half: in the first, buffers, paths and the allocator's reserves are used for the
/// first time.
fn growth(samples: &[(Duration, u64)]) -> f64 {
    let tail = &samples[samples.len() / 2..];
    let count = tail.len() as f64;
    let mean = |f: fn(&(Duration, u64)) -> f64| tail.iter().map(f).sum::<f64>() / count;
    let (seconds, bytes) = (mean(|s| s.0.as_secs_f64()), mean(|s| s.1 as f64));
    let (mut up, mut along) = (0.0, 0.0);
    for (at, resident) in tail {
        let x = at.as_secs_f64() - seconds;
        up += x * (*resident as f64 - bytes);
        along += x * x;
    }
    up / along
}

/// Until every writer has written a round to the daemon that runs.
fn all_write(fixture: &Fixture, writers: &[Writer]) {
    let before: Vec<u32> = writers.iter().map(Writer::rounds).collect();
    fixture.until("every writer writes", Duration::from_secs(60), || {
        writers.iter().zip(&before).all(|(w, before)| w.rounds() > before + 2)
    });
}

#[test]
fn flushed_writes_survive_a_kill_of_the_daemon() {
    const WRITERS: u8 = 8;
    const KILLS: u32 = 4;
    let mut fixture = Fixture::alone("killed");
    let mut disks = String::from("[daemon]\ncores = 2\n\n");
    let mut luns = Vec::new();
    for n in 0..WRITERS {
        fixture.image(&format!("w{n}.img"), 4 << 20);
        disks += &file_disk(&format!("w{n}"), &format!("w{n}.img"));
        luns.push(format!("{n} = \"w{n}\""));
    }
    fixture.configure(&disks, &luns.join(", "));
    fixture.start();
    let portal = fixture.portal();
    let writers: Vec<Writer> = (0..WRITERS).map(|lun| Writer::start(portal, lun, 0)).collect();
    for kill in 0..KILLS {
        all_write(&fixture, &writers);
        // Each kill meets the writers at another place.
        let begun = writers[0].rounds();
        let has_written = || writers[0].rounds() >= begun + 5 + kill * 3;
        fixture.until("further rounds", Duration::from_secs(60), has_written);
        fixture.kill();
        fixture.start();
    }
    all_write(&fixture, &writers);
    let ends: Vec<Kept> = writers.into_iter().map(Writer::finish).collect();
    for (lun, end) in ends.iter().enumerate() {
        assert!(end.resumed >= KILLS, "LUN {lun}: {} of {KILLS} kills were met", end.resumed);
        end.check();
        println!("LUN {lun}: {} rounds, {} resumed", end.rounds, end.resumed);
    }
    fixture.assert_alive();
    fixture.stop();
}
