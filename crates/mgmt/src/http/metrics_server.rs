//! HTTP server of metrics over TCP, on a thread of its own.
//!
//! Invariants
//!  M1  It answers `GET /metrics` and `GET /runbook` alone: no other route can be reached by its
//!      listener.
//!  M2  With `metrics_token`, a request without that token learns nothing about the daemon, not
//!      even why the token cannot be read. The runbooks of the alerts need no token: they are a
//!      part of the manual, and the links of alerts are opened in browsers.
//!  M3  At most [`SCRAPES_MAX`] scrapes are rendered at one time, and the token is read at most
//!      once in [`TOKEN_AGE_MAX`]. Many requests of peers do not load the daemon.
//!  M4  Without `metrics_token`, a listener on loopback answers no request for the name of a site.
//!      A page that gives its own name the address of this machine reads nothing.
//!  M5  With `metrics_token`, wrong tokens of an address are limited as failed logins of the API.

use super::accept::Acceptor;
use super::body::Body;
use super::metrics::{self, Format};
use super::page_routes::{check_host, document};
use super::peer::bearer_token;
use super::peer_rates::PeerRates;
use super::routes::{blocking, error_response, unknown_route, wrong_method};
use super::server::answer_requests;
use crate::api::{Error, Kind, Result, SystemState};
use crate::auth::is_same_secret;
use crate::config::{DaemonConfig, secret};
use crate::page::{RUNBOOK, runbook};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

/// The route of scrapes.
const PATH: &str = "/metrics";

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Scrapes that are rendered at one time; further ones wait (M3).
const SCRAPES_MAX: usize = 2;

/// How long a token that was read is used (M3).
const TOKEN_AGE_MAX: Duration = Duration::from_secs(1);

/// Source of the state that a scrape at this address shows.
pub type StateFn = Arc<dyn Fn(SocketAddr) -> Result<SystemState> + Send + Sync>;

/// The token of scrapes, as it was last read.
struct Token {
    reference: String,
    read: tokio::sync::Mutex<Option<(Instant, Option<Vec<u8>>)>>,
}

impl Token {
    /// The token; `None`: it cannot be read.
    async fn at(&self, now: Instant) -> Option<Vec<u8>> {
        let mut read = self.read.lock().await;
        if let Some((at, token)) = &*read
            && now.saturating_duration_since(*at) < TOKEN_AGE_MAX
        {
            return token.clone();
        }
        let reference = self.reference.clone();
        let token = blocking(move || secret::resolve(&reference)).await.ok();
        *read = Some((now, token.clone()));
        token
    }
}

/// Settings of the requests.
#[derive(Clone)]
struct Settings {
    token: Option<Arc<Token>>,
    series_max: u32,
}

impl Settings {
    fn of(config: &DaemonConfig) -> Settings {
        let reference = config.metrics_token.clone();
        let token = reference.map(|reference| Token { reference, read: Default::default() });
        Settings { token: token.map(Arc::new), series_max: config.metrics_series_max }
    }
}

struct MetricsShared {
    bound: SocketAddr,
    settings: Mutex<Settings>,
    state: StateFn,
    scrapes: Arc<Semaphore>,
    rates: PeerRates,
}

