//! Inconsistent images: the faults that the check finds, and the results of mending.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use fileserver::Fault;
use fileserver::files::{Change, Ino, Kind, New, ROOT, Served};
use fileserver::image::format::{
    self, BLOCK, BlockState, Bucket, DENTRIES, Dentry, ENTRIES, FIRST, Header, Layout, PAYLOAD,
    Super, Tag, path,
};
use fileserver::image::{self, Setup};
use fileserver::volume::{Options, View};

use super::disk::Disk;
use super::model::{Tree, tree, walk};
use super::server::{image_disks, lend, on};

const SETUP: Setup = Setup { once: true, layout: Some(Layout::Rows), read_only: false };

/// A cache device, read and changed while it is not served.
pub struct Cache(pub Rc<Disk>);

impl Cache {
    pub fn block(&self, at: u64) -> Vec<u8> {
        let mut b = vec![0; BLOCK];
        self.0.with(|m| m.read(at * BLOCK as u64, &mut b)).unwrap();
        b
    }

    pub fn change(&self, at: u64, change: impl FnOnce(&mut [u8])) {
        let mut b = self.block(at);
        change(&mut b);
        self.0.with(|m| m.write(at * BLOCK as u64, &b, true)).unwrap();
    }

    pub fn header(&self) -> Header {
        Header::read(&self.block(FIRST))
    }

    /// Every address with its state and the place of its block.
    pub fn all(&self) -> Vec<(u64, BlockState, u64)> {
        let (h, mut out) = (self.header(), Vec::new());
        for row in 0..h.msize {
            let block = self.block(h.bucket_at(row));
            for (column, e) in Bucket::of(&block, row).entries() {
                if e.state != BlockState::None {
                    out.push((e.addr, e.state, h.cached(Layout::Rows, row, column)));
                }
            }
        }
        out
    }

    pub fn place(&self, addr: u64) -> u64 {
        self.all().into_iter().find(|(a, ..)| *a == addr).expect("it is cached").2
    }

    /// An entry of the live tree, and its place: block and slot.
    fn entry(&self, name: &str) -> (Dentry, u64, usize) {
        for (_, _, at) in self.all().into_iter().filter(|(_, s, _)| *s == BlockState::Dirty) {
            let block = self.block(at);
            if format::tag_of(&block) != Tag::Dir as u16 {
                continue;
            }
            for slot in 0..DENTRIES {
                let d = Dentry::read(&block, slot);
                if d.is_used() && d.name == name.as_bytes() {
                    return (d, at, slot);
                }
            }
        }
        panic!("no entry {name}");
    }

    fn set_entry(&self, name: &str, change: impl FnOnce(&mut Dentry)) {
        let (mut d, at, slot) = self.entry(name);
        change(&mut d);
        self.change(at, |b| d.write(b, slot));
    }

    fn set_super(&self, change: impl FnOnce(&mut [u8])) {
        self.change(self.place(self.header().sb), change);
    }
}

async fn file(fs: &Served, o: &Options, dir: Ino, name: &str, len: usize) -> Ino {
    let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8 ^ name.as_bytes()[0]).collect();
    let data = lend(&o.pool, &bytes, 30_000);
    fs.run(|f| {
        let ino = f.create(dir, name.as_bytes(), &New { mode: 0o644, ..New::default() })?;
        f.write(ino, 0, &data, 0)?;
        Ok(ino)
    })
    .await
    .unwrap()
}

async fn open(o: &Options) -> Served {
    Served::from(image::open(o, SETUP).await.unwrap())
}

/// Makes an image with a dump, and files that are newer than it; returns the devices and the
/// contents.
fn new_disks() -> ([Rc<Disk>; 2], Tree) {
    let disks = image_disks(1500, 4000);
    let live = on((5, 400), &disks, |o| async move {
        image::ream(&o, SETUP).await.unwrap();
        let fs = open(&o).await;
        file(&fs, &o, ROOT, "old", 200_000).await;
        let d = fs.dump(20_261_121).await.unwrap();
        fs.copied(&d).await.unwrap();
        let dir = New { kind: Kind::Dir, mode: 0o755, ..New::default() };
        let at = fs.run(|f| f.create(ROOT, b"d", &dir)).await.unwrap();
        for (name, len) in [("a", 40_000), ("b", 50_000), ("c", 150_000), ("e", 0)] {
            file(&fs, &o, at, name, len).await;
        }
        fs.run(|f| f.create(at, b"sub", &dir)).await.unwrap();
        let live = tree(&fs, View::Live).await.unwrap();
        fs.sync().await.unwrap();
        // So the log is of other blocks than those that tests change, and undoes nothing.
        fs.run(|f| {
            let old = walk(f, View::Live, "/old")?;
            f.set(old, &Change { mode: Some(0o600), ..Change::default() })
        })
        .await
        .unwrap();
        fs.close().await.unwrap();
        live
    });
    (disks, live)
}

