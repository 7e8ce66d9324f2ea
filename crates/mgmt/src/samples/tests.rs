//! Samples of states that follow each other.

use super::*;
use crate::api::{
    Bucket, CoreState, GroupState, Histogram, Kind, LunState, OpStats, SessionState, TargetState,
};
use crate::fake::geom_state;
use testkit::clock::S;

/// `ops` reads of 4 KiB, all of the same latency.
fn reads(ops: u64, upper_ns: u64) -> OpStats {
    let latency = match ops {
        0 => Histogram::default(),
        count => Histogram { buckets: vec![Bucket { upper_ns, count }], sum_ns: ops * upper_ns },
    };
    OpStats { ops, bytes: ops * 4096, errors: 0, latency }
}

/// The bound of the bucket of a latency.
fn bound(ns: u64) -> u64 {
    geom::bucket_top_ns(geom::bucket_of(ns))
}

/// A disk with this read counter at a second since the start.
fn disk(second: u64, read: OpStats) -> SystemState {
    let mut state = SystemState::default();
    state.daemon.uptime_ns = second * S;
    state.geoms = vec![geom_state("disk", "d0", 1, &[], "d0")];
    state.geoms[0].providers[0].stats.read = read;
    state
}

fn ops(rates: &ObjectRates) -> Vec<(u64, u64, u64)> {
    let one = |s: &RateSample| (s.at_ns / S, s.span_ns / S, s.read.ops);
    rates.samples.iter().map(one).collect()
}

#[test]
fn h1_samples_are_differences_and_begin_with_the_second_reading() {
    let store = SampleStore::default();
    for (second, count) in [(10, 100), (20, 150), (30, 150), (40, 151), (50, 7)] {
        store.record(&disk(second, reads(count, bound(1000))));
    }
    // The counter that shrank is that of a new disk with the same name.
    let rates = store.of("disk:d0");
    assert_eq!(ops(&rates), [(20, 10, 50), (40, 10, 1), (50, 10, 7)], "30 s was idle");
    assert_eq!((rates.at_ns, rates.whole.span_ns), (50 * S, 40 * S));
    assert_eq!((rates.whole.read.ops, rates.whole.read.bytes), (58, 58 * 4096));
    let latency = rates.whole.read.latency.expect("there were reads");
    assert_eq!((latency.p50_ns, latency.max_ns), (bound(1000), bound(1000)));
    assert!(rates.whole.write.latency.is_none());
    assert_eq!(store.latest("disk:d0").map(|sample| sample.read.ops), Some(7));
    store.record(&disk(60, reads(7, bound(1000))));
    assert_eq!(store.latest("disk:d0"), None, "60 s was idle");
    assert_eq!(store.latest("disk:d9"), None);
}

#[test]
fn samples_are_dropped_after_an_hour() {
    let store = SampleStore::default();
    for second in 0..=720 {
        store.record(&disk(second * 10, reads(second.min(400), bound(1000))));
    }
    let rates = store.of("disk:d0");
    assert_eq!(ops(&rates).first(), Some(&(3610, 10, 1)));
    assert_eq!(ops(&rates).last(), Some(&(4000, 10, 1)));
    assert_eq!(rates.whole.span_ns, KEPT_NS);
    for second in 721..=760 {
        store.record(&disk(second * 10, reads(400, bound(1000))));
    }
    let rates = store.of("disk:d0");
    assert!(rates.samples.is_empty(), "an idle hour takes no samples: {:?}", ops(&rates));
    assert_eq!(store.lock().objects["disk:d0"].bytes, 0);
}

#[test]
fn h2_joined_samples_keep_the_percentiles_of_the_hour() {
    let mut track = Track::default();
    let mut stats = Stats::default();
    for second in 0..360 {
        track.read((second * 10 * S, 10 * S), &stats);
        // One read in a hundred is slow.
        let (fast, slow) = (reads(99, bound(1000)), reads(1, bound(100_000_000)));
        stats.read.ops += 100;
        stats.read.latency = stats.read.latency.plus(&fast.latency).plus(&slow.latency);
    }
    let whole = |track: &Track| {
        let all = track.samples.iter().map(|sample| decode(&sample.stats));
        all.reduce(|one, next| one.then(&next)).expect("samples")
    };
    let (before, begun) = (whole(&track), track.samples[0].begin_ns());
    track.fit(3 << 10);
    assert!(track.bytes <= 3 << 10 && track.samples.len() > 20, "{}", track.samples.len());
    let counted: usize = track.samples.iter().map(Sample::bytes).sum();
    assert_eq!((track.bytes, whole(&track)), (counted, before));
    assert_eq!(track.samples[0].begin_ns(), begun);
    let mut pairs = track.samples.iter().zip(track.samples.iter().skip(1));
    assert!(pairs.all(|(one, next)| one.at_ns <= next.begin_ns()), "none overlap");
    let spans = track.samples.iter().map(|sample| sample.span_ns);
    let (least, most) = (spans.clone().min(), spans.max());
    assert!(most <= least.map(|ns| ns * 3), "{least:?} {most:?}");
}

