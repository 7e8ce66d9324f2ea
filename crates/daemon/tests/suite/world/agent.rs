//! An initiator port: logs in, works, loses its connection, logs in again.
//!
//! ```text
//!   connect -> login -> work (commands, pings, task management) -> cut, reset, logout -> connect
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use reactor::{Reactor, SeededRandom, TaskHandle};
use testkit::clock::MS;
use testkit::iscsi::{Conn, LoginOptions, login};
use wire::iscsi::{
    Attribute, Bhs, DataOut, LogoutRequest, NopOut, TAG_NONE, TaskRequest, task_function,
};
use wire::scsi::Lun;

use crate::world::counters::Bid;
use crate::world::model::{BlockRange, OPEN, Outcome};
use crate::world::rights::Tidings;
use crate::world::rules::{Act, Need};
use crate::world::shared::{DRAIN_PAUSE_NS, Rights, SimContext, Unit};
use crate::world::stack::portal;
use crate::world::unit_attentions::{Code, Owed, RESET, Source};

/// Silence after which the target is pinged.
const PING_NS: u64 = 2_000 * MS;
/// Silence after which the connection is given up.
const SILENCE_NS: u64 = 6_000 * MS;
/// Age of a command at which the initiator aborts it.
const COMMAND_TIMEOUT_NS: u64 = 5_000 * MS;

/// The operation of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Read,
    Write {
        fua: bool,
    },
    Zero,
    Unmap,
    Sync,
    Ready,
    Serial,
    Luns,
    Capacity,
    Cache {
        on: bool,
    },
    Rights(Act),
    /// READ of a counter.
    Look,
    /// COMPARE AND WRITE of a counter.
    Count {
        fua: bool,
    },
}

impl Operation {
    pub fn writes(self) -> bool {
        matches!(self, Operation::Write { .. } | Operation::Zero | Operation::Unmap)
    }

    /// Looks at blocks.
    pub fn reads(self) -> bool {
        matches!(self, Operation::Read | Operation::Look)
    }

    /// Changes blocks, if it is allowed to.
    pub fn changes(self) -> bool {
        self.writes() || matches!(self, Operation::Count { .. })
    }

    /// Access that it needs under reservations; None for commands that check reservations
    /// themselves.
    pub fn need(self) -> Option<Need> {
        Some(match self {
            Operation::Rights(_) => return None,
            Operation::Serial | Operation::Luns | Operation::Capacity => Need::Nothing,
            Operation::Ready => Need::Sight,
            Operation::Read | Operation::Look => Need::Read,
            _ => Need::Write,
        })
    }

    /// Runs in spite of unit attentions.
    pub fn is_exempt(self) -> bool {
        matches!(self, Operation::Serial | Operation::Luns)
    }
}

/// A command under way.
pub struct Task {
    pub operation: Operation,
    pub lun: usize,
    pub place: BlockRange,
    pub id: u64,
    pub issue: u64,
    pub at_ns: u64,
    /// The model records its write, because it was granted at some time.
    pub granted: bool,
    /// The rights changed while it was under way.
    pub unsure: bool,
    pub mode_epoch: Option<u64>,
    /// The cache was off for sure when it was sent.
    pub was_off: bool,
    pub attribute: Attribute,
    /// Writes of the same session that were sent before, and the ORDERED command that orders them.
    pub after: Vec<(u64, u64)>,
    /// At a counter.
    pub bid: Option<Bid>,
    pub expect_in: usize,
    pub got: Vec<u8>,
    pub out: Vec<u8>,
    /// It may have been aborted by another initiator's reset: it may have no answer.
    pub lost: bool,
    pub aborting: bool,
}

/// A task management function under way.
#[derive(Clone, Copy)]
pub struct Function {
    pub function: u8,
    pub of: u32,
    pub lun: usize,
    pub issue: u64,
}

pub struct Agent {
    pub name: String,
    pub index: usize,
    pub group: usize,
    pub login_options: LoginOptions,
    pub depth: usize,
    pub reactor: Reactor,
    pub pool: Pool,
    pub shared: Rc<SimContext>,
    pub random: RefCell<SeededRandom>,
    pub conn: RefCell<Option<Rc<Conn>>>,
    pub tasks: RefCell<BTreeMap<u32, Task>>,
    pub functions: RefCell<BTreeMap<u32, Function>>,
    /// Of connections that ended: over with the next login.
    pub orphans: RefCell<Vec<Task>>,
    pub orphan_functions: RefCell<Vec<Function>>,
    /// LUNs that reported that the nexus is new, since the login.
    pub greeted: RefCell<Vec<usize>>,
    /// Unit attentions that may be reported.
    pub owed: RefCell<Vec<Owed>>,
    /// Sources that were counted.
    pub owed_of: RefCell<BTreeSet<(u64, Code)>>,
    pub logged_out: Cell<bool>,
    /// ORDERED commands of this session that were carried out, by the moment of their issue.
    pub ordered: RefCell<BTreeSet<u64>>,
    /// Grows with every login.
    pub session: Cell<u64>,
    tag: Cell<u32>,
    ping: Cell<Option<u32>>,
}

