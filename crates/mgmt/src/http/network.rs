//! Server of the API over TCP: listeners at the addresses of the running configuration, with TLS.
//!
//! Invariants
//!  N1  Connections of the network have a limit of their own: they do not keep a local admin from
//!      the control socket.
//!  N2  A listener is open only while its TLS files can be used, or without TLS on loopback.
//!  N3  Files of TLS that cannot be used after a change leave the former keys in use.
//!  N6  A connection ends after `[api]` has changed, or a file of TLS was read again. None outlives
//!      the keys, the CA and the listener that admitted it.
//!  N8  No file is read by the thread that serves. While one of TLS is on a file system that hangs,
//!      requests are answered, with the keys and listeners before it.
//!  N9  Files of TLS that are in use are read again by a step of a plan only, as those of targets.
//!      Files that cannot be used yet are awaited.

use super::accept::Acceptor;
use super::peer::{Peer, RemotePeer};
use super::peer_rates::PeerRates;
use super::recent_logins::RecentLogins;
use super::refusal_log::tcp_peer;
use super::routes::record;
use super::server::{HEAD_MAX, serve_connection};
use crate::api::{Error, Kind};
use crate::audit::AuditedCaller;
use crate::config::ApiConfig;
use crate::plan::{Action, FileSection};
use crate::service::Control;
use crate::tls_stream::TlsStream;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tls::Keys;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Interval at which the configuration is compared with the one in use.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// Wait before an address is listened on again.
const BIND_PAUSE: Duration = Duration::from_secs(2);

/// How connections begin.
#[derive(Clone)]
enum Security {
    /// Without TLS, on loopback only.
    Plain,
    /// With TLS.
    Tls(Keys),
}

/// What all listeners use.
pub(super) struct NetworkShared {
    control: Arc<Control>,
    pub(super) acceptor: Acceptor,
    rates: Arc<PeerRates>,
    logins: Arc<RecentLogins>,
    security: Mutex<Option<Security>>,
    /// Notifies open connections of a change (N6).
    changed: watch::Sender<()>,
}

/// The server; dropping it closes the listeners, and open connections stay.
pub(super) struct Network {
    /// Outlives it in the tasks of open connections.
    pub(super) shared: Arc<NetworkShared>,
    follower: AbortHandle,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Network {
    /// Begins to follow the configuration.
    pub(super) fn start(control: Arc<Control>) -> Network {
        let shared = Arc::new(NetworkShared::new(control));
        let follower = tokio::spawn(follow(shared.clone())).abort_handle();
        Network { shared, follower }
    }
}

/// The listeners that are open; they are closed with this value.
#[derive(Default)]
struct Listening(BTreeMap<SocketAddr, AbortHandle>);

impl Listening {
    /// Closes listeners that are not wanted, and opens those that are missing.
    fn set(&mut self, wanted: &BTreeSet<SocketAddr>, shared: &Arc<NetworkShared>) {
        self.0.retain(|at, task| {
            let stays = wanted.contains(at);
            if !stays {
                tracing::info!("the API is no longer served at {at}");
                task.abort();
                shared.control.api_listeners().closed(*at);
            }
            stays
        });
        for &at in wanted {
            let open = || tokio::spawn(listen(at, shared.clone())).abort_handle();
            self.0.entry(at).or_insert_with(open);
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.values().for_each(AbortHandle::abort);
    }
}

/// State of the files of TLS, to find changes.
type FileTimes = Vec<Option<(SystemTime, u64, u64)>>;

/// Followed settings and file times: a difference has the files of TLS read.
#[derive(Clone, PartialEq, Eq)]
struct Followed {
    api: ApiConfig,
    /// How often the files were to be read again.
    renewals: u64,
    /// Files that cannot be used yet; empty otherwise (N9).
    awaited: FileTimes,
}

fn file_times(api: &ApiConfig) -> FileTimes {
    let state = |(_, path): (&'static str, &str)| {
        let about = std::fs::metadata(bio::named_path(path).ok()?).ok()?;
        Some((about.modified().ok()?, about.len(), about.ino()))
    };
    api.named_files().map(state).collect()
}

async fn follow(shared: Arc<NetworkShared>) {
    let mut listening = Listening::default();
    let mut last: Option<Followed> = None;
    loop {
        let api = shared.control.api().api;
        let (own, before) = (shared.clone(), last.clone());
        // N8
        let read = tokio::task::spawn_blocking(move || own.follow_files(api, before.as_ref()));
        let Ok(now) = read.await else { return };
        if last.as_ref() != Some(&now) {
            let is_usable = shared.security().is_some();
            let addresses = now.api.listen.iter().filter_map(|at| at.parse().ok());
            let wanted: BTreeSet<SocketAddr> =
                if is_usable { addresses.collect() } else { BTreeSet::new() };
            listening.set(&wanted, &shared);
            shared.changed.send_replace(());
            last = Some(now);
        }
        tokio::time::sleep(FOLLOW_INTERVAL).await;
    }
}

impl NetworkShared {
    fn new(control: Arc<Control>) -> NetworkShared {
        NetworkShared {
            control,
            acceptor: Acceptor::new("API"),
            rates: Arc::default(),
            logins: Arc::default(),
            security: Mutex::new(None),
            changed: watch::Sender::new(()),
        }
    }

