//! Protocol engine of one session, without I/O: the PDUs that it sends, and its handling of answers
//! (RFC 7143).
//!
//! ```text
//!            connected         login answered             logout sent or answered
//!   Down ------------> Login ----------------> Up ------------------------------> Leaving
//!    ^                   |                      |                                    |
//!    +----- dropped -----+----------------------+------------------------------------+
//! ```
//! A command waits in line while nothing can be sent. A command that was sent and not answered when
//! the connection fails is stranded: its effect is unknown.
//!
//! Invariants
//!  I1  A tag that was answered, or given up, matches no command: no answer counts twice, and none
//!      reaches memory of a command that has ended.
//!  I2  A stranded command ends when a login with the same ISID was answered by the same portal
//!      group. The target has ended the old session by then, so the command can have no later
//!      effect. Only a path that is lost ends it earlier; its connection was reset long before.
//!  I3  No more is sent than the target's command window, its bursts and its R2Ts allow.
//!  I4  A READ ended well has all bytes that its answer speaks of, each once and in its place. A
//!      WRITE ended well had all of its bytes taken.
//!  I5  Everything ends: a silent connection is dropped, and a path without a session is lost at
//!      its deadline. Nothing waits after that.
//!  I6  Of a command that CAM gave up no memory is read or written: CAM may have given it back
//!      before the target knows.
//!  I7  A command that ends its session again and again fails, named, and no other command with it:
//!      see `poison_commands`.
//!  I8  A command of a user that was not sent returns to CAM when a session begins. It also returns
//!      when its unit answers with an attention after which another medium may answer.

mod due;
mod op;
mod poison_commands;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bio::Segs;
use bio::sync::Mutex;
use wire::WireError;
use wire::iscsi::{
    Algorithms, Challenge, ChapUser, ClientChap, ClientConfig, ClientError, ClientLogin,
    DigestPolicy, Framer, LoginStatus, Offer, PRE_LOGIN, SessionParams, task_function,
};

use self::op::{Burst, Kind, Op, tag_of};
pub(super) use self::op::{Task, slot_of};
use self::poison_commands::SuspectCommands;
pub(super) use self::send::for_each_slice;
use crate::ccb::{CamStatus, Outcome};

/// Commands that a session holds at a time.
const OPS_MAX: usize = 1024;
/// Largest data segment that is taken, bytes.
pub(super) const RECEIVE_MAX: u32 = 32 << 10;
/// Longest PDU: header, digests, padding.
pub(super) const PDU_MAX: usize = RECEIVE_MAX as usize + 64;
/// Largest data segment that is sent, bytes for any target.
const SEND_MAX: u32 = 32 << 10;

/// The connection, as the protocol sees it.
pub(super) trait Wire {
    /// Bytes that it takes now.
    fn free_bytes(&self) -> usize;

    /// Sends a PDU: its header, `len` bytes of `data` from `at`, and the tail behind them. There is
    /// space for it.
    fn send(&mut self, head: &[u8], data: Option<(&Segs, usize, usize)>, tail: &[u8]);
}

/// Names and secrets.
#[derive(Clone, Debug)]
pub(super) struct Chap {
    pub user: ChapUser,
    /// Credentials that the target has to prove.
    pub mutual: Option<ChapUser>,
    pub algorithms: Algorithms,
}

/// Credentials of a login, and its settings for the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub chap: Option<Chap>,
    pub header_digest: DigestPolicy,
    pub data_digest: DigestPolicy,
    /// How long a path may be silent, ns.
    pub deadline_ns: u64,
}

/// The terms of a bus, which change while it runs: shared by its sessions. A login uses those that
/// are there when it begins; the deadline holds from then on for all.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTerms(Arc<(Mutex<Terms>, AtomicU64)>);

impl SharedTerms {
    pub(super) fn new(terms: Terms) -> SharedTerms {
        let shared = SharedTerms::default();
        shared.set(terms);
        shared
    }

