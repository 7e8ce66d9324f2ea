//! Whether initiators may come in.
//!
//! ```text
//!   SHUT --the configuration is carried out--> OPEN --the daemon ends--> CLOSED
//!                                             |  ^
//!                          a target is made   v  |  it has its groups
//!                                            PAUSED
//! ```
//!
//! Invariants
//!  D1  While SHUT or PAUSED no peer is answered; one that has connected waits: a login between a
//!      target and its groups would be refused, and initiators take that for the last word
//!      (open-iscsi gives the session up for ever).
//!  D2  From CLOSED on nothing is answered that has not run. Whoever hears nothing asks the next
//!      daemon; whoever heard that the unit is not there would tell its users that it is lost.

use std::sync::atomic::{AtomicU8, Ordering};

const OPEN: u8 = 0;
const SHUT: u8 = 1;
const CLOSED: u8 = 2;
const PAUSED: u8 = 3;

/// Whether initiators may come in; open, unless somebody has shut them.
#[derive(Default)]
pub struct Doors(AtomicU8);

impl Doors {
    /// Who comes waits until they are opened. Before the first portal.
    pub fn shut(&self) {
        self.0.store(SHUT, Ordering::Release);
    }

    /// The configuration is carried out. What is closed stays closed.
    pub fn open(&self) {
        let _ = self.0.compare_exchange(SHUT, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The daemon ends. Before its targets are removed.
    pub fn close(&self) {
        self.0.store(CLOSED, Ordering::Release);
    }

    /// New connections wait while a target that is made later than the others gets its groups.
    pub fn pause(&self) {
        let _ = self.0.compare_exchange(OPEN, PAUSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// It has its groups. Doors that are shut or closed stay so.
    pub fn resume(&self) {
        let _ = self.0.compare_exchange(PAUSED, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    /// New connections wait.
    pub fn are_waited_at(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire), SHUT | PAUSED)
    }

    /// The daemon starts.
    pub fn are_shut(&self) -> bool {
        self.0.load(Ordering::Acquire) == SHUT
    }

    /// The daemon ends: nobody is refused, and nobody let in.
    pub fn are_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }
}
