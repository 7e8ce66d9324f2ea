//! The verbs of part, through a real core, on media that other tools check.

use bio::Errno;
use classes::part::request::PartAnswer;
use geom::Access;
use serde_json::{Value, json};
use std::path::Path;

use crate::support::{Scratch, run_on};
use crate::world::{Disk, World};

const SIZES: [u32; 2] = [512, 4096];
const MIB: usize = 1 << 20;
const SFDISK: [&str; 5] = ["-q", "--no-reread", "--no-tell-kernel", "--wipe=never", "@"];

/// Checks that other tools find no fault.
fn accepted(disk: &Disk, path: &Path, sector: u32, scheme: &str) {
    disk.save(path);
    let text = run_on(path, sector, "sfdisk", &["--verify", "@"], "");
    assert!(text.contains("No errors detected"), "{text}");
    if scheme == "gpt" {
        let text = run_on(path, sector, "sgdisk", &["-v", "@"], "");
        assert!(text.contains("No problems found"), "{text}");
    }
}

/// How many partitions `sfdisk -d` sees.
fn counted(disk: &Disk, path: &Path, sector: u32) -> usize {
    disk.save(path);
    run_on(path, sector, "sfdisk", &["-d", "@"], "").matches("size=").count()
}

fn bytes(n: usize) -> Value {
    json!({ "bytes": n })
}

fn show(world: &mut World, name: &str) -> PartAnswer {
    let answer = world.verb("part", "show", name, json!({})).expect("show");
    serde_json::from_value(answer).expect("the contract")
}

fn table(world: &mut World, name: &str) -> classes::part::request::TableView {
    show(world, name).tables.into_iter().next().expect("a table")
}

/// Whether `show` reports that a provider has no table.
fn has_no_table(world: &mut World, name: &str) -> bool {
    let PartAnswer { tables, warnings, .. } = show(world, name);
    tables.is_empty() && matches!(warnings.as_slice(), [why] if why.contains("partition table"))
}

#[test]
fn a_gpt_is_created_edited_and_destroyed() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-verbs-gpt-{size}"));
        let path = scratch.path().join("judge");
        let (mut w, disk) = World::with("ada0", vec![0; 64 * MIB], size);
        let answer = w.part("create", "ada0", json!({ "scheme": "gpt" }));
        assert_eq!(answer, "ada0 created");
        accepted(&disk, &path, size, "gpt");
        let add = json!({ "kind": "efi", "align": bytes(MIB), "size": bytes(4 * MIB) });
        assert_eq!(w.part("add", "ada0", add), "ada0p1 added");
        let add = json!({ "kind": "linux-data", "align": bytes(MIB), "size": bytes(8 * MIB),
            "label": "wurzel" });
        assert_eq!(w.part("add", "ada0", add), "ada0p2 added");
        let add = json!({ "kind": "linux-swap", "align": bytes(MIB), "index": 7 });
        assert_eq!(w.part("add", "ada0", add), "ada0p7 added");
        assert!(w.has("ada0p1") && w.has("ada0p7") && w.has("gpt/wurzel"), "{:?}", w.names());
        accepted(&disk, &path, size, "gpt");
        assert_eq!(counted(&disk, &path, size), 3);
        let now = table(&mut w, "ada0");
        assert_eq!((now.scheme.as_str(), now.corrupt, now.modified), ("gpt", false, false));
        assert_eq!(now.entries[1].raw_kind, "0fc63daf-8483-4772-8e79-3d69d8477de4");
        assert_eq!((now.entries[1].label.as_str(), now.entries[1].index), ("wurzel", 2));
        assert_eq!(now.entries[1].count * u64::from(size), 8 << 20);
        let modify = json!({ "index": 2, "label": "stamm", "kind": "linux-lvm" });
        assert_eq!(w.part("modify", "ada0", modify), "ada0p2 modified");
        assert!(w.has("gpt/stamm") && !w.has("gpt/wurzel"), "{:?}", w.names());
        assert_eq!(w.text("ada0p2", "PART::type").as_deref(), Some("linux-lvm"));
        assert_eq!(w.part("delete", "ada0", json!({ "index": 7 })), "ada0p7 deleted");
        assert!(!w.has("ada0p7"));
        let resize = json!({ "index": 2, "size": bytes(16 * MIB) });
        assert_eq!(w.part("resize", "ada0", resize), "ada0p2 resized");
        assert_eq!((w.size("ada0p2"), w.size("gpt/stamm")), (16 << 20, 16 << 20));
        let set = json!({ "attribute": "bootme", "index": 1 });
        assert_eq!(w.part("set", "ada0", set), "bootme set on ada0p1");
        assert_eq!(table(&mut w, "ada0").entries[0].attributes, ["bootme"]);
        let (_, none) = w.refused("set", "ada0", json!({ "index": 1 }));
        assert!(none.contains("`-a bootme`"), "{none}");
        let both = json!({ "attribute": "bootme", "attrib": "bootme", "index": 1 });
        let (kind, twice) = w.refused("unset", "ada0", both);
        assert!(kind == Errno::Inval && twice.contains("twice"), "{twice}");
        let unset = json!({ "attribute": "bootme", "index": 1 });
        assert_eq!(w.part("unset", "ada0", unset), "bootme unset on ada0p1");
        assert_eq!(w.part("set", "ada0", json!({ "attribute": "active" })), "active set on ada0");
        accepted(&disk, &path, size, "gpt");
        let text = run_on(&path, size, "sfdisk", &["-d", "@"], "");
        assert!(text.contains("name=\"stamm\""), "{text}");
        let (kind, what) = w.refused("destroy", "ada0", json!({}));
        assert!(kind == Errno::Exist && what == "ada0 holds GPT with 2 partitions", "{what}");
        assert_eq!(w.part("destroy", "ada0", json!({ "force": true })), "ada0 destroyed");
        assert_eq!(w.names(), ["ada0"]);
        assert!(has_no_table(&mut w, "ada0"));
        // Nothing that others would take for a table is left.
        disk.save(&path);
        let text = run_on(&path, size, "sfdisk", &["-l", "@"], "");
        assert!(!text.contains("Disklabel type"), "{text}");
    }
}

