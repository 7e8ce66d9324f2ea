//! Child processes: started with their output in a file, ended with their owner, measured.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, mpsc};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Clock ticks a second in /proc/PID/stat; Linux fixes it at 100 for user space on x86 and arm.
const TICKS_PER_SECOND: u64 = 100;
/// Bytes a page in /proc/PID/statm on x86.
const PAGE_BYTES: u64 = 4096;
/// How much of a log an error message shows; more is in the file.
const TAIL_LINES: usize = 30;
/// A command of the rig's own that takes longer is stuck; it is killed and reported.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);

/// A fresh scratch folder of this process, under the system's temporary folder.
pub fn scratch(name: &str) -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("rig-{}-{number}-{name}", std::process::id()));
    fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
    Ok(path)
}

/// A folder that is removed with its guard.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one; see [`scratch`].
    pub fn new(name: &str) -> Result<Scratch> {
        scratch(name).map(Scratch)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Ports that [`free_port`] gives. They are below those that the kernel gives to connections: one
/// of these could otherwise take a port between this answer and the server's bind.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A TCP port of 127.0.0.1 that is free and that this process was not given before. Processes begin
/// at different places of the range.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(397);
    for _ in 0..count {
        let step = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + u16::try_from(step)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free at 127.0.0.1")
}

/// A program's path: from PATH, or from the folders that only root's PATH has.
pub fn tool(name: &str) -> Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"]);
    for folder in folders {
        let file = Path::new(folder).join(name);
        if file.is_file() {
            return Ok(file);
        }
    }
    bail!("`{name}` is not installed; ci/packages lists the packages")
}

/// Whether this process may do what only root may.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A command that runs on one core only when `core` is given.
pub fn command(name: &str, core: Option<usize>) -> Result<Command> {
    let path = tool(name)?;
    let Some(core) = core else {
        return Ok(Command::new(path));
    };
    let mut command = Command::new(tool("taskset")?);
    command.arg("-c").arg(core.to_string()).arg(path);
    Ok(command)
}

/// The same command, which the kernel kills when the thread that starts it ends: for [`spawn`].
/// Standard input and output, user and group are not taken over.
pub fn ending_with_us(command: &Command) -> Result<Command> {
    let mut kept = Command::new(tool("setpriv")?);
    kept.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => kept.env(name, value),
            None => kept.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        kept.current_dir(folder);
    }
    Ok(kept)
}

/// A command, and the channel on which its caller waits for the child.
type Order = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Spawns a command of [`ending_with_us`]. One thread, which lasts as long as this process, spawns
/// all: the thread of a test may end before its children.
pub fn spawn(command: Command) -> std::io::Result<Child> {
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, received) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, caller) in received {
                let _ = caller.send(command.spawn());
            }
        });
        orders
    });
    let ended = || std::io::Error::other("the thread that starts children has ended");
    let (caller, child) = mpsc::channel();
    SPAWNER.send((command, caller)).map_err(|_| ended())?;
    child.recv().map_err(|_| ended())?
}

/// A running child. Killed by its id and reaped when dropped, and killed by the kernel when this
/// process ends in any way. A test that fails prints the end of its log.
pub struct Proc {
    child: Child,
    log: PathBuf,
    name: String,
}

impl Proc {
    /// Starts a command with standard output and error in the file `log` (appended to).
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Proc> {
        let out = File::options().create(true).append(true).open(log);
        let out = out.with_context(|| format!("open log {}", log.display()))?;
        let mut kept = ending_with_us(command)?;
        kept.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = spawn(kept).with_context(|| format!("start {name}"))?;
        Ok(Proc { child, log: log.to_path_buf(), name: name.to_string() })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has printed so far, all starts with the same log together.
    pub fn output(&self) -> String {
        fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// The end of its log, for an error message.
    pub fn tail(&self) -> String {
        tail(&self.output())
    }

    /// Its exit status once it has ended; None while it runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("wait for {}", self.name))
    }

    /// Polls `ready` until it returns true; an error when the child ends or the limit passes first.
    pub fn wait_ready(&mut self, limit: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let start = Instant::now();
        while !ready() {
            if let Some(status) = self.ended()? {
                bail!("{} ended ({status}) before it was ready:\n{}", self.name, self.tail());
            }
            ensure!(
                start.elapsed() < limit,
                "{} was not ready within {limit:?}:\n{}",
                self.name,
                self.tail()
            );
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Sends SIGKILL, then reaps: the process cannot close its sessions.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("kill {}", self.name))?;
        self.child.wait().with_context(|| format!("reap {}", self.name))?;
        Ok(())
    }

    /// SIGTERM; SIGKILL when it is still there after `limit`. True: it ended by itself.
    pub fn terminate(&mut self, limit: Duration) -> Result<bool> {
        signal("TERM", self.pid())?;
        let start = Instant::now();
        while start.elapsed() < limit {
            if self.ended()?.is_some() {
                return Ok(true);
            }
            sleep(Duration::from_millis(5));
        }
        self.kill()?;
        Ok(false)
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the end of what {} (process {}) printed:", self.name, self.pid());
            eprintln!("{}", self.tail());
        }
    }
}

