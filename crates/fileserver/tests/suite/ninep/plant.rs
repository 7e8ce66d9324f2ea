//! A file server as in a daemon. It is a geom of the class `fs` on disks that keep requests until
//! they are released, with orders as the control thread gives them, and clients.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::{Errno, Pool, PoolConfig};
use fileserver::{FsClass, NoHistory, Site, VolumeHistory};
use geom::{
    Class, Core, Create, Error, GeomView, GraphControl, Inbox, ServedClient, Settings, Transient,
};
use reactor::sim::{Actor, Limits as RunLimits, World};
use reactor::{Listener, Reactor, Token, WaitFor};
use serde_json::{Value, json};
use testkit::disk::{self, Disk, Mode, Provider};

use super::client::Client;

/// The result of a verb.
pub type VerbResult = Result<Value, Error>;

/// The address for clients.
pub const AT: &str = "10.0.0.1:564";
/// Longest wait for anything, of the world's clock.
const LONG: Duration = Duration::from_secs(600);

/// See the module.
pub struct Plant {
    control: GraphControl,
    class: Arc<FsClass>,
    core: Rc<Core>,
    clients: Reactor,
    pool: Pool,
    disks: Vec<Arc<Disk>>,
}

impl Plant {
    /// A server `main` of a volume, or of an image of cwfs64x, that serves.
    pub fn new(seed: u64, is_image: bool) -> Plant {
        Plant::on(seed, is_image, &[("cache", 32), ("worm", 64)], Arc::new(NoHistory))
    }

    /// The same on those disks, of so many MiB; it is not looked whether it serves.
    pub fn on(
        seed: u64,
        is_image: bool,
        all: &[(&str, usize)],
        past: Arc<dyn VolumeHistory>,
    ) -> Plant {
        let world = World::new(seed);
        let guests = Reactor::simulated(&world, "guests");
        let reactor = Reactor::simulated(&world, "core0");
        let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
        let inbox = Arc::new(Inbox::default());
        let (core, mailer) = Core::new(0, reactor, pool.clone(), inbox.report());
        let (turns, own, others) = (world.clone(), core.clone(), guests.clone());
        let wait = Box::new(move |inbox: &Inbox, most: Duration| {
            let ns = most.as_nanos() as u64;
            others.after(ns, Token::default());
            let works = own.clone();
            let works = Actor::new(own.reactor(), move || works.turn(WaitFor::Peek));
            let mut actors = [works, Actor::of_tasks(&others)];
            let limits = RunLimits { ns, steps: 10_000_000 };
            turns.run(&mut actors, limits, &mut || !inbox.is_empty());
        });
        let clock = world.clone();
        let mut control =
            GraphControl::new(vec![mailer], inbox, wait, Box::new(move || clock.now()));
        let clock = || 1_790_000_000_000_000_000;
        let site = Site { clock, machine: "here".into(), history: past };
        let class = Arc::new(FsClass::new(site));
        control.topology.load(class.clone()).unwrap();
        let mut plant = Plant { control, class, core, clients: guests, pool, disks: Vec::new() };
        plant.add_server("main", is_image, AT, all);
        plant
    }

    /// The section of a server.
    pub fn params(is_image: bool, at: &str) -> Value {
        json!({
            "create": true, "image": is_image, "plan9": [at], "dump_at": "never",
            "memory": 8 << 20,
        })
    }

    /// An edit of the section of `main`, as the control thread carries it out.
    pub fn edit(&mut self, params: &Value) -> Result<(), Error> {
        let class = self.class.clone();
        class.apply_settings(&mut self.control, "main", params)
    }

    fn view(&self) -> GeomView {
        let all = self.control.topology.class_view("fs", 0);
        all.into_iter().find(|geom| geom.name == "main").expect("the server")
    }

    /// The settings that `main` works with.
    pub fn settings(&self) -> Settings {
        self.view().settings
    }

    /// Its settings that are valid until the next start.
    pub fn transients(&self) -> Vec<Transient> {
        self.view().transients
    }

    /// Why it needs attention.
    pub fn troubles(&self) -> Vec<String> {
        self.view().troubles.into_iter().map(|trouble| trouble.why).collect()
    }

