//! A value in a shared object that only one thread uses, without a lock.
//!
//! Invariants
//!  O1  The first thread that reads it owns the value for good. No other thread ever reaches it,
//!      except the one that drops it.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers given to threads so far; zero means no owner.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// A thread that has no number yet: no value's owner.
const UNNUMBERED: u64 = u64::MAX;

thread_local! {
    /// This thread's number: no other ever has it.
    static ME: Cell<u64> = const { Cell::new(UNNUMBERED) };
}

/// Per-core state in a layer that all cores share. An uncontended lock would cost two locked
/// instructions, more than the rest of a layer; this costs a comparison.
#[derive(Default)]
pub struct Owned<T> {
    owner: AtomicU64,
    value: RefCell<T>,
}

// SAFETY: the value is reached through `get` only, by one thread (O1), and through `Drop`, when no
// other thread has the object. A value that is made here and used or dropped there is `Send`.
unsafe impl<T: Send> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// A value without an owner.
    pub fn new(value: T) -> Owned<T> {
        Owned { owner: AtomicU64::new(0), value: RefCell::new(value) }
    }

    /// The value, for the thread that owns it: the first reader. Panics when another thread reads
    /// it, or when it is in use already: a bug of ours.
    #[inline]
    pub fn get(&self) -> RefMut<'_, T> {
        if self.owner.load(Relaxed) != ME.get() {
            self.claim();
        }
        self.value.borrow_mut()
    }

    #[cold]
    fn claim(&self) {
        if ME.get() == UNNUMBERED {
            // 2^64 threads would have to be started before a number is repeated.
            ME.set(THREADS.fetch_add(1, Relaxed) + 1);
        }
        let me = ME.get();
        if self.owner.load(Relaxed) == me {
            return;
        }
        let claimed = self.owner.compare_exchange(0, me, Relaxed, Relaxed);
        assert!(claimed.is_ok(), "O1: another thread owns this");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O1.
    #[test]
    fn value_is_accessible_to_its_first_thread_only() {
        let owned = Owned::new(1);
        std::thread::scope(|s| {
            let first = s.spawn(|| *owned.get() += 1);
            assert!(first.join().is_ok(), "it was nobody's");
            assert!(s.spawn(|| *owned.get()).join().is_err(), "not even when the owner has ended");
        });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| *owned.get())).is_err());
    }

    #[test]
    fn value_is_borrowed_once_at_a_time() {
        let owned = Owned::new(7);
        let lent = owned.get();
        let again = std::panic::AssertUnwindSafe(|| *owned.get());
        assert!(std::panic::catch_unwind(again).is_err());
        drop(lent);
        assert_eq!(*owned.get(), 7);
    }
}
