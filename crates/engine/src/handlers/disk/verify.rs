//! VERIFY and WRITE AND VERIFY 10, 12, 16, 32 (SBC-4 5.36 to 5.39, 5.50).
//!
//! | BYTCHK | sent | on the medium | compared |
//! | --- | --- | --- | --- |
//! | 0 | nothing | tuples are checked | nothing |
//! | 1 | blocks | tuples are checked | the data |
//! | 3 | one block | tuples are checked | the data of each with it |
//! | 1, 3, VRPROTECT | the same and tuples, checked | nothing is checked | data, tuples |
//!
//! [`Protect::compared`] gives the compared fields of the tuples. No field of a block is compared
//! where either tuple disables checking, and only the masked bits of the application tag of a
//! 32-byte command. A difference is MISCOMPARE, in a field of a tuple with the code of its check.
//! INFORMATION is the offset of the first differing byte in the sent data; a single block counts as
//! repeated for each block.

use bio::Segs;
use wire::scsi::{Asc, Extent, Key, Protect, ProtectionType, Sense, TUPLE_LEN, Tuple, asc};

use super::protected;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::protection::Want;

/// Bytes read, compared or written at a time, so that a long command shares the core.
pub(super) const CHUNK_BYTES: u32 = 256 * 1024;

/// VRPROTECT by which nothing that is read is checked.
const UNCHECKED: u8 = 3;

/// A field of a tuple differs: its code, and its place in the tuple.
type FieldDiffers = (Asc, u64);

const GUARD_DIFFERS: FieldDiffers = (Asc::new(Key::Miscompare, 0x10, 0x01), 0);
const APP_DIFFERS: FieldDiffers = (Asc::new(Key::Miscompare, 0x10, 0x02), 2);
const REFERENCE_DIFFERS: FieldDiffers = (Asc::new(Key::Miscompare, 0x10, 0x03), 4);

pub(super) fn plan(extent: Extent, check: u8, device: &Device) -> Result<Plan, Sense> {
    let bytes = protected::wire_bytes(extent, device)?;
    Ok(Plan::task(match check {
        0 => 0,
        1 => bytes,
        _ if extent.blocks == 0 => 0,
        _ => bytes / extent.blocks,
    })
    .at(extent.lba, u64::from(extent.blocks)))
}

pub(super) fn plan_write(extent: Extent, device: &Device) -> Result<Plan, Sense> {
    let plan = Plan::task(protected::wire_bytes(extent, device)?).writing();
    Ok(plan.at(extent.lba, u64::from(extent.blocks)))
}

/// Data that the initiator sent for comparison.
struct SentData {
    data: Segs,
    tuples: Option<Vec<u8>>,
}

pub(super) async fn verify(job: &Job, extent: Extent, check: u8) -> Result<(), Ending> {
    let sent = if check == 3 { extent.blocks.min(1) } else { extent.blocks };
    let (data, tuples) = protected::sent(job, Extent { blocks: sent, ..extent }).await?;
    let blocks = match check {
        0 => extent.blocks,
        1 => whole_blocks(job, &data),
        _ if whole_blocks(job, &data) == sent => extent.blocks,
        // The initiator sent less than the one block there must be.
        _ => return Err(Ending::check(asc::INVALID_FIELD_IN_CDB)),
    };
    compare(job, Extent { blocks, ..extent }, check, &SentData { data, tuples }).await
}

/// Writes to the medium, then reads it back.
pub(super) async fn write_verify(job: &Job, extent: Extent, check: u8) -> Result<(), Ending> {
    if check == 3 {
        return Err(Ending::check(asc::INVALID_FIELD_IN_CDB));
    }
    let (data, tuples) = protected::sent(job, extent).await?;
    let blocks = whole_blocks(job, &data);
    if blocks == 0 {
        return Ok(());
    }
    let mut theirs = SentData { data: Segs::new(), tuples: tuples.clone() };
    if !data.slice_into(0, data.len(), &mut theirs.data) {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    }
    job.medium().write_as(extent.lba, data, tuples, true).await?;
    compare(job, Extent { blocks, ..extent }, check, &theirs).await
}

