//! W1 to W5 of write_plan.rs: no power cut turns a table into no table or a mixture.

use classes::part::params::{Add, Amount, Create, Modify, Resize};
use classes::part::{self, Damage, Health, Kind, Media, Scheme, Table, TableContext};
use classes::write_plan::WriteStep;
use std::collections::BTreeSet;
use testkit::Seeds;

use crate::support::{Image, Seed, power_cuts};

const OPEN: &BTreeSet<u32> = &BTreeSet::new();
/// Boot code without an end.
const BOOT: [u8; 440] = [0x90; 440];

fn spec(kind: &str, start: u64, size: u64) -> Add {
    let amount = |value| Some(Amount::Sectors(value));
    Add { kind: kind.to_owned(), start: amount(start), size: amount(size), ..Add::default() }
}

/// The part of the table that must be old or new: everything that a user of the table sees.
fn meaning(table: &Table) -> String {
    format!("{:?} {:?} {:?}", table.scheme(), table.disk_guid(), table.entries())
}

/// Tries one change. `parent` gives the place of the media; `none` allows that no table is found.
fn check(
    image: &mut Image,
    place: &TableContext,
    old: Option<&Table>,
    new: &Table,
    none: bool,
) -> u64 {
    let plan = part::plan(old, new).expect("a plan");
    let right = [old.map(meaning), Some(meaning(new))];
    let mut seen = BTreeSet::new();
    let cuts = power_cuts(image, &plan, 7, |cut| match cut.probe(place) {
        Ok(table) => {
            let found = meaning(&table);
            assert!(right.contains(&Some(found.clone())), "a mixture: {found}\nof {right:?}");
            seen.insert(Some(found));
            // W5: the remains after a cut can be recovered to a table without damage.
            if table.is_corrupt() {
                let whole = table.recover().expect("a recovery");
                let mut healed = cut.clone();
                healed.apply(&part::plan(Some(&table), &whole).expect("a plan"));
                let healed = healed.probe(place).expect("a table after recovery");
                assert_eq!(healed.damage(), &[], "recovered");
                assert_eq!(meaning(&healed), meaning(&table));
            }
        }
        Err(why) => {
            assert!(none, "no table: {why}");
            seen.insert(None);
        }
    });
    assert!(seen.contains(&Some(meaning(new))), "the new table is reached");
    image.apply(&plan);
    let done = image.probe(place).expect("the new table");
    assert_eq!((meaning(&done), done.damage()), (meaning(new), &[][..]));
    assert_eq!(part::committed(new).as_ref(), Ok(&done), "what is on the media is known");
    cuts
}

fn edits(image: &mut Image, place: &TableContext, table: Table) -> u64 {
    let mut cuts = 0;
    let mut now = table;
    let gpt = now.scheme() == Scheme::Gpt;
    let mut step = |now: &mut Table, new: Table| {
        cuts += check(image, place, Some(now), &new, false);
        *now = image.probe(place).expect("a table");
    };
    for (start, size) in [(256, 100), (512, 64), (768, 64)] {
        let (new, _) = now.add(&spec("linux-data", start, size), [9; 16]).expect("add");
        step(&mut now, new);
    }
    let index = now.entries()[1].index;
    let size = Some(Amount::Sectors(100));
    let new = now.resize(&Resize { index, size, align: None }, OPEN).expect("resize");
    step(&mut now, new);
    let kind = Some("linux-swap".to_owned());
    let label = gpt.then(|| "naïve 🦀".to_owned());
    let new = now.modify(&Modify { index, kind, label }).expect("modify");
    step(&mut now, new);
    if matches!(now.scheme(), Scheme::Gpt | Scheme::Mbr) {
        let new = now.boot_code(&BOOT, false, OPEN).expect("boot code");
        step(&mut now, new);
    }
    let new = now.delete(index, OPEN).expect("delete");
    step(&mut now, new);
    let first = now.entries()[0].index;
    let new = now.delete(first, OPEN).expect("delete");
    step(&mut now, new);
    cuts
}

fn created(media: Media, scheme: Scheme) -> Table {
    Table::create(media, &Create { scheme, entries: None }, [5; 16]).expect("create")
}

