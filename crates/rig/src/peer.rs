//! The peer target (Debian's tgt) and the small host tools that talk to any target.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::proc::{self, Proc, Scratch};
use crate::{Chap, Target};

/// A target that does not answer within this time is not coming.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Number of tgtd among the daemons that share the path of a control socket; ours shares with none.
const CONTROL: &str = "1";

/// Backing store of the peer's logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// Reads and writes nothing: the cost of the protocol alone. tgt chooses its size.
    Null,
    /// An image file, through the page cache.
    File(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TgtConfig {
    /// The logical unit's backing store; it becomes LUN 1 (LUN 0 is tgt's controller).
    pub store: Store,
    /// None: no authentication.
    pub chap: Option<Chap>,
    /// It insists on digests over headers and data.
    pub digests: bool,
    /// The only core it may run on; None: all.
    pub core: Option<usize>,
    /// The unit's serial number; None: the default of tgt.
    pub serial: Option<String>,
}

impl TgtConfig {
    /// An open target without a core of its own.
    pub fn new(store: Store) -> TgtConfig {
        TgtConfig { store, chap: None, digests: false, core: None, serial: None }
    }
}

/// A running tgtd with one target of one disk. Killed when dropped.
pub struct Tgt {
    config: TgtConfig,
    target: Target,
    daemon: Option<Proc>,
    scratch: Scratch,
}

impl Tgt {
    /// Starts tgtd on a free port of 127.0.0.1 and makes the target.
    pub fn start(config: TgtConfig) -> Result<Tgt> {
        let port = proc::free_port()?;
        let target = Target {
            portal: SocketAddr::from(([127, 0, 0, 1], port)),
            iqn: "iqn.2026-11.test.ashlar:peer".to_string(),
            lun: 1,
        };
        let scratch = Scratch::new("tgt")?;
        let mut tgt = Tgt { config, target, daemon: None, scratch };
        tgt.boot()?;
        Ok(tgt)
    }

    /// Its address.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The daemon's process id; None while it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Proc::pid)
    }

    /// Output of the daemon, over all its starts.
    pub fn log(&self) -> String {
        self.daemon.as_ref().map(Proc::output).unwrap_or_default()
    }

    /// Kills the daemon with SIGKILL; the port is closed afterwards, the backing file keeps its
    /// contents.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
        }
        Ok(())
    }

    /// SIGKILL and a new daemon on the same port with the same target.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.boot()
    }

    /// SIGKILL and a new daemon on the same port with another disk.
    pub fn exchange(&mut self, store: Store, serial: &str) -> Result<()> {
        self.kill()?;
        (self.config.store, self.config.serial) = (store, Some(serial.to_owned()));
        self.boot()
    }

    /// Runs `tgtadm` about the daemon's target: `--op`, `--mode` and the rest.
    pub fn admin(&self, words: &str) -> Result<String> {
        tgtadm(&self.socket(), &words.split(' ').collect::<Vec<_>>())
    }

    fn boot(&mut self) -> Result<()> {
        let mut command = proc::command("tgtd", self.config.core)?;
        command.args(["-f", "-C", CONTROL]).env(SOCKET, self.socket());
        command.arg("--iscsi").arg(format!("portal={}", self.target.portal));
        let mut daemon = Proc::start("tgtd", &mut command, &self.scratch.path().join("log"))?;
        let socket = self.socket();
        daemon.wait_ready(START_LIMIT, || {
            tgtadm(&socket, &["--op", "show", "--mode", "target"]).is_ok()
        })?;
        self.daemon = Some(daemon);
        self.configure().with_context(|| format!("configure tgt:\n{}", self.log()))?;
        wait_port(self.target.portal)
    }

    /// The control socket's path; short enough for a socket, in a folder of its own.
    fn socket(&self) -> PathBuf {
        self.scratch.path().join("control")
    }

    fn configure(&self) -> Result<()> {
        let adm = |words: &str| -> Result<()> {
            tgtadm(&self.socket(), &words.split(' ').collect::<Vec<_>>()).map(drop)
        };
        let iqn = &self.target.iqn;
        adm(&format!("--op new --mode target --tid 1 -T {iqn}"))?;
        let unit = "--op new --mode logicalunit --tid 1 --lun 1";
        let (path, kind) = match &self.config.store {
            Store::Null => ("null", "null"),
            Store::File(path) => (path.to_str().context("store's path")?, "rdwr"),
        };
        let mut words: Vec<&str> = unit.split(' ').collect();
        words.extend(["-b", path, "--bstype", kind]);
        tgtadm(&self.socket(), &words)?;
        let thin = "--op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1";
        adm(thin)?;
        if let Some(serial) = &self.config.serial {
            let unit = "--op update --mode logicalunit --tid 1 --lun 1 --params";
            adm(&format!("{unit} scsi_sn={serial},scsi_id={serial}"))?;
        }
        adm("--op bind --mode target --tid 1 -I ALL")?;
        for key in ["HeaderDigest", "DataDigest"].into_iter().filter(|_| self.config.digests) {
            adm(&format!("--op update --mode target --tid 1 --name {key} --value CRC32C"))?;
        }
        let Some(chap) = &self.config.chap else {
            return Ok(());
        };
        adm(&format!("--op new --mode account --user {} --password {}", chap.user, chap.secret))?;
        adm(&format!("--op bind --mode account --tid 1 --user {}", chap.user))?;
        let Some((user, secret)) = &chap.mutual else {
            return Ok(());
        };
        adm(&format!("--op new --mode account --user {user} --password {secret}"))?;
        adm(&format!("--op bind --mode account --tid 1 --user {user} --outgoing"))
    }
}

