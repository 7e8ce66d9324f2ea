//! ada: disks that speak ATA.

use bio::{Attr, Bio, Errno, Op, Pool, Segs};
use geom::Limits;
use wire::ata::{
    FEATURE_TRIM, Identify, TRIM_BLOCK, TRIM_RANGE_MAX, TRIM_RANGES_A_BLOCK, command, trim_blocks,
};

use super::{Asked, Disk, Language, shape};
use crate::ccb::{Command, Flags, Registers};
use crate::device::Queueing;
use crate::probe::AtaFacts;

const TIMEOUT_MS: u32 = 30_000;
/// DEVICE: the address is an LBA.
const LBA: u8 = 0x40;
/// Most sectors of a command with 48 bits, and with 28.
const SECTORS_48: u64 = 65_535;
const SECTORS_28: u64 = 255;

struct Ata {
    sector: u32,
    extended: bool,
    queued: bool,
    flush: Option<u8>,
    trims: bool,
    cache: bool,
}

/// The disk that these facts describe.
pub(super) fn disk(facts: &AtaFacts, io_max_bytes: u32) -> Option<Disk> {
    let said = &facts.identify;
    let sector = said.sector_bytes;
    let most = if said.extended { SECTORS_48 } else { SECTORS_28 } * u64::from(sector);
    let io_max = u64::from(io_max_bytes).min(most);
    Some(Disk {
        prefix: "ada",
        language: Box::new(Ata {
            sector,
            extended: said.extended,
            queued: said.queue_depth > 1,
            flush: match said {
                s if s.flush_ext => Some(command::FLUSH_EXT),
                s if s.flush => Some(command::FLUSH),
                _ => None,
            },
            trims: said.trim.is_some(),
            cache: said.write_cache == Some(true),
        }),
        limits: Limits {
            media_bytes: said.sectors * u64::from(sector),
            sector_bytes: sector,
            io_max_bytes: u32::try_from(io_max).unwrap_or(io_max_bytes),
            // One block of ranges: that much every device takes.
            delete_max_bytes: TRIM_RANGES_A_BLOCK as u64 * TRIM_RANGE_MAX * u64::from(sector),
        },
        shape: match said.queue_depth {
            0 | 1 => shape(Queueing::Untagged, 1),
            depth => shape(Queueing::Ncq, u32::from(depth)),
        },
        stripe_bytes: u64::from(sector) << said.physical_exponent,
        read_only: false,
        attrs: attrs(said),
    })
}

fn attrs(said: &Identify) -> Vec<(&'static str, Attr)> {
    let zeroes = said.trim.is_some_and(|t| t.deterministic && t.zeroes);
    let mut attrs = vec![
        ("GEOM::ident", Attr::Text(said.serial.clone())),
        ("GEOM::descr", Attr::Text(said.model.clone())),
        ("GEOM::rotation_rate", Attr::Int(u64::from(said.rotation))),
        ("GEOM::candelete", Attr::Int(u64::from(said.trim.is_some()))),
        ("GEOM::deletereadszero", Attr::Int(u64::from(zeroes))),
    ];
    if said.wwn != 0 {
        attrs.push(("GEOM::lunid", Attr::Text(format!("{:016x}", said.wwn))));
    }
    attrs
}

impl Ata {
    fn transfer(&self, write: bool, offset: u64, length: u64) -> Result<Asked, Errno> {
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
        Ok(Asked { command: Command::Ata(registers), flags, length })
    }

    fn trim(&self, bio: &mut Bio, pool: &Pool) -> Result<Asked, Errno> {
        if !self.trims {
            return Err(Errno::NotSup);
        }
        let sector = u64::from(self.sector);
        let range = (bio.offset / sector, bio.length / sector);
        let (list, told) = trim_blocks(&[range], 1);
        if told != range.1 || list.len() != TRIM_BLOCK {
            return Err(Errno::Inval);
        }
        let data = Segs::alloc(pool, list.len()).ok_or(Errno::NoMem)?;
        data.copy_from(0, &list);
        bio.data = data;
        let registers = Registers {
            command: command::DATA_SET_MANAGEMENT,
            features: u16::from(FEATURE_TRIM),
            count: 1,
            device: LBA,
            extended: true,
            ..Registers::default()
        };
        Ok(Asked { command: Command::Ata(registers), flags: Flags::OUT, length: TRIM_BLOCK as u32 })
    }
}

impl Language for Ata {
    fn command(&self, bio: &mut Bio, pool: &Pool) -> Result<Asked, Errno> {
        match bio.op {
            Op::Read => self.transfer(false, bio.offset, bio.length),
            Op::Write => self.transfer(true, bio.offset, bio.length),
            Op::Flush => self.flush().ok_or(Errno::NotSup),
            Op::Delete => self.trim(bio, pool),
            Op::GetAttr => Err(Errno::NoAttr),
            Op::WriteZeroes | Op::Map => Err(Errno::NotSup),
        }
    }

    fn flush(&self) -> Option<Asked> {
        let command = self.flush?;
        let registers =
            Registers { command, device: LBA, extended: self.extended, ..Registers::default() };
        Some(Asked { command: Command::Ata(registers), flags: Flags::NONE, length: 0 })
    }

    fn has_cache(&self) -> bool {
        self.cache
    }

    fn has_fua(&self) -> bool {
        false
    }

    fn timeout_ms(&self) -> u32 {
        TIMEOUT_MS
    }
}
