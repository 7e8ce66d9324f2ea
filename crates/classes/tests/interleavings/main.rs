//! Code that several cores share, in every order of its steps.
//!
//! The files of `members` that use atomics and locks are built here a second time, on types that
//! hand each step to a scheduler. That scheduler makes every run in which a thread that could
//! continue is interrupted at most so often, and none twice (`reactor::sim::Orders`). A thread that
//! would wait for ever is a failure, too. `ASHLAR_INTERRUPTIONS=N` allows more or fewer everywhere.
//! This is a binary of its own, because those files name the root of their crate.

mod gate_orders;
mod partial_failure_orders;
mod per_core_orders;
mod ranges_orders;
mod scheduler;
mod trim_orders;
mod wakeup;

/// Instead of the types of `members::sync` and `trim::sync`.
mod sync {
    pub use shuttle::sync::MutexGuard;
    pub use shuttle::sync::atomic::{
        AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst,
    };

    /// `bio::sync::Mutex` on shuttle's.
    #[derive(Debug, Default)]
    pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }
    }

    impl<T: ?Sized> Mutex<T> {
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

// Code that the scenarios do not use is used by the classes.
#[allow(dead_code)]
#[path = "../../src/members/partial_failures.rs"]
mod partial_failures;
#[allow(dead_code)]
#[path = "../../src/members/per_core.rs"]
mod per_core;
#[allow(dead_code)]
#[path = "../../src/trim/queue.rs"]
mod queue;
#[allow(dead_code)]
#[path = "../../src/members/ranges.rs"]
mod ranges;
#[allow(dead_code)]
#[path = "../../src/members/write_gate.rs"]
mod write_gate;

use scheduler::everything;
use wakeup::Wakeup;
