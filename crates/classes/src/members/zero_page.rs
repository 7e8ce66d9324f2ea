//! Zeroes to write: a buffer per thread that is shared by all users and never modified.

use std::cell::OnceCell;

use bio::{Pool, PoolConfig, Segs};

/// Bytes of it.
pub(crate) const BLANK: u64 = 64 << 10;

/// What its pool may hold.
const POOL_BYTES: usize = 2 * BLANK as usize;

thread_local! {
    static ZEROES: OnceCell<Segs> = const { OnceCell::new() };
}

/// [`BLANK`] zeroes, taken once. `None` when the system has no memory for them.
pub(crate) fn zero_page() -> Option<Segs> {
    ZEROES.with(|cell| {
        if cell.get().is_none() {
            let pool = Pool::new(PoolConfig { limit_bytes: POOL_BYTES });
            let all = Segs::alloc(&pool, BLANK as usize)?;
            all.fill(0, all.len(), 0);
            let _ = cell.set(all);
        }
        let mut out = Segs::new();
        let all = cell.get()?;
        all.slice_into(0, all.len(), &mut out).then_some(out)
    })
}
