//! Pooled, page-aligned, bounded memory of one core.
//!
//! Invariants
//!  P1  The bytes handed out and cached together never exceed the limit. A limit that is lowered
//!      below them applies to further memory: none is taken until they are fewer.
//!  P2  A buffer returns to its pool when its last handle and its last loan are dropped, not
//!      before.
//!  P3  Memory outlives the pool's own handle for as long as one buffer is out.
//!  P4  Memory that was not needed between two calls of [`Pool::cool`] loses its pages of the
//!      system, a part with each call of [`Pool::cool_part`]. Its addresses stay, so that P1 counts
//!      it and it is available when it is needed again. A part is bounded in bytes and in calls to
//!      the system, because it takes the core from requests.
//!
//! Buffers are recycled last in, first out: a warm buffer is still in the cache. Fresh memory is
//! zeroed by the allocator, but recycled memory keeps its old bytes. Code that fills a buffer from
//! a disk or a peer must therefore fill every byte that it passes on.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Poll, Waker};

use rustix::mm::Advice;

use crate::buf::{Buf, Header};

/// Alignment of every buffer and smallest size handed out, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Sizes of buffers, in bytes, smallest first. Longer data takes several of the largest.
const CLASSES: [usize; 3] = [PAGE_BYTES, 16 * 1024, 64 * 1024];

/// Bytes that a pool keeps warm in any case: less is not worth looking after.
const WARM_BYTES: usize = 1 << 20;

/// Bytes given back after one call of [`Pool::cool`] at most: all parts of them take a few
/// milliseconds.
const COOL_BYTES: usize = 16 << 20;

/// Bytes of one part at most: the system frees 512 pages.
const PART_BYTES: usize = 2 << 20;

/// Calls to the system for one part at most, one for each buffer.
const PART_CALLS: usize = 128;

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

/// The current memory use of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Bytes taken from the system.
    pub reserved_bytes: usize,
    /// Bytes in buffers that are out.
    pub used_bytes: usize,
    /// Bytes of `reserved_bytes` whose pages the system has back.
    pub cold_bytes: usize,
    /// The bound on `reserved_bytes`.
    pub limit_bytes: usize,
    /// How often a request found the pool empty.
    pub refused: u64,
}

type Lists = [RefCell<Vec<NonNull<Header>>>; CLASSES.len()];

