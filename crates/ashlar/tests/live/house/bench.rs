//! `qemu-img bench` on a unit, again and again until it is stopped: as many writes as it takes,
//! however fast the machine, and each of them has to be answered.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rig::proc::{self, Proc};

/// Writes of one turn, and how many are under way at a time.
const TURN: &str = "20000";
const DEPTH: &str = "8";
/// Longest way to the end of a turn.
const END_LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);

/// Writes, until [`Bench::ends_well`].
pub struct Bench {
    over: Arc<AtomicBool>,
    /// The turn that goes on, to be killed where a test fails.
    turn: Arc<Mutex<Option<Proc>>>,
    /// Taken when it ends; the output of a failed write.
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Bench {
    /// Writes of so many bytes to this unit; the output is in the file `log`.
    pub fn start(url: &str, bytes: u32, log: &Path) -> Bench {
        let words = ["bench", "-w", "-t", "none", "-f", "raw", "-c", TURN, "-d", DEPTH, "-s"];
        let mut command = Command::new(proc::tool("qemu-img").unwrap());
        command.args(words).arg(bytes.to_string()).arg(url);
        let (over, turn) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (ends, place, log) = (over.clone(), turn.clone(), log.to_path_buf());
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Acquire) {
                let proc = Proc::start("qemu-img bench", &mut command, &log).unwrap();
                *lock(&place) = Some(proc);
                if !end_of(&place).success() {
                    return Err(std::fs::read_to_string(&log).unwrap_or_default());
                }
            }
            Ok(())
        });
        Bench { over, turn, thread: Some(thread) }
    }

    /// Lets its turn end; nothing has failed, and nothing hangs.
    #[track_caller]
    pub fn ends_well(mut self) {
        self.over.store(true, Ordering::Release);
        let (thread, start) = (self.thread.take().unwrap(), Instant::now());
        while !thread.is_finished() {
            assert!(start.elapsed() < END_LIMIT, "no end of the load within {END_LIMIT:?}");
            sleep(POLL);
        }
        if let Err(said) = thread.join().unwrap() {
            panic!("{said}");
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(turn) = lock(&self.turn).as_mut() {
            let _ = turn.kill();
        }
    }
}

fn lock(turn: &Mutex<Option<Proc>>) -> MutexGuard<'_, Option<Proc>> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the end of a turn.
fn end_of(turn: &Mutex<Option<Proc>>) -> ExitStatus {
    loop {
        let ended = lock(turn).as_mut().and_then(|turn| turn.ended().unwrap());
        match ended {
            Some(status) => return status,
            None => sleep(POLL),
        }
    }
}
