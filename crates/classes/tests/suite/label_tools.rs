//! Labels written by other tools. They are found, with the name and the id that `blkid` sees, on
//! media with sectors of 512 and of 4096 bytes.

use classes::label::{self, Found, KINDS};
use classes::probe::{ProbeError, Reason};
use std::path::Path;

use crate::support::{self, Scratch, apply_to, damage_file, probe_file, run, run_on, try_run};

const SIZES: [u32; 2] = [512, 4096];
const MIB: u64 = 1 << 20;

/// Probes an image with the kind of that prefix.
fn look(path: &Path, sector_size: u32, prefix: &str) -> Result<Found, ProbeError> {
    let kind = KINDS.iter().find(|kind| kind.prefix == prefix).expect("a kind");
    probe_file(path, sector_size, |sectors| label::step(kind, sectors))
}

/// A key of `blkid`'s answer.
fn blkid(path: &Path, key: &str) -> Option<String> {
    let file = path.display().to_string();
    let (_, text) = try_run("blkid", &["-p", "-o", "export", &file], "");
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    // Its shell quoting is undone.
    found.map(|value| value.replace('\\', ""))
}

/// Found by this kind, as `blkid` has it, and by no other kind.
fn check(path: &Path, sector_size: u32, prefix: &str, name: &str) {
    let found = look(path, sector_size, prefix);
    let found = found.unwrap_or_else(|why| panic!("{prefix} on {sector_size}: {why}"));
    assert_eq!(found.by_name.as_deref(), Some(format!("{prefix}/{name}").as_str()));
    let id = blkid(path, "UUID").expect("blkid knows the id");
    assert_eq!(found.by_id, Some(format!("{prefix}id/{id}")));
    // blkid shows bytes that are not ASCII in a form of its own.
    let seen = blkid(path, "LABEL").expect("blkid knows the name");
    if !seen.contains("M-") {
        let seen = seen.trim_start_matches('/');
        assert_eq!(label::clean(prefix, seen.as_bytes()).ok(), found.by_name);
    }
    assert_eq!(found.len, std::fs::metadata(path).expect("image").len());
    let all = probe_file(path, sector_size, label::step_all).expect("every kind");
    for (kind, other) in all {
        assert_eq!(other.is_ok(), kind.prefix == prefix, "{} on {prefix}", kind.prefix);
    }
}

/// Make an image with `tool`, check it, make it again without a name.
fn volume(prefix: &str, mib: u64, tool: &str, args: &[&str], named: &[&str], name: &str) {
    let scratch = Scratch::new(&format!("label-{prefix}-{}", args.len()));
    for size in SIZES {
        let path = scratch.image("image", mib * MIB);
        let all: Vec<&str> = args.iter().chain(named).chain(&["@"]).copied().collect();
        run_on(&path, size, tool, &all, "");
        check(&path, size, prefix, name);
        let path = scratch.image("unnamed", mib * MIB);
        let all: Vec<&str> = args.iter().chain(&["@"]).copied().collect();
        run_on(&path, size, tool, &all, "");
        let found = look(&path, size, prefix).expect("found by its id");
        assert_eq!(found.by_name, None, "no name is made up");
        assert_eq!(found.unnamed.map(|why| why.reason), Some(Reason::Unnamed));
        assert_eq!(found.by_id, blkid(&path, "UUID").map(|id| format!("{prefix}id/{id}")));
    }
}

#[test]
fn ext2_ext3_ext4() {
    for kind in ["ext2", "ext3", "ext4"] {
        let tool = format!("mkfs.{kind}");
        volume("ext2fs", 16, &tool, &["-q", "-F"], &["-L", "my home"], "my%20home");
    }
    volume("ext2fs", 16, "mkfs.ext4", &["-q", "-F", "-b", "4096"], &["-L", "/var"], "var");
}

#[test]
fn xfs() {
    volume("xfs", 320, "mkfs.xfs", &["-q", "-f"], &["-L", "root-vol"], "root-vol");
}

#[test]
fn btrfs() {
    volume("btrfs", 128, "mkfs.btrfs", &["-q", "-f"], &["-L", "pool 100%"], "pool%20100%25");
}

#[test]
fn ntfs() {
    let args = ["-q", "-F", "-f"];
    volume("ntfs", 16, "mkntfs", &args, &["-L", "Daten ü"], "Daten%20%C3%BC");
}

