//! A real core and control around disks in memory, with every class loaded.

use bio::{Attr, Bio, Errno, HOLE, MAPPED, Op, Pool, PoolConfig};
use classes::mirror::Tunables;
use geom::{
    Access, ConsumerId, Core, Error, Event, Flow, Geom, GeomId, GraphControl, Inbox, Layer,
    Origins, ProviderId, Topology,
};
use reactor::{Config, PortChoice, Reactor, WaitFor};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use testkit::disk::Provider;

/// The content of a disk, and its coming faults.
#[derive(Default)]
pub struct Media {
    /// As readers see it.
    pub bytes: Vec<u8>,
    /// As a power cut leaves it when it takes everything not flushed.
    pub durable: Vec<u8>,
    /// Ranges that differ between the two, perhaps.
    pub unflushed: Vec<std::ops::Range<usize>>,
    /// Writes and flushes done.
    pub steps: usize,
    /// The step with which the power fails; that one and all later ones fail.
    pub cut_at: Option<usize>,
    /// Reads fail.
    pub unreadable: bool,
    /// It takes WRITE ZEROES, and reports that deleted blocks read as zeroes.
    pub zeroes: bool,
    /// Bytes that were zeroed so.
    pub zeroed: u64,
    /// Every request fails as if the disk had been pulled, but no event has been posted.
    pub gone: bool,
}

impl Media {
    fn step(&mut self) -> Result<(), Errno> {
        if self.gone {
            return Err(Errno::NxIo);
        }
        if self.cut_at.is_some_and(|at| self.steps >= at) {
            return Err(Errno::Io);
        }
        self.steps += 1;
        Ok(())
    }
}

#[derive(Clone, Default)]
pub struct Disk(pub Arc<Mutex<Media>>);

impl Disk {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("media").bytes.clone()
    }

    /// Writes an image, with holes where there are zeroes.
    pub fn save(&self, path: &Path) {
        let bytes = self.bytes();
        let file = std::fs::File::create(path).expect("image");
        file.set_len(bytes.len() as u64).expect("a size");
        for (number, block) in bytes.chunks(65536).enumerate() {
            if block.iter().any(|b| *b != 0) {
                file.write_all_at(block, number as u64 * 65536).expect("image");
            }
        }
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        let mut media = self.0.lock().expect("media");
        media.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        media.unflushed.push(at..at + bytes.len());
    }
}

impl Layer for Disk {
    fn start(&self, bio: &mut Bio, _: &Core) -> Flow {
        let mut media = self.0.lock().expect("media");
        let (from, len) = (bio.offset as usize, bio.length as usize);
        let done = match bio.op {
            Op::Read if media.gone => Err(Errno::NxIo),
            Op::Read if media.unreadable => Err(Errno::Io),
            Op::Read => {
                let mut at = 0;
                for seg in bio.data.iter() {
                    at += seg.copy_from(0, &media.bytes[from + at..from + len]);
                }
                Ok(())
            }
            Op::Write => media.step().map(|()| {
                media.unflushed.push(from..from + len);
                let mut at = from;
                for seg in bio.data.iter() {
                    at += seg.copy_to(0, &mut media.bytes[at..from + len]);
                }
            }),
            Op::Flush => media.step().map(|()| {
                let Media { bytes, durable, unflushed, .. } = &mut *media;
                let ranges = std::mem::take(unflushed);
                match bytes.len() == durable.len() {
                    true => {
                        for range in ranges {
                            durable[range.clone()].copy_from_slice(&bytes[range]);
                        }
                    }
                    false => durable.clone_from(bytes),
                }
            }),
            Op::WriteZeroes if media.zeroes => media.step().map(|()| {
                media.unflushed.push(from..from + len);
                media.bytes[from..from + len].fill(0);
                media.zeroed += len as u64;
            }),
            // Sectors of zeroes are holes.
            Op::Map if media.zeroes => {
                let mut sectors = media.bytes[from..from + len].chunks(512);
                let is_hole = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
                let first = sectors.next().is_some_and(is_hole);
                let alike = 1 + sectors.take_while(|sector| is_hole(sector) == first).count();
                bio.completed = (alike as u64 * 512).min(bio.length);
                bio.value = Some(Attr::Int(if first { HOLE } else { MAPPED }));
                Ok(())
            }
            _ => Err(Errno::NotSup),
        };
        Flow::Done(done)
    }
}

