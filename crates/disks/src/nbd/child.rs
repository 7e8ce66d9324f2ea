//! Server that the daemon runs itself, at a socket of its own: started, watched, started again.
//!
//! ```text
//!   listen at a private socket --> start (LISTEN_FDS) --ends by itself--> log, pause --+
//!            ^                                                                      |
//!            +----------------------------------------------------------------------+
//! ```
//! The server gets its listening socket as systemd gives it, which nbdkit, qemu-nbd and
//! qemu-storage-daemon know. It may be connected to before the server is ready, and when the server
//! ends, so does the socket. The kernel ends the server with the daemon (`setpriv --pdeathsig`).

use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bio::sync::{Condvar, Mutex};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Pauses between two starts: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Longest wait for a server to end after SIGTERM; then SIGKILL ends it.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the messages of a server that could not be reached.
const FINAL_MESSAGES_TIMEOUT: Duration = Duration::from_secs(2);
/// Lines of a server's messages that are kept for `status`, and longest line, bytes.
const LINES_KEPT: usize = 5;
const LINE_MAX: usize = 500;

/// Gives the server standard input as its listening socket, number 3.
const SCRIPT: &str = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 0</dev/null";

struct ServerState {
    name: String,
    argv: Vec<String>,
    folder: PathBuf,
    pid: Mutex<Option<Pid>>,
    /// Its last messages, escaped.
    messages: Mutex<VecDeque<String>>,
    /// Its last end, in words.
    ended: Mutex<Option<String>>,
    /// Of `ended`: it has, and its messages are read.
    is_read: Condvar,
    is_over: AtomicBool,
    /// Unrequested ends.
    unexpected_exits: AtomicU64,
    /// It was connected to since its start.
    has_served: AtomicBool,
}

/// See the module. Dropping it ends the server.
pub(crate) struct Server {
    shared: Arc<ServerState>,
    stop: Option<mpsc::Sender<()>>,
}

