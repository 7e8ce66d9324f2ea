//! Operations on a whole medium. FORMAT UNIT and SANITIZE run as tasks of their own, which aborts
//! and resets do not end (SBC-3 4.11, 4.34).
//!
//! Invariants
//!  U1  Before the first block changes, the state store has a record of the operation; it is
//!      removed when the operation is complete and durable. A daemon that finds the record finishes
//!      a SANITIZE, and reports a medium whose FORMAT was interrupted as corrupted.
//!  U2  The unit is READY again only when the record is removed: a SANITIZE that was done is never
//!      repeated over new data.
//!  U3  While it runs nothing else reaches the medium: new commands are refused, those that were
//!      there before have ended.
//!  U4  Freeing that belongs to it has been done by the disk when it ends; none is put off.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bio::{Flags, Op, Segs};
use geom::{Core, deadline};
use wire::scsi::{ProtectionType, asc};

use crate::job::{Job, Medium, protection};
use crate::registry::Registry;
use crate::state_store::{RecordKind, StateStore, save_channel};
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::medium_state::MediumState;

const PIECE_BYTES: u64 = 1 << 20;

/// How often a command that waits for the end looks whether it was aborted, ns.
const ABORT_POLL_NS: u64 = 5_000_000;

/// First bytes of a record.
const MAGIC: &[u8; 8] = b"ASHMEDM1";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MediumOperation {
    /// The type of protection afterwards, where there is space for it; `None` is as before.
    pub protection: Option<Option<ProtectionType>>,
    /// SANITIZE; else FORMAT UNIT.
    pub sanitize: bool,
    /// A failed SANITIZE may be left without another one.
    pub unrestricted: bool,
    pub failed: bool,
    /// Blocks are freed at the end, where that is possible.
    pub free: bool,
    /// Every other pass writes the complement; the last one writes the pattern.
    pub invert: bool,
    /// Passes of writing; none only frees or zeroes.
    pub passes: u8,
    /// Fill data of each block, repeated; empty is zeroes.
    pub pattern: Vec<u8>,
}

impl MediumOperation {
    fn encode(&self) -> Vec<u8> {
        let flags = [self.sanitize, self.unrestricted, self.failed, self.free, self.invert];
        let bits = flags.iter().rev().fold(0u8, |sum, on| sum << 1 | u8::from(*on));
        let mut out = MAGIC.to_vec();
        let kind = self.protection.map_or(0, |kind| 1 + kind.map_or(0, |kind| kind as u8));
        out.extend([bits, self.passes, kind, 0]);
        out.extend(&self.pattern);
        out
    }

    /// The state store has checked that the bytes are those that were stored.
    fn decode(bytes: &[u8]) -> Option<MediumOperation> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let ([bits, passes, kind @ 0..=4, 0], pattern) = rest.split_first_chunk::<4>()? else {
            return None;
        };
        let has = |n: u8| bits & (1 << n) != 0;
        Some(MediumOperation {
            protection: kind.checked_sub(1).map(ProtectionType::from_number),
            sanitize: has(0),
            unrestricted: has(1),
            failed: has(2),
            free: has(3),
            invert: has(4),
            passes: *passes,
            pattern: pattern.to_vec(),
        })
    }

    fn running_state(&self) -> MediumState {
        if self.sanitize { MediumState::Sanitizing } else { MediumState::Formatting }
    }

    fn failed_state(&self) -> MediumState {
        if self.sanitize { MediumState::SanitizeFailed } else { MediumState::FormatCorrupted }
    }
}

/// Result of the task, for the command that waits for it.
#[derive(Default)]
struct OperationResult {
    result: Option<Result<(), Ending>>,
    waker: Option<Waker>,
}

