//! The load's thread: a reactor, a task a session, and a watch over both.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use bio::{Pool, PoolConfig};
use reactor::{Config, Patience, Reactor, Stream};
use wire::iscsi::PRE_LOGIN;

use super::intake::Intake;
use super::out::{Out, exhausted};
use super::session::Session;
use super::shared::Shared;
use super::spec::{Outcome, Spec};
use crate::error::{Error, Kind};

/// Bytes received at once.
const RECV_BYTES: usize = 64 * 1024;
/// Most memory for data in flight; a load that needs more is an error.
const POOL_BYTES: usize = 1 << 30;
/// How long a turn waits, so that a request to stop is seen.
const TURN_NS: u64 = 20_000_000;
/// Longest wait for a connection, for sessions to begin, and for the last answers after the stop.
const WAIT: Duration = Duration::from_secs(20);
/// Without any answer for this long the target is stuck: an error.
const SILENCE: Duration = Duration::from_secs(30);

/// A load under way. Dropping it stops it.
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Outcome, Error>>>,
}

/// Makes the load of `spec` and waits for its end; `spec.requests` must say where that is.
pub fn run(spec: &Spec) -> Result<Outcome, Error> {
    if spec.requests.is_none() || spec.linger {
        return Err(Error::new(Kind::Options, "a load that ends by itself needs `requests`"));
    }
    start(spec)?.join()
}

/// Starts the load of `spec`; answers when every session has begun to work.
pub fn start(spec: &Spec) -> Result<Running, Error> {
    spec.check()?;
    let shared = Arc::new(Shared::default());
    let (its, wanted) = (shared.clone(), spec.clone());
    let thread = std::thread::Builder::new().name("load".into());
    let thread = thread.spawn(move || work(&wanted, &its));
    let thread = thread.map_err(|e| Error::system("start a thread", e))?;
    let mut running = Running { shared, thread: Some(thread) };
    let begun = Instant::now();
    while running.shared.ready.load(Relaxed) < spec.sessions {
        if running.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            running.join_thread()?;
            return Err(Error::new(Kind::Protocol, "the load ended before it began"));
        }
        if begun.elapsed() > WAIT {
            return Err(Error::new(Kind::Timeout, "the sessions did not begin in time"));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(running)
}

impl Running {
    /// Requests that have ended well so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Relaxed)
    }

    /// Begins or ends the recording of latencies.
    pub fn record(&self, yes: bool) {
        self.shared.recording.store(yes, Relaxed);
    }

    /// Whether it has ended, by itself or with an error.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it: no new requests, the answers outstanding, logout.
    pub fn stop(self) -> Result<Outcome, Error> {
        self.shared.stop.store(true, Relaxed);
        self.join()
    }

    /// Waits for the end.
    pub fn join(mut self) -> Result<Outcome, Error> {
        self.join_thread()
    }

    fn join_thread(&mut self) -> Result<Outcome, Error> {
        let Some(thread) = self.thread.take() else { return Ok(Outcome::default()) };
        let panicked = |_| Error::new(Kind::System, "the load's thread panicked");
        thread.join().map_err(panicked)?
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        let _ = self.join_thread();
    }
}

/// What the tasks of a thread share.
#[derive(Clone, Default)]
struct Desk {
    ended: Rc<RefCell<Vec<Result<Outcome, Error>>>>,
    /// Streams of sessions that have nothing to do, to be closed at the stop.
    lingering: Rc<RefCell<Vec<Stream>>>,
}