    fn get(&self) -> Terms {
        self.0.0.lock().clone()
    }

    pub(super) fn set(&self, terms: Terms) {
        self.0.1.store(terms.deadline_ns, Ordering::Relaxed);
        *self.0.0.lock() = terms;
    }

    /// How long a path may be silent, ns.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.0.1.load(Ordering::Relaxed)
    }
}

/// Settings by the administrator.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub initiator: String,
    pub target: String,
    pub isid: [u8; 6],
    pub terms: SharedTerms,
    /// Most logical units that are looked at.
    pub luns_max: u32,
}

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The target's bytes are wrong.
    Wire(WireError),
    /// The target left the protocol, or us.
    Protocol(&'static str),
    /// It does not let us in.
    Login(ClientError),
    /// There is no connection.
    Connection(String),
}

impl Fault {
    /// Where the target is instead. Names of hosts are not looked up.
    pub(super) fn moved(&self) -> Option<SocketAddr> {
        let Fault::Login(ClientError::Refused(status, Some(address))) = self else { return None };
        match status {
            LoginStatus::TargetMovedTemporarily | LoginStatus::TargetMovedPermanently => {
                super::discover::address(address).0.parse().ok()
            }
            _ => None,
        }
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Fault {
        Fault::Wire(error)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Wire(error) => write!(f, "{error}"),
            Fault::Protocol(words) => write!(f, "{words}"),
            Fault::Login(error) => write!(f, "{error}"),
            Fault::Connection(words) => write!(f, "{words}"),
        }
    }
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub logins: u64,
    pub drops: u64,
    /// Answers without a waiting command.
    pub stray: u64,
    /// Commands that were stranded.
    pub stranded: u64,
    /// Answers that speak of other lengths than were moved.
    pub length_mismatches: u64,
    pub pings: u64,
    /// How often the path was lost.
    pub lost: u64,
    /// I7: sessions that one command ended.
    pub poisoned_sessions: u64,
}

enum Stage {
    Down,
    Login(Box<ClientLogin>),
    Up,
    /// No command is sent any more; `true`: a logout was sent.
    LoggingOut(bool),
}

/// See the module.
pub(super) struct Engine {
    rules: Rules,
    stage: Stage,
    params: SessionParams,
    framer: Framer,
    /// The portal group of the last session: another one would not end it.
    group: Option<String>,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    ops: Vec<Op>,
    free: Vec<usize>,
    /// How many of them are task management.
    tasks: usize,
    /// Commands that were not sent, by tag.
    send_queue: VecDeque<u32>,
    /// Task management that was not sent.
    urgent: VecDeque<u32>,
    /// Commands with data to send, in the order of their requests.
    senders: VecDeque<u32>,
    /// Pings of the target that were not answered: LUN and tag.
    pongs: VecDeque<([u8; 8], u32)>,
    ended: VecDeque<(u32, Outcome)>,
    /// I7
    suspects: SuspectCommands,
    /// How many commands of a session are suspects.
    suspect_count: usize,
    poison_command: Option<String>,
    /// When the target last sent anything, or a connection began.
    last_receive_ns: u64,
    pinged: bool,
    /// Since when no working session has received anything.
    down_ns: u64,
    /// When a login, or a logout, has to be over.
    stage_due_ns: u64,
    /// No connection is wanted before.
    wait_ns: u64,
    backoff_ns: u64,
    /// The target did something for us since it was connected.
    useful: bool,
    tried: bool,
    lost: bool,
    /// No command begins any more.
    retired: bool,
    found: bool,
    /// There may be other units than before.
    luns_changed: bool,
    /// A session began since the last call.
    logged_in: bool,
    counts: Counts,
}