#[test]
fn an_mbr_with_logical_partitions_is_created_and_edited() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-verbs-mbr-{size}"));
        let path = scratch.path().join("judge");
        let (mut w, disk) = World::with("ada0", vec![0; 64 * MIB], size);
        w.part("create", "ada0", json!({ "scheme": "mbr" }));
        let add = json!({ "kind": "linux-data", "align": bytes(MIB), "size": bytes(4 * MIB) });
        assert_eq!(w.part("add", "ada0", add), "ada0s1 added");
        let add = json!({ "kind": "ebr", "align": bytes(MIB) });
        assert_eq!(w.part("add", "ada0", add), "ada0s2 added");
        let (kind, what) = w.refused("create", "ada0s2", json!({ "scheme": "gpt" }));
        assert!(kind == Errno::NoDev && what.contains("ebr"), "{what}");
        let (kind, _) = w.refused("create", "ada0s1", json!({ "scheme": "mbr" }));
        assert_eq!(kind, Errno::Loop);
        let (kind, _) = w.refused("create", "ada0s1", json!({ "scheme": "ebr" }));
        assert_eq!(kind, Errno::NoDev);
        w.part("create", "ada0s2", json!({ "scheme": "ebr" }));
        let add = |n: usize| json!({ "kind": "linux-data", "size": bytes(n * MIB) });
        let first = w.part("add", "ada0s2", add(4));
        let second = w.part("add", "ada0s2", add(6));
        let name = |answer: &str| answer.trim_end_matches(" added").to_owned();
        let (first, second) = (name(&first), name(&second));
        assert_eq!((w.size(&first), w.size(&second)), (4 << 20, 6 << 20));
        assert_eq!(counted(&disk, &path, size), 4);
        assert!(w.show("part", "ada0s2", "partition")[1].contains("alias ada0s6"));
        let open = w.open(&second, Access::WRITE);
        w.write(&open, 0, &vec![0x42; size as usize]).expect("write");
        // Others see the bytes where they see the partition.
        disk.save(&path);
        let text = run_on(&path, size, "sfdisk", &["-d", "@"], "");
        let line = text.lines().rfind(|l| l.contains("size=")).expect("ada0s6");
        let start = line.split("start=").nth(1).and_then(|t| t.split(',').next()).expect("start");
        let start: usize = start.trim().parse().expect("start");
        assert_eq!(disk.bytes()[start * size as usize], 0x42);
        let index = table(&mut w, "ada0s2").entries[0].index;
        w.part("delete", "ada0s2", json!({ "index": index }));
        assert!(w.has(&second) && !w.has(&first) && !open.orphaned());
        assert_eq!(w.read(&open, 0, 512.max(size as usize)).map(|b| b[0]), Ok(0x42));
        w.close(open);
        assert_eq!(counted(&disk, &path, size), 3);
        let set = json!({ "attribute": "active", "index": 1 });
        assert_eq!(w.part("set", "ada0", set), "active set on ada0s1");
        let (kind, what) = w.refused("delete", "ada0", json!({ "index": 9 }));
        assert!(kind == Errno::NoEnt && what.contains("part show"), "{what}");
        w.part("delete", "ada0", json!({ "index": 2 }));
        assert_eq!(w.names().iter().filter(|n| n.starts_with("ada0s")).count(), 1);
        accepted(&disk, &path, size, "mbr");
    }
}