/// Blocks that the initiator sent whole.
fn whole_blocks(job: &Job, data: &Segs) -> u32 {
    let blocks = data.len() / job.device.block_bytes() as usize;
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

async fn compare(job: &Job, extent: Extent, check: u8, theirs: &SentData) -> Result<(), Ending> {
    let unit = job.device.block_bytes();
    let chunk = (CHUNK_BYTES / unit).max(1);
    let mut done = 0;
    while done < extent.blocks {
        let n = chunk.min(extent.blocks - done);
        let lba = extent.lba + u64::from(done);
        let (medium, tuples) = job.medium().read_as(lba, n, want(extent, check, done)).await?;
        let part = Part { job, extent, check, done, blocks: n };
        let mut differs = part.data_differs(&medium, theirs)?;
        if let Some(sent) = theirs.tuples.as_ref().filter(|_| check != 0) {
            let field = part.tuple_differs(&tuples, sent);
            // Of several differences the first is reported.
            let first = |(_, at): &(Asc, u64)| *at;
            differs = [differs, field].into_iter().flatten().min_by_key(first);
        }
        if let Some((code, at)) = differs {
            return Err(Ending::Check(Sense::new(code).with_information(at)));
        }
        done += n;
    }
    Ok(())
}

/// Checks for a read from block `done` of a command on.
fn want(extent: Extent, check: u8, done: u32) -> Want {
    let mut want = protected::want(extent);
    if check != 0 && extent.protect != 0 {
        want.protect = UNCHECKED;
    }
    if let Some(tags) = &mut want.tags {
        tags.reference = tags.reference.wrapping_add(done);
    }
    want
}

/// `blocks` blocks of a command from block `done` on.
struct Part<'a> {
    job: &'a Job,
    extent: Extent,
    check: u8,
    done: u32,
    blocks: u32,
}

impl Part<'_> {
    /// The first difference in the data, and its offset in the sent data.
    fn data_differs(&self, medium: &Segs, theirs: &SentData) -> Result<Option<(Asc, u64)>, Ending> {
        let unit = self.job.device.block_bytes();
        let from = u64::from(self.done) * u64::from(unit);
        let found = match self.check {
            0 => None,
            1 => {
                let mut part = Segs::new();
                let at = usize::try_from(from).unwrap_or(usize::MAX);
                if !theirs.data.slice_into(at, medium.len(), &mut part) {
                    return Err(Ending::check(asc::INTERNAL_FAILURE));
                }
                first_difference(&medium.to_vec(), &part.to_vec())
            }
            _ => {
                let (ours, one) = (medium.to_vec(), theirs.data.to_vec());
                let mut each = ours.chunks(unit as usize).enumerate();
                each.find_map(|(i, b)| Some(i * unit as usize + first_difference(b, &one)?))
            }
        };
        Ok(found.map(|at| {
            let at = protected::offset_sent(self.extent, unit, from.saturating_add(at as u64));
            (asc::MISCOMPARE, at)
        }))
    }

    /// The same of the tuples: those of the medium, and all that were sent.
    fn tuple_differs(&self, medium: &[u8], sent: &[u8]) -> Option<(Asc, u64)> {
        let kind = self.job.device.protection_type()?;
        let rules = Protect::compared(self.extent.protect)?;
        let mask = self.extent.tags.map_or(u16::MAX, |tags| tags.mask);
        let repeated;
        let sent = match self.check {
            3 => {
                let (done, n) = (u64::from(self.done), u64::from(self.blocks));
                repeated = protected::repeated(self.job, sent, done, n);
                &repeated[..]
            }
            _ => sent.get(self.done as usize * TUPLE_LEN..).unwrap_or_default(),
        };
        let pairs = medium.as_chunks::<TUPLE_LEN>().0.iter().zip(sent.as_chunks().0);
        let found = (0u64..).zip(pairs).find_map(|(number, (ours, theirs))| {
            let (ours, theirs) = (Tuple::decode(ours), Tuple::decode(theirs));
            Some((number, field_differs(kind, rules, mask, ours, theirs)?))
        });
        found.map(|(number, (code, at))| {
            let unit = u64::from(self.job.device.block_bytes());
            let block = u64::from(self.done).saturating_add(number);
            let tuple = block.saturating_mul(unit + TUPLE_LEN as u64).saturating_add(unit);
            (code, tuple.saturating_add(at))
        })
    }
}

fn field_differs(
    kind: ProtectionType,
    rules: Protect,
    mask: u16,
    ours: Tuple,
    theirs: Tuple,
) -> Option<FieldDiffers> {
    if ours.is_escape(kind) || theirs.is_escape(kind) {
        return None;
    }
    let fields = [
        (rules.guard && ours.guard != theirs.guard, GUARD_DIFFERS),
        (rules.app && (ours.app ^ theirs.app) & mask != 0, APP_DIFFERS),
        (rules.reference && ours.reference != theirs.reference, REFERENCE_DIFFERS),
    ];
    fields.into_iter().find_map(|(differs, field)| differs.then_some(field))
}

/// Offset of the first byte of `a` that `b` does not have there.
pub(super) fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    (same < a.len()).then_some(same)
}
