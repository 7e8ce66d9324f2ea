//! The way from a command to the daemon: one HTTP request over the Unix socket, or over the network
//! to a daemon of another machine.

use crate::api::{Error, Kind, ProgressLine, Result, SystemState};
use crate::http::openapi::IDEMPOTENCY_KEY;
use crate::remote::Remote;
use crate::stream::Stream;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the daemon may take to answer about itself. A hung daemon is called silent after it;
/// verbs that change something may take longer.
const QUESTION_MAX: Duration = Duration::from_secs(10);

/// Longest answer, in bytes. Longer ones are not an Ashlar daemon's.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Default path of the daemon's socket: root's daemon has a path of its own.
pub fn default_socket() -> PathBuf {
    if let Some(path) = std::env::var_os("ASHLAR_SOCKET") {
        return PathBuf::from(path);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/ashlar/ashlar.sock");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => Path::new(&folder).join("ashlar/ashlar.sock"),
        None => shared_folder().join("ashlar.sock"),
    }
}

/// The folder of a user's socket where the system gives them none of their own: in a place in which
/// every user can make it.
pub(crate) fn shared_folder() -> PathBuf {
    PathBuf::from(format!("/tmp/ashlar-{}", rustix::process::geteuid().as_raw()))
}

/// Refuses a socket in the folder of [`default_socket`] below /tmp that another user made, or can
/// change: that user chooses the process that answers.
pub(crate) fn check_folder(socket: &Path) -> Result<()> {
    match socket.parent().filter(|folder| **folder == shared_folder()) {
        Some(folder) => check_owned(folder),
        None => Ok(()),
    }
}

/// That a folder is this user's alone.
fn check_owned(folder: &Path) -> Result<()> {
    let Ok(about) = std::fs::symlink_metadata(folder) else { return Ok(()) };
    let own = rustix::process::geteuid().as_raw();
    let why = match (about.is_dir(), about.uid(), about.mode() & 0o077) {
        (true, uid, 0) if uid == own => return Ok(()),
        (false, ..) => "is not a folder".to_owned(),
        (true, uid, _) if uid != own => format!("belongs to uid {uid}, not to {own}"),
        (true, _, _) => format!("has mode {:04o}, not 0700", about.mode() & 0o7777),
    };
    let error = Error::new(Kind::Forbidden, "find the socket", format!("its folder {why}"));
    let next = "Remove it, or name another socket with --socket or $ASHLAR_SOCKET.";
    Err(error.at(folder.display().to_string()).next(next))
}

/// One line of an answer that arrives in parts.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerLine {
    Progress(ProgressLine),
    Answer(Value),
    Error(Error),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    /// The daemon of another machine, which is used instead of the socket.
    remote: Option<Remote>,
    /// See [`QUESTION_MAX`].
    question_max: Duration,
    /// The key of a change, under which the daemon carries it out once.
    request_key: Option<String>,
}

impl Client {
    /// A client of the daemon on `socket`. Nothing is opened yet.
    pub fn new(socket: &Path) -> Client {
        let (socket, question_max) = (socket.to_owned(), QUESTION_MAX);
        Client { socket, remote: None, question_max, request_key: None }
    }

    /// A client of the daemon of another machine. Nothing is opened yet.
    pub fn remote(remote: Remote) -> Client {
        Client { remote: Some(remote), ..Client::new(&default_socket()) }
    }

    /// Whether this is a client of the daemon of another machine.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The socket or URL, for messages.
    fn place(&self) -> String {
        match &self.remote {
            Some(remote) => remote.to_string(),
            None => self.socket.display().to_string(),
        }
    }

    /// The same client with another limit for answers about the daemon.
    pub fn with_deadline(self, question_max: Duration) -> Client {
        Client { question_max, ..self }
    }