/// Begins the operation, and waits for its end unless `immed`. If the record cannot be saved,
/// nothing changes.
pub(super) async fn run(job: &Job, work: MediumOperation, immed: bool) -> Result<(), Ending> {
    let device = &job.device;
    let before = device.condition().state();
    let from = [MediumState::Ready, MediumState::SanitizeFailed, MediumState::FormatCorrupted];
    if let Err(state) = device.condition().enter(&from, work.running_state()) {
        return Err(Ending::check(state.refusal().unwrap_or(asc::NOT_READY)));
    }
    if let Err(e) = save(&job.registry, device, work.encode()).await {
        device.condition().set(before);
        return Err(crate::status::ending_of(e, Op::Write));
    }
    device.condition().set_unrestricted(work.unrestricted);
    let cell: Rc<RefCell<OperationResult>> = Rc::default();
    let (tell, medium, registry) = (cell.clone(), job.medium().detached(), job.registry.clone());
    drop(job.core().reactor().spawn("upkeep", async move {
        let end = carry_out(&medium, &registry, work).await;
        let mut cell = tell.borrow_mut();
        cell.result = Some(end);
        if let Some(waker) = cell.waker.take() {
            waker.wake();
        }
    }));
    if immed {
        return Ok(());
    }
    let mut over = pin!(poll_fn(|cx: &mut Context<'_>| {
        let mut cell = cell.borrow_mut();
        cell.waker = Some(cx.waker().clone());
        cell.result.take().map_or(Poll::Pending, Poll::Ready)
    }));
    loop {
        if let Some(end) = deadline(job.core(), ABORT_POLL_NS, over.as_mut()).await {
            return end;
        }
        if job.is_aborted() {
            return Ok(());
        }
    }
}

/// Saves the record. Without a state store nothing is saved, so an interruption is not detected
/// later.
pub(super) async fn save(
    registry: &Registry,
    device: &Device,
    bytes: Vec<u8>,
) -> Result<(), bio::Errno> {
    if !registry.state_store().is_persistent() {
        return Ok(());
    }
    let (done, saved) = save_channel();
    registry.state_store().save(&device.spec().serial, RecordKind::Medium, bytes, done);
    saved.await
}

/// Does it all and leaves the unit in the state that follows (U2).
async fn carry_out(
    medium: &Medium,
    registry: &Registry,
    work: MediumOperation,
) -> Result<(), Ending> {
    let device = medium.device().clone();
    let mut end = fill(medium, &work).await;
    if end.is_ok() {
        let kept = protection::save_tail_record(registry, &device).await;
        end = kept.map_err(|e| crate::status::ending_of(e, Op::Write));
    }
    if end.is_ok() {
        let gone = save(registry, &device, Vec::new()).await;
        end = gone.map_err(|e| crate::status::ending_of(e, Op::Write));
    }
    match end {
        Ok(()) => device.condition().set(MediumState::Ready),
        Err(_) => {
            let record = MediumOperation { failed: true, ..work.clone() }.encode();
            // When this fails too, the older record makes the next daemon try again.
            let _ = save(registry, &device, record).await;
            device.condition().set(work.failed_state());
        }
    }
    end
}

/// The passes, then freeing; everything durable when it ends.
async fn fill(medium: &Medium, work: &MediumOperation) -> Result<(), Ending> {
    let device = medium.device().clone();
    let unit = u64::from(device.block_bytes());
    let steps = u64::from(work.passes) + 1;
    let _alone = medium.exclusive(0, device.blocks()).await?;
    if let Some(protection) = device.protection() {
        protection.begin_format(medium, work.protection.is_some()).await?;
    }
    let all = device.protection().map_or(device.blocks(), |p| p.layout().blocks) * unit;
    for pass in 0..work.passes {
        let turned = work.invert && (work.passes - pass).is_multiple_of(2);
        let piece = pattern_piece(medium, work, turned, PIECE_BYTES.min(all)).await?;
        let mut at = 0;
        while at < all {
            let len = PIECE_BYTES.min(all - at);
            let mut data = Segs::new();
            if !piece.slice_into(0, usize::try_from(len).unwrap_or(0), &mut data) {
                return Err(Ending::check(asc::INTERNAL_FAILURE));
            }
            medium.raw(Op::Write, at, len, data, Flags::NONE).await?;
            at += len;
            let done = u64::from(pass) * (all / steps) + at / steps;
            device.condition().note_progress(done, all);
        }
        medium.flush().await?;
    }
    if work.free || work.passes == 0 {
        // ORDERED: one that is only noted somewhere below, to be done later, is not done (U4).
        let (op, how) = match work.free {
            true => (Op::Delete, Flags::ORDERED),
            false => (Op::WriteZeroes, Flags::NONE),
        };
        match medium.raw(op, 0, all, Segs::new(), how).await {
            Err(e) if work.passes == 0 => return Err(e),
            _ => medium.flush().await?,
        }
    }
    if let Some(protection) = device.protection() {
        let before = protection.kind();
        let kind = work.protection.unwrap_or(before);
        protection.end_format(medium, kind).await?;
        let was = device.blocks();
        device.refit();
        if kind != before && device.blocks() == was {
            device.raise(asc::CAPACITY_CHANGED, None);
        }
    }
    Ok(())
}

