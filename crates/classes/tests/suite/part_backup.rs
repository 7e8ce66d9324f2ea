//! `backup` and `restore`: a restored table equals the one that was backed up, judged by other
//! tools. An error in a backup is reported with its line, and nothing is written.

use bio::Errno;
use classes::part::{self, Backup, Media, RestoreOptions, Scheme, Table};
use geom::Access;
use serde_json::{Value, json};
use std::path::Path;
use testkit::Seeds;

use crate::support::{Scratch, Seed, run_on, table_of};
use crate::world::{Disk, World};

const SIZES: [u32; 2] = [512, 4096];
const MIB: usize = 1 << 20;
const SFDISK: [&str; 5] = ["-q", "--no-reread", "--no-tell-kernel", "--wipe=never", "@"];

/// An image that sfdisk made.
fn theirs(path: &Path, sector: u32, script: &str) -> Vec<u8> {
    run_on(path, sector, "sfdisk", &SFDISK, script);
    std::fs::read(path).expect("image")
}

/// The output of sfdisk for a table, without the lines that may differ.
fn dump(disk: &Disk, path: &Path, sector: u32) -> Vec<String> {
    disk.save(path);
    let text = run_on(path, sector, "sfdisk", &["-d", "@"], "");
    // The device's name precedes the colon.
    let lines = text.lines().filter(|l| l.contains("size=") || l.starts_with("label"));
    lines.map(|l| l.split_once(" : ").map_or(l, |(_, rest)| rest).to_owned()).collect()
}

/// The same without unique ids.
fn bare(lines: &[String]) -> Vec<String> {
    let line = |l: &String| {
        let words = l.split(", ").filter(|w| !w.starts_with("uuid="));
        words.collect::<Vec<_>>().join(", ")
    };
    lines.iter().filter(|l| !l.starts_with("label-id")).map(line).collect()
}

fn backup(w: &mut World, name: &str) -> (String, Value) {
    let answer = w.verb("part", "backup", name, json!({})).expect("backup");
    (answer["text"].as_str().expect("text").to_owned(), answer)
}

fn restore(w: &mut World, name: &str, text: &str, more: Value) -> Result<String, geom::Error> {
    let mut params = json!({ "geoms": [name], "backup": text });
    for (key, value) in more.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    let answer = w.verb("part", "restore", "", params)?;
    Ok(answer["message"].as_str().expect("a message").to_owned())
}

const GPT: &str = "label: gpt\nlabel-id: 11111111-2222-4333-8444-555566667777\nfirst-lba: 64\n\
    size=4MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=\"EFI system\"\n\
    size=8MiB, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=\"wurzel-ü\", \
    attrs=\"LegacyBIOSBootable GUID:50,59\"\n\
    size=2MiB, type=DEADBEEF-0000-4000-8000-000000000001\n";

#[test]
fn a_gpt_is_restored() {
    for sector in SIZES {
        let scratch = Scratch::new(&format!("part-backup-gpt-{sector}"));
        let path = scratch.image("theirs", 64 * MIB as u64);
        let (mut w, disk) = World::with("ada0", theirs(&path, sector, GPT), sector);
        let before = dump(&disk, &path, sector);
        let (text, full) = backup(&mut w, "ada0");
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["GPT", "128"], "{text}");
        assert_eq!(
            (lines[1][0], lines[1][1], &lines[1][4..]),
            ("1", "efi", &["EFI", "system"][..])
        );
        assert_eq!(lines[2][4..], ["wurzel-ü", "[legacy-boot,bootme,bit50]"], "{text}");
        assert_eq!(lines[3][1], "!deadbeef-0000-4000-8000-000000000001", "{text}");
        // Text on another disk: the same partitions, labels when requested, ids of their own.
        let (mut w, disk) = World::with("ada1", vec![0; 64 * MIB], sector);
        let output = restore(&mut w, "ada1", &text, json!({ "labels": true })).expect("restored");
        assert_eq!(output, "ada1 restored");
        assert!(w.has("ada1p1") && w.has("gpt/EFI%20system"), "{:?}", w.names());
        let after = dump(&disk, &path, sector);
        assert_eq!(bare(&after), bare(&before));
        assert!(after.iter().zip(&before).all(|(a, b)| a != b || !a.contains("uuid=")));
        let output = run_on(&path, sector, "sgdisk", &["-v", "@"], "");
        assert!(output.contains("No problems found"), "{output}");
        assert_eq!(backup(&mut w, "ada1").0, text);
        // JSON with ids on the disk that it was made of, whose table is lost: to the byte.
        let old = std::fs::read(scratch.image("again", 64 * MIB as u64)).expect("image");
        let (mut w, disk) = World::with("ada0", old, sector);
        let take = json!({ "labels": true, "ids": true });
        restore(&mut w, "ada0", &full.to_string(), take).expect("restored");
        assert_eq!(dump(&disk, &path, sector), before);
        let mut again = backup(&mut w, "ada0").1;
        again["text"] = full["text"].clone();
        assert_eq!(again, full);
    }
}

