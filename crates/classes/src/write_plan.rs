//! Write plan: the writes that convert one table into another, or old records into new ones.
//!
//! Invariants of tables (each is tried by the power-cut test: every prefix of a plan, with any
//! subset of the sector writes not yet flushed lost)
//!  W1  At every instant the table in force is the old or the new one, whole. Where there was
//!      no table before, or is none after, it may also be none. Never a mixture.
//!  W2  The copy that is in force is only written after another whole copy has been flushed.
//!  W3  A copy that refers to another place (alternate header, chain link) is written after its
//!      target has been flushed.
//!  W4  A change inside one sector is done by one write of that sector.
//!  W5  After a cut the choice between two differing copies is deterministic, and the table is
//!      reported as damaged until `recover` has run.

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStep {
    /// Write `bytes` (whole sectors) at byte `offset`.
    Write { offset: u64, bytes: Vec<u8> },
    /// All writes so far must be on stable media before the next one is sent.
    Flush,
}

/// Writes and flushes in the order in which they must be carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WritePlan {
    steps: Vec<WriteStep>,
}

impl WritePlan {
    /// The steps in order. The last one, if any, is a flush.
    pub fn steps(&self) -> &[WriteStep] {
        &self.steps
    }

    /// True when the media already has the wanted content.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// This plan, then `next`: for several edits committed together, each atomic in itself.
    #[must_use]
    pub fn then(mut self, next: WritePlan) -> WritePlan {
        self.steps.extend(next.steps);
        self
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        self.steps.push(WriteStep::Write { offset, bytes });
    }

    pub(crate) fn flush(&mut self) {
        if matches!(self.steps.last(), Some(WriteStep::Write { .. })) {
            self.steps.push(WriteStep::Flush);
        }
    }
}
