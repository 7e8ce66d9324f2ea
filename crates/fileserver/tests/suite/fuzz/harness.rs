//! Whole connections and whole devices made of given bytes, against a server in a simulated world.
//!
//! ```text
//!   connection   byte 0: rules (bit 0), how the network cuts (1, 2), how far in it begins (3, 4)
//!                the rest: the bytes of the client
//!   blocks       byte 0: recovered (bit 0), or opened
//!                then 8 bytes each: device, block (2), byte (2), new value (2), sealed again
//!   image        byte 0: which image of cwfs64x (bits 0, 1), read only (2), recovered (3), fixed
//!                (4; 5: as a dry run)
//!                then 8 bytes each: device, which of its blocks, byte (2), new value (4)
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::{Pool, PoolConfig, Seg};
use fileserver::Fault;
use fileserver::files::{FileSystem, Kind, New, ROOT, Served};
use fileserver::image::{self, Setup};
use fileserver::ninep::{Flavour, ListenerOptions, Server};
use fileserver::users::Users;
use fileserver::volume::{self, Options, View, seal};
use reactor::sim::{Actor, Ended, Limits, NetShape, World};
use reactor::{Reactor, Stream};
use wire::iscsi::crc32c;
use wire::ninep::{NOFID, NOTAG, Names, T};

use super::disk::{Disk, Plugged};
use super::vectors;

/// Longest input that is used.
const INPUT_MAX: usize = 64 * 1024;
/// How long a client waits before it closes, ns.
const WAIT_NS: u64 = 50_000_000;
const BLOCK: usize = 4096;

fn options(reactor: &Reactor, cache: &Rc<Disk>, legs: &[Rc<Disk>]) -> Options {
    let plug = |d: &Rc<Disk>| -> Rc<dyn fileserver::medium::Medium> {
        Rc::new(Plugged(d.clone(), reactor.clone()))
    };
    let clock = reactor.clone();
    Options {
        reactor: reactor.clone(),
        pool: Pool::new(PoolConfig { limit_bytes: 64 << 20 }),
        cache: plug(cache),
        members: legs.iter().map(plug).collect(),
        memory: 512 * BLOCK,
        block: BLOCK as u32,
        owner: [1; 16],
        name: "fuzz".into(),
        clock: Rc::new(move || 1_790_000_000_000_000_000 + clock.now()),
        fastworm: false,
        ahead: volume::ReadAhead::default(),
        commit_ns: 1_000_000_000,
    }
}

/// Runs a task to its end.
fn run(world: &World, reactor: &Reactor, task: impl Future<Output = ()> + 'static) {
    let done = Rc::new(Cell::new(false));
    let end = done.clone();
    reactor.spawn("fuzz", async move {
        task.await;
        end.set(true);
    });
    let mut actors = [Actor::of_tasks(reactor)];
    let limits = Limits { ns: 4_000_000_000_000, steps: 20_000_000 };
    let ended = world.run(&mut actors, limits, &mut || done.get());
    drop(actors);
    reactor.shutdown();
    assert_eq!(ended, Ended::Stopped, "nothing ends any more");
}

fn segs(pool: &Pool, bytes: &[u8]) -> Vec<Seg> {
    let one = |some: &[u8]| {
        let seg = pool.get(some.len()).unwrap().seg(0, some.len()).unwrap();
        seg.copy_from(0, some);
        seg
    };
    bytes.chunks(60_000).map(one).collect()
}

fn opening(far: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let names = Names::new(&["d", "f"]).unwrap();
    let messages = [
        (NOTAG, T::Version { msize: 8216, version: "9P2000" }),
        (1, T::Attach { fid: 0, afid: NOFID, uname: "ann", aname: "" }),
        (2, T::Walk { fid: 0, newfid: 1, names }),
        (3, T::Open { fid: 1, mode: 2 }),
    ];
    let many = [0, 1, 2, messages.len()][usize::from(far & 3)];
    messages.iter().take(many).for_each(|(tag, t)| t.encode(*tag, &mut out));
    out
}