/// Damages the contents of the devices, checks and repairs them. Afterwards no fault is found, all
/// files but `differs` have their former contents, and the image can be used further. Returns the
/// contents.
fn repairs(damage: impl FnOnce(&Cache), differs: &[&str]) -> Tree {
    let (disks, live) = new_disks();
    damage(&Cache(disks[0].clone()));
    let after = on((5, 400), &disks, |o| async move {
        let fs = open(&o).await;
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(!found.faults.is_empty(), "nothing is found");
        let would = fs.repair(true, true).await.unwrap();
        assert!(!would.is_empty(), "nothing would be mended of {found:?}");
        assert_eq!(fs.check(View::Live, true).await.unwrap(), found, "that changed something");
        let done = fs.repair(true, false).await.unwrap();
        assert!(would.iter().all(|w| done.contains(w)), "{would:?} {done:?}");
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 0, "{found:?} after {done:?}");
        let after = tree(&fs, View::Live).await.unwrap();
        assert_eq!(fs.repair(true, false).await.unwrap(), Vec::<String>::new());
        file(&fs, &o, ROOT, "new", 3_000_000).await;
        let held = tree(&fs, View::Live).await.unwrap();
        let d = fs.dump(20_261_122).await.unwrap();
        fs.copied(&d).await.unwrap();
        assert!(tree(&fs, View::Dump(d.number)).await.unwrap() == held, "the dump");
        fs.close().await.unwrap();
        let fs = open(&o).await;
        assert!(tree(&fs, View::Live).await.unwrap() == held, "after a start");
        for view in [View::Live, View::Dump(1), View::Dump(2)] {
            let found = fs.check(view, true).await.unwrap();
            assert!(found.faults.is_empty() && found.leaked == 0, "{found:?}");
        }
        after
    });
    let paths: BTreeSet<&String> = live.keys().chain(after.keys()).collect();
    let changed: Vec<&str> =
        paths.into_iter().filter(|p| live.get(*p) != after.get(*p)).map(|p| p.as_str()).collect();
    assert_eq!(changed, differs);
    after
}

fn more_free(b: &mut [u8], addr: impl FnOnce(&[u8]) -> u64) {
    let n = format::frees(b).unwrap();
    let addr = addr(b);
    format::set_free(b, n, addr);
    format::set_frees(b, n + 1);
    let s = Super::read(b);
    Super { tfree: s.tfree + 1, ..s }.write(b);
}

#[test]
fn wrong_free_list_is_rebuilt() {
    repairs(
        |c| {
            let (used, ..) = c.entry("a");
            c.set_super(|b| more_free(b, |_| used.direct[1]));
        },
        &[],
    );
    repairs(|c| c.set_super(|b| more_free(b, |b| format::free(b, 1))), &[]);
    repairs(|c| c.set_super(|b| more_free(b, |_| 1 << 40)), &[]);
    repairs(
        |c| c.set_super(|b| Super { tfree: Super::read(b).tfree + 5, ..Super::read(b) }.write(b)),
        &[],
    );
    repairs(|c| c.set_super(|b| format::set_frees(b, 1 << 20)), &[]);
    // It continues in a block that is none of its nodes.
    repairs(
        |c| {
            let (used, ..) = c.entry("c");
            c.set_super(|b| format::set_free(b, 0, used.indirect[0]));
        },
        &[],
    );
}