    /// Another process listens at an address as soon as it is free, until its listener is dropped.
    pub fn take_when_free(&mut self, at: &str) -> Rc<RefCell<Option<Listener>>> {
        let taken = Rc::<RefCell<Option<Listener>>>::default();
        let (to, reactor) = (taken.clone(), self.clients.clone());
        let at: SocketAddr = at.parse().unwrap();
        self.clients.spawn("taker", async move {
            while to.borrow().is_none() {
                match reactor.listen(at) {
                    Ok(listener) => *to.borrow_mut() = Some(listener),
                    Err(_) => reactor.sleep(1_000_000).await,
                }
            }
        });
        taken
    }

    /// Its clients.
    pub fn clients(&self) -> Vec<ServedClient> {
        self.view().clients
    }

    /// A line that lists show of it.
    pub fn shown(&self, key: &str) -> Option<String> {
        self.view().show.into_iter().find(|(of, _)| *of == key).map(|(_, text)| text)
    }

    /// Adds a server of a new volume or image, on disks of its own.
    pub fn add_server(&mut self, name: &str, is_image: bool, at: &str, all: &[(&str, usize)]) {
        for one in all {
            self.disks.push(disk(&mut self.control, *one));
        }
        let params = Plant::params(is_image, at);
        let class = self.class.clone();
        let created = self.control.call(|t| {
            let members: Vec<_> = all.iter().map(|(name, _)| t.find(name).unwrap()).collect();
            class.create(t, &Create { name, members: &members, params: &params })
        });
        created.unwrap();
    }

    /// Stops all servers, as a daemon that ends does; how long that took.
    pub fn halt_all(&mut self) -> Duration {
        let begun = self.control.now_ns();
        FsClass::halt_all(&mut self.control);
        Duration::from_nanos(self.control.now_ns() - begun)
    }

    /// A verb that ends.
    pub fn verb(&mut self, verb: &str, params: Value) -> VerbResult {
        let begun = self.begin(verb, params);
        self.end(verb, begun)
    }

    /// A verb as the daemon's control thread begins it: its answer, or what to request again.
    pub fn begin(&mut self, verb: &str, params: Value) -> VerbResult {
        let class = self.class.clone();
        class.verb(&mut self.control, verb, "main", &params)
    }

    /// The answer of one that has begun.
    pub fn end(&mut self, verb: &str, mut result: VerbResult) -> VerbResult {
        self.go_on(verb, &mut result, |_, _| false);
        result
    }

    /// Requests the answer of one that has begun until it is there, or another condition is true.
    pub fn go_on(
        &mut self,
        verb: &str,
        result: &mut VerbResult,
        or: impl Fn(&Plant, &Value) -> bool,
    ) {
        let end = self.control.now_ns() + LONG.as_nanos() as u64;
        while let Some(params) = again(result) {
            assert!(self.control.now_ns() < end, "{verb} does not end");
            *result = self.begin(verb, params);
            if result.as_ref().is_ok_and(|result| or(self, result)) {
                return;
            }
        }
    }

    /// From now on requests wait at the disks, or do not.
    pub fn hold(&mut self, holds: bool) {
        let mode = if holds { Mode::Hold } else { Mode::Now };
        self.disks.iter().for_each(|d| d.set(mode));
        if !holds {
            while self.let_go() {}
        }
    }

    /// Lets all requests to the disks fail, or succeed again.
    pub fn fail(&self, fails: bool) {
        let permille = if fails { 1000 } else { 0 };
        self.disks.iter().for_each(|d| d.set_failing(permille));
    }

    /// A request waits at a disk.
    pub fn holds_some(&self) -> bool {
        self.disks.iter().any(|d| d.held() > 0)
    }

    /// One request continues; false: none waits.
    pub fn let_go(&mut self) -> bool {
        let ticket = self.disks.iter().find_map(|d| d.take_first_held());
        ticket.is_some_and(|ticket| self.core.restart(ticket))
    }

    fn until(&mut self, what: &str, is: impl Fn() -> bool) {
        let end = self.control.now_ns() + LONG.as_nanos() as u64;
        while !is() {
            assert!(self.control.now_ns() < end, "it does not come: {what}");
            self.control.wait_until(Duration::from_millis(1), |_| false);
        }
    }

    /// Removes a disk for good.
    pub fn lose(&mut self, name: &str) {
        let gone = self.control.call(|t| {
            let geom = t.find_geom("test", name).unwrap();
            t.wither_geom_close(geom, Errno::NxIo);
            Ok(())
        });
        gone.unwrap();
    }

