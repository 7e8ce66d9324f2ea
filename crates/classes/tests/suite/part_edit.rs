//! Edits and their refusals, the output of `show`, and the choice between two tables.

use classes::part::params::{Add, Amount, Attribute, Create, Modify, Resize};
use classes::part::{
    self, Column, Damage, Kind, Media, PartErrorKind as K, Scheme, Table, TableContext,
};
use classes::probe::Reason;
use std::collections::BTreeSet;

use crate::support::Image;

const OPEN: &BTreeSet<u32> = &BTreeSet::new();

fn create(sectors: u64, size: u32, scheme: Scheme) -> Table {
    let spec = Create { scheme, entries: None };
    Table::create(Media::plain(sectors, size), &spec, [0x42; 16]).expect("create")
}

fn add(kind: &str, start: Option<u64>, size: Option<u64>) -> Add {
    let amount = |value: Option<u64>| value.map(Amount::Sectors);
    Add { kind: kind.into(), start: amount(start), size: amount(size), ..Add::default() }
}

fn with(table: &Table, spec: &Add) -> Table {
    table.add(spec, [7; 16]).expect("add").0
}

fn refused(table: &Table, spec: &Add, want: K) {
    let got = table.add(spec, [7; 16]).map(|_| ()).map_err(|error| error.kind);
    assert_eq!(got, Err(want), "{spec:?}");
}

#[test]
fn show_prints_the_columns_of_gpart() {
    let table = create(20_971_520, 512, Scheme::Gpt);
    let table = with(&table, &add("freebsd-boot", Some(40), Some(1024)));
    let spec =
        Add { label: Some("root".into()), ..add("freebsd-ufs", Some(2048), Some(16_777_216)) };
    let table = with(&table, &spec);
    let table = with(&table, &add("!deadbeef-0000-4000-8000-000000000001", Some(16_779_264), None));
    let set = Attribute { attrib: "bootme".into(), index: Some(3) };
    let table = table.attribute(&set, true).expect("set");
    let want = "\
=>      40  20971440  ada0  GPT  (10G)
        40      1024     1  freebsd-boot  (512K)
      1064       984        - free -  (492K)
      2048  16777216     2  freebsd-ufs  (8.0G)
  16779264   4192216     3  !deadbeef-0000-4000-8000-000000000001  [bootme]  (2.0G)

";
    assert_eq!(table.show("ada0", Column::Kind, false), want);
    let names = table.show("ada0", Column::Label, true);
    assert!(names.contains("  ada0p2  root  (8.0G)"), "{names}");
    assert!(names.contains("  ada0p1  (null)  (512K)"), "{names}");
    let raw = table.show("ada0", Column::Raw, false);
    assert!(raw.contains("!83bd6b9d-7f41-11dc-be0b-001560b84f0f"), "{raw}");
}

#[test]
fn usable_range_is_rounded_to_4096_bytes() {
    let range = |sectors, size| {
        let table = create(sectors, size, Scheme::Gpt);
        (table.first(), table.last())
    };
    assert_eq!(range(131_072, 512), (40, 131_031));
    assert_eq!(range(16_384, 4096), (6, 16_378));
    assert_eq!(range(131_073, 512), (40, 131_039));
    let spec = |entries| Create { scheme: Scheme::Gpt, entries: Some(entries) };
    let make = |entries, sectors| {
        let media = Media::plain(sectors, 512);
        Table::create(media, &spec(entries), [0; 16]).map_err(|error| error.kind)
    };
    assert!(make(4096, 10_000).is_ok());
    assert_eq!(make(4097, 10_000).map(|_| ()), Err(K::BadValue));
    assert_eq!(make(127, 10_000).map(|_| ()), Err(K::BadValue));
    assert_eq!(make(128, 68).map(|_| ()), Err(K::BadMedia));
    let mbr = Create { scheme: Scheme::Mbr, entries: Some(4) };
    let refused = Table::create(Media::plain(10_000, 512), &mbr, [0; 16]);
    assert_eq!(refused.map(|_| ()).map_err(|error| error.kind), Err(K::BadValue));
}

