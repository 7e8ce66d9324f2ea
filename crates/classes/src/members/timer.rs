//! Timers of geoms, on core 0.

use geom::{GeomId, Notifier};

/// Notifies a geom after a while.
pub(crate) fn post_after<M: Send + 'static>(
    notifier: &Notifier,
    geom: GeomId,
    ns: u64,
    message: M,
) {
    let back = notifier.clone();
    notifier.call(
        0,
        Box::new(move |core| {
            let core = core.clone();
            core.reactor().clone().spawn("timer of a geom", async move {
                core.reactor().sleep(ns).await;
                back.post(geom, Box::new(message));
            });
        }),
    );
}
