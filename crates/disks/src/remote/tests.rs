//! A second protocol over the connections of this folder: a simulated server that loses
//! connections, restarts, grows and is exchanged. Users are on a core with a connection, and on one
//! without.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Pool, Segs};
use geom::{Edge, Inbox, Limits, Topology};
use reactor::sim;
use reactor::{Reactor, SeededRandom, Stream, TaskHandle};
use testkit::Seeds;
use testkit::clock::MS;

use super::minimal_tests::{Minimal, MinimalLayer, REQUEST};
use super::{ANSWER_TIMEOUT, Bounds, DialParams, Remote, ServerPath, ServerTls, Shape, resolve};
use crate::DiskClass;
use crate::kind::{Identity, Opened, Unit};
use crate::lasting::PersistentIdentity;
use crate::watch::Watch;
use crate::world::World;

const PORTAL: &str = "10.0.0.1:7";
const BYTES: usize = 64 * 512;

/// The server of the protocol.
struct Server {
    data: RefCell<Vec<u8>>,
    /// Faults of a thousand chances.
    faults: Cell<u64>,
    faults_made: Cell<u64>,
    writes: Cell<u64>,
    random: RefCell<SeededRandom>,
    tasks: RefCell<Vec<TaskHandle>>,
    reactor: Reactor,
    pool: Pool,
}

impl Server {
    fn start(self: &Rc<Server>) {
        let server = self.clone();
        let listening = self.reactor.spawn("server", async move {
            let listener = server.reactor.listen(PORTAL.parse().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let own = server.clone();
                let task = server.reactor.spawn("connection", async move {
                    let _over = own.serve(&stream).await;
                    stream.close();
                });
                server.tasks.borrow_mut().push(task);
            }
        });
        self.tasks.borrow_mut().push(listening);
    }

    /// Ends at once, as by SIGKILL.
    fn stop(&self) {
        self.tasks.take().iter().for_each(TaskHandle::abort);
    }

    /// `None`: a fault, which ends the connection.
    fn survives(&self) -> Option<()> {
        let fault = self.random.borrow_mut().below(1000) < self.faults.get();
        self.faults_made.set(self.faults_made.get() + u64::from(fault));
        (!fault).then_some(())
    }

    /// Receives until `bytes` has so many.
    async fn fill(&self, stream: &Stream, bytes: &mut Vec<u8>, len: usize) -> Option<()> {
        let seg = self.pool.get(4096).and_then(|buf| buf.seg(0, 4096))?;
        while bytes.len() < len {
            match stream.recv(&seg).await {
                Ok(n) if n > 0 => seg.with(|b| bytes.extend_from_slice(&b[..n])),
                _ => return None,
            }
        }
        Some(())
    }

    async fn send(&self, stream: &Stream, bytes: &[u8]) -> Option<()> {
        let segs = Segs::alloc(&self.pool, bytes.len())?;
        segs.copy_from(0, bytes);
        stream.send(&mut segs.as_slice().to_vec()).await.ok()
    }

    async fn serve(&self, stream: &Stream) -> Option<()> {
        self.survives()?;
        let size = self.data.borrow().len() as u64;
        self.send(stream, &size.to_be_bytes()).await?;
        let mut fresh = Vec::new();
        loop {
            self.fill(stream, &mut fresh, REQUEST).await?;
            let number = |from: usize, to: usize| {
                fresh[from..to].iter().fold(0, |n, byte| n << 8 | usize::from(*byte))
            };
            let (from, len, is_write) = (number(9, 17), number(17, 21), fresh[0] == b'w');
            let whole = REQUEST + if is_write { len } else { 0 };
            self.fill(stream, &mut fresh, whole).await?;
            self.survives()?;
            let request: Vec<u8> = fresh.drain(..whole).collect();
            let mut reply = [&request[1..9], &[0]].concat();
            if is_write {
                self.data.borrow_mut()[from..from + len].copy_from_slice(&request[REQUEST..]);
                self.writes.set(self.writes.get() + 1);
            } else {
                reply.extend_from_slice(&self.data.borrow()[from..from + len]);
            }
            if self.survives().is_none() {
                self.send(stream, &reply[..reply.len() / 2]).await?;
                return None;
            }
            self.send(stream, &reply).await?;
        }
    }
}

struct MinimalUnit(Arc<Remote<Minimal>>);

