//! The ATA commands of a virtual SATA disk.

use wire::ata::{
    FEATURE_TRIM, Identify, NCQ_ERROR_LOG, TRIM_BLOCK, TRIM_RANGES_A_BLOCK, Trim, command, error,
    status, trim_ranges,
};

use super::target::{Target, Work};
use crate::ccb::{CamStatus, Outcome, Registers};

const CACHE_ON: u16 = 0x02;
const CACHE_OFF: u16 = 0x82;

/// A command that is not carried out, with the bits of the ERROR register.
pub(super) fn refused(error: u8) -> Outcome {
    let status = status::READY | status::ERROR;
    Outcome { ata: (status, error), ..Outcome::of(CamStatus::AtaError) }
}

pub(super) fn parse(target: &Target, registers: &Registers) -> Result<Work, Outcome> {
    let r = registers;
    match (r.command, r.features) {
        (command::IDENTIFY, _) => Ok(Work::Reply(identify(target).encode().to_vec())),
        (command::SET_FEATURES, CACHE_ON) => Ok(Work::Cache(true)),
        (command::SET_FEATURES, CACHE_OFF) => Ok(Work::Cache(false)),
        (command::READ_DMA, _) => short(target, r).and_then(|(lba, n)| read(target, lba, n)),
        (command::WRITE_DMA, _) => short(target, r).and_then(|(lba, n)| write(target, lba, n)),
        (command::READ_LOG_EXT, _) => log(target, r),
        // Commands of 48 bits, and NCQ, are unknown to a disk of 28 bits.
        (command::READ_DMA_EXT | command::WRITE_DMA_EXT, _) if !target.spec.extended => {
            Err(refused(error::ABORT))
        }
        (command::READ_QUEUED | command::WRITE_QUEUED, _) if !ncq(target) => {
            Err(refused(error::ABORT))
        }
        (command::READ_DMA_EXT, _) => read(target, r.lba, sectors(r.count)),
        (command::READ_QUEUED, count) => read(target, r.lba, sectors(count)),
        (command::WRITE_DMA_EXT, _) => write(target, r.lba, sectors(r.count)),
        (command::WRITE_QUEUED, count) => write(target, r.lba, sectors(count)),
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

fn ncq(target: &Target) -> bool {
    target.spec.extended && target.spec.depth > 1
}

/// 28 bits of address and 8 of count: higher bits were cut off on the way.
fn short(target: &Target, r: &Registers) -> Result<(u64, u64), Outcome> {
    let cut = r.lba >> 28 != 0 || r.count > 0xff || r.extended;
    if cut && !target.spec.extended {
        return Err(refused(error::ABORT));
    }
    Ok((r.lba & 0x0fff_ffff, if r.count & 0xff == 0 { 256 } else { u64::from(r.count & 0xff) }))
}

/// A COUNT of 16 bits: 0 means 65536.
fn sectors(count: u16) -> u64 {
    if count == 0 { 65_536 } else { u64::from(count) }
}

/// READ LOG EXT: the directory, and the queued command that failed last.
fn log(target: &Target, r: &Registers) -> Result<Work, Outcome> {
    let [address, page, ..] = r.lba.to_le_bytes();
    let log_page = match address {
        _ if !ncq(target) || page != 0 || r.count != 1 => None,
        0 => {
            let mut directory = [0; TRIM_BLOCK];
            directory[0] = 1;
            directory[usize::from(NCQ_ERROR_LOG) * 2] = 1;
            Some(directory)
        }
        NCQ_ERROR_LOG => Some(target.queue.log()),
        _ => None,
    };
    log_page.map(|page| Work::Reply(page.to_vec())).ok_or(refused(error::ABORT))
}

fn read(target: &Target, lba: u64, sectors: u64) -> Result<Work, Outcome> {
    let (offset, len) = range(target, lba, sectors)?;
    Ok(Work::Read { offset, len })
}

fn write(target: &Target, lba: u64, sectors: u64) -> Result<Work, Outcome> {
    let (offset, len) = range(target, lba, sectors)?;
    Ok(Work::Write { offset, len, durable: false })
}

fn range(target: &Target, lba: u64, sectors: u64) -> Result<(u64, u64), Outcome> {
    let sector = u64::from(target.spec.shape.sector);
    match lba.checked_add(sectors) {
        Some(end) if end <= target.disk.size() / sector => Ok((lba * sector, sectors * sector)),
        _ => Err(refused(error::NOT_FOUND)),
    }
}

fn trim_blocks(target: &Target) -> u16 {
    target.spec.ranges.div_ceil(TRIM_RANGES_A_BLOCK as u16)
}

/// The ranges of a TRIM, in bytes.
pub(super) fn ranges(target: &Target, list: &[u8]) -> Result<Vec<(u64, u64)>, Outcome> {
    if list.len() > usize::from(trim_blocks(target)) * TRIM_BLOCK {
        return Err(refused(error::ABORT));
    }
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
        extended: spec.extended,
        flush: true,
        flush_ext: spec.extended,
        write_cache: spec.shape.volatile_cache.then_some(target.cache),
        trim: spec.shape.discards.then_some(Trim {
            blocks_max: trim_blocks(target),
            deterministic: true,
            zeroes: true,
        }),
        rotation: spec.rotation,
        wwn: spec.wwn,
        queue_depth: if ncq(target) { spec.depth.min(32) } else { 1 },
        ..Identify::default()
    }
}
