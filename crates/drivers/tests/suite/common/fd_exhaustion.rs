//! A process that runs out of descriptors. Sessions continue, nothing spins, the journal reports
//! that once, and waiting connections are served when descriptors are available again.
//!
//! The server is this test binary in a second process, under `prlimit`; [`INSIDE`] selects it.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rig::proc::{self, Scratch};

/// Set in the process that serves.
const INSIDE: &str = "ASHLAR_TEST_SERVES";

/// Descriptors of the process that serves.
const DESCRIPTORS: &str = "--nofile=80:80";

/// Connections that want in.
const CROWD: usize = 200;

/// Processor time that waiting may take in [`WATCHED`].
const TICKS_MAX: u64 = 40;
const WATCHED: Duration = Duration::from_secs(2);

/// Longest wait for anything.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// Lines of the journal, to standard error.
struct Journal;

impl tracing::field::Visit for Journal {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            eprintln!("journal: {value:?}");
        }
    }
}

impl tracing::Subscriber for Journal {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Journal);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// In the process that serves: starts a server and keeps it until standard input ends. `start`
/// returns it and its portal. False in any other process.
pub fn serves<S>(start: impl FnOnce() -> (S, SocketAddr)) -> bool {
    if std::env::var_os(INSIDE).is_none() {
        return false;
    }
    tracing::subscriber::set_global_default(Journal).unwrap();
    let (_server, portal) = start();
    println!("\nportal {portal}");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    true
}

struct ServerProcess {
    child: Child,
    portal: SocketAddr,
    scratch: Scratch,
}

impl ServerProcess {
    fn start(test: &str) -> ServerProcess {
        let scratch = Scratch::new("drivers-strain").unwrap();
        let mut command = Command::new(proc::tool("prlimit").unwrap());
        command.arg(DESCRIPTORS).arg(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(std::fs::File::create(scratch.path().join("journal")).unwrap());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let portal = loop {
            let line = lines.next().expect("a portal").unwrap();
            if let Some(portal) = line.strip_prefix("portal ") {
                break portal.parse().unwrap();
            }
        };
        // Further output is dropped.
        std::thread::spawn(move || lines.for_each(drop));
        ServerProcess { child, portal, scratch }
    }

    fn journal(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("journal")).unwrap()
    }

    fn until(&self, what: &str) {
        let begun = Instant::now();
        while !self.journal().contains(what) {
            assert!(begun.elapsed() < WAIT_LIMIT, "no {what:?} in\n{}", self.journal());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Processor time so far, ticks of a hundredth of a second.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Its standard input ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Plays it against a server of `test`; `enter` answers a client's own command, to be repeated.
pub fn runs_out<C: FnMut()>(test: &str, enter: impl Fn(SocketAddr) -> C) {
    let other = ServerProcess::start(test);
    let mut early = enter(other.portal);
    early();
    let crowd: Vec<TcpStream> =
        (0..CROWD).map(|_| TcpStream::connect(other.portal).unwrap()).collect();
    other.until("cannot accept connections");
    let before = other.ticks();
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        early();
        // Processor time is counted while the server has nothing to do.
        std::thread::sleep(Duration::from_millis(100));
    }
    let ticks = other.ticks() - before;
    assert!(ticks <= TICKS_MAX, "{ticks} ticks in {WATCHED:?}: it spins");
    assert_eq!(other.journal().matches("cannot accept").count(), 1, "{}", other.journal());
    drop(crowd);
    other.until("accepted again");
    let mut late = enter(other.portal);
    late();
    early();
    assert!(!other.journal().contains("panicked"), "{}", other.journal());
}
