//! A session in its full feature phase: numbers, the command window, and the answers of the
//! engine as PDUs.
//!
//! Invariants
//!  W1  Commands are delivered in the order of CmdSN, immediate ones at once.
//!  W2  MaxCmdSN never moves back.
//!  W3  StatSN is counted when an answer is queued, and answers leave in that order.
//!  W4  A tag is in use from the moment when the engine receives its command until it has answered
//!      or discarded it, as the engine's table of tags has it. A second use in between is refused.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

use bio::Seg;
use engine::{CloseReason as EngineReason, Residual, Response, TmOutcome, Transport};
use transport::is_late;
use wire::iscsi::{
    self as iscsi, AsyncEvent, AsyncMessage, BHS_LEN, Crc32c, DataIn, Framer, Numbers, Pdu,
    ScsiResponse, SessionParams, TAG_NONE,
};

use super::close_reason::CloseReason;
use super::params::Checked;
use super::protocol::Connection;
use super::receive::CompleteRequest;
use super::session_owners::{Claim, Tsih};
use super::tasks::Tasks;
use super::text::TextState;
use crate::seg_cursor::SegCursor;

/// Commands that an initiator may have open: MaxCmdSN - ExpCmdSN + 1 of an idle session.
pub(crate) const WINDOW: u32 = 128;

/// Pings and time-outs of discovery sessions, s.
const DISCOVERY_PING_S: (u32, u32) = (30, 30);

/// True when `a` is before `b` (RFC 1982 serial numbers).
pub(crate) fn before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

pub(crate) struct LoginResult {
    pub params: SessionParams,
    /// None in discovery.
    pub target: Option<Arc<Checked>>,
    pub initiator: String,
    /// CHAP name that proved itself.
    pub user: Option<String>,
    pub cid: u16,
    pub stat_sn: u32,
    pub exp_cmd_sn: u32,
    pub tsih: Tsih,
    /// None in discovery.
    pub claim: Option<Claim>,
}

/// A session with its connection.
pub(crate) struct IscsiSession {
    weak_self: Weak<IscsiSession>,
    pub conn: Rc<Connection>,
    pub params: Cell<SessionParams>,
    pub target: Option<Arc<Checked>>,
    pub initiator: String,
    pub user: Option<String>,
    pub cid: u16,
    pub nexus: RefCell<Option<Rc<engine::ItNexus>>>,
    pub tasks: RefCell<Tasks>,
    /// Requests behind a gap in the numbers.
    pub held: RefCell<BTreeMap<u32, CompleteRequest>>,
    /// Bytes of memory for write data that has not all arrived.
    pub gathering: Rc<Cell<usize>>,
    /// Task management functions under way.
    pub functions: RefCell<BTreeSet<u32>>,
    pub text: RefCell<TextState>,
    pub rejects: Cell<u32>,
    stat_sn: Cell<u32>,
    exp_cmd_sn: Cell<u32>,
    max_cmd_sn: Cell<u32>,
    transfer_tag: Cell<u32>,
    ended: Cell<bool>,
    _tsih: Tsih,
    claim: Cell<Option<Claim>>,
}

impl IscsiSession {
    /// A session whose last login response is sent next.
    pub fn new(conn: &Rc<Connection>, start: LoginResult) -> Rc<IscsiSession> {
        Rc::new_cyclic(|me| IscsiSession {
            weak_self: me.clone(),
            conn: conn.clone(),
            params: Cell::new(start.params),
            target: start.target,
            initiator: start.initiator,
            user: start.user,
            cid: start.cid,
            nexus: RefCell::default(),
            tasks: RefCell::default(),
            held: RefCell::default(),
            gathering: Rc::default(),
            functions: RefCell::default(),
            text: RefCell::default(),
            rejects: Cell::new(0),
            stat_sn: Cell::new(start.stat_sn),
            exp_cmd_sn: Cell::new(start.exp_cmd_sn),
            max_cmd_sn: Cell::new(start.exp_cmd_sn.wrapping_add(WINDOW - 1)),
            transfer_tag: Cell::new(0),
            ended: Cell::new(false),
            _tsih: start.tsih,
            claim: Cell::new(start.claim),
        })
    }

    pub(crate) fn handle(&self) -> Option<Rc<IscsiSession>> {
        self.weak_self.upgrade()
    }

    /// Only lists the targets.
    pub fn is_discovery(&self) -> bool {
        self.target.is_none()
    }

    /// The engine's side.
    pub fn nexus(&self) -> Option<Rc<engine::ItNexus>> {
        self.nexus.borrow().clone()
    }

    /// How bytes become PDUs.
    pub fn framer(&self) -> Framer {
        let ahs_len_max = u16::try_from(iscsi::AHS_LEN_MAX).unwrap_or(u16::MAX);
        Framer { ahs_len_max, ..Framer::of(&self.params.get()) }
    }