/// A buffer of the pattern, block by block.
async fn pattern_piece(
    medium: &Medium,
    work: &MediumOperation,
    turned: bool,
    len: u64,
) -> Result<Segs, Ending> {
    let unit = medium.device().block_bytes() as usize;
    let flip = if turned { 0xff } else { 0 };
    let zero = [0];
    let pattern = if work.pattern.is_empty() { &zero[..] } else { &work.pattern };
    let block: Vec<u8> = pattern.iter().cycle().take(unit).map(|b| b ^ flip).collect();
    let len = usize::try_from(len).unwrap_or(unit);
    let data = medium.buffers(len).await?;
    for at in (0..len).step_by(unit.max(1)) {
        data.copy_from(at, &block);
    }
    Ok(data)
}

/// Applies the record of the state store to a new unit. An unreadable record counts as interrupted.
pub(crate) fn recall(device: &Device, store: &dyn StateStore) -> Result<(), geom::Error> {
    let Some(bytes) = store.load(&device.spec().serial, RecordKind::Medium)? else { return Ok(()) };
    if bytes.is_empty() {
        return Ok(());
    }
    let Some(work) = MediumOperation::decode(&bytes) else {
        device.condition().set(MediumState::FormatCorrupted);
        return Ok(());
    };
    device.condition().set_unrestricted(work.unrestricted);
    if work.failed || !work.sanitize {
        device.condition().set(work.failed_state());
    } else {
        device.condition().set(MediumState::Sanitizing);
    }
    Ok(())
}

/// Continues with a SANITIZE that [`recall`] has found interrupted, on the core that this runs on.
/// How it ends is in the unit's condition.
pub(crate) fn resume(core: &Rc<Core>, device: Arc<Device>, registry: Arc<Registry>) {
    let loaded = registry.state_store().load(&device.spec().serial, RecordKind::Medium);
    let work = loaded.ok().flatten().and_then(|bytes| MediumOperation::decode(&bytes));
    let Some(work) = work else {
        device.condition().set(MediumState::SanitizeFailed);
        return;
    };
    let medium = Medium::standalone(core, device);
    drop(core.reactor().spawn("upkeep", async move {
        let _ = carry_out(&medium, &registry, work).await;
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_truncated_ones_are_rejected() {
        for n in 0..32u8 {
            let has = |bit: u8| n & (1 << bit) != 0;
            let work = MediumOperation {
                protection: (n % 5).checked_sub(1).map(ProtectionType::from_number),
                sanitize: has(0),
                unrestricted: has(1),
                failed: has(2),
                free: has(3),
                invert: has(4),
                passes: n,
                pattern: vec![n; usize::from(n)],
            };
            let bytes = work.encode();
            assert_eq!(MediumOperation::decode(&bytes), Some(work));
            for cut in 0..12 {
                assert_eq!(MediumOperation::decode(&bytes[..cut]), None);
            }
        }
        assert_eq!(MediumOperation::decode(b"ASHMEDM1\x00\x00\x09\x00"), None);
    }
}