#[test]
fn gpt_edits_leave_old_or_new() {
    for (sectors, size) in [(2048, 512), (1536, 4096)] {
        let mut image = Image::new(sectors, size);
        let place = TableContext::default();
        let table = created(Media::plain(sectors, size), Scheme::Gpt);
        let mut cuts = check(&mut image, &place, None, &table, true);
        let table = image.probe(&place).expect("created");
        cuts += edits(&mut image, &place, table);
        assert!(cuts > 500, "{cuts}");
    }
}

/// A table of 4 entries, written here byte by byte: small enough to try every subset.
fn small_gpt(image: &mut Image) {
    let end = image.sectors - 1;
    let size = image.sector_size as usize;
    let table = vec![0; 512];
    for (own, other, at) in [(1, end, 2), (end, 1, end - 1)] {
        let mut header = vec![0; size];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        let fields = [(24, own), (32, other), (40, 64), (48, end - 33), (72, at)];
        for (place, value) in fields {
            header[place..place + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        header[56..72].copy_from_slice(&[3; 16]);
        header[80..88].copy_from_slice(&[4, 0, 0, 0, 128, 0, 0, 0]);
        header[88..92].copy_from_slice(&slow_crc(&table).to_le_bytes());
        let crc = slow_crc(&header[..92]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        image.put(own, &header);
        image.put(at, &[table.clone(), vec![0; size - 512]].concat());
    }
}

/// CRC-32 by long division over the bits, written apart from the one under test.
fn slow_crc(bytes: &[u8]) -> u32 {
    let bit = |i: usize| u64::from(bytes.get(i / 8).is_some_and(|b| b >> (i % 8) & 1 != 0));
    let mut rest = 0_u64;
    for i in 0..bytes.len() * 8 + 32 {
        rest = rest << 1 | (bit(i) ^ u64::from(i < 32));
        if rest >> 32 != 0 {
            rest ^= 0x1_04c1_1db7;
        }
    }
    !(rest as u32).reverse_bits()
}

#[test]
fn small_gpt_edits_survive_every_subset_of_unflushed_writes() {
    for size in [512, 4096] {
        let mut image = Image::new(2048, size);
        small_gpt(&mut image);
        let table = image.probe(&TableContext::default()).expect("the small table");
        assert_eq!((table.capacity(), table.damage()), (4, &[][..]));
        assert!(edits(&mut image, &TableContext::default(), table) > 50);
    }
}

#[test]
fn recovery_of_every_damage_survives_a_cut() {
    // Each subset of the four elements destroyed, in place and on a disk that has grown.
    for size in [512, 4096] {
        for grown in [0, 1, 20, 500] {
            for broken in 0..16_u32 {
                let mut image = Image::new(2048, size);
                small_gpt(&mut image);
                let place = TableContext::default();
                let base = image.probe(&place).expect("base");
                let (table, _) = base.add(&spec("efi", 100, 10), [1; 16]).expect("add");
                image.apply(&part::plan(Some(&base), &table).expect("plan"));
                for (bit, at) in [1, 2, 2047, 2046].into_iter().enumerate() {
                    if broken >> bit & 1 != 0 {
                        image.put(at, &vec![0x5a; size as usize]);
                    }
                }
                image.sectors += grown;
                let (first, second) = (broken & 3 == 0, broken & 12 == 0);
                let found = image.probe(&place);
                // The backup of a grown disk is found through a good primary header only.
                let reachable = grown == 0 || broken & 1 == 0;
                if !(first || second && reachable) {
                    assert!(found.is_err(), "{broken:04b} {grown}");
                    continue;
                }
                let found = found.expect("one copy is whole");
                assert_eq!(meaning(&found), meaning(&table));
                assert_eq!(found.is_corrupt(), broken != 0 || grown != 0, "{broken:04b} {grown}");
                let refused = found.add(&spec("efi", 200, 10), [2; 16]).map_err(|e| e.kind);
                assert_eq!(refused.is_err(), found.is_corrupt());
                let whole = found.recover().expect("recovery");
                check(&mut image, &place, Some(&found), &whole, false);
                let last = image.probe(&place).expect("recovered").last();
                assert!(last >= 2047 - 33 && last < image.sectors - 2, "{last}");
                let moved =
                    found.damage().iter().any(|d| matches!(d, Damage::BackupNotLast { .. }));
                assert!(!moved || last + 10 >= image.sectors, "the space gained is usable");
            }
        }
    }
}

#[test]
fn edits_and_growth_in_one_commit_survive_a_power_cut() {
    for size in [512, 4096] {
        for grown in [1, 2, 40, 700] {
            let mut image = Image::new(2048, size);
            small_gpt(&mut image);
            let place = TableContext::default();
            let base = image.probe(&place).expect("base");
            image.sectors += grown;
            let wide = base.media_resized(2048 + grown).expect("resized");
            let (new, _) = wide.add(&spec("efi", 100, 10), [1; 16]).expect("add");
            check(&mut image, &place, Some(&base), &new, false);
        }
    }
}

#[test]
fn destroy_leaves_the_old_table_or_none() {
    for (scheme, size) in
        [(Scheme::Gpt, 512), (Scheme::Gpt, 4096), (Scheme::Mbr, 512), (Scheme::Mbr, 4096)]
    {
        let mut image = Image::new(2048, size);
        let table = created(Media::plain(2048, size), scheme);
        image.apply(&part::plan(None, &table).expect("plan"));
        let table = image.probe(&TableContext::default()).expect("table");
        let old = meaning(&table);
        let plan = part::destroy_plan(&table);
        power_cuts(&image, &plan, 3, |cut| {
            if let Ok(left) = cut.probe(&TableContext::default()) {
                assert_eq!(meaning(&left), old);
            }
        });
        image.apply(&plan);
        assert!(image.probe(&TableContext::default()).is_err());
    }
}

#[test]
fn mbr_and_logical_edits_leave_old_or_new() {
    for size in [512, 4096] {
        let media = Media::plain(4096, size);
        for (scheme, place) in [
            (Scheme::Mbr, TableContext::default()),
            (
                Scheme::Ebr,
                TableContext {
                    scheme: Some(Scheme::Mbr),
                    kind: Some(Kind::Byte(5)),
                    depth: 1,
                    ..TableContext::default()
                },
            ),
        ] {
            let mut image = Image::new(4096, size);
            let table = created(media, scheme);
            check(&mut image, &place, None, &table, true);
            let table = image.probe(&place).expect("created");
            edits(&mut image, &place, table);
        }
    }
}

/// With its label in the second sector and code around it. Cut anywhere, the label stays, and a
/// first stage that is new has a second that is.
#[test]
fn a_power_cut_during_boot_code_keeps_the_label_and_matching_stages() {
    for size in [512, 4096] {
        let mut image = Image::new(4096, size);
        let (label, _) = created(Media::plain(4096, size), Scheme::Bsd)
            .add(&spec("freebsd-ufs", 100, 50), [0; 16])
            .expect("add");
        image.apply(&part::plan(None, &label).expect("plan"));
        let old = image.probe(&TableContext::default()).expect("a label");
        let mut code = vec![0x90; 8192];
        code[510..512].copy_from_slice(&[0x55, 0xaa]);
        let new = old.boot_code(&code, false, OPEN).expect("boot code");
        let plan = part::plan(Some(&old), &new).expect("plan");
        let (mut seen, behind) = ([0; 2], 2 * size as usize);
        power_cuts(&image, &plan, 5, |cut| {
            let left = cut.probe(&TableContext::default()).expect("a label");
            assert_eq!(meaning(&left), meaning(&old));
            let area = cut.read(0, 8192.max(behind));
            let first = area[0] == 0x90;
            assert!(!first || area[behind..].iter().all(|b| *b == 0x90), "a half second stage");
            seen[usize::from(first)] += 1;
        });
        assert!(seen[0] > 1 && seen[1] > 0, "{seen:?}");
        check(&mut image, &TableContext::default(), Some(&old), &new, false);
    }
}

/// Code for a partition that a pending edit made is written after the table. Until the table is
/// there, the old partition keeps its content in that place.
#[test]
fn partition_code_is_written_after_its_table() {
    let mut image = Image::new(2048, 512);
    small_gpt(&mut image);
    let base = image.probe(&TableContext::default()).expect("base");
    let (old, data) = base.add(&spec("linux-data", 100, 200), [1; 16]).expect("add");
    image.apply(&part::plan(Some(&base), &old).expect("plan"));
    let old = image.probe(&TableContext::default()).expect("old");
    (100..300).for_each(|at| image.put(at, &[0xda; 512]));
    let bare = old.delete(data, OPEN).expect("delete");
    let (new, boot) = bare.add(&spec("freebsd-boot", 100, 150), [2; 16]).expect("add");
    let code = new.partition_code(boot, &[0xc0; 70_000], OPEN).expect("fits");
    let plan =
        part::plan(Some(&old), &new).expect("plan").then(code.plan(&new, OPEN).expect("fits"));
    let mut seen = [0; 2];
    power_cuts(&image, &plan, 9, |cut| {
        let found = cut.probe(&TableContext::default()).expect("a table");
        let was = meaning(&found) == meaning(&old);
        assert!(was || meaning(&found) == meaning(&new));
        assert!(!was || cut.read(100 * 512, 200 * 512).iter().all(|b| *b == 0xda), "lost");
        seen[usize::from(was)] += 1;
    });
    assert!(seen[0] > 1 && seen[1] > 1, "{seen:?}");
    image.apply(&plan);
    assert_eq!(image.read(100 * 512, 137 * 512)[..70_000], [0xc0; 70_000]);
    assert!(image.read(237 * 512, 63 * 512).iter().all(|b| *b == 0xda), "the rest stays");
}

/// E2 of part/ebr.rs.
#[test]
fn random_edits_of_logical_partitions_survive_a_power_cut() {
    let place = TableContext {
        scheme: Some(Scheme::Mbr),
        kind: Some(Kind::Byte(15)),
        depth: 1,
        ..TableContext::default()
    };
    let (mut done, seeds) = (0, Seeds::of(40));
    for seed in seeds.clone() {
        let mut chance = Seed(seed);
        let mut image = Image::new(8192, 512);
        let table = created(Media::plain(8192, 512), Scheme::Ebr);
        check(&mut image, &place, None, &table, true);
        for _ in 0..24 {
            let now = image.probe(&place).expect("a chain");
            let some = now.entries().get(chance.below(8) as usize).map(|entry| entry.index);
            let amount = |value| Some(Amount::Sectors(value));
            let new = match (chance.below(4), some) {
                (0, Some(index)) => now.delete(index, OPEN),
                (1, Some(index)) => {
                    let size = amount(1 + chance.below(700));
                    now.resize(&Resize { index, size, align: None }, OPEN)
                }
                _ => {
                    let track = chance.below(120) * 63;
                    let add = spec("linux-data", track, 63 + chance.below(600));
                    now.add(&add, [0; 16]).map(|(table, _)| table)
                }
            };
            if let Ok(new) = new {
                check(&mut image, &place, Some(&now), &new, false);
                done += 1;
            }
        }
    }
    assert!(done > 5 * seeds.count() || !seeds.are_enough(), "{done} edits");
}

#[test]
fn a_differing_backup_is_reported_and_the_primary_is_used() {
    let mut image = Image::new(2048, 512);
    let base = created(Media::plain(2048, 512), Scheme::Gpt);
    image.apply(&part::plan(None, &base).expect("plan"));
    let base = image.probe(&TableContext::default()).expect("base");
    let (new, _) = base.add(&spec("efi", 100, 10), [1; 16]).expect("add");
    let plan = part::plan(Some(&base), &new).expect("plan");
    // Only the first flush is reached: the backup is new.
    let mut cut = image.clone();
    let steps = plan.steps().iter().position(|step| *step == WriteStep::Flush);
    for step in &plan.steps()[..steps.expect("a flush")] {
        if let WriteStep::Write { offset, bytes } = step {
            for (at, sector) in (offset / 512..).zip(bytes.chunks(512)) {
                cut.put(at, sector);
            }
        }
    }
    let found = cut.probe(&TableContext::default()).expect("old");
    assert_eq!(meaning(&found), meaning(&base));
    assert_eq!(found.damage(), &[Damage::CopiesDisagree]);
    cut.put(2, &[1; 512]);
    let found = cut.probe(&TableContext::default()).expect("new");
    assert_eq!(meaning(&found), meaning(&new));
    assert_eq!(found.damage(), &[Damage::PrimaryTable(Health::Corrupt)]);
}
