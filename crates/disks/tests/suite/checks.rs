//! Checks of disks before they are opened: they refuse as `open` does, and change nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bio::Errno;
use disks::kind;
use geom::Error;
use reactor::{File, OpenHow, PortChoice};
use rig::proc::is_root;
use serde_json::{Value, json};

use crate::host::{is_mounted, run};
use crate::world::{Folder, World};

fn check(of: &str, params: Value) -> Result<(), Error> {
    kind(of).unwrap().check("d0", &params)
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn kind_that_does_not_fit_the_path_is_refused() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    std::fs::write(&path, vec![0; 4096]).unwrap();
    let e = check("blockdev", json!({ "path": path })).unwrap_err();
    assert!(e.kind == Errno::Inval && e.message.contains("use kind file"), "{e}");
    assert!(e.message.contains("d0") && e.message.contains(&path), "{e}");
    let e = check("file", json!({ "path": "/dev/null" })).unwrap_err();
    assert!(e.kind == Errno::Inval && e.message.contains("use kind blockdev"), "{e}");
    check("file", json!({ "path": path })).unwrap();
    // They may appear later.
    check("blockdev", json!({ "path": folder.path("absent") })).unwrap();
    check("file", json!({ "path": folder.path("absent") })).unwrap();
}

#[test]
fn file_that_cannot_be_created_is_refused_and_nothing_is_created() {
    let folder = Folder::new();
    let here = folder.0.display().to_string();
    let params_of = |path: String, size: u64| json!({ "path": path, "create": true, "size": size });
    let e = check("file", params_of(folder.path("no/a.img"), 8192)).unwrap_err();
    assert!(e.kind == Errno::NoEnt && e.message.contains(&folder.path("no")), "{e}");
    // More than any file system here allows.
    let size = i64::MAX as u64 / 4096 * 4096;
    let e = check("file", params_of(folder.path("a.img"), size)).unwrap_err();
    assert!(e.kind == Errno::NoSpc && e.message.contains(&size.to_string()), "{e}");
    check("file", params_of(folder.path("a.img"), 8192)).unwrap();
    assert_eq!(entries(&here), 0);
    // A file that is there, and cannot be extended so far.
    std::fs::write(folder.path("b.img"), vec![0; 4096]).unwrap();
    let e = check("file", json!({ "path": folder.path("b.img"), "size": size })).unwrap_err();
    assert!(e.kind == Errno::NoSpc && e.message.contains("from 4096 to"), "{e}");
    let short = json!({ "path": folder.path("b.img"), "size": 8192, "read_only": true });
    let e = check("file", short).unwrap_err();
    assert!(e.kind == Errno::Inval && e.message.contains("less than the 8192"), "{e}");
    assert_eq!(std::fs::metadata(folder.path("b.img")).unwrap().len(), 4096);
}

#[test]
fn creation_in_a_folder_that_cannot_be_written_is_refused() {
    let folder = Folder::new();
    let place = folder.path("place");
    std::fs::create_dir(&place).unwrap();
    let params = json!({ "path": format!("{place}/a.img"), "create": true, "size": 8192 });
    if is_root() {
        if !is_mounted(&["-t", "tmpfs", "-o", "ro", "none", &place]) {
            return;
        }
        let refused = check("file", params);
        run(&["umount", &place]).unwrap();
        let e = refused.unwrap_err();
        assert!(e.kind == Errno::RoFs && e.message.contains("findmnt"), "{e}");
        return;
    }
    let set = |mode: u32| {
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o555);
    let refused = check("file", params);
    set(0o755);
    let e = refused.unwrap_err();
    assert!(e.message.contains("must exist and be writable"), "{e}");
    assert!(!Path::new(&place).join("a.img").exists());
}

#[test]
fn locked_file_is_refused_and_no_lock_is_left() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let check = |read_only: bool| {
        kind("file").unwrap().check_lock("d0", &json!({ "path": path, "read_only": read_only }))
    };
    check(false).unwrap();
    // As QEMU does with an image that it writes.
    let other = File::open(&path, OpenHow::default()).unwrap();
    other.share_byte(101).unwrap();
    for read_only in [false, true] {
        let e = check(read_only).unwrap_err();
        assert!(e.kind == Errno::Busy && e.message.contains("QEMU"), "{e}");
        assert!(e.message.contains("d0") && e.message.contains(&path), "{e}");
    }
    other.release_byte(101).unwrap();
    check(false).unwrap();
    let mut w = World::new(PortChoice::Poll);
    w.disk("file", "f0", json!({ "path": path, "read_only": true })).unwrap();
    check(true).unwrap();
    let e = check(false).unwrap_err();
    assert!(e.kind == Errno::Busy && e.message.contains("is locked"), "{e}");
    drop(w);
    check(false).unwrap();
    World::new(PortChoice::Poll).disk("file", "f0", json!({ "path": path })).unwrap();
}
