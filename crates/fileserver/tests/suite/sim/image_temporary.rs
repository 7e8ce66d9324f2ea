//! Temporary files of an image: no dump shows them, and after a recovery from the WORM their names
//! are there and nothing else.

use fileserver::Fault;
use fileserver::files::{Change, Flags, Ino, Inode, Kind, New, ROOT, Served};
use fileserver::image::format::{Layout, PAYLOAD};
use fileserver::image::{self, Setup};
use fileserver::volume::{Options, View};

use super::model::walk;
use super::server::{image_disks, lend, on};

const SETUP: Setup = Setup { once: true, layout: Some(Layout::Rows), read_only: false };
/// So many blocks that some are behind indirect ones.
const MANY: usize = 20;

async fn open(o: &Options) -> Served {
    Served::from(image::open(o, SETUP).await.unwrap())
}

async fn put(fs: &Served, o: &Options, dir: Ino, name: &str, flags: Flags, blocks: usize) -> Ino {
    let data = lend(&o.pool, &vec![7; blocks * PAYLOAD], 30_000);
    let new = New { mode: 0o644, flags, ..New::default() };
    fs.run(|f| {
        let ino = f.create(dir, name.as_bytes(), &new)?;
        f.write(ino, 0, &data, 0).map(|_| ino)
    })
    .await
    .unwrap()
}

async fn make(fs: &Served, dir: Ino, name: &str, flags: Flags) -> Ino {
    let new = New { kind: Kind::Dir, mode: 0o755, flags, ..New::default() };
    fs.run(|f| f.create(dir, name.as_bytes(), &new)).await.unwrap()
}

/// A new image: files that stay, and temporary ones as files and in a directory of such.
async fn new_file_system(o: &Options) -> Served {
    image::ream(o, SETUP).await.unwrap();
    let fs = open(o).await;
    let d = make(&fs, ROOT, "d", Flags(0)).await;
    put(&fs, o, d, "kept", Flags(0), MANY).await;
    put(&fs, o, d, "gone", Flags::TMP, MANY).await;
    put(&fs, o, ROOT, "small", Flags::TMP.with(Flags::APPEND), 1).await;
    let tmp = make(&fs, ROOT, "tmp", Flags::TMP).await;
    put(&fs, o, tmp, "a", Flags(0), MANY).await;
    let deep = make(&fs, tmp, "deep", Flags(0)).await;
    put(&fs, o, deep, "b", Flags(0), 2).await;
    make(&fs, deep, "empty", Flags(0)).await;
    fs
}

async fn names(fs: &Served, view: View, kind: Kind) -> Vec<String> {
    let mut all = fs.paths_of(view, |i: &Inode| i.kind == kind, 100).await.unwrap();
    all.sort();
    all
}

async fn is_whole(fs: &Served, view: View) {
    let found = fs.check(view, true).await.unwrap();
    assert!(found.faults.is_empty() && found.leaked == 0, "{view:?} {found:?}");
}

/// Checks the contents of a dump, regardless of the live tree.
async fn dump(fs: &Served, date: u32) {
    let d = fs.dump(date).await.unwrap();
    fs.copied(&d).await.unwrap();
    let view = View::Dump(d.number);
    is_whole(fs, view).await;
    assert_eq!(names(fs, view, Kind::File).await, ["/d/kept"]);
    assert_eq!(names(fs, view, Kind::Dir).await, ["/", "/d"]);
}

#[test]
fn temporary_files_are_listed_and_removed_on_request() {
    on((9, 400), &image_disks(1100, 2000), |o| async move {
        let fs = new_file_system(&o).await;
        let files = ["/d/gone", "/d/kept", "/small", "/tmp/a", "/tmp/deep/b"];
        assert_eq!(names(&fs, View::Live, Kind::File).await, files);
        let dirs = ["/", "/d", "/tmp", "/tmp/deep", "/tmp/deep/empty"];
        assert_eq!(names(&fs, View::Live, Kind::Dir).await, dirs);
        let few = fs.paths_of(View::Live, |_: &Inode| true, 2).await.unwrap();
        assert_eq!(few.len(), 2);
        dump(&fs, 20_261_121).await;
        let mut gone = fs.remove_temporary(0).await.unwrap();
        gone.sort();
        let all = ["/d/gone", "/small", "/tmp/a", "/tmp/deep", "/tmp/deep/b", "/tmp/deep/empty"];
        assert_eq!(gone, all);
        assert_eq!(fs.remove_temporary(0).await.unwrap(), Vec::<String>::new());
        assert_eq!(names(&fs, View::Live, Kind::File).await, ["/d/kept"]);
        assert_eq!(names(&fs, View::Live, Kind::Dir).await, ["/", "/d", "/tmp"]);
        is_whole(&fs, View::Live).await;
        dump(&fs, 20_261_122).await;
        fs.close().await.unwrap();
    });
}

#[test]
fn recovered_temporary_files_block_no_dump_and_are_removable() {
    let worm = image_disks(1100, 2000);
    on((9, 400), &worm, |o| async move {
        let fs = new_file_system(&o).await;
        dump(&fs, 20_261_121).await;
        fs.close().await.unwrap();
    });
    // The cache device is lost.
    let disks = [image_disks(1100, 2000)[0].clone(), worm[1].clone()];
    on((9, 400), &disks, |o| async move {
        image::recover(&o, SETUP).await.unwrap();
        let fs = open(&o).await;
        let read = async |path: &str| {
            let mut out = Vec::new();
            let done = fs.run(|f| {
                let ino = walk(f, View::Live, path)?;
                f.read(View::Live, ino, 0, 10, &mut out)
            });
            done.await
        };
        assert_eq!(read("/d/kept").await, Ok(10));
        assert!(matches!(read("/d/gone").await, Err(Fault::Corrupt(_))));
        // A file of the same name and letter has replaced it: it is none of a dump either.
        dump(&fs, 20_261_122).await;
        let mut gone = fs.remove_temporary(0).await.unwrap();
        gone.sort();
        assert_eq!(gone, ["/d/gone", "/small", "/tmp/*, which does not read,"]);
        is_whole(&fs, View::Live).await;
        assert_eq!(names(&fs, View::Live, Kind::Dir).await, ["/", "/d", "/tmp"]);
        dump(&fs, 20_261_123).await;
        // A file that is no longer temporary is in the next dump, with all files below it.
        let tmp = fs.run(|f| walk(f, View::Live, "/tmp")).await.unwrap();
        put(&fs, &o, tmp, "new", Flags(0), MANY).await;
        dump(&fs, 20_261_124).await;
        let plain = Change { flags: Some(Flags(0)), ..Change::default() };
        fs.run(|f| f.set(tmp, &plain)).await.unwrap();
        let d = fs.dump(20_261_125).await.unwrap();
        fs.copied(&d).await.unwrap();
        is_whole(&fs, View::Dump(d.number)).await;
        let view = View::Dump(d.number);
        assert_eq!(names(&fs, view, Kind::File).await, ["/d/kept", "/tmp/new"]);
        fs.close().await.unwrap();
    });
}
