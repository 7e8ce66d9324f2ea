//! A cache device full of blocks that no dump has: this is reported, at once and without harm, and
//! a dump frees space. Writes of several blocks meet the last few slots, which are too few.

use fileserver::Fault;
use fileserver::files::{Flags, New, ROOT, Served};
use fileserver::volume::{Options, View};
use reactor::sim::World;

use super::disk::Disk;
use super::exposing::file;
use super::server::{filled, is_sound, life, life_with, new_file_system};

/// Writes of `len` bytes to a volume on a cache device of so many blocks of so many bytes.
pub fn is_reported_and_dump_frees(blocks: u64, block: u32, len: usize) {
    let capacity = blocks * u64::from(block);
    let cache = Disk::new("cache", capacity, 7);
    let legs = [Disk::new("leg", 10 * capacity, 8)];
    // Less than the tree has nodes, where there are many blocks.
    let memory = 160 * block as usize;
    life_with(&World::new(7), memory, (&cache, &legs), |o| async move {
        let o = Options { block, ..o };
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "big").await;
        let seg = filled(&o, 4096, 9);
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
                assert!(at < 2 * capacity, "a cache device of {capacity} takes {at} bytes");
            }
        };
        let (first, fault) = fill(0).await;
        assert!(matches!(fault, Fault::NoSpace(why) if why.contains("cache device")), "{fault}");
        assert!(first > capacity / 2, "{first} of {capacity}");
        // The written data are present, and a dump of them can be taken.
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        fs.volume().copied(&dump).await.unwrap();
        let (second, _) = fill(first).await;
        assert!(second - first > capacity / 2, "{} after the dump", second - first);
        is_sound(&fs, View::Live).await;
    });
}

/// No dump helps there: the message names the remedy, and it works.
pub fn of_temporary_files() {
    const BLOCK: u64 = 4096;
    let cache = Disk::new("cache", 1500 * BLOCK, 7);
    let legs = [Disk::new("leg", 15_000 * BLOCK, 8)];
    life(&World::new(8), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let seg = filled(&o, 4096, 9);
        let fill = async |name: &[u8]| -> (u64, Fault) {
            let new = New { mode: 0o644, flags: Flags::TMP, ..New::default() };
            let ino = match fs.run(|f| f.create(ROOT, name, &new)).await {
                Ok(ino) => ino,
                Err(fault) => return (0, fault),
            };
            for n in 0.. {
                let at = n * BLOCK;
                let wrote = fs.run(|f| f.write(ino, at, std::slice::from_ref(&seg), 0)).await;
                if let Err(fault) = wrote {
                    return (n, fault);
                }
            }
            unreachable!("a cache device without an end");
        };
        let (first, fault) = fill(b"t").await;
        assert!(first > 1000, "{first} blocks");
        let is_full = |fault: &Fault| match fault {
            Fault::NoSpace(why) => why.contains("temporary") && why.contains("check --rtmp"),
            _ => false,
        };
        assert!(is_full(&fault), "{fault}");
        assert!(fs.volume().facts().is_temporary());
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        fs.volume().copied(&dump).await.unwrap();
        let (second, fault) = fill(b"u").await;
        assert!(second < 50 && is_full(&fault), "{second} blocks after a dump: {fault}");
        // One of them can always be removed, and its space is free again.
        fs.run(|f| f.remove(ROOT, b"t", 0)).await.unwrap();
        let (third, fault) = fill(b"v").await;
        assert!(third > 1000 && is_full(&fault), "{third} blocks after the removal of one");
        fs.volume().dump(20_261_122).await.unwrap();
        Served::from(fs.clone()).remove_temporary(0).await.unwrap();
        let (fourth, _) = fill(b"w").await;
        assert!(fourth > 1000, "{fourth} blocks after the removal of all");
    });
}

/// Thousands of small ones: what their removal copies of a frozen tree is more than is kept for it
/// at a time.
pub fn of_small_temporary_files() {
    let cache = Disk::new("cache", 1500 * 4096, 9);
    let legs = [Disk::new("leg", 15_000 * 4096, 10)];
    life(&World::new(9), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let seg = o.pool.get(4096).unwrap().seg(0, 4096).unwrap();
        let new = New { mode: 0o644, flags: Flags::TMP, ..New::default() };
        let fill = async |letter: char| -> u64 {
            for n in 0.. {
                let name = format!("{letter}{n}");
                let result = fs.run(|f| {
                    let ino = f.create(ROOT, name.as_bytes(), &new)?;
                    f.write(ino, 0, std::slice::from_ref(&seg), 0)
                });
                match result.await {
                    Ok(_) => {}
                    Err(Fault::NoSpace(_)) => return n,
                    Err(fault) => panic!("{fault}"),
                }
            }
            unreachable!("a cache device without an end");
        };
        let first = fill('t').await;
        assert!(first > 800, "{first} files");
        for letter in ['u', 'v'] {
            let dump = fs.volume().dump(20_261_121).await.unwrap();
            fs.volume().copied(&dump).await.unwrap();
            fill(letter).await;
        }
        let gone = Served::from(fs.clone()).remove_temporary(0).await.unwrap().len() as u64;
        assert!(gone >= first);
        let again = fill('w').await;
        assert!(again * 10 > first * 9, "{again} files, {first} before");
        is_sound(&fs, View::Live).await;
    });
}

/// A step that needs more blocks at once than the block cache has: it ends, and reports that.
pub fn of_the_block_cache() {
    const BLOCKS: u64 = 300;
    let cache = Disk::new("cache", 1500 * 4096, 7);
    let legs = [Disk::new("leg", 15_000 * 4096, 8)];
    life(&World::new(9), &cache, &legs, |o| async move {
        assert!(o.memory < BLOCKS as usize * 4096);
        let fs = new_file_system(&o).await;
        let ino = file(&fs, "big").await;
        let seg = o.pool.get(4096).unwrap().seg(0, 4096).unwrap();
        for n in 0..BLOCKS {
            seg.with_mut(|b| b.fill(n as u8));
            fs.run(|f| f.write(ino, n * 4096, std::slice::from_ref(&seg), 0)).await.unwrap();
        }
        let read = async |len: u64| {
            fs.run(|f| f.read(View::Live, ino, 0, (len * 4096) as usize, &mut Vec::new())).await
        };
        let fault = read(BLOCKS).await.expect_err("more than fits");
        let says = |why: &str| why.contains("block cache is too small");
        assert!(matches!(fault, Fault::NoSpace(why) if says(why)), "{fault}");
        assert_eq!(read(40).await.unwrap(), 40 * 4096, "what fits is read as ever");
    });
}
