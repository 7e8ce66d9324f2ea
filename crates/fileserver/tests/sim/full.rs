//! A cache device that holds nothing but what no dump has: it is said, at once and without harm,
//! and a dump makes room. Writes of several blocks meet the last few slots, which are too few.

use fileserver::Fault;
use fileserver::files::{FileSystem, New, ROOT};
use fileserver::volume;
use reactor::sim::World;

use super::disk::Disk;
use super::story::{run, server};

pub fn is_said_and_a_dump_makes_room(len: usize) {
    let world = World::new(7);
    let cache = Disk::new("cache", 6 << 20, 7);
    let legs = [Disk::new("leg", 60 << 20, 8)];
    let s = server(&world, "main", 1, &cache, &legs);
    let o = s.options.clone();
    run(&world, &s.reactor, async move {
        volume::ream(&o).await.unwrap();
        let fs = FileSystem::mount(volume::open(&o).await.unwrap(), 0, 0).await.unwrap();
        let new = New { mode: 0o644, ..New::default() };
        let ino = fs.run(|f| f.create(ROOT, b"big", &new)).await.unwrap();
        let seg = o.pool.get(len).unwrap().seg(0, len).unwrap();
        seg.with_mut(|b| b.fill(9));
        let fill = async |from: u64| -> (u64, Fault) {
            let mut at = from;
            loop {
                let wrote = fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await;
                match wrote {
                    Ok(n) => at += n as u64,
                    Err(fault) => return (at, fault),
                }
                assert!(at < 40 << 20, "a cache device of 6 MiB takes {at} bytes");
            }
        };
        let (first, fault) = fill(0).await;
        assert!(matches!(fault, Fault::NoSpace(why) if why.contains("cache device")), "{fault}");
        assert!(first > 4 << 20, "{first} of 6 MiB");
        // What was written is there, and a dump of it can be taken.
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        fs.volume().copied(&dump).await.unwrap();
        let (second, _) = fill(first).await;
        assert!(second - first > 4 << 20, "{} after the dump", second - first);
        let found = fs.check(volume::View::Live, true).await.unwrap();
        assert!(found.faults.is_empty(), "{found:?}");
    });
    s.reactor.shutdown();
}
