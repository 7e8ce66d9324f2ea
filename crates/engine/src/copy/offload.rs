//! POPULATE TOKEN and WRITE USING TOKEN (SBC-3 4.28, 5.7, 5.47).

use std::sync::Arc;

use bio::{Errno, Flags, Op, Segs};
use wire::scsi::{
    BlockRange, Cscd, PopulateToken, RodToken, Sense, TOKEN_SECRET_LEN, WriteToken, asc,
};

use super::reach::CopyUnit;
use super::transfer::{BlockMove, cancelled};
use crate::job::Job;
use crate::status::{Ending, ending_of};
use crate::unit::copies::operations::{Operation, OperationId};
use crate::unit::copies::tokens::{Presented, Rod, Use};
use crate::unit::copies::{CHUNK_BYTES, LIMITS};
use crate::unit::ids::naa;
use crate::unit::{Device, ModeBits};

/// Blocks zeroed at a time, bytes.
const ZERO_BYTES: u64 = 16 << 20;

/// Offsets of the ranges, the offset and the token in the lists.
const POPULATE_RANGES: u16 = 16;
const WRITE_OFFSET: u16 = 8;

/// Ranges of a unit: they lie on it, and are not too much.
fn check(ranges: &[BlockRange], device: &Device) -> Result<u64, Sense> {
    let mut sum = 0u64;
    for range in ranges {
        if range.end().is_none_or(|end| end > device.blocks()) {
            return Err(Sense::new(asc::LBA_OUT_OF_RANGE).with_information(range.lba));
        }
        sum = sum.saturating_add(u64::from(range.blocks));
    }
    if sum.saturating_mul(u64::from(device.block_bytes())) > LIMITS.token_bytes {
        return Err(Sense::list_field(POPULATE_RANGES, None));
    }
    Ok(sum)
}

/// POPULATE TOKEN.
pub(crate) async fn populate(job: &Job, id: u32) -> Result<(), Ending> {
    let bytes = job.data.to_vec();
    let Some(list) = PopulateToken::parse(&bytes, &LIMITS)? else { return Ok(()) };
    let blocks = check(&list.ranges, &job.device)?;
    let operations = job.device.operations();
    let name = OperationId::new(&job.nexus, id);
    let operation = operations.begin(Some(name), 0x10, job.core().now())?;
    if list.immed {
        operation.continue_in_background();
        job.respond_early();
    }
    let result = make(job, list, blocks, &operation).await;
    let ending = result.err().unwrap_or(Ending::Good);
    operations.end(&operation, &ending, job.core().now());
    match ending {
        Ending::Good => Ok(()),
        ending => Err(ending),
    }
}

async fn make(
    job: &Job,
    list: PopulateToken,
    blocks: u64,
    operation: &Operation,
) -> Result<(), Ending> {
    let (core, device) = (job.core().clone(), &job.device);
    let seconds = if list.timeout_s == 0 { LIMITS.timeout_default_s } else { list.timeout_s };
    let token = new_token(job, blocks);
    let timeout_ns = u64::from(seconds).saturating_mul(1_000_000_000);
    let tokens = job.registry.tokens();
    let token_entry = tokens.make(device, list.ranges, &token, timeout_ns, core.now())?;
    let result = arm(job, &token_entry.rod, operation).await;
    if let Err(ending) = result {
        tokens.unmake(&token_entry.rod, core.now());
        return Err(ending);
    }
    operation.advance(0, blocks);
    operation.end_segment();
    operation.record_token(token_entry.rod.token.clone());
    token_entry.end(core.now());
    Ok(())
}

/// Every range is armed while no write is under way in it (K3).
async fn arm(job: &Job, rod: &Rod, operation: &Operation) -> Result<(), Ending> {
    for range in &rod.ranges {
        if operation.is_cancelled() {
            return Err(cancelled());
        }
        if job.is_aborted() {
            return Err(Ending::Status(wire::scsi::Status::TaskAborted));
        }
        let guard = job.exclusive(&job.device, range.lba, u64::from(range.blocks)).await?;
        rod.arm();
        drop(guard);
    }
    Ok(rod.check_valid()?)
}

fn new_token(job: &Job, blocks: u64) -> RodToken {
    let reactor = job.core().reactor();
    let mut secret = [0; TOKEN_SECRET_LEN];
    reactor.fill_random(&mut secret);
    let naa = naa(&job.device.spec().serial);
    let block_len = job.device.block_bytes();
    let creator = Cscd {
        null: false,
        peripheral: job.device.kind().peripheral() as u8,
        code_set: 1,
        association: 0,
        kind: 3,
        designator: &naa,
        block_len,
    };
    RodToken {
        id: reactor.random(),
        creator: creator.encode(),
        bytes: u128::from(blocks) * u128::from(block_len),
        block_len,
        target: job.port.name.clone(),
        secret,
    }
}