pub(crate) struct Inner {
    free: Lists,
    /// P4
    cold: Lists,
    reserved: Cell<usize>,
    used: Cell<usize>,
    cooled: Cell<usize>,
    /// Most that was out since the pool was cooled last.
    peak: Cell<usize>,
    /// Bytes that are still to be given back after the last call of [`Pool::cool`].
    due: Cell<usize>,
    cooler: RefCell<Option<Waker>>,
    limit: Cell<usize>,
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
            cold: Default::default(),
            reserved: Cell::new(0),
            used: Cell::new(0),
            cooled: Cell::new(0),
            peak: Cell::new(0),
            due: Cell::new(0),
            cooler: RefCell::new(None),
            limit: Cell::new(config.limit_bytes),
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
        let recycled = self.0.free[class].borrow_mut().pop().or_else(|| self.warm_up(class));
        let header = match recycled.or_else(|| self.grow(class)).or_else(|| self.evict(class)) {
            Some(h) => h,
            None => {
                self.0.refused.set(self.0.refused.get() + 1);
                return None;
            }
        };
        let used = self.0.used.get() + CLASSES[class];
        self.0.used.set(used);
        self.0.peak.set(self.0.peak.get().max(used));
        Some(Buf::adopt(header, self.0.clone()))
    }

    /// Returns the reserved and the used memory.
    pub fn usage(&self) -> PoolUsage {
        PoolUsage {
            reserved_bytes: self.0.reserved.get(),
            used_bytes: self.0.used.get(),
            cold_bytes: self.0.cooled.get(),
            limit_bytes: self.0.limit.get(),
            refused: self.0.refused.get(),
        }
    }

    /// Wakes `waker` when a buffer returns. For tasks that found the pool exhausted.
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

    /// True while a request waits for a buffer to be returned.
    pub fn is_awaited(&self) -> bool {
        !self.0.waiters.borrow().is_empty()
    }

    /// Decides how much of the memory not needed since the last call is given back to the system,
    /// at most `COOL_BYTES`. [`Pool::cool_part`] does it.
    pub fn cool(&self) {
        let (used, peak) = (self.0.used.get(), self.0.peak.get());
        self.0.peak.set(used);
        self.0.due.set(self.spare_bytes(peak - used).min(COOL_BYTES));
    }

    /// Gives a part of that memory back, the largest and longest unused buffers first. Call it once
    /// in a turn until it returns 0. Returns the number of bytes given back.
    pub fn cool_part(&self) -> usize {
        // Buffers may have been taken since.
        let due = self.0.due.get().min(self.spare_bytes(0));
        let most = due.min(PART_BYTES);
        let (mut given, mut calls) = (0, 0);
        for class in (0..CLASSES.len()).rev() {
            let mut free = self.0.free[class].borrow_mut();
            let count = ((most - given) / CLASSES[class]).min(PART_CALLS - calls).min(free.len());
            calls += count;
            // Those at the front were used least lately.
            for header in free.drain(..count) {
                // SAFETY: it is from the free list, so no handle or loan of it exists (P2).
                unsafe { give_back(header) };
                self.0.cold[class].borrow_mut().push(header);
                given += CLASSES[class];
            }
        }
        self.0.cooled.set(self.0.cooled.get() + given);
        self.0.due.set(if given > 0 { due - given } else { 0 });
        given
    }

    /// Bytes that have pages and are in no use, beyond `keep` and what is kept warm in any case.
    fn spare_bytes(&self, keep: usize) -> usize {
        (self.warm_bytes() - self.0.used.get()).saturating_sub(keep.max(WARM_BYTES))
    }

    /// Ready when the pool has more than it keeps warm in any case; else `waker` is woken when
    /// it has. For the one task that cools it.
    pub fn poll_warm(&self, waker: &Waker) -> Poll<()> {
        if self.warm_bytes() > WARM_BYTES {
            return Poll::Ready(());
        }
        *self.0.cooler.borrow_mut() = Some(waker.clone());
        Poll::Pending
    }

    /// Bytes that have pages, in use and not.
    fn warm_bytes(&self) -> usize {
        self.0.reserved.get() - self.0.cooled.get()
    }

    /// A buffer whose pages the system has; they are allocated, zeroed, at the first access.
    fn warm_up(&self, class: usize) -> Option<NonNull<Header>> {
        let header = self.0.cold[class].borrow_mut().pop()?;
        self.0.cooled.set(self.0.cooled.get() - CLASSES[class]);
        self.wake_cooler();
        Some(header)
    }

    fn wake_cooler(&self) {
        if self.warm_bytes() > WARM_BYTES
            && let Some(waker) = self.0.cooler.borrow_mut().take()
        {
            waker.wake();
        }
    }

    fn grow(&self, class: usize) -> Option<NonNull<Header>> {
        let size = CLASSES[class];
        let reserved = self.0.reserved.get();
        if reserved.checked_add(size)? > self.0.limit.get() {
            return None;
        }
        let layout = layout(class);
        // SAFETY: the layout's size is not zero (smallest class is a page).
        let bytes = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        self.0.reserved.set(reserved + size);
        self.wake_cooler();
        let header = Box::new(Header::new(bytes, size as u32, class as u8));
        Some(NonNull::from(Box::leak(header)))
    }

    /// Gives cached buffers of other sizes back to the system until one of `class` fits.
    fn evict(&self, class: usize) -> Option<NonNull<Header>> {
        for other in (0..CLASSES.len()).rev().filter(|&c| c != class) {
            while self.free_one(other) {
                if let Some(h) = self.grow(class) {
                    return Some(h);
                }
            }
        }
        None
    }
}