/// U3 of guard.rs.
#[test]
fn partition_and_table_are_lost_only_with_their_names_as_consent() {
    let (mut w, disk) = two_partitions(512);
    let before = disk.bytes();
    let code = json!({ "partcode": "0x01", "index": 2 });
    for (verb, params, name, held) in [
        ("delete", json!({ "index": 2 }), "ada0p2", "a partition of type linux-data"),
        ("bootcode", code, "ada0p2", "a partition of type linux-data"),
        ("destroy", json!({}), "ada0", "GPT with 2 partitions"),
        ("create", json!({ "scheme": "gpt" }), "ada0", "GPT with 2 partitions"),
    ] {
        let mut other = params.clone();
        other["yes_destroy"] = json!(["ada0p1"]);
        for params in [params, other] {
            let error = w.verb("part", verb, "ada0", params).expect_err("no consent");
            assert_eq!(error.destroys, [name], "{verb}: {error}");
            assert_eq!(error.message, format!("{name} holds {held}"));
        }
    }
    assert!(disk.bytes() == before, "something was written");
    let delete = json!({ "index": 2, "yes_destroy": ["ada0p2"] });
    w.verb("part", "delete", "ada0", delete).expect("deleted");
    let destroy = json!({ "yes_destroy": ["ada0"] });
    w.verb("part", "destroy", "ada0", destroy).expect("destroyed");
}

fn two_partitions(size: u32) -> (World, Disk) {
    let (mut w, disk) = World::with("ada0", vec![0; 32 * MIB], size);
    w.part("create", "ada0", json!({ "scheme": "gpt" }));
    for _ in 0..2 {
        let add = json!({ "kind": "linux-data", "align": bytes(MIB), "size": bytes(4 * MIB) });
        w.part("add", "ada0", add);
    }
    (w, disk)
}

#[test]
fn an_open_partition_is_busy_but_may_grow() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-verbs-open-{size}"));
        let (mut w, disk) = two_partitions(size);
        let open = w.open("ada0p2", Access::WRITE);
        let (kind, what) = w.refused("delete", "ada0", json!({ "index": 2 }));
        assert!(kind == Errno::Busy && what.contains("close"), "{what}");
        let shrink = json!({ "index": 2, "size": bytes(2 * MIB) });
        assert_eq!(w.refused("resize", "ada0", shrink).0, Errno::Busy);
        assert_eq!(w.refused("destroy", "ada0", json!({ "force": true })).0, Errno::Busy);
        let over = json!({ "scheme": "mbr", "yes_destroy": ["ada0"] });
        assert_eq!(w.refused("create", "ada0", over).0, Errno::Busy);
        // Its name would change with its type.
        let modify = json!({ "index": 2, "kind": "freebsd" });
        assert_eq!(w.refused("modify", "ada0", modify).0, Errno::Busy);
        let grow = json!({ "index": 2, "size": bytes(8 * MIB) });
        w.part("resize", "ada0", grow);
        assert!(!open.orphaned());
        assert_eq!(w.size("ada0p2"), 8 << 20);
        let last = (8 << 20) - u64::from(size);
        w.write(&open, last, &vec![9; size as usize]).expect("the new end");
        // The neighbour may be deleted; the open partition is not disturbed.
        w.part("delete", "ada0", json!({ "index": 1 }));
        assert_eq!(w.read(&open, last, size as usize).map(|b| b[0]), Ok(9));
        assert!(!w.has("ada0p1") && !open.orphaned());
        w.close(open);
        let shrink = json!({ "index": 2, "size": bytes(2 * MIB) });
        w.part("resize", "ada0", shrink);
        assert_eq!(w.size("ada0p2"), 2 << 20);
        accepted(&disk, &scratch.path().join("judge"), size, "gpt");
        // A disk that another consumer protects from writers is not edited; the error names that
        // consumer.
        let keeper = w.open("ada0", Access { r: 1, w: 0, e: 1 });
        let delete = json!({ "index": 2, "yes_destroy": ["ada0p2"] });
        let (kind, what) = w.refused("delete", "ada0", delete);
        assert!(kind == Errno::Perm && what.contains("held by test user"), "{what}");
        assert_eq!(w.show("part", "ada0", "modified"), ["false"]);
        w.close(keeper);
        w.part("delete", "ada0", json!({ "index": 2 }));
    }
}