/// WRITE USING TOKEN.
pub(crate) async fn write(job: &Job, id: u32) -> Result<(), Ending> {
    let bytes = job.data.to_vec();
    let Some(list) = WriteToken::parse(&bytes, &LIMITS)? else { return Ok(()) };
    let blocks = check(&list.ranges, &job.device)?;
    let sees = |device: &Arc<Device>| job.luns.iter().any(|e| Arc::ptr_eq(&e.device, device));
    let tokens = job.registry.tokens();
    let presented = tokens.present(&list.token, sees, job.core().now())?;
    if let Presented::Rod(used) = &presented {
        fits(job, &used.rod, list.offset, blocks)?;
    }
    let operations = job.device.operations();
    let name = OperationId::new(&job.nexus, id);
    let operation = operations.begin(Some(name), 0x11, job.core().now())?;
    if list.immed {
        operation.continue_in_background();
        job.respond_early();
    }
    let result = match presented {
        Presented::Zero => zero(job, &operation, &list.ranges).await,
        Presented::Rod(used) => {
            let result = by_token(job, &operation, &list, &used).await;
            if list.delete {
                tokens.delete(&used.rod);
            }
            used.end(job.core().now());
            result
        }
    };
    let ending = result.err().unwrap_or(Ending::Good);
    operations.end(&operation, &ending, job.core().now());
    match ending {
        Ending::Good => Ok(()),
        ending => Err(ending),
    }
}

/// Checks that the requested range is in the data of the token, in whole blocks of both units.
fn fits(job: &Job, rod: &Rod, offset: u64, blocks: u64) -> Result<(), Sense> {
    let unit = u64::from(rod.device.block_bytes());
    let len = blocks.saturating_mul(u64::from(job.device.block_bytes()));
    let beyond = Sense::list_field(WRITE_OFFSET, None);
    if !len.is_multiple_of(unit) {
        return Err(beyond);
    }
    let end = offset.checked_add(len / unit).ok_or(beyond)?;
    if end > rod.blocks() { Err(beyond) } else { Ok(()) }
}

async fn by_token(
    job: &Job,
    operation: &Operation,
    list: &WriteToken,
    used: &Use,
) -> Result<(), Ending> {
    let rod = &used.rod;
    let source = CopyUnit::mapped(job, &rod.device).ok_or(Ending::check(asc::TOKEN_UNKNOWN))?;
    let destination = CopyUnit::own(job);
    if !source.readable {
        return Err(Ending::check(asc::COPY_DEVICE_FAILURE));
    }
    let still = || Ok(rod.check_valid()?);
    let theirs = u64::from(destination.device().block_bytes());
    let ours = u64::from(rod.device.block_bytes());
    let mut at = list.offset.saturating_mul(ours);
    for range in &list.ranges {
        let mut to = range.lba.saturating_mul(theirs);
        let mut left = u64::from(range.blocks).saturating_mul(theirs);
        while left > 0 {
            let Some((from, most)) = place_in(rod, at, ours) else {
                return Err(Ending::check(asc::INTERNAL_FAILURE));
            };
            let len = left.min(most);
            let (source, destination) = (&source, &destination);
            let hold = false;
            BlockMove {
                job,
                operation,
                source,
                destination,
                from,
                to,
                len,
                hold,
                check_source: &still,
            }
            .run()
            .await?;
            (at, to, left) = (at + len, to + len, left - len);
        }
        operation.end_segment();
    }
    Ok(())
}

/// Offset on the unit of byte `at` of a token's data, and the number of bytes that follow it there.
fn place_in(rod: &Rod, at: u64, unit: u64) -> Option<(u64, u64)> {
    let mut skip = at;
    for range in &rod.ranges {
        let len = u64::from(range.blocks).saturating_mul(unit);
        if skip < len {
            return Some((range.lba.saturating_mul(unit).saturating_add(skip), len - skip));
        }
        skip -= len;
    }
    None
}

/// The well-known token for zeros.
async fn zero(job: &Job, operation: &Operation, ranges: &[BlockRange]) -> Result<(), Ending> {
    let unit = u64::from(job.device.block_bytes());
    for range in ranges {
        let (mut lba, mut left) = (range.lba, u64::from(range.blocks));
        while left > 0 {
            if operation.is_cancelled() {
                return Err(cancelled());
            }
            let n = left.min((ZERO_BYTES / unit).max(1));
            let guard = job.exclusive(&job.device, lba, n).await?;
            zero_blocks(job, lba, n).await?;
            drop(guard);
            operation.advance(n.saturating_mul(unit), n);
            (lba, left) = (lba + n, left - n);
        }
        operation.end_segment();
    }
    Ok(())
}

async fn zero_blocks(job: &Job, lba: u64, blocks: u64) -> Result<(), Ending> {
    let durable = !job.device.mode().has(ModeBits::WCE);
    let flags = if durable { Flags::FUA } else { Flags::NONE };
    match job.range(Op::WriteZeroes, lba, blocks, flags).await {
        Ok(()) if durable => job.flush().await,
        Err(e) if e == ending_of(Errno::NotSup, Op::WriteZeroes) => {
            write_zeroes(job, lba, blocks).await
        }
        other => other,
    }
}

/// For media that cannot zero by themselves.
async fn write_zeroes(job: &Job, lba: u64, blocks: u64) -> Result<(), Ending> {
    let unit = u64::from(job.device.block_bytes());
    let chunk = (u64::from(CHUNK_BYTES) / unit).max(1).min(blocks);
    let bytes = usize::try_from(chunk * unit).unwrap_or(0);
    let zeroes = job.buffers(bytes).await?;
    zeroes.copy_from(0, &vec![0; bytes]);
    let mut done = 0;
    while done < blocks {
        let n = chunk.min(blocks - done);
        let mut piece = Segs::new();
        if !zeroes.slice_into(0, usize::try_from(n * unit).unwrap_or(0), &mut piece) {
            return Err(Ending::check(asc::INTERNAL_FAILURE));
        }
        job.write(lba + done, piece, false).await?;
        done += n;
    }
    Ok(())
}