impl Agent {
    pub fn new(
        shared: &Rc<SimContext>,
        reactor: &Reactor,
        index: usize,
        group: usize,
        how: LoginOptions,
        seed: u64,
    ) -> Rc<Agent> {
        let mut random = SeededRandom::new(seed);
        let short = how.initiator.rsplit(':').next().unwrap_or("").to_owned();
        Rc::new(Agent {
            name: format!("{short}/{}", how.isid),
            index,
            group,
            login_options: how,
            depth: 1 + random.below(8) as usize,
            reactor: reactor.clone(),
            pool: Pool::new(PoolConfig { limit_bytes: 64 << 20 }),
            shared: shared.clone(),
            random: RefCell::new(random),
            conn: RefCell::default(),
            tasks: RefCell::default(),
            functions: RefCell::default(),
            orphans: RefCell::default(),
            orphan_functions: RefCell::default(),
            greeted: RefCell::default(),
            owed: RefCell::default(),
            owed_of: RefCell::default(),
            logged_out: Cell::new(false),
            ordered: RefCell::default(),
            session: Cell::new(0),
            tag: Cell::new(0),
            ping: Cell::new(None),
        })
    }

    pub fn below(&self, n: u64) -> u64 {
        self.random.borrow_mut().below(n)
    }

    pub fn chance(&self, per_mille: u32) -> bool {
        self.random.borrow_mut().chance(per_mille)
    }

    pub fn next_tag(&self) -> u32 {
        let tag = (self.tag.get() + 1) & 0x7fff_ffff;
        self.tag.set(tag);
        tag
    }

    pub fn oldest_read(&self) -> u64 {
        let tasks = self.tasks.borrow();
        let reads = tasks.values().filter(|t| t.operation == Operation::Read);
        reads.map(|t| t.issue).min().unwrap_or(OPEN)
    }

    /// Lives until the test is over.
    pub async fn live(self: Rc<Self>) {
        while !self.shared.leaving.get() {
            let pause = self.below(20) * MS;
            self.reactor.sleep(pause).await;
            self.one_connection().await;
        }
        self.logged_out.set(true);
    }

    async fn one_connection(self: &Rc<Self>) {
        let connected = self.reactor.within(5_000 * MS, self.reactor.connect(portal())).await;
        let Some(Ok(stream)) = connected else { return self.reactor.sleep(50 * MS).await };
        let logging = login(&self.reactor, &self.pool, stream.clone(), &self.login_options);
        let done = self.reactor.within(8_000 * MS, logging).await;
        let conn = match done {
            Some(Ok(conn)) => conn,
            other => {
                let why = other.map_or("too late".to_owned(), |r| r.err().unwrap_or_default());
                self.shared.log(|| format!("{}: no login: {why}", self.name));
                stream.reset();
                let pause = (20 + self.below(100)) * MS;
                return self.reactor.sleep(pause).await;
            }
        };
        self.begin(&conn);
        let (me, reader, writer) = (self.clone(), conn.clone(), conn.clone());
        let hear = move |_: &Bhs, response, data| me.on_pdu(response, data);
        let tasks: [TaskHandle; 2] = [
            self.reactor.spawn("read", reader.read(self.reactor.clone(), hear)),
            self.reactor.spawn("write", writer.write()),
        ];
        self.work(&conn).await;
        match self.below(3) {
            0 => conn.stream.close(),
            _ => conn.stream.reset(),
        }
        tasks.iter().for_each(TaskHandle::abort);
        self.lose();
    }

    /// A login answers when nothing of the port's earlier sessions can reach a medium any more.
    fn begin(&self, conn: &Rc<Conn>) {
        self.shared.mark("logins");
        self.shared.log(|| format!("{}: logged in", self.name));
        for task in self.orphans.take() {
            self.over(&task, Outcome::Unknown);
        }
        for f in self.orphan_functions.take() {
            self.reset_over(&f, Tidings::Certainty);
        }
        self.ping.set(None);
        *self.conn.borrow_mut() = Some(conn.clone());
        self.session.set(self.session.get() + 1);
        for unit in self.shared.units.borrow().iter() {
            let now = self.shared.model.borrow_mut().tick();
            unit.book.borrow_mut().new_session(self.index, now);
        }
        self.owes_at_login();
        self.ordered.borrow_mut().clear();
    }

