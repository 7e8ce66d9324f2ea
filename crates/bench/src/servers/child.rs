//! Child processes: output to a file, killed by their own id with their owner.

use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind};

/// Longest start of a server, unless it has another limit.
const START_MAX: Duration = Duration::from_secs(20);
/// How much of a log an error shows, bytes.
const LOG_SHOWN: usize = 2000;

/// A folder that is removed with its owner.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A fresh one in the system's temporary folder.
    pub fn new(name: &str) -> Result<Scratch, Error> {
        Scratch::within(&std::env::temp_dir(), name)
    }

    /// A fresh one in memory where there is a file system for that, else as [`Scratch::new`].
    pub fn in_memory(name: &str) -> Result<Scratch, Error> {
        match Scratch::within(Path::new("/dev/shm"), name) {
            Ok(scratch) => Ok(scratch),
            Err(_) => Scratch::new(name),
        }
    }

    fn within(folder: &Path, name: &str) -> Result<Scratch, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("ashlar-bench-{}-{number}-{name}", std::process::id()));
        fs::create_dir(&path).map_err(|e| Error::system(path.display(), e))?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a file of zeros whose space is allocated.
    pub fn written(&self, name: &str, bytes: u64) -> Result<(), Error> {
        let path = self.file(name, 0)?;
        let mut file = File::options().write(true).open(&path);
        let zeros = vec![0; 1 << 20];
        for place in (0..bytes).step_by(zeros.len()) {
            let part = zeros.len().min(usize::try_from(bytes - place).unwrap_or(zeros.len()));
            file = file.and_then(|mut file| file.write_all(&zeros[..part]).map(|()| file));
        }
        file.map(drop).map_err(|e| Error::system(path.display(), e))
    }

    /// Makes a file of that length without content; answers its path.
    pub fn file(&self, name: &str, bytes: u64) -> Result<PathBuf, Error> {
        let path = self.0.join(name);
        let made = File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(|e| Error::system(path.display(), e))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program's path: from PATH, or from the folders that only root's PATH has.
pub fn tool(name: &str) -> Result<PathBuf, Error> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"]);
    let found = folders.map(|f| Path::new(f).join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        let what = format!("`{name}` is missing; ci/packages/bench.txt lists the packages");
        Error::new(Kind::Missing, what)
    })
}

pub(crate) fn own_path() -> Result<String, Error> {
    let path = std::env::current_exe().map_err(|e| Error::system("own path", e))?;
    let text = path.into_os_string().into_string();
    text.map_err(|p| Error::new(Kind::System, format!("own path {p:?} is not text")))
}

/// The path of `ashlar`: beside this program, else of PATH.
pub fn ashlar_beside() -> Result<String, Error> {
    let beside = Path::new(&own_path()?).with_file_name("ashlar");
    let found = if beside.is_file() { Some(beside) } else { tool("ashlar").ok() };
    found.map(|path| path.to_string_lossy().into_owned()).ok_or_else(|| {
        let what = "there is no `ashlar` beside this program nor in PATH: name it with --ashlar";
        Error::new(Kind::Missing, what)
    })
}

/// A TCP address of 127.0.0.1 that was free a moment ago.
pub(crate) fn free_address() -> Result<SocketAddr, Error> {
    let socket = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    socket.map_err(|e| Error::system("find a free port", e))
}

/// A command that may run on `core` only, and that the kernel kills when this process ends in any
/// way.
pub(crate) fn pinned(program: &Path, core: Option<usize>) -> Result<Command, Error> {
    let mut command = Command::new(tool("setpriv")?);
    command.args(["--pdeathsig", "KILL"]);
    if let Some(core) = core {
        command.arg(tool("taskset")?).arg("-c").arg(core.to_string());
    }
    command.arg(program);
    Ok(command)
}

pub struct Child {
    name: &'static str,
    process: std::process::Child,
    log: PathBuf,
    start_max: Duration,
}

impl Child {
    /// Starts a command; its output is written to `log`.
    pub fn start(name: &'static str, command: &mut Command, log: &Path) -> Result<Child, Error> {
        let open = || -> std::io::Result<(File, File)> {
            let file = File::create(log)?;
            Ok((file.try_clone()?, file))
        };
        let (out, err) = open().map_err(|e| Error::system(log.display(), e))?;
        let started = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let process = started.map_err(|e| {
            Error::new(Kind::Server, format!("start {name} ({:?}): {e}", command.get_program()))
        })?;
        Ok(Child { name, process, log: log.to_owned(), start_max: START_MAX })
    }

    /// The same child with another limit for its start.
    pub(crate) fn with_start_max(mut self, start_max: Duration) -> Child {
        self.start_max = start_max;
        self
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Output so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// Waits until `ready` is true; an error with the log's end when it ends or takes too long.
    pub fn wait_for(&mut self, what: &str, mut ready: impl FnMut() -> bool) -> Result<(), Error> {
        let begun = Instant::now();
        while !ready() {
            let ended = self.process.try_wait().map_err(|e| Error::system("wait", e))?;
            let why = match ended {
                Some(status) => format!("ended ({status})"),
                None if begun.elapsed() > self.start_max => "took too long".to_owned(),
                None => {
                    sleep(Duration::from_millis(10));
                    continue;
                }
            };
            let log = self.log();
            let from = log.len().saturating_sub(LOG_SHOWN);
            let from = (from..=log.len()).find(|&i| log.is_char_boundary(i)).unwrap_or(0);
            let tail = log.get(from..).unwrap_or("").trim_end();
            let words = format!("{} {why} before {what}:\n{tail}", self.name);
            return Err(Error::new(Kind::Server, words));
        }
        Ok(())
    }

    /// Waits until it accepts connections.
    pub fn wait_port(&mut self, portal: SocketAddr) -> Result<(), Error> {
        let open = || TcpStream::connect_timeout(&portal, Duration::from_secs(1)).is_ok();
        self.wait_for(&format!("it listened on {portal}"), open)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
