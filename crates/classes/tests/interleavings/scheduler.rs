//! The scheduler: all orders with few interruptions.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use reactor::sim::Orders;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, Runner};

/// The number of interruptions that the environment sets.
fn interruptions_override() -> Option<usize> {
    std::env::var("ASHLAR_INTERRUPTIONS").ok().and_then(|n| n.parse().ok())
}

struct Exhausting {
    orders: Orders,
    runs: Arc<AtomicU64>,
    /// Options taken in this run, for debugging.
    taken: Arc<Mutex<Vec<usize>>>,
}

impl Scheduler for Exhausting {
    fn new_execution(&mut self) -> Option<Schedule> {
        let goes_on = self.orders.begin();
        self.runs.store(self.orders.runs(), SeqCst);
        goes_on.then(|| Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        _yields: bool,
    ) -> Option<TaskId> {
        // The running task continues unless it is interrupted. When it is blocked, any task may
        // run.
        let mut order: Vec<TaskId> = runnable.iter().map(|t| t.id()).collect();
        let goes_on = current.and_then(|c| order.iter().position(|t| *t == c));
        if let Some(at) = goes_on {
            order[..=at].rotate_right(1);
        }
        let chosen = order.get(self.orders.choose(order.len(), goes_on.is_none())).copied();
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = self.orders.taken();
        chosen
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// Prints the run that failed.
struct FailureReport<'a>(&'a str, Arc<Mutex<Vec<usize>>>);

impl Drop for FailureReport<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: choices {:?}", self.0, self.1.lock());
        }
    }
}

/// Makes every run of `scenario` with at most so many interruptions of a thread that could
/// continue; there are at least `least` of them.
pub fn everything(
    what: &str,
    interruptions: usize,
    least: u64,
    scenario: impl Fn() + Send + Sync + 'static,
) {
    let interruptions = interruptions_override().unwrap_or(interruptions);
    let (runs, taken) = (Arc::new(AtomicU64::new(0)), Arc::<Mutex<Vec<usize>>>::default());
    let orders = Orders::new(interruptions);
    let scheduler = Exhausting { orders, runs: runs.clone(), taken: taken.clone() };
    let tell = FailureReport(what, taken);
    Runner::new(scheduler, Config::default()).run(scenario);
    drop(tell);
    let runs = runs.load(SeqCst);
    println!("{what}: all {runs} runs with up to {interruptions} interruptions");
    assert!(
        runs >= least || interruptions_override().is_some(),
        "{what}: {runs} runs are too few to be all"
    );
}
