//! The ATA commands of a virtual SATA disk.

use wire::ata::{FEATURE_TRIM, Identify, Trim, command, error, status, trim_ranges};

use super::target::{Target, Work};
use crate::ccb::{CamStatus, Outcome, Registers};

const CACHE_ON: u16 = 0x02;
const CACHE_OFF: u16 = 0x82;

fn refused(error: u8) -> Outcome {
    let status = status::READY | status::ERROR;
    Outcome { ata: (status, error), ..Outcome::of(CamStatus::AtaError) }
}

pub(super) fn parse(target: &Target, registers: &Registers) -> Result<Work, Outcome> {
    let r = registers;
    match (r.command, r.features) {
        (command::IDENTIFY, _) => Ok(Work::Say(identify(target).encode().to_vec())),
        (command::SET_FEATURES, CACHE_ON) => Ok(Work::Cache(true)),
        (command::SET_FEATURES, CACHE_OFF) => Ok(Work::Cache(false)),
        (command::READ_DMA_EXT, _) => read(target, r.lba, r.count),
        (command::READ_QUEUED, count) => read(target, r.lba, count),
        (command::WRITE_DMA_EXT, _) => write(target, r.lba, r.count),
        (command::WRITE_QUEUED, count) => write(target, r.lba, count),
        (command::FLUSH | command::FLUSH_EXT, _) => Ok(Work::Flush),
        (command::DATA_SET_MANAGEMENT, f) if f == u16::from(FEATURE_TRIM) => {
            match target.spec.shape.discards {
                true => Ok(Work::Discard { ranges: Vec::new() }),
                false => Err(refused(error::ABORT)),
            }
        }
        _ => Err(refused(error::ABORT)),
    }
}

fn read(target: &Target, lba: u64, count: u16) -> Result<Work, Outcome> {
    let (offset, len) = bytes(target, lba, count)?;
    Ok(Work::Read { offset, len })
}

fn write(target: &Target, lba: u64, count: u16) -> Result<Work, Outcome> {
    let (offset, len) = bytes(target, lba, count)?;
    Ok(Work::Write { offset, len, durable: false })
}

/// 0 means 65536 sectors.
fn bytes(target: &Target, lba: u64, count: u16) -> Result<(u64, u64), Outcome> {
    let sectors = if count == 0 { 65_536 } else { u64::from(count) };
    range(target, lba, sectors)
}

fn range(target: &Target, lba: u64, sectors: u64) -> Result<(u64, u64), Outcome> {
    let sector = u64::from(target.spec.shape.sector);
    match lba.checked_add(sectors) {
        Some(end) if end <= target.disk.size() / sector => Ok((lba * sector, sectors * sector)),
        _ => Err(refused(error::NOT_FOUND)),
    }
}

/// The ranges of a TRIM, in bytes.
pub(super) fn ranges(target: &Target, list: &[u8]) -> Result<Vec<(u64, u64)>, Outcome> {
    let ranges = trim_ranges(list).map_err(|_| refused(error::ABORT))?;
    ranges.map(|(lba, sectors)| range(target, lba, sectors)).collect()
}

fn identify(target: &Target) -> Identify {
    let spec = &target.spec;
    Identify {
        model: spec.model.clone(),
        serial: spec.serial.clone(),
        firmware: spec.revision.clone(),
        sectors: target.disk.size() / u64::from(spec.shape.sector),
        sector_bytes: spec.shape.sector,
        extended: true,
        flush: true,
        flush_ext: true,
        write_cache: spec.shape.volatile_cache.then_some(target.cache),
        trim: spec.shape.discards.then_some(Trim {
            blocks_max: 1,
            deterministic: true,
            zeroes: true,
        }),
        rotation: spec.rotation,
        wwn: spec.wwn,
        queue_depth: spec.depth.clamp(1, 32),
        ..Identify::default()
    }
}