fn work(spec: &Spec, shared: &Arc<Shared>) -> Result<Outcome, Error> {
    let config = Config {
        name: "load".into(),
        spin_ns: if spec.spin { TURN_NS } else { 0 },
        cpu: spec.core,
        ..Config::default()
    };
    let reactor = Reactor::start(config).map_err(|e| Error::system("the load's reactor", e))?;
    let pool = Pool::new(PoolConfig { limit_bytes: POOL_BYTES });
    let desk = Desk::default();
    for index in 0..spec.sessions {
        let (reactor_, pool, spec) = (reactor.clone(), pool.clone(), spec.clone());
        let (shared, desk) = (shared.clone(), desk.clone());
        reactor.spawn("session", async move {
            let result = drive(&reactor_, &pool, &spec, index, &shared, &desk).await;
            desk.ended.borrow_mut().push(result);
        });
    }
    let watched = watch(&reactor, spec, shared, &desk);
    reactor.shutdown();
    watched?;
    let mut all = Outcome::default();
    for one in desk.ended.take() {
        all.add(&one?);
    }
    Ok(all)
}

/// Turns until every session has ended or one has failed.
fn watch(reactor: &Reactor, spec: &Spec, shared: &Shared, desk: &Desk) -> Result<(), Error> {
    let mut stopped: Option<Instant> = None;
    let (mut last, mut heard) = (0, Instant::now());
    let mut turns = 0u64;
    loop {
        reactor.turn(Patience::Until(reactor.fresh_now() + TURN_NS), &mut |_, _| ());
        let ended = desk.ended.borrow();
        if ended.len() == spec.sessions as usize || ended.iter().any(Result::is_err) {
            return Ok(());
        }
        drop(ended);
        if shared.stop.load(Relaxed) {
            stopped.get_or_insert_with(Instant::now);
            desk.lingering.borrow_mut().drain(..).for_each(|s| s.close());
        }
        // The clock is read now and then only: a busy turn takes microseconds.
        turns += 1;
        if !turns.is_multiple_of(256) && spec.spin {
            continue;
        }
        let (requests, lingers) =
            (shared.requests.load(Relaxed), !desk.lingering.borrow().is_empty());
        if requests != last || lingers {
            (last, heard) = (requests, Instant::now());
        }
        if heard.elapsed() > SILENCE || stopped.is_some_and(|at| at.elapsed() > WAIT) {
            let what = "the target does not answer; its log may say why";
            return Err(Error::new(Kind::Timeout, what));
        }
    }
}

/// One session from the connection to the logout.
async fn drive(
    reactor: &Reactor,
    pool: &Pool,
    spec: &Spec,
    index: u32,
    shared: &Arc<Shared>,
    desk: &Desk,
) -> Result<Outcome, Error> {
    let at = |what: &str| format!("{what} {}", spec.portal);
    let stream = reactor.connect(spec.portal).await.map_err(|e| Error::system(at("connect"), e))?;
    stream.nodelay(true).map_err(|e| Error::system("TCP_NODELAY", e))?;
    let mut session = Session::start(spec, index, shared.clone(), Out::new(pool.clone()))?;
    let mut intake = Intake::new(PRE_LOGIN);
    let room = pool.get(RECV_BYTES).and_then(|b| b.seg(0, RECV_BYTES)).ok_or_else(exhausted)?;
    loop {
        let waited = session.lingers();
        session.pump()?;
        if let Some(jobs) = &mut session.jobs {
            jobs.stamp(reactor.fresh_now());
        }
        let sent = stream.send(session.line.out.take()).await;
        sent.map_err(|e| Error::system(at("send to"), e))?;
        if session.is_over() {
            break;
        }
        if session.lingers() && !waited {
            desk.lingering.borrow_mut().push(stream.clone());
        }
        let got = stream.recv(&room).await.map_err(|e| Error::system(at("receive from"), e))?;
        if got == 0 {
            if session.lingers() && shared.stop.load(Relaxed) {
                break;
            }
            return Err(Error::new(Kind::Protocol, at("the connection was ended by")));
        }
        session.now = reactor.now();
        room.with(|bytes| intake.feed(bytes.get(..got).unwrap_or(&[]), &mut session))?;
    }
    Ok(session.jobs.map(|jobs| jobs.outcome).unwrap_or_default())
}
