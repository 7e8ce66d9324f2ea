//! Fail-stop: a panic of any thread ends the daemon at once.
//!
//! A core that unwinds closes its sockets and leaves the others with state that it was in the
//! middle of changing. Hosts would be served from that. A process that has ended is started again
//! by its supervisor, and hosts notice no more than a restart.
//!
//! Invariants
//!  S1  No destructor of a thread that panicked runs: its partial changes are never seen.
//!  S2  The process ends within `LOG_MAX`, also when the log cannot be written.

use std::backtrace::Backtrace;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bio::LastRequest;

/// How long the log may take.
const LOG_MAX: Duration = Duration::from_secs(2);

/// From now on a panic ends this process with SIGABRT (exit code 134 in a shell), once it serves.
/// That of another command is reported as Rust does.
pub fn install() {
    let as_rust_does = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match mgmt::is_daemon() {
        true => end(info),
        false => as_rust_does(info),
    }));
}

/// For tests, and not in a release build. A core that has carried a request panics when there is a
/// file at the path that `ASHLAR_PANIC_WHEN` names.
#[cfg(debug_assertions)]
pub(crate) fn force(core: &std::rc::Rc<geom::Core>) {
    const LOOK_NS: u64 = 5_000_000;
    let Some(path) = std::env::var_os("ASHLAR_PANIC_WHEN") else { return };
    let mine = core.clone();
    drop(core.reactor().spawn("panic", async move {
        loop {
            mine.reactor().sleep(LOOK_NS).await;
            let asked = LastRequest::last().is_some() && std::path::Path::new(&path).exists();
            assert!(!asked, "forced by {path:?}");
        }
    }));
}

fn end(info: &PanicHookInfo<'_>) -> ! {
    static ENDS: AtomicBool = AtomicBool::new(false);
    if ENDS.swap(true, Ordering::AcqRel) {
        // Another thread writes the log and ends all. (A panic within this hook aborts by itself.)
        loop {
            std::thread::park();
        }
    }
    // S2. Without this thread the log is all that is waited for.
    let _ = std::thread::Builder::new().name("ashlar-end".into()).spawn(|| {
        std::thread::sleep(LOG_MAX);
        std::process::abort();
    });
    mgmt::flush_log();
    let mut log = std::io::stderr().lock();
    // Nothing can be done when it cannot be written. The way there takes longest and is last.
    let _ = log.write_all(words(info).as_bytes());
    let _ = writeln!(log, "{}", Backtrace::force_capture());
    std::process::abort();
}

/// The text of the log line: thread, place, reason, task and last request.
fn words(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("a thread without a name");
    let place = info.location().map_or(String::new(), |at| format!(" at {at}"));
    let why = info.payload_as_str().unwrap_or("no words");
    let task = match reactor::running_task() {
        "" => String::new(),
        task => format!("task: {task}\n"),
    };
    let request =
        LastRequest::last().map_or(String::new(), |doing| format!("last request: {doing}\n"));
    format!(
        "ASHLAR PANIC: {thread}{place}: {why}\n{task}{request}The daemon ends here rather than go \
         on with state that may be wrong. Its supervisor starts it again; please report these \
         lines.\n"
    )
}