    /// The connection is no more.
    fn lose(&self) {
        self.shared.log(|| format!("{}: connection over", self.name));
        self.conn.take();
        self.orphans.borrow_mut().extend(self.tasks.take().into_values());
        self.orphan_functions.borrow_mut().extend(self.functions.take().into_values());
    }

    /// A command is over.
    pub fn over(&self, task: &Task, outcome: Outcome) {
        if let (Operation::Cache { .. }, Some(unit)) = (task.operation, self.shared.unit(task.lun))
        {
            unit.mode_changes.set(unit.mode_changes.get() - 1);
            unit.mode_moved(false);
            self.shared.source_ends(task.issue, None, Tidings::Certainty);
        }
        if let Operation::Rights(_) = task.operation {
            self.rights_over(task);
        }
        if let (Operation::Count { .. }, Some(bid)) = (task.operation, &task.bid) {
            let mut model = self.shared.model.borrow_mut();
            let now = model.tick();
            model.counters.end(task.place, bid, task.id, outcome, now, &self.name);
        }
        if task.operation.writes() && task.granted {
            let oldest = self.shared.oldest_read();
            let mut model = self.shared.model.borrow_mut();
            model.end(task.place, task.id, task.issue, outcome, oldest);
        }
    }

    pub fn reset_over(&self, f: &Function, tidings: Tidings) {
        if f.function == task_function::LUN_RESET
            && let Some(unit) = self.shared.unit(f.lun)
        {
            unit.mode_changes.set(unit.mode_changes.get() - 1);
            unit.mode_moved(false);
            self.shared.source_ends(f.issue, None, tidings);
            self.reset_rights_over(&unit, f, tidings);
        }
    }

    /// It is logged in, and has been since this session began.
    pub fn lives_as(&self, session: u64) -> bool {
        self.conn.borrow().is_some() && self.session.get() == session
    }

    /// This group's rights to a unit are about to change.
    pub fn rights_move(&self, unit: &Unit, next: Rights) {
        let mut tasks = self.tasks.borrow_mut();
        let mut orphans = self.orphans.borrow_mut();
        for task in tasks.values_mut().chain(orphans.iter_mut()).filter(|t| t.lun == unit.lun) {
            task.unsure = true;
            if next == Rights::Write && task.operation.writes() && !task.granted {
                task.granted = true;
                self.shared.model.borrow_mut().begin(task.place, task.id, task.issue);
            }
        }
        if next == Rights::None {
            self.forget_owed(unit.lun);
        }
    }

    async fn work(&self, conn: &Rc<Conn>) {
        while !conn.dead.get() {
            if self.shared.leaving.get() && self.tasks.borrow().is_empty() {
                return self.log_out(conn).await;
            }
            let silent = self.reactor.now().saturating_sub(conn.last_received_ns.get());
            if silent > SILENCE_NS {
                return self.shared.log(|| format!("{}: silence", self.name));
            }
            if silent > PING_NS && self.ping.get().is_none() {
                self.ping(conn);
            }
            if !self.impatient(conn) {
                return;
            }
            if !self.shared.draining.get() {
                match self.below(1000) {
                    0..=1 => return, // hangs up in the middle of everything
                    2 if self.tasks.borrow().is_empty() => return self.log_out(conn).await,
                    3..=8 => self.abort_some(conn),
                    9..=10 => self.reset_unit(conn),
                    11..=14 => self.ping(conn),
                    _ => self.some_command(conn),
                }
            }
            let pause = match self.below(10) {
                0 => self.below(3_000_000),
                _ => self.below(200_000),
            };
            let pause = if self.shared.draining.get() { DRAIN_PAUSE_NS } else { pause };
            self.reactor.sleep(pause).await;
        }
    }

    /// False when it gives the connection up because of a command that does not end.
    fn impatient(&self, conn: &Rc<Conn>) -> bool {
        let now = self.reactor.now();
        let old = |t: &Task, ns: u64| now.saturating_sub(t.at_ns) > ns;
        let oldest = {
            let tasks = self.tasks.borrow();
            let found = tasks.iter().find(|(_, t)| old(t, COMMAND_TIMEOUT_NS));
            found.map(|(tag, t)| (*tag, t.aborting, t.lost, old(t, 3 * COMMAND_TIMEOUT_NS)))
        };
        let Some((tag, aborting, lost, very)) = oldest else { return true };
        if very || lost {
            self.shared.mark("gave up");
            self.shared.log(|| format!("{}: {tag} does not end", self.name));
            return false;
        }
        if !aborting {
            self.abort(conn, tag);
        }
        true
    }

