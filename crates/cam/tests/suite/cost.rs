//! Allocations of a request to a disk: none, once the lists have grown.

use std::sync::Arc;

use bio::{Op, Segs};
use cam::{Begun, Ccb, CcbId, Outcome, Sim, SimFacts, Unit};
use geom::Core;

use crate::world::{self, World};

/// Answers questions at once, and requests a moment later.
struct Prompt;

impl Sim for Prompt {
    fn facts(&self) -> SimFacts {
        SimFacts {
            name: "prompt0".into(),
            targets: 1,
            io_max_bytes: 1 << 20,
            whole_max_bytes: 1 << 20,
            is_ata: true,
        }
    }

    fn attach(&self, _: &Arc<Unit>) {}

    fn action(&self, _: &Unit, _: CcbId, ccb: &Ccb, data: &Segs, _: &Core) -> Begun {
        match ccb.priority {
            cam::Priority::Normal => Begun::Later(1000),
            _ => {
                let identify = wire::ata::Identify {
                    model: "prompt".into(),
                    sectors: 1 << 20,
                    sector_bytes: 512,
                    extended: true,
                    flush_ext: true,
                    write_cache: Some(true),
                    queue_depth: 32,
                    ..wire::ata::Identify::default()
                };
                data.copy_from(0, &identify.encode());
                Begun::Ended(Outcome::good(ccb.length))
            }
        }
    }

    fn finish(&self, _: &Unit, _: CcbId, data: &Segs, _: &Core) -> Begun {
        Begun::Ended(Outcome::good(data.len() as u32))
    }

    fn abort(&self, _: &Unit, _: CcbId, _: &Core) {}

    fn reset(&self, _: &Unit, _: &Core) {}
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let mut w = World::with(1, &[Arc::new(Prompt)]);
    assert_eq!(w.scan(0), ["ada0"]);
    let edge = w.open("ada0").1;
    let round = |w: &mut World| {
        for n in 0..48u64 {
            let op = if n % 2 == 0 { Op::Read } else { Op::Write };
            let data = w.buffer(4096);
            w.start_quietly(edge, |bio| world::range(bio, op, n * 4096, data));
        }
        w.turn(1_000_000);
        w.turn(1_000_000);
    };
    let allocations = |w: &mut World, rounds: u32| {
        let before = bio::allocations();
        (0..rounds).for_each(|_| round(w));
        bio::allocations() - before
    };
    allocations(&mut w, 50);
    let idle = {
        let before = bio::allocations();
        for _ in 0..100 {
            (0..48).for_each(|_| drop(w.buffer(4096)));
            w.turn(1_000_000);
            w.turn(1_000_000);
        }
        bio::allocations() - before
    };
    let busy = allocations(&mut w, 100);
    let unit = w.buses[0].unit(cam::Path::new(0, 0, 0)).unwrap();
    let (live, counts) = unit.inspect(|device| (device.live(), device.counts()));
    assert!(live == 0 && counts.ended >= 7200, "{live} {counts:?}");
    // The world of the test and its lists of segments allocate by themselves.
    assert!(busy <= idle + 48, "{busy} allocations of 4800 requests, {idle} of none");
}