#[test]
fn unchanged_partitions_keep_their_providers() {
    let (mut w, _) = two_partitions(512);
    let (one, two) = (w.find("ada0p1"), w.find("ada0p2"));
    let user = w.watch("ada0p1");
    w.part("add", "ada0", json!({ "kind": "linux-swap", "align": bytes(MIB) }));
    w.part("modify", "ada0", json!({ "index": 2, "label": "x" }));
    assert_eq!((w.find("ada0p1"), w.find("ada0p2")), (one, two));
    w.part("delete", "ada0", json!({ "index": 3 }));
    assert_eq!((w.find("ada0p1"), w.find("ada0p2")), (one, two));
    assert!(!user.orphaned());
    w.close(user);
}

/// V2 of part/verbs/mod.rs.
#[test]
fn two_phases() {
    let scratch = Scratch::new("class-verbs-phases");
    let path = scratch.path().join("judge");
    let (mut w, disk) = two_partitions(512);
    let before = disk.bytes();
    let add = json!({ "kind": "linux-swap", "align": bytes(MIB), "no_commit": true });
    assert_eq!(w.part("add", "ada0", add.clone()), "ada0p3 added");
    w.part("delete", "ada0", json!({ "index": 1, "no_commit": true }));
    assert!(w.has("ada0p3") && !w.has("ada0p1"), "providers follow before the commit");
    assert_eq!(w.show("part", "ada0", "modified"), ["true"]);
    assert!(table(&mut w, "ada0").modified);
    assert_eq!(table(&mut w, "ada0").pending, ["ada0p3 added", "ada0p1 deleted"]);
    assert_eq!(w.show("part", "ada0", "pending"), ["ada0p3 added", "ada0p1 deleted"]);
    assert!(disk.bytes() == before, "nothing is written yet");
    let refused = w.try_open("ada0", Access::WRITE).map(|_| ()).map_err(|e| e.kind);
    assert_eq!(refused, Err(Errno::Perm), "the disk is held");
    let writer = w.open("ada0p2", Access::WRITE);
    w.write(&writer, 0, &[7; 512]).expect("what stays is written meanwhile");
    w.write(&writer, 0, &[0; 512]).expect("and as it was");
    w.close(writer);
    let user = w.open("ada0p3", Access::READ);
    let (kind, what) = w.refused("undo", "ada0", json!({}));
    assert!(kind == Errno::Busy && what.contains("ada0p3"), "{what}");
    w.close(user);
    assert_eq!(w.part("undo", "ada0", json!({})), "ada0 undone");
    assert!(table(&mut w, "ada0").pending.is_empty());
    assert!(w.has("ada0p1") && w.has("ada0p2") && !w.has("ada0p3"));
    assert!(disk.bytes() == before);
    assert_eq!(w.refused("undo", "ada0", json!({})).0, Errno::Perm);
    assert_eq!(w.refused("commit", "ada0", json!({})).0, Errno::Perm);
    w.part("add", "ada0", add);
    w.part("resize", "ada0", json!({ "index": 2, "size": bytes(2 * MIB), "no_commit": true }));
    assert_eq!(w.part("commit", "ada0", json!({})), "ada0 committed");
    assert_eq!(w.show("part", "ada0", "modified"), ["false"]);
    assert_eq!(counted(&disk, &path, 512), 3);
    accepted(&disk, &path, 512, "gpt");
    // The whole table, both ways.
    w.part("destroy", "ada0", json!({ "force": true, "no_commit": true }));
    assert_eq!(w.names(), ["ada0"]);
    let gone = table(&mut w, "ada0");
    assert_eq!((gone.scheme.as_str(), gone.entries.len(), gone.modified), ("gpt", 0, true));
    assert_eq!(gone.pending, ["ada0 destroyed"]);
    assert_eq!(w.refused("add", "ada0", json!({ "kind": "efi" })).0, Errno::Perm);
    w.part("undo", "ada0", json!({}));
    assert!(w.has("ada0p1") && w.has("ada0p3"));
    w.part("destroy", "ada0", json!({ "force": true, "no_commit": true }));
    w.part("create", "ada0", json!({ "scheme": "mbr", "no_commit": true }));
    w.part("add", "ada0", json!({ "kind": "linux-data", "no_commit": true }));
    w.part("commit", "ada0", json!({}));
    assert!(w.has("ada0s1") && !w.has("ada0p1"));
    accepted(&disk, &path, 512, "mbr");
    // A chain of logical partitions, several edits at once.
    w.part("destroy", "ada0", json!({ "force": true }));
    w.part("create", "ada0", json!({ "scheme": "mbr" }));
    w.part("add", "ada0", json!({ "kind": "ebr" }));
    w.part("create", "ada0s1", json!({ "scheme": "ebr", "no_commit": true }));
    for _ in 0..3 {
        let add = json!({ "kind": "linux-data", "size": bytes(2 * MIB), "no_commit": true });
        w.part("add", "ada0s1", add);
    }
    let second = table(&mut w, "ada0s1").entries[1].index;
    w.part("delete", "ada0s1", json!({ "index": second, "no_commit": true }));
    w.part("commit", "ada0s1", json!({}));
    assert_eq!(counted(&disk, &path, 512), 3);
    // A table that was never written is removed without a trace.
    let (mut w, disk) = World::with("da1", vec![0; 8 * MIB], 512);
    w.part("create", "da1", json!({ "scheme": "gpt", "no_commit": true }));
    w.part("undo", "da1", json!({}));
    assert!(disk.bytes().iter().all(|b| *b == 0));
    assert!(has_no_table(&mut w, "da1"));
    assert_eq!(w.refused("show", "da9", json!({})).0, Errno::NoEnt);
}

