//! The SCSI commands of a virtual SAS disk.

use wire::scsi::{
    Capacity, Command, Defect, DefectFormat, Defects, Extent, Identity, Limits, Lun, LunSelect,
    ModeBlock, ModeState, PeripheralType, Provisioning, Sense, UnmapList, Vpd, asc, inquiry_data,
    mode_sense, parse_mode_select, read_capacity10, read_capacity16, read_toc, report_luns,
    vpd_page,
};

use super::target::{Target, Work};
use super::{Deletes, Role};
use crate::ccb::Outcome;

/// Most blocks of one UNMAP.
const UNMAP_BLOCKS_MAX: u32 = 1 << 16;
/// CMDQUE, in byte 7 of INQUIRY data.
const CMDQUE: u8 = 0x02;

fn refused(sense: Sense) -> Outcome {
    Outcome::check(sense)
}

pub(super) fn parse(target: &Target, cdb: &[u8]) -> Result<Work, Outcome> {
    let (identity, optical) = (identity(target), target.spec.role == Role::Cdrom);
    let parsed = Command::parse_for(identity.kind, cdb);
    let (command, _) = parsed.map_err(|e| refused(e.sense()))?;
    let reply = |mut data: Vec<u8>, alloc: u32| {
        wire::scsi::truncate(&mut data, alloc);
        Ok(Work::Reply(data))
    };
    match command {
        Command::TestUnitReady => Ok(Work::Reply(Vec::new())),
        Command::StartStop { start: true, .. } => Ok(Work::Start),
        Command::Inquiry { page: None, alloc } => {
            let mut data = inquiry_data(&identity);
            if let (1, Some(flags)) = (target.spec.depth, data.get_mut(7)) {
                *flags &= !CMDQUE;
            }
            reply(data, alloc)
        }
        Command::Inquiry { page: Some(page), alloc } => {
            let vpd = Vpd { identity: &identity, limits: &limits(target) };
            let page = vpd_page(page, vpd).ok_or(refused(Sense::cdb_field(2, None)))?;
            reply(page, alloc)
        }
        Command::ReportLuns { select: LunSelect::WellKnown, alloc } => {
            reply(report_luns(None), alloc)
        }
        Command::ReportLuns { alloc, .. } => reply(report_luns(Lun::new(0)), alloc),
        Command::ModeSense { ten, long_lba, no_blocks, control, page, subpage, alloc } => {
            let which = (page, subpage);
            let answer = mode_sense(ten, long_lba, no_blocks, control, which, &modes(target));
            reply(answer.map_err(refused)?, alloc)
        }
        Command::ModeSelect { ten, page_format: true, save, .. } => Ok(Work::Modes(ten, save)),
        Command::ReadDefects { twelve, primary, grown, format, index, alloc } => {
            let answer = defects(target, primary, grown, format, index as usize);
            reply(answer.ok_or(refused(Sense::cdb_field(1, None)))?.encode(twelve), alloc)
        }
        Command::ReadCapacity10 => reply(read_capacity10(&capacity(target)).to_vec(), 8),
        Command::ReadCapacity16 { alloc } => {
            reply(read_capacity16(&capacity(target)).to_vec(), alloc)
        }
        Command::Read(extent) => {
            let (offset, len) = bytes(target, &extent)?;
            Ok(Work::Read { offset, len })
        }
        Command::ReadToc { msf, format, track, alloc } if optical => {
            let toc = read_toc(capacity(target).blocks, format, track, msf);
            reply(toc.ok_or(refused(Sense::cdb_field(2, None)))?, alloc)
        }
        Command::Write(extent) if !optical => {
            let (offset, len) = bytes(target, &extent)?;
            Ok(Work::Write { offset, len, durable: extent.fua })
        }
        Command::SynchronizeCache { .. } => Ok(Work::Flush),
        Command::Unmap { .. } if deletes(target) == Some(Deletes::Unmap) => {
            Ok(Work::Discard { ranges: Vec::new() })
        }
        Command::WriteSame { lba, blocks, unmap: true, anchor: false, .. } => {
            let wanted = if cdb.len() == 16 { Deletes::Same16 } else { Deletes::Same10 };
            if deletes(target) != Some(wanted) {
                return Err(refused(Sense::new(asc::INVALID_OPCODE)));
            }
            let left = capacity(target).blocks.saturating_sub(lba);
            let blocks = if blocks == 0 { left } else { u64::from(blocks) };
            let blocks = u32::try_from(blocks).map_err(|_| refused(Sense::cdb_field(10, None)))?;
            Ok(Work::Discard { ranges: vec![bytes(target, &Extent::new(lba, blocks))?] })
        }
        _ => Err(refused(Sense::new(asc::INVALID_OPCODE))),
    }
}

