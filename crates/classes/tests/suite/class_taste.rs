//! Tasting of tables and labels: they are found, follow changes below, and refusals have a reason.

use bio::Errno;
use geom::Access;
use std::path::Path;

use crate::support::{Scratch, Seed, run_on};
use crate::world::World;

const SIZES: [u32; 2] = [512, 4096];
const MIB: usize = 1 << 20;
const SFDISK: [&str; 5] = ["-q", "--no-reread", "--no-tell-kernel", "--wipe=never", "@"];

fn image(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("image")
}

/// A GPT with an ext4 file system called `root` in its second partition, made by others.
fn real_disk(scratch: &Scratch, sector: u32) -> Vec<u8> {
    let path = scratch.image("disk", 32 * MIB as u64);
    let script = "label: gpt\n\
        size=2MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=\"EFI system\"\n\
        size=16MiB, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=\"wurzel\"\n\
        size=8MiB, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F\n";
    run_on(&path, sector, "sfdisk", &SFDISK, script);
    let volume = scratch.image("volume", 16 * MIB as u64);
    run_on(&volume, sector, "mkfs.ext4", &["-q", "-F", "-L", "root", "@"], "");
    let mut bytes = image(&path);
    bytes[3 * MIB..19 * MIB].copy_from_slice(&image(&volume));
    bytes
}

#[test]
fn a_real_disk_is_found_by_tasting() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-taste-{size}"));
        let (world, _) = World::with("ada0", real_disk(&scratch, size), size);
        for name in ["ada0p1", "ada0p2", "ada0p3", "gpt/EFI%20system", "gpt/wurzel"] {
            assert!(world.has(name), "{name}: {:?}", world.names());
        }
        assert!(world.has("ext2fs/root"), "{:?}", world.names());
        assert_eq!(world.names().iter().filter(|n| n.starts_with("gptid/")).count(), 3);
        assert_eq!(world.names().iter().filter(|n| n.starts_with("ext2fsid/")).count(), 1);
        assert_eq!((world.size("ada0p2"), world.size("ext2fs/root")), (16 << 20, 16 << 20));
        let text = |attr| world.text("ada0p2", attr);
        assert_eq!(text("PART::scheme").as_deref(), Some("GPT"));
        assert_eq!(text("PART::type").as_deref(), Some("linux-data"));
        assert_eq!(text("PART::label").as_deref(), Some("wurzel"));
        assert_eq!(text("PART::depth").as_deref(), Some("0"));
        assert_eq!(text("PART::isleaf").as_deref(), Some("0"));
        assert_eq!(text("GEOM::physpath").as_deref(), Some("bay/3/p2"));
        assert_eq!(text("GEOM::ident").as_deref(), Some("serial-ada0"));
        for on in ["ada0p2", "gpt/wurzel", "ext2fs/root"] {
            assert_eq!(world.text(on, "GEOM::candelete").as_deref(), Some("0"), "{on}");
            assert_eq!(world.text(on, "GEOM::deletereadszero").as_deref(), Some("1"), "{on}");
        }
        assert_eq!(world.show("part", "ada0", "scheme"), ["GPT"]);
        assert_eq!(world.show("part", "ada0", "state"), ["OK"]);
        assert_eq!(world.show("part", "ada0", "partition").len(), 3);
        world.control.topology.check();
    }
}

#[test]
fn every_class_reports_why_it_claimed_or_refused() {
    let scratch = Scratch::new("class-why");
    let (mut world, _) = World::with("ada0", real_disk(&scratch, 512), 512);
    world.disk("empty", vec![0; MIB], 512);
    assert_eq!(world.taste_outcome("ada0", "part"), "claimed: GPT with 3 partitions");
    assert!(world.taste_outcome("ada0", "label").contains("no ext2"), "every kind says why not");
    let answer = world.taste_outcome("ada0p2", "label");
    assert!(answer.starts_with("claimed: GPT entry: gpt/wurzel"), "{answer}");
    assert!(answer.contains("ext2, ext3, ext4: ext2fs/root"), "{answer}");
    assert!(!world.taste_outcome("ada0p2", "part").is_empty());
    assert!(world.taste_outcome("ext2fs/root", "label").contains("itself a name"));
    assert!(world.taste_outcome("ext2fs/root", "part").contains("leaf"));
    for class in ["part", "label"] {
        assert!(world.taste_outcome("empty", class).contains("no "), "{class}");
    }
    // The same image again: names are taken, partitions are not.
    let copy = real_disk_copy(&scratch);
    world.disk("copy", copy, 512);
    assert!(world.has("copyp2"));
    let answer = world.taste_outcome("copyp2", "label");
    assert!(
        answer.contains("refused") && answer.contains("ext2fs/root exists already"),
        "{answer}"
    );
    assert!(answer.contains("for ada0p2"), "{answer}");
}

