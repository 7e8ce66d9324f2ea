//! An NBD client: enters an export, works, loses its connection, enters again. NBD takes no session
//! over: requests of a lost connection may be written until the daemon has ended its session.
//!
//! ```text
//!   connect -> handshake -> work -> cut, reset, DISC -> its session ended -> its writes are over
//!      ^                                   |
//!      '-----------------------------------'
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use reactor::{Address, Reactor, SeededRandom, Stream, TaskHandle};
use wire::nbd::Form;

use super::link::{Entry, Link, Wanted, enter};
use super::request::{Operation, Task};
use crate::world::model::{OPEN, Outcome};
use crate::world::shared::{DRAIN_PAUSE_NS, Rights, SimContext, Unit};
use crate::world::sim::MS;

/// Age of a request at which a client ends its connection.
const REQUEST_TIMEOUT_NS: u64 = 5_000 * MS;
/// Silence after which the kernel's keepalive would have ended a connection: the simulated links
/// know none, so the session is ended by hand.
const KEEPALIVE_NS: u64 = 20_000 * MS;
/// The same when all agents leave.
const LEAVING_NS: u64 = 2_000 * MS;
/// A session that a handshake was about to make exists by then or never.
const LATE_NS: u64 = 10_000 * MS;
/// Between two looks at the list of sessions.
const REAP_NS: u64 = 5 * MS;
/// Numbers of clients begin here, where no initiator port has its number.
const FIRST_INDEX: usize = 1000;

/// A connection that ended for the client.
struct Former {
    from: SocketAddr,
    since_ns: u64,
    tasks: Vec<Task>,
    kicked: bool,
}

pub struct Client {
    pub name: String,
    /// Reservations know it by this.
    pub index: usize,
    pub group: usize,
    pub depth: usize,
    pub reactor: Reactor,
    pub pool: Pool,
    pub shared: Rc<SimContext>,
    pub random: RefCell<SeededRandom>,
    pub tasks: RefCell<BTreeMap<u64, Task>>,
    former: RefCell<Vec<Former>>,
    reaped_ns: Cell<u64>,
    pub gone: Cell<bool>,
    cookie: Cell<u64>,
}

/// Where the clients of a group find the target: in a simulated world a peer has the address that
/// it dials.
pub fn address(group: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 11 + group as u8], 10_809))
}

impl Client {
    pub fn new(
        shared: &Rc<SimContext>,
        reactor: &Reactor,
        number: usize,
        group: usize,
        seed: u64,
    ) -> Rc<Client> {
        let mut random = SeededRandom::new(seed);
        Rc::new(Client {
            name: format!("nbd{number}"),
            index: FIRST_INDEX + number,
            group,
            depth: 1 + random.below(8) as usize,
            reactor: reactor.clone(),
            pool: Pool::new(PoolConfig { limit_bytes: 64 << 20 }),
            shared: shared.clone(),
            random: RefCell::new(random),
            tasks: RefCell::default(),
            former: RefCell::default(),
            reaped_ns: Cell::new(0),
            gone: Cell::new(false),
            cookie: Cell::new(0),
        })
    }

    /// The name that access groups know.
    pub fn initiator(group: usize) -> String {
        format!("ip:{}", address(group).ip())
    }

    pub fn below(&self, n: u64) -> u64 {
        self.random.borrow_mut().below(n)
    }

    pub fn chance(&self, per_mille: u32) -> bool {
        self.random.borrow_mut().chance(per_mille)
    }

    pub fn next_cookie(&self) -> u64 {
        self.cookie.set(self.cookie.get() + 1);
        self.cookie.get() << 20 | self.index as u64
    }

    pub fn oldest_read(&self) -> u64 {
        let tasks = self.tasks.borrow();
        tasks.values().filter(|t| t.operation.looks()).map(|t| t.issue).min().unwrap_or(OPEN)
    }

    pub fn oldest_request(&self) -> u64 {
        self.tasks.borrow().values().map(|t| t.issue).min().unwrap_or(OPEN)
    }

    /// Lives until the test is over.
    pub async fn live(self: Rc<Self>) {
        while !self.shared.leaving.get() {
            let pause = self.below(20) * MS;
            self.reactor.sleep(pause).await;
            self.one_connection().await;
            self.reap();
        }
        while !self.former.borrow().is_empty() {
            self.reactor.sleep(100 * MS).await;
            self.reap();
        }
        self.gone.set(true);
    }

    /// A unit, more often one that this group sees.
    fn some_unit(&self) -> Option<Rc<Unit>> {
        let units = self.shared.units.borrow();
        let seen: Vec<&Rc<Unit>> = units
            .iter()
            .filter(|u| u.exported.get() || self.chance(5))
            .filter(|u| u.grant(self.group).now != Rights::None || self.chance(100))
            .collect();
        (!seen.is_empty()).then(|| seen[self.below(seen.len() as u64) as usize].clone())
    }

    fn some_wish(&self, unit: &Unit) -> Wanted {
        let form = [Form::Simple, Form::Structured, Form::Structured, Form::Extended]
            [self.below(4) as usize];
        let name = match self.below(4) {
            0 => unit.lun.to_string(),
            1 => format!("{}/{}", crate::world::stack::EXPORTS, unit.lun),
            _ => unit.provider.clone(),
        };
        Wanted { name, form, allocation: form != Form::Simple && self.chance(800) }
    }