    /// The same client, whose changes have this key.
    pub fn with_request_key(self, request_key: Option<String>) -> Client {
        Client { request_key, ..self }
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Everything, now.
    ///
    /// # Errors
    /// [`Kind::Unreachable`], [`Kind::Silent`], [`Kind::Forbidden`], [`Kind::Protocol`].
    pub fn state(&self) -> Result<SystemState> {
        let value = self.get("/v1/state")?;
        SystemState::deserialize(&value).map_err(|e| self.protocol_error(e))
    }

    /// A JSON document of the daemon.
    ///
    /// # Errors
    /// Those of the daemon and of the way there.
    pub fn get(&self, path: &str) -> Result<Value> {
        let bytes = self.text(path)?;
        serde_json::from_slice(&bytes).map_err(|e| self.protocol_error(e))
    }

    /// A document of the daemon in any form.
    ///
    /// # Errors
    /// Those of the daemon and of the way there.
    pub fn text(&self, path: &str) -> Result<Vec<u8>> {
        let request = Request::get(path).header("host", "ashlar").body(Full::new(Bytes::new()));
        let request = request.map_err(|e| self.protocol_error(e))?;
        self.block(async {
            let exchange = tokio::time::timeout(self.question_max, async {
                let answer = self.send(request).await?;
                let ok = answer.status().is_success();
                Ok((ok, self.collect(answer).await?))
            });
            let slow = |_| {
                let why = format!("no answer within {:?}", self.question_max);
                Error::new(Kind::Silent, "ask", why).at(self.place())
            };
            let (ok, bytes) = exchange.await.map_err(slow)??;
            if ok { Ok(bytes) } else { Err(self.refusal_error(&bytes)) }
        })
    }

    /// Carries out a verb; `progress` receives its progress. Ctrl-C ends only the waiting: a change
    /// half made would be worse than one that runs on unobserved.
    ///
    /// # Errors
    /// Those of the verb and of the way there; [`Kind::Interrupted`].
    pub fn verb(
        &self,
        name: &str,
        params: &Value,
        progress: &mut dyn FnMut(ProgressLine),
    ) -> Result<Value> {
        let body = Full::new(Bytes::from(params.to_string()));
        let mut request = Request::post(format!("/v1/verbs/{name}"))
            .header("host", "ashlar")
            .header("content-type", "application/json")
            .header("accept", "application/x-ndjson");
        if let Some(key) = &self.request_key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        let request = request.body(body).map_err(|e| self.protocol_error(e))?;
        let goes_on = Cell::new(None);
        let mut progress = |line: ProgressLine| {
            goes_on.set(line.goes_on.clone().map(|end| (line.what.clone(), end)));
            progress(line);
        };
        self.block(async {
            tokio::select! {
                ended = self.read_answer(request, &mut progress) => ended,
                Ok(()) = tokio::signal::ctrl_c() => Err(interrupted(name, goes_on.take())),
            }
        })
    }

    /// Reads progress until the answer is there.
    async fn read_answer(
        &self,
        request: Request<Full<Bytes>>,
        progress: &mut dyn FnMut(ProgressLine),
    ) -> Result<Value> {
        let mut answer = self.send(request).await?;
        if !answer.status().is_success() {
            let bytes = self.collect(answer).await?;
            return Err(self.refusal_error(&bytes));
        }
        // Lines not yet whole, and how much of them holds no end of a line.
        let (mut pending, mut seen) = (Vec::new(), 0);
        while let Some(frame) = answer.body_mut().frame().await {
            let frame = frame.map_err(|e| self.protocol_error(e))?;
            pending.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
            if pending.len() > ANSWER_BYTES_MAX {
                return Err(self.protocol_error("the answer is too long"));
            }
            while let Some(end) = pending.iter().skip(seen).position(|&b| b == b'\n') {
                let line: Vec<u8> = pending.drain(..=seen + end).collect();
                seen = 0;
                match serde_json::from_slice(&line).map_err(|e| self.protocol_error(e))? {
                    AnswerLine::Progress(line) => progress(line),
                    AnswerLine::Answer(value) => return Ok(value),
                    AnswerLine::Error(error) => return Err(error),
                }
            }
            seen = pending.len();
        }
        Err(self.protocol_error("the answer was cut short"))
    }

    fn block<T>(&self, f: impl Future<Output = Result<T>>) -> Result<T> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build();
        runtime.map_err(|e| Error::new(Kind::System, "start runtime", e))?.block_on(f)
    }

