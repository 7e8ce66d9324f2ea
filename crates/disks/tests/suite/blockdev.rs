//! The class blockdev, over loop devices, which need root and a kernel that has them.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use bio::{Errno, Op};
use disks::DISK_CLASS;
use geom::Access;
use reactor::PortChoice;
use rig::loop_device::LoopDevice;
use serde_json::json;

use crate::host::run;
use crate::place::examined;
use crate::world::{Folder, World, boundaries, exercise};

struct Loop {
    device: String,
    image: String,
    _attached: LoopDevice,
}

impl Loop {
    fn new(folder: &Folder, size: u64, sector: u32, more: &[&str]) -> Option<Loop> {
        let image = folder.path(&format!("loop{sector}.img"));
        std::fs::File::create(&image).unwrap().set_len(size).unwrap();
        let sector = sector.to_string();
        let options = [&["--sector-size", &sector], more].concat();
        let attached = LoopDevice::over(image.as_ref(), &options)?;
        Some(Loop { device: attached.0.clone(), image, _attached: attached })
    }

    fn allocated(&self) -> u64 {
        std::fs::metadata(&self.image).unwrap().blocks() * 512
    }
}

#[test]
fn loop_device_and_the_whole_file_behind_it_are_one_medium() {
    let folder = Folder::new();
    let of = |path: &str| disks::Medium::of(path.as_ref()).unwrap();
    let Some(whole) = Loop::new(&folder, 3 << 20, 512, &[]) else { return };
    let (device, file) = (of(&whole.device), of(&whole.image));
    assert!(device.is_same(&file) && file.is_same(&device) && device.is_same(&device));
    // A second path to the file, not a second name of the device.
    let disks::Medium::Loop(minor, inode) = device else { panic!("{device:?}") };
    assert!(!device.is_same(&disks::Medium::Loop(minor + 1, inode)));
    let Some(part) = Loop::new(&folder, 3 << 20, 4096, &["--offset", "1048576"]) else { return };
    assert!(!of(&part.device).is_same(&of(&part.image)));
}

#[test]
fn block_devices_agree_with_an_array_of_bytes() {
    let folder = Folder::new();
    for (seed, port, sector, direct) in [
        (1, PortChoice::Uring, 512, "auto"),
        (2, PortChoice::Poll, 4096, "yes"),
        (3, PortChoice::Uring, 4096, "no"),
    ] {
        let Some(disk) = Loop::new(&folder, 3 << 20, sector, &[]) else { return };
        let mut w = World::new(port);
        w.disk("blockdev", "b0", json!({ "path": disk.device, "direct": direct })).unwrap();
        let p = w.control.topology.find("b0").unwrap();
        let limits = w.control.topology.limits(p).unwrap();
        assert_eq!((limits.media_bytes, limits.sector_bytes), (3 << 20, sector));
        let mode = if direct == "no" { "buffered (as configured)" } else { "direct" };
        assert_eq!(w.line_of("b0", "mode"), mode);
        assert!(w.line_of("b0", "descr").contains(&disk.image), "{}", w.line_of("b0", "descr"));
        exercise(&mut w, "b0", seed, 200);
        boundaries(&mut w, "b0");
    }
}

#[test]
fn delete_reaches_the_medium_and_reads_as_zeroes() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 4 << 20, 512, &[]) else { return };
    let mut w = World::new(PortChoice::Auto);
    let p = w.disk("blockdev", "b0", json!({ "path": disk.device })).unwrap();
    let can = w.control.topology.attr(p, "GEOM::candelete");
    assert_eq!(can, Some(bio::Attr::Int(1)));
    let zero = w.control.topology.attr(p, "GEOM::deletereadszero");
    assert_eq!(zero, Some(bio::Attr::Int(1)));
    let edge = w.open("b0");
    for i in 0..4u64 {
        w.write(edge, i << 20, &vec![5; 1 << 20]).unwrap();
    }
    w.plain(edge, Op::Flush, 0, 0).unwrap();
    assert!(disk.allocated() >= 4 << 20);
    w.plain(edge, Op::Delete, 1 << 20, 2 << 20).unwrap();
    assert!(disk.allocated() < 3 << 20, "{} bytes", disk.allocated());
    assert_eq!(w.read(edge, 1 << 20, 512), Ok(vec![0; 512]));
    assert_eq!(w.read(edge, 3 << 20, 512), Ok(vec![5; 512]));
}