#[test]
fn swap() {
    volume("swaplinux", 16, "mkswap", &["-q"], &["-L", "swap0"], "swap0");
    // Made by a machine with larger pages.
    let args = ["-q", "--pagesize", "65536"];
    volume("swaplinux", 16, "mkswap", &args, &["-L", "swap64"], "swap64");
}

#[test]
fn fat() {
    volume("msdosfs", 4, "mkfs.vfat", &["-I", "-F", "12"], &["-n", "FLOPPY"], "FLOPPY");
    volume("msdosfs", 64, "mkfs.vfat", &["-I", "-F", "16"], &["-n", "STICK 1"], "STICK%201");
    volume("msdosfs", 320, "mkfs.vfat", &["-I", "-F", "32"], &["-n", "EFI"], "EFI");
}

#[test]
fn fat_name_in_the_root_directory_only() {
    let scratch = Scratch::new("label-fat-root");
    for (bits, at) in [("16", 43), ("32", 71)] {
        let path = scratch.image("image", 320 * MIB);
        let file = path.display().to_string();
        run("mkfs.vfat", &["-F", bits, "-n", "ROOTONLY", &file]);
        for place in at..at + 11 {
            damage_file(&path, place, 1, b"NO NAME    "[(place - at) as usize]);
        }
        let found = look(&path, 512, "msdosfs").expect("a volume");
        assert_eq!(found.by_name.as_deref(), Some("msdosfs/ROOTONLY"));
    }
}

#[test]
fn iso9660() {
    let scratch = Scratch::new("label-iso");
    let tree = scratch.path().join("tree");
    std::fs::create_dir(&tree).and_then(|()| std::fs::write(tree.join("a"), "a")).expect("a tree");
    let image = scratch.path().join("image");
    let (tree, out) = (tree.display().to_string(), image.display().to_string());
    run("genisoimage", &["-quiet", "-V", "CD ONE", "-o", &out, &tree]);
    check(&image, 512, "iso9660", "CD%20ONE");
    check(&image, 2048, "iso9660", "CD%20ONE");
    let args = ["-as", "mkisofs", "-quiet", "-V", "XORRISO_DISC", "-o", &out, &tree];
    run("xorriso", &args);
    check(&image, 2048, "iso9660", "XORRISO_DISC");
}

#[test]
fn our_generic_label_is_found_beside_a_file_system() {
    let scratch = Scratch::new("label-generic");
    for size in SIZES {
        let path = scratch.image("image", 16 * MIB);
        let (offset, sector) = label::generic::label("usb", size, 16 * MIB).expect("a label");
        write(&path, offset, &sector);
        let found = look(&path, size, "label").expect("our label");
        assert_eq!(found.by_name.as_deref(), Some("label/usb"));
        assert_eq!(found.len, 16 * MIB - u64::from(size));
        let (offset, sector) = label::generic::clear(size, 16 * MIB).expect("zeros");
        write(&path, offset, &sector);
        assert!(look(&path, size, "label").is_err());
    }
}

fn write(path: &Path, offset: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path).expect("image");
    file.write_all_at(bytes, offset).expect("written");
}

#[test]
fn gpt_labels_are_read_from_the_partition_entries() {
    use classes::part::params::{Add, Create};
    use classes::part::{Media, Scheme, Table, plan};
    let scratch = Scratch::new("label-gpt");
    let path = scratch.image("image", 16 * MIB);
    let create = Create { scheme: Scheme::Gpt, entries: None };
    let table = Table::create(Media::plain(16 * MIB / 512, 512), &create, [1; 16]);
    let add = Add { kind: "efi".into(), label: Some("EFI one".into()), ..Add::default() };
    let (table, _) = table.and_then(|table| table.add(&add, [2; 16])).expect("a partition");
    apply_to(&path, &plan(None, &table).expect("a plan"));
    let read = support::table_of(&path, 512).expect("a table");
    let entry = &read.entries()[0];
    let names = label::gpt_names(&entry.label(), &entry.guid.to_string(), 512).expect("names");
    let file = path.display().to_string();
    let uuid = run("sfdisk", &["--part-uuid", &file, "1"]);
    let theirs = format!("gptid/{}", uuid.trim().to_lowercase());
    assert_eq!(names.providers().collect::<Vec<_>>(), ["gpt/EFI%20one", theirs.as_str()]);
}
