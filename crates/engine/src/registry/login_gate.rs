//! Admission of initiators.
//!
//! ```text
//!   SHUT --the configuration is carried out--> OPEN --the daemon ends--> CLOSED
//!                                             |  ^
//!                          a target is made   v  |  it has its groups
//!                                            PAUSED
//! ```
//!
//! Invariants
//!  D1  While SHUT or PAUSED no peer is answered; one that has connected waits. A login between a
//!      target and its groups would be refused, and initiators treat a refusal as final (open-iscsi
//!      gives the session up for ever).
//!  D2  From CLOSED on only executed commands are answered. An initiator without an answer retries
//!      with the next daemon. An initiator with the answer that the unit is missing would report a
//!      lost disk to its users.

use std::sync::atomic::{AtomicU8, Ordering};

const OPEN: u8 = 0;
const SHUT: u8 = 1;
const CLOSED: u8 = 2;
const PAUSED: u8 = 3;

/// Whether initiators may log in; open by default.
#[derive(Default)]
pub struct LoginGate(AtomicU8);

impl LoginGate {
    /// New connections wait until the gate opens. Called before the first portal is made.
    pub fn shut(&self) {
        self.0.store(SHUT, Ordering::Release);
    }

    /// The configuration is carried out. A closed gate stays closed.
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

    /// It has its groups. A gate that is shut or closed stays so.
    pub fn resume(&self) {
        let _ = self.0.compare_exchange(PAUSED, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    pub fn holds_connections(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire), SHUT | PAUSED)
    }

    /// The daemon starts.
    pub fn is_shut(&self) -> bool {
        self.0.load(Ordering::Acquire) == SHUT
    }

    /// The daemon ends: logins are neither refused nor accepted.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d1_connections_wait_while_the_gate_is_shut_or_paused() {
        let gate = LoginGate::default();
        assert!(!gate.holds_connections());
        gate.shut();
        gate.resume();
        assert!(gate.holds_connections() && gate.is_shut());
        gate.open();
        assert!(!gate.holds_connections());
        gate.pause();
        assert!(gate.holds_connections());
        gate.resume();
        assert!(!gate.holds_connections());
        gate.close();
        gate.open();
        assert!(gate.is_closed() && !gate.holds_connections());
    }
}
