//! BSD disklabels: other tools read ours, we read theirs; cascaded inside an MBR; torn.

use classes::part::params::{Add, Amount, Create, Resize};
use classes::part::{self, Media, Scheme, Table, TableContext};
use serde_json::json;
use std::collections::BTreeSet;

use geom::Access;

use crate::support::{self, Image, Scratch, apply_to, power_cuts, run, run_on, table_of};
use crate::world::World;

const MIB: u64 = 1 << 20;

fn new_table(sectors: u64, size: u32) -> Table {
    let create = Create { scheme: Scheme::Bsd, entries: None };
    Table::create(Media::plain(sectors, size), &create, [0; 16]).expect("a label")
}

fn add(table: &Table, kind: &str, start: Option<u64>, sectors: u64) -> (Table, u32) {
    let start = start.map(Amount::Sectors);
    let size = Some(Amount::Sectors(sectors));
    let add = Add { kind: kind.into(), start, size, ..Add::default() };
    table.add(&add, [0; 16]).expect("a partition")
}

#[test]
fn other_tools_read_our_disklabel() {
    let scratch = Scratch::new("part-bsd-ours");
    let path = scratch.image("image", 64 * MIB);
    let table = new_table(64 * MIB / 512, 512);
    let (table, a) = add(&table, "freebsd-ufs", Some(2048), 16384);
    let (table, b) = add(&table, "freebsd-swap", Some(32768), 8192);
    // c is the whole.
    let (table, d) = add(&table, "freebsd-zfs", None, 1000);
    assert_eq!((a, b, d), (1, 2, 4));
    apply_to(&path, &part::plan(None, &table).expect("a plan"));
    let file = path.display().to_string();
    let output = run("fdisk", &["-l", &file]);
    assert!(output.contains("Disklabel type: bsd"), "{output}");
    for row in ["2048", "18431", "32768", "40959"] {
        assert!(output.split_whitespace().any(|word| word == row), "{row}: {output}");
    }
    let read = table_of(&path, 512).expect("our own");
    assert_eq!(read.entries(), table.entries());
    assert_eq!(read.scheme(), Scheme::Bsd);
    assert_eq!((read.capacity(), read.suffix(&read.entries()[2])), (8, "d".into()));
    apply_to(&path, &part::destroy_plan(&read));
    assert!(table_of(&path, 512).is_err());
    assert!(!run("fdisk", &["-l", &file]).contains("Disklabel type"));
}

#[test]
fn a_disklabel_written_by_fdisk_is_read() {
    let scratch = Scratch::new("part-bsd-theirs");
    let path = scratch.image("image", 64 * MIB);
    run_on(&path, 512, "sfdisk", &["-q", "@"], "label: dos\nstart=2048,type=a5\n");
    // Into the slice; a label, two partitions of it, written; offsets count from the disk's start.
    let script = "b\ny\nn\na\n6144\n22527\nn\nb\n22528\n100000\nw\nq\n";
    let file = path.display().to_string();
    let (_, output) = support::try_run("fdisk", &["-w", "never", "-W", "never", &file], script);
    let (mut w, disk) = World::with("ada0", std::fs::read(&path).expect("image"), 512);
    assert_eq!(w.names(), ["ada0", "ada0s1", "ada0s1a", "ada0s1b"], "{output}");
    assert_eq!((w.size("ada0s1a"), w.size("ada0s1b")), (16384 * 512, 77473 * 512));
    // An edit keeps all fields that it does not name, and other tools still read the table.
    let modify = json!({ "index": 2, "kind": "freebsd-zfs" });
    assert_eq!(w.part("modify", "ada0s1", modify), "ada0s1b modified");
    disk.save(&path);
    let (_, output) = support::try_run("fdisk", &[&file], "b\np\nq\n");
    for row in ["6144", "22527", "22528", "100000"] {
        assert!(output.split_whitespace().any(|word| word == row), "{row}: {output}");
    }
}

/// They are named after their disk or slice.
#[test]
fn lettered_partitions_follow_the_new_name_of_a_renamed_disk() {
    let mut image = Image::new(20000, 512);
    let (table, _) = add(&new_table(20000, 512), "freebsd-ufs", Some(100), 50);
    image.apply(&part::plan(None, &table).expect("a plan"));
    let (mut w, _) = World::with("d0", image.read(0, 20000 * 512), 512);
    assert_eq!(w.names(), ["d0", "d0a"]);
    let open = w.open("d0a", Access::READ);
    let names = w.control.call(|t| t.rename("test", "d0", "x")).expect("renamed");
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(names, [pair("d0", "x"), pair("d0a", "xa")]);
    assert_eq!(w.names(), ["x", "xa"]);
    w.read(&open, 0, 512).expect("its reader notices nothing");
    w.close(open);
}

