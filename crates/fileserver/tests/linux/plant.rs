//! A file server on a core and files of this machine, in a thread of its own.

use std::any::Any;
use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use bio::{Errno, Pool, PoolConfig};
use disks::DiskClass;
use fileserver::files::FileSystem;
use fileserver::medium::{Medium, Provider};
use fileserver::ninep::{Door, Flavour, Server};
use fileserver::volume::{self, Options};
use geom::{Access, Class, Control, Core, Edge, Error, Geom, GeomId, Inbox, ProviderId, Topology};
use reactor::{Config, Patience, Reactor};
use serde_json::json;

struct User;

impl Geom for User {
    fn access(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        t.access_all_below(me, delta)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

struct Users;

impl Class for Users {
    fn name(&self) -> &'static str {
        "user"
    }

    fn doc(&self) -> &'static str {
        "Opens providers, for tests."
    }
}

/// What the test tells the server.
enum Order {
    /// Takes a dump of that day, waits until the WORM has it, and answers.
    Dump(u32, Sender<String>),
    /// Everything is made durable; then the thread ends.
    Close(Sender<String>),
}

/// See the module.
pub struct Plant {
    pub at: SocketAddr,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl Plant {
    /// Over files in `folder`; makes a new volume when `ream` says so.
    pub fn start(folder: &Path, ream: bool) -> Plant {
        let (orders, inbox) = mpsc::channel();
        let (ready, started) = mpsc::channel();
        let folder = folder.to_path_buf();
        let thread = std::thread::spawn(move || serve(&folder, ream, &ready, &inbox));
        let at = started.recv().expect("the server starts");
        Plant { at, orders, thread: Some(thread) }
    }

    fn order(&self, order: impl FnOnce(Sender<String>) -> Order) -> String {
        let (answer, answered) = mpsc::channel();
        self.orders.send(order(answer)).expect("the server runs");
        answered.recv().expect("the server answers")
    }

    /// Takes a dump; its path.
    pub fn dump(&self, date: u32) -> String {
        self.order(|answer| Order::Dump(date, answer))
    }

    /// Ends it in order.
    pub fn close(mut self) {
        assert_eq!(self.order(Order::Close), "closed");
        self.thread.take().unwrap().join().unwrap();
    }
}

fn open(control: &mut Control, disks: &Arc<DiskClass>, name: &str, path: &Path, size: u64) -> Edge {
    let params = json!({ "path": path, "create": true, "size": size });
    let opened = control.call(|t| {
        disks.add(t, "file", name, &params)?;
        let p = t.find(name).ok_or(Error::of(Errno::NoEnt, "provider"))?;
        let g = t.new_geom("user", &format!("user-{name}"), "test", Box::new(User))?;
        let c = t.attach_new(g, p).map_err(|e| Error::of(e, "attach"))?;
        t.access(c, Access::WRITE).map_err(|e| Error::of(e, "open"))?;
        Ok(t.edge(c))
    });
    opened.expect("a file as a disk")
}

fn serve(folder: &Path, ream: bool, ready: &Sender<SocketAddr>, orders: &Receiver<Order>) {
    let reactor = Reactor::start(Config { name: "files".into(), ..Config::default() }).unwrap();
    let inbox = Arc::new(Inbox::default());
    let pool = Pool::new(PoolConfig { limit_bytes: 128 << 20 });
    let (core, mailer) = Core::new(0, reactor.clone(), pool.clone(), inbox.report());
    let (turning, clock) = (core.clone(), reactor.clone());
    let mut control = Control::new(
        vec![mailer],
        inbox.clone(),
        Box::new(move |_, _| turning.turn(Patience::Peek)),
        Box::new(move || clock.fresh_now()),
    );
    let disks = Arc::new(DiskClass::new(inbox, 1));
    control.topology.load(disks.clone()).unwrap();
    control.topology.load(Arc::new(Users)).unwrap();
    let mut medium = |name: &str, size: u64| -> Rc<dyn Medium> {
        let edge = open(&mut control, &disks, name, &folder.join(name), size);
        Rc::new(Provider::new(name, core.clone(), edge, size))
    };
    let options = Options {
        reactor: reactor.clone(),
        pool: pool.clone(),
        cache: medium("cache", 256 << 20),
        legs: vec![medium("near", 512 << 20), medium("far", 512 << 20)],
        memory: 32 << 20,
        block: 16 << 10,
        owner: [1; 16],
        name: "test".into(),
        clock: Rc::new(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
        }),
        fastworm: false,
        ahead: volume::ReadAhead::default(),
        commit_ns: 2_000_000_000,
    };
    let files: Rc<Cell<Option<FileSystem>>> = Rc::default();
    let (out, tell, r) = (files.clone(), ready.clone(), reactor.clone());
    reactor.spawn("start", async move {
        if ream {
            volume::ream(&options).await.unwrap();
        }
        let fs = FileSystem::mount(volume::open(&options).await.unwrap(), 10_005, 10_000);
        let fs = fs.await.unwrap();
        let server = Server::new(r.clone(), pool);
        server.export("main", fs.clone());
        out.set(Some(fs));
        let listener = r.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        tell.send(listener.local_addr()).unwrap();
        let bootes = server.users().id("bootes");
        while let Ok((stream, peer)) = listener.accept().await {
            let door = Door { flavour: Flavour::Linux, everybody: bootes, ..Door::default() };
            r.spawn("serve", server.clone().serve(stream, peer.to_string(), door));
        }
    });
    let over = Rc::new(Cell::new(false));
    let mut fs = None;
    while !over.get() {
        // Wakes often enough to hear orders.
        reactor.after(5_000_000, reactor::Token::default());
        core.turn(Patience::Forever);
        fs = fs.or_else(|| files.take());
        if let (Some(fs), Ok(order)) = (&fs, orders.try_recv()) {
            let (fs, over): (FileSystem, _) = (fs.clone(), over.clone());
            reactor.spawn("order", async move {
                match order {
                    Order::Dump(date, answer) => {
                        let dump = fs.volume().dump(date).await.unwrap();
                        fs.volume().copied(&dump).await.unwrap();
                        let (year, day) = dump.path();
                        answer.send(format!("{year}/{day}")).unwrap();
                    }
                    Order::Close(answer) => {
                        fs.volume().close().await.unwrap();
                        over.set(true);
                        answer.send("closed".into()).unwrap();
                    }
                }
            });
        }
    }
    reactor.shutdown();
}