#[test]
fn invalid_pointers_become_holes_and_tagged_owners_keep_their_blocks() {
    let after = repairs(|c| c.set_entry("a", |d| d.direct[0] = 1 << 40), &["/d/a"]);
    let a = after["/d/a"].clone().unwrap();
    assert!(a[..PAYLOAD].iter().all(|b| *b == 0) && a[PAYLOAD + 9] != 0 && a.len() == 40_000);
    // The first file on the way down keeps the block: the block's tag names its owner.
    let of = |c: &Cache, name| c.entry(name).0.direct[0];
    let after = repairs(|c| c.set_entry("b", |d| d.direct[0] = of(c, "a")), &["/d/b"]);
    let b = after["/d/b"].clone().unwrap();
    assert!(b[..PAYLOAD].iter().all(|b| *b == 0) && b[PAYLOAD] != 0 && b.len() == 50_000);
    repairs(|c| c.set_entry("a", |d| d.direct[0] = of(c, "b")), &["/d/a"]);
    // A pointer in a block of them.
    let last = |c: &Cache| c.place(c.entry("c").0.indirect[0]);
    repairs(|c| c.change(last(c), |b| format::put_u64(b, 8, 1)), &["/d/c"]);
    let (_, live) = new_disks();
    let a = live["/d/a"].clone().unwrap();
    let addr = Cell::new(0);
    let (disks, _) = new_disks();
    addr.set(of(&Cache(disks[0].clone()), "a"));
    let kept = format!("/lost+found/block.{}", addr.get());
    let damage = |c: &Cache| {
        c.change(c.place(addr.get()), |b| format::set_tag(b, Tag::File, 77_777));
    };
    let after = repairs(damage, &["/d/a", "/lost+found", &kept]);
    assert_eq!(after[&kept].clone().unwrap()[..], a[..PAYLOAD], "what it held");
    assert_eq!(after["/d/a"].clone().unwrap()[PAYLOAD..], a[PAYLOAD..]);
}

#[test]
fn contradictory_entries_are_repaired_and_keep_their_contents() {
    let (disks, live) = new_disks();
    let ino = Cache(disks[0].clone()).entry("c").0.path;
    let named = format!("/d/file.{ino}");
    let after = repairs(|c| c.set_entry("c", |d| d.name.clear()), &["/d/c", &named]);
    assert!(after[&named] == live["/d/c"]);
    let after = repairs(|c| c.set_entry("c", |d| d.size = 1 << 62), &["/d/c"]);
    let (c, was) = (after["/d/c"].clone().unwrap(), live["/d/c"].clone().unwrap());
    assert_eq!((c.len(), &c[..was.len()]), (was.len().div_ceil(PAYLOAD) * PAYLOAD, &was[..]));
    repairs(|c| c.set_entry("e", |d| d.path = 0), &[]);
    let number = |c: &Cache, name| c.entry(name).0.path;
    repairs(|c| c.set_entry("e", |d| d.path = number(c, "a")), &[]);
    // A second name for the same.
    let twin = |c: &Cache| {
        let (a, at, _) = c.entry("a");
        let twin = Dentry { name: b"twin".to_vec(), ..a };
        c.change(at, |b| twin.write(b, DENTRIES - 1));
    };
    repairs(twin, &[]);
    repairs(|c| c.set_super(|b| Super { qidgen: 10, ..Super::read(b) }.write(b)), &[]);
}

#[test]
fn repair_removes_the_second_cache_entry_of_a_block() {
    let twice = |c: &Cache| {
        let (h, all) = (c.header(), c.all());
        let read = all.iter().find(|(_, s, _)| *s == BlockState::Read).expect("a dump's block");
        let row = read.0 % h.msize;
        c.change(h.bucket_at(row), |b| {
            let empty = |n: &usize| {
                Bucket::of(b, row).entry(*n).is_some_and(|e| e.state == BlockState::None)
            };
            let column = (0..ENTRIES).find(empty).expect("an empty place");
            format::set_entry(b, row, column, BlockState::Read, read.0);
        });
    };
    repairs(twice, &[]);
}

/// A directory that leads back to itself by the numbers and tags that belong there.
fn circle(c: &Cache) {
    let d = c.entry("d").0;
    c.set_entry("sub", |sub| (sub.path, sub.direct) = (d.path, d.direct));
}

