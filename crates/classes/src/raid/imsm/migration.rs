//! Progress of a migration: the format counts in units whose size follows from level and strip.
//!
//! Units are those of Intel's own firmware as Linux uses them: a rebuild continues where the other
//! left off. Blocks are 512 bytes here, also on disks with larger sectors.

use super::record::Map;

/// Least unit of copies, and of everything without parity: 128 KiB.
const COPY_BLOCKS: u64 = 256;
/// Least unit of a rebuild with parity: 64 KiB.
const PARITY_BLOCKS: u64 = 128;

/// Shape of a map: what units depend on.
struct Shape {
    level: u8,
    strip: u64,
    members: u64,
    domains: u64,
}

impl Shape {
    fn of(map: &Map, sector_size: u32) -> Self {
        let members = u64::try_from(map.slots.len()).unwrap_or(0).max(1);
        let level = match map.level {
            1 if members != 2 => 10,
            level => level,
        };
        let scale = u64::from(sector_size / 512).max(1);
        let strip = (u64::from(map.strip) * scale).max(1);
        Self { level, strip, members, domains: u64::from(map.domains).max(1) }
    }

    fn data_members(&self) -> u64 {
        match self.level {
            1 | 10 => self.members / 2,
            5 => self.members - 1,
            _ => self.members,
        }
        .max(1)
    }
}

/// Blocks of a member in one unit. `kind` is the format's: 1 is a rebuild.
pub(super) fn unit_blocks(kind: u8, map: &Map, from: &Map, sector_size: u32) -> u64 {
    let (to, from) = (Shape::of(map, sector_size), Shape::of(from, sector_size));
    let ratio = (from.strip / to.strip).max(1);
    if kind == 1 {
        return match to.level {
            1 | 10 if from.members.is_multiple_of(from.domains) => COPY_BLOCKS * from.domains,
            1 | 10 => from.strip * from.domains,
            5 => PARITY_BLOCKS.max(from.strip) * ratio,
            _ => COPY_BLOCKS * ratio,
        };
    }
    let chunk = if matches!(to.level, 5 | 10) { to.strip } else { COPY_BLOCKS };
    let blocks = ratio * chunk * to.data_members();
    let row = to.strip * to.data_members();
    let (rows, rest) = (blocks / row, blocks % row);
    let depth = match to.level {
        1 | 10 => to.strip * to.domains,
        5 => to.strip * to.members,
        _ => to.strip,
    };
    let strip = rest / from.strip;
    let within = match from.level {
        1 | 10 => (strip * from.domains + 1) / from.members * from.strip + rest % from.strip,
        5 => strip / from.data_members() * from.strip + rest % from.strip,
        _ => 0,
    };
    (within + depth * rows).max(1)
}
