//! TCP: every segmentation, many connections, and ends of all kinds.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use bio::{Pool, Seg, Segs};
use reactor::{File, OpenHow, Reactor, Stream, WaitFor};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::ports::bench::{each_port, filled, pool, run, token};

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn seg(pool: &Pool, len: usize) -> Seg {
    pool.get(len).unwrap().seg(0, len).unwrap()
}

/// Both ends of a connection, on this reactor.
fn pair(r: &Reactor) -> (Stream, Stream) {
    let r2 = r.clone();
    run(r, async move {
        let listener = r2.listen(any()).unwrap();
        let a = r2.connect(listener.local_addr()).await.unwrap();
        let (b, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, a.local_addr().unwrap());
        assert_eq!(b.peer_addr().unwrap(), peer);
        (a, b)
    })
}

async fn echo(stream: Stream, pool: Pool) {
    let into = seg(&pool, 4096);
    let mut out = Vec::new();
    loop {
        match stream.recv(&into).await {
            Ok(0) | Err(_) => break,
            Ok(n) => {
                let copy = seg(&pool, n);
                into.with(|b| copy.copy_from(0, &b[..n]));
                out.push(copy);
                stream.send(&mut out).await.unwrap();
                assert!(out.is_empty());
            }
        }
    }
}

#[test]
fn one_byte_segments_are_reassembled() {
    each_port(|r| {
        let listener = r.listen(any()).unwrap();
        let addr = listener.local_addr();
        let client = thread::spawn(move || {
            let mut s = TcpStream::connect(addr).unwrap();
            s.set_nodelay(true).unwrap();
            for b in 0..200u8 {
                s.write_all(&[b]).unwrap();
                if b % 50 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
            }
            let mut back = [0; 200];
            s.read_exact(&mut back).unwrap();
            assert!(back.iter().copied().eq(0..200));
        });
        let pool = pool();
        run(&r, async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut into = Segs::new();
            for _ in 0..4 {
                into.push(seg(&pool, 50));
            }
            stream.recv_exact(&into).await.unwrap();
            assert!(into.to_vec().into_iter().eq(0..200));
            let mut out: Vec<Seg> = into.iter().cloned().collect();
            stream.send(&mut out).await.unwrap();
            assert_eq!(stream.recv(&seg(&pool, 1)).await.unwrap(), 0, "the end");
        });
        client.join().unwrap();
    });
}

/// R1.
#[test]
fn long_send_to_a_slow_reader_arrives_whole() {
    each_port(|r| {
        let (a, b) = pair(&r);
        a.keepalive(Duration::from_secs(8)).unwrap();
        let pool = pool();
        const LEN: usize = 8 << 20;
        let bytes: Vec<u8> = (0..LEN).map(|i| (i / 3) as u8).collect();
        let data = filled(&pool, &bytes);
        let mut out = Vec::new();
        // More ranges than one call takes.
        for at in (0..LEN).step_by(4096) {
            let mut piece = Segs::new();
            assert!(data.slice_into(at, 4096, &mut piece));
            out.extend(piece.iter().cloned());
        }
        assert!(out.len() > reactor::IOVECS_MAX);
        r.spawn("sender", async move {
            a.send(&mut out).await.unwrap();
            a.shutdown().unwrap();
        });
        let r2 = r.clone();
        let got = run(&r, async move {
            let into = seg(&pool, 65536);
            let mut got = Vec::new();
            loop {
                if got.len() % 9 == 0 {
                    r2.sleep(100_000).await;
                }
                match b.recv(&into).await.unwrap() {
                    0 => return got,
                    n => into.with(|b| got.extend_from_slice(&b[..n])),
                }
            }
        });
        assert!(got == bytes);
    });
}

#[test]
fn a_thousand_connections_are_served_at_once() {
    each_port(|r| {
        const COUNT: usize = 1000;
        let pool = pool();
        let listener = r.listen_shared(any()).unwrap();
        let addr = listener.local_addr();
        let (r2, pool2) = (r.clone(), pool.clone());
        r.spawn("server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                r2.spawn("echo", echo(stream, pool2.clone()));
            }
        });
        let left = Rc::new(Cell::new(COUNT));
        for n in 0..COUNT as u32 {
            let (r2, pool, left) = (r.clone(), pool.clone(), left.clone());
            r.spawn("client", async move {
                let s = r2.connect(addr).await.unwrap();
                s.nodelay(true).unwrap();
                for round in 0..3u32 {
                    let word = (n * 10 + round).to_le_bytes();
                    let out = seg(&pool, 4);
                    out.copy_from(0, &word);
                    s.send(&mut vec![out]).await.unwrap();
                    let mut into = Segs::new();
                    into.push(seg(&pool, 4));
                    s.recv_exact(&into).await.unwrap();
                    assert_eq!(into.to_vec(), word);
                }
                left.set(left.get() - 1);
            });
        }
        let r2 = r.clone();
        run(&r, async move {
            while left.get() > 0 {
                r2.sleep(1_000_000).await;
            }
        });
    });
}

