//! file: image files, direct and buffered, on both ports.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use bio::{Errno, Flags, Op, Segs};
use geom::{Access, Class};
use reactor::PortChoice;
use serde_json::json;

use crate::world::{Ended, Folder, World, boundaries, exercise, range};

fn allocated(path: &str) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// F1 of backing.rs.
#[test]
fn image_files_agree_with_an_array_of_bytes() {
    let folder = Folder::new();
    let mut seed = 0;
    for port in [PortChoice::Uring, PortChoice::Poll] {
        for direct in ["yes", "no"] {
            for sector in [512, 4096] {
                seed += 1;
                let path = folder.path(&format!("{seed}.img"));
                let mut w = World::new(port);
                let params = json!({
                    "path": path, "create": true, "size": 3 << 20,
                    "sector_size": sector, "direct": direct,
                });
                w.disk("file", "f0", params).unwrap();
                let mode = w.line_of("f0", "mode");
                let expected = if direct == "yes" { "direct" } else { "buffered (as configured)" };
                assert_eq!(mode, expected);
                let model = exercise(&mut w, "f0", seed, 250);
                boundaries(&mut w, "f0");
                assert!(std::fs::read(&path).unwrap() == model, "the file itself");
            }
        }
    }
}

#[test]
fn delete_punches_holes_and_zeroing_obeys_no_hole() {
    let folder = Folder::new();
    for (port, direct) in [(PortChoice::Uring, "auto"), (PortChoice::Poll, "no")] {
        let path = folder.path(direct);
        let mut w = World::new(port);
        let params = json!({ "path": path, "create": true, "size": 8 << 20, "direct": direct });
        w.disk("file", "f0", params).unwrap();
        assert_eq!(allocated(&path), 0, "made sparse");
        let edge = w.open("f0");
        for i in 0..8u64 {
            w.write(edge, i << 20, &vec![7; 1 << 20]).unwrap();
        }
        w.plain(edge, Op::Flush, 0, 0).unwrap();
        assert!(allocated(&path) >= 8 << 20);
        w.plain(edge, Op::Delete, 1 << 20, 4 << 20).unwrap();
        assert!((4 << 20..5 << 20).contains(&allocated(&path)), "{}", allocated(&path));
        w.plain(edge, Op::WriteZeroes, 0, 1 << 20).unwrap();
        assert!(allocated(&path) < 4 << 20, "zeroes may be holes");
        let mut runs = Vec::new();
        let mut at = 0;
        while at < 8 << 20 {
            let ended = w.io(edge, move |bio| {
                (bio.op, bio.offset, bio.length) = (Op::Map, at, (8 << 20) - at);
            });
            assert_eq!(ended.status, Ok(()));
            assert!(ended.completed > 0);
            runs.push((at >> 20, ended.value));
            at += ended.completed;
        }
        let is = |state| Some(bio::Attr::Int(state));
        assert_eq!(runs, [(0, is(bio::HOLE)), (5, is(bio::MAPPED))]);
        let (full, fua) = (allocated(&path), Flags::NO_HOLE | Flags::FUA);
        w.flagged(edge, Op::WriteZeroes, 0, 4 << 20, fua).unwrap();
        assert!(allocated(&path) >= full + (4 << 20), "these must not");
        assert_eq!(w.read(edge, 0, 1 << 20), Ok(vec![0; 1 << 20]));
        assert_eq!(w.read(edge, 5 << 20, 512), Ok(vec![7; 512]));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
    }
}

#[test]
fn unusable_files_are_refused_with_a_reason() {
    let folder = Folder::new();
    let mut w = World::new(PortChoice::Poll);
    let path = folder.path("a.img");
    let mut refused = |params: serde_json::Value, kind: Errno, words: &str| {
        let e = w.disk("file", "f0", params).unwrap_err();
        assert!(e.kind == kind && e.message.contains(words), "{e}");
        assert!(w.control.topology.find("f0").is_none());
    };
    refused(json!({ "path": path }), Errno::NoEnt, "set create and size");
    refused(json!({ "path": path, "create": true }), Errno::NoEnt, "set size to create it");
    refused(json!({ "path": folder.path("") }), Errno::Inval, "is a directory");
    let nowhere = folder.path("no/such/a.img");
    refused(json!({ "path": nowhere, "create": true, "size": 4096 }), Errno::NoEnt, &nowhere);
    std::fs::write(&path, vec![1; 100]).unwrap();
    refused(json!({ "path": path }), Errno::Inval, "less than a sector");
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    w.disk("file", "f0", json!({ "path": path, "size": 16384 })).unwrap();
    let e = w.disk("file", "f1", json!({ "path": path })).unwrap_err();
    assert!(e.kind == Errno::Busy && e.message.contains("is locked"), "{e}");
    let (_, edge) = w.user("f0", Access::READ).unwrap();
    let found = w.read(edge, 0, 16384).unwrap();
    assert!(found[..10_000].iter().all(|b| *b == 1) && found[10_000..].iter().all(|b| *b == 0));
}

