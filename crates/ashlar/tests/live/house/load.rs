//! An initiator that writes, reads back and compares without a pause, in one session.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rig::proc;

/// Longest wait for a few rounds.
const ROUNDS_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of a write.
const BLOCK: u64 = 64 << 10;

/// A session of qemu-io; ended with [`Load::finish`].
pub struct Load {
    child: Child,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

struct Talk {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Talk {
    /// Sends one command to qemu-io and waits until it is done.
    fn say(&mut self, command: &str) -> Result<(), String> {
        writeln!(self.to, "{command}").map_err(|e| format!("{command}: {e}"))?;
        let mut all = String::new();
        loop {
            let mut line = String::new();
            match self.from.read_line(&mut line) {
                Ok(n) if n > 0 => all.push_str(&line),
                other => return Err(format!("{command}: it ended ({other:?})\n{all}")),
            }
            if line.contains("failed") {
                return Err(format!("{command}: {all}"));
            }
            if line.contains(" ops;") {
                return Ok(());
            }
        }
    }
}

impl Load {
    /// Starts on the first `bytes` of a unit.
    pub fn start(url: &str, bytes: u64) -> Load {
        // Its output goes into a pipe, a line at a time.
        let mut command = Command::new(proc::tool("stdbuf").unwrap());
        command.arg("-oL").arg(proc::tool("qemu-io").unwrap()).args(["-f", "raw", url]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), rounds.clone());
        let thread = std::thread::spawn(move || {
            let mut talk = Talk { to, from: BufReader::new(from) };
            while !stopped.load(Ordering::Relaxed) {
                let n = counted.load(Ordering::Relaxed);
                let (at, pattern) = (n * 7 % (bytes / BLOCK) * BLOCK, n % 255 + 1);
                talk.say(&format!("write -P {pattern} {at} {BLOCK}"))?;
                talk.say(&format!("read -P {pattern} {at} {BLOCK}"))?;
                counted.fetch_add(1, Ordering::Relaxed);
            }
            writeln!(talk.to, "quit").map_err(|e| e.to_string())
        });
        let load = Load { child, stop, rounds, thread: Some(thread) };
        load.goes_on();
        load
    }

    /// Waits for a few more rounds, begun after this call.
    #[track_caller]
    pub fn goes_on(&self) {
        let wanted = self.rounds.load(Ordering::Relaxed) + 3;
        let start = Instant::now();
        while self.rounds.load(Ordering::Relaxed) < wanted {
            let ended = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!ended, "the load has ended");
            assert!(start.elapsed() < ROUNDS_LIMIT, "no I/O within {ROUNDS_LIMIT:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// How many times it wrote and compared.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Stops the load; everything it read was equal to its writes.
    #[track_caller]
    pub fn finish(mut self) -> u64 {
        self.goes_on();
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().unwrap();
        if let Err(e) = thread.join().unwrap() {
            panic!("{e}");
        }
        assert!(self.child.wait().unwrap().success());
        self.rounds()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
