//! A test's own daemon: its folder, socket, port and configuration, and the commands for it.
//!
//! Invariants
//!  H1  A house has a [`Turn`], its siblings use it: a share of the machine, or all of it where the
//!      test lays cables, makes loop devices, boots a guest or loads both cores. A test without a
//!      house takes a turn itself.
//!  H2  A house's daemon is ended by its own process id, at the latest when the house goes.

pub mod bench;
pub mod load;
pub mod ninep;
mod turn;
pub mod writer;

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rig::Target;
use rig::proc::{self, Proc, Scratch};
use serde_json::Value;

pub use turn::Turn;

/// The target of every house.
pub const IQN: &str = "iqn.2026-11.test.ashlar:house";

/// The name under which qemu's tools log in by default.
pub const QEMU: &str = "iqn.2008-11.org.linux-kvm";

/// Longest way from `ashlar serve` to an answer on its socket.
const START_LIMIT: Duration = Duration::from_secs(90);

/// Longest way from SIGTERM to the end of the process.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Longest command; a longer one hangs.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// Result of a command.
#[derive(Debug)]
pub struct Said {
    /// The command line.
    pub words: String,
    /// Its exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// It ended with this code.
    #[track_caller]
    pub fn ends(self, code: i32) -> Said {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Every one of these words is on standard output.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Said {
        words.iter().for_each(|w| assert!(self.out.contains(w), "no {w:?} in the output\n{self}"));
        self
    }

    /// None of these words is on standard output.
    #[track_caller]
    pub fn lacks(self, words: &[&str]) -> Said {
        words.iter().for_each(|w| assert!(!self.out.contains(w), "{w:?} in the output\n{self}"));
        self
    }

    /// Every one of these words is on standard error.
    #[track_caller]
    pub fn complains(self, words: &[&str]) -> Said {
        words.iter().for_each(|w| assert!(self.err.contains(w), "no {w:?} on stderr\n{self}"));
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: no JSON\n{self}"))
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`ashlar {}` ended with {}\n{}{}", self.words, self.code, self.out, self.err)
    }
}

/// A file of the house: with it there, the daemon looks whether it is to panic.
pub const MAY_PANIC: &str = "may-panic";

/// See the module.
pub struct House {
    daemon: Option<Proc>,
    portal: SocketAddr,
    scratch: Scratch,
    /// H1; a sibling has none.
    _turn: Option<Turn>,
}

impl House {
    /// A house without a daemon yet, beside those of other tests. Waits for its turn.
    pub fn new(name: &str) -> House {
        House::during(Turn::share(), name)
    }

    /// The only house: nothing else of this suite runs. Waits for its turn.
    pub fn alone(name: &str) -> House {
        House::during(Turn::whole(), name)
    }

