//! A trace of 9P messages, for diagnosis. Data are counted, never kept.
//!
//! Off, it costs a look at a flag of the connection for each message.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Messages kept; the oldest are dropped.
const KEPT_MAX: usize = 2000;
/// Bytes kept of one; a walk of sixteen long names is cut.
const TEXT_MAX: usize = 400;

/// The connections whose messages are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceFilter {
    /// No messages.
    #[default]
    Off,
    /// Those of a connection.
    Connection(u64),
    /// Those of all connections, also of later ones.
    All,
}

/// A message that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// When, ns of the reactor's clock.
    pub at_ns: u64,
    /// Number of the connection.
    pub connection: u64,
    /// Its tag.
    pub tag: u16,
    /// A request; otherwise a reply.
    pub is_request: bool,
    /// The message in words.
    pub text: String,
}

/// See the module.
#[derive(Default)]
pub struct Trace {
    filter: Cell<TraceFilter>,
    kept: RefCell<VecDeque<Traced>>,
    lost: Cell<u64>,
}

impl Trace {
    /// The connections whose messages are kept.
    pub fn filter(&self) -> TraceFilter {
        self.filter.get()
    }

    /// Sets the connections to trace. Kept messages stay when tracing ends, and are dropped when it
    /// begins again.
    pub(super) fn set(&self, of: TraceFilter) {
        self.filter.set(of);
        if of != TraceFilter::Off {
            self.kept.borrow_mut().clear();
            self.lost.set(0);
        }
    }

    pub(super) fn selects(&self, connection: u64) -> bool {
        match self.filter.get() {
            TraceFilter::Off => false,
            TraceFilter::Connection(number) => number == connection,
            TraceFilter::All => true,
        }
    }

    pub(super) fn keep(&self, mut message: Traced) {
        if message.text.len() > TEXT_MAX {
            let cut = (0..=TEXT_MAX).rev().find(|i| message.text.is_char_boundary(*i));
            message.text.truncate(cut.unwrap_or(0));
            message.text.push_str(" ...");
        }
        let mut kept = self.kept.borrow_mut();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
            self.lost.set(self.lost.get() + 1);
        }
        kept.push_back(message);
    }

    /// The kept messages, oldest first, and the number of earlier ones that were dropped.
    pub fn kept(&self) -> (Vec<Traced>, u64) {
        (self.kept.borrow().iter().cloned().collect(), self.lost.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_memory_is_bounded_and_dropped_messages_are_counted() {
        let trace = Trace::default();
        trace.set(TraceFilter::All);
        let one = |n: u64| Traced {
            at_ns: n,
            connection: 1,
            tag: 0,
            is_request: true,
            text: "é".repeat(n as usize),
        };
        (0..KEPT_MAX as u64 + 5).for_each(|n| trace.keep(one(n)));
        let (kept, lost) = trace.kept();
        assert_eq!((kept.len(), kept[0].at_ns, lost), (KEPT_MAX, 5, 5));
        assert!(kept.iter().all(|m| m.text.len() <= TEXT_MAX + 4), "longer ones are cut");
        trace.set(TraceFilter::Off);
        assert_eq!(trace.kept().0.len(), KEPT_MAX, "what was kept can still be read");
        trace.set(TraceFilter::Connection(3));
        assert!(trace.kept() == (Vec::new(), 0) && trace.selects(3) && !trace.selects(4));
    }
}