#[test]
fn discard_reaches_the_medium_without_promising_zeroes() {
    let folder = Folder::new();
    for port in [PortChoice::Uring, PortChoice::Poll] {
        let Some(disk) = Loop::new(&folder, 4 << 20, 512, &[]) else { return };
        let mut w = World::new(port);
        let params = json!({ "path": disk.device, "delete": "discard" });
        let p = w.disk("blockdev", "b0", params).unwrap();
        assert_eq!(w.line_of("b0", "deletes"), "by discard (as configured)");
        let attribute = |w: &World, name| w.control.topology.attr(p, name);
        assert_eq!(attribute(&w, "GEOM::candelete"), Some(bio::Attr::Int(1)));
        assert_eq!(attribute(&w, "GEOM::deletereadszero"), Some(bio::Attr::Int(0)));
        let edge = w.open("b0");
        for i in 0..4u64 {
            w.write(edge, i << 20, &vec![5; 1 << 20]).unwrap();
        }
        w.plain(edge, Op::Flush, 0, 0).unwrap();
        assert!(disk.allocated() >= 4 << 20);
        w.plain(edge, Op::Delete, 1 << 20, 2 << 20).unwrap();
        assert!(disk.allocated() < 3 << 20, "{port:?}: {} bytes", disk.allocated());
        for kept in [0, (1 << 20) - 512, 3 << 20] {
            assert_eq!(w.read(edge, kept, 512), Ok(vec![5; 512]), "{port:?} at {kept}");
        }
    }
}

#[test]
fn device_with_delete_disabled_refuses_deletes() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 1 << 20, 512, &[]) else { return };
    let mut w = World::new(PortChoice::Auto);
    let p = w.disk("blockdev", "b0", json!({ "path": disk.device, "delete": "no" })).unwrap();
    let can = w.control.topology.attr(p, "GEOM::candelete");
    assert_eq!(can, Some(bio::Attr::Int(0)));
    let edge = w.open("b0");
    w.write(edge, 0, &[5; 512]).unwrap();
    assert_eq!(w.plain(edge, Op::Delete, 0, 512), Err(Errno::NotSup));
    assert_eq!(w.read(edge, 0, 512), Ok(vec![5; 512]));
}

#[test]
fn mounted_device_is_refused_unless_forced() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 16 << 20, 512, &[]) else { return };
    let mut w = World::new(PortChoice::Poll);
    let made = Command::new("mkfs.ext4").args(["-q", &disk.device]).status();
    assert!(made.is_ok_and(|s| s.success()), "mkfs.ext4 (e2fsprogs) is needed");
    let at = folder.path("mnt");
    std::fs::create_dir(&at).unwrap();
    let mounted = Command::new("mount").args([&disk.device, &at]).status();
    assert!(mounted.is_ok_and(|s| s.success()));
    let refused = w.disk("blockdev", "b0", json!({ "path": disk.device }));
    let forced = w.disk("blockdev", "b1", json!({ "path": disk.device, "force": true }));
    let opened = w.user("b1", Access::READ);
    let magic = opened.and_then(|(_, edge)| w.read(edge, 1024, 512));
    assert!(Command::new("umount").arg(&at).status().unwrap().success());
    let e = refused.unwrap_err();
    assert!(e.kind == Errno::Busy && e.message.contains(&format!("mounted at {at}")), "{e}");
    forced.unwrap();
    assert_eq!(magic.unwrap()[56..58], [0x53, 0xef], "the superblock's magic");
}

#[test]
fn read_only_devices_refuse_writers_and_wrong_paths_are_refused() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 1 << 20, 512, &["--read-only"]) else { return };
    let mut w = World::new(PortChoice::Poll);
    w.disk("blockdev", "b0", json!({ "path": disk.device })).unwrap();
    assert_eq!(w.user("b0", Access::WRITE).map(|_| ()), Err(Errno::RoFs));
    let (_, edge) = w.user("b0", Access::READ).unwrap();
    assert_eq!(w.read(edge, 0, 512), Ok(vec![0; 512]));
    let e = w.disk("blockdev", "b1", json!({ "path": disk.image })).unwrap_err();
    assert!(e.kind == Errno::Inval && e.message.contains("use kind file"), "{e}");
    let e = w.disk("file", "b1", json!({ "path": disk.device })).unwrap_err();
    assert!(e.kind == Errno::Inval && e.message.contains("use kind blockdev"), "{e}");
    let e = w.disk("blockdev", "b1", json!({ "path": "/dev/no-such" })).unwrap_err();
    assert!(e.kind == Errno::NoEnt && e.message.contains("lsblk"), "{e}");
}

