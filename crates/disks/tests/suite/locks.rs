//! Locks of image files, against QEMU's tools and by hand.

use bio::Errno;
use reactor::{File, OpenHow, PortChoice};
use serde_json::json;

use crate::world::{Folder, World};

fn qemu(tool: &str, words: &[&str]) -> (bool, String) {
    let done = std::process::Command::new(tool).args(words).output().expect("qemu-utils");
    let text = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn image_that_is_open_here_is_refused_by_qemu() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    let mut w = World::new(PortChoice::Poll);
    let write = ["-f", "raw", "-c", "write -P 7 0 4k", &path];
    let read = ["-r", "-f", "raw", "-c", "read 0 4k", &path];
    for read_only in [false, true] {
        let params = json!({
            "path": path, "create": !read_only, "size": 1 << 20, "read_only": read_only,
        });
        let made = w.disk("file", "f0", params);
        made.unwrap();
        let (done, text) = qemu("qemu-io", &write);
        assert!(!done && text.contains(r#"Failed to get "write" lock"#), "{text}");
        let (done, text) = qemu("qemu-img", &["resize", "-f", "raw", &path, "2M"]);
        assert!(!done && text.contains("lock"), "{text}");
        assert!(qemu("qemu-io", &read).0, "readers do no harm");
        let geom = w.control.topology.find_geom("disk", "f0").unwrap();
        w.control
            .call(|t| {
                t.wither_geom(geom, Errno::NxIo);
                Ok(())
            })
            .unwrap();
        w.until("the end", |w| w.control.topology.find_geom("disk", "f0").is_none());
    }
    assert!(std::fs::read(&path).unwrap().iter().all(|b| *b == 0));
    let (done, text) = qemu("qemu-io", &write);
    assert!(done, "{text}");
}

/// A process that holds a file open as qemu-io does, until it is dropped.
struct Holder(std::process::Child);

impl Holder {
    fn new(words: &[&str]) -> Holder {
        use std::io::{Read, Write};
        use std::process::{Command, Stdio};
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("qemu-utils");
        // An answer arrives when the file is open.
        child.stdin.as_mut().unwrap().write_all(b"length\n").unwrap();
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(b"MiB") {
            let n = child.stdout.as_mut().unwrap().read(&mut byte).unwrap();
            assert!(n == 1, "{}", String::from_utf8_lossy(&seen));
            seen.extend(byte);
        }
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn image_that_qemu_has_open_for_writing_is_refused() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let mut w = World::new(PortChoice::Poll);
    let writer = Holder::new(&[&path]);
    for read_only in [false, true] {
        let e = w.disk("file", "f0", json!({ "path": path, "read_only": read_only })).unwrap_err();
        assert!(e.kind == Errno::Busy && e.message.contains(&path), "{e}");
        assert!(e.message.contains("QEMU"), "{e}");
    }
    drop(writer);
    let reader = Holder::new(&["-r", &path]);
    w.disk("file", "f0", json!({ "path": path, "read_only": true })).unwrap();
    drop(reader);
}

#[test]
fn file_locks_match_the_permission_bytes_of_qemu() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let other = File::open(&path, OpenHow::default()).unwrap();
    let held = || -> Vec<u64> {
        let bytes = (100..104).chain(200..204);
        bytes.filter(|at| other.is_byte_held(*at).unwrap()).collect()
    };
    for (read_only, all) in [(false, vec![100, 101, 103, 201, 203]), (true, vec![100, 201, 203])] {
        let mut w = World::new(PortChoice::Poll);
        w.disk("file", "f0", json!({ "path": path, "read_only": read_only })).unwrap();
        assert_eq!(held(), all);
        drop(w);
        assert!(held().is_empty(), "they end with the disk");
    }
    // What another may hold beside a disk, and what not.
    let opens = |at: u64, read_only: bool| {
        other.share_byte(at).unwrap();
        let mut w = World::new(PortChoice::Poll);
        let done = w.disk("file", "f0", json!({ "path": path, "read_only": read_only }));
        other.release_byte(at).unwrap();
        done.is_ok()
    };
    let open: Vec<(bool, bool)> =
        [100, 101, 103, 200, 201, 203].map(|at| (opens(at, false), opens(at, true))).to_vec();
    let both = (true, true);
    let none = (false, false);
    assert_eq!(open, [both, none, none, none, (false, true), (false, true)]);
}