/// Users of providers: they note an orphan and stay.
#[derive(Default)]
struct User {
    orphaned: Arc<Mutex<bool>>,
    /// Notifications received since the last look.
    notifications: Vec<String>,
}

impl Geom for User {
    fn orphan(&mut self, _: &mut Topology, _: GeomId, _: ConsumerId, _: Errno) {
        *self.orphaned.lock().expect("flag") = true;
    }

    fn attr_changed(&mut self, _: &mut Topology, _: GeomId, _: ConsumerId, name: &str) {
        self.notifications.push(name.into());
    }

    fn resizes(&self) -> bool {
        true
    }
}

/// A user that has a provider open.
pub struct Open {
    pub consumer: ConsumerId,
    pub geom: GeomId,
    orphaned: Arc<Mutex<bool>>,
}

impl Open {
    pub fn orphaned(&self) -> bool {
        *self.orphaned.lock().expect("flag")
    }
}

/// How long a mirror waits for missing members at its start, ns: less than the usual 4 s, because
/// a world's clock is the machine's.
pub const MIRROR_START_NS: u64 = 2_000_000_000;

pub struct World {
    pub control: GraphControl,
    users: u32,
    _end: End,
}

/// Drops the tasks of a core with its world. A task may own the core, and the core owns the task.
/// So the memory of the disks would stay until the end of the process.
struct End(Reactor);

impl Drop for End {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

impl World {
    pub fn new() -> World {
        let config = Config { name: "test".into(), port: PortChoice::Poll, ..Config::default() };
        let reactor = Reactor::start(config).expect("reactor");
        let inbox = Arc::new(Inbox::default());
        let (core, mailer) =
            Core::new(0, reactor.clone(), Pool::new(PoolConfig::default()), inbox.report());
        let origins = Arc::<Origins>::default();
        core.set_origins(origins.clone());
        let clock = reactor.clone();
        let mut control = GraphControl::new(
            vec![mailer],
            inbox,
            Box::new(move |_, _| {
                core.turn(WaitFor::Peek);
            }),
            Box::new(move || clock.fresh_now()),
        );
        control.topology.set_origins(origins);
        testkit::disk::load(&mut control.topology);
        let wall_s = || 1_800_000_000;
        let mirrors = Tunables { start_ns: MIRROR_START_NS, wall_s, ..Tunables::default() };
        for class in classes::all_with(mirrors) {
            control.topology.load(class).expect("load");
        }
        World { control, users: 0, _end: End(reactor) }
    }

    pub fn with(name: &str, bytes: Vec<u8>, sector: u32) -> (World, Disk) {
        let mut world = World::new();
        let disk = world.disk(name, bytes, sector);
        (world, disk)
    }

    pub fn disk(&mut self, name: &str, bytes: Vec<u8>, sector: u32) -> Disk {
        let media = Media { durable: bytes.clone(), bytes, ..Media::default() };
        let disk = Disk(Arc::new(Mutex::new(media)));
        self.attach(name, &disk, sector, (0, 0));
        disk
    }

    pub fn attach(&mut self, name: &str, disk: &Disk, sector: u32, stripe: (u64, u64)) {
        self.attach_as(name, &format!("serial-{name}"), disk, sector, stripe);
    }

    /// A disk with a serial number of its own.
    pub fn attach_as(
        &mut self,
        name: &str,
        ident: &str,
        disk: &Disk,
        sector: u32,
        stripe: (u64, u64),
    ) {
        let deletes = u64::from(disk.0.lock().expect("media").zeroes);
        let attrs = [
            ("GEOM::ident", Attr::Text(ident.into())),
            ("GEOM::physpath", Attr::Text("bay/3".into())),
            ("GEOM::candelete", Attr::Int(deletes)),
            ("GEOM::deletereadszero", Attr::Int(1)),
        ];
        let provider = Provider::new(name, disk.bytes().len() as u64).sector(sector).io_max(65536);
        let provider = provider.stripe(stripe.0, stripe.1).with_attrs(&attrs);
        testkit::disk::add(&mut self.control, provider, Arc::new(disk.clone()));
    }

