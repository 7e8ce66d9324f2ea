//! Sending of a row to its members, and repair after their failures. The invariants are those of
//! [`super::stripes`]: R4 to R8.

use bio::{Errno, Op, Segs};

use super::log::{RowStop, Sending};
use super::shared::{FailureEffect, Table};
use super::stripes::{RowOutcome, RowWrite, Rows};
use super::task_util::{
    MemberRequest, RequestContext, add, bit, is_members_fault, more, part, send_all,
};

/// Parities before a row is written, and memory for one more block.
#[derive(Default)]
struct OldParity {
    sums: Vec<(usize, Segs)>,
    spare: Option<Segs>,
}

/// How writes to members ended (a bit a slot).
#[derive(Default)]
struct SendResult {
    failed: u64,
    /// Those that failed as if they were missing.
    gone: u64,
    /// Errors that no member caused, and the first.
    refused: u64,
    error: Option<Errno>,
}
impl Rows {
    /// Writes data and parity to the members that accept them. Where data of the row is known by
    /// its parity alone, no data is written before the parity that allows for it is (R4). Nothing
    /// is written before the log has its entries; the error is a slot whose log could not be
    /// written.
    pub(super) async fn put(&self, mut turn: RowWrite<'_>, lost: u64) -> Result<RowOutcome, u64> {
        let Some(log) = self.shared.log() else { return Ok(self.put_logged(&turn, lost).await.0) };
        let logged = match self.enter_log(log, &mut turn).await {
            Ok(logged) => logged,
            Err(RowStop::Out) => return Err(bit(turn.row.p)),
            Err(RowStop::Stale) => return Ok(RowOutcome { stale: true, ..RowOutcome::default() }),
            Err(RowStop::Error(e)) => {
                return Ok(RowOutcome { error: Some(e), ..RowOutcome::default() });
            }
        };
        let (outcome, agree) = self.put_logged(&turn, lost).await;
        if let Some(slot) = logged {
            if !agree {
                log.set_doubt();
            }
            log.leave(slot);
        }
        Ok(outcome)
    }

    /// The outcome shows whether the members agree.
    async fn put_logged(&self, turn: &RowWrite<'_>, lost: u64) -> (RowOutcome, bool) {
        let parity = turn.new.iter().fold(0, |all, (slot, _)| all | bit(*slot));
        let data = turn.touched.iter().fold(0, |all, touch| all | bit(touch.slot));
        let gone = |slot: &usize| turn.table.good(*slot).is_none() || lost & bit(*slot) != 0;
        let apart = !turn.no_old_data && parity != 0 && self.data(turn.row).iter().any(gone);
        let steps = match apart {
            true => [parity, data],
            false => [parity | data, 0],
        };
        let mut outcome = RowOutcome { unrecorded: turn.table.unrecorded, ..RowOutcome::default() };
        let mut before = match apart && turn.new.len() > 1 {
            true => self.read_old_parity(turn).await,
            false => OldParity::default(),
        };
        let mut agree = true;
        for which in steps {
            let (left, error) = self.send_decided(turn, which).await;
            agree &= error.is_none();
            if left & data != 0 {
                agree =
                    self.rebuild_parity_for_old_data(turn, left & data, before.spare.take()).await;
            } else if left & parity != 0 && apart {
                self.restore_parity(turn, &before, parity & !left).await;
            } else if left & parity != 0 {
                self.note_missed_parity(turn, &turn.new, left & parity);
            }
            outcome.error = outcome.error.or(error);
            if left != 0 {
                break;
            }
        }
        (outcome, agree)
    }

    /// R5: the parities as they are. One that cannot be read is not known.
    async fn read_old_parity(&self, turn: &RowWrite<'_>) -> OldParity {
        let len = Self::len(turn.window);
        let mut free = more(turn.new.len() + 1, len as usize).await;
        let spare = free.pop();
        let mut all = Vec::new();
        for ((slot, _), block) in turn.new.iter().zip(&free) {
            let Some(path) = turn.table.good(*slot) else { continue };
            let at = path.offset.saturating_add(self.member_at(turn.window));
            let data = part(block, 0, len);
            all.push(MemberRequest { slot: *slot, edge: path.edge, op: Op::Read, at, len, data });
        }
        let read = send_all(&self.core, all, RequestContext::default()).await;
        let is_read = |slot: usize| read.iter().any(|(s, status)| *s == slot && status.is_ok());
        let sums = turn.new.iter().map(|(slot, _)| *slot).zip(free);
        OldParity { sums: sums.filter(|(slot, _)| is_read(*slot)).collect(), spare }
    }

    /// R5
    async fn restore_parity(&self, turn: &RowWrite<'_>, before: &OldParity, slots: u64) {
        let mut all = Vec::new();
        for (slot, sum) in before.sums.iter().filter(|(slot, _)| slots & bit(*slot) != 0) {
            let Some(path) = turn.table.path(*slot) else { continue };
            let at = path.offset.saturating_add(self.member_at(turn.window));
            let (len, data) = (sum.len() as u64, part(sum, 0, sum.len() as u64));
            all.push(MemberRequest { slot: *slot, edge: path.edge, op: Op::Write, at, len, data });
        }
        let known = all.iter().fold(0, |known, one| known | bit(one.slot));
        if slots & !known != 0 {
            self.shared.report_inconsistent_row();
        }
        let mut failed = 0;
        for (slot, status) in send_all(&self.core, all, RequestContext::default()).await {
            if let Err(e) = status {
                failed |= bit(slot);
                self.shared.report_failure(slot, e, FailureEffect::Order);
            }
        }
        self.note_missed_parity(turn, &before.sums, failed);
    }