    fn during(turn: Turn, name: &str) -> House {
        rig::packages::ensure_host().unwrap();
        let portal = SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()));
        House { daemon: None, portal, scratch: Scratch::new(name).unwrap(), _turn: Some(turn) }
    }

    /// A second house beside this one, whose turn it is; its daemon serves.
    pub fn sibling(&self, name: &str, disks: &str) -> House {
        let portal = SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()));
        let scratch = Scratch::new(name).unwrap();
        let mut house = House { daemon: None, portal, scratch, _turn: None };
        house.configure(disks, "");
        house.start();
        house
    }

    /// A place in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Its address for initiators.
    pub fn portal(&self) -> SocketAddr {
        self.portal
    }

    /// A sparse image file in its folder.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// A file that only its owner may read.
    pub fn secret(&self, name: &str, secret: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        std::fs::write(&path, secret).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Writes a configuration file; `{here}`, `{portal}` and `{iqn}` are replaced by the house's
    /// own.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let here = self.scratch.path().to_str().unwrap();
        let text = text.replace("{here}", here).replace("{iqn}", IQN);
        let text = text.replace("{portal}", &self.portal.to_string());
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Writes the configuration of this house: `disks` and the rest as given, one target, and a
    /// group `all` with these LUNs for every initiator.
    pub fn configure(&self, disks: &str, luns: &str) {
        let access = format!(
            "[[access]]\ntarget = \"{{iqn}}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
             luns = {{ {luns} }}\n"
        );
        let access = if luns.is_empty() { String::new() } else { access };
        self.write("ashlar.toml", &format!("{disks}\n{TARGET}\n{access}"));
    }

    fn socket(&self) -> PathBuf {
        self.path("ashlar.sock")
    }

    /// `ashlar` with these words, about this house's daemon. Nothing is started yet.
    pub fn command(&self, words: &[&str]) -> Command {
        self.command_at(&self.socket(), words)
    }

    fn command_at(&self, socket: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
        command.args(words).arg("--socket").arg(socket);
        command.env("ASHLAR_CONFIG", self.path("ashlar.toml")).env_remove("ASHLAR_SOCKET");
        if self.path(MAY_PANIC).exists() {
            command.env("ASHLAR_PANIC_WHEN", self.path("panic"));
        }
        command
    }

    /// The daemon as a child that has not answered yet.
    pub fn launch(&self) -> Proc {
        Proc::start("ashlar serve", &mut self.command(&["serve"]), &self.path("log")).unwrap()
    }

    /// Starts the daemon and waits until it serves.
    #[track_caller]
    pub fn start(&mut self) {
        self.wait_for(self.launch());
    }

    /// Starts it and waits until every LUN is there: a mirror that lacks a member waits for it, and
    /// nothing else waits for that mirror.
    #[track_caller]
    pub fn start_whole(&mut self) {
        self.start();
        let is_whole = || {
            let state = self.state();
            let mut groups = state["targets"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|target| target["groups"].as_array().cloned().unwrap_or_default());
            groups.all(|g| g["awaited"].as_array().is_none_or(Vec::is_empty))
        };
        self.until("every LUN is there", START_LIMIT, is_whole);
    }

    #[track_caller]
    fn wait_for(&mut self, mut daemon: Proc) {
        let ready = || {
            let said = self.ashlar(&["status", "--json"]);
            said.code == 0 || said.code == 3 && !said.out.contains("\"starting\": true")
        };
        daemon.wait_ready(START_LIMIT, ready).unwrap();
        self.daemon = Some(daemon);
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("a daemon").pid()
    }

    /// Everything the daemon has logged, over all its starts.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The daemon still runs, and has not panicked.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        let daemon = self.daemon.as_mut().expect("a daemon");
        assert!(daemon.ended().unwrap().is_none(), "the daemon ended:\n{}", daemon.tail());
        let log = self.log();
        assert!(!log.contains("panicked"), "a thread of the daemon panicked:\n{log}");
    }

    /// SIGTERM; it must end by itself and well.
    #[track_caller]
    pub fn stop(&mut self) {
        self.assert_alive();
        let mut daemon = self.daemon.take().expect("a daemon");
        assert!(daemon.terminate(STOP_LIMIT).unwrap(), "it did not stop:\n{}", daemon.tail());
        let status = daemon.ended().unwrap().expect("it has ended");
        assert!(status.success(), "stopped with {status}:\n{}", daemon.tail());
        assert!(!self.socket().exists(), "the socket stays behind");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.daemon.take().expect("a daemon").kill().unwrap();
    }

    /// A core of the daemon panics, which was started with [`MAY_PANIC`] there; answers how the
    /// process ended.
    #[track_caller]
    pub fn panic(&mut self) -> ExitStatus {
        std::fs::write(self.path("panic"), "").expect("the file that it looks for");
        let status = self.end();
        std::fs::remove_file(self.path("panic")).expect("the file");
        status
    }

    /// Waits until the daemon has ended by itself; answers how.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let mut daemon = self.daemon.take().expect("a daemon");
        let mut status = None;
        self.until("the daemon has ended", STOP_LIMIT, || {
            status = daemon.ended().unwrap();
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Runs a command about the daemon.
    #[track_caller]
    pub fn ashlar(&self, words: &[&str]) -> Said {
        self.ashlar_at(&self.socket(), words)
    }

    /// Runs a command about the daemon of another socket.
    #[track_caller]
    pub fn ashlar_at(&self, socket: &Path, words: &[&str]) -> Said {
        let (out, err) = (self.path("out"), self.path("err"));
        let mut command = self.command_at(socket, words);
        command.stdin(std::process::Stdio::null());
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > COMMAND_LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                let (words, how) = (words.join(" "), self.how_it_is());
                panic!("`ashlar {words}` hangs; {how}\nthe daemon said:\n{}", self.log());
            }
            sleep(Duration::from_millis(2));
        };
        let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into();
        Said {
            words: words.join(" "),
            code: status.code().unwrap_or(-1),
            out: text(&out),
            err: text(&err),
        }
    }

    /// State of the daemon's threads, and signs that the machine is to blame.
    fn how_it_is(&self) -> String {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let line = |path: &Path, word: &str| {
            read(path).lines().find(|l| l.starts_with(word)).unwrap_or_default().to_owned()
        };
        // All processes stall when memory runs out; there may be enough of it again by now.
        let left = line(Path::new("/proc/meminfo"), "MemAvailable");
        let killed = line(Path::new("/proc/vmstat"), "oom_kill");
        let load = read(Path::new("/proc/loadavg"));
        let mut out = format!("{left}; {killed} since the machine started; load {}", load.trim());
        let Some(daemon) = &self.daemon else { return out + "; no daemon serves yet" };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid()));
        for task in tasks.into_iter().flatten().flatten() {
            let of = |name: &str| task.path().join(name);
            let (name, state) = (read(&of("comm")), line(&of("status"), "State"));
            out += &format!("\n  {}: {state} {}", name.trim(), read(&of("wchan")));
        }
        out
    }

    /// A command that must succeed; its table.
    #[track_caller]
    pub fn ok(&self, words: &[&str]) -> String {
        self.ashlar(words).ends(0).out
    }

    /// A command that must succeed; its JSON.
    #[track_caller]
    pub fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        self.ashlar(&words).ends(0).json()
    }

    /// Everything the daemon knows.
    #[track_caller]
    pub fn state(&self) -> Value {
        self.json(&["list"])["state"].take()
    }

    /// A provider of a state: its class and its description.
    pub fn provider(&self, name: &str) -> Option<(String, Value)> {
        let state = self.state();
        array(&state["geoms"]).iter().find_map(|geom| {
            let found = array(&geom["providers"]).iter().find(|p| p["name"] == name)?;
            Some((text(&geom["class"]), found.clone()))
        })
    }

    /// Whether iscsi-ls shows a unit of a number. It ends with an error when a unit comes or goes
    /// between two of its commands.
    pub fn lists_unit(&self, number: u32) -> bool {
        let mut command = Command::new(proc::tool("iscsi-ls").unwrap());
        let done = command.args(["-s", &format!("iscsi://{}", self.portal())]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        done.status.success() && said.contains(&format!("Lun:{number} "))
    }

    /// Waits until something becomes true.
    #[track_caller]
    pub fn until(&self, what: &str, limit: Duration, mut is: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is() {
            let log = || self.log();
            assert!(start.elapsed() < limit, "not within {limit:?}: {what}\n{}", log());
            sleep(Duration::from_millis(20));
        }
    }

    /// A logical unit of the house's target.
    pub fn target(&self, lun: u64) -> Target {
        Target { portal: self.portal, iqn: IQN.into(), lun }
    }

    /// Its address.
    pub fn url(&self, lun: u64) -> String {
        self.target(lun).url()
    }

    /// Its address for qemu's tools, under another initiator's name.
    pub fn url_as(&self, initiator: &str, lun: u64) -> String {
        let file = serde_json::json!({
            "driver": "iscsi", "transport": "tcp", "portal": self.portal.to_string(),
            "target": IQN, "lun": lun, "initiator-name": initiator,
        });
        format!("json:{}", serde_json::json!({ "driver": "raw", "file": file }))
    }
}

/// The one target of [`House::configure`].
const TARGET: &str = "[[target]]\ndriver = \"iscsi\"\nname = \"{iqn}\"\nlisten = [\"{portal}\"]\n";

/// A file disk of the house: section text for [`House::configure`].
pub fn file_disk(name: &str, file: &str) -> String {
    format!("[[disk]]\nname = \"{name}\"\nkind = \"file\"\npath = \"{{here}}/{file}\"\n")
}

/// Whether files that used so many bytes on their file system use so many less now, except for its
/// records of holes.
pub fn gave(full: u64, left: u64, bytes: u64) -> bool {
    const ABOUT_HOLES: u64 = 64 << 10;
    full.saturating_sub(left).abs_diff(bytes) <= ABOUT_HOLES
}

/// The elements of a JSON array; none when it is none.
pub fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A JSON string.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Runs one of the system's own tools, which must succeed; `input` goes to its standard input.
#[track_caller]
pub fn tool(name: &str, words: &[&str], input: &str) -> String {
    use std::io::Write;
    use std::process::Stdio;
    let mut command = Command::new(proc::tool(name).unwrap());
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{name} {words:?}: {}\n{out}{err}", done.status);
    out.into_owned()
}
