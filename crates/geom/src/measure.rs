//! Numbers of a geom for monitors, which only its class knows.

use crate::progress::Progress;

/// A number, or several that belong together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Measure {
    /// A rebuild, resync or other copy that runs, or is paused.
    Rebuild(Progress),
    /// Space that is used up by and by.
    Space {
        /// The part of the geom that has it.
        part: &'static str,
        /// Bytes that are free.
        free_bytes: u64,
        /// All bytes.
        size_bytes: u64,
    },
    /// Whether a server that the geom runs serves its clients.
    Serving(bool),
    /// Time of the newest dump, seconds since 1970.
    LastDump(u64),
}

impl Measure {
    /// The present time, as [`Progress::set_time`] takes it.
    pub(crate) fn at(mut self, now_ns: u64) -> Measure {
        if let Measure::Rebuild(progress) = &mut self {
            progress.set_time(now_ns);
        }
        self
    }

    /// The progress of a rebuild or resync.
    pub fn progress(&self) -> Option<&Progress> {
        match self {
            Measure::Rebuild(progress) => Some(progress),
            Measure::Space { .. } | Measure::Serving(_) | Measure::LastDump(_) => None,
        }
    }
}
