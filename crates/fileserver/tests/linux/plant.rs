//! A file server on a core and files of this machine, in a thread of its own.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use bio::{Pool, PoolConfig};
use disks::DiskClass;
use fileserver::files::{Change, FileSystem, ROOT, Served};
use fileserver::image::{self, Setup};
use fileserver::medium::{Medium, Provider};
use fileserver::ninep::{Flavour, ListenerOptions, Server};
use fileserver::volume::{self, Options};
use geom::{Access, Core, Edge, GraphControl, Inbox};
use reactor::{Config, Reactor, WaitFor};
use serde_json::json;

/// The number of bootes.
const BOOTES: u32 = 10_005;

/// The kind of file system that stores the files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// A volume on two devices of the WORM.
    Volume,
    /// An image of cwfs64x.
    Image,
}

/// Orders from the test to the server.
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
    /// Over files in `folder`; makes all new with `ream`.
    pub fn start(folder: &Path, on: On, ream: bool) -> Plant {
        let (orders, inbox) = mpsc::channel();
        let (ready, started) = mpsc::channel();
        let folder = folder.to_path_buf();
        let thread = std::thread::spawn(move || serve(&folder, (on, ream), &ready, &inbox));
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

fn open(
    control: &mut GraphControl,
    disks: &Arc<DiskClass>,
    name: &str,
    path: &Path,
    size: u64,
) -> Edge {
    let params = json!({ "path": path, "create": true, "size": size });
    control.call(|t| disks.add(t, "file", name, &params)).expect("a file as a disk");
    testkit::user::open(control, name, Access::WRITE).expect("an open disk").1
}

/// The files, and bootes owns their root.
async fn files(options: &Options, on: On, ream: bool) -> Served {
    if on == On::Volume {
        if ream {
            volume::ream(options).await.unwrap();
        }
        let fs = FileSystem::mount(volume::open(options).await.unwrap(), BOOTES, 10_000);
        return fs.await.unwrap().into();
    }
    if ream {
        image::ream(options, Setup::default()).await.unwrap();
    }
    let fs = Served::from(image::open(options, Setup::default()).await.unwrap());
    if ream {
        let owner = Change { uid: Some(BOOTES), gid: Some(BOOTES), ..Change::default() };
        fs.run(|f| f.set(ROOT, &owner)).await.unwrap();
    }
    fs
}

fn serve(
    folder: &Path,
    (on, ream): (On, bool),
    ready: &Sender<SocketAddr>,
    orders: &Receiver<Order>,
) {
    let reactor = Reactor::start(Config { name: "files".into(), ..Config::default() }).unwrap();
    let inbox = Arc::new(Inbox::default());
    let pool = Pool::new(PoolConfig { limit_bytes: 128 << 20 });
    let (core, mailer) = Core::new(0, reactor.clone(), pool.clone(), inbox.report());
    let (turning, clock) = (core.clone(), reactor.clone());
    let mut control = GraphControl::new(
        vec![mailer],
        inbox.clone(),
        Box::new(move |_, _| turning.turn(WaitFor::Peek)),
        Box::new(move || clock.fresh_now()),
    );
    let disks = Arc::new(DiskClass::new(inbox, 1));
    control.topology.load(disks.clone()).unwrap();
    let mut medium = |name: &str, size: u64| -> Rc<dyn Medium> {
        let edge = open(&mut control, &disks, name, &folder.join(name), size);
        Rc::new(Provider::new(name, core.clone(), edge, size))
    };
    let options = Options {
        reactor: reactor.clone(),
        pool: pool.clone(),
        cache: medium("cache", 256 << 20),
        members: match on {
            On::Volume => vec![medium("near", 512 << 20), medium("far", 512 << 20)],
            On::Image => vec![medium("worm", 512 << 20)],
        },
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
    let served: Rc<Cell<Option<(Served, Rc<Server>)>>> = Rc::default();
    let (out, tell, r) = (served.clone(), ready.clone(), reactor.clone());
    reactor.spawn("start", async move {
        let fs = files(&options, on, ream).await;
        let server = Server::new(r.clone(), pool);
        server.export("main", fs.clone());
        out.set(Some((fs, server.clone())));
        let listener = r.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        tell.send(listener.local_addr()).unwrap();
        let bootes = server.users().id("bootes");
        while let Ok((stream, peer)) = listener.accept().await {
            let door = ListenerOptions {
                flavour: Flavour::Linux,
                fixed_user: bootes,
                ..ListenerOptions::default()
            };
            r.spawn("serve", server.clone().serve(stream, peer.to_string(), door));
        }
    });
    let over = Rc::new(Cell::new(false));
    let mut fs = None;
    while !over.get() {
        // Wakes often enough to receive orders.
        reactor.after(5_000_000, reactor::Token::default());
        core.turn(WaitFor::Forever);
        fs = fs.or_else(|| served.take());
        if let (Some((fs, server)), Ok(order)) = (&fs, orders.try_recv()) {
            let requests: u64 = server.clients().iter().map(|p| p.requests).sum();
            eprintln!("{requests} requests, {} commits", fs.facts().commits);
            let (fs, over) = (fs.clone(), over.clone());
            reactor.spawn("order", async move {
                match order {
                    Order::Dump(date, answer) => {
                        let dump = fs.dump(date).await.unwrap();
                        fs.copied(&dump).await.unwrap();
                        let (year, day) = dump.path();
                        answer.send(format!("{year}/{day}")).unwrap();
                    }
                    Order::Close(answer) => {
                        fs.close().await.unwrap();
                        over.set(true);
                        answer.send("closed".into()).unwrap();
                    }
                }
            });
        }
    }
    reactor.shutdown();
}