fn modes(target: &Target) -> ModeBlock {
    let has = |write_cache| ModeState { write_cache, ..ModeState::default() };
    let Capacity { blocks, block_len, .. } = capacity(target);
    ModeBlock {
        current: has(target.cache),
        default: has(target.spec.shape.volatile_cache),
        saved: has(target.saved_cache),
        changeable: has(target.spec.shape.volatile_cache),
        savable: true,
        blocks,
        block_len,
        dpo_fua: true,
        rotation: target.spec.rotation,
        ..ModeBlock::default()
    }
}

/// A MODE SELECT list: whether the write cache is on from now on.
pub(super) fn select(target: &Target, ten: bool, list: &[u8]) -> Result<bool, Sense> {
    parse_mode_select(ten, list, &modes(target)).map(|wanted| wanted.state.write_cache)
}

/// Those from `index` on.
fn defects(
    target: &Target,
    primary: bool,
    grown: bool,
    format: u8,
    index: usize,
) -> Option<Defects> {
    let format = DefectFormat::from_code(format)?;
    let (factory, later) = &target.spec.defects;
    let lists = [(primary, factory), (grown, later)];
    let blocks = lists.iter().filter(|(wanted, _)| *wanted).flat_map(|(_, list)| list.iter());
    let blocks = blocks.skip(index);
    let list: Vec<Defect> = match format {
        DefectFormat::Block | DefectFormat::LongBlock => {
            blocks.map(|lba| Defect::Block(*lba)).collect()
        }
        // One head, 64 sectors a track.
        _ => blocks.map(|lba| Defect::Place((*lba / 64) as u32, 0, (*lba % 64) as u32)).collect(),
    };
    Some(Defects { format, primary, grown, count: list.len(), list })
}

fn deletes(target: &Target) -> Option<Deletes> {
    target.spec.shape.discards.then_some(target.spec.deletes)
}

/// The ranges of an UNMAP list, in bytes.
pub(super) fn ranges(target: &Target, list: &[u8]) -> Result<Vec<(u64, u64)>, Outcome> {
    let list = UnmapList::parse(list).map_err(refused)?;
    let blocks: u64 = list.iter().map(|run| u64::from(run.blocks)).sum();
    if list.len() > usize::from(target.spec.ranges) || blocks > u64::from(UNMAP_BLOCKS_MAX) {
        return Err(refused(Sense::list_field(2, None)));
    }
    list.iter().map(|run| bytes(target, &Extent::new(run.lba, run.blocks))).collect()
}

fn bytes(target: &Target, extent: &Extent) -> Result<(u64, u64), Outcome> {
    let sector = u64::from(target.spec.shape.sector);
    if !extent.fits(capacity(target).blocks) {
        return Err(refused(Sense::new(asc::LBA_OUT_OF_RANGE)));
    }
    Ok((extent.lba * sector, u64::from(extent.blocks) * sector))
}

fn capacity(target: &Target) -> Capacity {
    let block_len = target.spec.shape.sector;
    Capacity {
        blocks: target.disk.size() / u64::from(block_len),
        block_len,
        thin: target.spec.shape.discards,
        zeros: target.spec.shape.discards,
        ..Capacity::default()
    }
}

fn limits(target: &Target) -> Limits {
    let Some(deletes) = deletes(target) else { return Limits::default() };
    let same = Limits {
        provisioning: Provisioning::Thin,
        zeros: true,
        write_same_max: u64::from(UNMAP_BLOCKS_MAX) - 1,
        ..Limits::default()
    };
    match deletes {
        Deletes::Same16 => Limits { unmap_same16: true, ..same },
        Deletes::Same10 => Limits { unmap_same10: true, ..same },
        Deletes::Unmap => Limits {
            unmap_blocks_max: UNMAP_BLOCKS_MAX,
            unmap_descriptors_max: target.spec.ranges.into(),
            unmap_granularity: target.spec.granule.0,
            unmap_alignment: Some(target.spec.granule.1),
            unmap: true,
            write_same_max: 0,
            ..same
        },
    }
}

fn identity(target: &Target) -> Identity {
    let spec = &target.spec;
    let mut naa = [0; 16];
    naa.iter_mut().zip(spec.wwn.to_be_bytes()).for_each(|(to, from)| *to = from);
    // A locally assigned name of 16 bytes begins with 6.
    naa[0] = 0x60 | naa[0] & 0x0f;
    Identity {
        vendor: spec.vendor.clone(),
        product: spec.model.clone(),
        revision: spec.revision.clone(),
        serial: spec.serial.clone(),
        naa: Some(naa),
        rotation_rate: spec.rotation,
        write_cache: target.cache,
        kind: match target.spec.role {
            Role::Cdrom => PeripheralType::Cdrom,
            _ => PeripheralType::default(),
        },
        removable: target.spec.role == Role::Cdrom,
        ..Identity::default()
    }
}