    /// A blank disk.
    pub fn blank(&mut self, name: &str, mib: usize) {
        self.disks.push(disk(&mut self.control, (name, mib)));
    }

    /// Lets so much time pass.
    pub fn wait(&mut self, seconds: u64) {
        let end = self.control.now_ns() + seconds * 1_000_000_000;
        while self.control.now_ns() < end {
            self.control.wait_until(Duration::from_millis(100), |_| false);
        }
    }

    /// Opens `count` silent connections; returns how many are kept.
    pub fn crowd(&mut self, count: usize) -> usize {
        let (arrived, gone) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for _ in 0..count {
            let (reactor, pool) = (self.clients.clone(), self.pool.clone());
            let (arrived, gone) = (arrived.clone(), gone.clone());
            self.clients.spawn("idle", async move {
                let client = Client::connect(&reactor, &pool, AT.parse().unwrap()).await;
                arrived.set(arrived.get() + 1);
                assert_eq!(client.receive().await, None);
                gone.set(gone.get() + 1);
            });
        }
        self.until("a crowd", || arrived.get() == count);
        self.wait(1);
        count - gone.get()
    }

    /// A client that stays: attached as `ann`, fid 0 at the root.
    pub fn enter(&mut self, at: &'static str) -> Rc<Client> {
        // An error means that the user is there.
        let _known = self.verb("newuser", json!({ "user": "ann" }));
        let entered = Rc::<RefCell<Option<Client>>>::default();
        let (to, reactor, pool) = (entered.clone(), self.clients.clone(), self.pool.clone());
        self.clients.spawn("guest", async move {
            let client = Client::connect(&reactor, &pool, at.parse().unwrap()).await;
            client.version(65_560).await;
            client.attach(0, "ann", "").await.unwrap();
            *to.borrow_mut() = Some(client);
        });
        self.until("a client", || entered.borrow().is_some());
        Rc::new(entered.take().unwrap())
    }

    /// Whether a request of a client succeeds.
    pub fn answers(&mut self, client: &Rc<Client>) -> bool {
        let answer = Rc::<Cell<Option<bool>>>::default();
        let (to, client) = (answer.clone(), client.clone());
        self.clients.spawn("guest", async move {
            to.set(Some(client.stat(0).await.error().is_none()));
        });
        self.until("an answer", || answer.get().is_some());
        answer.get() == Some(true)
    }

    /// Whether an address accepts connections.
    pub fn is_reached(&mut self, at: &str) -> bool {
        let answer = Rc::<Cell<Option<bool>>>::default();
        let (to, reactor) = (answer.clone(), self.clients.clone());
        let at: SocketAddr = at.parse().unwrap();
        self.clients.spawn("guest", async move {
            // A closed listener is removed after a turn of its core.
            reactor.sleep(1_000_000).await;
            to.set(Some(reactor.connect(at).await.is_ok()));
        });
        self.until("a connection", || answer.get().is_some());
        answer.get() == Some(true)
    }

    /// Attaches as a user and leaves; returns the reason of a refusal.
    pub fn visit(&mut self, user: &'static str) -> Result<(), String> {
        let answer = Rc::<RefCell<Option<_>>>::default();
        let (to, reactor, pool) = (answer.clone(), self.clients.clone(), self.pool.clone());
        self.clients.spawn("guest", async move {
            let client = Client::connect(&reactor, &pool, AT.parse().unwrap()).await;
            client.version(65_560).await;
            *to.borrow_mut() = Some(client.attach(0, user, "").await.map(drop));
        });
        self.until(user, || answer.borrow().is_some());
        answer.take().unwrap()
    }
}

/// What to request again for an answer that is not there yet.
fn again(result: &VerbResult) -> Option<Value> {
    let again = result.as_ref().ok()?.get("unfinished")?.get("again")?;
    Some(json!({ "ticket": again["ticket"] }))
}

fn disk(control: &mut GraphControl, (name, mib): (&str, usize)) -> Arc<Disk> {
    let bytes = (mib as u64) << 20;
    let disk = Disk::new(bytes);
    disk::add(control, Provider::new(name, bytes).io_max(1 << 20), disk.clone());
    disk
}