/// U1 of guard.rs.
#[test]
fn create_overwrites_existing_content_only_on_request() {
    let scratch = Scratch::new("class-verbs-create");
    let volume = scratch.image("volume", 16 * MIB as u64);
    run_on(&volume, 512, "mkfs.btrfs", &["-q", "-f", "-L", "data", "--mixed", "@"], "");
    let bytes = std::fs::read(&volume).expect("volume");
    let (mut w, disk) = World::with("ada0", bytes.clone(), 512);
    assert!(w.has("btrfs/data"), "{}", w.taste_outcome("ada0", "label"));
    let (kind, what) = w.refused("create", "ada0", json!({ "scheme": "mbr" }));
    assert!(kind == Errno::Exist && what.contains("Btrfs"), "{what}");
    assert!(disk.bytes() == bytes);
    let open = w.open("btrfs/data", Access::READ);
    let over = json!({ "scheme": "mbr", "yes_destroy": ["ada0"] });
    let (kind, what) = w.refused("create", "ada0", over.clone());
    assert!(kind == Errno::Perm && what.contains("label btrfs/data"), "who holds it: {what}");
    w.close(open);
    w.part("create", "ada0", over.clone());
    assert!(!w.has("btrfs/data"), "{:?}", w.names());
    let (kind, what) = w.refused("create", "ada0", json!({ "scheme": "gpt" }));
    assert!(kind == Errno::Exist && what.contains("MBR"), "{what}");
    w.part("create", "ada0", json!({ "scheme": "gpt", "yes_destroy": ["ada0"] }));
    accepted(&disk, &scratch.path().join("judge"), 512, "gpt");
    w.part("create", "ada0", over);
    accepted(&disk, &scratch.path().join("judge"), 512, "mbr");
    for (params, kind) in [
        (json!({ "scheme": "sun" }), Errno::Inval),
        (json!({ "scheme": "mbr", "entries": 128, "yes_destroy": ["ada0"] }), Errno::Inval),
        (json!({ "scheme": "mbr", "ovrwrite": true }), Errno::Inval),
        (json!({}), Errno::Inval),
        (json!([]), Errno::Inval),
    ] {
        assert_eq!(w.refused("create", "ada0", params).0, kind);
    }
    assert_eq!(w.refused("create", "nix", json!({ "scheme": "gpt" })).0, Errno::NoEnt);
    let (_, what) = w.refused("create", "ada0", json!({ "ovrwrite": true }));
    let takes = "`ovrwrite`; it takes entries, flags, no_commit, provider, scheme, yes_destroy";
    assert_eq!(what, format!("part create has no {takes}"));
    assert_eq!(w.refused("frobnicate", "ada0", json!({})).0, Errno::NotSup);
    let odd = json!({ "kind": "linux-data", "size": { "bytes": 1000 } });
    assert_eq!(w.refused("add", "ada0", odd).0, Errno::Inval);
    let (mut w, disk) = World::with("dark", vec![0; MIB], 512);
    disk.0.lock().expect("media").unreadable = true;
    let (kind, what) = w.refused("create", "dark", json!({ "scheme": "gpt" }));
    assert!(kind == Errno::Io && what.contains("cannot be read"), "{what}");
    let (mut w, _) = World::with("tiny", vec![0; 512 * 8], 512);
    assert_eq!(w.refused("create", "tiny", json!({ "scheme": "gpt" })).0, Errno::NoDev);
}

