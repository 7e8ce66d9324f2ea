//! READ and WRITE of units with protection information (SBC-3 4.22), and the parts shared by other
//! commands with RDPROTECT, WRPROTECT or VRPROTECT: on the wire each block is followed by its
//! tuple.
//!
//! | type | 6 to 16 bytes, field 0 | 6 to 16 bytes, field not 0 | 32 bytes |
//! | --- | --- | --- | --- |
//! | none | as ever | refused, 24/00 | refused, 20/00 |
//! | 1, 3 | no tuples move | they do | refused, 20/00 |
//! | 2 | no tuples move | refused, 20/00 | expected tags are checked |
//!
//! Commands refused with 20/00 because of their length have no row in REPORT SUPPORTED OPERATION
//! CODES ([`super::Disk::serves`]).

use bio::{Op, Segs};
use wire::scsi::{Extent, Protect, ProtectionType, Sense, TUPLE_LEN, Tuple, asc};

use super::read_write::check;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::protection::{Facts, Want, join, split};

/// Checks a command that may move tuples; answers its bytes on the wire.
pub(super) fn wire_bytes(extent: Extent, device: &Device) -> Result<u32, Sense> {
    let Some(kind) = device.protection_type() else { return check(extent, device) };
    if extent.protect == 0 {
        return check(extent, device);
    }
    if kind == ProtectionType::Two && extent.tags.is_none() {
        return Err(Sense::new(asc::INVALID_OPCODE));
    }
    if Protect::from_field(extent.protect).is_none() {
        return Err(extent.protect_error().sense());
    }
    let bytes = check(Extent { protect: 0, ..extent }, device)?;
    let tuples = extent.blocks.checked_mul(TUPLE_LEN as u32);
    let all = tuples.and_then(|tuples| bytes.checked_add(tuples));
    all.ok_or(Sense::new(asc::INVALID_FIELD_IN_CDB))
}

pub(super) fn plan(op: Op, extent: Extent, device: &Device) -> Result<Plan, Sense> {
    let bytes = wire_bytes(extent, device)?;
    let plan = match op {
        Op::Write => Plan::task(bytes).writing(),
        _ => Plan { reply: bytes, ..Plan::task(0) },
    };
    Ok(plan.at(extent.lba, u64::from(extent.blocks)))
}

/// Checks for a read or verification of an extent.
pub(super) fn want(extent: Extent) -> Want {
    Want { protect: extent.protect, tags: extent.tags, fua: extent.fua }
}

pub(super) async fn read(job: &Job, extent: Extent) -> Result<(), Ending> {
    if extent.blocks == 0 {
        return Ok(());
    }
    let (data, tuples) = job.medium().read_as(extent.lba, extent.blocks, want(extent)).await?;
    if extent.protect == 0 {
        job.reply(data);
        return Ok(());
    }
    let both = join(&data.to_vec(), &tuples, job.device.block_bytes());
    drop(data);
    job.reply_bytes(&both).await
}

pub(super) async fn write(job: &Job, extent: Extent) -> Result<(), Ending> {
    let (data, tuples) = sent(job, extent).await?;
    if data.is_empty() {
        return Ok(());
    }
    job.medium().write_as(extent.lba, data, tuples, extent.fua).await
}

/// The whole blocks that the initiator has sent, and their tuples, checked.
pub(super) async fn sent(job: &Job, extent: Extent) -> Result<(Segs, Option<Vec<u8>>), Ending> {
    let (data, tuples) = apart(job, extent)?;
    if let Some(tuples) = &tuples {
        check_tuples(job, extent, &data, tuples)?;
    }
    Ok((data, tuples))
}

/// The whole blocks that the initiator has sent, as often as it has, and their tuples, not checked.
pub(super) fn apart(job: &Job, extent: Extent) -> Result<(Segs, Option<Vec<u8>>), Ending> {
    let unit = job.device.block_bytes();
    let mut data = Segs::new();
    if extent.protect == 0 {
        let whole = job.data.len() / unit as usize * unit as usize;
        return match job.data.slice_into(0, whole, &mut data) {
            true => Ok((data, None)),
            false => Err(Ending::check(asc::INTERNAL_FAILURE)),
        };
    }
    let (blocks, tuples) = split(&job.data.to_vec(), unit);
    // Into the memory that the command has already.
    if !job.data.slice_into(0, blocks.len(), &mut data)
        || data.copy_from(0, &blocks) != blocks.len()
    {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    Ok((data, Some(tuples)))
}

/// Checks an initiator's tuples for blocks of an extent.
pub(super) fn check_tuples(
    job: &Job,
    extent: Extent,
    data: &Segs,
    tuples: &[u8],
) -> Result<(), Ending> {
    // FORMAT UNIT cannot have been in between: nothing else runs beside it.
    let Some(kind) = job.device.protection_type() else {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    };
    if let Some(rules) = Protect::from_field(extent.protect) {
        let facts = Facts { kind, lba: extent.lba, tags: extent.tags, rules, from_medium: false };
        facts.check(data, u64::from(job.device.block_bytes()), tuples)?;
    }
    Ok(())
}

/// The tuples of `n` blocks from block `done` of a command on that was sent one tuple, for its
/// first block: the reference tags of types 1 and 2 grow (SBC-3 5.42).
pub(super) fn repeated(job: &Job, tuple: &[u8], done: u64, n: u64) -> Vec<u8> {
    let Some(bytes) = tuple.first_chunk::<TUPLE_LEN>() else { return Vec::new() };
    let first = Tuple::decode(bytes);
    let grows = job.device.protection_type() != Some(ProtectionType::Three);
    let one = |number: u64| match grows {
        true => {
            let by = u32::try_from(number).unwrap_or(0);
            Tuple { reference: first.reference.wrapping_add(by), ..first }.encode()
        }
        false => *bytes,
    };
    (done..done.saturating_add(n)).flat_map(one).collect()
}

/// Offset of data byte `at` in the data that the initiator sends, tuples included.
pub(super) fn offset_sent(extent: Extent, unit: u32, at: u64) -> u64 {
    let tuples = if extent.protect == 0 { 0 } else { at / u64::from(unit.max(1)) };
    at.saturating_add(tuples.saturating_mul(TUPLE_LEN as u64))
}
