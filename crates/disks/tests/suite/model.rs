//! model: a disk that misbehaves on request, in simulated time.

use std::sync::Arc;

use bio::{Attr, Errno, Flags, MAPPED, Op, Segs};
use classes::nop::Nop;
use geom::{Class, Create, Local, TasteOutcome, Taster};
use reactor::SeededRandom;
use serde_json::json;
use testkit::Seeds;

use crate::world::{Ended, World, boundaries, exercise, range};

#[test]
fn modelled_disks_agree_with_an_array_of_bytes() {
    for (seed, latency) in [(1, "none"), (2, "flash"), (3, "spinning"), (4, "between")] {
        let mut w = World::simulated(seed);
        let mut params = json!({
            "size": 2 << 20, "latency": latency, "seed": seed,
            "sector_size": if seed % 2 == 0 { 512 } else { 4096 },
        });
        if latency == "between" {
            params["latency_min_us"] = json!(10);
            params["latency_max_us"] = json!(1000);
        }
        w.disk("model", "d0", params).unwrap();
        exercise(&mut w, "d0", seed, 400);
        boundaries(&mut w, "d0");
    }
}

#[test]
fn deleted_ranges_are_holes_and_written_zeroes_are_not() {
    let mut w = World::simulated(8);
    w.disk("model", "d0", json!({ "size": 1 << 20, "latency": "none" })).unwrap();
    let edge = w.open("d0");
    w.write(edge, 0, &vec![1; 256 << 10]).unwrap();
    w.write(edge, 256 << 10, &vec![0; 256 << 10]).unwrap();
    w.plain(edge, Op::Delete, 64 << 10, 64 << 10).unwrap();
    w.plain(edge, Op::WriteZeroes, 0, 64 << 10).unwrap();
    w.flagged(edge, Op::WriteZeroes, 768 << 10, 128 << 10, Flags::NO_HOLE).unwrap();
    let (mut runs, mut at) = (Vec::new(), 0);
    while at < 1 << 20 {
        let ended = w.io(edge, move |bio| {
            (bio.op, bio.offset, bio.length) = (Op::Map, at, (1 << 20) - at);
        });
        assert_eq!(ended.status, Ok(()));
        runs.push((at >> 10, ended.value == Some(Attr::Int(MAPPED))));
        at += ended.completed.max(1);
    }
    assert_eq!(runs, [(0, false), (128, true), (512, false), (768, true), (896, false)]);
}

#[test]
fn spinning_disk_has_latency_and_delays_add_up() {
    let mut w = World::simulated(5);
    w.disk("model", "d0", json!({ "size": 1u64 << 30, "latency": "spinning" })).unwrap();
    let edge = w.open("d0");
    let took = |w: &mut World, at| {
        let start = w.reactor.now();
        w.read(edge, at, 512).unwrap();
        w.reactor.now() - start
    };
    took(&mut w, 0);
    let far = took(&mut w, 1 << 29);
    assert!((1_000_000..30_000_000).contains(&far), "{far} ns");
    w.verb("delay", "d0", json!({ "delay_ms": 500 })).unwrap();
    assert!(took(&mut w, 0) > 500_000_000);
    w.verb("heal", "d0", json!({})).unwrap();
    assert!(took(&mut w, 1 << 29) < 30_000_000);
}

#[test]
fn errors_are_injected_by_range_count_and_probability() {
    let mut w = World::simulated(6);
    w.disk("model", "d0", json!({ "size": 1 << 20, "latency": "none" })).unwrap();
    let edge = w.open("d0");
    let fail = json!({ "op": "read", "offset": 8192, "length": 4096, "error": "ETIMEDOUT" });
    w.verb("fail", "d0", fail).unwrap();
    assert_eq!(w.read(edge, 0, 8192).map(|d| d.len()), Ok(8192));
    assert_eq!(w.read(edge, 4096, 8192), Err(Errno::TimedOut));
    assert_eq!(w.write(edge, 8192, &[1; 4096]), Ok(()));
    assert_eq!(w.read(edge, 8192, 512), Ok(vec![1; 512]), "healed by writing");
    w.verb("fail", "d0", json!({ "op": "flush", "times": 2 })).unwrap();
    let flushes: Vec<bool> = (0..4).map(|_| w.plain(edge, Op::Flush, 0, 0).is_ok()).collect();
    assert_eq!(flushes, [false, false, true, true]);
    w.verb("fail", "d0", json!({ "op": "write", "percent": 30 })).unwrap();
    let failed = (0..400).filter(|_| w.write(edge, 0, &[2; 512]).is_err()).count();
    assert!((80..160).contains(&failed), "{failed} of 400 at 30 %");
    w.verb("heal", "d0", json!({})).unwrap();
    assert!((0..50).all(|_| w.write(edge, 0, &[2; 512]).is_ok()));
    for wrong in [
        json!({}),
        json!({ "op": "read", "offset": 1 << 20 }),
        json!({ "op": "read", "error": "EWHAT" }),
        json!({ "op": "read", "percent": 10, "times": 1 }),
        json!({ "op": "read", "percent": 101 }),
        json!({ "op": "reed" }),
    ] {
        assert_eq!(w.verb("fail", "d0", wrong).unwrap_err().kind, Errno::Inval);
    }
}

