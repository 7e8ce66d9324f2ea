//! Received PDUs.

use wire::iscsi::{
    AsyncEvent, AsyncMessage, BHS_LEN, Bhs, ClientStep, DataIn, Framer, LogoutResponse, Need,
    NopIn, Numbers, Pdu, R2t, Reject, RejectReason, Residual, ScsiResponse, TAG_NONE, TaskAnswer,
    TaskResponse, opcode, opcode_of, task_tag_of,
};
use wire::scsi::Status;

use super::op::{LOGOUT, PING, slot_of};
use super::{Burst, Engine, Fault, Kind, RECEIVE_MAX, Stage, Wire};
use crate::ccb::{CamStatus, Outcome, Refused, SenseData};
use crate::device::is_doubtful;

/// Pings of a target that wait to be answered; a target that sends more gets no answer to them.
const PONGS_MAX: usize = 64;
/// A sense code: the target's units have changed.
const LUNS_CHANGED: (u8, u8) = (0x3f, 0x0e);

impl Engine {
    /// Takes whole PDUs from the front of the received data; returns their length in bytes.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(in crate::sims::iscsi) fn receive(
        &mut self,
        bytes: &[u8],
        wire: &mut dyn Wire,
        now: u64,
    ) -> Result<usize, Fault> {
        (self.last_receive_ns, self.pinged) = (now, false);
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or(&[]);
            let Need::Header(frame) = self.framer.header(rest)? else { return Ok(at) };
            let Some(tail) = rest.get(frame.header_len..frame.total_len()) else { return Ok(at) };
            let Some(bhs) = rest.first_chunk::<BHS_LEN>() else { return Ok(at) };
            let data = self.framer.data(&frame, tail)?;
            self.pdu(bhs, data, wire, now)?;
            at += frame.total_len();
        }
    }

    fn pdu(&mut self, bhs: &Bhs, data: &[u8], wire: &mut dyn Wire, now: u64) -> Result<(), Fault> {
        if matches!(self.stage, Stage::Login(_)) {
            return self.login(bhs, data, wire, now);
        }
        match opcode_of(bhs) {
            opcode::DATA_IN => self.data_in(&DataIn::decode(bhs)?, data)?,
            opcode::SCSI_RESPONSE => self.response(&ScsiResponse::decode(bhs)?, data)?,
            opcode::R2T => self.r2t(&R2t::decode(bhs)?)?,
            opcode::NOP_IN => self.nop_in(&NopIn::decode(bhs)?)?,
            opcode::TASK_RESPONSE => self.task(&TaskResponse::decode(bhs)?)?,
            opcode::REJECT => self.reject(&Reject::decode(bhs)?, data)?,
            opcode::ASYNC => self.message(&AsyncMessage::decode(bhs)?, data, now)?,
            opcode::LOGOUT_RESPONSE => {
                let answer = LogoutResponse::decode(bhs)?;
                let ours =
                    answer.task_tag == LOGOUT && matches!(self.stage, Stage::LoggingOut(true));
                let words = if ours { "logged out" } else { "a logout response without a request" };
                return Err(Fault::Protocol(words));
            }
            _ => {
                return Err(Fault::Protocol(
                    "a PDU that targets may not send in full feature \
                                             phase",
                ));
            }
        }
        self.logout_when_idle(now);
        Ok(())
    }

    fn login(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        wire: &mut dyn Wire,
        now: u64,
    ) -> Result<(), Fault> {
        let Stage::Login(login) = &mut self.stage else { return Ok(()) };
        match login.response(bhs, data).map_err(Fault::Login)? {
            ClientStep::Send(next) => wire.send(&next.to_bytes(), None, &[]),
            ClientStep::Done(connected) => {
                if self.strands(&connected.portal_group) {
                    let words = "another portal group answers, which cannot end the old session";
                    return Err(Fault::Protocol(words));
                }
                self.group = connected.portal_group;
                self.params = connected.params;
                self.framer = Framer { data_len_max: RECEIVE_MAX, ..Framer::of(&self.params) };
                (self.cmd_sn, self.max_cmd_sn) = (connected.cmd_sn, connected.max_cmd_sn);
                self.exp_stat_sn = connected.exp_stat_sn;
                (self.stage, self.stage_due_ns) = (Stage::Up, u64::MAX);
                (self.lost, self.last_receive_ns) = (false, now);
                self.counts.logins += 1;
                self.session_replaced();
            }
        }
        Ok(())
    }

    /// Takes the numbers of a PDU; false: it is one that was here before.
    fn numbers(&mut self, sn: &Numbers, counts: bool) -> Result<bool, Fault> {
        if counts {
            match sn.stat_sn.wrapping_sub(self.exp_stat_sn).cast_signed() {
                0 => self.exp_stat_sn = self.exp_stat_sn.wrapping_add(1),
                n if n < 0 => {
                    self.counts.stray += 1;
                    return Ok(false);
                }
                _ => return Err(Fault::Protocol("a response was lost (gap in StatSN)")),
            }
        }
        let sane = sn.max_cmd_sn.wrapping_sub(sn.exp_cmd_sn).cast_signed() >= -1;
        if sane && sn.max_cmd_sn.wrapping_sub(self.max_cmd_sn).cast_signed() > 0 {
            self.max_cmd_sn = sn.max_cmd_sn;
        }
        Ok(true)
    }

    fn stray(&mut self) -> Result<(), Fault> {
        self.counts.stray += 1;
        Ok(())
    }

    fn data_in(&mut self, head: &DataIn, data: &[u8]) -> Result<(), Fault> {
        if !self.numbers(&head.sn, head.status.is_some())? {
            return Ok(());
        }
        let found = self.op(head.task_tag).filter(|op| op.sent && op.kind == Kind::Command);
        let Some(op) = found else { return self.stray() };
        let end = u64::from(op.bytes_received) + data.len() as u64;
        if !op.task.read || end > u64::from(op.task.length) {
            return Err(Fault::Protocol("more data than requested"));
        }
        // I4: order was agreed on.
        if head.offset != op.bytes_received || head.data_sn != op.next_sn {
            return Err(Fault::Protocol("data out of order"));
        }
        if !op.aborting {
            op.data.copy_from(op.bytes_received as usize, data);
        }
        op.bytes_received += head.data_len;
        op.next_sn = op.next_sn.wrapping_add(1);
        match head.status {
            Some((status, residual)) => self.ended(head.task_tag, status, residual, &[]),
            None => Ok(()),
        }
    }

    fn response(&mut self, head: &ScsiResponse, data: &[u8]) -> Result<(), Fault> {
        if !self.numbers(&head.sn, true)? {
            return Ok(());
        }
        let found = self.op(head.task_tag).filter(|op| op.sent && op.kind == Kind::Command);
        if found.is_none() {
            return self.stray();
        }
        if head.response != 0 {
            self.useful = true;
            let refused = Refused::Response(head.response);
            let outcome = Outcome::refused(CamStatus::CompletedError, refused);
            self.end(slot_of(head.task_tag), outcome);
            return Ok(());
        }
        self.ended(head.task_tag, head.status, head.residual, sense_of(data))
    }

    /// I4
    fn ended(
        &mut self,
        tag: u32,
        status: u8,
        residual: Residual,
        sense: &[u8],
    ) -> Result<(), Fault> {
        let Some(op) = self.op(tag) else { return Ok(()) };
        let (length, lun) = (op.task.length, op.task.lun);
        let reported = match residual {
            Residual::None | Residual::Overflow(_) => length,
            Residual::Underflow(less) => length.saturating_sub(less),
        };
        let moved = if op.task.read { op.bytes_received } else { reported };
        let lies = match (op.task.read, op.task.write) {
            (true, _) => op.bytes_received != reported,
            (_, true) => op.bytes_sent < reported,
            _ => false,
        };
        let outcome = if status != Status::Good.code() {
            Outcome {
                scsi_status: status,
                sense: SenseData::new(sense),
                moved,
                ..Outcome::of(CamStatus::ScsiError)
            }
        } else if op.aborting && op.task.read {
            // The received data were discarded.
            Outcome::of(CamStatus::Aborted)
        } else if lies {
            self.counts.length_mismatches += 1;
            Outcome::of(CamStatus::CompletedError)
        } else {
            Outcome::good(moved)
        };
        self.useful = true;
        self.end(slot_of(tag), outcome);
        if outcome.status == CamStatus::ScsiError && is_doubtful(&outcome) {
            self.requeue_unsent(|task| task.lun == lun);
        }
        Ok(())
    }

    fn r2t(&mut self, head: &R2t) -> Result<(), Fault> {
        self.numbers(&head.sn, false)?;
        let burst_max = self.params.max_burst;
        let found = self.op(head.task_tag).filter(|op| op.sent && op.kind == Kind::Command);
        let Some(op) = found else { return self.stray() };
        let end = head.offset.checked_add(head.desired_len);
        let end = end.filter(|end| op.task.write && *end <= op.task.length);
        // I3: in order, once, and no more than was agreed on.
        let in_turn = head.r2t_sn == op.next_sn && head.offset == op.granted;
        let Some(end) = end.filter(|_| in_turn && head.desired_len <= burst_max) else {
            return Err(Fault::Protocol("an R2T out of order or beyond the write data"));
        };
        op.next_sn = op.next_sn.wrapping_add(1);
        op.granted = end;
        if op.aborting {
            return Ok(());
        }
        let burst = Burst { target_tag: head.target_tag, next: head.offset, end, data_sn: 0 };
        match (&op.burst, &op.next_burst) {
            (None, _) => {
                op.burst = Some(burst);
                self.senders.push_back(head.task_tag);
            }
            (Some(_), None) => op.next_burst = Some(burst),
            _ => return Err(Fault::Protocol("more outstanding R2Ts than negotiated")),
        }
        Ok(())
    }

    fn nop_in(&mut self, head: &NopIn) -> Result<(), Fault> {
        if !self.numbers(&head.sn, head.task_tag != TAG_NONE)? {
            return Ok(());
        }
        if head.target_tag != TAG_NONE && self.pongs.len() < PONGS_MAX {
            self.pongs.push_back((head.lun, head.target_tag));
        }
        match head.task_tag {
            TAG_NONE | PING => Ok(()),
            _ => self.stray(),
        }
    }

    fn task(&mut self, head: &TaskResponse) -> Result<(), Fault> {
        if !self.numbers(&head.sn, true)? {
            return Ok(());
        }
        let Some(op) = self.op(head.task_tag).filter(|op| op.sent) else { return self.stray() };
        let (kind, lun, cmd_sn) = (op.kind, op.task.lun, op.cmd_sn);
        match (kind, head.answer) {
            (Kind::Command, _) => return self.stray(),
            (Kind::Abort { tag, .. }, TaskAnswer::Complete | TaskAnswer::NoTask) => {
                if self.op(tag).is_some() {
                    self.end(slot_of(tag), Outcome::of(CamStatus::Aborted));
                }
            }
            (Kind::Reset, TaskAnswer::Complete) => self.was_reset(lun, cmd_sn),
            (Kind::Reset, TaskAnswer::NoLun) => {
                self.was_reset(lun, cmd_sn);
                self.end(slot_of(head.task_tag), Outcome::of(CamStatus::LunInvalid));
                return Ok(());
            }
            // The tasks may live on: only a new session is certain to end them.
            _ => return Err(Fault::Protocol("the target does not end tasks")),
        }
        self.end(slot_of(head.task_tag), Outcome::good(0));
        Ok(())
    }

    /// All commands of a unit that were sent before have ended.
    fn was_reset(&mut self, lun: [u8; 8], cmd_sn: u32) {
        for at in 0..self.ops.len() {
            let Some(op) = self.ops.get(at).filter(|op| op.busy && op.sent) else { continue };
            let before = op.cmd_sn.wrapping_sub(cmd_sn).cast_signed() < 0;
            if op.kind == Kind::Command && op.task.lun == lun && before {
                let status = if op.aborting { CamStatus::Aborted } else { CamStatus::ResetSent };
                self.end(at, Outcome::of(status));
            }
        }
    }

    fn reject(&mut self, head: &Reject, data: &[u8]) -> Result<(), Fault> {
        if !self.numbers(&head.sn, true)? {
            return Ok(());
        }
        let Some(refused) = data.first_chunk::<BHS_LEN>() else {
            return Err(Fault::Protocol("the target rejected a PDU without naming it"));
        };
        let tag = task_tag_of(refused);
        match opcode_of(refused) {
            opcode::SCSI_COMMAND => {
                let found = self.op(tag).filter(|op| op.sent && op.kind == Kind::Command);
                if found.is_none() {
                    return self.stray();
                }
                let status = match head.reason {
                    RejectReason::DataDigest => CamStatus::Parity,
                    RejectReason::Unsupported => CamStatus::CannotProvide,
                    _ => CamStatus::CompletedError,
                };
                let refused = Refused::Reject(head.reason as u8);
                self.end(slot_of(tag), Outcome::refused(status, refused));
                Ok(())
            }
            // The command itself is answered too; a target that rejects pings is still there.
            opcode::DATA_OUT if head.reason == RejectReason::DataDigest => Ok(()),
            opcode::NOP_OUT => Ok(()),
            _ => Err(Fault::Protocol("the target rejected a PDU")),
        }
    }

    fn message(&mut self, head: &AsyncMessage, data: &[u8], now: u64) -> Result<(), Fault> {
        if !self.numbers(&head.sn, true)? {
            return Ok(());
        }
        let [_, wait_s, within_s] = head.parameters;
        let seconds = |n: u16| u64::from(n).min(60) * 1_000_000_000;
        match head.event {
            AsyncEvent::LogoutRequested | AsyncEvent::Negotiate => {
                // A new login agrees on everything anew.
                self.begin_logout(seconds(within_s), now);
            }
            AsyncEvent::ConnectionDropped | AsyncEvent::SessionDropped => {
                self.wait_ns = now + seconds(wait_s).min(self.rules.terms.deadline_ns() / 2);
                return Err(Fault::Protocol("the target drops the connection"));
            }
            AsyncEvent::ScsiEvent => {
                let sense = wire::scsi::Sense::decode(sense_of(data));
                self.luns_changed |= sense.is_ok_and(|s| (s.code.asc, s.code.ascq) == LUNS_CHANGED);
            }
            AsyncEvent::TasksEnded | AsyncEvent::Vendor(_) => {}
        }
        Ok(())
    }
}

/// Sense data of a segment: behind their length.
fn sense_of(data: &[u8]) -> &[u8] {
    let Some((len, rest)) = data.split_first_chunk::<2>() else { return &[] };
    rest.get(..usize::from(u16::from_be_bytes(*len)).min(rest.len())).unwrap_or(&[])
}