    pub fn find(&self, name: &str) -> ProviderId {
        self.control.topology.find(name).unwrap_or_else(|| panic!("{name}: {:?}", self.names()))
    }

    pub fn has(&self, name: &str) -> bool {
        self.control.topology.find(name).is_some()
    }

    /// Providers, sorted.
    pub fn names(&self) -> Vec<String> {
        let view = self.control.topology.view(0);
        let all = view.iter().flat_map(|g| g.providers.iter().map(|p| p.name.clone()));
        let mut all: Vec<String> = all.filter(|n| self.has(n)).collect();
        all.sort();
        all
    }

    /// The name of the first volume of an array.
    pub fn volume(&self) -> String {
        let volume = self.names().into_iter().find(|name| name.starts_with("raid/"));
        volume.unwrap_or_else(|| panic!("no volume among {:?}", self.names()))
    }

    pub fn taste_outcome(&self, provider: &str, class: &str) -> String {
        let view = self.control.topology.view(0);
        let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == provider);
        let verdicts = &found.expect("a provider").taste_outcomes;
        verdicts.iter().find(|(c, _)| *c == class).map(|(_, v)| v.clone()).unwrap_or_default()
    }

    pub fn show(&self, class: &str, geom: &str, key: &str) -> Vec<String> {
        let view = self.control.topology.view(0);
        let found = view.iter().find(|g| g.class == class && g.name == geom && !g.withering);
        let found = found.unwrap_or_else(|| panic!("no {class} {geom}"));
        found.show.iter().filter(|(k, _)| *k == key).map(|(_, v)| v.clone()).collect()
    }

    pub fn troubles(&self, class: &str, geom: &str) -> Vec<String> {
        let view = self.control.topology.view(0);
        let ours = view.iter().filter(|g| g.class == class && g.name == geom && !g.withering);
        ours.flat_map(|g| &g.troubles).map(|t| t.why.clone()).collect()
    }

    pub fn text(&self, provider: &str, attr: &str) -> Option<String> {
        match self.control.topology.attr(self.find(provider), attr)? {
            Attr::Text(text) => Some(text),
            Attr::Int(int) => Some(int.to_string()),
        }
    }

    pub fn size(&self, name: &str) -> u64 {
        self.control.topology.limits(self.find(name)).expect("limits").media_bytes
    }

    /// Attaches to a provider, without opening it.
    pub fn watch(&mut self, name: &str) -> Open {
        let on = self.find(name);
        self.users += 1;
        let user = format!("user{}", self.users);
        let flag = Arc::new(Mutex::new(false));
        let orphaned = flag.clone();
        self.control
            .call(|t| {
                let ops = Box::new(User { orphaned, notifications: Vec::new() });
                let geom = t.new_geom("test", &user, "a user", ops)?;
                let consumer = t.attach_new(geom, on).map_err(|e| Error::of(e, "attach"))?;
                Ok(Open { consumer, geom, orphaned: flag })
            })
            .expect("attach")
    }

    /// Notifications that a user received since the last call.
    pub fn take_notifications(&mut self, open: &Open) -> Vec<String> {
        let notifications = self
            .control
            .topology
            .with(open.geom, |u: &mut User, _| std::mem::take(&mut u.notifications));
        notifications.expect("a user")
    }

    pub fn try_open(&mut self, name: &str, access: Access) -> Result<Open, Error> {
        let open = self.watch(name);
        let consumer = open.consumer;
        let done =
            self.control.call(|t| t.access(consumer, access).map_err(|e| Error::of(e, "open")));
        match done {
            Ok(()) => Ok(open),
            Err(error) => {
                self.close(open);
                Err(error)
            }
        }
    }

    pub fn open(&mut self, name: &str, access: Access) -> Open {
        self.try_open(name, access).expect("open")
    }