/// T1 of part/table.rs.
#[test]
fn additions_refused() {
    let table = with(&create(10_000, 512, Scheme::Gpt), &add("efi", Some(100), Some(100)));
    refused(&table, &add("efi", Some(150), Some(10)), K::Overlap);
    refused(&table, &add("efi", Some(90), Some(20)), K::Overlap);
    refused(&table, &add("efi", Some(9_990), Some(20)), K::OutOfRange);
    refused(&table, &add("efi", Some(2), Some(20)), K::OutOfRange);
    refused(&table, &add("efi", Some(u64::MAX), Some(u64::MAX)), K::OutOfRange);
    refused(&table, &add("efi", None, Some(50_000)), K::NoSpace);
    refused(&table, &add("efi", None, Some(0)), K::BadValue);
    refused(&table, &add("nothing", None, None), K::BadType);
    let spec = |index| Add { index: Some(index), ..add("efi", None, Some(8)) };
    refused(&table, &spec(1), K::IndexTaken);
    refused(&table, &spec(0), K::BadValue);
    refused(&table, &spec(129), K::BadValue);
    assert_eq!(table.add(&spec(128), [0; 16]).map(|(_, index)| index), Ok(128));
    let long = Add { label: Some("x".repeat(37)), ..add("efi", None, Some(8)) };
    refused(&table, &long, K::BadLabel);
    let crabs = Add { label: Some("🦀".repeat(18)), ..add("efi", None, Some(8)) };
    assert!(table.add(&crabs, [0; 16]).is_ok());
    let mbr = with(&create(10_000, 512, Scheme::Mbr), &add("ebr", None, Some(1000)));
    refused(&mbr, &add("!15", None, Some(1000)), K::BadType);
    refused(&mbr, &Add { label: Some("x".into()), ..add("ntfs", None, Some(9)) }, K::BadLabel);
    let mut full = mbr;
    for _ in 0..3 {
        full = with(&full, &add("ntfs", None, Some(100)));
    }
    refused(&full, &add("ntfs", None, Some(100)), K::TableFull);
}

#[test]
fn open_partitions_are_guarded() {
    let table = with(&create(10_000, 512, Scheme::Gpt), &add("efi", Some(100), Some(100)));
    let open = BTreeSet::from([1]);
    let resize =
        |size: Option<u64>| Resize { index: 1, size: size.map(Amount::Sectors), align: None };
    let kind = |result: Result<Table, part::PartError>| result.map(|_| ()).map_err(|e| e.kind);
    assert_eq!(kind(table.delete(1, &open)), Err(K::Busy));
    assert_eq!(kind(table.resize(&resize(Some(50)), &open)), Err(K::Busy));
    assert_eq!(kind(table.resize(&resize(Some(200)), &open)), Ok(()));
    assert_eq!(kind(table.resize(&resize(None), &open)), Ok(()));
    assert_eq!(kind(table.resize(&resize(Some(50)), OPEN)), Ok(()));
    assert_eq!(kind(table.resize(&resize(Some(0)), OPEN)), Err(K::NoSpace));
    assert_eq!(kind(table.resize(&resize(Some(20_000)), OPEN)), Err(K::NoSpace));
    let destroy = |open: &BTreeSet<u32>| table.may_destroy(open).map_err(|e| e.kind);
    assert_eq!(destroy(&open), Err(K::Busy));
    assert_eq!(destroy(OPEN), Ok(()));
    assert_eq!(kind(table.delete(2, OPEN)), Err(K::NoSuchIndex));
    let nothing = Modify { index: 1, kind: None, label: None };
    assert_eq!(kind(table.modify(&nothing)), Err(K::BadValue));
    let small = table.media_resized(150);
    assert_eq!(kind(small), Err(K::OutOfRange));
    assert!(table.media_resized(300).is_ok());
}

#[test]
fn alignment_is_that_of_the_request_or_else_of_the_stripe() {
    let table = create(100_000, 512, Scheme::Gpt);
    let spec = Add { align: Some(Amount::Text("1m".into())), ..add("efi", None, Some(5000)) };
    let entry = &with(&table, &spec).entries()[0].clone();
    assert_eq!((entry.start, entry.data_sectors()), (2048, 4096));
    let striped = table.clone().with_stripe(65_536, 0);
    let entry = &with(&striped, &add("efi", None, None)).entries()[0].clone();
    assert_eq!((entry.start, (entry.end + 1) % 128), (128, 0));
    let resize = Resize { index: 1, size: None, align: Some(Amount::Sectors(2048)) };
    let grown = with(&table, &spec).resize(&resize, OPEN).expect("resize");
    assert_eq!((grown.entries()[0].end + 1) % 2048, 0);
}