    /// Seconds of silence before a ping, and for its answer.
    pub fn ping_seconds(&self) -> (u32, u32) {
        let of = |t: &Arc<Checked>| (t.params.nop_interval, t.params.nop_timeout);
        self.target.as_ref().map_or(DISCOVERY_PING_S, of)
    }

    /// A target transfer tag that no open burst has: counted up, [`TAG_NONE`] left out.
    pub fn next_transfer_tag(&self) -> u32 {
        let tag = self.transfer_tag.get().wrapping_add(1);
        let tag = if tag == TAG_NONE { 0 } else { tag };
        self.transfer_tag.set(tag);
        tag
    }

    /// Next CmdSN in order.
    pub fn exp_cmd_sn(&self) -> u32 {
        self.exp_cmd_sn.get()
    }

    /// The next request in order is here.
    pub fn advance(&self) {
        self.exp_cmd_sn.set(self.exp_cmd_sn.get().wrapping_add(1));
    }

    pub fn in_window(&self, cmd_sn: u32) -> bool {
        !before(cmd_sn, self.exp_cmd_sn.get()) && !before(self.max_cmd_sn.get(), cmd_sn)
    }

    /// Commands that may be open at once.
    pub fn depth(&self) -> u32 {
        self.nexus.borrow().as_ref().map_or(WINDOW, |n| n.depth_hint()).min(WINDOW)
    }

    /// Commands that the engine has neither answered nor discarded.
    pub fn open_commands(&self) -> usize {
        self.nexus.borrow().as_ref().map_or(0, |n| n.outstanding())
    }

    /// True while a command has the tag (W4).
    pub fn has_command(&self, tag: u32) -> bool {
        self.nexus.borrow().as_ref().is_some_and(|n| n.has_command(tag))
    }

    /// Removes the record of a command that has ended (D3 of `tasks.rs`); returns its R2Ts.
    fn end_task(&self, tag: u32) -> u32 {
        let mut tasks = self.tasks.borrow_mut();
        if tasks.is_empty() {
            // Only reads are open: no search.
            return 0;
        }
        tasks.remove(&tag).map_or(0, |task| task.r2ts)
    }

    /// Numbers for an answer; `counts` when it consumes a StatSN (W2, W3).
    pub fn numbers(&self, counts: bool) -> Numbers {
        let stat_sn = self.stat_sn.get();
        if counts {
            self.stat_sn.set(stat_sn.wrapping_add(1));
        }
        let open = u32::try_from(self.open_commands()).unwrap_or(u32::MAX);
        let free = self.depth().saturating_sub(open);
        let exp_cmd_sn = self.exp_cmd_sn.get();
        let max = exp_cmd_sn.wrapping_add(free).wrapping_sub(1);
        if before(self.max_cmd_sn.get(), max) {
            self.max_cmd_sn.set(max);
        }
        Numbers { stat_sn, exp_cmd_sn, max_cmd_sn: self.max_cmd_sn.get() }
    }

    /// Queues a PDU whose data is in one piece.
    pub fn send(&self, pdu: &impl Pdu, data: &[u8]) {
        self.send_header(pdu);
        if !data.is_empty() {
            let mut crc = Crc32c::new();
            if self.params.get().data_digest {
                crc.update(data);
            }
            self.conn.io.tx.borrow_mut().put(data);
            self.send_tail(data.len(), crc);
        }
        self.conn.io.wake();
    }

    fn send_header(&self, pdu: &impl Pdu) {
        let mut out = self.conn.io.tx.borrow_mut();
        if !self.params.get().header_digest {
            return out.put_with::<BHS_LEN>(|bhs| pdu.encode(bhs));
        }
        let mut bhs = [0; BHS_LEN];
        pdu.encode(&mut bhs);
        out.put(&bhs);
        out.put(&iscsi::crc32c(&bhs).to_le_bytes());
    }

    /// Padding and digest after `len` bytes of data.
    fn send_tail(&self, len: usize, mut crc: Crc32c) {
        let pad = len.next_multiple_of(4) - len;
        let zeros = [0; 3];
        let zeros = zeros.get(..pad).unwrap_or(&[]);
        let mut out = self.conn.io.tx.borrow_mut();
        out.put(zeros);
        if self.params.get().data_digest {
            crc.update(zeros);
            out.put(&crc.wire());
        }
    }

