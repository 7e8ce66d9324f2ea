//! Task that takes the samples while the API is served.

use crate::service::Control;
use crate::time_slices::drop_state;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(10);

/// Readings take at most one part in so many of the time (H3).
const SHARE: u32 = 100;

/// Pause after a reading of this duration.
fn pause(took: Duration) -> Duration {
    INTERVAL.saturating_sub(took).max(took.saturating_mul(SHARE - 1))
}

/// Takes samples until the process ends.
pub async fn take_samples(control: Arc<Control>) {
    loop {
        let (began, read) = (Instant::now(), control.clone());
        let taken = tokio::task::spawn_blocking(move || {
            let figures = read.figures()?;
            read.samples().record(&figures);
            drop_state(figures);
            Ok::<(), crate::api::Error>(())
        });
        // A daemon that is busy or stops has no reading; the next sample is longer.
        if let Ok(Err(e)) = taken.await {
            tracing::debug!("no sample of the counters: {e}");
        }
        tokio::time::sleep(pause(began.elapsed())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H3 of samples/mod.rs.
    #[test]
    fn long_readings_are_taken_less_often() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(0)), ms(10_000));
        assert_eq!(pause(ms(80)), ms(9_920));
        assert_eq!(pause(ms(1_000)), ms(99_000));
    }
}
