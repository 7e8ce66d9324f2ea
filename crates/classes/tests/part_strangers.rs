//! Tables of ours read by other people's tools, and theirs by us.

mod support;

use classes::part::params::{Add, Amount, Attribute, Create, Modify, Resize};
use classes::part::{self, Damage, Health, Kind, Media, Place, Scheme, Table};
use std::collections::BTreeSet;
use std::path::Path;
use support::{Scratch, Window, apply_to, damage_file, run_on, table_of};

const SIZES: [u32; 2] = [512, 4096];
const MIB: u64 = 1 << 20;
const OPEN: &BTreeSet<u32> = &BTreeSet::new();

/// What `sfdisk -d` says of a table: (index, start, sectors, lower-case rest of the line).
fn dump(path: &Path, sector_size: u32) -> Vec<(u32, u64, u64, String)> {
    let text = run_on(path, sector_size, "sfdisk", &["-d", "@"], "");
    let line = |line: &str| {
        let (name, rest) = line.split_once(" : ")?;
        let digits = name.trim_end();
        let index: String = digits
            .chars()
            .rev()
            .take_while(char::is_ascii_digit)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        let number = |key: &str| -> Option<u64> {
            let value = rest.split_once(key)?.1.trim_start();
            value.split(',').next()?.trim().parse().ok()
        };
        Some((
            index.parse().ok()?,
            number("start=")?,
            number("size=")?,
            rest.to_lowercase().replace("\\xc3\\xbc", "ü"),
        ))
    };
    text.lines().filter_map(line).collect()
}

fn same_as_dump(table: &Table, path: &Path, sector_size: u32) {
    let theirs = dump(path, sector_size);
    assert_eq!(theirs.len(), table.entries().len(), "{theirs:?}");
    for (entry, (index, start, sectors, rest)) in table.entries().iter().zip(theirs) {
        let ours = (entry.index, entry.start, entry.data_sectors());
        assert_eq!(ours, (index, start, sectors), "{rest}");
        if table.scheme() == Scheme::Gpt {
            assert!(rest.contains(&entry.guid.to_string()), "{rest}");
            assert!(rest.contains(entry.kind.raw().trim_start_matches('!')), "{rest}");
            assert!(rest.contains(&entry.label().to_lowercase()), "{rest}");
        }
    }
}

fn accepted(path: &Path, sector_size: u32) {
    let text = run_on(path, sector_size, "sgdisk", &["-v", "@"], "");
    assert!(text.contains("No problems found"), "{text}");
    let text = run_on(path, sector_size, "sfdisk", &["--verify", "@"], "");
    assert!(text.contains("No errors detected"), "{text}");
}

const SFDISK: [&str; 5] = ["-q", "--no-reread", "--no-tell-kernel", "--wipe=never", "@"];

fn theirs(path: &Path, sector_size: u32) {
    let script = "label: gpt\nlabel-id: 11111111-2222-4333-8444-555566667777\n\
        size=4MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=\"EFI system\"\n\
        size=8MiB, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=\"wurzel-ü\", \
        attrs=\"LegacyBIOSBootable GUID:59\"\n\
        size=2MiB, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F\n";
    run_on(path, sector_size, "sfdisk", &SFDISK, script);
}

fn ours(path: &Path, sector_size: u32) -> Table {
    let bytes = std::fs::metadata(path).expect("image").len();
    let media = Media::plain(bytes / u64::from(sector_size), sector_size);
    let create = Create { scheme: Scheme::Gpt, entries: None };
    let mut table = Table::create(media, &create, *b"0123456789abcdef").expect("create");
    let text = |text: &str| Some(Amount::Text(text.to_owned()));
    for (kind, size, label) in [
        ("efi", text("4m"), "EFI system"),
        ("freebsd-ufs", text("3m"), "wurzel-ü"),
        ("linux-data", None, ""),
    ] {
        let label = Some(label.to_owned());
        let align = text("1m");
        let add = Add { kind: kind.to_owned(), size, label, align, ..Add::default() };
        table = table.add(&add, [table.entries().len() as u8; 16]).expect("add").0;
    }
    apply_to(path, &part::plan(None, &table).expect("plan"));
    table
}

