//! EXTENDED COPY (SPC-4 6.4, 6.5): segments in order, each a transfer or a verification.

use wire::scsi::{CopyForm, CopyList, ListUsage, Segment, SegmentAt, Sense, Status, asc};

use super::reach::{CopyUnit, resolve};
use super::transfer::{BlockMove, cancelled};
use crate::job::Job;
use crate::status::Ending;
use crate::unit::copies::LIMITS;
use crate::unit::copies::operations::{Operation, OperationId};

/// Offsets of LBAs and counts in a segment descriptor.
const COUNT_AT: u16 = 10;
const SOURCE_LBA_AT: u16 = 12;
const DESTINATION_LBA_AT: u16 = 20;
const SOURCE_ID_AT: u16 = 4;
const DESTINATION_ID_AT: u16 = 6;

/// Reason for a failed segment, without the segment's number.
enum Stop {
    /// The meaning, and the field of the descriptor, if it is one.
    Abort(wire::scsi::Asc, Option<u16>),
    /// A unit refused a request, or the command was ended.
    Medium(Ending),
}

impl From<Ending> for Stop {
    fn from(ending: Ending) -> Stop {
        Stop::Medium(ending)
    }
}

/// Executes a list.
pub(crate) async fn copy(job: &Job, form: CopyForm) -> Result<(), Ending> {
    let bytes = job.data.to_vec();
    let Some(list) = CopyList::parse(form, &bytes, &LIMITS)? else { return Ok(()) };
    let operations = job.device.operations();
    let name = (list.usage != ListUsage::None).then(|| OperationId::new(&job.nexus, list.id));
    let action = if form == CopyForm::Lid1 { 0 } else { 1 };
    let operation = operations.begin(name, action, job.core().now())?;
    if list.immed {
        operation.continue_in_background();
        job.respond_early();
    }
    let result = segments(job, &list, &operation).await;
    let ending = result.err().unwrap_or(Ending::Good);
    operations.end(&operation, &ending, job.core().now());
    match ending {
        Ending::Good => Ok(()),
        ending => Err(ending),
    }
}

async fn segments(job: &Job, list: &CopyList<'_>, op: &Operation) -> Result<(), Ending> {
    for (i, at) in list.segments.iter().enumerate() {
        if op.is_cancelled() {
            return Err(cancelled());
        }
        let number = u16::try_from(i).unwrap_or(u16::MAX);
        match segment(job, list, op, at).await {
            Ok(()) => op.end_segment(),
            Err(Stop::Abort(code, field)) => {
                let field = field.map(|f| at.at.saturating_add(f));
                return Err(Ending::Check(Sense::copy_aborted(code, number, field)));
            }
            Err(Stop::Medium(ending)) => return Err(third_party(ending, number)),
        }
    }
    Ok(())
}

/// Answer to the initiator when a unit's medium refused a request of a copy.
fn third_party(ending: Ending, segment: u16) -> Ending {
    match ending {
        Ending::Status(Status::TaskAborted) => ending,
        Ending::Check(sense) if sense.code == asc::COPY_ABORTED => ending,
        Ending::Check(sense) if sense.code == asc::MANUAL_NEEDED => {
            Ending::Check(Sense::copy_aborted(asc::COPY_DEVICE_GONE, segment, None))
        }
        _ => Ending::Check(Sense::copy_aborted(asc::COPY_DEVICE_FAILURE, segment, None)),
    }
}

async fn segment(
    job: &Job,
    list: &CopyList<'_>,
    op: &Operation,
    at: &SegmentAt,
) -> Result<(), Stop> {
    let find = |id: u16, field: u16| -> Result<CopyUnit, Stop> {
        resolve(job, &list.cscds, id).map_err(|code| Stop::Abort(code, Some(field)))
    };
    match at.segment {
        Segment::Verify { source, ready } => {
            let place = find(source, SOURCE_ID_AT)?;
            if ready && !place.readable {
                return Err(Stop::Abort(asc::COPY_DEVICE_FAILURE, Some(SOURCE_ID_AT)));
            }
            Ok(())
        }
        Segment::Blocks { source, destination, .. } => {
            let from = find(source, SOURCE_ID_AT)?;
            let to = find(destination, DESTINATION_ID_AT)?;
            blocks(job, op, at.segment, &from, &to).await
        }
        Segment::Bytes { source, destination, .. } => {
            let from = find(source, SOURCE_ID_AT)?;
            let to = find(destination, DESTINATION_ID_AT)?;
            offsets(job, op, at.segment, &from, &to).await
        }
    }
}

