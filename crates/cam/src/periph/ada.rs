//! ada: disks that speak ATA.

use bio::{Attr, Bio, Errno, Op, Pool, Segs};
use geom::Limits;
use wire::ata::{
    FEATURE_TRIM, Identify, TRIM_BLOCK, TRIM_RANGE_MAX, TRIM_RANGES_A_BLOCK, Trim, command,
    trim_blocks, trim_ranges,
};

use super::{CommandSet, Disk, DiskCommand, RW_TIMEOUT_MS, shape};
use crate::ccb::{Command, Flags, Registers};
use crate::device::Queueing;
use crate::probe::AtaFacts;
use crate::sim::SimFacts;

/// DEVICE: the address is an LBA.
const LBA: u8 = 0x40;
/// Most sectors of a command with 48 bits, and with 28.
const SECTORS_48: u64 = 65_535;
const SECTORS_28: u64 = 255;
/// Most blocks of ranges of a TRIM, where device and bus take more: 4096 ranges, or 128 GiB.
const TRIM_BLOCKS_MAX: u16 = 64;

struct Ata {
    sector: u32,
    extended: bool,
    queued: bool,
    flush: Option<u8>,
    /// Blocks of ranges that a TRIM may have; 0: there is none.
    trim_blocks: u16,
    cache: bool,
}

/// A device that reports no number takes one.
fn blocks_of(trim: Option<Trim>, bus: &SimFacts) -> u16 {
    let carried = bus.whole_max_bytes / TRIM_BLOCK as u32;
    let most = carried.clamp(1, u32::from(TRIM_BLOCKS_MAX)) as u16;
    trim.map_or(0, |trim| trim.blocks_max.clamp(1, most))
}

/// The disk that these facts describe.
pub(super) fn disk(facts: &AtaFacts, bus: &SimFacts) -> Option<Disk> {
    let identify = &facts.identify;
    let sector = identify.sector_bytes;
    let most = if identify.extended { SECTORS_48 } else { SECTORS_28 } * u64::from(sector);
    let io_max = u64::from(bus.io_max_bytes).min(most);
    let trim_blocks = blocks_of(identify.trim, bus);
    let ranges = u64::from(trim_blocks.max(1)) * TRIM_RANGES_A_BLOCK as u64;
    Some(Disk {
        prefix: "ada",
        command_set: Box::new(Ata {
            sector,
            extended: identify.extended,
            queued: identify.queue_depth > 1,
            flush: match identify {
                s if s.flush_ext => Some(command::FLUSH_EXT),
                s if s.flush => Some(command::FLUSH),
                _ => None,
            },
            trim_blocks,
            cache: identify.write_cache == Some(true),
        }),
        limits: Limits {
            media_bytes: identify.sectors * u64::from(sector),
            sector_bytes: sector,
            io_max_bytes: u32::try_from(io_max).unwrap_or(bus.io_max_bytes),
            delete_max_bytes: ranges * TRIM_RANGE_MAX * u64::from(sector),
        },
        shape: match identify.queue_depth {
            0 | 1 => shape(Queueing::Untagged, 1),
            depth => shape(Queueing::Ncq, u32::from(depth)),
        },
        stripe_bytes: u64::from(sector) << identify.physical_exponent,
        read_only: false,
        attrs: attrs(identify),
    })
}

fn attrs(identify: &Identify) -> Vec<(&'static str, Attr)> {
    let zeroes = identify.trim.is_some_and(|t| t.deterministic && t.zeroes);
    let mut attrs = vec![
        ("GEOM::ident", Attr::Text(identify.serial.clone())),
        ("GEOM::descr", Attr::Text(identify.model.clone())),
        ("GEOM::rotation_rate", Attr::Int(u64::from(identify.rotation))),
        ("GEOM::candelete", Attr::Int(u64::from(identify.trim.is_some()))),
        ("GEOM::deletereadszero", Attr::Int(u64::from(zeroes))),
    ];
    // A physical sector is given up as a whole; the place of sector 0 in it is an attribute.
    let (sector, places) =
        (u64::from(identify.sector_bytes), 1u64 << identify.physical_exponent.min(15));
    let first = (places - u64::from(identify.alignment) % places) % places;
    attrs.extend([
        ("DISK::delete_granule", Attr::Int(sector * places)),
        ("DISK::delete_offset", Attr::Int(sector * first)),
        ("DISK::delete_range", Attr::Int(sector * TRIM_RANGE_MAX)),
    ]);
    if identify.wwn != 0 {
        attrs.push(("GEOM::lunid", Attr::Text(format!("{:016x}", identify.wwn))));
    }
    attrs
}