#[test]
fn sfdisk_gpt_is_read() {
    let scratch = Scratch::new("part-sfdisk");
    for size in SIZES {
        let path = scratch.image("gpt", 64 * MIB);
        theirs(&path, size);
        let table = table_of(&path, size).expect("a table");
        assert_eq!((table.scheme(), table.damage()), (Scheme::Gpt, &[][..]));
        let guid = table.disk_guid().map(|guid| guid.to_string());
        assert_eq!(guid.as_deref(), Some("11111111-2222-4333-8444-555566667777"));
        let entry = table.entry(2).expect("second");
        assert_eq!(entry.label(), "wurzel-ü");
        assert_eq!(entry.attribute_names(), ["legacy-boot", "bootme"]);
        assert_eq!(entry.kind.to_string(), "linux-data");
        same_as_dump(&table, &path, size);
    }
}

#[test]
fn parted_and_sgdisk_tables_are_read_and_edited() {
    let scratch = Scratch::new("part-parted");
    for size in SIZES {
        let path = scratch.image("parted", 64 * MIB);
        let script = [
            "-s", "@", "mklabel", "gpt", "mkpart", "one", "1MiB", "5MiB", "mkpart", "two", "9MiB",
            "20MiB",
        ];
        run_on(&path, size, "parted", &script, "");
        let table = table_of(&path, size).expect("a table");
        assert_eq!(table.damage(), &[]);
        same_as_dump(&table, &path, size);
        let shrunk = Resize { index: 2, size: Some(Amount::Text("4m".into())), align: None };
        let new = table.resize(&shrunk, OPEN).expect("resize").delete(1, OPEN).expect("delete");
        apply_to(&path, &part::plan(Some(&table), &new).expect("plan"));
        accepted(&path, size);
        same_as_dump(&new, &path, size);

        let path = scratch.image("sgdisk", 64 * MIB);
        let args = ["-S", "256", "-n", "7:0:+3M", "-t", "7:8200", "-c", "7:auslagern", "@"];
        run_on(&path, size, "sgdisk", &args, "");
        let table = table_of(&path, size).expect("a table");
        assert_eq!((table.capacity(), table.damage()), (256, &[][..]), "count is the header's");
        assert_eq!(table.entry(7).map(|entry| entry.label()).as_deref(), Some("auslagern"));
        let modify = Modify { index: 7, kind: None, label: Some("swap".into()) };
        let new = table.modify(&modify).expect("modify");
        apply_to(&path, &part::plan(Some(&table), &new).expect("plan"));
        accepted(&path, size);
        same_as_dump(&new, &path, size);
    }
}

#[test]
fn our_gpt_is_accepted() {
    let scratch = Scratch::new("part-ours");
    for size in SIZES {
        let path = scratch.image("gpt", 64 * MIB);
        let table = ours(&path, size);
        accepted(&path, size);
        same_as_dump(&table, &path, size);
        let text = run_on(&path, size, "sgdisk", &["-i", "2", "@"], "");
        assert!(text.contains("516E7CB6-6ECF-11D6-8FF8-00022D09712B"), "{text}");
        assert!(text.contains("Partition name: 'wurzel-ü'"), "{text}");
        let set = Attribute { attrib: "bootonce".into(), index: Some(2) };
        let active = Attribute { attrib: "active".into(), index: None };
        let old = table_of(&path, size).expect("table");
        let new = old.attribute(&set, true).and_then(|t| t.attribute(&active, true)).expect("set");
        apply_to(&path, &part::plan(Some(&old), &new).expect("plan"));
        accepted(&path, size);
        let text = run_on(&path, size, "sfdisk", &["--part-attrs", "@", "2"], "");
        assert!(text.contains("58") && text.contains("59"), "{text}");
        apply_to(&path, &part::destroy_plan(&new));
        assert!(table_of(&path, size).is_err());
        let text = run_on(&path, size, "sgdisk", &["-p", "@"], "");
        assert!(text.contains("Creating new GPT entries"), "{text}");
    }
}