#[test]
fn failed_requests_are_counted_and_the_last_one_is_described() {
    let mut w = World::simulated(7);
    let d0 = w.disk("model", "d0", json!({ "size": 1 << 20, "latency": "none" })).unwrap();
    let edge = w.open("d0");
    let last = |w: &World| disks::LastError::of(&w.control.topology, d0);
    w.write(edge, 0, &[1; 512]).unwrap();
    assert_eq!(last(&w), None);
    w.verb("fail", "d0", json!({ "op": "read", "offset": 8192, "length": 512 })).unwrap();
    assert_eq!(w.read(edge, 8192, 1024), Err(Errno::Io));
    let first = last(&w).expect("a failure");
    let error = (first.description.as_str(), first.count);
    assert_eq!(error, ("read of 1024 bytes at 8192: input/output error", 1));
    w.verb("fail", "d0", json!({ "op": "flush", "times": 1 })).unwrap();
    assert_eq!(w.plain(edge, Op::Flush, 0, 0), Err(Errno::Io));
    let second = last(&w).expect("a failure");
    let error = (second.description.as_str(), second.count);
    assert_eq!(error, ("flush: input/output error", 2));
    assert!(second.at_ns >= first.at_ns, "{second:?}");
    // Success does not erase it, and a full disk is another trouble.
    w.verb("fail", "d0", json!({ "op": "write", "error": "ENOSPC", "times": 1 })).unwrap();
    assert_eq!(w.write(edge, 0, &[1; 512]), Err(Errno::NoSpc));
    w.write(edge, 0, &[1; 512]).unwrap();
    assert_eq!(last(&w), Some(second));
}

/// D2 of model/mod.rs.
#[test]
fn power_cut_fails_requests_under_way_and_keeps_flushed_data() {
    let (mut lost, mut kept, seeds) = (0, 0, Seeds::of(1000));
    for seed in seeds.clone() {
        let mut w = World::simulated(seed);
        w.disk("model", "d0", json!({ "size": 1 << 20, "seed": seed })).unwrap();
        let edge = w.open("d0");
        w.write(edge, 0, &[1; 65536]).unwrap();
        w.plain(edge, Op::Flush, 0, 0).unwrap();
        w.write(edge, 0, &[2; 32768]).unwrap();
        let fua = Segs::alloc(w.core.pool(), 512).unwrap();
        fua.fill(0, 512, 3);
        let done = w.io(edge, |bio| {
            range(bio, Op::Write, 65536, 512, fua);
            bio.flags = Flags::FUA;
        });
        assert_eq!(done.status, Ok(()));
        let ended = Ended::default();
        let data = Segs::alloc(w.core.pool(), 16384).unwrap();
        data.fill(0, 16384, 4);
        w.start(edge, 7, &ended, |bio| range(bio, Op::Write, 32768, 16384, data));
        let error = w.verb("power-cut", "d0", json!({})).unwrap();
        assert_eq!(error["ended"], 1);
        w.until("the end of the torn write", |_| !ended.list().is_empty());
        assert_eq!(ended.list(), [(7, Err(Errno::Io))]);
        let found = w.read(edge, 0, 66048).unwrap();
        for (i, sector) in found.chunks(512).enumerate() {
            let byte = sector[0];
            assert!(sector.iter().all(|b| *b == byte), "whole sectors");
            let allowed: &[u8] = match i {
                0..64 => &[1, 2],
                64..96 => &[1, 4],
                96..128 => &[1],
                _ => &[3],
            };
            assert!(allowed.contains(&byte), "seed {seed}, sector {i}: {byte}");
            lost += u32::from(i < 96 && byte == 1);
            kept += u32::from(i < 96 && byte != 1);
        }
    }
    assert!((lost > 500 && kept > 500) || !seeds.are_enough(), "{lost} {kept}");
}