/// Whole blocks: both units must hold a whole number of them.
async fn blocks(
    job: &Job,
    op: &Operation,
    segment: Segment,
    source: &CopyUnit,
    destination: &CopyUnit,
) -> Result<(), Stop> {
    let Segment::Blocks { of_destination, blocks, source_lba, destination_lba, hold, .. } = segment
    else {
        return Ok(());
    };
    let (ours, theirs) =
        (u64::from(source.device().block_bytes()), u64::from(destination.device().block_bytes()));
    let len = u64::from(blocks) * if of_destination { theirs } else { ours };
    // Neither PAD nor CAT is served: there is no place for a rest.
    if !len.is_multiple_of(ours) || !len.is_multiple_of(theirs) {
        return Err(Stop::Abort(asc::COPY_INEXACT, Some(COUNT_AT)));
    }
    let from = start(source_lba, 0, ours, len, source, SOURCE_LBA_AT)?;
    let to = start(destination_lba, 0, theirs, len, destination, DESTINATION_LBA_AT)?;
    go(job, op, source, destination, (from, to, len), hold).await
}

/// Bytes from an offset to an offset.
async fn offsets(
    job: &Job,
    op: &Operation,
    segment: Segment,
    source: &CopyUnit,
    destination: &CopyUnit,
) -> Result<(), Stop> {
    let Segment::Bytes {
        bytes,
        source_lba,
        destination_lba,
        source_offset,
        destination_offset,
        ..
    } = segment
    else {
        return Ok(());
    };
    let (ours, theirs) =
        (u64::from(source.device().block_bytes()), u64::from(destination.device().block_bytes()));
    let len = u64::from(bytes);
    for (offset, unit, field) in [(source_offset, ours, 28), (destination_offset, theirs, 30)] {
        if u64::from(offset) >= unit {
            return Err(Stop::Abort(asc::COPY_ABORTED, Some(field)));
        }
    }
    let from = start(source_lba, source_offset, ours, len, source, SOURCE_LBA_AT)?;
    let to =
        start(destination_lba, destination_offset, theirs, len, destination, DESTINATION_LBA_AT)?;
    if len == 0 {
        return Ok(());
    }
    go(job, op, source, destination, (from, to, len), false).await
}

/// The first byte on a medium; all bytes must be there.
fn start(
    lba: u64,
    offset: u16,
    unit: u64,
    len: u64,
    place: &CopyUnit,
    field: u16,
) -> Result<u64, Stop> {
    let size = place.device().blocks().saturating_mul(unit);
    let first = lba.checked_mul(unit).and_then(|at| at.checked_add(u64::from(offset)));
    match first {
        Some(first) if first.checked_add(len).is_some_and(|end| end <= size) => Ok(first),
        _ => Err(Stop::Abort(asc::COPY_ABORTED, Some(field))),
    }
}

async fn go(
    job: &Job,
    operation: &Operation,
    source: &CopyUnit,
    destination: &CopyUnit,
    (from, to, len): (u64, u64, u64),
    hold: bool,
) -> Result<(), Stop> {
    if !source.readable {
        return Err(Stop::Abort(asc::COPY_DEVICE_FAILURE, Some(SOURCE_ID_AT)));
    }
    if !destination.writable {
        return Err(Stop::Abort(asc::COPY_DEVICE_FAILURE, Some(DESTINATION_ID_AT)));
    }
    let still = || Ok(());
    let all = BlockMove {
        job,
        operation,
        source,
        destination,
        from,
        to,
        len,
        hold,
        check_source: &still,
    };
    Ok(all.run().await?)
}
