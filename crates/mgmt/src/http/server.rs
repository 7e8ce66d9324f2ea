//! HTTP server of the control socket: accepts connections, identifies their peers, and passes
//! requests to the routes.

use super::body::Body;
use super::network::Network;
use super::peer::Peer;
use super::refusal_log::{PERIOD, RefusalLog};
use super::routes::route;
use super::socket::BoundSocket;
use crate::api::{Error, Kind, Result};
use crate::samples::take_samples;
use crate::service::Control;
use crate::stream::Stream;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use reactor::Address;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Connections of a listener at one time. Further ones are closed at once.
const CONNECTIONS_MAX: usize = 128;

/// How long a connection may take to send the head of a request before it is closed.
pub(super) const HEAD_MAX: Duration = Duration::from_secs(10);

/// How long running requests may take once the daemon is to stop, or their connection to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait after `accept` failed (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The place of an open connection among those that are counted.
pub(super) struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    /// Takes a place; `None`: [`CONNECTIONS_MAX`] are open.
    pub(super) fn take(open: &Arc<AtomicUsize>) -> Option<ConnectionSlot> {
        let slot = ConnectionSlot(open.clone());
        // Dropping the value gives a place back that was taken beyond the limit.
        (open.fetch_add(1, Ordering::AcqRel) < CONNECTIONS_MAX).then_some(slot)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves until `stop` is ready, then lets running requests end.
///
/// # Errors
/// [`Kind::System`] when the socket cannot be listened on.
pub async fn serve(
    mut listening: BoundSocket,
    control: Arc<Control>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let gone = || Error::new(Kind::Internal, "serve", "the socket was taken already");
    let listener = listening.take().ok_or_else(gone)?;
    let listener = UnixListener::from_std(listener)
        .map_err(|e| Error::new(Kind::System, "listen on the socket", e))?;
    let open = Arc::new(AtomicUsize::new(0));
    let network = Network::start(control.clone());
    let mut sampling = JoinSet::new();
    sampling.spawn(take_samples(control.clone()));
    let log = RefusalLog::new("control");
    let accept = async || {
        let (stream, _) = listener.accept().await?;
        let (uid, peer) = user_of(&stream, &log);
        io::Result::Ok(((stream, uid), peer))
    };
    let admit = |(stream, uid), slot| admit(stream, uid, slot, &control);
    accept_until(&log, &open, accept, admit, stop).await;
    drop((listener, sampling));
    let remote = network.open.clone();
    drop(network);
    let ended = async {
        while open.load(Ordering::Acquire) + remote.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
        tracing::warn!("control requests still ran when the daemon stopped");
    }
    Ok(())
}

/// Passes accepted connections to `admit` until `stop` is ready. `open` counts the connections.
pub(super) async fn accept_until<S>(
    log: &RefusalLog,
    open: &Arc<AtomicUsize>,
    accept: impl AsyncFn() -> io::Result<(S, Address)>,
    admit: impl Fn(S, ConnectionSlot),
    stop: impl Future<Output = ()>,
) {
    let mut period = tokio::time::interval(PERIOD);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = period.tick() => log.end_period(),
            accepted = accept() => take_accepted(log, open, accepted, &admit).await,
        }
    }
}

/// Passes a connection to `admit` if a slot is free; waits a while after an error of `accept`.
/// Every listener of HTTP does so.
pub(super) async fn take_accepted<S>(
    log: &RefusalLog,
    open: &Arc<AtomicUsize>,
    accepted: io::Result<(S, Address)>,
    admit: impl Fn(S, ConnectionSlot),
) {
    match accepted {
        Ok((stream, peer)) => {
            log.accepted();
            match ConnectionSlot::take(open) {
                Some(slot) => admit(stream, slot),
                None => log.refused(&peer, format_args!("{CONNECTIONS_MAX} are open")),
            }
        }
        Err(e) => {
            log.accept_failed(&e);
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// The user of a connection, if it is known, and the peer as logs show it.
fn user_of(stream: &UnixStream, log: &RefusalLog) -> (Option<u32>, Address) {
    match stream.peer_cred() {
        Ok(peer) => (Some(peer.uid()), Address::Unix(format!("uid={}", peer.uid()).into())),
        Err(e) => {
            let peer = Address::Unix("unknown user".into());
            log.refused(&peer, format_args!("user of the peer unknown: {e}"));
            (None, peer)
        }
    }
}

fn admit(stream: UnixStream, uid: Option<u32>, slot: ConnectionSlot, control: &Arc<Control>) {
    let (control, peer) = (control.clone(), Arc::new(Peer::Local { uid }));
    tokio::spawn(async move {
        serve_connection(Box::new(stream), control, peer, Box::pin(pending())).await;
        drop(slot);
    });
}

/// Serves the requests of one connection until it ends, or until `end` is ready and the running
/// request is answered.
pub(super) async fn serve_connection(
    stream: Box<dyn Stream>,
    control: Arc<Control>,
    peer: Arc<Peer>,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
) {
    let answer = move |request| {
        let (control, peer) = (control.clone(), peer.clone());
        async move { route(request, control, peer).await }
    };
    answer_requests("control", stream, answer, end).await;
}

/// Answers the requests of a connection of this listener until it ends, or until `end` is ready and
/// the running request is answered. It waits for that answer [`SHUTDOWN_TIMEOUT`] at most.
pub(super) async fn answer_requests<F>(
    listener: &str,
    stream: Box<dyn Stream>,
    answer: impl Fn(Request<Incoming>) -> F + Send + 'static,
    end: impl Future<Output = ()>,
) where
    F: Future<Output = std::result::Result<Response<Body>, Infallible>> + Send + 'static,
{
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    let serving = server.serve_connection(TokioIo::new(stream), service_fn(answer));
    tokio::pin!(serving, end);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = &mut end => {
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(SHUTDOWN_TIMEOUT, serving).await {
                Ok(ended) => ended,
                Err(_) => {
                    tracing::debug!("{listener} connection closed: its request still runs");
                    return;
                }
            }
        }
    };
    if let Err(e) = ended {
        tracing::debug!("{listener} connection ended: {e}");
    }
}
