//! File servers as children, measured as all others are.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client::Dialect;
use crate::error::{Error, Kind};
use crate::load::pattern;
use crate::servers::{Child, Scratch, free_address, pinned, tool};

/// The file that is read, and its bytes: in every server's memory once it was read.
pub(super) const FILE: &str = "data";
pub(super) const FILE_BYTES: u64 = 256 << 20;
/// Seed of its contents.
pub(super) const SEED: u64 = 9;
/// Bytes that a pattern is made of at a time.
pub(super) const PIECE: usize = 64 << 10;

/// Longest wait for the console's answer, and the console's prompt.
const ANSWER: Duration = Duration::from_secs(120);
const PROMPT: &str = "main: ";

/// A running server. Its process is killed when this is dropped.
pub(super) struct Server {
    pub name: &'static str,
    pub at: SocketAddr,
    pub dialect: Dialect,
    /// The attach name of a client.
    pub aname: String,
    child: Child,
    console: Option<PathBuf>,
    _scratch: Vec<Scratch>,
}

impl Server {
    /// The process to measure.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Types a line on the server's console and returns the answer. No process is started for it,
    /// which would take the server's core.
    pub fn typed(&self, line: &str) -> Result<String, Error> {
        let Some(console) = &self.console else {
            return Err(Error::new(Kind::System, "it has no console"));
        };
        let io = |e| Error::system(console.display(), e);
        let mut stream = UnixStream::connect(console).map_err(io)?;
        stream.set_read_timeout(Some(ANSWER)).map_err(io)?;
        stream.write_all(format!("{line}\n").as_bytes()).map_err(io)?;
        let mut reply = String::new();
        while reply.matches(PROMPT).count() < 2 {
            let mut some = [0; 4096];
            let n = stream.read(&mut some).map_err(io)?;
            if n == 0 {
                break;
            }
            reply += &String::from_utf8_lossy(some.get(..n).unwrap_or(&[]));
        }
        let reply = reply.replace(PROMPT, "");
        match reply.starts_with("/dump/") {
            true => Ok(reply),
            false => Err(Error::new(Kind::Protocol, format!("{line}: {reply}"))),
        }
    }
}

/// Sizes of a server of ours, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Of a volume of ours; none: an image of cwfs64x, whose blocks have 16 KiB.
    pub block: Option<u64>,
    /// The block cache.
    pub memory: u64,
    /// The cache device and the WORM.
    pub device: u64,
    /// Backing store of the devices.
    pub on: Store,
}

/// Backing store of the devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Store {
    Memory,
    /// Files in memory that were written before, so that no request waits for memory that the host
    /// of this machine has to find first. That takes 6 ms for 2 MiB where it reclaims unused
    /// memory.
    Prepared,
    /// Files in the folder for temporary ones, which are made durable by fsync.
    Files,
}

/// `ashlar serve` with a usual configuration.
pub(super) fn ashlar(binary: &str, core: Option<usize>, sizes: Sizes) -> Result<Server, Error> {
    let scratch = Scratch::new("ashlar-files")?;
    let prepared = Scratch::in_memory("ashlar-files")?;
    let home = scratch.path();
    let at = free_address()?;
    let quoted = |name: &str| format!("{:?}", home.join(name).to_string_lossy());
    let one = if core.is_some() { "cores = 1\n" } else { "" };
    let Sizes { block, memory, device, on } = sizes;
    let kind = block.map_or("image = true".to_owned(), |bytes| format!("block = {bytes}"));
    let disk = |name: &str| {
        let what = match on {
            Store::Memory => format!("kind = \"memory\"\nsize = {device}"),
            Store::Files => format!("kind = \"file\"\npath = {}", quoted(name)),
            Store::Prepared => {
                format!("kind = \"file\"\npath = {:?}", prepared.path().join(name))
            }
        };
        format!("[[disk]]\nname = \"{name}\"\n{what}\n\n")
    };
    for name in ["cache", "worm"] {
        match on {
            Store::Memory => {}
            Store::Files => drop(scratch.file(name, device)?),
            Store::Prepared => prepared.written(name, device)?,
        }
    }
    let text = format!(
        "[daemon]\nsocket = {}\nhistory = {}\n{one}\n{}{}\
         [[geom]]\nclass = \"fs\"\nname = \"main\"\nmembers = [\"cache\", \"worm\"]\n\
         create = true\n{kind}\nmemory = {memory}\nlinux = [\"{at}\"]\n\
         everybody = \"bench\"\ndump_at = \"never\"\nconsole = [\"unix:{}\"]\n",
        quoted("control.sock"),
        quoted("history"),
        disk("cache"),
        disk("worm"),
        home.join("console").display(),
    );
    let file = home.join("ashlar.toml");
    fs::write(&file, text).map_err(|e| Error::system(file.display(), e))?;
    let mut command = pinned(Path::new(binary), core)?;
    command.arg("serve").arg(&file);
    let mut child = Child::start("ashlar", &mut command, &home.join("log"))?;
    child.wait_port(at)?;
    Ok(Server {
        name: "ashlar",
        at,
        dialect: Dialect::Plain,
        aname: String::new(),
        child,
        console: Some(home.join("console")),
        _scratch: vec![scratch, prepared],
    })
}

/// diod, from Debian's package, with the file in a file system in memory.
pub(super) fn diod(core: Option<usize>) -> Result<Server, Error> {
    let scratch = Scratch::new("diod")?;
    let program = tool("diod")?;
    let memory = Scratch::in_memory("diod")?;
    let path = memory.file(FILE, 0)?;
    let broken = |e| Error::system(path.display(), e);
    let mut file = fs::File::options().write(true).open(&path).map_err(broken)?;
    let mut piece = vec![0; PIECE];
    for place in (0..FILE_BYTES).step_by(PIECE) {
        pattern::fill(SEED, place, &mut piece);
        file.write_all(&piece).map_err(broken)?;
    }
    let at = free_address()?;
    let export = memory.path().to_string_lossy().into_owned();
    let mut command = pinned(&program, core)?;
    command.args(["-f", "-n", "-N", "-c", "/dev/null", "-L", "stderr", "-l", &at.to_string()]);
    command.args(["-e", &export]);
    let mut child = Child::start("diod", &mut command, &scratch.path().join("log"))?;
    child.wait_port(at)?;
    Ok(Server {
        name: "diod",
        at,
        dialect: Dialect::Linux,
        aname: export,
        child,
        console: None,
        _scratch: vec![scratch, memory],
    })
}
