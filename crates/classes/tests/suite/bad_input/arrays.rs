//! RAID records: Intel's and DDF's.

use classes::probe::{ProbeError, Sectors, Step};
use classes::raid::{ddf, imsm};
use serde_json::json;
use testkit::noise;

use crate::bad_input::scene::{Found, MIB, Scene, crc32, judge, scene};
use crate::raids::{DDF, INTEL, Raid};

/// The disks of a RAID1 volume of two that was stopped.
fn disks_of(format: &str) -> Vec<Found> {
    let extra = if format == DDF { json!({ "order": "big" }) } else { json!({}) };
    let mut raid = Raid::label(format, "RAID1", 2, extra);
    raid.write(0, &noise(1, 65536));
    raid.stop();
    let found = |(i, disk): (usize, &crate::world::Disk)| Found {
        name: format!("d{i}"),
        serial: format!("serial-d{i}"),
        bytes: disk.bytes(),
        sector: 512,
    };
    raid.disks.iter().enumerate().map(found).collect()
}

fn probe<T>(found: &Found, step: fn(&Sectors) -> Step<T>) -> T {
    let mut sectors = Sectors::new(found.sector, found.bytes.len() as u64);
    let read = |at: u64, len: usize| Some(found.bytes[at as usize..][..len].to_vec());
    let read: Result<T, ProbeError> = sectors.drive(read, step);
    read.unwrap_or_else(|why| panic!("{why}"))
}

/// Another record of Intel's.
fn intel(found: &Found, change: impl Fn(&mut imsm::Record)) -> Found {
    let mut record = probe(found, imsm::step);
    change(&mut record);
    let sectors = found.bytes.len() as u64 / 512;
    found.written(&imsm::plan(&record, sectors, 512).expect("a plan"))
}

/// Other bytes in a record of Intel's that fits into a sector, with a right checksum.
fn sealed(found: &Found, edits: &[(usize, &[u8])]) -> Found {
    let mut new = found.clone();
    let at = new.bytes.len() - 1024;
    for (offset, bytes) in edits {
        new.bytes[at + offset..][..bytes.len()].copy_from_slice(bytes);
    }
    let word = |n: usize| u32::from_le_bytes(new.bytes[at + n * 4..][..4].try_into().expect("4"));
    let words = word(9) as usize / 4;
    assert!(words <= 128, "a sector");
    let sum = (0..words).filter(|n| *n != 8).fold(0u32, |sum, n| sum.wrapping_add(word(n)));
    new.bytes[at + 32..at + 36].copy_from_slice(&sum.to_le_bytes());
    new
}

#[test]
fn intel_records() {
    let all = disks_of(INTEL);
    let (one, last) = (&all[..1], &all[1]);
    let at = last.bytes.len() - 1024;
    let raw = |offset: usize, new: &[u8]| {
        let mut found = last.clone();
        found.bytes[at + offset..][..new.len()].copy_from_slice(new);
        found
    };
    let older = intel(last, |record| record.generation -= 1);
    for cell in [
        scene("a disk cut off", one, last.resized(-512, 0), "Intel RAID signature"),
        scene("a record cut off", one, raw(216, &[0; 296]), "checksum"),
        scene("a flipped bit", one, raw(220, &[0xff]), "checksum"),
        scene("a senseless size", one, raw(36, &[0xff; 4]), "Intel record size"),
        scene("more disks than there are", one, sealed(last, &[(56, &[200])]), "disk flags"),
        scene("a copy", &all, Found { name: "copy".into(), ..last.clone() }, "there already"),
        scene("a copy on another disk", &all, last.called("copy"), "not of the array"),
        scene("two for a slot", &all, Found { name: "old".into(), ..older }, "there already"),
        scene(
            "another word for the same generation",
            one,
            intel(last, |record| record.volumes[0].map.strip *= 2),
            "describe volume data differently",
        ),
        scene(
            "two disks that changed slots",
            one,
            intel(last, |record| record.volumes[0].map.slots.swap(0, 1)),
            "describe volume data differently",
        ),
        scene(
            "a disk in two slots",
            &[],
            intel(last, |record| record.volumes[0].map.slots[1] = record.volumes[0].map.slots[0]),
            "two slots",
        ),
        scene(
            "volumes in one place",
            &[],
            intel(last, |record| {
                let twin = record.volumes[0].clone();
                record.volumes.push(twin);
            }),
            "overlaps",
        ),
        scene("a larger disk", one, last.resized(MIB as i64, 1024), "written for a disk of"),
        scene("a smaller disk", one, last.resized(-(MIB as i64), 1024), "ends at"),
        scene("other sectors", one, last.with_large_sectors(2), "its sectors have 4096 bytes"),
        scene("a newer version", one, sealed(last, &[(24, b"1.4.00")]), "newer"),
        scene("newer attributes", one, sealed(last, &[(52, &[0, 0, 0, 0x02])]), "Intel attributes"),
    ] {
        judge("raid", &cell);
    }
}

