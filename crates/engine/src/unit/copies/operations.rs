//! Copies that run, and the results of those that ended.
//!
//! ```text
//!   begin() --> RUNNING --advance()--> RUNNING --end()--> REMEMBERED --> dropped: RESULTS_KEEP_NS,
//!                  |                                       ^             the name begins again,
//!                  +------- cancel(), then the end --------+             or the nexus is lost
//! ```
//!
//! Invariants
//!  O1  A name (nexus, list identifier) belongs to one operation at a time; a running one keeps it.
//!  O2  Of a nexus there are at most [`CopyLimits::identified`](wire::scsi::CopyLimits) named
//!      operations, of a unit at most `concurrent`
//!      that run.
//!  O3  Nothing is remembered longer than [`RESULTS_KEEP_NS`] after its end.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use bio::sync::{Mutex, MutexGuard};
use wire::scsi::{
    CopyProgress, CopyState, ROD_TOKEN_LEN, SENSE_LEN_MAX, Status, asc, copy_status_lid1,
    copy_status_lid4, failed_segment, held_data, rod_token_information,
};

use super::LIMITS;
use crate::status::Ending;
use crate::unit::unit_attention::ItlNexus;

/// How long the results of an ended copy can be fetched, ns.
pub(crate) const RESULTS_KEEP_NS: u64 = 60_000_000_000;

/// Milliseconds after which the progress of a copy is worth another request.
const POLL_INTERVAL_MS: u32 = 500;

/// Who names an operation, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationId {
    session: u64,
    lun: u64,
    list_id: u32,
}

impl OperationId {
    /// The name `id` of a nexus.
    pub fn new(nexus: &ItlNexus, id: u32) -> OperationId {
        OperationId { session: nexus.port().session, lun: nexus.lun(), list_id: id }
    }

    fn is_of(&self, nexus: &ItlNexus) -> bool {
        (self.session, self.lun) == (nexus.port().session, nexus.lun())
    }
}

#[derive(Default)]
struct OperationState {
    state: CopyState,
    segments: u16,
    operations: u16,
    bytes: u64,
    blocks: u64,
    held: Vec<u8>,
    held_lost: bool,
    ended: u8,
    sense: Vec<u8>,
    token: Option<Box<[u8; ROD_TOKEN_LEN]>>,
    ended_ns: u64,
    waiters: Vec<Waker>,
}

/// One copy.
pub(crate) struct Operation {
    action: u8,
    cancelled: AtomicBool,
    state: Mutex<OperationState>,
}

impl Operation {
    fn state(&self) -> MutexGuard<'_, OperationState> {
        self.state.lock()
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    fn is_running(&self) -> bool {
        matches!(self.state().state, CopyState::Foreground | CopyState::Background)
    }

    /// Its status is sent, it continues.
    pub fn continue_in_background(&self) {
        self.state().state = CopyState::Background;
    }

    /// A chunk is done.
    pub fn advance(&self, bytes: u64, blocks: u64) {
        let mut facts = self.state();
        facts.operations = facts.operations.wrapping_add(1);
        facts.bytes = facts.bytes.saturating_add(bytes);
        facts.blocks = facts.blocks.saturating_add(blocks);
    }

    pub fn end_segment(&self) {
        let mut facts = self.state();
        facts.segments = facts.segments.saturating_add(1);
    }

    /// Holds data for RECEIVE COPY DATA; the oldest data is dropped when there is too much.
    pub fn hold(&self, data: &[u8]) {
        let mut facts = self.state();
        facts.held.extend(data);
        let most = LIMITS.held_len as usize;
        if let Some(over) = facts.held.len().checked_sub(most).filter(|n| *n > 0) {
            facts.held.drain(..over);
            facts.held_lost = true;
        }
    }

    pub fn record_token(&self, token: Box<[u8; ROD_TOKEN_LEN]>) {
        self.state().token = Some(token);
    }

