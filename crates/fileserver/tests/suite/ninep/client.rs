//! A scripted 9P client that sends right or wrong messages over a simulated network.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use bio::{Pool, PoolConfig, Seg, Segs};
use fileserver::files::{Change, FileSystem, ROOT, Served};
use fileserver::image::{self, Setup, format::BLOCK};
use fileserver::ninep::{Flavour, ListenerOptions, Server};
use fileserver::users::Users;
use fileserver::volume::{self, Options};
use reactor::sim::{Actor, Ended, Limits, World};
use reactor::{Reactor, Stream};
use wire::ninep::{NOFID, NOTAG, Names, Qid, R, Stat, T};

use crate::sim::disk::{Disk, Plugged};

pub const PEOPLE: &str = "-1:adm:adm:\n0:none:adm:\n1:ann:ann:\n2:bob:bob:\n3:lab:ann:ann,bob\n";

/// A server with one file system, and a reactor for it and its clients.
#[derive(Clone)]
pub struct Fixture {
    pub reactor: Reactor,
    pub pool: Pool,
    pub server: Rc<Server>,
    pub fs: Served,
    pub cache: Rc<Disk>,
    strict: SocketAddr,
    lenient: SocketAddr,
}

/// Runs `story` on a server of its own: with files on a volume, and with those of an image of
/// cwfs64x. Clients cannot distinguish the two.
pub fn with_fixture<F: Future<Output = ()> + 'static>(
    seed: u64,
    story: impl Fn(Fixture) -> F + Clone + 'static,
) {
    for is_image in [false, true] {
        let world = World::new(seed);
        let reactor = Reactor::simulated(&world, "server");
        let done = Rc::new(Cell::new(false));
        let (r, d, story) = (reactor.clone(), done.clone(), story.clone());
        reactor.spawn("story", async move {
            let fixture = make_fixture(r, seed, is_image).await;
            story(fixture).await;
            d.set(true);
        });
        let mut actors = [Actor::of_tasks(&reactor)];
        let limits = Limits { ns: 4_000_000_000_000, steps: 50_000_000 };
        let ended = world.run(&mut actors, limits, &mut || done.get());
        drop(actors);
        reactor.shutdown();
        assert!(ended == Ended::Stopped, "it does not end: {ended:?}, image: {is_image}");
    }
}

async fn make_fixture(reactor: Reactor, seed: u64, is_image: bool) -> Fixture {
    let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
    let cache = Disk::new("cache", 32 << 20, seed ^ 1);
    let leg = Disk::new("worm", 64 << 20, seed ^ 2);
    let clock = reactor.clone();
    let mut options = Options {
        reactor: reactor.clone(),
        pool: pool.clone(),
        cache: Rc::new(Plugged(cache.clone(), reactor.clone())),
        members: vec![Rc::new(Plugged(leg.clone(), reactor.clone()))],
        memory: 8 << 20,
        block: 4096,
        owner: [1; 16],
        name: "house".into(),
        clock: Rc::new(move || 1_790_000_000_000_000_000 + clock.now()),
        fastworm: false,
        ahead: volume::ReadAhead::default(),
        commit_ns: 1_000_000_000,
    };
    let users = Users::parse(PEOPLE).unwrap();
    let fs = if is_image {
        options.memory = 500 * BLOCK;
        image::ream(&options, Setup::default()).await.unwrap();
        let fs = Served::from(image::open(&options, Setup::default()).await.unwrap());
        let owner = Change { uid: Some(1), gid: Some(3), ..Change::default() };
        fs.run(|f| f.set(ROOT, &owner)).await.unwrap();
        fs
    } else {
        volume::ream(&options).await.unwrap();
        let volume = volume::open(&options).await.unwrap();
        FileSystem::mount(volume, 1, 3).await.unwrap().into()
    };
    let server = Server::new(reactor.clone(), pool.clone());
    server.set_users(users);
    server.export("main", fs.clone());
    let mut at = Vec::new();
    for flavour in [Flavour::Plan9, Flavour::Linux] {
        let listener = reactor.listen("10.0.0.1:0".parse().unwrap()).unwrap();
        at.push(listener.local_addr());
        let (server, r) = (server.clone(), reactor.clone());
        reactor.spawn("accept", async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let door = ListenerOptions { flavour, ..ListenerOptions::default() };
                r.spawn("serve", server.clone().serve(stream, peer.to_string(), door));
            }
        });
    }
    let (strict, lenient) = (at[0], at[1]);
    Fixture { reactor, pool, server, fs, cache, strict, lenient }
}