#[test]
fn dump_of_a_cyclic_tree_fails_with_an_error() {
    let (disks, live) = new_disks();
    circle(&Cache(disks[0].clone()));
    on((5, 400), &disks, |o| async move {
        let fs = open(&o).await;
        match fs.dump(20_261_122).await {
            Err(Fault::Corrupt(why)) => assert!(why.contains("too deep"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(fs.dumps().len(), 1);
        fs.close().await.unwrap();
    });
    // The name that closes the circle is removed.
    let after = repairs(circle, &["/d/sub"]);
    assert_eq!(after.len(), live.len() - 1);
}

#[test]
fn blocks_below_an_unreadable_directory_are_not_freed() {
    let (disks, live) = new_disks();
    let cache = Cache(disks[0].clone());
    let (d, at, _) = cache.entry("a");
    let dir = cache.entry("d").0;
    cache.change(at, |b| format::set_tag(b, Tag::Dir, 4711));
    on((5, 400), &disks, |o| async move {
        let fs = open(&o).await;
        let found = fs.check(View::Live, true).await.unwrap();
        assert_eq!((found.faults.len(), found.leaked), (1, 0), "{found:?}");
        assert!(found.faults[0].starts_with("/d: "), "{found:?}");
        assert_eq!(fs.repair(true, false).await.unwrap(), Vec::<String>::new());
        file(&fs, &o, ROOT, "new", 3_000_000).await;
        fs.close().await.unwrap();
    });
    cache.change(at, |b| format::set_tag(b, Tag::Dir, dir.path));
    assert!(d.direct[0] != 0);
    on((5, 400), &disks, |o| async move {
        let fs = open(&o).await;
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 0, "{found:?}");
        let mut now = tree(&fs, View::Live).await.unwrap();
        now.remove("/new");
        assert!(now == live, "it is all there again");
    });
}

#[test]
fn forgotten_blocks_are_freed_by_repair_and_a_block_can_become_a_hole() {
    let (disks, _) = new_disks();
    on((5, 400), &disks, |o| async move {
        let fs = open(&o).await;
        assert!(!fs.forget(ROOT, b"nothing").await.unwrap());
        let d = fs.run(|f| walk(f, View::Live, "/d")).await.unwrap();
        assert!(fs.forget(d, b"c").await.unwrap());
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 11, "{found:?}");
        let a = fs.run(|f| f.lookup(View::Live, d, b"a")).await.unwrap().unwrap();
        let blocks = fs.run(|f| f.blocks(View::Live, a, 9)).await.unwrap();
        assert!(fs.set_block_addr(a, 1, blocks[0].1).await.is_err(), "a hole, and nothing else");
        assert_eq!(fs.set_block_addr(a, 1, 0).await.unwrap(), blocks[1].1);
        // A container is removed with its contents.
        assert!(fs.forget(ROOT, b"d").await.unwrap());
        let lost = fs.check(View::Live, true).await.unwrap().leaked;
        assert_eq!(lost, 11 + 3 + 4 + 1, "c; a with its hole's; b; the directory's own");
        let done = fs.repair(false, false).await.unwrap();
        assert_eq!(done, [format!("{lost} blocks without an owner: freed")]);
        let live = tree(&fs, View::Live).await.unwrap();
        assert_eq!(live.keys().collect::<Vec<_>>(), ["/old"]);
        let found = fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 0, "{found:?}");
        assert_eq!(path::ROOT, ROOT);
    });
}

/// I7 of image/mod.rs.
#[test]
fn check_during_writes_reports_one_consistent_state() {
    let (disks, _) = new_disks();
    on((5, 400), &disks.clone(), |o| async move {
        // So that it takes long, and waits at every block.
        let o = Options { memory: 100 * BLOCK, ..o };
        let fs = open(&o).await;
        for n in 0..60 {
            file(&fs, &o, ROOT, &format!("f{n}"), 20_000).await;
        }
        let (over, done) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0_u32)));
        let (f, p, end, count) = (fs.clone(), o.clone(), over.clone(), done.clone());
        o.reactor.spawn("writer", async move {
            while !end.get() {
                let n = count.replace(count.get() + 1);
                let name = format!("f{}", n * 37 % 60);
                f.run(|f| f.remove(ROOT, name.as_bytes(), 0)).await.unwrap();
                file(&f, &p, ROOT, &name, 20_000 + n as usize % 3 * 9000).await;
                p.reactor.sleep(1_000_000).await;
            }
        });
        for _ in 0..6 {
            let before = done.get();
            let found = fs.check(View::Live, true).await.unwrap();
            assert!(found.faults.is_empty() && found.leaked == 0, "{found:?}");
            assert!(done.get() > before + 10, "{} operations meanwhile", done.get() - before);
        }
        over.set(true);
        o.reactor.sleep(1_000_000_000).await;
        fs.close().await.unwrap();
    });
}