impl Server {
    /// Starts a server for a disk. Answers when its socket can be connected to.
    pub(crate) fn start(name: &str, words: &[String]) -> Result<Server, String> {
        if words.is_empty() || words[0].is_empty() {
            return Err("command is empty; next: command = [\"nbdkit\", ...]".to_owned());
        }
        let folder = folder().map_err(|e| format!("no folder for its socket: {e}"))?;
        let shared = Arc::new(ServerState {
            name: name.to_owned(),
            argv: words.to_vec(),
            folder,
            pid: Mutex::default(),
            messages: Mutex::default(),
            ended: Mutex::default(),
            is_read: Condvar::default(),
            is_over: AtomicBool::new(false),
            unexpected_exits: AtomicU64::new(0),
            has_served: AtomicBool::new(false),
        });
        let (stop, stopped) = mpsc::channel();
        let (sender, receiver) = mpsc::channel();
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("nbd server".to_owned());
        thread.spawn(move || own.supervise(&stopped, &sender)).map_err(|e| e.to_string())?;
        let server = Server { shared, stop: Some(stop) };
        match receiver.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(e)) => Err(format!("{}: {e}", words[0])),
            Err(_) => Err(format!("{}: it was not started", words[0])),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.shared.socket()
    }

    /// Its last messages.
    pub(crate) fn messages(&self) -> String {
        let lines = self.shared.messages.lock();
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// Its last messages, once it could not be reached. Waits for the messages of one that is
    /// ending.
    pub(crate) fn final_messages(&self) -> String {
        let ended = self.shared.ended.lock();
        if ended.is_none() {
            drop(self.shared.is_read.wait_timeout(ended, FINAL_MESSAGES_TIMEOUT));
        } else {
            drop(ended);
        }
        self.messages()
    }

    /// Unrequested ends: data that the server had not stored then may be lost.
    pub(crate) fn unexpected_exits(&self) -> u64 {
        self.shared.unexpected_exits.load(Ordering::Acquire)
    }

    /// It had a connection: the next start follows its end soon.
    pub(crate) fn mark_connected(&self) {
        self.shared.has_served.store(true, Ordering::Relaxed);
    }

    /// For lists: the command, and its process.
    pub(crate) fn show(&self) -> [(&'static str, String); 2] {
        let process = match (*self.shared.pid.lock(), &*self.shared.ended.lock()) {
            (Some(pid), _) => pid.as_raw_nonzero().to_string(),
            (None, Some(ended)) => format!("none: {ended}"),
            (None, None) => "none".to_owned(),
        };
        [("command", escaped(&self.shared.argv.join(" "))), ("process", process)]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        drop(self.stop.take());
        self.shared.signal(Signal::TERM);
        let own = self.shared.clone();
        let (ended, over) = mpsc::channel::<()>();
        let wait = move || {
            // Nothing is sent: it is a pause that needs no clock.
            let _late = over.recv_timeout(EXIT_TIMEOUT);
            own.signal(Signal::KILL);
            drop(ended);
        };
        // Without a thread the server has SIGTERM alone.
        let _ = std::thread::Builder::new().name("nbd server end".to_owned()).spawn(wait);
    }
}

impl ServerState {
    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = *self.pid.lock() {
            let _gone = kill_process(pid, signal);
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let socket = self.socket();
        let _absent = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        let mut command = match find("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "TERM", "sh"]);
                command
            }
            None => Command::new("sh"),
        };
        command.args(["-c", SCRIPT, "sh"]).args(&self.argv);
        command.stdin(Stdio::from(OwnedFd::from(listener)));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
    }

    fn supervise(&self, stopped: &mpsc::Receiver<()>, started: &mpsc::Sender<io::Result<()>>) {
        let mut pause = PAUSE;
        let mut started = Some(started);
        loop {
            let child = self.spawn();
            let ended = match child {
                Ok(child) => {
                    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                    *self.pid.lock() = pid;
                    if self.is_over.load(Ordering::Acquire) {
                        self.signal(Signal::TERM);
                    }
                    if let Some(started) = started.take() {
                        let _gone = started.send(Ok(()));
                    }
                    self.read_messages(child)
                }
                Err(e) => match started.take() {
                    Some(started) => {
                        let _gone = started.send(Err(e));
                        break;
                    }
                    None => format!("it cannot be started: {e}"),
                },
            };
            if self.is_over.load(Ordering::Acquire) {
                break;
            }
            self.unexpected_exits.fetch_add(1, Ordering::AcqRel);
            if self.has_served.swap(false, Ordering::Relaxed) {
                pause = PAUSE;
            }
            tracing::warn!("disk {}: the NBD server ended ({ended}) and is restarted", self.name);
            *self.ended.lock() = Some(ended);
            self.is_read.notify_all();
            if stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Disconnected) {
                break;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        // The next daemon removes the files that cannot be removed now.
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// Reads its messages until it ends; answers how it ended.
    fn read_messages(&self, mut child: Child) -> String {
        if let Some(mut messages) = child.stderr.take() {
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = messages.read(&mut piece) {
                for byte in piece.get(..n).unwrap_or(&[]) {
                    if *byte == b'\n' || bytes.len() >= LINE_MAX {
                        self.log_message(&std::mem::take(&mut bytes));
                    }
                    if *byte != b'\n' {
                        bytes.push(*byte);
                    }
                }
            }
            self.log_message(&bytes);
        }
        let status = self.reap(&mut child);
        status.map_or_else(|e| e.to_string(), |status| status.to_string())
    }

    /// It has closed its messages, and ends.
    fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        // Its number is not another one's before it is waited for, and is not used afterwards.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), how), Err(rustix::io::Errno::INTR)) {}
        }
        let mut pid = self.pid.lock();
        *pid = None;
        child.wait()
    }

    fn log_message(&self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        let line = escaped(&String::from_utf8_lossy(line));
        tracing::info!("disk {}: the NBD server reports: {line}", self.name);
        let mut lines = self.messages.lock();
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Text of others, safe in logs and lists.
fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    let place = |folder: PathBuf| Some(folder.join(program)).filter(|file| file.is_file());
    folders.find_map(place)
}

/// Names of these folders begin so; the number of the process follows.
const FOLDERS: &str = "ashlar-nbd-";

/// Removes folders of processes that have ended.
fn sweep(base: &Path) {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(FOLDERS));
        let process = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let is_over = |pid: &u32| !Path::new("/proc").join(pid.to_string()).exists();
        if process.is_some_and(|pid| is_over(&pid)) {
            // Another user's stays.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A folder of our own that no other user may enter, in the service's runtime folder if it has one.
fn folder() -> io::Result<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let base = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().find_map(std::env::var_os);
    // systemd names several folders, with colons between them.
    let first = |all: std::ffi::OsString| std::env::split_paths(&all).next();
    let base = base.and_then(first).unwrap_or_else(std::env::temp_dir);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    sweep(&base);
    let folder = base.join(format!("{FOLDERS}{}-{number}", std::process::id()));
    make(&folder)?;
    Ok(folder)
}

fn make(folder: &Path) -> io::Result<()> {
    // One that a process of the same number left behind; another user's is an error.
    let _absent = std::fs::remove_dir_all(folder);
    DirBuilder::new().mode(0o700).create(folder)
}
