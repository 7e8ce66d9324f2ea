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
        let line = line(about, &text);
        match level {
            Level::Info => tracing::info!(target: "ashlar", "{line}"),
            Level::Warn => tracing::warn!(target: "ashlar", "{line}"),
            Level::Error => tracing::error!(target: "ashlar", "{line}"),
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

/// An event as a line of the log: what it is about goes in front where the text does not say it.
fn line(about: &str, text: &str) -> String {
    let said = about == "daemon" || about.split(['/', ' ']).all(|part| text.contains(part));
    if said { text.to_owned() } else { format!("{about}: {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_names_its_thing_once() {
        assert_eq!(line("d0", "create disk d0 (file)"), "create disk d0 (file)");
        assert_eq!(line("t/all", "change group all of t"), "change group all of t");
        assert_eq!(line("n0", "nop configure"), "n0: nop configure");
        assert_eq!(line("daemon", "core 0 uses io_uring"), "core 0 uses io_uring");
    }

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