impl Pool {
    /// Frees up to `most` buffers that are not in use. Returns how many. For the owner of a large
    /// pool that ends: freeing all of it at once occupies the core for milliseconds.
    pub fn shrink(&self, most: usize) -> usize {
        let classes = (0..CLASSES.len()).flat_map(|class| std::iter::repeat_n(class, most));
        classes.filter(|class| self.free_one(*class)).take(most).count()
    }

    /// Sets the limit (P1). Buffers that are out stay; [`Pool::shrink`] frees the others.
    pub fn set_limit(&self, bytes: usize) {
        if self.0.limit.replace(bytes) < bytes {
            self.0.wake_waiters();
        }
    }

    /// Gives a buffer that is not in use back to the system; false: there is none.
    fn free_one(&self, class: usize) -> bool {
        let Some(victim) = self.victim(class) else { return false };
        self.0.reserved.set(self.0.reserved.get() - CLASSES[class]);
        // SAFETY: it is from the free list, so no handle or loan of it exists (P2).
        unsafe { destroy(victim) };
        true
    }

    /// A buffer that is not in use, one without pages first.
    fn victim(&self, class: usize) -> Option<NonNull<Header>> {
        let Some(cold) = self.0.cold[class].borrow_mut().pop() else {
            return self.0.free[class].borrow_mut().pop();
        };
        self.0.cooled.set(self.0.cooled.get() - CLASSES[class]);
        Some(cold)
    }
}

impl Inner {
    /// Takes back a buffer whose last handle and loan are dropped.
    pub(crate) fn release(&self, header: NonNull<Header>, class: u8) {
        let class = class as usize;
        self.used.set(self.used.get() - CLASSES[class]);
        self.free[class].borrow_mut().push(header);
        self.wake_waiters();
    }

    /// Wakes the tasks that found the pool exhausted.
    fn wake_waiters(&self) {
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
        for list in self.free.iter_mut().chain(&mut self.cold) {
            for header in list.get_mut().drain(..) {
                // SAFETY: a buffer that is out holds an `Rc` of `Inner`. So none is out now (P3),
                // and a buffer on the free list has no handle (P2).
                unsafe { destroy(header) };
            }
        }
    }
}

fn layout(class: usize) -> Layout {
    Layout::from_size_align(CLASSES[class], PAGE_BYTES).expect("a page-aligned class size")
}

/// Gives the pages of a buffer back to the system. A system that does not take them keeps them.
///
/// # Safety
/// `header` was made by `grow` and nothing else refers to it.
unsafe fn give_back(header: NonNull<Header>) {
    // SAFETY: by contract it is alive, and no other reference to it exists.
    let header = unsafe { header.as_ref() };
    let (bytes, len) = (header.bytes().as_ptr(), CLASSES[header.class() as usize]);
    // SAFETY: whole pages of one allocation (P1's sizes are multiples of a page, and so is where it
    // begins). They read as zeroes afterwards, and recycled memory may hold anything.
    let _ = unsafe { rustix::mm::madvise(bytes.cast(), len, Advice::LinuxDontNeed) };
}