fn real_disk_copy(scratch: &Scratch) -> Vec<u8> {
    let mut bytes = image(&scratch.path().join("disk"));
    let volume = image(&scratch.path().join("volume"));
    bytes[3 * MIB..19 * MIB].copy_from_slice(&volume);
    bytes
}

#[test]
fn writes_through_a_partition_reach_the_right_sectors() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-write-{size}"));
        let (mut world, disk) = World::with("ada0", real_disk(&scratch, size), size);
        let before = disk.bytes();
        let part = world.open("ada0p3", Access::WRITE);
        let sector = size as usize;
        world.write(&part, 0, &vec![0xa5; sector]).expect("first sector");
        let last = world.size("ada0p3") - u64::from(size);
        world.write(&part, last, &vec![0x5a; sector]).expect("last sector");
        let beyond = world.write(&part, last + u64::from(size), &vec![1; sector]);
        assert_eq!(beyond, Err(Errno::Io), "beyond the end");
        assert_eq!(world.read(&part, 0, sector), Ok(vec![0xa5; sector]));
        let mut wanted = before;
        let (start, end) = (19 * MIB, 19 * MIB + 8 * MIB);
        wanted[start..start + sector].fill(0xa5);
        wanted[end - sector..end].fill(0x5a);
        assert!(disk.bytes() == wanted, "nothing but those two sectors");
        // 200000 bytes are sent in several pieces, as the disk wants them.
        let long: Vec<u8> = (0..204_800_u32).map(|n| n as u8).collect();
        world.write(&part, 8192, &long).expect("long");
        assert_eq!(world.read(&part, 8192, long.len()), Ok(long));
        world.close(part);
    }
}

#[test]
fn opening_the_disk_for_writing_removes_its_partitions_until_close() {
    let scratch = Scratch::new("class-spoil");
    let (mut world, disk) = World::with("ada0", real_disk(&scratch, 512), 512);
    let all = world.names();
    let writer = world.open("ada0", Access::WRITE);
    assert_eq!(world.names(), ["ada0"]);
    world.write(&writer, 0, &disk.bytes()[..512]).expect("write");
    world.close(writer);
    assert_eq!(world.names(), all, "all comes back");
    // While a partition is open for writing, the disk cannot be opened for writing.
    let part = world.open("ada0p1", Access::WRITE);
    let refused = world.try_open("ada0", Access::WRITE).map(|_| ()).map_err(|e| e.kind);
    assert_eq!(refused, Err(Errno::Perm));
    let other = world.open("ada0p2", Access::WRITE);
    world.close(other);
    world.close(part);
    assert_eq!(world.names(), all);
    // A taste after the close finds the content that a writer of the disk left.
    let writer = world.open("ada0", Access::WRITE);
    let len = disk.bytes().len();
    world.write(&writer, 0, &vec![0; 34 * 512]).expect("wipe");
    world.write(&writer, len as u64 - 33 * 512, &vec![0; 33 * 512]).expect("wipe");
    world.close(writer);
    assert_eq!(world.names(), ["ada0"]);
    assert!(world.taste_outcome("ada0", "part").contains("no "));
}