/// Other bytes in a header of DDF (512 bytes at `at`), with a right checksum.
fn header(found: &Found, at: usize, edits: &[(usize, &[u8])]) -> Found {
    let mut new = found.clone();
    for (offset, bytes) in edits {
        new.bytes[at + offset..][..bytes.len()].copy_from_slice(bytes);
    }
    new.bytes[at + 4..at + 8].fill(0xff);
    let crc = crc32(&new.bytes[at..at + 512]);
    new.bytes[at + 4..at + 8].copy_from_slice(&crc.to_be_bytes());
    new
}

fn ddf(found: &Found, change: impl Fn(&mut ddf::Meta)) -> Found {
    let mut meta = probe(found, ddf::step);
    change(&mut meta);
    let sectors = found.bytes.len() as u64 / 512;
    found.written(&ddf::plan(&meta, sectors, 512, true).expect("a plan"))
}

#[test]
fn ddf_records() {
    let all = disks_of(DDF);
    let (one, last) = (&all[..1], &all[1]);
    let anchor = last.bytes.len() - 512;
    let own = (anchor as u64 / 512).to_be_bytes();
    let meta = probe(last, ddf::step);
    let damaged = |places: &[u64]| {
        let mut found = last.clone();
        places.iter().for_each(|sector| found.bytes[*sector as usize * 512 + 40] ^= 0x55);
        found
    };
    let older = ddf(last, |meta| meta.header.sequence -= 1);
    let tail = last.bytes.len() - 4 * MIB;
    for cell in [
        scene("a disk cut off", one, last.resized(-512, 0), "DDF"),
        scene("a damaged anchor", one, damaged(&[anchor as u64 / 512]), "DDF header checksum"),
        scene(
            "two damaged copies",
            one,
            damaged(&[meta.header.primary, meta.header.secondary]),
            "DDF header checksum",
        ),
        scene("headers beyond the end", one, header(last, anchor, &[(96, &[0x7f; 16])]), "DDF"),
        scene(
            "an anchor that is its own header",
            one,
            header(last, anchor, &[(96, &own), (104, &own)]),
            "DDF header",
        ),
        scene("a copy", &all, last.called("copy"), "there already"),
        scene("two for a slot", &all, older.called("old"), "there already"),
        scene(
            "another word for the same sequence",
            one,
            ddf(last, |meta| meta.configs[0].strip += 1),
            "describe volume data differently",
        ),
        scene(
            "two disks that changed slots",
            one,
            ddf(last, |meta| meta.configs[0].elements.swap(0, 1)),
            "describe volume data differently",
        ),
        scene(
            "a disk in two slots, beside one that knows its own",
            one,
            ddf(last, |meta| meta.configs[0].elements[1].0 = meta.configs[0].elements[0].0),
            "describe volume data differently",
        ),
        scene(
            "an anchor of another set",
            one,
            header(last, anchor, &[(8, b"somebody else's")]),
            "which is not the anchor's, at",
        ),
        scene(
            "a disk in two slots",
            &[],
            ddf(last, |meta| {
                let elements = &mut meta.configs[0].elements;
                elements[0].0 = elements[1].0;
            }),
            "two slots",
        ),
        scene("a smaller disk", one, last.resized(-(tail as i64), 4 * MIB), "DDF"),
        scene("other sectors", one, last.with_large_sectors(1), "DDF"),
        scene(
            "a newer revision",
            one,
            ddf(last, |meta| meta.header.revision = *b"03.00.00"),
            "DDF revision",
        ),
    ] {
        judge("raid", &cell);
    }
}

/// DDF records the used part of a disk, not its size. A disk that has become larger, with its
/// records in their old places and a new anchor at its end, is the same member.
#[test]
fn a_ddf_disk_that_became_larger_is_still_the_same_member() {
    let all = disks_of(DDF);
    let larger = all[1].resized(MIB as i64, 512);
    let cell =
        Scene { name: "larger", disks: vec![all[0].clone(), larger.clone()], bad: 1, words: "" };
    let (world, disks) = cell.found();
    assert!(world.names().iter().any(|name| name.starts_with("raid/")), "{:?}", world.names());
    assert!(disks[1].bytes() == larger.bytes);
}
