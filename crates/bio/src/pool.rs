//! Pooled, page-aligned, bounded memory of one core.
//!
//! Invariants
//!  P1  The bytes handed out and cached together never exceed `limit_bytes`.
//!  P2  A buffer goes back to its pool when its last handle and its last loan are gone, not before.
//!  P3  Memory outlives the pool's own handle for as long as one buffer is out.
//!
//! Buffers are recycled last in, first out: a warm buffer is still in the cache. Fresh memory is
//! zeroed by the allocator; recycled memory keeps its old bytes, so whoever fills a buffer from a
//! disk or a peer fills all of what it passes on.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::Waker;

use crate::buf::{Buf, Header};

/// Alignment of every buffer and smallest size handed out, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Sizes of buffers, in bytes, smallest first. Longer data takes several of the largest.
const CLASSES: [usize; 3] = [PAGE_BYTES, 16 * 1024, 64 * 1024];

/// Tasks that may wait for a free buffer at once; a further one is woken at once and tries again.
const WAITERS_MAX: usize = 4096;

/// Shape of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Bytes the pool may ever hold. Reaching it makes [`Pool::get`] answer `None`: back-pressure.
    pub limit_bytes: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig { limit_bytes: 64 << 20 }
    }
}

/// What a pool holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Bytes taken from the system.
    pub reserved_bytes: usize,
    /// Bytes in buffers that are out.
    pub used_bytes: usize,
    /// The bound on `reserved_bytes`.
    pub limit_bytes: usize,
    /// How often a request found the pool empty.
    pub refused: u64,
}

pub(crate) struct Inner {
    free: [RefCell<Vec<NonNull<Header>>>; CLASSES.len()],
    reserved: Cell<usize>,
    used: Cell<usize>,
    limit: usize,
    refused: Cell<u64>,
    waiters: RefCell<Vec<Waker>>,
}

/// A handle on the pool of this core. Clones share it; it never leaves its thread.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

impl Pool {
    /// An empty pool; memory is taken as it is first needed.
    pub fn new(config: PoolConfig) -> Pool {
        Pool(Rc::new(Inner {
            free: Default::default(),
            reserved: Cell::new(0),
            used: Cell::new(0),
            limit: config.limit_bytes,
            refused: Cell::new(0),
            waiters: RefCell::new(Vec::new()),
        }))
    }

    /// Largest buffer, in bytes.
    pub const fn largest() -> usize {
        CLASSES[CLASSES.len() - 1]
    }

    /// A buffer of at least `len` bytes, or as large as there is when `len` is beyond
    /// [`Pool::largest`]. `None` when the pool is exhausted.
    pub fn get(&self, len: usize) -> Option<Buf> {
        let class = CLASSES.iter().position(|&c| c >= len).unwrap_or(CLASSES.len() - 1);
        let recycled = self.0.free[class].borrow_mut().pop();
        let header = match recycled.or_else(|| self.grow(class)).or_else(|| self.evict(class)) {
            Some(h) => h,
            None => {
                self.0.refused.set(self.0.refused.get() + 1);
                return None;
            }
        };
        self.0.used.set(self.0.used.get() + CLASSES[class]);
        Some(Buf::adopt(header, self.0.clone()))
    }

    /// What is held and what is out.
    pub fn usage(&self) -> PoolUsage {
        PoolUsage {
            reserved_bytes: self.0.reserved.get(),
            used_bytes: self.0.used.get(),
            limit_bytes: self.0.limit,
            refused: self.0.refused.get(),
        }
    }

    /// Wakes `waker` when a buffer comes back. For tasks that found the pool exhausted.
    pub fn wake_on_free(&self, waker: &Waker) {
        let mut waiters = self.0.waiters.borrow_mut();
        if waiters.iter().any(|w| w.will_wake(waker)) {
            return;
        }
        if waiters.len() == WAITERS_MAX {
            waker.wake_by_ref();
        } else {
            waiters.push(waker.clone());
        }
    }