/// O1 of ops.rs.
#[test]
fn a_dropped_receive_keeps_its_memory_until_it_was_reaped() {
    each_port(|r| {
        let (a, b) = pair(&r);
        let pool = pool();
        let into = seg(&pool, 4096);
        let b2 = b.clone();
        let task = r.spawn("receiver", async move {
            b2.recv(&into).await.unwrap();
        });
        r.turn(WaitFor::Peek, &mut |_, _| ());
        assert_eq!((r.in_flight(), pool.usage().used_bytes), (1, 4096));
        task.abort();
        assert_eq!(r.in_flight(), 1, "cancelled, but still in the kernel's hands");
        assert_eq!(pool.usage().used_bytes, 4096, "not freed before it was reaped");
        let r2 = r.clone();
        run(&r, async move {
            while r2.in_flight() > 0 {
                r2.sleep(100_000).await;
            }
        });
        assert_eq!(pool.usage().used_bytes, 0);

        // The connection continues.
        let pool2 = pool.clone();
        run(&r, async move {
            let out = seg(&pool2, 3);
            out.copy_from(0, b"abc");
            a.send(&mut vec![out]).await.unwrap();
            let into = seg(&pool2, 10);
            assert_eq!(b.recv(&into).await.unwrap(), 3);
            into.with(|b| assert_eq!(&b[..3], b"abc"));
        });
    });
}

#[test]
fn close_ends_pending_operations() {
    each_port(|r| {
        let (a, b) = pair(&r);
        let pool = pool();
        let (b2, pool2) = (b.clone(), pool.clone());
        let reader = r.spawn("reader", async move {
            let got = b2.recv(&seg(&pool2, 10)).await;
            assert!(matches!(got, Ok(0) | Err(_)), "{got:?}");
        });
        let (b2, pool2) = (b.clone(), pool.clone());
        let writer = r.spawn("writer", async move {
            let data = Segs::alloc(&pool2, 32 << 20).unwrap();
            let mut out = data.iter().cloned().collect();
            b2.send(&mut out).await.expect_err("nobody reads");
        });
        let r2 = r.clone();
        run(&r, async move {
            r2.sleep(5_000_000).await;
            assert!(!reader.is_finished() && !writer.is_finished());
            b.close();
            while !(reader.is_finished() && writer.is_finished()) {
                r2.sleep(100_000).await;
            }
        });
        drop(a);
    });
}

#[test]
fn shutdown_and_reset_by_the_peer_are_reported() {
    each_port(|r| {
        let pool = pool();
        let (a, b) = pair(&r);
        run(&r, async move {
            let into = Segs::alloc(&pool, 10).unwrap();
            a.shutdown().unwrap();
            let e = b.recv_exact(&into).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
            b.reset();
            drop(b);
            let e = a.recv(&seg(&pool, 10)).await;
            assert!(matches!(&e, Err(e) if e.kind() == ErrorKind::ConnectionReset), "{e:?}");
        });
    });
}