#[test]
fn labels_are_restored_only_on_request() {
    let (mut w, _) = World::with("ada0", vec![0; 16 * MIB], 512);
    let text = "# of another disk\n\nGPT 128\n  1 efi 2048 2048 esp [bootonce]\n";
    restore(&mut w, "ada0", text, json!({})).expect("restored");
    assert!(w.has("ada0p1") && !w.has("gpt/esp"));
    let (again, _) = backup(&mut w, "ada0");
    assert!(again.ends_with(" [bootonce]\n") && !again.contains("esp"), "{again}");
}

#[test]
fn an_mbr_and_its_chain_are_restored() {
    let script = "label: dos\nlabel-id: 0x1234abcd\nsize=4MiB, type=83, bootable\n\
        size=40MiB, type=f\nsize=4MiB, type=9f\nsize=5MiB, type=82\nsize=6MiB, type=83\n";
    for sector in SIZES {
        let scratch = Scratch::new(&format!("part-backup-mbr-{sector}"));
        let path = scratch.image("theirs", 64 * MIB as u64);
        let (mut w, disk) = World::with("ada0", theirs(&path, sector, script), sector);
        let before = dump(&disk, &path, sector);
        let (main, full) = backup(&mut w, "ada0");
        let (chain, _) = backup(&mut w, "ada0s2");
        assert!(main.starts_with("MBR 4\n") && main.contains(" !15 "), "{main}");
        assert!(main.contains("[active]") && main.contains(" !159 "), "{main}");
        // Linux leaves a whole MiB before the data; gpart has no word for that.
        assert!(chain.starts_with("EBR ") && chain.contains("[data="), "{chain}");
        let (mut w, disk) = World::with("ada0", vec![0; 64 * MIB], sector);
        restore(&mut w, "ada0", &main, json!({})).expect("restored");
        assert_ne!(dump(&disk, &path, sector)[1], before[1], "another serial number");
        let take = json!({ "ids": true, "force": true });
        restore(&mut w, "ada0", &full.to_string(), take).expect("restored");
        restore(&mut w, "ada0s2", &chain, json!({})).expect("restored");
        assert_eq!(dump(&disk, &path, sector), before);
        assert_eq!(backup(&mut w, "ada0s2").0, chain);
    }
}

#[test]
fn a_disklabel_is_restored() {
    let (mut w, _) = World::with("ada0", vec![0; 32 * MIB], 512);
    w.part("create", "ada0", json!({ "scheme": "bsd", "entries": 20 }));
    for index in [1, 2, 20] {
        let add = json!({ "kind": "freebsd-ufs", "size": { "bytes": MIB }, "index": index });
        w.part("add", "ada0", add);
    }
    let (text, _) = backup(&mut w, "ada0");
    let (mut w, _) = World::with("da1", vec![0; 32 * MIB], 512);
    restore(&mut w, "da1", &text, json!({})).expect("restored");
    assert!(w.has("da1a") && w.has("da1b") && w.has("da1t"), "{:?}", w.names());
    assert_eq!(backup(&mut w, "da1").0, text);
}

