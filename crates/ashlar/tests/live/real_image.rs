//! A disk image that other tools made and filled, served, copied back, overwritten and checked.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rig::peer;
use rig::scenarios::{self, Tree};

use crate::fixture::{Fixture, array, file_disk, text, tool};

/// First byte of the partition with the file system.
const START: u64 = 1 << 20;
const DOCS_BYTES: u64 = 64 << 20;
/// Size of the second, empty one.
const SPARE_BYTES: u64 = 16 << 20;
const DISK_BYTES: u64 = 96 << 20;

/// An ext4 file system with a tree in it, in a file of its own.
fn file_system(fixture: &Fixture, name: &str, tree: &Path) -> PathBuf {
    let image = fixture.image(&format!("{name}.ext4"), DOCS_BYTES);
    let (tree, path) = (tree.to_str().unwrap(), image.to_str().unwrap());
    tool("mkfs.ext4", &["-q", "-F", "-L", name, "-d", tree, path], "");
    image
}

/// A GPT disk whose first partition holds the file system.
fn disk_with(fixture: &Fixture, file_system: &Path) -> PathBuf {
    let disk = fixture.image("disk.img", DISK_BYTES);
    let (start, docs, spare) = (START / 512, DOCS_BYTES / 512, SPARE_BYTES / 512);
    let table = format!(
        "label: gpt\nstart={start}, size={docs}, type=L, name=\"documents\"\n\
         start={}, size={spare}, type=L, name=\"spare\"\n",
        start + docs
    );
    tool("sfdisk", &["-q", disk.to_str().unwrap()], &table);
    let mut to = File::options().write(true).open(&disk).unwrap();
    to.seek(SeekFrom::Start(START)).unwrap();
    std::io::copy(&mut File::open(file_system).unwrap(), &mut to).unwrap();
    to.flush().unwrap();
    disk
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    File::open(a).unwrap().read_to_end(&mut left).unwrap();
    File::open(b).unwrap().read_to_end(&mut right).unwrap();
    assert_eq!(left.len(), right.len());
    let differs = left.iter().zip(&right).position(|(l, r)| l != r);
    assert_eq!(differs, None, "{} and {} differ there", a.display(), b.display());
}

/// Everything in the file system of an image equals the folder it was made from.
#[track_caller]
fn assert_holds(fixture: &Fixture, image: &Path, tree: &Path) {
    scenarios::check_clean(image).unwrap();
    let out = fixture.path("dumped");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out).unwrap();
    let dump = format!("rdump / {}", out.display());
    tool("debugfs", &["-R", &dump, image.to_str().unwrap()], "");
    // mkfs makes it; the tree has none.
    std::fs::remove_dir(out.join("lost+found")).unwrap();
    let (out, tree) = (out.to_str().unwrap(), tree.to_str().unwrap());
    tool("diff", &["-r", "--no-dereference", out, tree], "");
}

/// Labels that tasting found, by the names in them.
fn labels(fixture: &Fixture) -> Vec<String> {
    let state = fixture.state();
    let geoms = array(&state["geoms"]).iter().filter(|g| g["class"] == "label");
    geoms.flat_map(|g| array(&g["providers"]).iter().map(|p| text(&p["name"]))).collect()
}

