//! Sent PDUs.

use wire::iscsi::{
    BHS_LEN, Bhs, Crc32c, DataOut, LogoutReason, LogoutRequest, NopOut, Pdu, ScsiCommand, TAG_NONE,
    TaskRequest, crc32c,
};

use super::op::{LOGOUT, PING, slot_of};
use super::{Burst, Engine, Kind, SEND_MAX, Stage, Wire, task_function};

/// Header and its digest.
const HEAD_MAX: usize = BHS_LEN + 4;
/// Bytes besides data that a PDU may take: header, padding, digests.
const PDU_EXTRA: usize = HEAD_MAX + 3 + 4;
/// How long task management may take: less than CAM gives an abort, ns.
const TASK_NS: u64 = 4_000_000_000;

impl Engine {
    /// Sends the PDUs that may be sent.
    pub(super) fn send(&mut self, wire: &mut dyn Wire, now: u64) {
        if !matches!(self.stage, Stage::Up | Stage::LoggingOut(false)) {
            return;
        }
        self.send_immediate(wire, now);
        // Requested data precede others: the target has memory waiting for them.
        while self.send_data(wire) {}
        while self.is_up() && self.send_command(wire) {
            while self.send_data(wire) {}
        }
    }

    /// Something waits for space, or for an R2T.
    pub(in crate::sims::iscsi) fn has_more(&self) -> bool {
        !(self.send_queue.is_empty()
            && self.senders.is_empty()
            && self.urgent.is_empty()
            && self.pongs.is_empty())
    }

    /// Pongs and task management: immediate, so they count in no window.
    fn send_immediate(&mut self, wire: &mut dyn Wire, now: u64) {
        while wire.free_bytes() >= PDU_EXTRA
            && let Some((lun, target_tag)) = self.pongs.pop_front()
        {
            let pong = NopOut { task_tag: TAG_NONE, target_tag, lun, ..self.nop() };
            self.emit(&pong, wire);
        }
        while wire.free_bytes() >= PDU_EXTRA
            && let Some(tag) = self.urgent.pop_front()
        {
            let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
            let Some(op) = self.op(tag) else { continue };
            (op.sent, op.cmd_sn, op.due_ns) = (true, cmd_sn, now + TASK_NS);
            let (function, referenced_tag, ref_cmd_sn) = match op.kind {
                Kind::Abort { tag, cmd_sn } => (task_function::ABORT_TASK, tag, cmd_sn),
                _ => (task_function::LUN_RESET, TAG_NONE, 0),
            };
            let request = TaskRequest {
                immediate: true,
                function,
                lun: op.task.lun,
                task_tag: tag,
                referenced_tag,
                cmd_sn,
                exp_stat_sn,
                ref_cmd_sn,
                exp_data_sn: 0,
            };
            self.emit(&request, wire);
        }
    }

    fn nop(&self) -> NopOut {
        NopOut {
            immediate: true,
            task_tag: PING,
            target_tag: TAG_NONE,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..NopOut::default()
        }
    }

    /// Pings the target.
    pub(super) fn ping(&mut self, wire: &mut dyn Wire) {
        if wire.free_bytes() >= PDU_EXTRA {
            self.counts.pings += 1;
            self.emit(&self.nop(), wire);
        }
    }