    /// Queues data as Data-In PDUs, the last one with the status when `status` is given. Answers
    /// how many there were.
    fn send_data_in(&self, tag: u32, data: &[Seg], len: u32, status: Option<StatusOf>) -> u32 {
        let p = self.params.get();
        let (mut at, mut data_sn, mut burst) = (0u32, 0u32, p.max_burst);
        let mut segs = SegCursor::new(data);
        while at < len {
            let n = (len - at).min(p.send_data_len_max).min(burst).max(1);
            burst -= n.min(burst);
            let end = at.saturating_add(n);
            let status = status.filter(|_| end == len);
            let pdu = DataIn {
                last: end == len || burst == 0,
                acknowledge: false,
                status,
                lun: [0; 8],
                task_tag: tag,
                target_tag: TAG_NONE,
                sn: self.numbers(status.is_some()),
                data_sn,
                offset: at,
                data_len: n,
            };
            self.send_header(&pdu);
            let mut crc = Crc32c::new();
            segs.take(usize::try_from(n).unwrap_or(0), |seg| {
                if p.data_digest {
                    seg.with(|b| crc.update(b));
                }
                self.conn.io.tx.borrow_mut().put_segment(seg);
            });
            if p.data_digest || n % 4 != 0 {
                self.send_tail(usize::try_from(n).unwrap_or(0), crc);
            }
            if burst == 0 {
                burst = p.max_burst;
            }
            (at, data_sn) = (end, data_sn.wrapping_add(1));
        }
        data_sn
    }

    /// Write data that was requested is overdue. Data that was requested before it counts.
    pub fn is_overdue(&self, now: u64, scarce: bool) -> bool {
        let tasks = self.tasks.borrow();
        let mut bursts = tasks.values().flat_map(|t| &t.incoming).flat_map(|i| &i.bursts);
        bursts.any(|b| is_late(now, b.since, b.ahead, scarce))
    }

    /// The end: everything is aborted, and the session's place is free once nothing of it can
    /// touch a medium any more.
    pub async fn finish(&self) {
        self.held.borrow_mut().clear();
        let nexus = self.nexus();
        if let Some(nexus) = nexus {
            nexus.close();
            self.wait_ended().await;
        }
        self.nexus.take();
        self.tasks.borrow_mut().clear();
        drop(self.claim.take());
    }

    /// Waits until the engine's side has ended.
    pub async fn wait_ended(&self) {
        poll_fn(|cx| {
            self.conn.io.set_waker(cx.waker());
            if self.ended.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

type StatusOf = (u8, iscsi::Residual);

fn residual(r: Residual) -> iscsi::Residual {
    match r {
        Residual::None => iscsi::Residual::None,
        Residual::Under(n) => iscsi::Residual::Underflow(n),
        Residual::Over(n) => iscsi::Residual::Overflow(n),
    }
}

impl Transport for IscsiSession {
    fn respond(&self, tag: u32, response: Response<'_>) {
        let r2ts = self.end_task(tag);
        let residual = residual(response.residual);
        let len = u32::try_from(response.data.len()).unwrap_or(u32::MAX);
        let collapses = len > 0 && response.status == 0 && response.sense.is_empty();
        let status = collapses.then_some((0, residual));
        let sent = self.send_data_in(tag, response.data.as_slice(), len, status);
        if collapses {
            return self.conn.io.wake();
        }
        let mut segment = [0; iscsi::SENSE_SEGMENT_MAX];
        let used = iscsi::sense_segment(response.sense, &mut segment);
        let pdu = ScsiResponse {
            response: 0,
            status: response.status,
            task_tag: tag,
            snack_tag: 0,
            sn: self.numbers(true),
            exp_data_sn: sent.saturating_add(r2ts),
            residual,
            read_residual: iscsi::Residual::None,
            data_len: u32::try_from(used).unwrap_or(0),
        };
        self.send(&pdu, segment.get(..used).unwrap_or(&[]));
    }

    fn discard(&self, tag: u32) {
        self.end_task(tag);
        self.conn.io.wake();
    }

    fn unsent(&self) -> usize {
        self.conn.io.backlog().saturating_add(self.gathering.get())
    }

    fn task_management_done(&self, tag: u32, outcome: TmOutcome) {
        self.function_done(tag, outcome);
    }

    fn close(&self, reason: EngineReason) {
        let pdu = AsyncMessage {
            event: AsyncEvent::SessionDropped,
            lun: [0; 8],
            sn: self.numbers(true),
            parameters: [0, 2, 0],
            data_len: 0,
        };
        self.send(&pdu, &[]);
        self.conn.io.close(CloseReason::Closed(reason));
    }

    fn ended(&self) {
        self.ended.set(true);
        self.conn.io.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::before;

    #[test]
    fn serial_numbers_wrap() {
        for (a, b, first) in [
            (0, 1, true),
            (1, 0, false),
            (u32::MAX, 0, true),
            (0, u32::MAX, false),
            (0xffff_fff0, 0x10, true),
            (5, 5, false),
        ] {
            assert_eq!(before(a, b), first, "{a:#x} {b:#x}");
        }
    }
}