impl MetricsShared {
    fn settings(&self) -> Settings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A running server. Dropped, it closes its listener and its connections.
pub struct MetricsServer {
    shared: Arc<MetricsShared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at `at` with the settings of `config`.
    ///
    /// # Errors
    /// [`Kind::System`]: see [`cannot_listen`].
    pub fn start(at: SocketAddr, config: &DaemonConfig, state: StateFn) -> Result<MetricsServer> {
        let listener = listen(at).map_err(|e| cannot_listen(at, &e))?;
        let bound = listener.local_addr().map_err(|e| cannot_listen(at, &e))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| cannot_listen(at, &e))?;
        let shared = Arc::new(MetricsShared {
            bound,
            settings: Mutex::new(Settings::of(config)),
            state,
            scrapes: Arc::new(Semaphore::new(SCRAPES_MAX)),
            rates: PeerRates::default(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let used = shared.clone();
        let thread = std::thread::Builder::new().name("ashlar-metrics".into());
        let thread = thread.spawn(move || {
            let stopped = async {
                // An error means that the server is dropped.
                let _ = stopped.await;
            };
            if let Err(e) = runtime.block_on(serve(listener, used, stopped)) {
                tracing::error!("metrics at {bound} are not served: {e}");
            }
            runtime.shutdown_background();
        });
        let thread = thread.map_err(|e| cannot_listen(at, &e))?;
        Ok(MetricsServer { shared, stop: Some(stop), thread: Some(thread) })
    }

    /// The address at which it listens.
    pub fn bound(&self) -> SocketAddr {
        self.shared.bound
    }

    /// Sets the token and the limit of the following requests.
    pub fn set(&self, config: &DaemonConfig) {
        let mut settings = self.shared.settings.lock().unwrap_or_else(PoisonError::into_inner);
        *settings = Settings::of(config);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(_)) = ended {
            tracing::error!("the thread of metrics panicked");
        }
    }
}

/// The error of an address at which metrics cannot be served.
pub fn cannot_listen(at: SocketAddr, why: &io::Error) -> Error {
    let port = at.port();
    let next = format!(
        "Run `ss -ltnp 'sport = :{port}'` to see the process at the port, or change \
         `metrics_listen` of [daemon]."
    );
    Error::new(Kind::System, "serve metrics", why).at(at.to_string()).next(next)
}

/// As portals do, it accepts an address that no interface has yet.
fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Not every kernel allows it; then the address must exist.
    let _ = sockopt::set_ip_freebind(&socket, true);
    net::bind(&socket, &at)?;
    net::listen(&socket, BACKLOG)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn serve(
    listener: TcpListener,
    shared: Arc<MetricsShared>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let acceptor = Acceptor::new("metrics");
    let admit = |(stream, address): (TcpStream, SocketAddr)| {
        let (of_address, shared) = (acceptor.admit_tcp(&stream, address)?, shared.clone());
        Some(async move {
            let answer = move |request| answer(request, shared.clone(), address.ip());
            answer_requests("metrics", Box::new(stream), answer, pending()).await;
            drop(of_address);
        })
    };
    acceptor.run(&listener, admit, stop).await;
    Ok(())
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<MetricsShared>,
    peer: IpAddr,
) -> std::result::Result<Response<Body>, Infallible> {
    let answer = scrape(request, shared, peer).await;
    Ok(answer.unwrap_or_else(|e| error_response(&e)))
}

async fn scrape(
    request: Request<Incoming>,
    shared: Arc<MetricsShared>,
    peer: IpAddr,
) -> Result<Response<Body>> {
    let is_get = *request.method() == Method::GET;
    if is_get && request.uri().path() == RUNBOOK {
        return Ok(document(runbook()));
    }
    let settings = shared.settings();
    if settings.token.is_none() && shared.bound.ip().to_canonical().is_loopback() {
        check_host(request.headers())?;
    }
    if let Some(token) = settings.token {
        shared.rates.admit(peer, Instant::now())?;
        let Some(token) = token.at(Instant::now()).await else {
            let next = "Run `ashlar doctor secrets` on the server.";
            let error = Error::new(Kind::Secret, "scrape metrics", "the token cannot be read");
            return Err(error.next(next));
        };
        let sent = request.headers().get(AUTHORIZATION).and_then(bearer_token);
        if !sent.is_some_and(|sent| is_same_secret(sent, &token)) {
            shared.rates.count_failure(peer, Instant::now());
            return Ok(unauthorized());
        }
    }
    let path = request.uri().path();
    if path != PATH {
        return Err(unknown_route(path).next("Scrape /metrics: this address has no other state."));
    }
    if !is_get {
        return Ok(wrong_method(path, request.method(), &Method::GET));
    }
    let format = Format::of(request.headers());
    let turn = shared.scrapes.clone().acquire_owned().await;
    let turn = turn.map_err(|e| Error::new(Kind::Internal, "scrape metrics", e))?;
    let page = move || -> Result<_> {
        let state = (shared.state)(shared.bound)?;
        Ok((metrics::render(&state, settings.series_max, format), state))
    };
    metrics::answer(page, format, turn).await
}

fn unauthorized() -> Response<Body> {
    let why = "the bearer token is wrong or absent";
    let error = Error::new(Kind::Forbidden, "scrape metrics", why);
    let next = "Send `Authorization: Bearer TOKEN` with the token of `metrics_token`.";
    let mut response = error_response(&error.next(next));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The status line and the body of an answer.
    fn ask(at: SocketAddr, head: &str) -> (String, String) {
        ask_for(at, "a", head)
    }

    /// The same of a request for a host.
    fn ask_for(at: SocketAddr, host: &str, head: &str) -> (String, String) {
        let mut stream = TcpStream::connect(at).expect("a listener");
        let request = format!("{head}Host: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().unwrap_or("").to_owned(), body.to_owned())
    }

    fn start(config: &DaemonConfig) -> MetricsServer {
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        MetricsServer::start(at, config, Arc::new(|_| Ok(SystemState::default()))).expect("free")
    }

    #[test]
    fn m1_only_get_metrics_is_answered_over_tcp() {
        let server = start(&DaemonConfig::default());
        let (status, body) = ask(server.bound(), "GET /metrics HTTP/1.1\r\n");
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(body.contains("ashlar_build_info{"), "{body}");
        let (status, body) = ask(server.bound(), "GET /runbook HTTP/1.1\r\n");
        assert!(status == "HTTP/1.1 200 OK" && body.contains("id=\"ashlarfailed\""), "{body}");
        for (head, expected) in [
            ("GET /v1/state HTTP/1.1\r\n", "HTTP/1.1 404"),
            ("POST /v1/verbs/status HTTP/1.1\r\n", "HTTP/1.1 404"),
            ("POST /runbook HTTP/1.1\r\n", "HTTP/1.1 404"),
            ("POST /metrics HTTP/1.1\r\n", "HTTP/1.1 405"),
        ] {
            let (status, body) = ask(server.bound(), head);
            assert!(status.starts_with(expected), "{head}: {status} {body}");
        }
        let at = server.bound();
        drop(server);
        assert!(TcpStream::connect(at).is_err(), "the listener is closed");
    }

    #[test]
    fn scrape_is_protobuf_for_a_client_that_prefers_it() {
        let server = start(&DaemonConfig::default());
        let scrape = |accept: &str| {
            let mut stream = TcpStream::connect(server.bound()).expect("a listener");
            let head = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n");
            let request = format!("{head}Connection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("sent");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("an answer");
            String::from_utf8_lossy(&answer).into_owned()
        };
        let text = scrape("*/*");
        assert!(text.contains("content-type: text/plain; version=0.0.4\r\n"), "{text}");
        let kind = Format::Protobuf.content_type();
        let protobuf = scrape(&format!("{kind};q=0.6,text/plain;version=0.0.4;q=0.5"));
        assert!(protobuf.contains(&format!("content-type: {kind}\r\n")), "{protobuf}");
        assert!(!protobuf.contains("# TYPE") && protobuf.contains("ashlar_build_info"));
    }

    #[test]
    fn m2_request_without_the_token_learns_nothing() {
        let path = std::env::temp_dir().join(format!("ashlar-token-{}", std::process::id()));
        std::fs::write(&path, "sesame\n").expect("scratch");
        let mode = |m| std::fs::set_permissions(&path, PermissionsExt::from_mode(m)).expect("mode");
        mode(0o600);
        let server = start(&DaemonConfig::default());
        let token = Some(format!("file:{}", path.display()));
        let config = DaemonConfig { metrics_token: token, ..DaemonConfig::default() };
        server.set(&config);
        let with = |path: &str, value: &str| {
            ask(server.bound(), &format!("GET {path} HTTP/1.1\r\nAuthorization: {value}\r\n"))
        };
        for value in ["", "sesame", "Bearer", "Bearer sesam", "Bearer sesame2", "Basic sesame"] {
            let (status, body) = with("/metrics", value);
            assert!(status.starts_with("HTTP/1.1 401") && !body.contains("ashlar_"), "{value}");
        }
        let (status, body) = with("/runbook", "");
        assert!(status.starts_with("HTTP/1.1 200") && !body.contains("ashlar_build"), "{body}");
        assert!(with("/", "Bearer no").0.starts_with("HTTP/1.1 401"));
        assert!(with("/metrics", "bearer sesame").0.starts_with("HTTP/1.1 200"));
        std::fs::write(&path, "other\n").expect("scratch");
        server.set(&config);
        assert!(with("/metrics", "Bearer other").0.starts_with("HTTP/1.1 200"), "read again");
        mode(0o644);
        server.set(&config);
        let (status, body) = with("/metrics", "Bearer other");
        assert!(!status.starts_with("HTTP/1.1 200"), "{status}");
        assert!(!body.contains(path.to_str().expect("a path")), "{body}");
        std::fs::remove_file(&path).expect("scratch");
    }

    #[test]
    fn m4_listener_on_loopback_is_not_read_under_the_name_of_a_site() {
        let server = start(&DaemonConfig::default());
        let of = |host: &str| ask_for(server.bound(), host, "GET /metrics HTTP/1.1\r\n");
        for host in ["localhost:9464", "127.0.0.1", "[::1]:9464"] {
            assert_eq!(of(host).0, "HTTP/1.1 200 OK", "{host}");
        }
        let (status, body) = of("evil.example:9464");
        assert!(status.starts_with("HTTP/1.1 403") && !body.contains("ashlar_"), "{status} {body}");
    }

    #[test]
    fn m5_wrong_tokens_of_an_address_are_limited() {
        let path = std::env::temp_dir().join(format!("ashlar-token-m5-{}", std::process::id()));
        std::fs::write(&path, "sesame\n").expect("scratch");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("mode");
        let token = Some(format!("file:{}", path.display()));
        let server = start(&DaemonConfig { metrics_token: token, ..DaemonConfig::default() });
        let status = |token: &str| {
            let head = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\n");
            ask(server.bound(), &head).0
        };
        let all: Vec<String> = (0..20).map(|_| status("wrong")).collect();
        assert!(all[0].starts_with("HTTP/1.1 401"), "{all:?}");
        assert!(all[19].starts_with("HTTP/1.1 429"), "{all:?}");
        assert!(status("sesame").starts_with("HTTP/1.1 429"), "a guess is not confirmed");
        std::fs::remove_file(&path).expect("scratch");
    }

    #[test]
    fn m3_token_is_read_at_most_once_a_second() {
        let path = std::env::temp_dir().join(format!("ashlar-token-age-{}", std::process::id()));
        let token =
            Token { reference: format!("file:{}", path.display()), read: Default::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let start = Instant::now();
        let at = |ms| runtime.block_on(token.at(start + Duration::from_millis(ms)));
        assert_eq!(at(0), None, "there is no file");
        std::fs::write(&path, "sesame\n").expect("scratch");
        let private = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("mode");
        assert_eq!(at(999), None, "a failure is kept too");
        assert_eq!(at(1000).as_deref(), Some(&b"sesame"[..]));
        std::fs::remove_file(&path).expect("scratch");
        assert_eq!(at(1999).as_deref(), Some(&b"sesame"[..]));
        assert_eq!(at(2000), None);
    }

    #[test]
    fn m3_scrapes_beyond_the_limit_wait() {
        let running = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let counted = running.clone();
        let state: StateFn = Arc::new(move |_| {
            let (now, most) = &*counted;
            most.fetch_max(now.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            std::thread::yield_now();
            now.fetch_sub(1, Ordering::AcqRel);
            Ok(SystemState::default())
        });
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = MetricsServer::start(at, &DaemonConfig::default(), state).expect("free");
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| ask(server.bound(), "GET /metrics HTTP/1.1\r\n"));
            }
        });
        assert!(running.1.load(Ordering::Acquire) <= SCRAPES_MAX);
    }

    #[test]
    fn address_in_use_is_refused_with_the_command_that_shows_the_process() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = taken.local_addr().expect("bound");
        let state: StateFn = Arc::new(|_| Ok(SystemState::default()));
        let refused = MetricsServer::start(at, &DaemonConfig::default(), state).err();
        let error = refused.expect("in use");
        assert!(error.advice().contains(&format!("sport = :{}", at.port())), "{error}");
    }
}