/// The environment variable with the control socket's path, for tgtd and tgtadm.
const SOCKET: &str = "TGT_IPC_SOCKET";

fn tgtadm(socket: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new(proc::tool("tgtadm")?);
    command.env(SOCKET, socket).args(["-C", CONTROL, "--lld", "iscsi"]).args(words);
    proc::run(&mut command)
}

/// Waits until a server accepts connections at an address.
pub fn wait_port(address: SocketAddr) -> Result<()> {
    let start = Instant::now();
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            Ok(_) => return Ok(()),
            Err(error) if start.elapsed() > START_LIMIT => {
                bail!("no peer listens on {address} after {START_LIMIT:?}: {error}")
            }
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

/// Names of the targets and logical units behind a portal: the text of `iscsi-ls -s`.
pub fn iscsi_ls(portal: SocketAddr) -> Result<String> {
    let mut command = Command::new(proc::tool("iscsi-ls")?);
    proc::run(command.arg("-s").arg(format!("iscsi://{portal}")))
}

/// The text of `iscsi-inq`: standard INQUIRY data, or one VPD page.
pub fn iscsi_inq(url: &str, vpd_page: Option<u8>) -> Result<String> {
    let mut command = Command::new(proc::tool("iscsi-inq")?);
    if let Some(page) = vpd_page {
        command.args(["-e", "1", "-c"]).arg(page.to_string());
    }
    proc::run(command.arg(url))
}

pub fn qemu_img(arguments: &[&str]) -> Result<String> {
    proc::run(Command::new(proc::tool("qemu-img")?).args(arguments))
}

/// Copies a whole logical unit to an image file.
pub fn download(url: &str, to: &Path) -> Result<()> {
    let to = to.to_str().context("image's path")?;
    qemu_img(&["convert", "-f", "raw", "-O", "raw", url, to]).map(drop)
}

/// Copies an image file onto a logical unit of at least its size.
pub fn upload(from: &Path, url: &str) -> Result<()> {
    let from = from.to_str().context("image's path")?;
    qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", from, url]).map(drop)
}

/// Runs `qemu-io` commands in order on a raw device and returns the output. qemu-io exits with 0
/// after a failed read. So a line with "failed" counts as an error.
pub fn qemu_io(url: &str, commands: &[&str]) -> Result<String> {
    let mut command = Command::new(proc::tool("qemu-io")?);
    command.args(["-f", "raw"]);
    for words in commands {
        command.arg("-c").arg(words);
    }
    let text = proc::run(command.arg(url))?;
    if text.lines().any(|line| line.contains("failed")) {
        bail!("qemu-io: {text}");
    }
    Ok(text)
}

/// Load of `iscsi-perf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests in flight.
    pub depth: u32,
    /// Logical blocks a request.
    pub blocks: u32,
    /// True: at random places; false: one after the other.
    pub random: bool,
    /// How long.
    pub seconds: u32,
    /// The only core it may use; None: all.
    pub core: Option<usize>,
}

/// Reads with `iscsi-perf`; returns the average of requests a second.
pub fn iscsi_perf(url: &str, load: Load) -> Result<f64> {
    let mut command = proc::command("iscsi-perf", load.core)?;
    if load.random {
        command.arg("-r");
    }
    command.args(["-b", &load.blocks.to_string(), "-m", &load.depth.to_string()]);
    let text = proc::run(command.args(["-t", &load.seconds.to_string()]).arg(url))?;
    // Progress lines, overwritten in place, contain "iops average" too: the last one counts.
    let (_, last) = text.rsplit_once("iops average ").context("iscsi-perf gave no average")?;
    let number = last.split_whitespace().next().context("iscsi-perf gave no number")?;
    number.parse().with_context(|| format!("iscsi-perf: {number}"))
}
