//! HTTP server of the control socket: accepts connections, checks their origin, and passes requests
//! to the routes.

use super::routes::route;
use super::socket::BoundSocket;
use crate::api::{Error, Kind, Result};
use crate::service::Control;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// Connections at one time. Further ones are closed at once.
const CONNECTIONS_MAX: usize = 128;

/// How long a connection may take to send the head of a request before it is closed.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// How long running requests may take once the daemon is to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait after `accept` failed (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct ConnectionSlot(Arc<AtomicUsize>);

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
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => admit(stream, &control, &open),
                Err(e) => {
                    tracing::warn!("accept on the control socket: {e}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async {
        while open.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
        tracing::warn!("control requests still ran when the daemon stopped");
    }
    Ok(())
}

fn admit(stream: UnixStream, control: &Arc<Control>, open: &Arc<AtomicUsize>) {
    if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
        open.fetch_sub(1, Ordering::AcqRel);
        tracing::warn!("control connection refused: {CONNECTIONS_MAX} are open");
        return;
    }
    let place = ConnectionSlot(open.clone());
    let allowed = match stream.peer_cred() {
        Ok(peer) => peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw(),
        Err(e) => {
            tracing::warn!("control connection refused: user of the peer unknown: {e}");
            false
        }
    };
    let control = control.clone();
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let control = control.clone();
            async move { route(request, control, allowed).await }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
        if let Err(e) = server.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!("control connection ended: {e}");
        }
        drop(place);
    });
}