async fn drain(stream: Stream, pool: Pool, received: Rc<Cell<usize>>) {
    let Some(seg) = pool.get(65_536).and_then(|b| b.seg(0, 65_536)) else { return };
    while let Ok(n @ 1..) = stream.recv(&seg).await {
        received.set(received.get() + n);
    }
}

async fn visit(r: &Reactor, pool: &Pool, at: std::net::SocketAddr, bytes: &[u8]) -> usize {
    let Ok(stream) = r.connect(at).await else { return 0 };
    let received = Rc::new(Cell::new(0));
    drop(r.spawn("drain", drain(stream.clone(), pool.clone(), received.clone())));
    // The server may have closed it.
    let _ = stream.send(&mut segs(pool, bytes)).await;
    r.sleep(WAIT_NS).await;
    stream.close();
    r.sleep(WAIT_NS).await;
    received.get()
}

/// A client after the one that sent the bytes is served, the files are in order, and nothing of the
/// first client is left.
pub fn connection(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let mut bytes = opening(how >> 3);
    bytes.extend(rest.get(..INPUT_MAX).unwrap_or(rest));
    let world = World::new(u64::from(how));
    let segment_max = [5, 100, 1460, 16 * 1024][usize::from(how >> 1 & 3)];
    world.set_net(NetShape { segment_max, ..NetShape::default() });
    let reactor = Reactor::simulated(&world, "server");
    let cache = Disk::new("cache", 6 << 20, 1);
    let leg = Disk::new("leg", 30 << 20, 2);
    let o = options(&reactor, &cache, &[leg]);
    let r = reactor.clone();
    run(&world, &reactor, async move {
        volume::ream(&o).await.unwrap();
        let fs = FileSystem::mount(volume::open(&o).await.unwrap(), 1, 3).await.unwrap();
        let server = Server::new(r.clone(), o.pool.clone());
        server.set_users(Users::parse("-1:adm:adm:\n0:none:adm:\n1:ann:ann:\n3:lab::\n").unwrap());
        server.export("main", fs.clone());
        let dir = New { kind: Kind::Dir, mode: 0o777, uid: 1, gid: 3, ..New::default() };
        let file = New { mode: 0o666, uid: 1, gid: 3, ..New::default() };
        let seg = segs(&o.pool, &[5; 10_000]);
        fs.run(|f| {
            let at = f.create(ROOT, b"d", &dir)?;
            let ino = f.create(at, b"f", &file)?;
            f.write(ino, 0, &seg, 1)
        })
        .await
        .unwrap();
        fs.volume().dump(20_261_121).await.unwrap();
        let listener = r.listen("10.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr();
        let flavour = if how & 1 == 0 { Flavour::Plan9 } else { Flavour::Linux };
        let (accepts, serves) = (r.clone(), server.clone());
        r.spawn("accept", async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let door = ListenerOptions { flavour, ..ListenerOptions::default() };
                accepts.spawn("serve", serves.clone().serve(stream, peer.to_string(), door));
            }
        });
        visit(&r, &o.pool, at, &bytes).await;
        let received = visit(&r, &o.pool, at, &opening(2)).await;
        // Rversion and Rattach.
        assert!(received >= 19 + 20, "who comes after it is not served: {received} bytes");
        assert_eq!(server.clients().len(), 0, "a client is left");
        let mut found = fs.check(View::Live, true).await.unwrap();
        for _ in 0..1000 {
            if found.orphans == 0 {
                break;
            }
            r.sleep(1_000_000).await;
            found = fs.check(View::Live, true).await.unwrap();
        }
        assert!(found.faults.is_empty() && found.leaked + found.orphans == 0, "{found:?}");
        let dump = fs.check(View::Dump(1), true).await.unwrap();
        assert!(dump.faults.is_empty(), "{dump:?}");
    });
}

/// Blocks of the devices that hold something, as they are before they are spoiled.
type Image = Vec<Vec<(u64, Vec<u8>)>>;

const SIZES: [u64; 2] = [3 << 20, 8 << 20];