impl Fixture {
    /// Blocks that no dump has, all that was given up given back.
    pub async fn used(&self) -> u64 {
        self.fs.sync().await.unwrap();
        let facts = self.fs.facts();
        facts.live + facts.scratch
    }

    /// A client that has agreed on a version.
    pub async fn client(&self, flavour: Flavour) -> Client {
        let c = self.stranger(flavour).await;
        c.version(65_560).await;
        c
    }

    /// One that has sent nothing yet.
    pub async fn stranger(&self, flavour: Flavour) -> Client {
        let at = if flavour == Flavour::Plan9 { self.strict } else { self.lenient };
        Client::connect(&self.reactor, &self.pool, at).await
    }

    /// Attached as the user `name`, fid 0 at the root.
    pub async fn user(&self, name: &str, flavour: Flavour) -> Client {
        let c = self.client(flavour).await;
        c.attach(0, name, "").await.unwrap();
        c
    }
}

/// Replies that arrived before the test waited for them.
type Early = Rc<std::cell::RefCell<HashMap<u16, Vec<u8>>>>;

pub struct Client {
    stream: Stream,
    pool: Pool,
    next: Cell<u16>,
    early: Early,
}

/// A reply of one's own.
pub struct OwnedReply(pub Vec<u8>);

impl OwnedReply {
    pub fn r(&self) -> R<'_> {
        R::decode(&self.0).expect("a reply that reads")
    }

    /// The text of an Rerror, or nothing.
    pub fn error(&self) -> Option<String> {
        match self.r() {
            R::Error { ename } => Some(ename.into()),
            _ => None,
        }
    }
}

impl Client {
    pub async fn connect(reactor: &Reactor, pool: &Pool, at: SocketAddr) -> Client {
        let stream = reactor.connect(at).await.unwrap();
        Client { stream, pool: pool.clone(), next: Cell::new(1), early: Rc::default() }
    }

    pub fn tag(&self) -> u16 {
        let tag = self.next.get();
        self.next.set(if tag == 60_000 { 1 } else { tag + 1 });
        tag
    }

    pub async fn send_raw(&self, bytes: &[u8]) {
        let mut out = Vec::new();
        for some in bytes.chunks(60_000) {
            let seg = self.pool.get(some.len()).unwrap().seg(0, some.len()).unwrap();
            seg.copy_from(0, some);
            out.push(seg);
        }
        self.stream.send(&mut out).await.unwrap();
    }

    /// The next message; none when the server hung up.
    pub async fn receive(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut wanted = 4;
        while out.len() < wanted {
            let seg: Seg =
                self.pool.get(4096).unwrap().seg(0, (wanted - out.len()).min(4096)).unwrap();
            let mut segs = Segs::default();
            let len = seg.len();
            segs.push(seg);
            self.stream.recv_exact(&segs).await.ok()?;
            out.extend_from_slice(&segs.to_vec()[..len]);
            if out.len() == 4 {
                wanted = u32::from_le_bytes([out[0], out[1], out[2], out[3]]) as usize;
            }
        }
        Some(out)
    }

    pub async fn post(&self, t: &T<'_>, data: &[u8]) -> u16 {
        let tag = if matches!(t, T::Version { .. }) { NOTAG } else { self.tag() };
        self.post_as(tag, t, data).await;
        tag
    }

    /// The same with a tag of one's choice.
    pub async fn post_as(&self, tag: u16, t: &T<'_>, data: &[u8]) {
        let mut out = Vec::new();
        t.encode(tag, &mut out);
        out.extend_from_slice(data);
        self.send_raw(&out).await;
    }