    fn ping(&self, conn: &Rc<Conn>) {
        let task_tag = self.next_tag() | 0x8000_0000;
        self.ping.set(Some(task_tag));
        let pdu = NopOut {
            immediate: true,
            task_tag,
            target_tag: TAG_NONE,
            cmd_sn: conn.cmd_sn.get(),
            exp_stat_sn: conn.exp_stat_sn.get(),
            data_len: 5,
            ..NopOut::default()
        };
        conn.send(&pdu, b"knock");
    }

    pub fn pinged(&self, tag: u32) {
        assert_eq!(self.ping.take(), Some(tag), "{}: a ping that nobody sent", self.name);
    }

    pub fn next_ping_is(&self, tag: u32) -> bool {
        self.ping.get() == Some(tag)
    }

    fn abort_some(&self, conn: &Rc<Conn>) {
        let tags: Vec<u32> = self.tasks.borrow().keys().copied().collect();
        if tags.is_empty() {
            return;
        }
        let tag = tags[self.below(tags.len() as u64) as usize];
        self.abort(conn, tag);
    }

    fn abort(&self, conn: &Rc<Conn>, of: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(&of).filter(|t| !t.aborting) else { return };
        task.aborting = true;
        let lun = task.lun;
        drop(tasks);
        self.function(conn, task_function::ABORT_TASK, lun, of);
    }

    fn reset_unit(&self, conn: &Rc<Conn>) {
        let Some(unit) = self.some_unit() else { return };
        if !unit.book.borrow().allows_reset() {
            return;
        }
        unit.mode_changes.set(unit.mode_changes.get() + 1);
        unit.mode_moved(false);
        let number = self.function(conn, task_function::LUN_RESET, unit.lun, TAG_NONE);
        let (lun, group, except) = (unit.lun, None, None);
        self.shared.source_begins(Source { number, lun, code: RESET, group, except });
        self.shared.act_begins(self, &unit, number, Act::Reset);
        unit.resets.borrow_mut().push(number);
        // Commands of the others may end without an answer from now on.
        for agent in self.shared.agents.borrow().iter() {
            let mut tasks = agent.tasks.borrow_mut();
            tasks.values_mut().filter(|t| t.lun == unit.lun).for_each(|t| t.lost = true);
        }
    }

    fn function(&self, conn: &Rc<Conn>, function: u8, lun: usize, of: u32) -> u64 {
        let task_tag = self.next_tag();
        let issue = self.shared.model.borrow_mut().tick();
        self.shared.log(|| format!("{}: function {function} lun {lun} of {of}", self.name));
        self.functions.borrow_mut().insert(task_tag, Function { function, of, lun, issue });
        let pdu = TaskRequest {
            immediate: true,
            function,
            lun: Lun::new(lun as u32).expect("small").encode(),
            task_tag,
            referenced_tag: of,
            ref_cmd_sn: conn.cmd_sn.get(),
            cmd_sn: conn.cmd_sn.get(),
            exp_stat_sn: conn.exp_stat_sn.get(),
            ..TaskRequest::default()
        };
        conn.send(&pdu, &[]);
        issue
    }

    async fn log_out(&self, conn: &Rc<Conn>) {
        self.shared.mark("logouts");
        let pdu = LogoutRequest {
            task_tag: self.next_tag(),
            cid: 1,
            cmd_sn: conn.take_cmd_sn(),
            exp_stat_sn: conn.exp_stat_sn.get(),
            ..LogoutRequest::default()
        };
        conn.send(&pdu, &[]);
        for _ in 0..500 {
            if conn.dead.get() {
                return;
            }
            self.reactor.sleep(20 * MS).await;
        }
    }

    /// Data-Out PDUs for a part of a task's data.
    pub fn send_data(&self, conn: &Rc<Conn>, tag: u32, ttt: u32, from: usize, end: usize) {
        let tasks = self.tasks.borrow();
        let Some(task) = tasks.get(&tag) else { return };
        let most = (conn.params.send_data_len_max as usize).min(512 << self.below(6));
        let (mut at, mut data_sn) = (from, 0);
        while at < end {
            let n = most.min(end - at);
            let pdu = DataOut {
                last: at + n == end,
                task_tag: tag,
                target_tag: ttt,
                exp_stat_sn: conn.exp_stat_sn.get(),
                data_sn,
                offset: at as u32,
                data_len: n as u32,
                ..DataOut::default()
            };
            conn.send(&pdu, &task.out[at..at + n]);
            (at, data_sn) = (at + n, data_sn + 1);
        }
    }
}
