//! Numbers of a geom for monitors, which only its class knows.

/// A number, or two that belong together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Measure {
    /// A rebuild or resync that runs.
    Rebuild {
        /// The member or volume that it updates.
        part: String,
        /// Bytes that are up to date.
        done_bytes: u64,
        /// Bytes of the part.
        size_bytes: u64,
    },
    /// Space that is used up by and by.
    Space {
        /// The part of the geom that has it.
        part: &'static str,
        /// Bytes that are free.
        free_bytes: u64,
        /// All bytes.
        size_bytes: u64,
    },
    /// Time of the newest dump, seconds since 1970.
    LastDump(u64),
}