    fn security(&self) -> Option<Security> {
        self.security.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The sections with the state of their files, which are read if anything has changed.
    fn follow_files(&self, api: ApiConfig, last: Option<&Followed>) -> Followed {
        let (is_unusable, times) = (self.security().is_none(), file_times(&api));
        let awaited = if is_unusable { times.clone() } else { FileTimes::new() };
        let renewals = self.control.renewals(&FileSection::Api);
        let mut now = Followed { api, renewals, awaited };
        if last != Some(&now) {
            let is_new = last.is_none_or(|before| before.api != now.api);
            if !is_new && last.is_some_and(|before| before.awaited != now.awaited) {
                self.note_awaited_files();
            }
            self.read_security(&now.api, is_new || is_unusable);
        }
        now.awaited = if self.security().is_none() { times } else { FileTimes::new() };
        now
    }

    /// Files that could not be used have changed: the plan compares later files with these.
    fn note_awaited_files(&self) {
        let read = Action::Renew { of: FileSection::Api };
        if let Err(e) = self.control.change(|plant| plant.carry_out(&read, &mut |_| {})) {
            tracing::debug!("TLS files of the API: {}; a plan shows them as changed", e.source);
        }
    }

    /// Reads the files of TLS. `is_new`: the sections have changed, not only the files.
    fn read_security(&self, api: &ApiConfig, is_new: bool) {
        let listeners = self.control.api_listeners();
        let read = match api.tls_files() {
            None => {
                listeners.set_problem(None);
                Some(Security::Plain)
            }
            Some(files) => match Keys::read_optional(&files) {
                Ok(keys) => {
                    listeners.set_problem(None);
                    Some(Security::Tls(keys))
                }
                Err(e) if is_new => {
                    listeners.set_problem(Some(e.to_string()));
                    tracing::error!("the API is not served over TCP until this is correct: {e}");
                    None
                }
                Err(e) => {
                    tracing::error!("TLS files of the API: {e}; the former ones stay in use");
                    return;
                }
            },
        };
        *self.security.lock().unwrap_or_else(PoisonError::into_inner) = read;
    }

    /// The task of an accepted connection.
    fn admit(
        self: &Arc<NetworkShared>,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if !self.rates.admit_connection(address.ip(), Instant::now()) {
            let why = format_args!("too many of this address (limit: 200 at once, 20 a second)");
            self.acceptor.log.refused(&tcp_peer(address), why);
            return None;
        }
        let of_address = self.acceptor.admit_tcp(&stream, address)?;
        let shared = self.clone();
        // Before the keys are taken, so that no change after that is missed.
        let changed = self.changed.subscribe();
        Some(async move {
            shared.connection(stream, address, changed).await;
            drop(of_address);
        })
    }

    /// Records the login of a client whose certificate is not trusted. It counts as a failed login,
    /// and beyond the limit of its address none is recorded.
    async fn record_refused(&self, address: SocketAddr, why: &io::Error) {
        let now = Instant::now();
        let is_admitted = self.rates.admit(address.ip(), now).is_ok();
        self.rates.count_failure(address.ip(), now);
        if is_admitted {
            let who = "certificate that is not trusted".to_owned();
            let by = AuditedCaller { who, address: address.to_string() };
            let error = Error::new(Kind::Unauthenticated, "log in", why);
            record(&self.control, by, "login", Value::Null, Err(&error)).await;
        }
    }

    async fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        mut changed: watch::Receiver<()>,
    ) {
        let end = Box::pin(async move {
            // The sender lives as long as `self`.
            let _ = changed.changed().await;
        });
        let peer = |certificate, is_tls| {
            let limits = (self.rates.clone(), self.logins.clone());
            Arc::new(Peer::Remote(RemotePeer::new(address, certificate, is_tls, limits)))
        };
        match self.security() {
            None => {}
            // A listener beyond loopback may have accepted it before an edit closed it.
            Some(Security::Plain) if !is_loopback(&stream) => {}
            Some(Security::Plain) => {
                let peer = peer(None, false);
                serve_connection(Box::new(stream), self.control.clone(), peer, end).await;
            }
            Some(Security::Tls(keys)) => {
                let Ok(begun) = keys.begin() else { return };
                let handshake = TlsStream::handshake(stream, rustls::Connection::Server(begun));
                match tokio::time::timeout(HEAD_MAX, handshake).await {
                    Ok(Ok(stream)) => {
                        let peer = peer(stream.client(), true);
                        serve_connection(Box::new(stream), self.control.clone(), peer, end).await;
                    }
                    Ok(Err(e)) => {
                        tracing::debug!("{address}: TLS handshake of the API: {e}");
                        if is_untrusted(&e) {
                            self.record_refused(address, &e).await;
                        }
                    }
                    Err(_) => tracing::debug!("{address}: TLS handshake of the API: too slow"),
                }
            }
        }
    }
}

/// Whether a handshake has failed because of the certificate of the client.
fn is_untrusted(e: &io::Error) -> bool {
    let error = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

/// Whether a connection arrived at an address of loopback.
fn is_loopback(stream: &TcpStream) -> bool {
    stream.local_addr().is_ok_and(|at| at.ip().to_canonical().is_loopback())
}

async fn listen(at: SocketAddr, shared: Arc<NetworkShared>) {
    let mut is_reported = false;
    let listener = loop {
        match TcpListener::bind(at).await {
            Ok(listener) => break listener,
            Err(e) => {
                shared.control.api_listeners().report(at, Some(e.to_string()));
                if !is_reported {
                    tracing::error!("the API cannot be served at {at}: {e}; it is tried again");
                    is_reported = true;
                }
                tokio::time::sleep(BIND_PAUSE).await;
            }
        }
    };
    shared.control.api_listeners().report(at, None);
    tracing::info!("the API is served at {}", listener.local_addr().unwrap_or(at));
    // N1: the acceptor counts the connections of the network alone.
    let admit = |(stream, address)| shared.admit(stream, address);
    shared.acceptor.run(&listener, admit, pending()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::fake::{FakePlant, catalog};
    use crate::service::Archive;
    use std::path::PathBuf;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// The state of a server, and the folder of its files.
    fn shared(name: &str) -> (Arc<NetworkShared>, PathBuf) {
        let folder = std::env::temp_dir().join(format!("ashlar-{name}-{}", std::process::id()));
        let archive = Archive::new(&folder.join("history"), 2);
        let plant = Box::new(Arc::new(FakePlant::new()));
        let control = Control::new(plant, catalog(), &Config::default(), archive);
        let control = Arc::new(control.with_api_folder(&folder.join("api")));
        (Arc::new(NetworkShared::new(control)), folder)
    }

    #[test]
    fn n6_connection_ends_after_a_change() {
        let (shared, folder) = shared("network");
        *shared.security.lock().expect("unlocked") = Some(Security::Plain);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let at = listener.local_addr().expect("bound");
            let mut client = TcpStream::connect(at).await.expect("connected");
            let (stream, address) = listener.accept().await.expect("accepted");
            tokio::spawn(shared.admit(stream, address).expect("room"));
            let request = b"GET /v1/state HTTP/1.1\r\nhost: a\r\n\r\n";
            client.write_all(request).await.expect("sent");
            let mut status = [0; 12];
            client.read_exact(&mut status).await.expect("an answer");
            assert_eq!(&status, b"HTTP/1.1 401");
            shared.changed.send_replace(());
            let mut rest = Vec::new();
            let end = tokio::time::timeout(HEAD_MAX / 2, client.read_to_end(&mut rest)).await;
            end.expect("before an idle connection ends").expect("closed");
        });
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn n8_files_are_read_by_another_thread_and_only_after_a_change() {
        let (shared, folder) = shared("follow");
        // A thread that may block owns all that it needs.
        let own = shared.clone();
        let read = std::thread::spawn(move || own.follow_files(ApiConfig::default(), None));
        let first = read.join().expect("read");
        assert!(matches!(shared.security(), Some(Security::Plain)));
        *shared.security.lock().expect("unlocked") = None;
        let again = shared.follow_files(ApiConfig::default(), Some(&first));
        assert!(again == first && shared.security().is_none(), "nothing has changed");
        let listen = vec!["127.0.0.1:7320".to_owned()];
        let edited = ApiConfig { listen, ..ApiConfig::default() };
        let edited = shared.follow_files(edited, Some(&first));
        assert!(edited != first && shared.security().is_some());
        let _ = std::fs::remove_dir_all(&folder);
    }

    /// N2.
    #[test]
    fn n9_replaced_files_are_read_again_by_a_step_of_a_plan_only() {
        let folder = std::env::temp_dir().join(format!("ashlar-reread-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (certificate, key) = (folder.join("api.pem"), folder.join("api.key"));
        let text = format!(
            "[api]\nlisten = ['127.0.0.1:7320']\ntls_certificate = '{}'\ntls_key = '{}'\n",
            certificate.display(),
            key.display()
        );
        let config = crate::config::read(&text, "a.toml", &catalog()).expect("well-formed");
        let plant = Arc::new(FakePlant::new());
        let archive = Archive::new(&folder.join("history"), 2);
        let control = Control::new(Box::new(plant.clone()), catalog(), &Config::default(), archive);
        let shared = NetworkShared::new(Arc::new(control));
        shared.control.start(&config).expect("started");
        let awaits = shared.follow_files(config.api.clone(), None);
        assert!(shared.security().is_none() && !awaits.awaited.is_empty());
        std::fs::write(&certificate, "not yet").expect("a file");
        assert!(shared.follow_files(config.api.clone(), Some(&awaits)) != awaits, "it is awaited");

        *shared.security.lock().expect("unlocked") = Some(Security::Plain);
        let used = Followed { awaited: FileTimes::new(), ..awaits };
        std::fs::write(&certificate, "replaced").expect("a file");
        assert!(shared.follow_files(config.api.clone(), Some(&used)) == used);
        assert_eq!(shared.control.renewals(&FileSection::Api), 0);
        plant.stale_files(FileSection::Api, "tls_certificate has changed");
        let plan = shared.control.plan(&config).expect("a plan");
        assert_eq!(plan.steps[0].what, "read files of api anew");
        let refused = shared.control.apply(&config, &Default::default(), &mut |_| {});
        assert!(refused.is_err_and(|e| e.to_string().contains("api.pem")), "no certificate");
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn refused_forms_of_a_login_are_recorded_up_to_a_limit() {
        let (shared, folder) = shared("forms");
        *shared.security.lock().expect("unlocked") = Some(Security::Plain);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answers = runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let at = listener.local_addr().expect("bound");
            let mut client = TcpStream::connect(at).await.expect("connected");
            let (stream, address) = listener.accept().await.expect("accepted");
            tokio::spawn(shared.admit(stream, address).expect("the first"));
            let head = "POST /login HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\n";
            let request = format!("{head}content-length: 0\r\n\r\n").repeat(15);
            let last = format!("{head}content-length: 0\r\nconnection: close\r\n\r\n");
            client.write_all((request + &last).as_bytes()).await.expect("sent");
            let mut answers = String::new();
            client.read_to_string(&mut answers).await.expect("answered");
            answers
        });
        let refused = answers.matches("HTTP/1.1 400 ").count();
        assert_eq!(refused + answers.matches("HTTP/1.1 429 ").count(), 16, "{answers}");
        // While the log is written to a slow disk, the address may fail some more times.
        assert!((10..15).contains(&refused), "a flood does not fill the log: {answers}");
        assert_eq!(shared.control.audit().newest(100).expect("entries").len(), refused);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn untrusted_certificates_are_recorded_as_refused_logins_up_to_a_limit() {
        let (shared, folder) = shared("untrusted");
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let error = io::Error::new(io::ErrorKind::InvalidData, unknown);
        assert!(is_untrusted(&error));
        assert!(!is_untrusted(&io::ErrorKind::UnexpectedEof.into()), "a peer that left");
        let address: SocketAddr = "192.0.2.1:4000".parse().expect("an address");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            for _ in 0..15 {
                shared.record_refused(address, &error).await;
            }
        });
        let entries = shared.control.audit().newest(100).expect("entries");
        // While the log is written to a slow disk, the address may fail some more times.
        assert!((10..15).contains(&entries.len()), "a flood does not fill the log: {entries:?}");
        let [first, ..] = entries.as_slice() else { panic!("no entry") };
        assert_eq!((first.what.as_str(), first.address.as_str()), ("login", "192.0.2.1:4000"));
        assert!(first.result.contains("UnknownIssuer"), "{first:?}");
        let _ = std::fs::remove_dir_all(&folder);
    }
}
