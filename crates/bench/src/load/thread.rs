//! The load's thread: a reactor, a task a session, and a watch over both.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bio::{Pool, PoolConfig};
use reactor::{Config, Reactor, Stream, WaitFor};
use wire::iscsi::PRE_LOGIN;

use super::intake::Intake;
use super::out::{Out, exhausted};
use super::running::{LoadShared, Running, WAIT};
use super::session::LoadSession;
use super::spec::{Outcome, Spec};
use crate::error::{Error, Kind};

/// Bytes received at once.
const RECV_BYTES: usize = 64 * 1024;
/// Most memory for data in flight; a load that needs more is an error.
const POOL_BYTES: usize = 1 << 30;
/// How long a turn waits, so that a request to stop is seen.
const TURN_NS: u64 = 20_000_000;
/// Without any answer for this long the target is stuck: an error.
const SILENCE: Duration = Duration::from_secs(30);

/// Makes the load of `spec` and waits for its end, which `spec.requests` must define.
pub fn run(spec: &Spec) -> Result<Outcome, Error> {
    if spec.requests.is_none() || spec.linger {
        return Err(Error::new(Kind::Options, "a load that ends by itself needs `requests`"));
    }
    start(spec)?.join()
}

/// Starts the load of `spec`; answers when every session has begun to work.
pub fn start(spec: &Spec) -> Result<Running, Error> {
    spec.check()?;
    let wanted = spec.clone();
    Running::begin(spec.core, spec.sessions, move |shared| work(&wanted, &shared))
}

/// State shared by the tasks of a thread.
#[derive(Clone, Default)]
struct Tasks {
    ended: Rc<RefCell<Vec<Result<Outcome, Error>>>>,
    /// Streams of sessions that have nothing to do, to be closed at the stop.
    lingering: Rc<RefCell<Vec<Stream>>>,
}

fn work(spec: &Spec, shared: &Arc<LoadShared>) -> Result<Outcome, Error> {
    let config = Config {
        name: "load".into(),
        spin_ns: if spec.spin { TURN_NS } else { 0 },
        ..Config::default()
    };
    let reactor = Reactor::start(config).map_err(|e| Error::system("the load's reactor", e))?;
    let pool = Pool::new(PoolConfig { limit_bytes: POOL_BYTES });
    let tasks = Tasks::default();
    for index in 0..spec.sessions {
        let (reactor_, pool, spec) = (reactor.clone(), pool.clone(), spec.clone());
        let (shared, tasks) = (shared.clone(), tasks.clone());
        reactor.spawn("session", async move {
            let result = drive(&reactor_, &pool, &spec, index, &shared, &tasks).await;
            tasks.ended.borrow_mut().push(result);
        });
    }
    let watched = watch(&reactor, spec, shared, &tasks);
    reactor.shutdown();
    watched?;
    let mut all = Outcome::default();
    for one in tasks.ended.take() {
        all.add(&one?);
    }
    Ok(all)
}

/// Turns until every session has ended or one has failed.
fn watch(reactor: &Reactor, spec: &Spec, shared: &LoadShared, tasks: &Tasks) -> Result<(), Error> {
    let mut stopped: Option<Instant> = None;
    let (mut last, mut last_report) = (0, Instant::now());
    let mut turns = 0u64;
    loop {
        reactor.turn(WaitFor::Until(reactor.fresh_now() + TURN_NS), &mut |_, _| ());
        let ended = tasks.ended.borrow();
        if ended.len() == spec.sessions as usize || ended.iter().any(Result::is_err) {
            return Ok(());
        }
        drop(ended);
        if shared.stop.load(Relaxed) {
            stopped.get_or_insert_with(Instant::now);
            tasks.lingering.borrow_mut().drain(..).for_each(|s| s.close());
        }
        // The clock is read now and then only: a busy turn takes microseconds.
        turns += 1;
        if !turns.is_multiple_of(256) && spec.spin {
            continue;
        }
        let (requests, lingers) =
            (shared.requests.load(Relaxed), !tasks.lingering.borrow().is_empty());
        if requests != last || lingers {
            (last, last_report) = (requests, Instant::now());
        }
        if last_report.elapsed() > SILENCE || stopped.is_some_and(|at| at.elapsed() > WAIT) {
            let what = "the target does not answer; its log may have the reason";
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
    shared: &Arc<LoadShared>,
    tasks: &Tasks,
) -> Result<Outcome, Error> {
    let at = |what: &str| format!("{what} {}", spec.portal);
    let stream = reactor.connect(spec.portal).await.map_err(|e| Error::system(at("connect"), e))?;
    stream.nodelay(true).map_err(|e| Error::system("TCP_NODELAY", e))?;
    let mut session = LoadSession::start(spec, index, shared.clone(), Out::new(pool.clone()))?;
    let mut intake = Intake::new(PRE_LOGIN);
    let room = pool.get(RECV_BYTES).and_then(|b| b.seg(0, RECV_BYTES)).ok_or_else(exhausted)?;
    loop {
        let waited = session.lingers();
        session.pump()?;
        if let Some(jobs) = &mut session.jobs {
            jobs.stamp(reactor.fresh_now());
        }
        let sent = stream.send(session.send_side.out.take()).await;
        sent.map_err(|e| Error::system(at("send to"), e))?;
        if session.is_over() {
            break;
        }
        if session.lingers() && !waited {
            tasks.lingering.borrow_mut().push(stream.clone());
        }
        let got = stream.recv(&room).await.map_err(|e| Error::system(at("receive from"), e))?;
        if got == 0 {
            if session.lingers() && shared.stop.load(Relaxed) {
                break;
            }
            return Err(Error::new(Kind::Protocol, at("the connection was ended by")));
        }
        session.now = reactor.now();
        room.with(|bytes| intake.push_bytes(bytes.get(..got).unwrap_or(&[]), &mut session))?;
    }
    Ok(session.jobs.map(|jobs| jobs.outcome).unwrap_or_default())
}