#[test]
fn attributes_can_be_set_and_unset_in_each_scheme() {
    let set = |attrib: &str, index| Attribute { attrib: attrib.into(), index };
    let gpt = with(&create(10_000, 512, Scheme::Gpt), &add("efi", None, Some(100)));
    let on = gpt.attribute(&set("bootonce", Some(1)), true).expect("set");
    assert_eq!(on.entries()[0].attribute_names(), ["bootme", "bootonce"]);
    let off = on.attribute(&set("bootme", Some(1)), false).expect("unset");
    assert_eq!(off.entries()[0].attribute_names(), ["bootonce"]);
    let fixed = gpt.attribute(&set("lenovofix", None), true).expect("set");
    let fixed = fixed.attribute(&set("active", None), true).expect("set");
    assert_eq!(fixed.attribute_names(), ["active", "lenovofix"]);
    let back = fixed.attribute(&set("lenovofix", None), false).expect("unset");
    assert_eq!(back.attribute_names(), ["active"]);
    for (name, index) in [("nothing", Some(1)), ("bootme", None), ("active", Some(1))] {
        let kind = gpt.attribute(&set(name, index), true).map(|_| ()).map_err(|e| e.kind);
        assert_eq!(kind, Err(K::BadAttribute), "{name}");
    }
    let mut mbr = create(10_000, 512, Scheme::Mbr);
    for _ in 0..2 {
        mbr = with(&mbr, &add("ntfs", None, Some(100)));
    }
    for index in [1, 2] {
        mbr = mbr.attribute(&set("active", Some(index)), true).expect("set");
    }
    let active: Vec<usize> = mbr.entries().iter().map(|e| e.attribute_names().len()).collect();
    assert_eq!(active, [0, 1], "one partition is active");
}

fn written(table: &Table) -> Image {
    let mut image = Image::new(table.media().sectors, table.media().sector_size);
    image.apply(&part::plan(None, table).expect("plan"));
    image
}

#[test]
fn an_mbr_written_over_a_gpt_is_used_but_a_protective_mbr_is_not() {
    let gpt = with(&create(10_000, 512, Scheme::Gpt), &add("efi", None, Some(100)));
    let mut image = written(&gpt);
    let scheme = |image: &Image| image.probe(&TableContext::default()).map(|table| table.scheme());
    assert_eq!(scheme(&image), Ok(Scheme::Gpt));
    let mbr = with(&create(10_000, 512, Scheme::Mbr), &add("ntfs", None, Some(100)));
    let guard = image.held[&0].clone();
    image.put(0, &written(&mbr).held[&0]);
    assert_eq!(scheme(&image), Ok(Scheme::Mbr));
    image.put(0, &[0; 512]);
    assert_eq!(scheme(&image), Ok(Scheme::Gpt), "a lost sector 0 loses nothing");
    image.put(0, &guard);
    for at in [1, 9_999] {
        image.put(at, &[0; 512]);
    }
    let why = image.probe(&TableContext::default()).expect_err("no GPT, and no MBR either");
    assert_eq!(why.reason, Reason::Foreign);
    assert!(why.to_string().contains("protective MBR"), "{why}");
}

#[test]
fn invalid_tables_are_refused_with_the_reason() {
    let mut image = Image::new(10_000, 512);
    let reason =
        |image: &Image, place: &TableContext| image.probe(place).map(|_| ()).map_err(|w| w.reason);
    let plain = TableContext::default();
    assert_eq!(reason(&image, &plain), Err(Reason::Signature));
    // A FAT boot sector: signature, parameters, no partitions.
    let mut boot = [0; 512];
    boot[..16].copy_from_slice(&[0xeb, 0x3c, 0x90, b'm', b'k', 0, 0, 0, 0, 0, 0, 0, 2, 4, 1, 0]);
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    image.put(0, &boot);
    assert_eq!(reason(&image, &plain), Err(Reason::Foreign));
    let mbr = with(&create(10_000, 512, Scheme::Mbr), &add("ntfs", None, Some(100)));
    let mut image = written(&mbr);
    let nested =
        TableContext { scheme: Some(Scheme::Mbr), kind: Some(Kind::Byte(7)), depth: 1, ..plain };
    assert_eq!(reason(&image, &nested), Err(Reason::Nesting));
    assert_eq!(reason(&image, &TableContext { depth: 4, ..plain }), Err(Reason::Nesting));
    let mut sector = image.held[&0].clone();
    sector[446] = 1;
    image.put(0, &sector);
    assert_eq!(reason(&image, &plain), Err(Reason::Value));
    // Beyond the end of the media.
    sector[446] = 0;
    sector[458..462].copy_from_slice(&20_000_u32.to_le_bytes());
    image.put(0, &sector);
    assert_eq!(reason(&image, &plain), Err(Reason::Integrity));
    let lenient = image.probe(&TableContext { check_integrity: false, ..plain }).expect("a table");
    assert_eq!(lenient.damage(), &[Damage::Integrity]);
    assert_eq!(lenient.recover().map(|_| ()).map_err(|e| e.kind), Err(K::OutOfRange));
}

#[test]
fn a_gpt_inside_a_partition() {
    let gpt = with(&create(10_000, 512, Scheme::Gpt), &add("linux-data", None, None));
    let inner = Media::plain(5_000, 512);
    let spec = Create { scheme: Scheme::Mbr, entries: None };
    let mbr = Table::create(inner, &spec, [1; 16]).expect("create");
    let mbr = with(&mbr, &add("linux-data", None, None));
    let kind = Some(gpt.entries()[0].kind);
    let place =
        TableContext { scheme: Some(Scheme::Gpt), kind, depth: 1, ..TableContext::default() };
    assert_eq!(written(&mbr).probe(&place).map(|table| table.scheme()), Ok(Scheme::Mbr));
}

