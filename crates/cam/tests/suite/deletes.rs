//! DELETE of several ranges to disks that take several in one command, and the limits on number and
//! length of ranges that their providers report.

use std::ops::Range;
use std::sync::Arc;

use cam::sims::hba::{Deletes, DiskSpec, Transport, VirtualHba};
use geom::Edge;
use reactor::model::{DiskShape, Timing};

use crate::world::World;

const SECTOR: u64 = 512;
/// Sectors of a range of ATA.
const LONGEST: u64 = 65_535;

fn disk(transport: Transport, spec: DiskSpec, bytes: u64) -> (World, Arc<VirtualHba>, Edge) {
    let shape = DiskShape {
        size: bytes,
        timing: Timing::Between { min_ns: 10_000, max_ns: 900_000 },
        ..DiskShape::default()
    };
    World::of_disk(3, transport, DiskSpec { shape, ..spec })
}

/// Ranges in sectors; how many commands the DELETE became.
fn delete(w: &mut World, edge: Edge, ranges: &[Range<u64>]) -> u64 {
    let submitted = |w: &World| w.buses[0].devices()[0].0.inspect(|d| d.counts().submitted);
    let bytes: Vec<_> = ranges.iter().map(|r| r.start * SECTOR..r.end * SECTOR).collect();
    let before = submitted(w);
    let ended = w.io(edge, |bio| assert!(bio.delete_ranges(&bytes), "in order"));
    assert_eq!(ended.status, Ok(()));
    submitted(w) - before
}

/// The byte that fills a sector of the medium; all bytes of the sector are equal.
fn medium(hba: &VirtualHba, sector: u64) -> u8 {
    let mut bytes = [0; SECTOR as usize];
    hba.read_medium(0, sector * SECTOR, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == bytes[0]), "sector {sector}");
    bytes[0]
}

#[test]
fn ranges_are_combined_up_to_the_limit_of_the_disk() {
    for (transport, deletes, ranges, commands) in [
        (Transport::Sas, Deletes::Unmap, 16, 1),
        (Transport::Sas, Deletes::Unmap, 15, 2),
        (Transport::Sas, Deletes::Unmap, 7, 3),
        (Transport::Sas, Deletes::Same16, 64, 16),
        (Transport::Sata, Deletes::Unmap, 64, 1),
    ] {
        let spec = DiskSpec { deletes, ranges, ..DiskSpec::default() };
        let (mut w, hba, edge) = disk(transport, spec, 1 << 20);
        w.write(edge, 0, &[7; 1 << 20], bio::Flags::NONE).unwrap();
        let sixteen: Vec<_> = (0..16).map(|n| n * 100..n * 100 + 1 + n).collect();
        let what = format!("{transport:?} {deletes:?} {ranges}");
        assert_eq!(delete(&mut w, edge, &sixteen), commands, "{what}");
        for sector in 0..(1 << 20) / SECTOR {
            let gone = sixteen.iter().any(|r| r.contains(&sector));
            assert_eq!(medium(&hba, sector), if gone { 0 } else { 7 }, "{what}: {sector}");
        }
    }
}

#[test]
fn trim_commands_carry_as_many_range_blocks_as_the_disk_accepts() {
    for (ranges, count, commands) in
        [(64, 64, 1), (64, 65, 2), (128, 128, 1), (1000, 960, 1), (5000, 4096, 1), (5000, 4097, 2)]
    {
        let spec = DiskSpec { ranges, ..DiskSpec::default() };
        let (mut w, _, edge) = disk(Transport::Sata, spec, 8 << 20);
        let many: Vec<_> = (0..count).map(|n| n * 2..n * 2 + 1).collect();
        assert_eq!(delete(&mut w, edge, &many), commands, "{count} of {ranges}");
    }
}

/// Ranges that are longer than one entry are cut; the rest is sent in another command.
#[test]
fn ranges_beyond_the_limit_go_in_a_second_command() {
    let (mut w, hba, edge) = disk(Transport::Sata, DiskSpec::default(), 2 << 30);
    let long = 200..200 + 40 * LONGEST;
    // The list is full amid it.
    let amid = 200 + 24 * LONGEST;
    let probes = [199, 200, amid - 1, amid, long.end - 1, long.end, long.end + 500];
    for sector in probes {
        w.write(edge, sector * SECTOR, &[7; SECTOR as usize], bio::Flags::NONE).unwrap();
    }
    let mut ranges: Vec<_> = (0..40).map(|n| n * 2..n * 2 + 1).collect();
    ranges.push(long.clone());
    ranges.push(long.end + 500..long.end + 501);
    assert_eq!(delete(&mut w, edge, &ranges), 2);
    for sector in probes {
        let gone = long.contains(&sector) || sector == long.end + 500;
        assert_eq!(medium(&hba, sector), if gone { 0 } else { 7 }, "{sector}");
    }
}

#[test]
fn providers_report_delete_granules_ranges_and_lengths() {
    let deletes = |w: &World, name: &str| {
        let t = &w.control.topology;
        t.deletes(t.find(name).expect("a disk"))
    };
    let spec = DiskSpec { ranges: 20, granule: (8, 3), ..DiskSpec::default() };
    let (w, ..) = disk(Transport::Sas, spec.clone(), 1 << 20);
    let limits = deletes(&w, "da0");
    assert_eq!((limits.granule, limits.offset), (8 * SECTOR, Some(3 * SECTOR)));
    assert_eq!((limits.ranges, limits.range_bytes, limits.max_bytes), (20, 0, 32 << 20));
    // It does not report that, but one command names one.
    let same = DiskSpec { deletes: Deletes::Same10, ..spec.clone() };
    let limits = deletes(&disk(Transport::Sas, same, 1 << 20).0, "da0");
    assert_eq!((limits.granule, limits.ranges), (SECTOR, 1));
    // A granule that is larger than the disk.
    let odd = DiskSpec { granule: (u32::MAX, 5), ..spec.clone() };
    let limits = deletes(&disk(Transport::Sas, odd, 1 << 20).0, "da0");
    assert_eq!((limits.granule, limits.offset), (SECTOR, Some(0)));
    let limits = deletes(&disk(Transport::Sata, spec, 1 << 20).0, "ada0");
    assert_eq!((limits.granule, limits.offset, limits.ranges), (SECTOR, Some(0), 64));
    assert_eq!((limits.range_bytes, limits.max_bytes), (LONGEST * SECTOR, 64 * LONGEST * SECTOR));
}