#[test]
fn file_longer_than_its_configured_size_is_served_whole() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    std::fs::write(&path, vec![7; 10_240]).unwrap();
    let mut w = World::new(PortChoice::Poll);
    w.disk("file", "f0", json!({ "path": path, "size": 8192 })).unwrap();
    let (_, edge) = w.user("f0", Access::READ).unwrap();
    assert_eq!(w.read(edge, 8192, 2048), Ok(vec![7; 2048]), "it may have grown while it was used");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 10_240, "nothing was changed");
}

#[test]
fn read_only_file_serves_several_disks_and_refuses_writers() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    std::fs::write(&path, vec![3; 8192]).unwrap();
    let mut w = World::new(PortChoice::Poll);
    for name in ["f0", "f1"] {
        w.disk("file", name, json!({ "path": path, "read_only": true })).unwrap();
        assert_eq!(w.user(name, Access::WRITE).map(|_| ()), Err(Errno::RoFs));
        let (_, edge) = w.user(name, Access::READ).unwrap();
        assert_eq!(w.read(edge, 0, 512), Ok(vec![3; 512]));
        assert_eq!(w.line_of(name, "read-only"), "yes");
    }
}

#[test]
fn grown_file_is_resized_and_a_truncated_one_is_lost_once() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    let mut w = World::new(PortChoice::Uring);
    w.disk("file", "f0", json!({ "path": path, "create": true, "size": 8192 })).unwrap();
    let edge = w.open("f0");
    let grow = |size: u64| {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(size).unwrap();
    };
    grow(16384 + 100);
    assert_eq!(w.read(edge, 8192, 512), Ok(vec![]), "not seen by itself");
    let disks = w.disks.clone();
    let answer = disks.verb(&mut w.control, "resize", "f0", &json!({})).unwrap();
    let words = "f0 has 16384 bytes now; it had 8192";
    assert_eq!(answer, json!({ "was": 8192, "size": 16384, "message": words }));
    assert_eq!(w.read(edge, 8192, 512), Ok(vec![0; 512]));
    assert!(disks.verb(&mut w.control, "spin", "f0", &json!({})).is_err());
    let answer = disks.verb(&mut w.control, "resize", "f0", &json!({ "size": 20480 })).unwrap();
    let words = "f0 has 20480 bytes now; it had 16384";
    assert_eq!(answer, json!({ "was": 16384, "size": 20480, "message": words }));
    assert_eq!(w.read(edge, 19968, 512), Ok(vec![0; 512]));
    for wrong in [json!({ "size": 8192 }), json!({ "size": 20481 }), json!({ "sise": 40960 })] {
        assert!(disks.verb(&mut w.control, "resize", "f0", &wrong).is_err(), "{wrong}");
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 20480, "nothing was cut");
    grow(4096);
    for _ in 0..3 {
        assert_eq!(w.read(edge, 12288, 512), Err(Errno::NxIo));
    }
    w.until("the loss", |w| w.control.topology.find("f0").is_none());
    assert_eq!(w.read(edge, 0, 512), Err(Errno::NxIo), "gone for good");
}

#[test]
fn resize_neither_shortens_a_grown_file_nor_extends_a_truncated_one() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    let mut w = World::new(PortChoice::Uring);
    w.disk("file", "f0", json!({ "path": path, "create": true, "size": 8192 })).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let length = || file.metadata().unwrap().len();
    let disks = w.disks.clone();
    let params = json!({ "size": 16384 });
    file.set_len(4096).unwrap();
    let refused = disks.verb(&mut w.control, "resize", "f0", &params).unwrap_err();
    assert!(refused.message.contains("has cut it (to 4096 bytes; its disk has 8192)"), "{refused}");
    assert_eq!(length(), 4096, "what it lost does not read as zeroes");
    file.set_len(32768).unwrap();
    let answer = disks.verb(&mut w.control, "resize", "f0", &params).unwrap();
    assert_eq!((&answer["size"], length()), (&json!(32768), 32768), "its end may be in use");
}

#[test]
fn f4_writes_do_not_extend_a_truncated_file() {
    let folder = Folder::new();
    for (port, direct) in [(PortChoice::Uring, "auto"), (PortChoice::Poll, "no")] {
        let path = folder.path(direct);
        let params = json!({ "path": path, "create": true, "size": 65536, "direct": direct });
        type Act = fn(&mut World, geom::Edge) -> Result<(), Errno>;
        let acts: [Act; 3] = [
            |w, edge| w.write(edge, 32768, &[1; 4096]),
            |w, edge| w.plain(edge, Op::WriteZeroes, 4096, 61440),
            |w, edge| w.flagged(edge, Op::WriteZeroes, 61440, 4096, Flags::NO_HOLE | Flags::FUA),
        ];
        for act in acts {
            let mut w = World::new(port);
            w.disk("file", "f0", params.clone()).unwrap();
            let edge = w.open("f0");
            w.write(edge, 61440, &[7; 4096]).unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(8192).unwrap();
            // Longer than a core caches the size of the file.
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(3) {
                assert_eq!(w.write(edge, 4096, &[3; 4096]), Ok(()), "what is left of it");
            }
            assert_eq!(act(&mut w, edge), Err(Errno::NxIo));
            assert_eq!(file.metadata().unwrap().len(), 8192, "as it was cut");
            w.until("the loss", |w| w.control.topology.find("f0").is_none());
            assert_eq!(w.write(edge, 0, &[1; 4096]), Err(Errno::NxIo));
        }
    }
}

