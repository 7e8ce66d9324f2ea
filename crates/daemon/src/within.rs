//! Calls that hang while a path does not answer, each on a thread of its own with a deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Calls under way at once; a further one is not made.
const CALLS_MAX: usize = 64;

/// Calls under way, those that hang among them.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// One of the calls under way.
struct Call;

impl Call {
    /// `None`: there are too many.
    fn begin() -> Option<Call> {
        let before = CALLS.fetch_add(1, Ordering::Relaxed);
        // Dropped when it is refused, too.
        let call = Call;
        (before < CALLS_MAX).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of a call. `None`: it has not ended within `limit`, or could not be made. The call
/// goes on then, and its result is dropped.
pub fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let counted = Call::begin()?;
    let (to, answer) = mpsc::sync_channel(1);
    let run = move || {
        let result = call();
        drop(counted);
        // The caller may have gone.
        let _ = to.send(result);
    };
    std::thread::Builder::new().name("ashlar-checks".into()).spawn(run).ok()?;
    answer.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A wait that is over when it fails.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn call_that_hangs_is_given_up_and_others_are_made() {
        let (release, released) = channel::<()>();
        assert_eq!(within(Duration::ZERO, move || released.recv().is_err()), None);
        assert_eq!(within(LONG, || 7), Some(7));
        drop(release);
    }
}