#[test]
fn labels_are_removed_while_their_provider_is_written_and_return() {
    let scratch = Scratch::new("class-labels");
    let (mut world, _) = World::with("ada0", real_disk(&scratch, 512), 512);
    let all = world.names();
    // The base opened for writing.
    let base = world.open("ada0p2", Access::WRITE);
    assert!(!world.has("ext2fs/root") && !world.has("gpt/wurzel"));
    assert!(world.has("gpt/EFI%20system"), "names of other partitions stay");
    world.close(base);
    assert_eq!(world.names(), all);
    // One name opened for writing: the others of the same base are removed.
    let name = world.open("ext2fs/root", Access::WRITE);
    assert!(world.has("ext2fs/root") && !world.has("gpt/wurzel"));
    let refused = world.try_open("ada0p2", Access::WRITE).map(|_| ()).map_err(|e| e.kind);
    assert_eq!(refused, Err(Errno::Perm));
    // The file system is renamed through its name: 1024 + 120 holds it.
    let mut sector = world.read(&name, 1024, 512).expect("superblock");
    sector[120..128].copy_from_slice(b"stamm\0\0\0");
    world.write(&name, 1024, &sector).expect("superblock");
    world.close(name);
    assert!(world.has("ext2fs/stamm") && !world.has("ext2fs/root"), "{:?}", world.names());
    assert!(world.has("gpt/wurzel"));
    // An open label keeps writers off its provider; a reader keeps no other reader off.
    let name = world.open("ext2fs/stamm", Access::READ);
    let refused = world.try_open("ada0p2", Access::WRITE).map(|_| ()).map_err(|e| e.kind);
    assert_eq!(refused, Err(Errno::Perm));
    let reader = world.open("ada0p2", Access::READ);
    world.close(reader);
    world.close(name);
    let base = world.open("ada0p2", Access::WRITE);
    world.close(base);
    // A label with an attached consumer stays, whichever consumer writes through it.
    let keeper = world.watch("ext2fs/stamm");
    let name = world.open("ext2fs/stamm", Access::WRITE);
    world.close(name);
    assert!(!keeper.orphaned() && world.has("ext2fs/stamm"));
}

#[test]
fn a_lost_disk_removes_all_geoms_above_it() {
    let scratch = Scratch::new("class-orphan");
    let (mut world, _) = World::with("ada0", real_disk(&scratch, 512), 512);
    let part = world.open("ada0p2", Access::WRITE);
    let name = world.open("gpt/EFI%20system", Access::READ);
    world.lose("ada0");
    assert!(world.names().is_empty(), "{:?}", world.names());
    assert!(part.orphaned() && name.orphaned());
    assert_eq!(world.read(&part, 0, 512), Err(Errno::NxIo));
    assert_eq!(world.write(&part, 0, &[0; 512]), Err(Errno::NxIo));
    world.close(part);
    world.close(name);
    assert!(world.control.topology.view(0).is_empty(), "nothing is left");
    // A disk of the same name returns with all it has.
    let again = real_disk_copy(&scratch);
    world.disk("ada0", again, 512);
    assert!(world.has("ada0p2") && world.has("ext2fs/root"));
}

#[test]
fn tables_inside_partitions_are_found() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-cascade-{size}"));
        // An MBR with an extended partition and two logical ones.
        let path = scratch.image("mbr", 64 * MIB as u64);
        let script = "label: dos\nstart=1MiB, size=4MiB, type=83\n\
            start=8MiB, size=48MiB, type=5\n5: size=4MiB, type=83\n6: size=4MiB, type=82\n";
        run_on(&path, size, "sfdisk", &SFDISK, script);
        let (mut world, _) = World::with("ada0", image(&path), size);
        assert!(world.has("ada0s1") && world.has("ada0s2"), "{:?}", world.names());
        let logical: Vec<String> =
            world.names().into_iter().filter(|n| n.starts_with("ada0s2+")).collect();
        assert_eq!(logical.len(), 2, "{:?}", world.names());
        let lines = world.show("part", "ada0s2", "partition");
        assert!(lines[0].contains("alias ada0s5"), "{lines:?}");
        assert!(lines[1].contains("alias ada0s6"), "{lines:?}");
        assert_eq!(world.size(&logical[0]), 4 << 20);
        assert_eq!(world.text(&logical[0], "PART::depth").as_deref(), Some("1"));
        assert_eq!(world.text(&logical[0], "PART::label").as_deref(), Some(""));
        // A GPT with a whole disk's image in its first partition.
        let inner = scratch.image("inner", 16 * MIB as u64);
        run_on(&inner, size, "sfdisk", &SFDISK, "label: gpt\nsize=4MiB, name=deep\nsize=4MiB\n");
        let outer = scratch.image("outer", 32 * MIB as u64);
        run_on(&outer, size, "sfdisk", &SFDISK, "label: gpt\nstart=1MiB, size=16MiB, name=vm\n");
        let mut bytes = image(&outer);
        bytes[MIB..17 * MIB].copy_from_slice(&image(&inner));
        let disk = world.disk("da1", bytes, size);
        assert!(world.has("da1p1") && world.has("da1p1p1") && world.has("da1p1p2"));
        assert!(world.has("gpt/vm") && world.has("gpt/deep"));
        assert!(!world.names().iter().any(|n| n.starts_with("gpt/vmp")), "{:?}", world.names());
        assert_eq!(world.text("da1p1p1", "GEOM::physpath").as_deref(), Some("bay/3/p1/p1"));
        let deep = world.open("da1p1p1", Access::WRITE);
        world.write(&deep, 0, &vec![0x77; size as usize]).expect("write");
        assert_eq!(disk.bytes()[2 * MIB..2 * MIB + 4], [0x77; 4]);
        for name in ["da1", "da1p1"] {
            let refused = world.try_open(name, Access::WRITE).map(|_| ()).map_err(|e| e.kind);
            assert_eq!(refused, Err(Errno::Perm), "{name}");
        }
        world.close(deep);
    }
}