/// Sends a named signal to one process through the shell's own `kill`.
pub fn signal(name: &str, pid: u32) -> Result<()> {
    let script = format!("kill -{name} {pid}");
    let status = Command::new("/bin/sh").arg("-c").arg(&script).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "`{script}`: no such process");
    Ok(())
}

/// Result of a command that was run with a time limit.
#[derive(Debug)]
pub struct Ran {
    /// None: it was killed because the limit passed.
    pub status: Option<ExitStatus>,
    /// Standard output and error, in the order printed.
    pub output: String,
    /// Wall-clock time.
    pub took: Duration,
}

impl Ran {
    /// True: ended by itself with exit code 0.
    pub fn ok(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Runs a command to its end or to the limit, whichever is first.
pub fn run_limited(command: &mut Command, limit: Duration) -> Result<Ran> {
    let scratch = Scratch::new("run")?;
    let log = scratch.path().join("output");
    let start = Instant::now();
    let mut child = Proc::start(&describe(command), command, &log)?;
    let mut pause = Duration::from_micros(500);
    let status = loop {
        if let Some(status) = child.ended()? {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill()?;
            break None;
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    Ok(Ran { status, output: child.output(), took: start.elapsed() })
}

/// Runs a command that must succeed; returns its output.
pub fn run(command: &mut Command) -> Result<String> {
    let ran = run_limited(command, COMMAND_LIMIT)?;
    let what = describe(command);
    match ran.status {
        None => bail!("`{what}` did not end within {COMMAND_LIMIT:?}:\n{}", tail(&ran.output)),
        Some(status) if !status.success() => bail!("`{what}`: {status}\n{}", tail(&ran.output)),
        Some(_) => Ok(ran.output),
    }
}

/// A copy of a program in `folder` without its debug data: a guest has little memory.
pub fn stripped(program: impl AsRef<Path>, folder: &Path) -> Result<PathBuf> {
    let program = program.as_ref();
    let small = folder.join(program.file_name().context("a program has a name")?);
    let strip =
        tool("strip").and_then(|strip| run(Command::new(strip).arg("-o").arg(&small).arg(program)));
    if strip.is_err() {
        std::fs::copy(program, &small)?;
    }
    Ok(small)
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The last lines of a text, with a note when some were left out.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match lines.len().checked_sub(TAIL_LINES) {
        None | Some(0) => text.to_string(),
        Some(more) => {
            let kept = lines.get(more..).unwrap_or_default().join("\n");
            format!("[{more} lines before]\n{kept}")
        }
    }
}

/// CPU time of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in user space, in steps of 10 ms.
    pub user: Duration,
    /// Time in the kernel, in steps of 10 ms.
    pub system: Duration,
}

impl CpuTime {
    /// Both together.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }
}

/// CPU time of all threads of a process, ended ones included (proc(5), fields 14 and 15).
pub fn cpu_time(pid: u32) -> Result<CpuTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read stat")?;
    // The name in field 2 may hold blanks and brackets: count from its last bracket.
    let (_, rest) = stat.rsplit_once(')').context("stat has no name")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || -> Result<Duration> {
        let ticks: u64 = fields.next().context("stat is short")?.parse()?;
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    };
    Ok(CpuTime { user: next()?, system: next()? })
}

/// Resident memory of a process in bytes (proc(5), statm field 2).
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).context("read statm")?;
    let pages: u64 = statm.split_whitespace().nth(1).context("statm is short")?.parse()?;
    Ok(pages * PAGE_BYTES)
}

/// The most memory that a process had resident so far, bytes (proc(5), VmHWM of status).
pub fn peak_resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let line = line.context("status has no VmHWM")?;
    let kib: u64 = line.split_whitespace().next().context("VmHWM is empty")?.parse()?;
    Ok(kib * 1024)
}

/// Resources that a process used during a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// CPU time of all its threads, ns, user space and kernel.
    pub cpu_ns: u64,
    /// System calls entered; None where the kernel does not permit counting them.
    pub syscalls: Option<u64>,
    /// Wall-clock time of the measured work.
    pub took: Duration,
}

