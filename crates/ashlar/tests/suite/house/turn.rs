//! Turns of the tests. In its turn a test has the cores, interfaces and loop devices of the machine
//! for itself, and may boot guests.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// What a thread holds: the lock, and how many turns use it.
struct Held {
    turns: usize,
    lock: Option<MutexGuard<'static, ()>>,
}

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held { turns: 0, lock: None }) };
}

/// A turn. It cannot be sent to another thread, because it ends with the last one of its thread.
pub struct Turn(PhantomData<MutexGuard<'static, ()>>);

impl Turn {
    /// Waits until no other thread has a turn. A thread that has one gets another at once. A test
    /// that failed during its turn does not stop the next one.
    pub fn take() -> Turn {
        HELD.with_borrow_mut(|held| {
            if held.turns == 0 {
                held.lock = Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
            }
            held.turns += 1;
        });
        Turn(PhantomData)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            held.turns -= 1;
            if held.turns == 0 {
                held.lock = None;
            }
        });
    }
}