    fn end(&self, ending: &Ending, now: u64) {
        let mut facts = self.state();
        facts.state = match ending {
            Ending::Good => CopyState::Good,
            _ if self.is_cancelled() => CopyState::Aborted,
            Ending::Status(Status::TaskAborted) => CopyState::Aborted,
            _ => CopyState::Failed,
        };
        facts.ended = ending.status().code();
        if let Ending::Check(sense) = ending {
            let mut bytes = [0; SENSE_LEN_MAX];
            let len = sense.encode(true, &mut bytes);
            facts.sense = bytes.iter().take(len).copied().collect();
        }
        facts.ended_ns = now;
        let waiters = std::mem::take(&mut facts.waiters);
        drop(facts);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Ends when the operation has ended.
    pub async fn ended(&self) {
        poll_fn(|cx| {
            let mut facts = self.state();
            if !matches!(facts.state, CopyState::Foreground | CopyState::Background) {
                return Poll::Ready(());
            }
            if !facts.waiters.iter().any(|w| w.will_wake(cx.waker())) {
                facts.waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn with<T>(
        &self,
        in_blocks: bool,
        f: impl FnOnce(&CopyProgress<'_>, &OperationState) -> T,
    ) -> T {
        let facts = self.state();
        let progress = CopyProgress {
            status: facts.state,
            action: self.action,
            segments: facts.segments,
            operations: facts.operations,
            bytes: if in_blocks { facts.blocks } else { facts.bytes },
            held_lost: facts.held_lost,
            again_ms: POLL_INTERVAL_MS,
            ended: facts.ended,
            sense: &facts.sense,
        };
        f(&progress, &facts)
    }
}

struct Entry {
    /// `None`: no command can fetch its result.
    id: Option<OperationId>,
    operation: Arc<Operation>,
}

/// Every operation of a unit's copy manager.
#[derive(Default)]
pub(crate) struct Operations {
    entries: Mutex<Vec<Entry>>,
}

impl Operations {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock()
    }

    /// Begins an operation, with a name when it has one (O1, O2).
    pub fn begin(
        &self,
        name: Option<OperationId>,
        action: u8,
        now: u64,
    ) -> Result<Arc<Operation>, Ending> {
        let mut entries = self.entries();
        entries.retain(|e| is_kept(e, now));
        if entries.iter().filter(|e| e.operation.is_running()).count() >= LIMITS.concurrent.into() {
            return Err(Ending::Status(Status::Busy));
        }
        if let Some(name) = name {
            if let Some(i) = entries.iter().position(|e| e.id == Some(name)) {
                if entries.get(i).is_some_and(|e| e.operation.is_running()) {
                    return Err(Ending::check(asc::OPERATION_IN_PROGRESS));
                }
                entries.remove(i);
            }
            evict_oldest(&mut entries, name)?;
        }
        let operation = Arc::new(Operation {
            action,
            cancelled: AtomicBool::new(false),
            state: Mutex::default(),
        });
        entries.push(Entry { id: name, operation: operation.clone() });
        Ok(operation)
    }

    /// An operation has ended, and none of it touches a medium any more.
    pub fn end(&self, operation: &Arc<Operation>, ending: &Ending, now: u64) {
        operation.end(ending, now);
        self.entries().retain(|e| e.id.is_some() || !Arc::ptr_eq(&e.operation, operation));
    }

    fn find(&self, name: OperationId, now: u64) -> Option<Arc<Operation>> {
        let mut entries = self.entries();
        entries.retain(|e| is_kept(e, now));
        let entry = entries.iter().find(|e| e.id == Some(name))?;
        Some(entry.operation.clone())
    }

    /// Requests the end of a running operation.
    pub fn cancel(&self, name: OperationId, now: u64) -> Option<Arc<Operation>> {
        let operation = self.find(name, now).filter(|o| o.is_running())?;
        operation.cancelled.store(true, Ordering::Release);
        Some(operation)
    }

    /// A nexus has ended, and its commands too: removes its results, which no command can fetch
    /// any more.
    pub fn forget(&self, nexus: &ItlNexus) {
        self.entries().retain(|e| !e.id.is_some_and(|n| n.is_of(nexus)));
    }

    /// RECEIVE COPY STATUS(LID1).
    pub fn status_lid1(&self, name: OperationId, now: u64) -> Option<Vec<u8>> {
        let operation = self.find(name, now)?;
        Some(operation.with(false, |progress, _| copy_status_lid1(progress)))
    }

    /// RECEIVE COPY STATUS(LID4).
    pub fn status_lid4(&self, name: OperationId, now: u64) -> Option<Vec<u8>> {
        let operation = self.find(name, now)?;
        Some(operation.with(false, |progress, _| copy_status_lid4(progress)))
    }

    /// RECEIVE ROD TOKEN INFORMATION.
    pub fn token_information(&self, name: OperationId, now: u64) -> Option<Vec<u8>> {
        let operation = self.find(name, now)?;
        // POPULATE TOKEN and WRITE USING TOKEN.
        if !matches!(operation.action, 0x10 | 0x11) {
            return None;
        }
        Some(operation.with(true, |progress, facts| {
            let token = facts.token.as_deref().filter(|_| facts.state == CopyState::Good);
            rod_token_information(progress, token.map(|token| wire::scsi::TokenInfo { token }))
        }))
    }

    /// RECEIVE COPY DATA: takes the held data.
    pub fn take_held(&self, name: OperationId, now: u64) -> Option<Vec<u8>> {
        let operation = self.find(name, now)?;
        let held = std::mem::take(&mut operation.state().held);
        Some(held_data(&held))
    }

    /// RECEIVE COPY FAILURE DETAILS of a copy that failed; the details are removed when they are
    /// reported.
    pub fn take_failure(&self, name: OperationId, now: u64) -> Option<Vec<u8>> {
        let operation = self.find(name, now).filter(|o| !o.is_running())?;
        let mut facts = operation.state();
        let sense = std::mem::take(&mut facts.sense);
        let status = std::mem::take(&mut facts.ended);
        Some(failed_segment((status != 0).then_some((status, sense.as_slice()))))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries().len()
    }
}

/// O3.
fn is_kept(entry: &Entry, now: u64) -> bool {
    let ended_ns = entry.operation.state().ended_ns;
    entry.operation.is_running() || now.saturating_sub(ended_ns) < RESULTS_KEEP_NS
}

/// O2: the oldest that ended gives its place to a new one of the same nexus.
fn evict_oldest(entries: &mut Vec<Entry>, name: OperationId) -> Result<(), Ending> {
    let of_nexus = |e: &Entry| e.id.is_some_and(|n| (n.session, n.lun) == (name.session, name.lun));
    if entries.iter().filter(|e| of_nexus(e)).count() < usize::from(LIMITS.identified) {
        return Ok(());
    }
    let oldest = entries.iter().position(|e| of_nexus(e) && !e.operation.is_running());
    match oldest {
        Some(i) => drop(entries.remove(i)),
        None => return Err(Ending::check(asc::OUT_OF_RESOURCES)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scsi::Sense;

    fn name(id: u32) -> OperationId {
        OperationId { session: 1, lun: 0, list_id: id }
    }

    #[test]
    fn o1_a_list_identifier_is_reusable_only_after_its_operation_ends() {
        let all = Operations::default();
        let one = all.begin(Some(name(7)), 0, 0).unwrap();
        let busy = all.begin(Some(name(7)), 0, 0).err();
        assert_eq!(busy, Some(Ending::check(asc::OPERATION_IN_PROGRESS)));
        assert!(all.begin(Some(OperationId { lun: 1, ..name(7) }), 0, 0).is_ok(), "another nexus");
        one.advance(100, 1);
        all.end(&one, &Ending::Good, 5);
        assert_eq!(all.status_lid1(name(7), 5).unwrap()[4..], [1, 0, 0, 0, 0, 0, 0, 100]);
        assert!(all.begin(Some(name(7)), 0, 6).is_ok());
        assert_eq!(all.status_lid1(name(7), 6).unwrap()[4], 0, "the new one is told");
    }

    #[test]
    fn o2_the_number_of_operations_is_bounded() {
        let all = Operations::default();
        let running: Vec<_> = (0..16).map(|id| all.begin(Some(name(id)), 0, 0).unwrap()).collect();
        let full = all.begin(Some(name(99)), 0, 0).err();
        assert_eq!(full, Some(Ending::check(asc::OUT_OF_RESOURCES)));
        all.end(&running[3], &Ending::Good, 1);
        assert!(all.begin(Some(name(99)), 0, 1).is_ok(), "the ended one makes room");
        assert!(all.status_lid1(name(3), 1).is_none());
        for _ in 16..64 {
            all.begin(None, 0, 1).unwrap();
        }
        assert_eq!(all.begin(None, 0, 1).err(), Some(Ending::Status(Status::Busy)));
    }

    #[test]
    fn o3_results_expire() {
        let all = Operations::default();
        let one = all.begin(Some(name(1)), 0, 0).unwrap();
        assert!(all.status_lid1(name(1), RESULTS_KEEP_NS * 9).is_some(), "it still runs");
        all.end(&one, &Ending::Good, 10);
        assert!(all.status_lid1(name(1), 9 + RESULTS_KEEP_NS).is_some());
        assert!(all.status_lid1(name(1), 10 + RESULTS_KEEP_NS).is_none());
        let nameless = all.begin(None, 0, 0).unwrap();
        all.end(&nameless, &Ending::Good, 0);
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn failures_are_reported_once_and_held_data_is_bounded() {
        let all = Operations::default();
        let one = all.begin(Some(name(1)), 0, 0).unwrap();
        assert!(all.take_failure(name(1), 0).is_none(), "it still runs");
        one.hold(&vec![1; LIMITS.held_len as usize]);
        one.hold(&[2, 3]);
        let sense = Sense::copy_aborted(asc::COPY_UNREACHABLE, 4, None);
        all.end(&one, &Ending::Check(sense), 0);
        assert_eq!(all.status_lid1(name(1), 0).unwrap()[4], 0x82, "failed, and data was lost");
        let held = all.take_held(name(1), 0).unwrap();
        assert_eq!(held.len(), 4 + LIMITS.held_len as usize);
        assert_eq!(held[held.len() - 3..], [1, 2, 3]);
        assert_eq!(all.take_held(name(1), 0).unwrap(), [0; 4]);
        let answer = all.take_failure(name(1), 0).unwrap();
        assert_eq!((answer[56], answer[60]), (2, 0x72));
        assert_eq!(all.take_failure(name(1), 0).unwrap(), [0; 60]);
    }
}