    /// R7: these parities, of some slots, are owed.
    fn note_missed_parity(&self, turn: &RowWrite<'_>, sums: &[(usize, Segs)], slots: u64) {
        let at = self.shared.rows(turn.window.number, turn.window.range.clone()).start;
        for (slot, sum) in sums.iter().filter(|(slot, _)| slots & bit(*slot) != 0) {
            if let Some(path) = turn.table.path(*slot) {
                self.shared.missed_parity.note(*slot, path.edge, at, sum.to_vec());
            }
        }
    }

    /// Writes to some slots. Members that fail it are judged; those that stay are tried once more.
    /// Returns slots that have it not, but are members still; and an error if there are any, or
    /// if one is out and no record contains that (R6).
    async fn send_decided(&self, turn: &RowWrite<'_>, which: u64) -> (u64, Option<Errno>) {
        let first = self.send(turn, which).await;
        let failed = first.failed;
        if failed == 0 {
            return (first.refused, first.error);
        }
        // W1; and a row is not left before it is known whether its members agree (R4).
        turn.sending.iter().for_each(Sending::pause);
        let failures = (failed, first.gone);
        let is_out = self.shared.await_decision(failed, failures, FailureEffect::Order).await;
        turn.sending.iter().for_each(Sending::resume);
        if is_out {
            return (first.refused, first.error);
        }
        let now = self.shared.table(self.core.id());
        let edge = |table: &Table, slot| table.path(slot).map(|path| path.edge);
        let stays = (0..self.shared.shape.members())
            .filter(|slot| edge(&now, *slot) == edge(turn.table, *slot))
            .fold(0, |all, slot| all | bit(slot));
        let again = self.send(turn, failed & stays).await;
        let left = first.refused | again.refused | again.failed;
        let is_short = left != 0 || failed & !stays != 0;
        (left, first.error.or(again.error).or(is_short.then_some(Errno::Io)))
    }

    async fn send(&self, turn: &RowWrite<'_>, which: u64) -> SendResult {
        let first = turn.window.number.saturating_mul(self.shared.shape.strip);
        let data = turn.touched.iter().map(|touch| (touch.slot, touch.range.start, &touch.new));
        let sums = turn.new.iter().map(|(slot, sum)| (*slot, turn.window.range.start, sum));
        let ways = data.chain(sums).filter(|(slot, ..)| which & bit(*slot) != 0);
        let all = ways.filter_map(|(slot, at, data)| {
            let path = turn.table.path(slot)?;
            let at = path.offset.saturating_add(first).saturating_add(at);
            let (edge, op, len) = (path.edge, Op::Write, data.len() as u64);
            Some(MemberRequest { slot, edge, op, at, len, data: part(data, 0, len) })
        });
        let mut sent = SendResult::default();
        for (slot, status) in send_all(&self.core, all.collect(), self.context).await {
            match status {
                Ok(()) => {}
                Err(e) if is_members_fault(e) => {
                    sent.failed |= bit(slot);
                    if e == Errno::NxIo {
                        sent.gone |= bit(slot);
                    }
                }
                Err(e) => {
                    sent.refused |= bit(slot);
                    sent.error = sent.error.or(Some(e));
                }
            }
        }
        sent
    }

    /// R4: members that stay have not written their data: the parity is made for their old data. A
    /// member that cannot be read either is left (R8): its data is lost, and a read of it fails. A
    /// member that is being filled has no data that the parity depends on. True when the parity is
    /// right.
    async fn rebuild_parity_for_old_data(
        &self,
        turn: &RowWrite<'_>,
        slots: u64,
        spare: Option<Segs>,
    ) -> bool {
        let spare = match spare {
            Some(spare) => Some(spare),
            None => more(1, Self::len(turn.window) as usize).await.pop(),
        };
        let Some(spare) = spare else {
            self.shared.report_inconsistent_row();
            return false;
        };
        let mut right = true;
        let first = turn.window.number.saturating_mul(self.shared.shape.strip);
        for touch in turn.touched.iter().filter(|touch| slots & bit(touch.slot) != 0) {
            let Some(path) = turn.table.good(touch.slot) else { continue };
            let len = touch.range.end - touch.range.start;
            let held = part(&spare, 0, len);
            let at = path.offset.saturating_add(first).saturating_add(touch.range.start);
            let (slot, edge, op, data) = (touch.slot, path.edge, Op::Read, part(&held, 0, len));
            let requests = vec![MemberRequest { slot, edge, op, at, len, data }];
            if send_all(&self.core, requests, RequestContext::default())
                .await
                .iter()
                .any(|(_, s)| s.is_err())
            {
                right = false;
                self.shared.report_inconsistent_row();
                continue;
            }
            let at = touch.range.start - turn.window.range.start;
            for (parity, sum) in &turn.new {
                let factor = if Some(*parity) == turn.row.q { Self::weight(slot) } else { 1 };
                let sum = part(sum, at, len);
                add(&sum, &touch.new, factor);
                add(&sum, &held, factor);
            }
        }
        let parity = turn.new.iter().fold(0, |all, (slot, _)| all | bit(*slot));
        let failed = self.send(turn, parity).await;
        self.note_missed_parity(turn, &turn.new, failed.failed | failed.refused);
        for slot in (0..self.shared.shape.members()).filter(|s| failed.failed & bit(*s) != 0) {
            let gone = failed.gone & bit(slot) != 0;
            let error = if gone { Errno::NxIo } else { Errno::Io };
            self.shared.report_failure(slot, error, FailureEffect::Order);
        }
        right && failed.failed == 0 && failed.refused == 0
    }
}