    pub fn close(&mut self, open: Open) {
        self.control
            .call(|t| {
                t.leave(open.consumer);
                t.wither_geom(open.geom, Errno::NxIo);
                Ok(())
            })
            .expect("close");
    }

    pub fn write(&mut self, open: &Open, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let (edge, bytes) = (self.control.topology.edge(open.consumer), bytes.to_vec());
        self.control
            .run_on_core("test", move |core| {
                Box::pin(async move { core.write(edge, at, &bytes).await })
            })
            .expect("a core")
    }

    /// A request without data.
    pub fn range(&mut self, open: &Open, op: Op, at: u64, len: u64) -> Result<(), Errno> {
        let edge = self.control.topology.edge(open.consumer);
        self.control
            .run_on_core("test", move |core| {
                Box::pin(async move {
                    let ask = |bio: &mut Bio| (bio.op, bio.offset, bio.length) = (op, at, len);
                    core.io(edge, ask).await.status
                })
            })
            .expect("a core")
    }

    /// Whether the first byte of a range is in a hole, and how many bytes are alike.
    pub fn map(&mut self, open: &Open, at: u64, len: u64) -> Result<(bool, u64), Errno> {
        let edge = self.control.topology.edge(open.consumer);
        self.control
            .run_on_core("test", move |core| {
                Box::pin(async move {
                    let ask = |bio: &mut Bio| (bio.op, bio.offset, bio.length) = (Op::Map, at, len);
                    let done = core.io(edge, ask).await;
                    let is_hole = done.value == Some(Attr::Int(HOLE));
                    done.status.map(|()| (is_hole, done.completed))
                })
            })
            .expect("a core")
    }

    pub fn read(&mut self, open: &Open, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let edge = self.control.topology.edge(open.consumer);
        self.control
            .run_on_core("test", move |core| {
                Box::pin(async move { core.read(edge, at, len).await })
            })
            .expect("a core")
    }

    pub fn verb(
        &mut self,
        class: &str,
        verb: &str,
        on: &str,
        params: Value,
    ) -> Result<Value, Error> {
        let class = self.control.topology.class(class).expect("class");
        let done = class.verb(&mut self.control, verb, on, &params);
        self.control.topology.check();
        assert!(self.control.is_idle(), "a verb returns when all is at rest");
        done
    }

    /// A verb of part that succeeds, with the consent that it requires: its message.
    pub fn part(&mut self, verb: &str, on: &str, mut params: Value) -> String {
        let mut answer = self.verb("part", verb, on, params.clone());
        if let Err(error) = &answer
            && !error.destroys.is_empty()
        {
            params["yes_destroy"] = error.destroys.clone().into();
            answer = self.verb("part", verb, on, params);
        }
        let answer = answer.unwrap_or_else(|e| panic!("part {verb} {on}: {e}"));
        answer["message"].as_str().expect("a message").to_owned()
    }

    /// A verb of part that is refused: kind and words.
    pub fn refused(&mut self, verb: &str, on: &str, params: Value) -> (Errno, String) {
        let before = self.names();
        match self.verb("part", verb, on, params.clone()) {
            Ok(answer) => panic!("part {verb} {on} {params} was not refused: {answer}"),
            Err(error) => {
                assert_eq!(self.names(), before, "a refusal changes nothing");
                (error.kind, error.message)
            }
        }
    }

    /// The disk has another size from now on.
    pub fn grow(&mut self, name: &str, disk: &Disk, len: usize) {
        disk.0.lock().expect("media").bytes.resize(len, 0);
        self.report_size(name, len);
    }

    pub fn report_size(&mut self, name: &str, len: usize) {
        let on = self.find(name);
        self.control
            .call(|t| {
                t.post(Event::Resize(on, len as u64));
                Ok(())
            })
            .expect("resize");
    }

    pub fn lose(&mut self, name: &str) {
        let on = self.find(name);
        self.control
            .call(|t| {
                t.post(Event::Lost(on, Errno::NxIo));
                if let Some(geom) = t.geom_of(on) {
                    t.wither_geom(geom, Errno::NxIo);
                }
                Ok(())
            })
            .expect("lost");
    }
}