#[test]
fn disk_with_a_lying_cache_loses_flushed_data() {
    let mut w = World::simulated(1);
    w.disk("model", "d0", json!({ "size": 1 << 20 })).unwrap();
    let edge = w.open("d0");
    w.verb("lie", "d0", json!({ "lies": true })).unwrap();
    w.write(edge, 0, &[9; 65536]).unwrap();
    w.plain(edge, Op::Flush, 0, 0).unwrap();
    w.verb("power-cut", "d0", json!({})).unwrap();
    assert!(w.read(edge, 0, 65536).unwrap().contains(&0));
}

/// Reads the first sector and claims nothing.
struct Looks;

impl Class for Looks {
    fn name(&self) -> &'static str {
        "looks"
    }

    fn doc(&self) -> &'static str {
        "Reads the first sector of everything, for tests."
    }

    fn tastes(&self) -> bool {
        true
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome> {
        Box::pin(async move {
            TasteOutcome::No(match disk.read(0, disk.sector_bytes as usize).await {
                Ok(bytes) => format!("looked at {}", bytes.len()),
                Err(e) => format!("{e}"),
            })
        })
    }
}

fn taste_outcome(w: &World, provider: &str) -> String {
    let view = w.control.topology.view(0);
    let all = view.iter().flat_map(|g| &g.providers);
    let found = all.filter(|p| p.name == provider).flat_map(|p| &p.taste_outcomes);
    found.filter(|(c, _)| *c == "looks").map(|(_, v)| v.clone()).collect()
}

#[test]
fn disk_that_is_not_simulated_has_no_faults() {
    let mut w = World::simulated(1);
    w.disk("memory", "m0", json!({ "size": 1 << 20 })).unwrap();
    let refused = w.verb("hang", "m0", json!({})).unwrap_err();
    assert_eq!(refused.kind, Errno::NotSup);
    assert!(refused.message.contains("kind memory is not simulated"), "{}", refused.message);
    assert_eq!(w.verb("hang", "m1", json!({})).unwrap_err().kind, Errno::NoEnt);
    assert!(w.verb("lie", "m0", json!({ "lie": 1 })).unwrap_err().message.contains("no `lie`"));
}

#[test]
fn hung_disk_delays_only_its_own_tasting() {
    let mut w = World::simulated(9);
    w.control.topology.load(Arc::new(Looks)).unwrap();
    w.disk("model", "hung", json!({ "size": 1 << 20 })).unwrap();
    assert_eq!(taste_outcome(&w, "hung"), "looked at 512");
    w.verb("hang", "hung", json!({})).unwrap();
    let (hung, start) = (w.control.topology.find("hung").unwrap(), w.control.now_ns());
    w.control.topology.retaste(hung);
    w.control.pump();
    let disks = w.disks.clone();
    disks.add(&mut w.control.topology, "model", "fine", &json!({ "size": 1 << 20 })).unwrap();
    w.until("the other's tasting", |w| taste_outcome(w, "fine") == "looked at 512");
    assert!(w.control.now_ns() - start < 100_000_000, "no waiting for the one that hangs");
    assert!(w.control.settle().is_ok(), "the deadline of tasting ends the wait");
    let waited = w.control.now_ns() - start;
    assert!((4_900_000_000..6_000_000_000).contains(&waited), "{waited} ns");
    assert!(
        taste_outcome(&w, "hung").contains("did not answer in 5 s"),
        "{}",
        taste_outcome(&w, "hung")
    );
    let error = w.verb("release", "hung", json!({})).unwrap();
    assert_eq!(error["released"], 1);
    w.control.topology.retaste(hung);
    w.control.settle().unwrap();
    assert_eq!(taste_outcome(&w, "hung"), "looked at 512");
    w.control.topology.check();
}

