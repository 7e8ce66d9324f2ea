//! Calls that hang while a path does not answer, each on a thread of its own with a deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use mgmt::api::{Error, Kind, Result};

/// Calls under way at once; a further one is not made.
const CALLS_MAX: usize = 64;

/// Calls under way, those that hang among them.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Longest check of all media of a plan together; one that hangs is known by the check of its disk.
pub const CHECKS_LIMIT: Duration = Duration::from_secs(15);

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
/// continues then, and its result is dropped.
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

/// The result of a check of the files and names of an object, or the error that they do not answer.
pub fn checked_within<T: Send + 'static>(
    limit: Duration,
    (op, at): (&str, &str),
    check: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    within(limit, check).unwrap_or_else(|| Err(late_files(op, at, limit)))
}

/// The error for an object whose files, or the names of its listeners, do not answer.
pub fn late_files(op: &str, at: &str, limit: Duration) -> Error {
    let why = format!("its files or addresses do not answer ({limit:?}, the limit)");
    let next = "Check the file systems of the files that its section names, and the resolver: \
                `findmnt` lists file systems, `dmesg` shows errors. Then run `ashlar apply`.";
    Error::new(Kind::Timeout, op, why).at(at).next(next)
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

    #[test]
    fn check_whose_files_hang_is_refused_with_the_object_and_the_limit() {
        let (release, released) = channel::<()>();
        let hangs = move || {
            let _ = released.recv();
            Ok(())
        };
        let late = checked_within(Duration::ZERO, ("create target", "t"), hangs);
        drop(release);
        let late = late.expect_err("it hangs");
        assert!(late.kind == Kind::Timeout && late.at == "t", "{late}");
        assert!(late.source.contains("do not answer (0ns, the limit)"), "{late}");
        assert_eq!(checked_within(LONG, ("create target", "t"), || Ok(7)), Ok(7));
    }
}