#[test]
fn what_we_repair_is_accepted() {
    let scratch = Scratch::new("part-repair");
    for size in SIZES {
        let unit = u64::from(size);
        let last = 64 * MIB / unit - 1;
        for (at, want) in [
            (1, Damage::PrimaryHeader(Health::Missing)),
            (2, Damage::PrimaryTable(Health::Corrupt)),
            (last, Damage::SecondaryHeader(Health::Missing)),
            (last - 128 * 128 / unit, Damage::SecondaryTable(Health::Corrupt)),
        ] {
            let path = scratch.image("gpt", 64 * MIB);
            theirs(&path, size);
            damage_file(&path, at * unit, 512, 0xa5);
            let table = table_of(&path, size).expect("one copy is whole");
            assert_eq!(table.damage(), &[want]);
            let whole = table.recover().expect("recover");
            apply_to(&path, &part::plan(Some(&table), &whole).expect("plan"));
            assert_eq!(table_of(&path, size).expect("table").damage(), &[]);
            accepted(&path, size);
            same_as_dump(&whole, &path, size);
        }
        // A disk that has grown, with its protective MBR too small.
        let path = scratch.image("grown", 64 * MIB);
        theirs(&path, size);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|f| f.set_len(96 * MIB))
            .expect("grow");
        let table = table_of(&path, size).expect("table");
        assert_eq!(table.damage(), &[Damage::BackupNotLast { at: last }]);
        let whole = table.recover().expect("recover");
        apply_to(&path, &part::plan(Some(&table), &whole).expect("plan"));
        accepted(&path, size);
        assert!(whole.last() * unit > 95 * MIB);
    }
}

#[test]
fn what_sgdisk_repairs_is_read() {
    let scratch = Scratch::new("part-sgdisk-repair");
    for size in SIZES {
        let unit = u64::from(size);
        let last = 64 * MIB / unit - 1;
        for at in [1, last] {
            let path = scratch.image("gpt", 64 * MIB);
            let table = ours(&path, size);
            damage_file(&path, at * unit, 512, 0);
            assert!(table_of(&path, size).expect("one copy").is_corrupt());
            run_on(&path, size, "sgdisk", &["-e", "@"], "");
            let found = table_of(&path, size).expect("table");
            assert_eq!(found.damage(), &[]);
            assert_eq!(found.entries(), table.entries());
        }
        // Moved by sgdisk after the disk has grown.
        let path = scratch.image("grown", 64 * MIB);
        let table = ours(&path, size);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|f| f.set_len(80 * MIB))
            .expect("grow");
        run_on(&path, size, "sgdisk", &["-e", "@"], "");
        let found = table_of(&path, size).expect("table");
        assert_eq!((found.damage(), found.entries()), (&[][..], table.entries()));
    }
}