/// B3 of part/bsd.rs.
#[test]
fn offsets_relative_to_the_start_of_the_disk_are_read_and_kept() {
    let mut image = Image::new(20000, 512);
    let (table, _) = add(&new_table(20000, 512), "freebsd-ufs", Some(100), 50);
    image.apply(&part::plan(None, &table).expect("a plan"));
    let mut label = image.read(512, 512);
    for at in [148, 148 + 32] {
        let start = u32::from_le_bytes(label[at + 4..at + 8].try_into().expect("a word")) + 63;
        label[at + 4..at + 8].copy_from_slice(&start.to_le_bytes());
    }
    image.put(1, &label);
    let read = image.probe(&TableContext::default()).expect("an old label");
    assert_eq!(read.entries()[0].start, 100);
    let resize = Resize { index: 1, align: None, size: Some(Amount::Sectors(70)) };
    let next = read.resize(&resize, &BTreeSet::new()).expect("resized");
    image.apply(&part::plan(Some(&read), &next).expect("a plan"));
    let label = image.read(512, 512);
    assert_eq!(label[152..156], 163_u32.to_le_bytes());
    let words = label[..148 + 8 * 16].chunks(2);
    let sum = words.fold(0, |sum, w| sum ^ u16::from_le_bytes([w[0], w[1]]));
    assert_eq!(sum, 0, "the checksum is right again");
    assert_eq!(image.probe(&TableContext::default()).expect("ours").entries()[0].end, 169);
}

#[test]
fn invalid_indexes_types_and_entry_counts_are_refused() {
    let table = new_table(20000, 512);
    let with = |index| Add { kind: "freebsd-ufs".into(), index: Some(index), ..Add::default() };
    assert!(table.add(&with(3), [0; 16]).is_err(), "c is the whole");
    assert!(table.add(&with(9), [0; 16]).is_err(), "eight entries");
    let wrong = Add { kind: "linux-data".into(), ..Add::default() };
    assert!(table.add(&wrong, [0; 16]).is_err());
    for entries in [7, 21] {
        let create = Create { scheme: Scheme::Bsd, entries: Some(entries) };
        assert!(Table::create(Media::plain(20000, 512), &create, [0; 16]).is_err());
    }
    let (table, _) = add(&table, "freebsd-ufs", Some(100), 50);
    let mut image = Image::new(20000, 512);
    image.apply(&part::plan(None, &table).expect("a plan"));
    let good = image.read(512, 512);
    // Second magic, sector size, geometry, number of partitions, an end beyond the media.
    for at in [133, 41, 45, 138, 151] {
        let mut bad = good.clone();
        bad[at] ^= 0xff;
        image.put(1, &bad);
        assert!(image.probe(&TableContext::default()).is_err(), "byte {at}");
    }
}

/// B1 of part/bsd.rs.
#[test]
fn a_power_cut_leaves_the_old_or_the_new_label() {
    for size in [512, 4096] {
        let mut image = Image::new(20000, size);
        let (old, _) = add(&new_table(20000, size), "freebsd-ufs", Some(100), 50);
        image.apply(&part::plan(None, &old).expect("a plan"));
        let (new, _) = add(&old, "freebsd-swap", None, 500);
        let plan = part::plan(Some(&old), &new).expect("a plan");
        let cuts = power_cuts(&image, &plan, 1, |left| {
            let seen = left.probe(&TableContext::default()).expect("a label");
            assert!([old.entries(), new.entries()].contains(&seen.entries()));
        });
        assert!(cuts >= 2);
    }
}

#[test]
fn a_disklabel_works_inside_an_mbr_slice() {
    for size in [512, 4096] {
        let (mut w, disk) = World::with("ada0", vec![0; 64 << 20], size);
        w.part("create", "ada0", json!({ "scheme": "mbr" }));
        w.part("add", "ada0", json!({ "kind": "freebsd", "align": { "bytes": MIB } }));
        assert_eq!(w.part("create", "ada0s1", json!({ "scheme": "bsd" })), "ada0s1 created");
        let ufs = json!({ "kind": "freebsd-ufs", "size": { "bytes": 8 * MIB } });
        assert_eq!(w.part("add", "ada0s1", ufs), "ada0s1a added");
        assert_eq!(w.part("add", "ada0s1", json!({ "kind": "freebsd-swap" })), "ada0s1b added");
        assert_eq!(w.size("ada0s1a"), 8 * MIB);
        assert_eq!(w.text("ada0s1a", "PART::scheme").as_deref(), Some("BSD"));
        let (_, why) = w.refused("create", "ada0s1a", json!({ "scheme": "gpt" }));
        assert!(why.contains("leaf"), "{why}");
        // Linux sees the nested entries: the slice, then a and b.
        if size == 512 {
            let scratch = Scratch::new("part-bsd-nested");
            let path = scratch.path().join("judge");
            disk.save(&path);
            let output =
                run("partx", &["-g", "-o", "START,SECTORS", "-s", path.to_str().expect("a path")]);
            let row = |start: u64, sectors: u64| {
                let mut rows = output.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
                rows.any(|r| r == [start.to_string(), sectors.to_string()])
            };
            assert!(row(2048 + 16, 8 * MIB / 512), "{output}");
        }
        // Another world finds the same.
        let (other, _) = World::with("ada0", disk.bytes(), size);
        assert_eq!(other.names(), w.names());
        assert_eq!(w.part("delete", "ada0s1", json!({ "index": 1 })), "ada0s1a deleted");
        let force = json!({ "force": true });
        assert_eq!(w.part("destroy", "ada0s1", force), "ada0s1 destroyed");
        assert_eq!(w.names(), ["ada0", "ada0s1"]);
    }
}