impl Ata {
    fn transfer(&self, write: bool, offset: u64, length: u64) -> Result<DiskCommand, Errno> {
        let sector = u64::from(self.sector);
        let (lba, count) = (offset / sector, length / sector);
        let count = u16::try_from(count).map_err(|_| Errno::Inval)?;
        let mut registers = Registers {
            lba,
            count,
            device: LBA,
            extended: self.extended,
            queued: self.queued,
            ..Registers::default()
        };
        registers.command = match (write, self.queued, self.extended) {
            (false, true, _) => command::READ_QUEUED,
            (true, true, _) => command::WRITE_QUEUED,
            (false, false, true) => command::READ_DMA_EXT,
            (true, false, true) => command::WRITE_DMA_EXT,
            (false, false, false) => command::READ_DMA,
            (true, false, false) => command::WRITE_DMA,
        };
        if self.queued {
            // Queued commands have their number of sectors there, and their tag in COUNT.
            (registers.features, registers.count) = (count, 0);
        }
        let flags = if write { Flags::OUT } else { Flags::IN };
        let length = u32::try_from(length).map_err(|_| Errno::Inval)?;
        Ok(DiskCommand { command: Command::Ata(registers), flags, length })
    }

    /// The command for the part of a DELETE behind `from` bytes, as much as fits.
    fn trim(&self, bio: &mut Bio, from: u64, pool: &Pool) -> Result<DiskCommand, Errno> {
        if self.trim_blocks == 0 {
            return Err(Errno::NotSup);
        }
        let sector = u64::from(self.sector);
        let left = bio.ranges().map(|r| {
            let start = r.start.max(from);
            (start / sector, r.end.saturating_sub(start) / sector)
        });
        let left: Vec<(u64, u64)> = left.collect();
        let (list, _) = trim_blocks(&left, usize::from(self.trim_blocks));
        if list.is_empty() {
            // Ranges beyond 48 bits.
            return Err(Errno::Inval);
        }
        let data = Segs::alloc(pool, list.len()).ok_or(Errno::NoMem)?;
        data.copy_from(0, &list);
        bio.data = data;
        let registers = Registers {
            command: command::DATA_SET_MANAGEMENT,
            features: u16::from(FEATURE_TRIM),
            count: (list.len() / TRIM_BLOCK) as u16,
            device: LBA,
            extended: true,
            ..Registers::default()
        };
        let length = list.len() as u32;
        Ok(DiskCommand { command: Command::Ata(registers), flags: Flags::OUT, length })
    }
}

impl CommandSet for Ata {
    fn command(&self, bio: &mut Bio, pool: &Pool) -> Result<DiskCommand, Errno> {
        match bio.op {
            Op::Read => self.transfer(false, bio.offset, bio.length),
            Op::Write => self.transfer(true, bio.offset, bio.length),
            Op::Flush => self.flush().ok_or(Errno::NotSup),
            Op::Delete => self.trim(bio, 0, pool),
            Op::GetAttr => Err(Errno::NoAttr),
            Op::WriteZeroes | Op::Map => Err(Errno::NotSup),
        }
    }

    fn delete_ranges(&self) -> u32 {
        u32::from(self.trim_blocks.max(1)) * TRIM_RANGES_A_BLOCK as u32
    }

    /// The list that was sent shows which part is done: ranges ascend.
    fn delete_more(&self, bio: &mut Bio, pool: &Pool) -> Option<Result<DiskCommand, Errno>> {
        let sent = bio.data.to_vec();
        let (lba, sectors) = trim_ranges(&sent).ok()?.last()?;
        let trimmed = lba.saturating_add(sectors).saturating_mul(u64::from(self.sector));
        let end = bio.offset.saturating_add(bio.length);
        (trimmed < end).then(|| self.trim(bio, trimmed, pool))
    }

    fn flush(&self) -> Option<DiskCommand> {
        let command = self.flush?;
        let registers =
            Registers { command, device: LBA, extended: self.extended, ..Registers::default() };
        Some(DiskCommand { command: Command::Ata(registers), flags: Flags::NONE, length: 0 })
    }

    fn has_cache(&self) -> bool {
        self.cache
    }

    fn has_fua(&self) -> bool {
        false
    }

    fn timeout_ms(&self) -> u32 {
        RW_TIMEOUT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_granules_are_physical_sectors_at_any_alignment() {
        for (physical_exponent, alignment, granule, offset) in
            [(0, 0, 512, 0), (3, 0, 4096, 0), (3, 1, 4096, 7 * 512), (3, 9, 4096, 7 * 512)]
        {
            let identify =
                Identify { sector_bytes: 512, physical_exponent, alignment, ..Identify::default() };
            let attrs = attrs(&identify);
            let of = |name| attrs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            assert_eq!(of("DISK::delete_granule"), Some(Attr::Int(granule)));
            assert_eq!(of("DISK::delete_offset"), Some(Attr::Int(offset)));
        }
    }
}