/// D3 of model/mod.rs.
#[test]
fn hung_requests_complete_after_release_and_fail_at_a_power_cut() {
    let mut w = World::simulated(10);
    w.disk("model", "d0", json!({ "size": 1 << 20 })).unwrap();
    let edge = w.open("d0");
    for (verb, how) in [("release", Ok(())), ("power-cut", Err(Errno::Io))] {
        w.verb("hang", "d0", json!({})).unwrap();
        let ended = Ended::default();
        for n in 0..5 {
            w.start(edge, n, &ended, |bio| range(bio, Op::Flush, 0, 0, Segs::new()));
        }
        for _ in 0..100 {
            w.turn(100_000_000);
        }
        assert!(ended.list().is_empty());
        w.verb(verb, "d0", json!({})).unwrap();
        w.until("their ends", |_| ended.list().len() == 5);
        assert!(ended.list().iter().all(|(_, s)| *s == how), "{:?}", ended.list());
    }
}

/// Possible contents of a sector: the last write that must have survived, and those after it.
#[derive(Clone, Default)]
struct Allowed(Vec<u8>);

fn one_life(seed: u64) -> (u64, u64) {
    let mut w = World::simulated(seed);
    let sectors = 64u64;
    w.disk("model", "d0", json!({ "size": sectors * 512, "seed": seed })).unwrap();
    let below = w.control.topology.find("d0").unwrap();
    let params = json!({ "write_delay_percent": 30, "delay_ms": 3, "read_delay_percent": 10 });
    let create = Create { name: "d0.nop", members: &[below], params: &params };
    w.control.call(|t| geom::filter_class::<Nop>().create(t, &create)).unwrap();
    let edge = w.open("d0.nop");
    let mut random = SeededRandom::new(seed);
    let mut allowed = vec![Allowed(vec![0]); sectors as usize];
    let (mut cuts, mut losses) = (0, 0);
    for n in 1..=200u32 {
        let (at, byte) = (random.below(sectors - 8), (n % 251 + 1) as u8);
        let count = 1 + random.below(8);
        let data = Segs::alloc(w.core.pool(), (count * 512) as usize).unwrap();
        data.fill(0, (count * 512) as usize, byte);
        let flags = if random.chance(150) { Flags::FUA } else { Flags::NONE };
        let ended = Ended::default();
        w.start(edge, 0, &ended, |bio| {
            range(bio, Op::Write, at * 512, count * 512, data);
            bio.flags = flags;
        });
        let cut = random.chance(100);
        if cut {
            w.turn(random.below(5_000_000));
            w.verb("power-cut", "d0", json!({})).unwrap();
            cuts += 1;
        }
        w.until("the end of a write", |_| !ended.list().is_empty());
        let ok = ended.list()[0].1.is_ok();
        for place in &mut allowed[at as usize..(at + count) as usize] {
            match (ok, flags == Flags::FUA) {
                (true, true) => place.0 = vec![byte],
                _ => place.0.push(byte),
            }
        }
        if !cut && random.chance(100) && w.plain(edge, Op::Flush, 0, 0).is_ok() {
            let found = w.read(edge, 0, sectors * 512).unwrap();
            for (place, sector) in allowed.iter_mut().zip(found.chunks(512)) {
                place.0 = vec![sector[0]];
            }
        }
        if cut {
            let found = w.read(edge, 0, sectors * 512).unwrap();
            for (i, (place, sector)) in allowed.iter_mut().zip(found.chunks(512)).enumerate() {
                let is = sector[0];
                assert!(sector.iter().all(|b| *b == is), "seed {seed}: torn inside a sector");
                assert!(place.0.contains(&is), "seed {seed}, write {n}, sector {i}: {is}");
                // A write that the nop held back until after the cut is in the cache again.
                let later = ok && (at..at + count).contains(&(i as u64));
                losses += u64::from(!later && place.0.last() != Some(&is));
                if !later {
                    place.0 = vec![is];
                }
            }
        }
    }
    (cuts, losses)
}

#[test]
fn flushed_and_fua_writes_survive_power_cuts_through_a_nop() {
    let (mut cuts, mut losses, seeds) = (0, 0, Seeds::of(40));
    for seed in seeds.clone() {
        let (c, l) = one_life(seed);
        (cuts, losses) = (cuts + c, losses + l);
    }
    let seen = cuts > 400 && losses > 400;
    assert!(seen || !seeds.are_enough(), "{cuts} cuts lost {losses} unflushed sectors");
}