impl Engine {
    pub(super) fn new(rules: Rules, now: u64) -> Engine {
        Engine {
            rules,
            stage: Stage::Down,
            params: SessionParams::default(),
            framer: PRE_LOGIN,
            group: None,
            cmd_sn: 1,
            max_cmd_sn: 1,
            exp_stat_sn: 0,
            ops: Vec::new(),
            free: Vec::new(),
            tasks: 0,
            send_queue: VecDeque::new(),
            urgent: VecDeque::new(),
            senders: VecDeque::new(),
            pongs: VecDeque::new(),
            ended: VecDeque::new(),
            suspects: SuspectCommands::default(),
            suspect_count: 0,
            poison_command: None,
            last_receive_ns: now,
            pinged: false,
            down_ns: now,
            stage_due_ns: u64::MAX,
            wait_ns: now,
            backoff_ns: due::BACKOFF_MIN_NS,
            useful: false,
            tried: false,
            lost: false,
            retired: false,
            found: true,
            luns_changed: false,
            logged_in: false,
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Nothing is to be had here any more, for a while at least.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// There is a session.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    /// A connection was tried.
    pub(super) fn is_tried(&self) -> bool {
        self.tried || self.is_up()
    }

    /// Whether there is a first session since the last call, or one after a loss of the path. Also
    /// whether the path was lost, or the target reports that its units changed.
    pub(super) fn take_found(&mut self) -> bool {
        let found = self.is_up() && std::mem::take(&mut self.found);
        std::mem::take(&mut self.luns_changed) || found
    }

    /// Whether a session began since the last call.
    pub(super) fn take_login(&mut self) -> bool {
        std::mem::take(&mut self.logged_in)
    }

    /// A command that has ended. From then on its place may have another.
    pub(super) fn take_ended(&mut self) -> Option<(u32, Outcome)> {
        let ended = self.ended.pop_front()?;
        self.free.push(slot_of(ended.0));
        Some(ended)
    }

    /// A connection is established: the login begins. `random` is drawn afresh.
    pub(super) fn connected(
        &mut self,
        random: Challenge,
        wire: &mut dyn Wire,
        now: u64,
    ) -> Result<(), Fault> {
        let rules = &self.rules;
        let terms = rules.terms.get();
        let chap = terms.chap.map(|chap| ClientChap {
            user: chap.user,
            algorithms: chap.algorithms,
            mutual: chap.mutual.map(|user| (user, random)),
        });
        let params = SessionParams {
            initial_r2t: false,
            recv_data_len_max: RECEIVE_MAX,
            max_burst: 1 << 20,
            time2wait_s: 0,
            time2retain_s: 0,
            ..SessionParams::default()
        };
        let offer = Offer {
            header_digest: terms.header_digest,
            data_digest: terms.data_digest,
            params,
            ..Offer::default()
        };
        let config = ClientConfig {
            initiator: rules.initiator.clone(),
            target: Some(rules.target.clone()),
            isid: rules.isid,
            cid: 0,
            cmd_sn: 1,
            offer,
            chap,
        };
        let (login, first) = ClientLogin::start(config).map_err(Fault::Login)?;
        (self.framer, self.last_receive_ns, self.pinged, self.useful) =
            (PRE_LOGIN, now, false, false);
        self.stage = Stage::Login(Box::new(login));
        self.stage_due_ns = now + self.rules.terms.deadline_ns() / 4;
        wire.send(&first.to_bytes(), None, &[]);
        Ok(())
    }

    /// The connection has ended or failed; true: a session has ended with it.
    pub(super) fn dropped(&mut self, now: u64) -> bool {
        let was_up = matches!(self.stage, Stage::Up | Stage::LoggingOut(_));
        if was_up {
            // A silent target is away since its last answer.
            self.down_ns = if self.pinged { self.last_receive_ns } else { now };
            self.counts.drops += 1;
            self.suspect();
        }
        self.tried = true;
        self.stage = Stage::Down;
        self.stage_due_ns = u64::MAX;
        self.urgent.clear();
        self.senders.clear();
        self.pongs.clear();
        self.backoff_ns = match self.useful {
            true => due::BACKOFF_MIN_NS,
            false => (self.backoff_ns * 2).min(due::BACKOFF_MAX_NS),
        };
        self.wait_ns = self.wait_ns.max(now + self.backoff_ns);
        if was_up {
            // Time2Wait: a login ends the old session, which the target may want to find first.
            let wait_ns = u64::from(self.params.time2wait_s) * 1_000_000_000;
            self.wait_ns = self.wait_ns.max(now + wait_ns.min(self.rules.terms.deadline_ns() / 2));
        }
        for at in 0..self.ops.len() {
            let Some(op) = self.ops.get(at).filter(|op| op.busy) else { continue };
            match op.kind {
                Kind::Command if op.sent => self.counts.stranded += 1,
                Kind::Command => {}
                Kind::Abort { .. } | Kind::Reset => self.end(at, Outcome::of(CamStatus::NexusLost)),
            }
        }
        was_up
    }

    /// I2: a session in this portal group leaves the one whose commands are stranded alone.
    fn strands(&self, group: &Option<String>) -> bool {
        *group != self.group && self.ops.iter().any(|op| op.busy && op.sent)
    }

    /// I2: there is a new session, so the old one can have no more effects. Its commands are
    /// victims of a reset, and CAM sends none of them before all of them are back.
    fn session_replaced(&mut self) {
        for at in 0..self.ops.len() {
            let Some(op) = self.ops.get(at).filter(|op| op.busy && op.sent) else { continue };
            let status = match op {
                op if op.aborting => CamStatus::Aborted,
                // I7: it costs a retry.
                op if op.ended_last_session => CamStatus::NexusLost,
                _ => CamStatus::BusReset,
            };
            self.remember(at);
            self.end(at, Outcome::of(status));
        }
        self.logged_in = true;
        self.requeue_unsent(|_| true);
    }

    /// I8: of the tasks that are meant.
    pub(super) fn requeue_unsent(&mut self, is_meant: impl Fn(&Task) -> bool) {
        // There is nearly always none.
        for at in 0..if self.send_queue.is_empty() { 0 } else { self.ops.len() } {
            let waits = |op: &&Op| op.busy && !op.sent && op.kind == Kind::Command;
            let Some(op) = self.ops.get(at).filter(waits) else { continue };
            if op.task.allowed_in_doubt || !is_meant(&op.task) {
                continue;
            }
            if op.session_losses > 0 {
                self.remember(at);
            }
            self.end(at, Outcome::of(CamStatus::Requeue));
        }
    }

    /// Nothing is to be had here any more: all that waits ends.
    pub(super) fn fail_waiting(&mut self) {
        for at in 0..self.ops.len() {
            if self.ops.get(at).is_some_and(|op| op.busy) {
                self.end(at, Outcome::of(CamStatus::NoHba));
            }
        }
        self.send_queue.clear();
        self.urgent.clear();
        self.senders.clear();
    }

    /// From now on no command begins. True: that is new.
    pub(super) fn retire(&mut self) -> bool {
        !std::mem::replace(&mut self.retired, true)
    }

    /// Whether no command begins any more.
    pub(super) fn is_retired(&self) -> bool {
        self.retired
    }

    /// Ends a session whose commands take too long. The next one ends these commands (I2).
    pub(super) fn end_session(&mut self) {
        if self.is_up() {
            self.stage_due_ns = 0;
        }
    }

    /// Whether commands or task management are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.ops.iter().any(|op| op.busy)
    }

    /// Begins a command; answers its tag.
    pub(super) fn begin(&mut self, task: &Task, data: &Segs) -> Result<u32, Outcome> {
        if self.lost || self.retired {
            return Err(Outcome::of(CamStatus::NoHba));
        }
        if data.len() < task.length as usize || task.read && task.write {
            return Err(Outcome::of(CamStatus::Invalid));
        }
        let tag = self.enter(Kind::Command, task).ok_or(Outcome::of(CamStatus::Busy))?;
        let ends = self.session_losses_of(task);
        if let Some(op) = self.op(tag) {
            op.session_losses = ends;
            data.iter().for_each(|seg| op.data.push(seg.clone()));
        }
        self.send_queue.push_back(tag);
        Ok(tag)
    }

    /// Ends a command early: at once when it was not sent, else when the target reports that it has
    /// ended it.
    pub(super) fn abort(&mut self, tag: u32) {
        let up = self.is_up();
        let Some(op) = self.op(tag) else { return };
        if !op.sent {
            let at = op::slot_of(tag);
            self.send_queue.retain(|other| *other != tag);
            return self.end(at, Outcome::of(CamStatus::Aborted));
        }
        // Its memory may soon be reused: nothing of it is sent any more.
        (op.burst, op.next_burst) = (None, None);
        if std::mem::replace(&mut op.aborting, true) || !up {
            return;
        }
        let (task, cmd_sn) = (Task { lun: op.task.lun, ..Task::default() }, op.cmd_sn);
        match self.enter(Kind::Abort { tag, cmd_sn }, &task) {
            Some(abort) => self.urgent.push_back(abort),
            None => self.stage_due_ns = 0,
        }
    }

    /// LOGICAL UNIT RESET: its answer ends all commands of the unit that were sent before.
    pub(super) fn reset(&mut self, lun: [u8; 8]) -> Result<u32, Outcome> {
        if !self.is_up() {
            let lost = if self.lost { CamStatus::NoHba } else { CamStatus::NexusLost };
            return Err(Outcome::of(lost));
        }
        let task = Task { lun, ..Task::default() };
        let tag = self.enter(Kind::Reset, &task).ok_or(Outcome::of(CamStatus::Busy))?;
        self.urgent.push_back(tag);
        // Commands that were not sent need not wait for the target.
        for at in 0..self.ops.len() {
            let Some(op) = self.ops.get(at).filter(|op| op.busy && !op.sent) else { continue };
            if op.kind == Kind::Command && op.task.lun == lun {
                self.end(at, Outcome::of(CamStatus::ResetSent));
            }
        }
        Ok(tag)
    }

    /// Commands of a unit that wait for answers.
    pub(super) fn has(&self, lun: [u8; 8]) -> bool {
        let fits = |op: &Op| op.busy && op.kind == Kind::Command && op.task.lun == lun;
        self.ops.iter().any(fits)
    }

    fn enter(&mut self, kind: Kind, task: &Task) -> Option<u32> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.ops.len() < OPS_MAX => {
                self.ops.push(Op::default());
                self.ops.len() - 1
            }
            None => return None,
        };
        let op = self.ops.get_mut(at)?;
        self.tasks += usize::from(kind != Kind::Command);
        *op = Op {
            uses: op.uses,
            data: std::mem::take(&mut op.data),
            busy: true,
            kind,
            task: *task,
            ..Op::default()
        };
        Some(tag_of(at, op.uses))
    }

    /// I1: the operation that has a tag.
    fn op(&mut self, tag: u32) -> Option<&mut Op> {
        let op = self.ops.get_mut(op::slot_of(tag))?;
        (op.busy && tag_of(op::slot_of(tag), op.uses) == tag).then_some(op)
    }

    fn end(&mut self, at: usize, outcome: Outcome) {
        let Some(op) = self.ops.get_mut(at).filter(|op| op.busy) else { return };
        self.ended.push_back((tag_of(at, op.uses), outcome));
        self.tasks -= usize::from(op.kind != Kind::Command);
        self.suspect_count -= usize::from(op.is_suspect());
        op.busy = false;
        op.uses = op.uses.wrapping_add(1);
        op.data.clear();
    }
}