/// Logical partitions as others number and place them: (number, first sector on the disk, sectors).
fn numbered(ebr: &Table, base: u64) -> Vec<(u32, u64, u64)> {
    let number = |entry| ebr.logical_number(entry).expect("a number");
    let mut all: Vec<_> = ebr
        .entries()
        .iter()
        .map(|entry| (number(entry), base + entry.data, entry.data_sectors()))
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn mbr_with_logical_partitions_both_ways() {
    let scratch = Scratch::new("part-mbr");
    for size in SIZES {
        let unit = u64::from(size);
        let path = scratch.image("mbr", 64 * MIB);
        let script = "label: dos\nlabel-id: 0xdeadbeef\nsize=4MiB, type=83, bootable\n\
            size=4MiB, type=c\nsize=40MiB, type=f\n5 : size=6MiB, type=82\n6 : size=7MiB, type=83\n\
            7 : size=8MiB, type=8e\n";
        run_on(&path, size, "sfdisk", &SFDISK, script);
        let mbr = table_of(&path, size).expect("an MBR");
        assert_eq!((mbr.scheme(), mbr.disk_serial()), (Scheme::Mbr, Some(0xdead_beef)));
        assert_eq!(mbr.entries().len(), 3);
        assert_eq!(mbr.entry(1).map(|entry| entry.attribute_names()), Some(vec!["active"]));
        let outer = mbr.entry(3).expect("extended").clone();
        assert_eq!(outer.kind.to_string(), "ebr");
        let window = Window::new(&path, outer.start * unit, outer.data_sectors() * unit);
        let place = Place {
            scheme: Some(Scheme::Mbr),
            kind: Some(outer.kind),
            depth: 1,
            ..Place::default()
        };
        let ebr = window.probe(size, &place).expect("a chain");
        assert_eq!((ebr.scheme(), ebr.damage()), (Scheme::Ebr, &[][..]));
        let logical = |path: &Path| -> Vec<(u32, u64, u64)> {
            dump(path, size).into_iter().filter(|e| e.0 > 4).map(|e| (e.0, e.1, e.2)).collect()
        };
        assert_eq!(numbered(&ebr, outer.start), logical(&path));
        assert_eq!(logical(&path).len(), 3);

        // Delete the middle one, put another in its place, grow the last: each committed.
        let mut chain = ebr;
        let middle = chain.entries()[1].index;
        let commit = |old: &Table, new: Table| {
            window.apply(&part::plan(Some(old), &new).expect("plan"));
            let read = window.probe(size, &place).expect("a chain");
            assert_eq!((read.entries(), read.damage()), (new.entries(), &[][..]));
            assert_eq!(numbered(&read, outer.start), logical(&path));
            let text = run_on(&path, size, "sfdisk", &["--verify", "@"], "");
            assert!(text.contains("No errors detected"), "{text}");
            read
        };
        chain = commit(&chain, chain.delete(middle, OPEN).expect("delete"));
        let add = Add {
            kind: "linux-data".into(),
            align: Some(Amount::Text("1m".into())),
            size: Some(Amount::Text("3m".into())),
            ..Add::default()
        };
        chain = commit(&chain, chain.add(&add, [0; 16]).expect("add").0);
        let last = chain.entries().iter().max_by_key(|entry| entry.start).expect("last").index;
        let grow = Resize { index: last, size: Some(Amount::Text("10m".into())), align: None };
        chain = commit(&chain, chain.resize(&grow, OPEN).expect("resize"));
        let first = chain.entries()[0].index;
        commit(&chain, chain.delete(first, OPEN).expect("delete"));

        // The primary table edited by us keeps serial, flag and the extended partition.
        let type_to = Modify { index: 2, kind: Some("linux-lvm".into()), label: None };
        let new = mbr.modify(&type_to).expect("modify");
        apply_to(&path, &part::plan(Some(&mbr), &new).expect("plan"));
        let text = run_on(&path, size, "sfdisk", &["-d", "@"], "");
        assert!(text.contains("label-id: 0xdeadbeef") && text.contains("type=8e"), "{text}");
        assert!(text.contains("bootable"), "{text}");
    }
}

#[test]
fn our_mbr_from_nothing_is_accepted() {
    let scratch = Scratch::new("part-our-mbr");
    for size in SIZES {
        let unit = u64::from(size);
        let path = scratch.image("mbr", 64 * MIB);
        let media = Media::plain(64 * MIB / unit, size);
        let create = |scheme| Create { scheme, entries: None };
        let mbr = Table::create(media, &create(Scheme::Mbr), [0x11; 16]).expect("create");
        let add = |kind: &str, bytes: &str| Add {
            kind: kind.into(),
            align: Some(Amount::Text("1m".into())),
            size: Some(Amount::Text(bytes.into())),
            ..Add::default()
        };
        let (mbr, _) = mbr.add(&add("linux-data", "5m"), [0; 16]).expect("add");
        let (mbr, index) = mbr.add(&add("ebr", "30m"), [0; 16]).expect("add");
        apply_to(&path, &part::plan(None, &mbr).expect("plan"));
        let outer = mbr.entry(index).expect("extended");
        let len = outer.data_sectors() * unit;
        let window = Window::new(&path, outer.start * unit, len);
        let inner = Media::plain(outer.data_sectors(), size);
        let mut chain = Table::create(inner, &create(Scheme::Ebr), [0; 16]).expect("create");
        window.apply(&part::plan(None, &chain).expect("plan"));
        for bytes in ["4m", "5m", "6m"] {
            let (new, _) = chain.add(&add("linux-data", bytes), [0; 16]).expect("add");
            window.apply(&part::plan(Some(&chain), &new).expect("plan"));
            chain = part::committed(&new).expect("committed");
        }
        let theirs: Vec<(u32, u64)> = dump(&path, size).iter().map(|e| (e.0, e.2 * unit)).collect();
        let want = [(1, 5), (2, 30), (5, 4), (6, 5), (7, 6)];
        assert_eq!(theirs, want.map(|(index, mib)| (index, mib * MIB)));
        let text = run_on(&path, size, "sfdisk", &["--verify", "@"], "");
        assert!(text.contains("No errors detected"), "{text}");
        assert_eq!(mbr.entry(1).map(|e| e.kind), Some(Kind::Byte(0x83)));
    }
}
