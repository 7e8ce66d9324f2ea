//! What happened, for `ashlar journal` and the events of the API.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use control::api::{Event, Level};

/// Events kept; older ones are forgotten.
const EVENTS_MAX: usize = 4096;

/// The journal of one daemon; any thread writes and reads.
#[derive(Default)]
pub struct Journal {
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    last: u64,
    events: VecDeque<Event>,
}

impl Journal {
    /// Notes an event `at_ns` after the start and logs it.
    pub fn note(&self, at_ns: u64, level: Level, about: &str, text: impl Into<String>) {
        let text = text.into();
        match level {
            Level::Info => tracing::info!(about, "{text}"),
            Level::Warn => tracing::warn!(about, "{text}"),
            Level::Error => tracing::error!(about, "{text}"),
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.last += 1;
        let id = lines.last;
        if lines.events.len() == EVENTS_MAX {
            lines.events.pop_front();
        }
        lines.events.push_back(Event { id, at_ns, level, about: about.into(), text });
    }

    /// Events with an id above `after`, oldest first.
    pub fn after(&self, after: u64, limit: usize) -> Vec<Event> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.events.iter().filter(|e| e.id > after).take(limit).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_events_go_and_ids_go_on() {
        let journal = Journal::default();
        for i in 0..EVENTS_MAX as u64 + 10 {
            journal.note(i, Level::Info, "d0", "x");
        }
        let all = journal.after(0, usize::MAX);
        assert_eq!((all.len(), all[0].id), (EVENTS_MAX, 11));
        assert_eq!(journal.after(EVENTS_MAX as u64 + 9, 5).len(), 1);
    }
}
