//! Event log for `ashlar journal` and the events of the API.

use std::collections::VecDeque;

use bio::sync::Mutex;
use mgmt::api::{Event, Level};

/// Events kept; older ones are forgotten.
const EVENTS_MAX: usize = 4096;

/// Longest text of an event, bytes; a longer one is cut.
const TEXT_BYTES_MAX: usize = 4096;

/// The journal of one daemon; any thread writes and reads. A caller waits only for access to the
/// list: the log is written by a thread of its own.
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
        let mut text = text.into();
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            text.push_str("...");
            text.shrink_to_fit();
        }
        let line = line(about, &text);
        let id = self.push(at_ns, level, about, text);
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    target: "ashlar",
                    object = about,
                    kind = "event",
                    event = id,
                    "{line}"
                )
            };
        }
        match level {
            Level::Info => log!(info),
            Level::Warn => log!(warn),
            Level::Error => log!(error),
        }
    }

    /// Adds an event; answers its number.
    fn push(&self, at_ns: u64, level: Level, about: &str, text: String) -> u64 {
        let mut lines = self.lines.lock();
        lines.last += 1;
        let id = lines.last;
        if lines.events.len() == EVENTS_MAX {
            lines.events.pop_front();
        }
        lines.events.push_back(Event { id, at_ns, level, about: about.into(), text });
        id
    }

    /// Events with an id above `after`, oldest first.
    pub fn after(&self, after: u64, limit: usize) -> Vec<Event> {
        let lines = self.lines.lock();
        lines.events.iter().filter(|e| e.id > after).take(limit).cloned().collect()
    }
}

/// An event as a line of the log: its object is put in front unless the text names it.
fn line(about: &str, text: &str) -> String {
    let is_named = about == "daemon" || about.split(['/', ' ']).all(|part| text.contains(part));
    if is_named { text.to_owned() } else { format!("{about}: {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_names_its_object_once() {
        assert_eq!(line("d0", "create disk d0 (file)"), "create disk d0 (file)");
        assert_eq!(line("t/all", "change group all of t"), "change group all of t");
        assert_eq!(line("n0", "nop configure"), "n0: nop configure");
        assert_eq!(line("daemon", "core 0 uses io_uring"), "core 0 uses io_uring");
    }

    #[test]
    fn old_events_are_dropped_and_ids_continue() {
        let journal = Journal::default();
        for i in 0..EVENTS_MAX as u64 + 10 {
            journal.note(i, Level::Info, "d0", "x");
        }
        let all = journal.after(0, usize::MAX);
        assert_eq!((all.len(), all[0].id), (EVENTS_MAX, 11));
        assert_eq!(journal.after(EVENTS_MAX as u64 + 9, 5).len(), 1);
    }

    #[test]
    fn event_flood_keeps_its_order_and_bounded_memory() {
        const EACH: u64 = 50_000;
        let journal = Journal::default();
        let start = std::time::Instant::now();
        let mut seen = 0;
        std::thread::scope(|threads| {
            for thread in 0..4u64 {
                let journal = &journal;
                threads.spawn(move || {
                    let text = "x".repeat(if thread == 0 { 3 * TEXT_BYTES_MAX } else { 60 });
                    for n in 0..EACH {
                        journal.note(n, Level::Warn, "d0", text.as_str());
                    }
                });
            }
            // Reads meanwhile: ids only grow, and a dropped event is one that was read before.
            let mut last = 0;
            while last < 4 * EACH {
                for event in journal.after(last, 1000) {
                    assert!(event.id > last, "{} after {last}", event.id);
                    last = event.id;
                    seen += 1;
                }
                // A reader that never pauses can keep the lock from a writer for minutes.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let took = start.elapsed();
        let all = journal.after(0, usize::MAX);
        let bytes: usize = all.iter().map(|e| e.text.capacity() + e.about.capacity()).sum();
        println!(
            "{} events in {took:?}, {seen} read meanwhile, {} kept in {} KiB",
            4 * EACH,
            all.len(),
            bytes >> 10
        );
        assert_eq!((all.len(), all[0].id), (EVENTS_MAX, 4 * EACH - EVENTS_MAX as u64 + 1));
        assert!(all.iter().all(|e| e.text.len() <= TEXT_BYTES_MAX + 3));
    }
}