#[test]
fn damaged_tables_are_found_and_reported_as_corrupt() {
    let scratch = Scratch::new("class-damage");
    let bytes = real_disk(&scratch, 512);
    let mut one = bytes.clone();
    one[512..1024].fill(0);
    let (world, _) = World::with("ada0", one, 512);
    assert!(world.has("ada0p2"));
    assert_eq!(world.show("part", "ada0", "state"), ["CORRUPT"]);
    let answer = world.taste_outcome("ada0", "part");
    assert!(answer.contains("primary header") && answer.contains("part recover ada0"), "{answer}");
    let mut both = bytes.clone();
    both[512..1024].fill(0);
    let len = both.len();
    both[len - 512..].fill(0);
    let (world, _) = World::with("ada0", both, 512);
    assert_eq!(world.names(), ["ada0"]);
}

#[test]
fn random_damage_never_panics() {
    let scratch = Scratch::new("class-random");
    let bytes = real_disk(&scratch, 512);
    let path = scratch.image("mbr", 8 * MIB as u64);
    let script = "label: dos\nsize=1MiB, type=83\nsize=6MiB, type=5\n5: size=1MiB, type=83\n";
    run_on(&path, 512, "sfdisk", &SFDISK, script);
    let mbr = image(&path);
    let mut chance = Seed(7);
    let mut world = World::new();
    for round in 0..60 {
        let mut image = if round % 2 == 0 { bytes.clone() } else { mbr.clone() };
        let len = image.len() as u64;
        for _ in 0..1 + chance.below(40) {
            let near = chance.below(40_000);
            let at = match chance.below(4) {
                0 => len - 1 - near,
                1 => 3 * MIB as u64 + near,
                _ => near,
            };
            image[at as usize] = chance.next() as u8;
        }
        world.disk("ada0", image, 512);
        world.control.topology.check();
        for name in world.names() {
            let open = world.open(&name, Access::READ);
            let read = world.read(&open, 0, 512);
            assert!(read.is_ok(), "{name}: {read:?}");
            world.close(open);
        }
        world.lose("ada0");
        assert!(world.names().is_empty());
    }
}

#[test]
fn guard_counts_unreadable_content_as_data_unless_no_write_is_possible() {
    let mut world = World::new();
    let disk = world.disk("d0", vec![0; MIB], 512);
    let held = |world: &mut World, name: &str| {
        let by = classes::guard::Requester { class: "", geom: "", force: false };
        classes::guard::held(&mut world.control, by, name)
    };
    assert_eq!(held(&mut world, "d0"), None);
    assert_eq!(held(&mut world, "absent"), None);
    let open = world.open("d0", Access { r: 1, w: 1, e: 1 });
    assert_eq!(held(&mut world, "d0"), None, "its user is reported");
    world.close(open);
    disk.0.lock().expect("media").gone = true;
    let why = held(&mut world, "d0").expect("it may hold data");
    assert!(why.contains("cannot be read"), "{why}");
}