/// V1 of part/verbs/mod.rs.
#[test]
fn errors_name_line_and_field_and_nothing_is_written() {
    let head = "GPT 128\n1 efi 2048 2048\n";
    let cases: &[(&str, Errno, &[&str])] = &[
        ("", Errno::Inval, &["line 1", "scheme"]),
        ("LDM 4\n", Errno::Inval, &["line 1", "LDM"]),
        ("GPT many\n", Errno::Inval, &["line 1", "entries", "many"]),
        ("GPT 9999\n", Errno::Inval, &["line 1", "9999"]),
        ("MBR 5\n", Errno::Inval, &["line 1", "5"]),
        ("GPT 128 x\n", Errno::Inval, &["line 1", "\"x\""]),
        ("#\nGPT 128\nx efi 1 1\n", Errno::Inval, &["line 3", "index \"x\""]),
        ("@3 efi 4096", Errno::Inval, &["line 3", "size is missing"]),
        ("@3 efi 4096 1M", Errno::Inval, &["line 3", "size \"1M\""]),
        ("@3 efi -1 2", Errno::Inval, &["line 3", "start \"-1\""]),
        ("@3 nothing 4096 8", Errno::Inval, &["line 3", "type", "nothing"]),
        ("@3 efi 4096 0", Errno::Inval, &["line 3", "size 0"]),
        ("@3 efi 4096 18446744073709551615", Errno::Inval, &["line 3", "size"]),
        ("@0 efi 4096 8", Errno::Inval, &["line 3", "index 0"]),
        ("@129 efi 4096 8", Errno::Inval, &["line 3", "index 129"]),
        ("@1 efi 4096 8", Errno::Exist, &["line 3", "index 1", "as line 2"]),
        ("@2 efi 4095 8", Errno::NoSpc, &["line 3", "start 4095", "as line 2"]),
        ("@2 efi 4096 99999999", Errno::NoSpc, &["line 3", "size 99999999", "last sector"]),
        ("@2 efi 33 8", Errno::NoSpc, &["line 3", "start 33"]),
        ("@2 efi 4096 8 [bootmee]", Errno::Inval, &["line 3", "attribute", "bootmee"]),
        ("@2 efi 4096 8 [bit64]", Errno::Inval, &["line 3", "bit64"]),
        ("@2 efi 4096 8 [data=4100]", Errno::Inval, &["line 3", "data 4100"]),
        ("@2 efi 4096 8 x [bootme", Errno::Inval, &["line 3", "]"]),
        ("@2 efi 4096 8 0123456789012345678901234567890123456", Errno::Inval, &["line 3", "label"]),
        ("{\"scheme\":\"GPT\"}", Errno::Inval, &["partitions"]),
        (
            "{\"scheme\":\"GPT\",\"partitions\":[{\"index\":1,\"kind\":\"efi\",\"start\":1,\
          \"count\":8}]}",
            Errno::NoSpc,
            &["partitions[0]", "start 1"],
        ),
        (
            "{\"scheme\":\"GPT\",\"sector_bytes\":4096,\"partitions\":[]}",
            Errno::Inval,
            &["sector_bytes 4096", "512"],
        ),
        ("{\"scheme\":\"GPT\",\"attributes\":[\"x\"],\"partitions\":[]}", Errno::Inval, &["\"x\""]),
    ];
    // With a table that would be lost, and without one.
    for with in [false, true] {
        let (mut w, disk) = World::with("ada0", vec![0; 16 * MIB], 512);
        if with {
            w.part("create", "ada0", json!({ "scheme": "mbr" }));
            w.part("add", "ada0", json!({ "kind": "linux-data" }));
        }
        let (bytes, names) = (disk.bytes(), w.names());
        for (text, kind, words) in cases {
            let text = match text.strip_prefix('@') {
                Some(line) => format!("{head}{line}\n"),
                None => (*text).to_owned(),
            };
            let take = json!({ "labels": true, "force": true });
            let error = restore(&mut w, "ada0", &text, take).expect_err(&text);
            assert_eq!(error.kind, *kind, "{text}: {error}");
            assert!(words.iter().all(|word| error.message.contains(word)), "{text}: {error}");
            assert!(disk.bytes() == bytes && w.names() == names, "{text}: nothing changes");
        }
        // Ids of text are none.
        let error = restore(&mut w, "ada0", head, json!({ "ids": true, "force": true }));
        assert!(error.is_err_and(|e| e.message.contains("line 2, the uuid")));
        assert!(disk.bytes() == bytes && w.names() == names);
    }
}

#[test]
fn restore_overwrites_only_with_force_and_never_an_open_partition() {
    let text = "GPT 128\n1 linux-data 2048 2048\n2 linux-data 4096 2048\n";
    let (mut w, disk) = World::with("ada0", vec![0; 16 * MIB], 512);
    restore(&mut w, "ada0", text, json!({})).expect("restored");
    let bytes = disk.bytes();
    let other = "MBR 4\n1 linux-data 2048 4096\n";
    let error = restore(&mut w, "ada0", other, json!({})).expect_err("a table is there");
    assert!(error.kind == Errno::Exist && error.message.contains("force"), "{error}");
    let open = w.open("ada0p2", Access::READ);
    let error = restore(&mut w, "ada0", other, json!({ "force": true })).expect_err("open");
    assert_eq!(error.kind, Errno::Busy, "{error}");
    w.close(open);
    assert!(disk.bytes() == bytes);
    // Edits that wait are neither lost nor written by the way.
    w.part("delete", "ada0", json!({ "index": 1, "no_commit": true }));
    let error = restore(&mut w, "ada0", other, json!({ "force": true })).expect_err("edits");
    assert!(error.kind == Errno::Busy && error.message.contains("undo"), "{error}");
    // The backup of a table with pending edits contains the table on the disk.
    assert_eq!(backup(&mut w, "ada0").0.lines().count(), 3);
    w.part("undo", "ada0", json!({}));
    restore(&mut w, "ada0", other, json!({ "force": true })).expect("restored");
    assert_eq!(w.names(), ["ada0", "ada0s1"]);
    // Waiting, then forgotten: the disk never knew.
    let bytes = disk.bytes();
    let waits = json!({ "force": true, "no_commit": true });
    restore(&mut w, "ada0", text, waits).expect("in memory");
    assert!(w.has("ada0p2") && disk.bytes() == bytes);
    w.part("undo", "ada0", json!({}));
    assert!(w.has("ada0s1") && !w.has("ada0p2") && disk.bytes() == bytes);
}

