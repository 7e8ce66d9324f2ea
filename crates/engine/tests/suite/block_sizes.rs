//! Physical blocks and stripes of a unit: READ CAPACITY (16) and page B0h over providers as disks
//! and classes with strips report them.

use std::sync::Arc;

use bio::Attr;
use geom::PHYSICAL_SECTOR;
use testkit::disk::{self, Provider};

use crate::world::*;

const KIB: u64 = 1024;

/// Exponent of the physical block; OPTIMAL TRANSFER LENGTH GRANULARITY and OPTIMAL TRANSFER LENGTH,
/// in blocks.
type Reported = (u8, u16, u32);

/// The sizes that a unit reports over a provider with these sizes, in bytes.
fn reported(sector: u32, physical: u64, stripe: u64) -> Reported {
    let mut world = World::new(3);
    let attrs = [(PHYSICAL_SECTOR, Attr::Int(physical))];
    let provider = Provider::new("d0", 64 << 20).sector(sector).stripe(stripe, 0);
    disk::add(&mut world.control, provider.with_attrs(&attrs), Arc::new(TestDisk::default()));
    world.export("d0");
    world.map(&[(0, "d0", false)]);
    let host = world.calm(0, "i1", &[0]);
    let limits = world.run(&host, 0, &[0x12, 1, 0xB0, 0, 64, 0], 64, &[]).good().data;
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9E, 0x10, 32);
    let capacity = world.run(&host, 0, &cdb, 32, &[]).good().data;
    let granularity = u16::from_be_bytes([limits[6], limits[7]]);
    let best = u32::from_be_bytes([limits[12], limits[13], limits[14], limits[15]]);
    (capacity[13] & 0x0F, granularity, best)
}

#[test]
fn physical_blocks_and_stripes_are_reported_apart() {
    for (what, sector, physical, stripe, wanted) in [
        ("memory disk", 512, 512, 0, (0, 1, 0)),
        ("file", 512, 4 * KIB, 4 * KIB, (3, 8, 0)),
        ("file with sectors of 4 KiB", 4096, 4 * KIB, 0, (0, 1, 0)),
        ("block device with physical sectors of 16 KiB", 512, 16 * KIB, 16 * KIB, (5, 32, 0)),
        ("stripe of 16 KiB", 512, 4 * KIB, 16 * KIB, (3, 32, 256)),
        ("stripe of 48 KiB", 512, 4 * KIB, 48 * KIB, (3, 96, 288)),
        ("stripe of 64 KiB", 512, 4 * KIB, 64 * KIB, (3, 128, 256)),
        ("stripe of 128 KiB", 512, 4 * KIB, 128 * KIB, (3, 256, 256)),
        ("stripe of 64 KiB on sectors of 4 KiB", 4096, 4 * KIB, 64 * KIB, (0, 16, 32)),
        ("stripe of 64 KiB on sectors of 16 KiB", 512, 16 * KIB, 64 * KIB, (5, 128, 256)),
        ("strip smaller than a physical sector", 512, 16 * KIB, 8 * KIB, (5, 32, 0)),
        ("sector that is too large to be one", 512, 128 * KIB, 128 * KIB, (0, 256, 256)),
    ] {
        assert_eq!(reported(sector, physical, stripe), wanted, "{what}");
    }
}