    /// Ends the session.
    pub(super) fn logout(&mut self, wire: &mut dyn Wire) {
        let request = LogoutRequest {
            immediate: true,
            reason: LogoutReason::Session,
            task_tag: LOGOUT,
            cid: 0,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        if wire.free_bytes() >= PDU_EXTRA {
            self.emit(&request, wire);
            self.stage = Stage::LoggingOut(true);
        }
    }

    /// The next command; false: none can be sent.
    fn send_command(&mut self, wire: &mut dyn Wire) -> bool {
        // I3
        if self.max_cmd_sn.wrapping_sub(self.cmd_sn).cast_signed() < 0 {
            return false;
        }
        let Some(&tag) = self.send_queue.front() else { return false };
        let (params, cmd_sn, exp_stat_sn) = (self.params, self.cmd_sn, self.exp_stat_sn);
        let Some(op) = self.op(tag) else {
            self.send_queue.pop_front();
            return true;
        };
        let task = op.task;
        // I7
        if self.suspect_count > 0 && !self.ops.get(slot_of(tag)).is_some_and(|op| self.may_send(op))
        {
            return false;
        }
        let Some(op) = self.op(tag) else { return false };
        let write_len = if task.write { task.length } else { 0 };
        let first = write_len.min(params.first_burst);
        let now = first.min(params.send_data_len_max).min(SEND_MAX);
        let now = if params.immediate_data { now } else { 0 };
        let later = if params.initial_r2t { 0 } else { first - now };
        if wire.free_bytes() < PDU_EXTRA + now as usize {
            return false;
        }
        let command = ScsiCommand {
            immediate: false,
            last: later == 0,
            read: task.read,
            write: task.write,
            attribute: task.attribute,
            lun: task.lun,
            task_tag: tag,
            transfer_len: task.length,
            cmd_sn,
            exp_stat_sn,
            cdb: task.cdb,
            ahs_len: 0,
            data_len: now,
        };
        (op.sent, op.cmd_sn) = (true, cmd_sn);
        (op.bytes_sent, op.granted) = (now, now + later);
        if later > 0 {
            let end = now + later;
            op.burst = Some(Burst { target_tag: TAG_NONE, next: now, end, data_sn: 0 });
            self.senders.push_back(tag);
        }
        self.send_queue.pop_front();
        self.cmd_sn = cmd_sn.wrapping_add(1);
        let mut head = [0; BHS_LEN];
        command.encode(&mut head);
        self.emit_with(&head, Some((tag, 0, now)), wire);
        true
    }

    /// The next PDU of data; false: none can be sent.
    fn send_data(&mut self, wire: &mut dyn Wire) -> bool {
        let Some(&tag) = self.senders.front() else { return false };
        let (most, exp_stat_sn) = (self.params.send_data_len_max.min(SEND_MAX), self.exp_stat_sn);
        let Some((op, mut burst)) = self.op(tag).and_then(|op| Some((op.burst?, op))).map(flip)
        else {
            self.senders.pop_front();
            return true;
        };
        let len = (burst.end - burst.next).min(most);
        if wire.free_bytes() < PDU_EXTRA + len as usize {
            return false;
        }
        let last = burst.next + len == burst.end;
        let data = DataOut {
            last,
            lun: op.task.lun,
            task_tag: tag,
            target_tag: burst.target_tag,
            exp_stat_sn,
            data_sn: burst.data_sn,
            offset: burst.next,
            data_len: len,
        };
        let from = burst.next;
        burst.next += len;
        burst.data_sn += 1;
        op.bytes_sent += len;
        op.burst = if last { op.next_burst.take() } else { Some(burst) };
        let more = op.burst.is_some();
        if last {
            self.senders.pop_front();
            // Others have their turn.
            if more {
                self.senders.push_back(tag);
            }
        }
        let mut head = [0; BHS_LEN];
        data.encode(&mut head);
        self.emit_with(&head, Some((tag, from, len)), wire);
        true
    }

    fn emit(&self, pdu: &impl Pdu, wire: &mut dyn Wire) {
        let mut head = [0; BHS_LEN];
        pdu.encode(&mut head);
        self.emit_with(&head, None, wire);
    }

    /// A PDU with data of a command: its tag, from where, and how many.
    fn emit_with(&self, bhs: &Bhs, data: Option<(u32, u32, u32)>, wire: &mut dyn Wire) {
        let mut head = [0; HEAD_MAX];
        let (plain, digest) = head.split_at_mut(BHS_LEN);
        plain.copy_from_slice(bhs);
        digest.copy_from_slice(&crc32c(bhs).to_le_bytes());
        let head_len = if self.framer.header_digest { HEAD_MAX } else { BHS_LEN };
        let head = head.get(..head_len).unwrap_or(&head);
        let found = data.filter(|(.., len)| *len > 0).and_then(|(tag, from, len)| {
            let op = self.ops.get(slot_of(tag))?;
            Some((&op.data, from as usize, len as usize))
        });
        let Some((segs, from, len)) = found else { return wire.send(head, None, &[]) };
        let pad = len.wrapping_neg() % 4;
        let mut tail = [0; 7];
        let mut tail_len = pad;
        if self.framer.data_digest {
            let mut crc = Crc32c::new();
            for_each_slice(segs, from, len, &mut |bytes| crc.update(bytes));
            crc.pad(u32::try_from(len).unwrap_or(0));
            let digest = crc.wire();
            tail.iter_mut().skip(pad).zip(digest).for_each(|(to, from)| *to = from);
            tail_len += 4;
        }
        wire.send(head, Some((segs, from, len)), tail.get(..tail_len).unwrap_or(&[]));
    }
}

fn flip<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

/// Looks at a range of pieces, one after the other.
pub(in crate::sims::iscsi) fn for_each_slice(
    segs: &bio::Segs,
    from: usize,
    len: usize,
    look: &mut dyn FnMut(&[u8]),
) {
    let (mut at, end) = (0, from + len);
    for seg in segs.iter() {
        let (first, last) = (from.max(at), end.min(at + seg.len()));
        if first < last {
            seg.with(|bytes| look(bytes.get(first - at..last - at).unwrap_or(&[])));
        }
        at += seg.len();
    }
}