#[test]
fn logical_chains_with_loops_or_broken_links_are_reported_and_repaired() {
    let place = TableContext {
        scheme: Some(Scheme::Mbr),
        kind: Some(Kind::Byte(5)),
        depth: 1,
        ..TableContext::default()
    };
    let chain = create(10_000, 512, Scheme::Ebr);
    let chain = with(&chain, &add("linux-data", Some(0), Some(100)));
    let chain = with(&chain, &add("linux-data", Some(630), Some(100)));
    let good = written(&chain);
    for (link, want) in [
        // A link to 0 has no place and so is none; one to itself is a loop.
        (0, None),
        (630, Some(Damage::ChainLoop(630))),
        (700, Some(Damage::ChainBroken(700))),
        (20_000, Some(Damage::ChainBroken(20_000))),
    ] {
        let mut image = good.clone();
        // The last record: a link at its second entry.
        let mut record = image.held[&630].clone();
        record[466] = 5;
        record[470..474].copy_from_slice(&u32::to_le_bytes(link));
        record[474] = 1;
        image.put(630, &record);
        let table = image.probe(&place).expect("the sound part of the chain");
        assert_eq!(table.entries().len(), 2);
        assert_eq!(table.damage().first().copied(), want);
        let whole = table.recover().expect("recover");
        image.apply(&part::plan(Some(&table), &whole).expect("plan"));
        assert_eq!(image.probe(&place).map(|table| table.is_corrupt()), Ok(false));
    }
    let mut image = good;
    let mut record = image.held[&630].clone();
    record[480] = 1;
    image.put(630, &record);
    let table = image.probe(&place).expect("a chain");
    assert_eq!(table.damage(), &[Damage::ChainReserved(630)]);
}

#[test]
fn fields_that_an_edit_does_not_name_are_kept() {
    let table = with(&create(10_000, 512, Scheme::Mbr), &add("ntfs", Some(63), Some(100)));
    let mut image = written(&table);
    let mut sector = image.held[&0].clone();
    sector[..440].fill(0xc3);
    sector[447..450].copy_from_slice(&[9, 9, 9]);
    image.put(0, &sector);
    let read = image.probe(&TableContext::default()).expect("a table");
    let new = with(&read, &add("linux-data", Some(200), Some(10)));
    image.apply(&part::plan(Some(&read), &new).expect("plan"));
    let now = &image.held[&0];
    assert_eq!(now[..462], sector[..462], "boot code, serial and the first entry");
    assert_eq!(now[466], 0x83);
}

#[test]
fn a_hybrid_mbr_is_updated_and_any_other_first_sector_is_kept() {
    let table = with(&create(10_000, 512, Scheme::Gpt), &add("efi", Some(40), Some(100)));
    let table = with(&table, &add("apple-hfs", Some(200), Some(100)));
    let table = with(&table, &add("ms-basic-data", Some(400), Some(100)));
    let mut image = written(&table);
    let mut sector = image.held[&0].clone();
    sector[100] = 0x77;
    let mut slot = |place: usize, kind: u8, start: u32, sectors: u32| {
        let at = 446 + place * 16;
        sector[at + 4] = kind;
        sector[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        sector[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    };
    slot(0, 0xee, 1, 139);
    slot(1, 0xaf, 200, 100);
    slot(2, 0x07, 400, 100);
    image.put(0, &sector);
    let read = image.probe(&TableContext::default()).expect("a GPT");
    assert_eq!((read.scheme(), read.damage()), (Scheme::Gpt, &[][..]));
    let size = Some(Amount::Sectors(50));
    let new = read.resize(&Resize { index: 2, size, align: None }, OPEN).expect("resize");
    let new = new.delete(3, OPEN).expect("delete");
    image.apply(&part::plan(Some(&read), &new).expect("plan"));
    let now = image.held[&0].clone();
    assert_eq!(now[..462], sector[..462], "boot code and the protective entry");
    assert_eq!(now[470..478], [200, 0, 0, 0, 50, 0, 0, 0]);
    assert_eq!(now[478..494], [0; 16]);
    let read = image.probe(&TableContext::default()).expect("a GPT");
    assert_eq!(part::committed(&new).as_ref(), Ok(&read));
    // Not of that form: kept, with any content.
    let mut other = now.clone();
    other[466] = 0x0c;
    image.put(0, &other);
    let read = image.probe(&TableContext::default()).expect("a GPT");
    let new = read.delete(2, OPEN).expect("delete");
    image.apply(&part::plan(Some(&read), &new).expect("plan"));
    assert_eq!(image.held[&0], other);
}
