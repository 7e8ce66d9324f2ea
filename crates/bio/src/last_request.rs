//! The request that this thread is processing, for panic messages: three plain stores a request.

use std::cell::Cell;
use std::fmt;

use crate::request::Op;

thread_local! {
    static REQUEST: Cell<Option<LastRequest>> = const { Cell::new(None) };
}

/// The request that a thread carried last into its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRequest {
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl fmt::Display for LastRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes at {}", self.op, self.len, self.offset)
    }
}

impl LastRequest {
    /// This thread carries it from now on.
    #[inline]
    pub fn record(self) {
        REQUEST.set(Some(self));
    }

    /// The last request of this thread; None: there was none, or the thread has ended.
    pub fn last() -> Option<LastRequest> {
        REQUEST.try_with(Cell::get).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_operation_is_recorded_per_thread() {
        let write = LastRequest { op: Op::Write, offset: 4096, len: 512 };
        assert_eq!(LastRequest::last(), None);
        write.record();
        assert_eq!(LastRequest::last(), Some(write));
        assert_eq!(write.to_string(), "Write of 512 bytes at 4096");
        assert_eq!(std::thread::spawn(LastRequest::last).join().unwrap(), None);
    }
}