#[test]
fn idle_objects_take_nothing() {
    let store = SampleStore::default();
    let mut state = SystemState::default();
    let names: Vec<String> = (0..4096).map(|n| format!("d{n}")).collect();
    state.geoms = names.iter().map(|name| geom_state("disk", name, 1, &[], name)).collect();
    for second in 1..4 {
        state.daemon.uptime_ns = second * 10 * S;
        store.record(&state);
    }
    assert!(store.lock().objects.is_empty());
    assert_eq!(store.of("disk:d1").whole.span_ns, 20 * S);
}

/// The documented limits hold for a server of the largest supported size.
#[test]
fn h2_samples_of_many_busy_objects_fit_in_their_share() {
    let store = SampleStore::default();
    let mut kept = store.lock();
    let busy = |ops: u64| Stats { read: reads(ops, bound(1000)), ..Stats::default() };
    for n in 0..2048 {
        let mut track = Track::default();
        (1..=4).for_each(|at| track.read((at * S, S), &busy(at)));
        kept.objects.insert(format!("disk:d{n}"), track);
    }
    let share = SAMPLES_BYTES_MAX / 20_480;
    assert!(share > 3 << 10 && share < OBJECT_BYTES_MAX, "{share}");
    kept.objects.values_mut().for_each(|track| track.fit(100));
    assert!(kept.objects.values().all(|track| track.samples.len() == 1));
}

#[test]
fn ended_sessions_keep_their_samples_up_to_a_limit() {
    let store = SampleStore::default();
    let session = |n: usize| SessionState {
        initiator: format!("iqn.h:{n:05}"),
        isid: "01".to_owned(),
        stats: Stats { read: reads(1, 1000), ..Stats::default() },
        ..SessionState::default()
    };
    let state_of = |second: u64, sessions: Vec<SessionState>| {
        let mut state = SystemState::default();
        state.daemon.uptime_ns = second * S;
        let name = "iqn.a:t".to_owned();
        state.targets = vec![TargetState { name, sessions, ..TargetState::default() }];
        state
    };
    store.record(&state_of(10, Vec::new()));
    store.record(&state_of(20, (0..ABSENT_MAX + 5).map(session).collect()));
    store.record(&state_of(30, Vec::new()));
    assert_eq!(store.lock().objects.len(), ABSENT_MAX);
    let id = format!("session:iqn.a:t/iqn.h:{ABSENT_MAX:05}/01");
    assert_eq!(store.of(&id).whole.read.ops, 1);
    // It returns, and its counters begin anew (H1).
    store.record(&state_of(40, vec![session(ABSENT_MAX)]));
    assert_eq!(store.of(&id).whole.read.ops, 2);
}

#[test]
fn names_and_identifiers_lead_to_the_sampled_object() {
    let mut state = disk(10, reads(0, 0));
    state.geoms.push(geom_state("part", "d0", 2, &["d0"], "d0p1"));
    state.geoms.push(geom_state("lun", "d0p1", 3, &["d0p1"], "d0p1.lun"));
    let session = SessionState {
        initiator: "iqn.h:one".to_owned(),
        isid: "02".to_owned(),
        ..SessionState::default()
    };
    let lun = LunState { lun: 4, provider: "d0p1".to_owned(), ..LunState::default() };
    let (name, luns) = ("hosts".to_owned(), vec![lun]);
    state.targets = vec![TargetState {
        name: "iqn.a:t".to_owned(),
        groups: vec![GroupState { name, luns, ..GroupState::default() }],
        sessions: vec![session],
        ..TargetState::default()
    }];
    state.daemon.cores = vec![CoreState { busy_ns: 7, ..CoreState::default() }];
    for (name, id) in [
        ("d0", "disk:d0"),
        ("part:d0", "part:d0"),
        ("d0p1", "part:d0"),
        ("lun:iqn.a:t/hosts/4", "lun:d0p1"),
        ("iqn.h:one", "session:iqn.a:t/iqn.h:one/02"),
        ("session:iqn.a:t/iqn.h:one/02", "session:iqn.a:t/iqn.h:one/02"),
        ("core:0", "core:0"),
    ] {
        assert_eq!(find(&state, name).expect(name), id);
    }
    for name in ["core:1", "d9", "lun:iqn.a:t/hosts/5", ""] {
        assert_eq!(find(&state, name).expect_err(name).kind, Kind::NotFound);
    }
}

#[test]
fn units_of_luns_are_counted_at_their_consumer() {
    let store = SampleStore::default();
    let mut state = disk(10, reads(0, 0));
    state.geoms.push(geom_state("lun", "d0", 2, &["d0"], "d0.lun"));
    store.record(&state);
    state.daemon.uptime_ns = 20 * S;
    state.geoms[1].consumers[0].stats.write = reads(3, 1000);
    store.record(&state);
    assert_eq!(store.of("lun:d0").whole.write.ops, 3);
}