#[test]
fn restore_changes_all_named_providers_or_none() {
    let text = "GPT 128\n1 linux-data 2048 20000\n";
    let (mut w, one) = World::with("da1", vec![0; 16 * MIB], 512);
    let two = Disk::default();
    two.0.lock().expect("media").bytes = vec![0; 4 * MIB];
    w.attach("da2", &two, 512, (0, 0));
    let params = json!({ "geoms": ["da1", "da2"], "backup": text });
    let error = w.verb("part", "restore", "", params.clone()).expect_err("too small");
    assert!(error.message.contains("line 2, size 20000"), "{error}");
    assert!(one.bytes().iter().chain(&two.bytes()).all(|b| *b == 0), "neither was written");
    assert_eq!(w.names(), ["da1", "da2"]);
    let mut ids = params.clone();
    ids["ids"] = true.into();
    assert!(w.verb("part", "restore", "", ids).is_err_and(|e| e.message.contains("one provider")));
    let mut fits = params;
    fits["backup"] = "GPT 128\n1 linux-data 2048 2000\n".into();
    let answer = w.verb("part", "restore", "", fits).expect("on both");
    assert_eq!(answer["message"], "da1 restored\nda2 restored");
    assert!(w.has("da1p1") && w.has("da2p1"));
    assert_ne!(
        one.bytes()[512 + 56..512 + 72],
        two.bytes()[512 + 56..512 + 72],
        "ids of their own"
    );
}

/// A file system in front of the first partition is removed, the data of the partition stays.
#[test]
fn restore_keeps_the_data_of_a_partition_whose_table_was_lost() {
    let scratch = Scratch::new("part-backup-lost");
    let path = scratch.image("swap", 16 * MIB as u64);
    run_on(&path, 512, "mkswap", &["-q", "-L", "old", "@"], "");
    let mut bytes = std::fs::read(&path).expect("image");
    bytes[63 * 512..].fill(0x5a);
    let (mut w, disk) = World::with("ada0", bytes, 512);
    let text = "MBR 4\n1 linux-data 63 30000\n";
    let error = restore(&mut w, "ada0", text, json!({})).expect_err("swap is there");
    assert!(error.kind == Errno::Exist && error.message.contains("Linux swap space"), "{error}");
    let error = restore(&mut w, "ada0", text, json!({ "force": true })).expect_err("no table");
    assert_eq!(error.destroys, ["ada0"], "{error}");
    restore(&mut w, "ada0", text, json!({ "yes_destroy": ["ada0"] })).expect("restored");
    let now = disk.bytes();
    assert!(now[512..63 * 512].iter().all(|b| *b == 0), "the swap space is gone");
    assert!(now[63 * 512..30_063 * 512].iter().all(|b| *b == 0x5a), "the data is not");
}