#[test]
fn identity_is_stable_and_reported_as_an_attribute() {
    let folder = Folder::new();
    let path = folder.path("a.img");
    let ident = |serial: Option<&str>| {
        let mut w = World::new(PortChoice::Poll);
        let mut params = json!({ "path": path, "create": true, "size": 8192 });
        if let Some(s) = serial {
            params["serial"] = json!(s);
        }
        let p = w.disk("file", "f0", params).unwrap();
        let t = &w.control.topology;
        assert_eq!(t.attr(p, "GEOM::candelete"), Some(bio::Attr::Int(1)));
        assert_eq!(t.attr(p, "GEOM::deletereadszero"), Some(bio::Attr::Int(1)));
        assert_eq!(t.attr(p, "GEOM::physpath"), Some(bio::Attr::Text(path.clone())));
        t.attr(p, "GEOM::ident")
    };
    let own = ident(None);
    assert!(own.is_some() && own == ident(None));
    assert_eq!(ident(Some("S/N 1\n")), Some(bio::Attr::Text("S/N 1x0a".into())));
}

/// F2 of backing.rs.
#[test]
fn zeroes_are_written_if_the_kernel_cannot_zero_a_range() {
    // tmpfs punches holes and has no other zeroing command.
    let path = format!("/dev/shm/ashlar-disks-{}.img", std::process::id());
    for port in [PortChoice::Uring, PortChoice::Poll] {
        let mut w = World::new(port);
        let params = json!({ "path": path, "create": true, "size": 5 << 20 });
        let made = w.disk("file", "f0", params);
        let wrote = made.map(|_| {
            let edge = w.open("f0");
            let filled: Vec<_> =
                (0..5u64).map(|i| w.write(edge, i << 20, &vec![9; 1 << 20])).collect();
            let hole = w.plain(edge, Op::Delete, 0, 5 << 20);
            let holed = allocated(&path);
            let written = w.write(edge, 0, &[9; 1024]);
            let flags = Flags::NO_HOLE | Flags::FUA;
            let zeroed = w.flagged(edge, Op::WriteZeroes, 512, (3 << 20) + 512, flags);
            let again = w.flagged(edge, Op::WriteZeroes, 512, 512, flags);
            let found = w.read(edge, 0, 1 << 20);
            (filled, hole, holed, written, zeroed, again, found, allocated(&path))
        });
        std::fs::remove_file(&path).unwrap();
        let (filled, hole, holed, written, zeroed, again, found, after) = wrote.unwrap();
        assert!(filled.iter().all(|f| f.is_ok()));
        assert_eq!((hole, holed), (Ok(()), 0));
        assert_eq!((written, zeroed, again), (Ok(()), Ok(()), Ok(())));
        assert!((3 << 20..4 << 20).contains(&after), "{after} bytes");
        let found = found.unwrap();
        assert!(found[..512].iter().all(|b| *b == 9) && found[512..].iter().all(|b| *b == 0));
    }
}

#[test]
fn short_requests_to_a_file_in_memory_end_before_the_next_turn() {
    let path = format!("/dev/shm/ashlar-disks-short-{}.img", std::process::id());
    for port in [PortChoice::Uring, PortChoice::Poll] {
        let mut w = World::new(port);
        let params = json!({ "path": path, "create": true, "size": 1 << 20, "direct": "no" });
        let made = w.disk("file", "f0", params);
        std::fs::remove_file(&path).unwrap();
        made.unwrap();
        let (edge, ended) = (w.open("f0"), Ended::default());
        let data = |bytes: usize, w: &World| {
            let data = Segs::alloc(w.core.pool(), bytes).unwrap();
            data.fill(0, bytes, 7);
            data
        };
        let requests = [
            (Op::Write, 4096, Flags::FUA),
            (Op::Read, 4096, Flags::NONE),
            (Op::Read, 65_536, Flags::NONE),
        ];
        for (n, (op, bytes, flags)) in requests.into_iter().enumerate() {
            let data = data(bytes, &w);
            w.start(edge, n, &ended, |bio| {
                range(bio, op, 0, bytes as u64, data);
                bio.flags = flags;
            });
        }
        assert_eq!(ended.list(), [(0, Ok(())), (1, Ok(()))], "a longer one waits for a turn");
        w.until("the longer one", |_| ended.list().len() == 3);
        assert_eq!(w.read(edge, 0, 4096), Ok(vec![7; 4096]));
    }
}
