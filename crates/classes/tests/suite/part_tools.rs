//! Tables of ours read by other tools, and theirs by us.

use classes::part::params::{Add, Amount, Attribute, Create, Modify, Resize};
use classes::part::{self, Damage, Health, Kind, Media, Scheme, Table, TableContext};
use classes::probe::Reason;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{Scratch, Window, apply_to, damage_file, run_on, table_of};

const SIZES: [u32; 2] = [512, 4096];
const MIB: u64 = 1 << 20;
const OPEN: &BTreeSet<u32> = &BTreeSet::new();

/// The output of `sfdisk -d` for a table: (index, start, sectors, lower-case rest of the line).
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
fn tables_repaired_by_us_are_accepted() {
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
fn tables_repaired_by_sgdisk_are_read() {
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
fn mbr_with_logical_partitions_is_read_and_accepted() {
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
        let place = TableContext {
            scheme: Some(Scheme::Mbr),
            kind: Some(outer.kind),
            depth: 1,
            ..TableContext::default()
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
fn our_new_mbr_is_accepted() {
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

/// CRC-32 as GPT has it.
fn crc(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

/// Another value of eight bytes in a header, with its checksum.
fn set_header(path: &Path, unit: u64, sector: u64, at: usize, value: u64) {
    let mut header = read_at(path, sector * unit, 92);
    header[at..at + 8].copy_from_slice(&value.to_le_bytes());
    header[16..20].fill(0);
    let sum = crc(&header).to_le_bytes();
    header[16..20].copy_from_slice(&sum);
    write_at(path, sector * unit, &header);
}

/// Another first and last sector of an entry, in both copies.
fn set_entry(path: &Path, unit: u64, index: u64, (start, end): (u64, u64)) {
    let last = 64 * MIB / unit - 1;
    for (header, table) in [(1, 2), (last, last - 128 * 128 / unit)] {
        let mut entries = read_at(path, table * unit, 128 * 128);
        let at = (index as usize - 1) * 128 + 32;
        entries[at..at + 8].copy_from_slice(&start.to_le_bytes());
        entries[at + 8..at + 16].copy_from_slice(&end.to_le_bytes());
        write_at(path, table * unit, &entries);
        write_at(path, header * unit + 88, &crc(&entries).to_le_bytes());
        set_header(path, unit, header, 24, header);
    }
}

fn read_at(path: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(path).expect("image");
    file.read_exact_at(&mut bytes, at).expect("read");
    bytes
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).expect("image");
    file.write_all_at(bytes, at).expect("written");
}

/// Checks that sfdisk accepts the table.
fn verified(path: &Path, size: u32) {
    let text = run_on(path, size, "sfdisk", &["--verify", "@"], "");
    assert!(text.contains("No errors detected"), "{text}");
}

#[test]
fn usable_range_that_reaches_into_the_arrays_is_accepted() {
    let scratch = Scratch::new("part-usable");
    for size in SIZES {
        let unit = u64::from(size);
        let (end, length) = (64 * MIB / unit - 1, 128 * 128 / unit);
        let array = end - length;
        let cases = [(40, 1 + length), (40, 1), (48, array), (48, end - 1), (48, end)];
        for (field, value) in cases {
            let path = scratch.image("gpt", 64 * MIB);
            theirs(&path, size);
            for header in [1, end] {
                set_header(&path, unit, header, field, value);
            }
            verified(&path, size);
            let table = table_of(&path, size).unwrap_or_else(|why| panic!("{value}: {why}"));
            assert_eq!(table.damage(), &[], "field {field} is {value}");
            same_as_dump(&table, &path, size);
            let range = (table.first() >= 2 + length, table.last() < array);
            assert_eq!(range, (true, true), "{} to {}", table.first(), table.last());
            // All free space is given away, and both copies are still whole.
            let mut new = table.clone();
            while let Ok((next, _)) = new.add(&all_free(), [new.entries().len() as u8; 16]) {
                new = next;
            }
            let used = (
                new.entries().iter().map(|e| e.start).min(),
                new.entries().iter().map(|e| e.end).max(),
            );
            assert_eq!(used, (Some(table.first()), Some(table.last())));
            apply_to(&path, &part::plan(Some(&table), &new).expect("plan"));
            assert_eq!(table_of(&path, size).expect("table").damage(), &[]);
            accepted(&path, size);
            same_as_dump(&new, &path, size);
        }
    }
}

fn all_free() -> Add {
    Add { kind: "linux-data".into(), ..Add::default() }
}

#[test]
fn partition_over_an_array_is_shown_and_not_edited() {
    let scratch = Scratch::new("part-covered");
    for size in SIZES {
        let unit = u64::from(size);
        let (end, length) = (64 * MIB / unit - 1, 128 * 128 / unit);
        let array = end - length;
        let mib = MIB / unit;
        let cases = [(3, 48, array, (16 * mib, array)), (1, 40, 1 + length, (1 + length, 4 * mib))];
        for (index, field, value, place) in cases {
            let path = scratch.image("gpt", 64 * MIB);
            theirs(&path, size);
            set_entry(&path, unit, index, place);
            for header in [1, end] {
                set_header(&path, unit, header, field, value);
            }
            verified(&path, size);
            let table = table_of(&path, size).unwrap_or_else(|why| panic!("{value}: {why}"));
            assert_eq!(table.damage(), &[Damage::TableCovered]);
            same_as_dump(&table, &path, size);
            let refused = table.add(&all_free(), [9; 16]).expect_err("damaged");
            assert!(refused.to_string().contains("covers sectors of the table"), "{refused}");
            let refused = table.recover().expect_err("no room").to_string();
            assert!(refused.contains("a partition") && refused.contains("needs sectors"));
        }
    }
}

#[test]
fn table_of_a_disk_that_shrank_is_read_and_recovered() {
    let scratch = Scratch::new("part-shrunk");
    for size in SIZES {
        let unit = u64::from(size);
        let was = 64 * MIB / unit;
        let cut = |path: &Path, bytes| {
            let file = std::fs::File::options().write(true).open(path).expect("image");
            file.set_len(bytes).expect("shorter");
        };
        let path = scratch.image("gpt", 64 * MIB);
        theirs(&path, size);
        let old = table_of(&path, size).expect("a table");
        cut(&path, 40 * MIB);
        let table = table_of(&path, size).expect("the table is read");
        let want = [Damage::SecondaryHeader(Health::Missing), Damage::Shrunk { was }];
        assert_eq!((table.damage(), table.entries()), (&want[..], old.entries()));
        let refused = table.add(&all_free(), [9; 16]).expect_err("damaged").to_string();
        assert!(refused.contains("part recover"), "{refused}");
        let whole = table.recover().expect("recover");
        apply_to(&path, &part::plan(Some(&table), &whole).expect("plan"));
        let found = table_of(&path, size).expect("table");
        assert_eq!((found.damage(), found.entries()), (&[][..], old.entries()));
        accepted(&path, size);
        // The last partition ends where the backup would be.
        let path = scratch.image("tight", 64 * MIB);
        theirs(&path, size);
        let ends = old.entries().last().expect("an entry").end + 1;
        cut(&path, ends * unit);
        let table = table_of(&path, size).expect("the table is read");
        assert_eq!(table.damage().last(), Some(&Damage::TableCovered));
        let refused = table.recover().expect_err("no room").to_string();
        assert!(refused.contains(&format!("ends in sector {}", ends - 1)), "{refused}");
        // It is cut.
        cut(&path, (ends - 1) * unit);
        let why = table_of(&path, size).expect_err("a partition is cut");
        assert_eq!(why.reason, Reason::Integrity);
        let text = why.to_string();
        let range = format!("{} is out of range", ends - 1);
        assert!(text.contains("larger disk") && text.contains(&range), "{text}");
    }
}

/// G6 of part/gpt.rs.
#[test]
fn a_backup_that_fits_the_disk_precedes_a_primary_of_a_larger_disk() {
    let scratch = Scratch::new("part-larger");
    let (small, large) = (scratch.image("small", 64 * MIB), scratch.image("large", 96 * MIB));
    theirs(&small, 512);
    run_on(&large, 512, "sgdisk", &["-n", "1:0:+1M", "@"], "");
    let old = table_of(&small, 512).expect("a table");
    write_at(&small, 512, &read_at(&large, 512, 33 * 512));
    let table = table_of(&small, 512).expect("the backup");
    assert_eq!(table.damage(), &[Damage::PrimaryHeader(Health::Invalid)]);
    assert_eq!(table.entries(), old.entries());
}

#[test]
fn impossible_values_are_named_with_their_range() {
    let scratch = Scratch::new("part-values");
    let end = 64 * MIB / 512 - 1;
    let cases: [(usize, u64, &str); 8] = [
        (8, 0x5c_0000_0001, "revision of the GPT header at byte 520: 1 is out of range (65536 to"),
        (24, 7, "own sector of the GPT header at byte 536: 7 is out of range (1)"),
        (32, 1, "sector of the other GPT header at byte 544: 1 is out of range (another sector"),
        (40, 0, "first usable sector of the GPT at byte 552: 0 is out of range (1 to"),
        (40, end, "first usable sector of the GPT at byte 552: 131071 is out of range (1 to"),
        (72, 1, "first sector of the GPT entries at byte 584: 1 is out of range (2 to"),
        (80, 128 << 32, "number of GPT entries at byte 592: 0 is out of range (1 to 8192)"),
        (80, 100 << 32 | 128, "bytes of a GPT entry at byte 596: 100 is out of range (a multiple"),
    ];
    for (at, value, want) in cases {
        let path = scratch.image("gpt", 64 * MIB);
        theirs(&path, 512);
        set_header(&path, 512, 1, at, value);
        damage_file(&path, end * 512, 512, 0);
        let why = table_of(&path, 512).expect_err("no table");
        assert_eq!(why.reason, Reason::Value, "{why}");
        assert!(why.to_string().contains(want), "{why}");
    }
    // A flag of an MBR entry.
    let path = scratch.image("mbr", 64 * MIB);
    run_on(&path, 512, "sfdisk", &SFDISK, "label: dos\nsize=8MiB\n");
    damage_file(&path, 462, 1, 5);
    let text = table_of(&path, 512).expect_err("no table").to_string();
    assert_eq!(text, "flag of an MBR entry at byte 462: 5 is out of range (0 or 128)");
}