/// Random tables: the backup, as text and as JSON, makes the same table.
#[test]
fn any_table_equals_its_restored_backup() {
    for seed in Seeds::of(1000) {
        let mut seed = Seed(seed);
        let sector = if seed.below(2) == 0 { 512 } else { 4096 };
        let sectors = 4096 + seed.below(100_000);
        let scheme = [Scheme::Gpt, Scheme::Mbr, Scheme::Ebr, Scheme::Bsd][seed.below(4) as usize];
        let media = Media::plain(sectors, sector);
        let entries = (scheme == Scheme::Gpt).then(|| 128 + seed.below(200) as u32);
        let create = part::params::Create { scheme, entries };
        let mut table = Table::create(media, &create, seed.bytes()).expect("create");
        for _ in 0..seed.below(12) {
            let kind = match scheme {
                Scheme::Gpt => ["efi", "linux-data", "!deadbeef-0000-4000-8000-000000000001"],
                Scheme::Bsd => ["freebsd-ufs", "!200", "freebsd-zfs"],
                Scheme::Mbr | Scheme::Ebr => ["linux-data", "!159", "efi"],
            };
            let label = ["", "a b", "[x]", " ", "\\u{41}"][seed.below(5) as usize];
            let spec = part::params::Add {
                kind: kind[seed.below(3) as usize].to_owned(),
                size: Some(part::params::Amount::Sectors(1 + seed.below(2000))),
                align: Some(part::params::Amount::Sectors(1 + seed.below(300))),
                label: (scheme == Scheme::Gpt).then(|| label.to_owned()),
                ..<_>::default()
            };
            table = table.add(&spec, seed.bytes()).map_or(table, |(table, _)| table);
        }
        let backup = table.backup();
        let json = serde_json::to_string(&backup).expect("JSON");
        let source = Backup::read(&json).expect("read");
        let take = RestoreOptions { labels: true, ids: true };
        let again = source.table(media, take, &[]).unwrap_or_else(|e| panic!("{e}: {json}"));
        assert_eq!(again.backup(), backup);
        assert_eq!(plan(&again), plan(&table), "to the byte\n{}", backup.text);
        let source = Backup::read(&backup.text).expect("read");
        let again =
            source.table(media, RestoreOptions { labels: true, ids: false }, &[[7; 16]; 20]);
        let again = again.unwrap_or_else(|e| panic!("{e}: {}", backup.text));
        assert_eq!(again.backup().text, backup.text);
    }
}

/// Bytes that mean something in a backup.
const ODD: &[u8] = b"0123456789 [],=#{}\"\\\nx!";

/// Damaged text and JSON: refused, or a table that can be written.
#[test]
fn a_damaged_backup_is_refused_or_gives_a_valid_table() {
    let media = Media::plain(1 << 16, 512);
    let text = "GPT 128\n1 efi 2048 2048 EFI [bootme,bit50]\n2 linux-data 4096 60000 x\n";
    let json = "{\"scheme\":\"EBR\",\"entries\":256,\"partitions\":[{\"index\":1,\"kind\":\"efi\",\
        \"start\":0,\"count\":2048,\"data\":64,\"attributes\":[\"active\"]}]}";
    let mut seed = Seed(41);
    let mut taken = 0;
    for _ in 0..20_000 {
        let start = if seed.below(3) == 0 { json } else { text };
        let mut bytes = start.as_bytes().to_vec();
        for _ in 0..1 + seed.below(3) {
            let at = seed.below(bytes.len() as u64) as usize;
            match seed.below(4) {
                0 => bytes[at] = ODD[seed.below(ODD.len() as u64) as usize],
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, bytes[seed.below(at as u64 + 1) as usize]),
                _ => bytes.truncate(at.max(8)),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let take = RestoreOptions { labels: seed.below(2) == 0, ids: false };
        let Ok(table) = Backup::read(&text).and_then(|read| read.table(media, take, &[])) else {
            continue;
        };
        taken += 1;
        assert!(!plan(&table).is_empty(), "{text}");
        let mut entries = table.entries().to_vec();
        entries.sort_by_key(|entry| entry.start);
        assert!(entries.windows(2).all(|two| two[0].end < two[1].start), "{text}");
        assert!(
            entries.iter().all(|e| e.start >= table.first() && e.end <= table.last()),
            "{text}"
        );
    }
    assert!((2000..19_000).contains(&taken), "{taken}");
}

/// The writes of a table; for a chain those of every record.
fn plan(table: &Table) -> String {
    format!("{:?}", part::plan(None, table).expect("a plan"))
}

#[test]
fn a_damaged_table_is_backed_up_in_its_recovered_form() {
    let scratch = Scratch::new("part-backup-damaged");
    let path = scratch.image("theirs", 64 * MIB as u64);
    let mut bytes = theirs(&path, 512, GPT);
    let table = table_of(&path, 512).expect("whole");
    bytes[512..1024].fill(0);
    let (mut w, _) = World::with("ada0", bytes, 512);
    assert_eq!(backup(&mut w, "ada0").1["partitions"].as_array().map(Vec::len), Some(3));
    assert_eq!(backup(&mut w, "ada0").0, table.backup().text);
    let error = w.verb("part", "backup", "nowhere", json!({})).expect_err("no such provider");
    assert_eq!(error.kind, Errno::NoEnt);
}
