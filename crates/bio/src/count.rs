//! A counting allocator, with which a test can prove that a path does not allocate.
//!
//! A test binary declares `#[global_allocator] static COUNTED: CountingAlloc = CountingAlloc;`,
//! which needs no `unsafe` there. Programs do not use it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a counter a thread.
pub struct CountingAlloc;

thread_local! {
    // Neither made lazily nor dropped: the allocator may be called at any time in a thread's life.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Allocations and reallocations that this thread has made since it began; always zero where
/// [`CountingAlloc`] is not the global allocator.
pub fn allocations() -> u64 {
    MADE.get()
}

fn note() {
    MADE.set(MADE.get() + 1);
}

// SAFETY: every call is handed to `System` as received; counting touches no heap memory.
unsafe impl GlobalAlloc for CountingAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