#[test]
fn resize_reports_a_device_that_grew() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 1 << 20, 512, &[]) else { return };
    let mut w = World::new(PortChoice::Poll);
    w.disk("blockdev", "b0", json!({ "path": disk.device })).unwrap();
    std::fs::OpenOptions::new().write(true).open(&disk.image).unwrap().set_len(2 << 20).unwrap();
    run(&["losetup", "--set-capacity", &disk.device]).unwrap();
    let answer = w.verb("resize", "b0", json!({})).unwrap();
    let words = "b0 has 2097152 bytes now; it had 1048576";
    assert_eq!(answer, json!({ "was": 1 << 20, "size": 2 << 20, "message": words }));
}

#[test]
fn file_with_sectors_too_small_for_direct_io_is_reported() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 32 << 20, 4096, &[]) else { return };
    let made = Command::new("mkfs.ext4").args(["-q", &disk.device]).status();
    assert!(made.is_ok_and(|s| s.success()), "mkfs.ext4 (e2fsprogs) is needed");
    let at = folder.path("mnt4096");
    std::fs::create_dir(&at).unwrap();
    assert!(Command::new("mount").args([&disk.device, &at]).status().unwrap().success());
    let mut w = World::new(PortChoice::Poll);
    let path = format!("{at}/a.img");
    let mut params = json!({ "path": path, "create": true, "size": 1 << 20 });
    let auto = w.disk("file", "f0", params.clone()).map(|_| w.line_of("f0", "mode"));
    drop(w);
    let mut w = World::new(PortChoice::Poll);
    params["direct"] = json!("yes");
    let forced = w.disk("file", "f0", params.clone()).map(|_| ());
    params["sector_size"] = json!(4096);
    let large = w.disk("file", "f0", params).map(|_| w.line_of("f0", "mode"));
    drop(w);
    assert!(Command::new("umount").arg(&at).status().unwrap().success());
    let why = "O_DIRECT needs multiples of 4096 bytes here, and sector_size is 512";
    assert_eq!(auto.unwrap(), format!("buffered ({why})"));
    let e = forced.unwrap_err();
    assert!(e.kind == Errno::NotSup && e.message.contains(why), "{e}");
    assert_eq!(large.unwrap(), "direct");
}

#[test]
fn device_whose_node_refers_to_another_is_degraded_until_restored() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 1 << 20, 512, &[]) else { return };
    let Some(other) = Loop::new(&folder, 1 << 20, 4096, &[]) else { return };
    let node = folder.path("node");
    let name = |device: &str| {
        let _ = std::fs::remove_file(&node);
        std::os::unix::fs::symlink(device, &node).unwrap();
    };
    name(&disk.device);
    let mut w = World::new(PortChoice::Poll);
    w.disk("blockdev", "b0", json!({ "path": node })).unwrap();
    let mut whys =
        || -> Vec<String> { examined(&mut w, "b0").into_iter().map(|t| t.why).collect() };
    assert!(whys().is_empty());
    name(&other.device);
    assert!(whys()[0].starts_with(&format!("{node} names another device now")), "{:?}", whys());
    name(&folder.path("loop512.img"));
    assert!(whys()[0].contains("is not a block device any more"), "{:?}", whys());
    std::fs::remove_file(&node).unwrap();
    assert!(whys()[0].contains("was unplugged or its node was removed"), "{:?}", whys());
    name(&disk.device);
    assert!(whys().is_empty());
}

#[test]
fn device_can_be_opened_again_while_its_path_is_examined() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 1 << 20, 512, &[]) else { return };
    let mut w = World::new(PortChoice::Poll);
    let make = |w: &mut World| w.disk("blockdev", "b0", json!({ "path": disk.device }));
    make(&mut w).unwrap();
    let state = disks::path_state(&mut w.control.topology, "b0").unwrap();
    // The thread that examines a path has such a reference meanwhile.
    let examined = state.upgrade().unwrap();
    let geom = w.control.topology.find_geom(DISK_CLASS, "b0").unwrap();
    let removed = w.control.call(|t| {
        t.wither_geom(geom, Errno::NxIo);
        Ok(())
    });
    removed.unwrap();
    w.until("the device is opened again", |w| make(w).is_ok());
    assert!(!examined.examine(), "nothing has changed");
}

#[test]
fn device_that_qemu_has_open_is_refused_unless_forced() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 1 << 20, 512, &[]) else { return };
    let other = reactor::File::open(&disk.device, reactor::OpenHow::default()).unwrap();
    // The byte of QEMU's permission to write.
    other.share_byte(101).unwrap();
    let mut w = World::new(PortChoice::Poll);
    let e = w.disk("blockdev", "b0", json!({ "path": disk.device })).unwrap_err();
    assert!(e.kind == Errno::Busy && e.message.contains(&disk.device), "{e}");
    assert!(e.message.contains("QEMU") && e.message.contains("`force`"), "{e}");
    w.disk("blockdev", "b0", json!({ "path": disk.device, "force": true })).unwrap();
}
