//! Rate limit of background work, in bytes a second.

use std::rc::Rc;

use geom::Core;

/// Waits until `bytes` more may be handled, at `rate` bytes a second (zero: no limit); returns the
/// time up to which has been paid.
pub(crate) async fn wait_for_rate(core: &Rc<Core>, rate: u64, paid: u64, bytes: u64) -> u64 {
    let now = core.reactor().fresh_now();
    if rate == 0 {
        return now;
    }
    let cost = (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
    // Unused rate is not accumulated.
    let until = paid.max(now.saturating_sub(cost)).saturating_add(cost);
    if until > now {
        core.reactor().sleep(until - now).await;
    }
    until
}