impl Drop for MinimalUnit {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Unit for MinimalUnit {
    fn size(&mut self) -> Result<u64, Errno> {
        Ok(self.0.size())
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// A disk of the server.
fn opened(t: &Topology, watch: Arc<Watch>, shape: Shape) -> Opened {
    let address = resolve(PORTAL, 1).unwrap();
    let tls = ServerTls::default();
    let to = DialParams { address, tls, handshake_timeout: ANSWER_TIMEOUT };
    let path = ServerPath { to, first: None };
    let disk = Remote::new(Minimal, path, shape, t.notifier(), watch.clone());
    let (media_bytes, sector_bytes) = (disk.size(), shape.sector);
    Opened {
        layer: Arc::new(MinimalLayer(disk.clone())),
        limits: Limits { media_bytes, sector_bytes, io_max_bytes: 65_536, delete_max_bytes: 0 },
        stripe_bytes: 0,
        identity: Identity {
            lasting: PersistentIdentity::new("minimal"),
            descr: String::new(),
            physpath: String::new(),
            rotation_rate: 1,
            can_delete: false,
            delete_reads_zero: false,
            any_memory: true,
            atomic_bytes: u64::from(sector_bytes),
            delete_granule: (0, 0),
            can_anchor: false,
        },
        read_only: false,
        watch: Some(watch),
        unit: Box::new(MinimalUnit(disk)),
    }
}

/// A disk of the protocol on two cores, of which the first `connections` have one.
fn play(seed: u64, connections: u32, bounds: Bounds) -> (World, Rc<Server>, Edge) {
    let mut w = World::simulated_in(sim::World::new(seed), 2);
    let server = Rc::new(Server {
        data: RefCell::new(vec![0; BYTES]),
        faults: Cell::default(),
        faults_made: Cell::default(),
        writes: Cell::default(),
        random: RefCell::new(SeededRandom::new(seed)),
        tasks: RefCell::default(),
        reactor: w.reactor.clone(),
        pool: w.core.pool().clone(),
    });
    server.start();
    let (cores, connection_cores) = (w.cores.len(), connections);
    let shape = Shape { bytes: BYTES as u64, sector: 512, connection_cores, cores, bounds };
    let inbox: Arc<Inbox> = w.control.inbox().clone();
    let topology = &w.control.topology;
    let disk = opened(topology, Watch::new(inbox), shape);
    let disk = w.disks.opener(topology).opened("minimal", "d0", disk);
    w.control.call(|t| DiskClass::install(t, disk)).unwrap();
    let edge = w.open("d0");
    (w, server, edge)
}

/// Requests are of this core from now on.
fn move_to(w: &mut World, core: usize) {
    w.core = w.cores[core].clone();
    w.reactor = w.core.reactor().clone();
}

/// Returns the faults that the server has made.
fn survives(seed: u64) -> u64 {
    let mut random = SeededRandom::new(seed ^ 0x6d69_6e69);
    let connections = 1 + random.below(2) as u32;
    let (mut w, server, edge) = play(seed, connections, Bounds::new(3600, 1, 100, 7200));
    server.faults.set([0, 30, 100][random.below(3) as usize]);
    let mut model = vec![0; BYTES];
    for round in 1..60u8 {
        move_to(&mut w, random.below(2) as usize);
        let at = random.below(60) as usize * 512;
        let here = at..at + (1 + random.below(4) as usize) * 512;
        if random.chance(500) {
            model[here.clone()].fill(round);
            assert_eq!(w.write(edge, at as u64, &model[here]), Ok(()), "seed {seed}");
        } else {
            let read = w.read(edge, at as u64, here.len() as u64);
            assert!(read.as_deref() == Ok(&model[here]), "seed {seed}, round {round}");
        }
        if random.chance(100) {
            server.stop();
            let away = random.below(500) * MS;
            w.turn(away + MS);
            server.start();
        }
    }
    server.faults_made.get()
}

#[test]
fn writes_over_a_second_protocol_survive_lost_connections() {
    let seeds = Seeds::of(16);
    let made: u64 = seeds.each(survives).iter().sum();
    assert!(made > 0 || !seeds.are_enough());
}

#[test]
fn a_second_protocol_reports_growth_and_the_loss_of_its_disk() {
    let (mut w, server, edge) = play(1, 1, Bounds::new(3, 1, 4, 60));
    w.write(edge, 0, &[7; 512]).unwrap();
    let size = |w: &mut World| {
        let topology = &w.control.topology;
        topology.find("d0").and_then(|p| topology.limits(p)).map(|limits| limits.media_bytes)
    };
    server.stop();
    server.data.borrow_mut().resize(2 * BYTES, 0);
    server.start();
    w.until("the new size", |w| size(w) == Some(2 * BYTES as u64));
    move_to(&mut w, 1);
    assert_eq!(w.read(edge, 0, 512), Ok(vec![7; 512]), "over the connection of another core");
    server.stop();
    server.data.borrow_mut().truncate(BYTES);
    let writes = server.writes.get();
    server.start();
    w.until("the loss of the disk", |w| size(w).is_none());
    assert_eq!(server.writes.get(), writes);
}
