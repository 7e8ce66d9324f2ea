//! A shared object reached without stepping over its reference counts.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// An `Arc<T>` whose pointee's address was resolved once.
///
/// Reading through `Arc<dyn Trait>` computes the place of the value behind two counters for each
/// call. In a table of layers that a request walks, this costs more than the layer itself.
pub struct ResolvedArc<T: ?Sized> {
    at: NonNull<T>,
    keep: Arc<T>,
}

impl<T: ?Sized> ResolvedArc<T> {
    /// Resolves the address and keeps the object alive.
    pub fn new(keep: Arc<T>) -> ResolvedArc<T> {
        ResolvedArc { at: NonNull::from(&*keep), keep }
    }

    /// The counted handle.
    pub fn arc(&self) -> &Arc<T> {
        &self.keep
    }
}

impl<T: ?Sized> Clone for ResolvedArc<T> {
    fn clone(&self) -> Self {
        ResolvedArc { at: self.at, keep: self.keep.clone() }
    }
}

impl<T: ?Sized> Deref for ResolvedArc<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `keep` owns the value for as long as `self` lives, an `Arc`'s value never moves,
        // and `self` gives out shared references only, as the `Arc` itself would.
        unsafe { self.at.as_ref() }
    }
}

// SAFETY: `ResolvedArc` adds to its `Arc` only a copy of the address it derefs to.
unsafe impl<T: ?Sized> Send for ResolvedArc<T> where Arc<T>: Send {}
// SAFETY: as above.
unsafe impl<T: ?Sized> Sync for ResolvedArc<T> where Arc<T>: Sync {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clone_keeps_the_value_alive() {
        let p = {
            let a: Arc<dyn Fn() -> u32 + Send + Sync> = Arc::new(|| 7);
            ResolvedArc::new(a)
        };
        let q = p.clone();
        drop(p);
        assert_eq!(q(), 7);
    }
}