fn image() -> Rc<Image> {
    thread_local! {
        static MADE: RefCell<Option<Rc<Image>>> = const { RefCell::new(None) };
    }
    if let Some(made) = MADE.with(|m| m.borrow().clone()) {
        return made;
    }
    let world = World::new(1);
    let reactor = Reactor::simulated(&world, "server");
    let disks = [Disk::new("cache", SIZES[0], 1), Disk::new("leg", SIZES[1], 2)];
    let o = options(&reactor, &disks[0], &disks[1..]);
    run(&world, &reactor, async move {
        volume::ream(&o).await.unwrap();
        let fs = FileSystem::mount(volume::open(&o).await.unwrap(), 0, 0).await.unwrap();
        for n in 0..6_u8 {
            let dir = New { kind: Kind::Dir, mode: 0o755, ..New::default() };
            let seg = segs(&o.pool, &[n + 1; 30_000]);
            fs.run(|f| {
                let at = f.create(ROOT, format!("d{n}").as_bytes(), &dir)?;
                let ino = f.create(at, b"f", &New { mode: 0o644, ..New::default() })?;
                f.write(ino, 0, &seg, 1)
            })
            .await
            .unwrap();
            if n % 2 == 1 && n < 5 {
                let d = fs.volume().dump(20_261_121).await.unwrap();
                fs.volume().copied(&d).await.unwrap();
            }
        }
        fs.volume().close().await.unwrap();
    });
    let blocks = disks.iter().map(|disk| {
        let mut found = Vec::new();
        disk.with(|d| {
            for at in (0..d.size()).step_by(BLOCK) {
                let mut block = vec![0; BLOCK];
                d.read(at, &mut block).unwrap();
                if block.iter().any(|b| *b != 0) {
                    found.push((at, block));
                }
            }
        });
        found
    });
    let made = Rc::new(blocks.collect::<Image>());
    MADE.with(|m| *m.borrow_mut() = Some(made.clone()));
    made
}

