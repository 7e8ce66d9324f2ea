//! limit: no more than the rates and their burst, in any order of requests, and changed live.

use std::sync::Arc;

use bio::{Errno, Op, Segs};
use classes::limit::Limit;
use geom::{Class, Create, Edge, Error, GeomId, filter_class};
use reactor::SeededRandom;
use serde_json::{Value, json};
use testkit::Seeds;
use testkit::clock::MS;

use crate::world::{Ended, World, boundaries, exercise, range};

fn class() -> Arc<dyn Class> {
    filter_class::<Limit>()
}

fn limit(w: &mut World, params: Value) -> Result<GeomId, Error> {
    let below = w.control.topology.find("m0").unwrap();
    let request = Create { name: "l0", members: &[below], params: &params };
    w.control.call(|t| class().create(t, &request))
}

/// A limit called `l0` over a memory disk of 4 MiB.
fn over_memory(seed: u64, params: Value) -> (World, Edge) {
    let mut w = World::simulated(seed);
    w.control.topology.load(class()).unwrap();
    w.disk("memory", "m0", json!({ "size": 4 << 20 })).unwrap();
    limit(&mut w, params).unwrap();
    let edge = w.open("l0");
    (w, edge)
}

/// Starts requests of `lens` bytes at once; how many ms each took, in the order of their ends.
fn took(w: &mut World, edge: Edge, op: Op, lens: &[u64]) -> Vec<u64> {
    let (ended, begun) = (Ended::default(), w.reactor.now());
    for (n, len) in lens.iter().enumerate() {
        let data = match op {
            Op::Read | Op::Write => Segs::alloc(w.core.pool(), *len as usize).unwrap(),
            _ => Segs::default(),
        };
        w.start(edge, n, &ended, |bio| range(bio, op, 0, *len, data));
    }
    let mut times = Vec::new();
    for n in 1..=lens.len() {
        w.until("an end", |_| ended.list().len() >= n);
        times.push((w.reactor.now() - begun) / MS);
    }
    assert!(ended.list().iter().all(|(_, status)| status.is_ok()));
    times
}

#[test]
fn limiter_without_limits_does_not_delay_requests() {
    let (mut w, edge) = over_memory(1, json!({}));
    assert_eq!(took(&mut w, edge, Op::Read, &[4096; 100]), [0; 100]);
    exercise(&mut w, "l0", 1, 300);
    boundaries(&mut w, "l0");
}

#[test]
fn requests_after_the_burst_are_limited_to_their_rate() {
    let (mut w, edge) = over_memory(2, json!({ "iops": 100, "burst_ms": 100 }));
    let times = took(&mut w, edge, Op::Write, &[512; 40]);
    assert_eq!(times[..11], [0; 11], "the burst");
    let late =
        times.iter().enumerate().skip(11).all(|(n, ms)| ms.abs_diff(n as u64 * 10 - 100) <= 1);
    assert!(late, "{times:?}");
    let times = took(&mut w, edge, Op::Delete, &[512; 5]);
    assert!(times[4].abs_diff(50) <= 11, "a delete is a request: {times:?}");
    for _ in 0..50 {
        assert!(w.plain(edge, Op::Flush, 0, 0).is_ok());
    }
}

#[test]
fn byte_rate_holds_for_requests_of_any_size() {
    let (mut w, edge) = over_memory(3, json!({ "bytes_per_s": 1 << 20, "burst_ms": 0 }));
    let times = took(&mut w, edge, Op::Read, &[65536, 65536, 131_072, 65536]);
    let wanted = [0, 62, 125, 250];
    assert!(times.iter().zip(wanted).all(|(ms, want)| ms.abs_diff(want) <= 1), "{times:?}");
}

#[test]
fn rates_can_be_changed_under_load() {
    let (mut w, edge) = over_memory(4, json!({ "iops": 10, "burst_ms": 0 }));
    assert!(took(&mut w, edge, Op::Read, &[512; 3])[2] >= 199);
    let configure =
        |w: &mut World, params: Value| class().verb(&mut w.control, "configure", "l0", &params);
    configure(&mut w, json!({ "iops": 0 })).unwrap();
    assert_eq!(took(&mut w, edge, Op::Read, &[512; 50]), [0; 50]);
    configure(&mut w, json!({ "iops": 1000 })).unwrap();
    assert!(took(&mut w, edge, Op::Read, &[512; 101])[100].abs_diff(100) <= 1, "the burst is kept");
    for (wrong, word) in [
        (json!({ "iops": 2_000_000_000_u64 }), "iops"),
        (json!({ "burst_ms": 60_001 }), "burst_ms"),
        (json!({ "size": 5 }), "size"),
        (json!({ "iops": "many" }), "iops"),
    ] {
        let error = configure(&mut w, wrong.clone()).unwrap_err();
        assert_eq!(limit(&mut w, wrong).unwrap_err().kind, Errno::Inval);
        assert!(error.message.contains(word), "{}", error.message);
        assert_eq!(error.kind, Errno::Inval);
    }
    assert!(took(&mut w, edge, Op::Read, &[512; 101])[100] >= 99, "a refusal changes nothing");
}

/// In no time passes more than the rates allow, and a burst; nothing waits longer than required.
#[test]
fn random_loads_stay_within_rates_and_burst() {
    for seed in Seeds::of(1000) {
        let mut random = SeededRandom::new(seed);
        let (iops, bytes) = (50 + random.below(2000), 65_536 * (1 + random.below(200)));
        let burst = random.below(200);
        let params = json!({ "iops": iops, "bytes_per_s": bytes, "burst_ms": burst });
        let (mut w, edge) = over_memory(seed, params);
        let ended = Ended::default();
        let (mut sent, mut moved, mut last) = (0u64, 0u64, 0);
        for n in 0..60 {
            let len = 512 * (1 + random.below(64));
            let data = Segs::alloc(w.core.pool(), len as usize).unwrap();
            w.start(edge, n, &ended, |bio| range(bio, Op::Read, 0, len, data));
            (sent, moved, last) = (sent + 1, moved + len, w.reactor.now() / MS);
            if random.below(3) == 0 {
                let until = w.reactor.now() + random.below(20) * MS;
                w.until("a while", |w| w.reactor.now() >= until || ended.list().len() == n + 1);
            }
        }
        w.until("all", |_| ended.list().len() == 60);
        let ms = w.reactor.now() / MS;
        let least = (sent * 1000 / iops).max(moved * 1000 / bytes).saturating_sub(burst);
        let most = last + (sent * 1000 / iops).max(moved * 1000 / bytes);
        let largest = 1 + 1000 / iops + 64 * 512 * 1000 / bytes;
        assert!(ms + largest >= least, "{ms} ms, not less than {least}");
        assert!(ms <= most + largest, "{ms} ms, not more than {most}");
    }
}