/// Counts a process's CPU time and system calls while `work` runs.
///
/// perf counts system calls in the kernel at a few ns each. Without perf (or without the right to
/// use it) the CPU time is read from /proc in steps of 10 ms and `syscalls` is None.
pub fn counts_during<T>(pid: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, Counts)> {
    let scratch = Scratch::new("perf")?;
    let table = scratch.path().join("table");
    let mut perf = start_perf(pid, &table, &scratch.path().join("log"));
    let (before, start) = (cpu_time(pid)?, Instant::now());
    let value = work()?;
    let took = start.elapsed();
    let after = cpu_time(pid)?;
    let coarse = after.total().saturating_sub(before.total()).as_nanos() as u64;
    let mut counts = Counts { cpu_ns: coarse, syscalls: None, took };
    if let Ok(perf) = &mut perf {
        let running = perf.ended()?.is_none();
        if running && signal("INT", perf.pid()).is_ok() {
            let start = Instant::now();
            while perf.ended()?.is_none() && start.elapsed() < Duration::from_secs(5) {
                sleep(Duration::from_millis(2));
            }
        }
        let text = fs::read_to_string(&table).unwrap_or_default();
        // `task-clock` is in milliseconds with a fraction in perf's table.
        if let Some(clock) = perf_value(&text, "task-clock") {
            counts.cpu_ns = (clock * 1e6) as u64;
        }
        counts.syscalls = perf_value(&text, "raw_syscalls:sys_enter").map(|n| n as u64);
    }
    Ok((value, counts))
}

fn start_perf(pid: u32, table: &Path, log: &Path) -> Result<Proc> {
    let mut command = command("perf", None)?;
    command.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter,task-clock", "-o"]);
    command.arg(table).arg("-p").arg(pid.to_string());
    let perf = Proc::start("perf", &mut command, log)?;
    // perf prints nothing when it has attached; its table file appears just before.
    let start = Instant::now();
    while !table.exists() && start.elapsed() < Duration::from_secs(2) {
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(50));
    Ok(perf)
}

/// The first field of the line of one event in perf's table. "<not counted>" means that the
/// process did not run: zero.
fn perf_value(table: &str, event: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.split(',').any(|field| field == event))?;
    match line.split(',').next()? {
        "<not counted>" => Some(0.0),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_kills_the_process_and_keeps_its_output() {
        let mut slow = Command::new("/bin/sh");
        slow.args(["-c", "echo before; sleep 20; echo after"]);
        let ran = run_limited(&mut slow, Duration::from_millis(200)).unwrap();
        assert!(ran.status.is_none());
        assert_eq!(ran.output, "before\n");
    }

    #[test]
    fn failed_command_reports_its_output() {
        let error = run(Command::new("/bin/sh").args(["-c", "echo why; exit 3"])).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("why") && text.contains("exit status: 3"), "{text}");
    }

    #[test]
    fn child_has_cpu_time_and_is_killed_when_dropped() {
        let scratch = Scratch::new("busy").unwrap();
        let mut busy = Command::new("/bin/sh");
        busy.args(["-c", "while :; do :; done"]);
        let child = Proc::start("busy", &mut busy, &scratch.path().join("log")).unwrap();
        let pid = child.pid();
        let start = Instant::now();
        while cpu_time(pid).unwrap().total() == Duration::ZERO {
            assert!(start.elapsed() < COMMAND_LIMIT, "a busy shell uses no CPU time");
            sleep(Duration::from_millis(10));
        }
        assert!(resident_bytes(pid).unwrap() > 0);
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    /// The other half of the next test, in a process of its own.
    #[test]
    fn parent_of_a_child() {
        let Some(folder) = std::env::var_os("RIG_PARENT_OF_A_CHILD") else { return };
        let folder = PathBuf::from(folder);
        let log = folder.join("log");
        let start = move || Proc::start("sleep", Command::new("/bin/sleep").arg("600"), &log);
        let mut child = std::thread::spawn(start).join().unwrap().unwrap();
        assert!(child.ended().unwrap().is_none(), "it ended with the thread that asked for it");
        fs::write(folder.join("new"), child.pid().to_string()).unwrap();
        fs::rename(folder.join("new"), folder.join("pid")).unwrap();
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn child_ends_with_a_parent_that_is_killed() {
        let scratch = Scratch::new("parent").unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "proc::tests::parent_of_a_child"]);
        command.env("RIG_PARENT_OF_A_CHILD", scratch.path());
        let mut parent = Proc::start("parent", &mut command, &scratch.path().join("out")).unwrap();
        let place = scratch.path().join("pid");
        parent.wait_ready(COMMAND_LIMIT, || place.exists()).unwrap();
        let stat = format!("/proc/{}/stat", fs::read_to_string(&place).unwrap());
        parent.kill().unwrap();
        let start = Instant::now();
        // It stays a zombie until its new parent reaps it.
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(start.elapsed() < COMMAND_LIMIT, "it outlives its parent");
            std::thread::yield_now();
        }
    }

    #[test]
    fn perf_table_is_read() {
        let table = "# x\n\n1209812,,raw_syscalls:sys_enter,3,100.00,4,M/sec\n\
                     301.02,msec,task-clock,301015885,100.00,1.002,CPUs utilized\n";
        assert_eq!(perf_value(table, "task-clock"), Some(301.02));
        assert_eq!(perf_value(table, "raw_syscalls:sys_enter"), Some(1209812.0));
        assert_eq!(perf_value("<not counted>,,task-clock,0", "task-clock"), Some(0.0));
        assert_eq!(perf_value("", "task-clock"), None);
    }
}
