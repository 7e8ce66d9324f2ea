//! Counters of the protocol engine.

/// Counters of the protocol engine.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    /// Frames sent.
    pub sent: u64,
    /// Sectors' frames that were not answered in time.
    pub resent: u64,
    /// Answers to frames that belong to no command any more.
    pub late: u64,
    /// Answers to no frame of ours, or a second time.
    pub unasked: u64,
    /// Answers from where the target was never found, or with another target's name.
    pub foreign: u64,
    /// Frames that violate the protocol, or are too short for the frame that they answer.
    pub malformed: u64,
    /// Answers that report an error.
    pub failed: u64,
    /// Times that another disk was behind a path than behind the first.
    pub strangers: u64,
}
impl Counts {
    /// Adds another core's.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.resent += other.resent;
        self.late += other.late;
        self.unasked += other.unasked;
        self.foreign += other.foreign;
        self.malformed += other.malformed;
        self.failed += other.failed;
        self.strangers += other.strangers;
    }
}
