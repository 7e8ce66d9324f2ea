//! Images of cwfs64x that cwfs64x made: their contents are found, and they can be used further.

pub mod vectors;

use std::rc::Rc;

use fileserver::Fault;
use fileserver::files::{Kind, New, ROOT, Served};
use fileserver::image::format::{BLOCK, FIRST, Header, Layout};
use fileserver::image::{self, Setup};
use fileserver::volume::{Options, View};
use reactor::sim::World;

use vectors::Vector;

use crate::sim::disk::{self, Disk};
use crate::sim::model;
use crate::sim::server;

/// Runs `task` with the devices of a vector.
fn with<T: 'static, F: Future<Output = T> + 'static>(
    v: &Vector,
    task: impl FnOnce(Options, Setup) -> F,
) -> T {
    let cache = vectors::disk("cache", v.cache, 1);
    let worm: Vec<Rc<Disk>> = v.worm.iter().map(|w| vectors::disk("worm", w, 2)).collect();
    let setup = Setup { once: v.once, layout: None, read_only: false };
    server::life_with(&World::new(7), 400 * BLOCK, (&cache, &worm), |o| task(o, setup))
}

/// A view as the lists of a vector have it.
async fn listed(fs: &Served, view: View, prefix: &str) -> Vec<String> {
    let tree = model::tree(fs, view).await.unwrap();
    let mut out = Vec::new();
    for (path, contents) in &tree {
        let inode = fs
            .run(|f| {
                let at = model::walk(f, view, path)?;
                f.inode(view, at)
            })
            .await
            .unwrap();
        let (mode, uid, gid) = (inode.mode, inode.uid as i32, inode.gid as i32);
        out.push(match contents {
            None => format!("D {prefix}{path} {mode:o} {uid} {gid}"),
            Some(c) => {
                format!("F {prefix}{path} {mode:o} {uid} {gid} {} {:x}", c.len(), model::fnv(c))
            }
        });
    }
    out
}

fn sorted(text: &str) -> Vec<String> {
    let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
    all.sort();
    all
}

async fn all_dumps(fs: &Served) -> Vec<String> {
    let mut out = Vec::new();
    for d in fs.dumps() {
        let (year, day) = d.path();
        out.extend(listed(fs, View::Dump(d.number), &format!("/{year}/{day}")).await);
        let c = fs.check(View::Dump(d.number), true).await.unwrap();
        assert_eq!(c.faults, Vec::<String>::new(), "/{year}/{day}");
    }
    out.sort();
    out
}

/// What cwfs64x lists of the dumps, without the directories that hold them.
fn dumps_of(v: &Vector) -> Vec<String> {
    let deep = |l: &String| l.split(' ').nth(1).is_some_and(|p| p.matches('/').count() > 2);
    sorted(v.dumps).into_iter().filter(deep).collect()
}

#[test]
fn images_made_by_cwfs64x_are_read() {
    for v in vectors::ALL {
        for read_only in [false, true] {
            let (tree, dumps) = with(v, |o, setup| async move {
                let image = image::open(&o, Setup { read_only, ..setup }).await.unwrap();
                let fs = Served::from(image);
                server::is_sound(&fs, View::Live).await;
                let mut tree = listed(&fs, View::Live, "").await;
                tree.sort();
                (tree, all_dumps(&fs).await)
            });
            assert_eq!(tree, sorted(v.tree), "{}", v.name);
            assert_eq!(dumps, dumps_of(v), "{}", v.name);
        }
    }
}

#[test]
fn image_layout_is_detected() {
    for v in vectors::ALL.iter().filter(|v| v.worm.is_some()) {
        let found =
            with(v, |o, setup| async move { image::open(&o, setup).await.unwrap().layout() });
        let columns = v.name.starts_with("columns");
        assert_eq!(found, if columns { Layout::Columns } else { Layout::Rows }, "{}", v.name);
    }
}

#[test]
fn cache_device_is_partitioned_as_by_cwfs64x() {
    for v in vectors::ALL.iter().filter(|v| v.worm.is_some()) {
        let cache = vectors::disk("cache", v.cache, 1);
        let worm = vectors::disk("worm", v.worm.unwrap(), 2);
        let mut block = vec![0; BLOCK];
        cache.with(|m| m.read(FIRST * BLOCK as u64, &mut block)).unwrap();
        let header = Header::read(&block);
        let blocks = |d: &Disk| d.with(|m| m.size()) / BLOCK as u64;
        let usable = if v.once { image::format::once_size(blocks(&worm)) } else { blocks(&worm) };
        let plan = Header::plan(blocks(&cache), usable).unwrap();
        let cut = |h: &Header| (h.maddr, h.msize, h.caddr, h.csize, h.wsize);
        assert_eq!(cut(&plan), cut(&header), "{}", v.name);
        assert_eq!(header.invalid_field(blocks(&cache)), None);
    }
}

