//! A temporary file whose contents are being moved when the power fails. The next start moves the
//! rest, in either direction, and no block of it is in a wrong place.

use std::cell::Cell;
use std::rc::Rc;

use fileserver::files::{Change, Flags, Kind, New, ROOT};
use fileserver::volume::{View, is_scratch};

use super::crashes::{Life, TestDevices};

const KIB: usize = 1024;
/// More than fit the block cache.
const BYTES: usize = 800 * KIB;
const BLOCKS: u64 = (BYTES / 4096) as u64;
/// Operations of the cache device between two cuts.
const STRIDE: i64 = 31;

async fn mark(life: &Life, ino: u64, flags: Flags) {
    let change = Change { flags: Some(flags), ..Change::default() };
    // The power may fail before there is an answer.
    let _ = life.fs.run(|f| f.set(ino, &change)).await;
}

/// Commits all the time, so that one falls between two steps of the move.
async fn mark_beside_commits(life: Rc<Life>, flags: Flags) {
    let ino = life.lookup("t").await.unwrap();
    let over = Rc::new(Cell::new(false));
    let (syncs, ended) = (life.clone(), over.clone());
    life.reactor.spawn("sync", async move {
        while !ended.get() && syncs.fs.sync().await.is_ok() {
            syncs.reactor.sleep(50_000).await;
        }
    });
    mark(&life, ino, flags).await;
    over.set(true);
    life.fs.sync().await.unwrap();
}

/// All of it is there; a piece at a time, for it does not fit memory.
async fn is_right(life: &Life, ino: u64) -> bool {
    for at in (0..BYTES).step_by(100 * KIB) {
        let mut segs = Vec::new();
        let read = life.fs.run(|f| {
            segs.clear();
            f.read(View::Live, ino, at as u64, 100 * KIB, &mut segs)
        });
        let n = read.await.unwrap();
        if n != 100 * KIB || !segs.iter().all(|s| s.with(|b| b.iter().all(|b| *b == 7))) {
            return false;
        }
    }
    true
}

/// Whether the file is temporary; checks that all its blocks are in the place for that.
async fn is_settled(life: &Life) -> bool {
    let ino = life.lookup("t").await.unwrap();
    let flags = life.fs.run(|f| f.inode(View::Live, ino)).await.unwrap().flags;
    assert!(flags == Flags::TMP || flags == Flags(0), "nobody is changing it: {flags:?}");
    let is_temporary = flags.has(Flags::TMP);
    let blocks = life.fs.run(|f| f.blocks(View::Live, ino, 10_000)).await.unwrap();
    assert_eq!(blocks.len() as u64, BLOCKS);
    let astray = blocks.iter().filter(|(_, at)| is_scratch(*at) != is_temporary).count();
    assert_eq!(astray, 0, "blocks of a file that is temporary: {is_temporary}");
    assert!(is_right(life, ino).await);
    life.is_whole().await;
    is_temporary
}

/// T2.
#[test]
fn interrupted_change_of_a_temporary_file_is_completed_at_start() {
    for (seed, to) in [(71, Flags::TMP), (72, Flags(0))] {
        let (mut operations, mut between, mut ends) = (1, 0, [0, 0]);
        loop {
            let devices = TestDevices::new(seed, 20);
            devices.live(None, move |life| async move {
                let ino = life.create("t").await.unwrap();
                mark(&life, ino, Flags::TMP.without(to)).await;
                life.fill(ino, 0, BYTES, 7).await;
                life.fs.sync().await.unwrap();
            });
            let whole = devices.live(Some(operations), move |life| mark_beside_commits(life, to));
            let (found, is_temporary) = devices
                .live(None, move |life| async move {
                    let is_temporary = is_settled(&life).await;
                    // Blocks that must not be in a dump are not on the WORM; blocks that must be
                    // there, are.
                    let dump = life.fs.volume().dump(20_261_121).await.unwrap();
                    life.fs.volume().copied(&dump).await.unwrap();
                    let shown = life.fs.run(|f| f.lookup(View::Dump(dump.number), ROOT, b"t"));
                    assert_eq!(shown.await.unwrap().is_none(), is_temporary);
                    (life.found, is_temporary)
                })
                .unwrap();
            let worm = devices.worm_devices[0].with(|disk| {
                let mut all = vec![0; disk.size() as usize];
                disk.read(0, &mut all).unwrap();
                all.chunks(4096).filter(|b| **b == [7; 4096]).count() as u64
            });
            assert_eq!(worm, if is_temporary { 0 } else { BLOCKS }, "{operations} operations");
            between += u64::from(found.0 > 20 && found.1 > 20);
            ends[usize::from(is_temporary)] += 1;
            if whole.is_some() {
                assert_eq!(is_temporary, to == Flags::TMP);
                break;
            }
            operations += STRIDE;
        }
        assert!(between > 3, "the power failed between two steps {between} times, {ends:?}");
    }
}

/// T4.
#[test]
fn files_in_a_temporary_directory_are_in_no_dump_nor_on_the_worm() {
    let devices = TestDevices::new(73, 20);
    devices.live(None, |life| async move {
        let fs = &life.fs;
        let dir = New { kind: Kind::Dir, mode: 0o775, flags: Flags::TMP, ..New::default() };
        let plain = New { mode: 0o644, ..New::default() };
        let below = New { flags: Flags(0), ..dir };
        let (tmp, sub, file) = fs
            .run(|f| {
                let tmp = f.create(ROOT, b"tmp", &dir)?;
                let sub = f.create(tmp, b"sub", &below)?;
                Ok((tmp, sub, f.create(sub, b"file", &plain)?))
            })
            .await
            .unwrap();
        let other = life.create("other").await.unwrap();
        life.fill(file, 0, 100 * KIB, 7).await;
        life.fill(other, 0, 100 * KIB, 8).await;
        for ino in [tmp, sub, file] {
            let flags = fs.run(|f| f.inode(View::Live, ino)).await.unwrap().flags;
            assert!(flags.has(Flags::TMP), "{ino}");
        }
        let dump = fs.volume().dump(20_261_121).await.unwrap();
        fs.volume().copied(&dump).await.unwrap();
        let view = View::Dump(dump.number);
        assert_eq!(fs.run(|f| f.lookup(view, ROOT, b"tmp")).await.unwrap(), None);
        assert_eq!(life.bytes(file).await.len(), 100 * KIB);
        // Lasting again, the directory keeps its contents with their flags; new files are lasting.
        let lasting = Change { flags: Some(Flags(0)), ..Change::default() };
        fs.run(|f| f.set(tmp, &lasting)).await.unwrap();
        let new = fs.run(|f| f.create(tmp, b"new", &plain)).await.unwrap();
        assert_eq!(fs.run(|f| f.inode(View::Live, new)).await.unwrap().flags, Flags(0));
        assert!(fs.run(|f| f.inode(View::Live, file)).await.unwrap().flags.has(Flags::TMP));
        life.is_whole().await;
    });
    let count = |byte: u8| {
        devices.worm_devices[0].with(|disk| {
            let mut all = vec![0; disk.size() as usize];
            disk.read(0, &mut all).unwrap();
            all.chunks(4096).filter(|b| **b == [byte; 4096]).count()
        })
    };
    assert_eq!((count(7), count(8)), (0, 25), "blocks on the WORM");
}