    async fn one_connection(self: &Rc<Self>) {
        let Some(unit) = self.some_unit() else { return self.reactor.sleep(50 * MS).await };
        let dialling = self.reactor.connect(address(self.group));
        let Some(Ok(stream)) = self.reactor.within(5_000 * MS, dialling).await else {
            return self.reactor.sleep(50 * MS).await;
        };
        let wanted = self.some_wish(&unit);
        let door = self.handshake_start(&unit);
        let entering = enter(stream.clone(), &self.pool, &wanted);
        let entry = self.reactor.within(8_000 * MS, entering).await.unwrap_or(Entry::Broken);
        let link = match entry {
            Entry::Entered(link) => link,
            Entry::Refused(error) => {
                self.turned_away(&unit, &door, &wanted, error);
                return self.part(&stream, Vec::new());
            }
            Entry::Broken => {
                self.shared.log(|| format!("{}: no entry", self.name));
                self.part(&stream, Vec::new());
                let pause = (20 + self.below(100)) * MS;
                return self.reactor.sleep(pause).await;
            }
        };
        // Under the name there may be another unit by now.
        if !self.entered(&unit, &door, &wanted, &link) {
            return self.part(&stream, Vec::new());
        }
        let (me, reader, writer, at) = (self.clone(), link.clone(), link.clone(), unit.clone());
        let (lens, of) = (self.clone(), link.clone());
        let tasks: [TaskHandle; 2] = [
            self.reactor.spawn(
                "nbd read",
                reader.read(
                    move |cookie| lens.len_of(cookie),
                    move |h| me.on_reply_piece(&at, &of, h),
                ),
            ),
            self.reactor.spawn("nbd write", writer.write()),
        ];
        self.work(&link, &unit).await;
        tasks.iter().for_each(TaskHandle::abort);
        self.shared.log(|| format!("{}: connection over", self.name));
        self.part(&stream, self.tasks.take().into_values().collect());
    }

    /// The connection is no more; its session may live on.
    fn part(&self, stream: &Stream, tasks: Vec<Task>) {
        let from = stream.local_addr();
        match self.below(3) {
            0 => stream.close(),
            _ => stream.reset(),
        }
        let since_ns = self.reactor.now();
        let from = from.expect("it was connected");
        self.former.borrow_mut().push(Former { from, since_ns, tasks, kicked: false });
    }

    /// Requests of connections whose session has ended are over (B2).
    fn reap(&self) {
        let now = self.reactor.now();
        if self.former.borrow().is_empty() || now < self.reaped_ns.get() + REAP_NS {
            return;
        }
        self.reaped_ns.set(now);
        let registry = self.shared.registry.borrow().clone();
        let sessions = registry.as_ref().map_or_else(Vec::new, |r| r.sessions());
        let most = if self.shared.leaving.get() { LEAVING_NS } else { KEEPALIVE_NS };
        let (mut former, mut over) = (self.former.borrow_mut(), Vec::new());
        former.retain_mut(|f| {
            let age = now.saturating_sub(f.since_ns);
            let from = Address::Inet(f.from);
            match (sessions.iter().find(|s| s.from == from), &registry) {
                (Some(session), Some(registry)) if age > most && !f.kicked => {
                    f.kicked = registry.kick(session.number);
                    true
                }
                (Some(_), _) => true,
                (None, _) => {
                    over.append(&mut f.tasks);
                    age <= LATE_NS
                }
            }
        });
        drop(former);
        over.iter().for_each(|t| self.over(t, Outcome::Unknown));
    }

    /// A request is over.
    pub fn over(&self, task: &Task, outcome: Outcome) {
        if task.operation.writes() && task.granted {
            let oldest = self.shared.oldest_read();
            let mut model = self.shared.model.borrow_mut();
            model.end(task.place, task.id, task.issue, outcome, oldest);
        }
    }

    /// This group's rights to a unit are about to change.
    pub fn rights_move(&self, unit: &Unit, next: Rights) {
        let mut tasks = self.tasks.borrow_mut();
        let mut former = self.former.borrow_mut();
        let lost = former.iter_mut().flat_map(|f| f.tasks.iter_mut());
        for task in tasks.values_mut().chain(lost).filter(|t| t.lun == unit.lun) {
            task.unsure = true;
            let writes = task.operation.writes() && task.wrong.is_none();
            if next == Rights::Write && writes && !task.granted {
                task.granted = true;
                self.shared.model.borrow_mut().begin(task.place, task.id, task.issue);
            }
        }
    }

    async fn work(self: &Rc<Self>, link: &Rc<Link>, unit: &Rc<Unit>) {
        while !link.dead.get() {
            self.reap();
            if self.shared.leaving.get() && self.tasks.borrow().is_empty() {
                return self.disconnect(link).await;
            }
            if self.has_waited_enough() {
                self.shared.mark("nbd gave up");
                return;
            }
            if !self.shared.draining.get() {
                match self.below(1000) {
                    0..=1 => return, // hangs up in the middle of everything
                    2..=4 => return self.disconnect(link).await,
                    5..=200 if unit.grant(self.group).now == Rights::None => return,
                    _ => self.some_request(link, unit),
                }
            }
            let pause = match self.below(10) {
                0 => self.below(4 * MS),
                _ => self.below(400_000),
            };
            let pause = if self.shared.draining.get() { DRAIN_PAUSE_NS } else { pause };
            self.reactor.sleep(pause).await;
        }
    }

    fn has_waited_enough(&self) -> bool {
        let now = self.reactor.now();
        self.tasks.borrow().values().any(|t| now.saturating_sub(t.at_ns) > REQUEST_TIMEOUT_NS)
    }

    /// DISC: requests in flight are still answered, then the daemon hangs up.
    async fn disconnect(&self, link: &Link) {
        self.shared.mark("nbd goodbyes");
        self.send(link, Operation::Goodbye, 0, 0, &[]);
        for _ in 0..500 {
            if link.dead.get() {
                return;
            }
            self.reactor.sleep(20 * MS).await;
        }
    }
}
