//! Common parts of the tests over real ports.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bio::{Errno, Pool, PoolConfig, Segs};
use reactor::{Config, File, OpenHow, PortChoice, PortKind, Reactor, Token, WaitFor};

/// Longer than anything here takes: a test that reaches it hangs.
const HANG: Duration = Duration::from_secs(20);

/// Runs `test` once on each port, each on a thread of its own as a core would be. The kernel takes
/// a ring down by interrupting the thread that had it.
pub fn each_port(test: impl Fn(Reactor) + Sync) {
    for port in [PortChoice::Uring, PortChoice::Poll] {
        let core = || {
            let reactor = start(port);
            test(reactor.clone());
            reactor.shutdown();
            assert_eq!(reactor.in_flight(), 0, "{port:?}: everything was reaped");
        };
        std::thread::scope(|s| {
            let ended = s.spawn(core).join();
            assert!(ended.is_ok(), "on {port:?}");
        });
    }
}

pub fn start(port: PortChoice) -> Reactor {
    let config = Config { name: format!("{port:?}"), port, ..Config::default() };
    let reactor = Reactor::start(config).expect("both ports work on the machine of the tests");
    let kind = match port {
        PortChoice::Poll => PortKind::Poll,
        _ => PortKind::Uring,
    };
    assert_eq!(reactor.port().kind, kind);
    reactor
}

pub fn token(word: u64) -> Token {
    Token { kind: 7, user_data: word }
}

pub fn pool() -> Pool {
    Pool::new(PoolConfig::default())
}

/// Memory with these bytes.
pub fn filled(pool: &Pool, bytes: &[u8]) -> Segs {
    let segs = Segs::alloc(pool, bytes.len()).expect("the pool is large enough");
    assert_eq!(segs.copy_from(0, bytes), bytes.len());
    segs
}

/// Turns until `count` requests have completed; returns their completions in order.
pub fn gather(reactor: &Reactor, count: usize) -> Vec<(Token, Result<u64, Errno>)> {
    let mut completions = Vec::new();
    let start = Instant::now();
    while completions.len() < count {
        assert!(start.elapsed() < HANG, "{} of {count} told", completions.len());
        let limit = reactor.fresh_now() + 1_000_000_000;
        reactor.turn(WaitFor::Until(limit), &mut |t, r| completions.push((t, r)));
    }
    completions
}

/// Runs `work` as a task until it is done.
pub fn run<T: 'static>(reactor: &Reactor, work: impl Future<Output = T> + 'static) -> T {
    let done = std::rc::Rc::new(std::cell::Cell::new(None));
    let put = done.clone();
    let task = reactor.spawn("test", async move { put.set(Some(work.await)) });
    let start = Instant::now();
    while !task.is_finished() {
        assert!(start.elapsed() < HANG, "tasks: {:?}", reactor.tasks());
        let limit = reactor.fresh_now() + 1_000_000_000;
        reactor.turn(WaitFor::Until(limit), &mut |_, _| ());
    }
    done.take().expect("a finished task left its result")
}

/// A scratch file, removed at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("reactor-test-{}-{n}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    pub fn open(&self, size: u64, direct: bool) -> File {
        let how = OpenHow { create: true, direct, size: Some(size), ..OpenHow::default() };
        File::open(&self.0, how).expect("a scratch file can be made")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