    /// The reply to a tag; those to others are kept.
    pub async fn reply(&self, tag: u16) -> OwnedReply {
        loop {
            if let Some(early) = self.early.borrow_mut().remove(&tag) {
                return OwnedReply(early);
            }
            let message = self.receive().await.expect("the server hung up");
            let of = u16::from_le_bytes([message[5], message[6]]);
            if of == tag {
                return OwnedReply(message);
            }
            assert!(self.early.borrow_mut().insert(of, message).is_none(), "two replies to {of}");
        }
    }

    pub async fn rpc(&self, t: T<'_>) -> OwnedReply {
        let tag = self.post(&t, &[]).await;
        self.reply(tag).await
    }

    pub async fn version(&self, msize: u32) -> u32 {
        let a = self.rpc(T::Version { msize, version: "9P2000" }).await;
        let R::Version { msize, version: "9P2000" } = a.r() else { panic!("{:?}", a.r()) };
        msize
    }

    pub async fn attach(&self, fid: u32, uname: &str, aname: &str) -> Result<Qid, String> {
        let a = self.rpc(T::Attach { fid, afid: NOFID, uname, aname }).await;
        match a.r() {
            R::Attach { qid } => Ok(qid),
            R::Error { ename } => Err(ename.into()),
            r => panic!("{r:?}"),
        }
    }

    /// As many qids as names were found.
    pub async fn walk(&self, fid: u32, newfid: u32, names: &[&str]) -> Result<Vec<Qid>, String> {
        let names = Names::new(names).unwrap();
        let a = self.rpc(T::Walk { fid, newfid, names }).await;
        match a.r() {
            R::Walk { qids } => Ok(qids),
            R::Error { ename } => Err(ename.into()),
            r => panic!("{r:?}"),
        }
    }

    async fn done(&self, t: T<'_>) -> Result<(), String> {
        self.rpc(t).await.error().map_or(Ok(()), Err)
    }

    pub async fn open(&self, fid: u32, mode: u8) -> Result<(), String> {
        self.done(T::Open { fid, mode }).await
    }

    pub async fn create(&self, fid: u32, name: &str, perm: u32, mode: u8) -> Result<(), String> {
        self.done(T::Create { fid, name, perm, mode }).await
    }

    pub async fn clunk(&self, fid: u32) -> Result<(), String> {
        self.done(T::Clunk { fid }).await
    }

    pub async fn remove(&self, fid: u32) -> Result<(), String> {
        self.done(T::Remove { fid }).await
    }

    pub async fn wstat(&self, fid: u32, stat: Stat<'_>) -> Result<(), String> {
        self.done(T::Wstat { fid, stat }).await
    }

    pub async fn stat(&self, fid: u32) -> OwnedReply {
        self.rpc(T::Stat { fid }).await
    }

    pub async fn write(&self, fid: u32, offset: u64, data: &[u8]) -> Result<u32, String> {
        let t = T::Write { fid, offset, count: data.len() as u32 };
        let tag = self.post(&t, data).await;
        let a = self.reply(tag).await;
        match a.r() {
            R::Write { count } => Ok(count),
            R::Error { ename } => Err(ename.into()),
            r => panic!("{r:?}"),
        }
    }

    pub async fn read(&self, fid: u32, offset: u64, count: u32) -> Result<Vec<u8>, String> {
        let a = self.rpc(T::Read { fid, offset, count }).await;
        match a.r() {
            R::Read { data } => Ok(data.to_vec()),
            R::Error { ename } => Err(ename.into()),
            r => panic!("{r:?}"),
        }
    }

    /// Makes a file under fid 0 and leaves it open at `fid`.
    pub async fn make(&self, fid: u32, name: &str, perm: u32, mode: u8) {
        assert_eq!(self.walk(0, fid, &[]).await, Ok(vec![]));
        assert_eq!(self.create(fid, name, perm, mode).await, Ok(()));
    }

    /// Name and length of the file of a fid.
    pub async fn facts(&self, fid: u32) -> (String, u64, u32) {
        let a = self.stat(fid).await;
        let R::Stat { stat } = a.r() else { panic!("{:?}", a.r()) };
        (stat.name.into(), stat.length, stat.qid.version)
    }
}
