//! Turns of the tests: the whole machine for one, or a share of it beside others.
//!
//! A test in a turn of its own has the interfaces and loop devices of the machine for itself, may
//! boot guests and may load both cores. A test with a share has what its folder and its ports hold.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// The lock of a thread's first turn; its other turns need none.
enum Lock {
    Whole { _guard: RwLockWriteGuard<'static, ()> },
    Share { _guard: RwLockReadGuard<'static, ()> },
}

/// State of a thread: the lock, and how many turns use it.
struct Held {
    turns: usize,
    lock: Option<Lock>,
}

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held { turns: 0, lock: None }) };
}

/// A turn. It cannot be sent to another thread, because it ends with the last one of its thread.
pub struct Turn(PhantomData<RwLockReadGuard<'static, ()>>);

impl Turn {
    /// Waits until no other thread has a turn. A thread that has one gets another at once. A test
    /// that failed during its turn does not stop the next one.
    pub fn whole() -> Turn {
        Turn::held(|| {
            let guard = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
            Lock::Whole { _guard: guard }
        })
        .only_whole()
    }

    /// Waits until no other thread has the whole machine.
    pub fn share() -> Turn {
        Turn::held(|| {
            let guard = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
            Lock::Share { _guard: guard }
        })
    }

    fn held(lock: impl FnOnce() -> Lock) -> Turn {
        HELD.with_borrow_mut(|held| {
            held.lock.get_or_insert_with(lock);
            held.turns += 1;
        });
        Turn(PhantomData)
    }

    /// A share cannot become the whole: two tests that want that would wait for each other.
    fn only_whole(self) -> Turn {
        HELD.with_borrow(|held| {
            assert!(matches!(held.lock, Some(Lock::Whole { .. })), "this test has only a share");
        });
        self
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