/// Frees a buffer's memory and its header.
///
/// # Safety
/// `header` was made by `grow` and nothing else refers to it.
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
    fn p1_changed_limit_applies_to_further_memory() {
        let pool = Pool::new(PoolConfig { limit_bytes: 2 * PAGE_BYTES });
        let take = || pool.get(PAGE_BYTES);
        let all: Vec<Buf> = (0..2).map(|_| take().expect("below the limit")).collect();
        assert!(take().is_none());
        pool.set_limit(4 * PAGE_BYTES);
        let more: Vec<Buf> = (0..2).map(|_| take().expect("below the new limit")).collect();
        pool.set_limit(PAGE_BYTES);
        drop(more);
        assert_eq!((pool.shrink(4), pool.usage().reserved_bytes), (2, 2 * PAGE_BYTES));
        assert!(take().is_none(), "those that are out are too many");
        drop(all);
        assert_eq!(pool.shrink(1), 1);
        let last = take();
        assert!(last.is_some() && take().is_none());
        assert_eq!(pool.usage().reserved_bytes, PAGE_BYTES);
    }

    /// Ends a period; the bytes that were given back.
    fn cool(pool: &Pool) -> usize {
        pool.cool();
        std::iter::repeat_with(|| pool.cool_part()).take_while(|given| *given > 0).sum()
    }

    #[test]
    fn p4_part_that_is_given_back_at_once_is_bounded() {
        for (bytes, part) in [(PAGE_BYTES, PART_CALLS * PAGE_BYTES), (64 * 1024, PART_BYTES)] {
            let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
            let take = |_| pool.get(bytes).expect("below the limit");
            let all: Vec<Buf> = (0..(32 << 20) / bytes).map(take).collect();
            drop(all);
            assert_eq!((cool(&pool), pool.cool_part()), (0, 0), "it was needed just now");
            pool.cool();
            let parts: Vec<usize> = (0..COOL_BYTES / part).map(|_| pool.cool_part()).collect();
            assert_eq!(parts, vec![part; COOL_BYTES / part]);
            assert_eq!(pool.cool_part(), 0, "until the next period");
            // Memory that is needed meanwhile stays.
            pool.cool();
            let again: Vec<Buf> = (0..(15 << 20) / bytes).map(take).collect();
            assert_eq!(pool.cool_part(), 0, "{} B", pool.usage().cold_bytes);
            drop(again);
        }
    }

    #[test]
    fn p4_unneeded_memory_loses_its_pages_and_is_available_again() {
        let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
        let waker = Waker::noop();
        assert!(pool.poll_warm(waker).is_pending());
        let fill = |pool: &Pool, count: usize| -> Vec<Buf> {
            let take = |_| {
                let buf = pool.get(64 * 1024).expect("below the limit");
                buf.seg(0, 64 * 1024).expect("whole").copy_from(0, &[7; 64 * 1024]);
                buf
            };
            (0..count).map(take).collect()
        };
        let all = fill(&pool, 512);
        assert!(pool.poll_warm(waker).is_ready());
        assert_eq!(cool(&pool), 0, "all of it is out");
        drop(all);
        assert_eq!(cool(&pool), 0, "it was needed just now");
        assert_eq!(cool(&pool), COOL_BYTES, "and not since");
        let few = fill(&pool, 16);
        drop(few);
        assert_eq!(cool(&pool), (32 << 20) - COOL_BYTES - WARM_BYTES, "the rest");
        assert!(pool.poll_warm(waker).is_pending());
        let usage = pool.usage();
        assert_eq!((usage.reserved_bytes, usage.cold_bytes), (32 << 20, 31 << 20));
        let all = fill(&pool, 1024);
        assert_eq!(pool.usage().cold_bytes, 0);
        assert!(pool.get(1).is_none(), "P1");
        drop(all);
        while cool(&pool) > 0 || pool.usage().cold_bytes == 0 {}
        let small: Vec<Buf> = (0..16384).map(|_| pool.get(1).expect("evicted")).collect();
        assert_eq!(pool.usage().reserved_bytes, small.len() * PAGE_BYTES);
    }

    #[test]
    fn shrink_frees_so_many_buffers_that_are_not_in_use() {
        let pool = Pool::new(PoolConfig::default());
        let small: Vec<Buf> = (0..5).map(|_| pool.get(1).expect("below the limit")).collect();
        let large = pool.get(64 * 1024).expect("below the limit");
        assert_eq!(pool.shrink(10), 0, "all are in use");
        drop((small, large));
        assert_eq!((pool.shrink(3), pool.usage().reserved_bytes), (3, 2 * PAGE_BYTES + 64 * 1024));
        assert_eq!((pool.shrink(10), pool.usage().reserved_bytes), (3, 0));
        assert!(pool.get(1).is_some(), "it grows again");
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