#[test]
fn cache_entries_have_distinct_addresses_in_both_layouts() {
    let h = Header { msize: 67, ..Header::plan(20_000, 50_000).unwrap() };
    for layout in [Layout::Rows, Layout::Columns] {
        let all = (0..h.msize).flat_map(|r| (0..135).map(move |c| h.cached(layout, r, c)));
        let mut all: Vec<u64> = all.collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as u64, h.msize * 135, "{layout:?}");
        assert!(all.iter().all(|a| (h.caddr..h.caddr + h.msize * 135).contains(a)));
    }
    // The formula of the paper, column * 135 + row, gives one place to two entries.
    let papers = |row: u64, column: u64| column * 135 + row;
    assert_eq!(papers(135, 0), papers(0, 1));
}

#[test]
fn images_made_by_cwfs64x_are_written_and_dumped() {
    for v in vectors::ALL.iter().filter(|v| v.worm.is_some()) {
        let dumps = with(v, |o, setup| async move {
            let fs = Served::from(image::open(&o, setup).await.unwrap());
            let data = server::lend(&o.pool, &[9; 150_000], 30_000);
            fs.run(|f| {
                let dir = New { kind: Kind::Dir, mode: 0o755, ..New::default() };
                let at = f.create(ROOT, b"new", &dir)?;
                let ino = f.create(at, b"file", &New { mode: 0o644, ..New::default() })?;
                f.write(ino, 0, &data, 3)?;
                let d = f.lookup(View::Live, ROOT, b"d")?.unwrap();
                let big = f.lookup(View::Live, d, b"big")?.unwrap();
                f.write(big, 120_000, &data[..1], 3)?;
                f.remove(ROOT, b"hello", 3)
            })
            .await
            .unwrap();
            fs.dump(20_261_123).await.unwrap();
            fs.close().await.unwrap();
            let fs = Served::from(image::open(&o, setup).await.unwrap());
            let c = fs.check(View::Live, true).await.unwrap();
            assert_eq!(c.faults, Vec::<String>::new());
            assert_eq!(c.files, 4, "big, x, y and the new one");
            let d = fs.dumps().last().copied().unwrap();
            assert_eq!(d.path(), ("2026".into(), "1123".into()));
            let mut dumps = all_dumps(&fs).await;
            dumps.retain(|l| !l.contains("/2026/1123/"));
            dumps
        });
        assert_eq!(dumps, dumps_of(v), "{}", v.name);
    }
}

/// I4 of image/mod.rs.
#[test]
fn changes_by_cwfs64x_after_its_last_dump_are_in_the_next_dump() {
    for v in vectors::ALL.iter().filter(|v| v.worm.is_some()) {
        let (live, dump) = with(v, |o, setup| async move {
            let fs = Served::from(image::open(&o, setup).await.unwrap());
            let d = fs.dump(20_261_123).await.unwrap();
            fs.copied(&d).await.unwrap();
            let live = listed(&fs, View::Live, "").await;
            let dump = listed(&fs, View::Dump(d.number), "").await;
            fs.close().await.unwrap();
            (live, dump)
        });
        assert_eq!(live, dump, "{}", v.name);
        assert!(!live.is_empty());
    }
}

#[test]
fn lost_cache_device_is_rebuilt_from_the_worm() {
    for v in vectors::ALL.iter().filter(|v| v.worm.is_some()) {
        let (tree, dumps) = with(v, |o, setup| async move {
            image::recover(&o, setup).await.unwrap();
            let fs = Served::from(image::open(&o, setup).await.unwrap());
            server::is_sound(&fs, View::Live).await;
            let mut tree = listed(&fs, View::Live, "/2026/1122").await;
            tree.sort();
            (tree, all_dumps(&fs).await)
        });
        assert_eq!(dumps, dumps_of(v), "{}", v.name);
        let mut last = dumps_of(v);
        last.retain(|l| l.contains("/2026/1122/"));
        assert_eq!(tree, last, "{}", v.name);
    }
}

#[test]
fn read_only_image_is_not_written() {
    for v in vectors::ALL {
        with(v, |o, setup| async move {
            let only = Setup { read_only: true, ..setup };
            let fs = Served::from(image::open(&o, only).await.unwrap());
            let result = fs.run(|f| f.create(ROOT, b"new", &New::default())).await;
            let why = matches!(result, Err(Fault::Invalid(why)) if why.contains("to be read only"));
            assert!(why, "{result:?}");
            fs.close().await.unwrap();
        });
    }
    // Without a cache device there is no space for a log.
    let plain = &vectors::ALL[2];
    let read_only =
        with(plain, |o, setup| async move { image::open(&o, setup).await.unwrap().is_read_only() });
    assert!(read_only);
}
