//! Place of a connection among those that a target permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection's place at a target; given back when dropped.
pub(crate) struct ConnectionClaim(Arc<AtomicUsize>);

impl ConnectionClaim {
    /// One connection more; `None` when there are `most`.
    pub fn take(count: &Arc<AtomicUsize>, most: u32) -> Option<ConnectionClaim> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let one_more = |n: usize| (n < most).then_some(n + 1);
        let taken = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        taken.is_ok().then(|| ConnectionClaim(count.clone()))
    }
}

impl Drop for ConnectionClaim {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
