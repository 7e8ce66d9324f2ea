//! HTTP server of the control socket: passes the requests of its peers to the routes.

use super::accept::Acceptor;
use super::body::Body;
use super::network::Network;
use super::peer::Peer;
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
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// How long a connection may take to send the head of a request before it is closed.
pub(super) const HEAD_MAX: Duration = Duration::from_secs(10);

/// How long running requests may take once the daemon is to stop, or their connection to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

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
    let network = Network::start(control.clone());
    let mut sampling = JoinSet::new();
    sampling.spawn(take_samples(control.clone()));
    let acceptor = Acceptor::new("control");
    let admit = |(stream, uid): (UnixStream, io::Result<u32>)| {
        let unknown = |e: &io::Error| {
            let peer = Address::Unix("unknown user".into());
            acceptor.log.refused(&peer, format_args!("user of the peer unknown: {e}"));
        };
        let peer = Arc::new(Peer::Local { uid: uid.inspect_err(unknown).ok() });
        let control = control.clone();
        Some(async move {
            serve_connection(Box::new(stream), control, peer, Box::pin(pending())).await;
        })
    };
    acceptor.run(&listener, admit, stop).await;
    drop((listener, sampling));
    let remote = network.shared.clone();
    drop(network);
    let ended = async {
        while acceptor.open() + remote.acceptor.open() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
        tracing::warn!("control requests still ran when the daemon stopped");
    }
    Ok(())
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