    /// True while somebody waits for a buffer to come back.
    pub fn is_awaited(&self) -> bool {
        !self.0.waiters.borrow().is_empty()
    }

    fn grow(&self, class: usize) -> Option<NonNull<Header>> {
        let size = CLASSES[class];
        let reserved = self.0.reserved.get();
        if reserved.checked_add(size)? > self.0.limit {
            return None;
        }
        let layout = layout(class);
        // SAFETY: the layout's size is not zero (smallest class is a page).
        let bytes = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        self.0.reserved.set(reserved + size);
        let header = Box::new(Header::new(bytes, size as u32, class as u8));
        Some(NonNull::from(Box::leak(header)))
    }

    /// Gives cached buffers of other sizes back to the system until one of `class` fits.
    fn evict(&self, class: usize) -> Option<NonNull<Header>> {
        for other in (0..CLASSES.len()).rev().filter(|&c| c != class) {
            while let Some(victim) = { self.0.free[other].borrow_mut().pop() } {
                self.0.reserved.set(self.0.reserved.get() - CLASSES[other]);
                // SAFETY: it came from the free list, so no handle or loan of it exists (P2).
                unsafe { destroy(victim) };
                if let Some(h) = self.grow(class) {
                    return Some(h);
                }
            }
        }
        None
    }
}

impl Inner {
    /// Takes back a buffer whose last handle and loan are gone.
    pub(crate) fn release(&self, header: NonNull<Header>, class: u8) {
        let class = class as usize;
        self.used.set(self.used.get() - CLASSES[class]);
        self.free[class].borrow_mut().push(header);
        if !self.waiters.borrow().is_empty() {
            let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
            for w in waiters {
                w.wake();
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for list in &mut self.free {
            for header in list.get_mut().drain(..) {
                // SAFETY: a buffer that is out holds an `Rc` of `Inner`, so none is out now (P3),
                // and what is on the free list has no handle (P2).
                unsafe { destroy(header) };
            }
        }
    }
}

fn layout(class: usize) -> Layout {
    Layout::from_size_align(CLASSES[class], PAGE_BYTES).expect("a page-aligned class size")
}

/// Frees a buffer's memory and its header.
///
/// # Safety
/// `header` came from `grow` and nothing else refers to it.
unsafe fn destroy(header: NonNull<Header>) {
    // SAFETY: `grow` leaked it from a Box, and by contract this is the last reference.
    let header = unsafe { Box::from_raw(header.as_ptr()) };
    // SAFETY: allocated in `grow` with the layout of the same class.
    unsafe { dealloc(header.bytes().as_ptr(), layout(header.class() as usize)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_the_limit_holds_and_freed_memory_serves_any_size() {
        let pool = Pool::new(PoolConfig { limit_bytes: 128 * 1024 });
        let small: Vec<Buf> = (0..32).map(|_| pool.get(1).unwrap()).collect();
        assert!(pool.get(1).is_none(), "exhausted");
        assert_eq!(pool.usage().refused, 1);
        drop(small);
        let big = pool.get(64 * 1024).expect("small buffers are given back for a large one");
        assert!(pool.usage().reserved_bytes <= 128 * 1024);
        assert_eq!(big.capacity(), 64 * 1024);
    }

    #[test]
    fn p3_a_buffer_outlives_the_pool_handle() {
        let pool = Pool::new(PoolConfig::default());
        let buf = pool.get(4096).unwrap();
        drop(pool);
        let seg = buf.seg(0, 16).unwrap();
        seg.copy_from(0, b"still here");
        let mut out = [0; 10];
        seg.copy_to(0, &mut out);
        assert_eq!(&out, b"still here");
    }

    #[test]
    fn buffers_are_page_aligned_and_recycled_last_in_first_out() {
        let pool = Pool::new(PoolConfig::default());
        let a = pool.get(5000).unwrap();
        assert_eq!(a.address() % PAGE_BYTES, 0);
        let was = a.address();
        drop(a);
        assert_eq!(pool.get(5000).unwrap().address(), was);
    }
}
