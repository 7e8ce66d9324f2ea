//! A cache device that holds nothing but what no dump has: it is said, at once and without harm,
//! and a dump makes room. Writes of several blocks meet the last few slots, which are too few.

use fileserver::Fault;
use fileserver::files::{FileSystem, New, ROOT};
use fileserver::volume;
use reactor::sim::World;

use super::disk::Disk;
use super::server::{run, server};

/// Writes of `len` bytes to a volume of blocks of so many, on a cache device of 1500 of them.
pub fn is_said_and_a_dump_makes_room(block: u32, len: usize) {
    let world = World::new(7);
    let room = 1500 * u64::from(block);
    let cache = Disk::new("cache", room, 7);
    let legs = [Disk::new("leg", 10 * room, 8)];
    let mut s = server(&world, "main", 1, &cache, &legs);
    (s.options.block, s.options.memory) = (block, 160 * block as usize);
    let o = s.options.clone();
    run(&world, &s.reactor, async move {
        volume::ream(&o).await.unwrap();
        let fs = FileSystem::mount(volume::open(&o).await.unwrap(), 0, 0).await.unwrap();
        let new = New { mode: 0o644, ..New::default() };
        let ino = fs.run(|f| f.create(ROOT, b"big", &new)).await.unwrap();
        let seg = o.pool.get(4096).unwrap().seg(0, 4096).unwrap();
        seg.with_mut(|b| b.fill(9));
        let mut segs = vec![seg.clone(); len / 4096];
        segs.extend(seg.slice(0, len % 4096).filter(|s| !s.is_empty()));
        let fill = async |from: u64| -> (u64, Fault) {
            let mut at = from;
            loop {
                let wrote = fs.run(|f| f.write(ino, at, &segs, 0)).await;
                match wrote {
                    Ok(n) => at += n as u64,
                    Err(fault) => return (at, fault),
                }
                assert!(at < 2 * room, "a cache device of {room} takes {at} bytes");
            }
        };
        let (first, fault) = fill(0).await;
        assert!(matches!(fault, Fault::NoSpace(why) if why.contains("cache device")), "{fault}");
        assert!(first > room * 2 / 3, "{first} of {room}");
        // What was written is there, and a dump of it can be taken.
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        fs.volume().copied(&dump).await.unwrap();
        let (second, _) = fill(first).await;
        assert!(second - first > room * 2 / 3, "{} after the dump", second - first);
        let found = fs.check(volume::View::Live, true).await.unwrap();
        assert!(found.faults.is_empty(), "{found:?}");
    });
    s.reactor.shutdown();
}