#[test]
fn file_trees_are_read_and_written_over_iscsi() {
    let mut fixture = Fixture::alone("real-image");
    let (first, second) = (fixture.path("tree-1"), fixture.path("tree-2"));
    let tree = Tree::documentation().unwrap();
    tree.write(&first).unwrap();
    println!("the tree has {:?} files and bytes", tree.size());
    std::fs::create_dir_all(second.join("usr")).unwrap();
    std::fs::write(second.join("usr/hello"), "written by an initiator\n").unwrap();
    std::fs::write(second.join("big"), vec![0xa5; 5 << 20]).unwrap();
    let made = file_system(&fixture, "docs", &first);
    let disk = disk_with(&fixture, &made);

    // No initiator is admitted: everything is found by tasting.
    fixture.configure(&file_disk("d0", "disk.img"), "");
    fixture.start();
    let (class, docs) = fixture.provider("d0p1").expect("the first partition is tasted");
    assert_eq!((class.as_str(), docs["size_bytes"].as_u64()), ("part", Some(DOCS_BYTES)));
    let (_, spare) = fixture.provider("d0p2").expect("the second partition is tasted");
    assert_eq!(spare["size_bytes"].as_u64(), Some(SPARE_BYTES));
    let found = labels(&fixture);
    for name in ["ext2fs/docs", "gpt/documents", "gpt/spare"] {
        assert!(found.iter().any(|f| f == name), "no {name} among {found:?}");
    }
    let table = fixture.json(&["part", "show", "d0"]);
    let entries = array(&table["tables"][0]["entries"]);
    assert_eq!(entries.len(), 2, "{table:#}");
    assert_eq!(entries[0]["start"].as_u64(), Some(START / 512));
    assert!(peer::iscsi_inq(&fixture.url(0), None).is_err(), "somebody was let in");

    // Out: the same bytes.
    fixture.configure(&file_disk("d0", "disk.img"), "0 = \"d0p1\", 1 = \"d0p2\"");
    fixture.ok(&["apply"]);
    let copy = fixture.path("copy.img");
    peer::download(&fixture.url(0), &copy).unwrap();
    assert_same(&made, &copy);
    assert_holds(&fixture, &copy, &first);

    // In: another file system over the first, a pattern over the second.
    let other = file_system(&fixture, "second", &second);
    peer::upload(&other, &fixture.url(0)).unwrap();
    let pattern = ["write -P 0x5a 1M 3M", "write -z 8M 1M", "flush", "read -P 0x5a 1M 3M"];
    peer::qemu_io(&fixture.url(1), &pattern).unwrap();
    let cut = fixture.path("cut.img");
    scenarios::cut(&disk, START, DOCS_BYTES, &cut).unwrap();
    assert_same(&other, &cut);
    assert_holds(&fixture, &cut, &second);
    scenarios::cut(&disk, START + DOCS_BYTES, SPARE_BYTES, &cut).unwrap();
    let spare = std::fs::read(&cut).unwrap();
    assert!(spare[1 << 20..4 << 20].iter().all(|b| *b == 0x5a));
    assert!(spare[4 << 20..].iter().all(|b| *b == 0), "written where nobody wrote");

    // The disk is closed: the new label is tasted, the table is untouched.
    fixture.configure(&file_disk("d0", "disk.img"), "");
    fixture.ok(&["apply"]);
    let found = labels(&fixture);
    assert!(found.iter().any(|f| f == "ext2fs/second"), "{found:?}");
    assert!(!found.iter().any(|f| f == "ext2fs/docs"), "{found:?}");
    fixture.stop();
    tool("sfdisk", &["--verify", disk.to_str().unwrap()], "");
    tool("sgdisk", &["-v", disk.to_str().unwrap()], "");
}

#[test]
fn a_file_in_a_served_file_system_is_edited_by_debugfs() {
    let mut fixture = Fixture::alone("edited");
    let tree = fixture.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("old"), "old\n").unwrap();
    let made = file_system(&fixture, "edit", &tree);
    disk_with(&fixture, &made);
    fixture.configure(&file_disk("d0", "disk.img"), "7 = \"ext2fs/edit\"");
    fixture.start();
    // The unit is named by its label: the initiator does not know the partition.
    let local = fixture.path("local.img");
    peer::download(&fixture.url(7), &local).unwrap();
    let note = fixture.path("note");
    std::fs::write(&note, "a new file\n").unwrap();
    let script = format!("write {} note\nrm old\nmkdir folder\n", note.display());
    tool("debugfs", &["-w", "-f", "-", local.to_str().unwrap()], &script);
    peer::upload(&local, &fixture.url(7)).unwrap();
    fixture.stop();
    let cut = fixture.path("cut.img");
    scenarios::cut(&fixture.path("disk.img"), START, DOCS_BYTES, &cut).unwrap();
    std::fs::remove_file(tree.join("old")).unwrap();
    std::fs::create_dir(tree.join("folder")).unwrap();
    std::fs::write(tree.join("note"), "a new file\n").unwrap();
    assert_holds(&fixture, &cut, &tree);
}