#[test]
fn recover_rewrites_the_damaged_copy() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-verbs-recover-{size}"));
        for at in [size as usize, 32 * MIB - size as usize] {
            let (w, disk) = two_partitions(size);
            drop(w);
            let mut bytes = disk.bytes();
            bytes[at] ^= 0xff;
            let (mut w, disk) = World::with("ada0", bytes, size);
            assert!(table(&mut w, "ada0").corrupt);
            assert!(w.has("ada0p1") && w.has("ada0p2"));
            let (kind, what) = w.refused("delete", "ada0", json!({ "index": 1 }));
            assert!(kind == Errno::Perm && what.contains("part recover"), "{what}");
            let open = w.open("ada0p1", Access::WRITE);
            assert_eq!(w.part("recover", "ada0", json!({})), "ada0 recovered");
            assert!(!open.orphaned());
            w.close(open);
            let now = table(&mut w, "ada0");
            assert!(!now.corrupt && now.why.is_empty());
            let answer = w.part("recover", "ada0", json!({}));
            assert!(answer.contains("not needed"), "{answer}");
            accepted(&disk, &scratch.path().join("judge"), size, "gpt");
        }
    }
}

#[test]
fn a_table_extends_to_the_new_end_of_a_grown_disk() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-verbs-grow-{size}"));
        let (mut w, disk) = two_partitions(size);
        let open = w.open("ada0p1", Access::WRITE);
        let last = table(&mut w, "ada0").last;
        w.grow("ada0", &disk, 48 * MIB);
        let now = table(&mut w, "ada0");
        assert!(now.modified && now.last > last, "{now:?}");
        assert!(!open.orphaned());
        let note = w.show("part", "ada0", "note").join("");
        assert!(note.contains("part commit ada0"), "{note}");
        w.part("commit", "ada0", json!({}));
        w.write(&open, 0, &vec![3; size as usize]).expect("write");
        w.close(open);
        accepted(&disk, &scratch.path().join("judge"), size, "gpt");
        w.part("resize", "ada0", json!({ "index": 2 }));
        assert!(w.size("ada0p2") > 40 << 20);
        accepted(&disk, &scratch.path().join("judge"), size, "gpt");
        // Undone, the media counts: whole, but its backup is not in the last sector.
        w.grow("ada0", &disk, 56 * MIB);
        w.part("undo", "ada0", json!({}));
        let now = table(&mut w, "ada0");
        assert!(now.corrupt && now.why.contains("not in the last"), "{now:?}");
        assert!(w.has("ada0p1") && w.has("ada0p2"));
        w.part("recover", "ada0", json!({}));
        accepted(&disk, &scratch.path().join("judge"), size, "gpt");
    }
}