#[test]
fn a_refused_connection_is_an_error() {
    each_port(|r| {
        let free = TcpListener::bind(any()).unwrap().local_addr().unwrap();
        let r2 = r.clone();
        let e = run(&r, async move { r2.connect(free).await.err() });
        assert_eq!(e.unwrap().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn socket_is_moved_to_another_core() {
    each_port(|r| {
        let pool2 = pool();
        let (a, b) = pair(&r);
        let b2 = b.clone();
        assert!(b.into_fd().is_err(), "a clone holds it");
        let (r2, p) = (r.clone(), pool2.clone());
        // Let the poll port watch it first.
        let waiting = r.spawn("waits", {
            let b = b2.clone();
            async move {
                let _ = b.recv(&seg(&p, 10)).await;
            }
        });
        run(&r, async move {
            r2.sleep(1_000_000).await;
            waiting.abort();
            r2.sleep(5_000_000).await;
        });
        let fd = b2.into_fd().expect("the only handle now");
        let port = match r.port().kind {
            reactor::PortKind::Poll => reactor::PortChoice::Poll,
            _ => reactor::PortChoice::Uring,
        };
        let other = thread::spawn(move || {
            let r = crate::ports::bench::start(port);
            let (b, pool) = (r.adopt(fd), pool());
            assert!(b.peer_addr().is_ok());
            run(&r, echo(b, pool));
        });
        run(&r, async move {
            let out = seg(&pool2, 5);
            out.copy_from(0, b"hello");
            a.send(&mut vec![out]).await.unwrap();
            let mut into = Segs::new();
            into.push(seg(&pool2, 5));
            a.recv_exact(&into).await.unwrap();
            assert_eq!(into.to_vec(), b"hello");
        });
        other.join().unwrap();
    });
}

/// Operations in flight when a core ends: their memory returns, and nothing is written later.
/// U4.
#[test]
fn core_shutdown_reclaims_the_memory_of_all_operations() {
    each_port(|r| {
        let (a, b) = pair(&r);
        let (memory, scratch) = (pool(), crate::ports::bench::Scratch::new());
        let file = scratch.open(1 << 20, false);
        for word in 0..200 {
            let into = Segs::alloc(&memory, 1 << 16).unwrap();
            r.read(crate::ports::bench::token(word), &file, 0, &into);
            r.sync(crate::ports::bench::token(word), &file);
        }
        let (memory2, r2) = (memory.clone(), r.clone());
        r.spawn("receiver", async move {
            let got = b.recv(&seg(&memory2, 4096)).await;
            drop(r2);
            panic!("never ends by itself: {got:?}");
        });
        r.turn(WaitFor::Peek, &mut |_, _| ());
        r.after(1, crate::ports::bench::token(1));
        r.shutdown();
        assert_eq!(r.in_flight(), 0);
        assert_eq!(memory.usage().used_bytes, 0);
        assert!(r.tasks().is_empty());
        drop(a);
    });
}

#[test]
fn check_of_a_unix_path_leaves_it_as_it_is() {
    let name = format!("ashlar-check-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name).to_str().unwrap().to_owned();
    let kind = |path: &str| reactor::check_unix_path(path).map_err(|e| e.kind());
    assert_eq!(kind(&path), Ok(()));
    assert!(!std::path::Path::new(&path).exists());
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(kind(&path), Err(ErrorKind::AddrInUse));
    drop(listener);
    assert_eq!(kind(&path), Ok(()), "a stale one is replaced");
    assert!(std::path::Path::new(&path).exists());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"a file").unwrap();
    assert_eq!(kind(&path), Err(ErrorKind::AddrInUse));
    let refused = reactor::check_unix_path(&path).unwrap_err().to_string();
    assert!(refused.contains("not a socket"), "{refused}");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(kind(&format!("{path}/no/folder")), Err(ErrorKind::NotFound));
}

#[test]
fn dropped_listener_refuses_connections_at_once() {
    each_port(|r| {
        let listener = r.listen(any()).unwrap();
        let at = listener.local_addr();
        let task = r.spawn("accept", async move {
            while let Ok(accepted) = listener.accept().await {
                drop(accepted);
            }
        });
        let (r2, pool) = (r.clone(), pool());
        run(&r, async move {
            let stream = r2.connect(at).await.unwrap();
            // Its end shows that the next accept is under way.
            let _ended = stream.recv(&seg(&pool, 1)).await;
        });
        task.abort();
        assert!(TcpStream::connect(at).is_err(), "no turn has reaped the accept");
    });
}

#[test]
fn unix_socket_is_shared_by_listeners_and_a_stale_one_is_replaced() {
    each_port(|r| {
        let folder = std::env::temp_dir();
        let name = format!("ashlar-ports-{}-{}.sock", std::process::id(), r.name());
        let path = folder.join(name).to_str().unwrap().to_owned();
        let first = r.listen_unix(&path).unwrap();
        assert_eq!(r.listen_unix(&path).err().unwrap().kind(), ErrorKind::AddrInUse);
        let second = r.attach_unix(first.share().unwrap()).unwrap();
        drop(first);
        let (r2, at, pool) = (r.clone(), path.clone(), pool());
        run(&r, async move {
            let a = r2.connect_unix(&at).await.unwrap();
            // The refused `listen_unix` above made a connection to test for a listener.
            drop(second.accept().await.unwrap());
            let b = second.accept().await.unwrap();
            assert_eq!(b.peer_uid().unwrap(), std::fs::metadata(&at).unwrap().uid());
            assert!(b.peer_addr().is_err());
            let mut out = vec![seg(&pool, 3)];
            out[0].copy_from(0, b"abc");
            a.send(&mut out).await.unwrap();
            let into = seg(&pool, 3);
            let mut whole = Segs::new();
            whole.push(into.clone());
            b.recv_exact(&whole).await.unwrap();
            into.with(|bytes| assert_eq!(bytes, b"abc"));
        });
        // The listeners were dropped, but the path exists.
        assert!(std::fs::metadata(&path).is_ok());
        drop(r.listen_unix(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let no = |_: &std::path::Path| Err(std::io::Error::other("not now"));
        assert!(r.listen_unix_prepared(&path, no).is_err());
        assert!(!std::path::Path::new(&path).exists(), "what was not prepared is removed");
        std::fs::write(&path, b"a file of somebody").unwrap();
        assert!(r.listen_unix(&path).is_err(), "a file is not taken away");
        assert_eq!(std::fs::read(&path).unwrap(), b"a file of somebody");
        std::fs::remove_file(&path).unwrap();
    });
}

/// U6 beside U8: inline calls do not keep memory from tasks that wait for it. Each round would take
/// a turn's whole patience.
#[test]
fn awaited_lazy_sends_complete_beside_inline_calls() {
    each_port(|r| {
        let (pool, (a, b)) = (pool(), pair(&r));
        let memory = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let how = OpenHow { size: Some(4096), ..OpenHow::default() };
        let file = File::open(path, how).unwrap();
        let page = Segs::alloc(&pool, 4096).unwrap();
        let own = r.clone();
        run(&r, async move {
            for word in 0..40 {
                own.read(token(word), &file, 0, &page);
                own.flush_lazy_sends();
                a.send_lazily(&mut vec![seg(&pool, 100)]).await.unwrap();
            }
        });
        drop(b);
    });
}