/// A sealed block gets the checksum of its present contents, as an attacker would do it.
fn seal_again(block: &mut [u8]) {
    let len = u32::from_le_bytes([block[24], block[25], block[26], block[27]]) as usize;
    if let Some(covered) = block.get(8..seal::SEAL.saturating_add(len)) {
        let crc = crc32c(covered);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Devices whose blocks were changed are opened or refused, and every read of them succeeds or is a
/// fault that names the place. Where no checksum was forged, the read data equal the written data.
pub fn blocks(data: &[u8]) {
    let Some((&how, patches)) = data.split_first() else { return };
    let image = image();
    let disks = [Disk::new("cache", SIZES[0], 1), Disk::new("leg", SIZES[1], 2)];
    for (disk, blocks) in disks.iter().zip(&*image) {
        disk.with(|d| blocks.iter().for_each(|(at, b)| d.write(*at, b, true).unwrap()));
    }
    let mut forged = false;
    for p in patches.chunks_exact(8).take(200) {
        let (disk, held) = (&disks[usize::from(p[0] & 1)], &image[usize::from(p[0] & 1)]);
        let (at, _) = held[usize::from(u16::from_be_bytes([p[1], p[2]])) % held.len()];
        let byte = usize::from(u16::from_be_bytes([p[3], p[4]])) % (BLOCK - 1);
        disk.with(|d| {
            let mut block = vec![0; BLOCK];
            d.read(at, &mut block).unwrap();
            block[byte..byte + 2].copy_from_slice(&p[5..7]);
            if p[7] & 1 == 1 {
                forged = true;
                seal_again(&mut block);
            }
            d.write(at, &block, true).unwrap();
        });
    }
    let world = World::new(2);
    let reactor = Reactor::simulated(&world, "server");
    let o = options(&reactor, &disks[0], &disks[1..]);
    run(&world, &reactor, async move {
        if how & 1 == 1 && volume::recover(&o, None).await.is_err() {
            return;
        }
        let Ok(volume) = volume::open(&o).await else { return };
        let Ok(fs) = FileSystem::mount(volume, 0, 0).await else { return };
        let dumps = fs.volume().dumps();
        let views = dumps.iter().map(|d| View::Dump(d.number)).chain([View::Live]);
        for view in views {
            if let Ok(found) = fs.check(view, true).await {
                let says = |f: &String| {
                    ["/", "file ", "directory ", "block "].iter().any(|w| f.starts_with(w))
                };
                assert!(found.faults.iter().all(says), "{found:?}");
            }
            for n in 0..6_u8 {
                let read = read(&fs, view, n).await;
                match read {
                    Ok(Some(bytes)) if !forged => {
                        assert!(bytes.len() == 30_000 && bytes.iter().all(|b| *b == n + 1));
                    }
                    Err(Fault::Corrupt(text)) => assert!(!text.is_empty()),
                    _ => {}
                }
            }
        }
        let _ = fs.sync().await;
        let _ = fs.volume().close().await;
    });
}

async fn read(fs: &FileSystem, view: View, n: u8) -> Result<Option<Vec<u8>>, Fault> {
    fs.run(|f| {
        let Some(dir) = f.lookup(view, ROOT, format!("d{n}").as_bytes())? else { return Ok(None) };
        let Some(ino) = f.lookup(view, dir, b"f")? else { return Ok(None) };
        let mut segs = Vec::new();
        f.read(view, ino, 0, 100_000, &mut segs)?;
        Ok(Some(segs.iter().flat_map(|s| s.with(<[u8]>::to_vec)).collect()))
    })
    .await
}

/// An image whose blocks were changed is opened or refused, read, checked and written; a fault
/// names the place. Nothing of it is summed, so what reads may be anything.
pub fn cwfs_image(data: &[u8]) {
    const BLOCK: u64 = image::format::BLOCK as u64;
    let Some((&how, patches)) = data.split_first() else { return };
    let v = &vectors::ALL[usize::from(how & 3) % vectors::ALL.len()];
    let mut disks = vec![vectors::disk("cache", v.cache, 1)];
    disks.extend(v.worm.map(|w| vectors::disk("worm", w, 2)));
    for p in patches.chunks_exact(8).take(100) {
        let disk = &disks[usize::from(p[0] & 1) % disks.len()];
        let byte = u64::from(u16::from_be_bytes([p[2], p[3]])) % (BLOCK - 4);
        let at = (2 + u64::from(p[1])) * BLOCK + byte;
        // One that is behind the end is none.
        let _ = disk.with(|m| m.write(at, &p[4..8], true));
    }
    let world = World::new(3);
    let reactor = Reactor::simulated(&world, "server");
    let mut o = options(&reactor, &disks[0], &disks[1..]);
    o.memory = 300 * BLOCK as usize;
    let setup = Setup { once: v.once, layout: None, read_only: how & 4 == 4 };
    let lent = segs(&o.pool, &[7; 120_000]);
    run(&world, &reactor, async move {
        if how & 8 == 8 && image::recover(&o, setup).await.is_err() {
            return;
        }
        let Ok(opened) = image::open(&o, setup).await else { return };
        let fs = Served::from(opened);
        for view in fs.dumps().iter().map(|d| View::Dump(d.number)).chain([View::Live]) {
            if let Ok(found) = fs.check(view, true).await {
                assert!(found.faults.iter().all(|f| !f.is_empty()));
            }
            let _ = fs.run(|f| f.entries(view, ROOT, 0, 100)).await;
        }
        if how & 16 == 16 {
            let _ = fs.repair(true, how & 32 == 32).await;
        }
        for name in [&b"hello"[..], b"new"] {
            let _ = fs
                .run(|f| {
                    let ino = match f.lookup(View::Live, ROOT, name)? {
                        Some(ino) => ino,
                        None => f.create(ROOT, name, &New::default())?,
                    };
                    f.write(ino, 90_000, &lent, 1)
                })
                .await;
        }
        let _ = fs.run(|f| f.remove(ROOT, b"hello", 1)).await;
        let _ = fs.dump(20_261_124).await;
        let _ = fs.close().await;
    });
}