#[test]
fn a_disk_that_shrinks_under_a_partition_loses_the_table() {
    let (mut w, disk) = two_partitions(512);
    let open = w.open("ada0p2", Access::READ);
    w.grow("ada0", &disk, 6 * MIB);
    assert_eq!(w.names(), ["ada0"], "the table names sectors that are gone");
    assert!(open.orphaned());
    w.close(open);
    let answer = w.taste_outcome("ada0", "part");
    assert!(!answer.is_empty() && !answer.contains("claimed"), "{answer}");
    // Free space may be overwritten.
    let (mut w, disk) = two_partitions(512);
    w.grow("ada0", &disk, 16 * MIB);
    assert!(table(&mut w, "ada0").modified);
    w.part("commit", "ada0", json!({}));
    assert!(w.has("ada0p2"));
}

#[test]
fn add_warns_about_misalignment() {
    let mut w = World::new();
    let disk = Disk::default();
    disk.0.lock().expect("media").bytes = vec![0; 32 * MIB];
    w.attach("ada0", &disk, 512, (MIB as u64, 0));
    w.part("create", "ada0", json!({ "scheme": "gpt" }));
    let add = json!({ "kind": "efi", "start": { "sectors": 2049 }, "size": { "sectors": 100 } });
    let answer = w.verb("part", "add", "ada0", add).expect("add");
    let text = answer["warnings"][0].as_str().expect("a warning");
    assert!(text.contains("ada0p1") && text.contains("1048576"), "{text}");
    let answer = w.verb("part", "add", "ada0", json!({ "kind": "efi" })).expect("add");
    assert_eq!(answer["warnings"], json!([]), "the stripe size aligns by itself");
    let p = w.find("ada0p1");
    assert_eq!(w.control.topology.stripe(p), (MIB as u64, 512));
}

#[test]
fn requests_in_the_form_of_the_control_path_are_accepted() {
    let (mut w, _) = World::with("ada0", vec![0; 16 * MIB], 512);
    let mut send = |verb: &str, params: Value| w.verb("part", verb, "", params);
    let create = json!({ "provider": "ada0", "scheme": "gpt", "entries": null });
    assert_eq!(send("create", create).expect("create")["message"], "ada0 created");
    let add = json!({ "geom": "ada0", "kind": "linux-data", "align": null,
        "start": null, "size": "1MiB", "index": null, "label": null });
    let answer = send("add", add).expect("add");
    assert_eq!(answer["tables"][0]["entries"][0]["name"], "ada0p1");
    assert_eq!(answer["tables"][0]["entries"][0]["count"], 2048);
    let answer = send("show", json!({ "geoms": [] })).expect("show");
    assert_eq!(answer["tables"][0]["geom"], "ada0");
    assert_eq!(answer["tables"][0]["sector_bytes"], 512);
    let destroy = json!({ "geom": "ada0", "force": true });
    assert_eq!(send("destroy", destroy).expect("destroy")["tables"], json!([]));
    let error = send("add", json!({ "geom": "ada0" })).expect_err("its type is missing");
    assert!(error.message.contains("`type`"), "{error}");
}

#[test]
fn tables_of_other_tools_can_be_edited() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-verbs-theirs-{size}"));
        let path = scratch.image("theirs", 32 * MIB as u64);
        let script = "label: gpt\nsize=4MiB, name=one\nsize=4MiB, name=two\n";
        run_on(&path, size, "sfdisk", &SFDISK, script);
        let (mut w, disk) = World::with("ada0", std::fs::read(&path).expect("image"), size);
        w.part("delete", "ada0", json!({ "index": 1 }));
        w.part("add", "ada0", json!({ "kind": "linux-lvm", "label": "neu" }));
        assert_eq!(counted(&disk, &path, size), 2);
        accepted(&disk, &path, size, "gpt");
        let text = run_on(&path, size, "sfdisk", &["-d", "@"], "");
        assert!(text.contains("\"two\"") && text.contains("\"neu\""), "{text}");
    }
}