    async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let lost = |e: std::io::Error| {
            let kind = match e.kind() {
                std::io::ErrorKind::PermissionDenied => Kind::Forbidden,
                // A daemon that accepts no more: its queue of connections is full.
                std::io::ErrorKind::WouldBlock => Kind::Silent,
                _ => Kind::Unreachable,
            };
            Error::new(kind, "connect", e).at(self.place())
        };
        let Some(remote) = &self.remote else {
            check_folder(&self.socket)?;
            let stream = tokio::net::UnixStream::connect(&self.socket).await.map_err(lost)?;
            return self.exchange(Box::new(stream), request).await;
        };
        let field = |text: String| HeaderValue::from_str(&text).map_err(|e| self.protocol_error(e));
        request.headers_mut().insert(HOST, field(remote.authority())?);
        if let Some(token) = remote.authorization() {
            request.headers_mut().insert(AUTHORIZATION, field(token)?);
        }
        let connected = tokio::time::timeout(self.question_max, remote.connect()).await;
        let slow = |_| {
            let why = format!("no connection within {:?}", self.question_max);
            Error::new(Kind::Unreachable, "connect", why).at(self.place())
        };
        let next = "Run `ashlar status` on that machine, and compare `listen` of [api] and --ca.";
        let stream = connected.map_err(slow)?.map_err(|e| lost(e).next(next))?;
        self.exchange(stream, request).await
    }

    /// Sends a request over a new connection.
    async fn exchange(
        &self,
        stream: Box<dyn Stream>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>> {
        exchange(stream, request).await.map_err(|e| self.protocol_error(e))
    }

    async fn collect(&self, answer: Response<Incoming>) -> Result<Vec<u8>> {
        let limited = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let body = limited.collect().await.map_err(|e| self.protocol_error(e))?;
        Ok(body.to_bytes().to_vec())
    }

    /// The daemon's own error in a refusal.
    fn refusal_error(&self, bytes: &[u8]) -> Error {
        match serde_json::from_slice(bytes) {
            Ok(AnswerLine::Error(error)) => error,
            _ => self.protocol_error("rejected without a reason"),
        }
    }

    fn protocol_error(&self, why: impl std::fmt::Display) -> Error {
        Error::new(Kind::Protocol, "ask", why).at(self.place())
    }
}

/// Sends a request over a new connection, which ends with the answer.
pub(crate) async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // The request fails if the connection does, and its error is more exact.
        let _ = connection.await;
    });
    sender.send_request(request).await
}

/// The error of a verb that was interrupted while it waited: the work that continues, and the
/// command that ends it.
fn interrupted(verb: &str, goes_on: Option<(String, String)>) -> Error {
    let error = |why: &str| Error::new(Kind::Interrupted, verb, why);
    match goes_on {
        Some((what, end)) => {
            error(&format!("{what} continues in the daemon")).next(format!("`{end}` ends it."))
        }
        None => error("stopped waiting for the answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use testkit::Folder;

    #[test]
    fn silent_daemon_is_distinguished_from_a_missing_one() {
        let place = Folder::new("mute");
        let path = place.join("a.sock");
        let question_max = Duration::from_millis(20);
        let client = Client { question_max, ..Client::new(&path) };
        let kind = || client.state().expect_err("no answer").kind;
        assert_eq!(kind(), Kind::Unreachable, "no socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        assert_eq!(kind(), Kind::Silent, "nothing accepts the connection");
        drop(listener);
        assert_eq!(kind(), Kind::Unreachable, "a stale socket");
    }

    #[test]
    fn socket_folder_that_others_can_write_is_refused() {
        let place = Folder::new("owned");
        let (folder, link) = (place.join("folder"), place.join("link"));
        fs::create_dir_all(&folder).expect("a folder");
        for (mode, good) in [(0o700, true), (0o770, false), (0o707, false), (0o755, false)] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("its mode");
            assert_eq!(check_owned(&folder).is_ok(), good, "{mode:o}");
        }
        symlink("/", &link).expect("a link");
        let refused = check_owned(&link).expect_err("a link may lead anywhere");
        assert_eq!(refused.kind, Kind::Forbidden);
        assert!(check_owned(&place.join("none")).is_ok(), "nothing is there to be wrong");
    }
}
