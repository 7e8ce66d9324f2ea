//! Takeover of one WORM by a standby server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Seg;
use fileserver::Fault;
use fileserver::files::{FileSystem, New, ROOT};
use fileserver::volume::{self, View};
use reactor::SeededRandom;
use reactor::sim::{Actor, Limits, World};

use super::disk::Disk;
use super::model;
use super::server::{filled, mounted, new_file_system, run, server};

pub async fn put(fs: &FileSystem, name: &str, seg: &Seg) -> Result<(), Fault> {
    let new = New { mode: 0o644, ..New::default() };
    fs.run(|f| {
        let ino = f.create(ROOT, name.as_bytes(), &new)?;
        f.write(ino, 0, std::slice::from_ref(seg), 0).map(drop)
    })
    .await
}

/// The main server is stopped at a random moment, the standby takes over, the main resumes. It
/// notices the takeover before it acknowledges anything, and its late writes do no harm.
pub fn play(seed: u64) {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed ^ 0x7a6e);
    let legs = [Disk::new("near", 30 << 20, seed), Disk::new("far", 30 << 20, seed ^ 3)];
    let caches = [Disk::new("c0", 6 << 20, seed ^ 4), Disk::new("c1", 6 << 20, seed ^ 5)];
    let main = server(&world, "main", 1, &caches[0], &legs);
    let o = main.options.clone();
    let fs = run(&world, &main.reactor, async move {
        let fs = new_file_system(&o).await;
        let seg = filled(&o, 3000, 5);
        put(&fs, "first", &seg).await.unwrap();
        let d = fs.volume().dump(20_261_120).await.unwrap();
        fs.volume().copied(&d).await.unwrap();
        fs
    })
    .unwrap();
    // A look at the fence takes no time, some, or longer than it would hold.
    let slow = [0, 0, 40_000_000, 260_000_000, 700_000_000][random.below(5) as usize];
    // It works until it is stopped, wherever that is.
    let acknowledged = Rc::new(RefCell::new(Vec::new()));
    let fenced = Rc::new(Cell::new(false));
    let stopped_at = Rc::new(Cell::new(u64::MAX));
    let taken = Rc::new(Cell::new(false));
    let (ack, out, back) = (acknowledged.clone(), fenced.clone(), taken.clone());
    let (f, o, r) = (fs.clone(), main.options.clone(), main.reactor.clone());
    main.reactor.spawn("writer", async move {
        let seg = filled(&o, 2000, 9);
        for n in 0.. {
            match put(&f, &format!("m{n}"), &seg).await {
                Ok(()) => {
                    assert!(!back.get(), "seed {seed}: written after another server took over");
                    ack.borrow_mut().push(n);
                }
                Err(Fault::Fenced(by)) => {
                    assert!(by.contains("standby"), "{by}");
                    return out.set(true);
                }
                Err(Fault::Io(..) | Fault::NoSpace(_)) if slow > 0 => {}
                Err(fault) => panic!("{fault}"),
            }
            r.sleep(700_000).await;
        }
    });
    let f = fs.clone();
    let r = main.reactor.clone();
    main.reactor.spawn("dumper", async move {
        loop {
            r.sleep(9_000_000).await;
            match f.volume().dump(20_261_121).await {
                Ok(_) | Err(Fault::NoSpace(_)) => {}
                Err(_) => return,
            }
        }
    });
    legs.iter().for_each(|leg| leg.slow_ns.set(slow));
    let most = if slow == 0 { 80_000_000 } else { 6_000_000_000 };
    let limits = Limits { ns: random.below(most), steps: 10_000_000 };
    world.run(&mut [Actor::of_tasks(&main.reactor)], limits, &mut || false);
    stopped_at.set(world.now());
    // A look that is under way ends long after all is quick again.
    legs.iter().for_each(|leg| leg.slow_ns.set(0));
    // The standby sees the far leg only, or both.
    let seen = if random.chance(500) { &legs[..] } else { &legs[1..] };
    let standby = server(&world, "standby", 2, &caches[1], seen);
    let o = standby.options.clone();
    let t = taken.clone();
    let other = run(&world, &standby.reactor, async move {
        volume::recover(&o, None).await.unwrap();
        let fs = mounted(&o).await;
        t.set(true);
        let seg = filled(&o, 2500, 11);
        put(&fs, "s0", &seg).await.unwrap();
        let d = fs.volume().dump(20_261_122).await.unwrap();
        fs.volume().copied(&d).await.unwrap();
        fs
    })
    .unwrap();
    // Both run.
    let (f, o, r) = (other.clone(), standby.options.clone(), standby.reactor.clone());
    let ends = Rc::new(Cell::new(false));
    let end = ends.clone();
    standby.reactor.spawn("writer", async move {
        let seg = filled(&o, 2500, 0);
        for n in 1.. {
            if end.get() {
                return;
            }
            put(&f, &format!("s{n}"), &seg).await.unwrap();
            if n % 5 == 0 {
                f.volume().dump(20_261_122).await.unwrap();
            }
            r.sleep(2_000_000).await;
        }
    });
    let mut actors = [Actor::of_tasks(&main.reactor), Actor::of_tasks(&standby.reactor)];
    let limits = Limits { ns: 5_000_000_000, steps: 20_000_000 };
    let is_fenced = fenced.clone();
    world.run(&mut actors, limits, &mut || is_fenced.get());
    assert!(fenced.get(), "seed {seed}: the old main has not noticed");
    let limits = Limits { ns: 100_000_000, steps: 10_000_000 };
    world.run(&mut actors, limits, &mut || false);
    drop(actors);
    main.reactor.shutdown();
    // All that the standby dumped reads, from the WORM alone.
    ends.set(true);
    let limits = Limits { ns: 100_000_000, steps: 10_000_000 };
    world.run(&mut [Actor::of_tasks(&standby.reactor)], limits, &mut || false);
    let f = other.clone();
    let last = run(&world, &standby.reactor, async move {
        let d = f.volume().dump(20_261_123).await.unwrap();
        f.volume().copied(&d).await.unwrap();
        (d.number, model::tree(&f, View::Live).await.unwrap())
    })
    .unwrap();
    drop((fs, other));
    standby.reactor.shutdown();
    caches[1].wipe();
    let again = server(&world, "third", 3, &caches[1], seen);
    let o = again.options.clone();
    run(&world, &again.reactor, async move {
        assert_eq!(volume::recover(&o, None).await.unwrap().number, last.0, "seed {seed}");
        let fs = mounted(&o).await;
        assert!(model::tree(&fs, View::Live).await.unwrap() == last.1, "seed {seed}");
        for n in 1..=last.0 {
            model::tree(&fs, View::Dump(n)).await.unwrap();
        }
    });
    again.reactor.shutdown();
}
