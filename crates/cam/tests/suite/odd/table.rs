//! What a target does, one row each, and the effect that it has.

use bio::Errno;

use super::BUSY;
use super::target::{Disk, OTHER, OWN, Reply};
use crate::iscsi::peer::Odd;

/// When the disk is exchanged, and how.
#[derive(Clone, Copy, PartialEq)]
pub enum When {
    /// The target restarts.
    Restart,
    /// It restarts, and again while it is asked who it is.
    RestartTwice,
    /// Only the connection is lost.
    Cut,
    /// While the session goes on.
    Live,
}

pub struct Row {
    pub name: &'static str,
    pub when: When,
    pub before: Disk,
    pub after: Disk,
    pub attentions: &'static [(u8, u8)],
    pub reply: Option<Reply>,
    /// Sector that is written.
    pub sector: u64,
    pub ends: Result<(), Errno>,
    /// What the bus says afterwards, or while it waits.
    pub says: &'static str,
    /// Longest time that the write takes.
    pub within_s: u64,
}

const SAME: Row = Row {
    name: "",
    when: When::Restart,
    before: OWN,
    after: OWN,
    attentions: &[],
    reply: None,
    sector: 9,
    ends: Ok(()),
    says: "",
    within_s: 5,
};

const ANOTHER: Row =
    Row { after: OTHER, ends: Err(Errno::NxIo), says: "another disk is there than before", ..SAME };

const LIVE: Row = Row { when: When::Live, ..ANOTHER };
const NAMELESS: Disk = Disk { serial: "", naa: 0, ..OWN };

fn usual() -> Odd {
    Odd::Usual
}

pub const fn reply(opcode: u8, page: Option<u8>, times: u32, status: u8) -> Reply {
    Reply { opcode, page, times, status, sense: (2, 4, 1), odd: usual }
}

const UNSURE: &str = "it is not known whether it is the same disk as before";

pub const ROWS: &[Row] = &[
    Row { name: "restart", ..SAME },
    Row { name: "restart, 29/00", attentions: &[(0x29, 0)], ..SAME },
    Row {
        name: "restart, three attentions",
        attentions: &[(0x29, 0), (0x3f, 3), (0x2a, 9)],
        ..SAME
    },
    Row { name: "restart, another disk", ..ANOTHER },
    Row { name: "restart, another disk, 29/00", attentions: &[(0x29, 0)], ..ANOTHER },
    Row { name: "restart, another disk, 29/07", attentions: &[(0x29, 7)], ..ANOTHER },
    Row { name: "restart, another serial number", after: Disk { serial: "X", ..OWN }, ..ANOTHER },
    Row { name: "restart, another NAA name", after: Disk { naa: OTHER.naa, ..OWN }, ..ANOTHER },
    Row { name: "restart, another vendor", after: Disk { vendor: "else", ..OWN }, ..ANOTHER },
    Row { name: "restart, no names any more", after: NAMELESS, ..ANOTHER },
    Row { name: "restart, names that it had not", before: NAMELESS, ..ANOTHER },
    Row { name: "restart, no disk but a tape", after: Disk { kind: 1, ..OTHER }, ..ANOTHER },
    Row { name: "restart, another firmware", after: Disk { revision: "2", ..OWN }, ..SAME },
    Row {
        name: "restart, another disk that is larger",
        after: Disk { sectors: 128, ..OTHER },
        ..ANOTHER
    },
    Row { name: "two restarts", when: When::RestartTwice, ..SAME },
    Row { name: "two restarts, another disk at the second", when: When::RestartTwice, ..ANOTHER },
    Row { name: "the connection is lost", when: When::Cut, ..SAME },
    Row { name: "the connection is lost, another disk", when: When::Cut, ..ANOTHER },
    Row {
        name: "INQUIRY data have changed",
        attentions: &[(0x3f, 3)],
        after: OWN,
        ends: Ok(()),
        says: "",
        ..LIVE
    },
    Row { name: "INQUIRY data have changed, another disk", attentions: &[(0x3f, 3)], ..LIVE },
    Row { name: "device identifier changed, another disk", attentions: &[(0x3f, 5)], ..LIVE },
    Row { name: "LUNs have changed, another disk", attentions: &[(0x3f, 0x0e)], ..LIVE },
    Row { name: "reset, another disk", attentions: &[(0x29, 0)], ..LIVE },
    Row { name: "capacity changed, another disk", attentions: &[(0x2a, 9)], ..LIVE },
    Row { name: "medium changed, another disk", attentions: &[(0x28, 0)], ..LIVE },
    Row { name: "unknown attention, another disk", attentions: &[(0x70, 0x11)], ..LIVE },
    Row { name: "two attentions, another disk", attentions: &[(0x2a, 1), (0x3f, 3)], ..LIVE },
    Row {
        name: "capacity changed, larger",
        attentions: &[(0x2a, 9)],
        after: Disk { sectors: 128, ..OWN },
        ends: Ok(()),
        says: "",
        ..LIVE
    },
    Row { name: "smaller, within", after: Disk { sectors: 32, ..OWN }, ..SAME },
    Row {
        name: "smaller, beyond",
        after: Disk { sectors: 32, ..OWN },
        sector: 40,
        ends: Err(Errno::Inval),
        ..SAME
    },
    Row { name: "no names, same size", before: NAMELESS, after: NAMELESS, ..SAME },
    Row {
        name: "no names, another size",
        before: NAMELESS,
        after: Disk { sectors: 128, ..NAMELESS },
        ..ANOTHER
    },
    Row {
        name: "no names, another size, capacity changed",
        attentions: &[(0x2a, 9)],
        before: NAMELESS,
        after: Disk { sectors: 128, ..NAMELESS },
        ..LIVE
    },
    Row {
        name: "no names, another size, LUNs have changed",
        attentions: &[(0x3f, 0x0e)],
        before: NAMELESS,
        after: Disk { sectors: 128, ..NAMELESS },
        ..LIVE
    },
    Row {
        name: "no names, another size, INQUIRY data have changed",
        attentions: &[(0x3f, 3)],
        before: NAMELESS,
        after: Disk { sectors: 128, ..NAMELESS },
        ..LIVE
    },
    Row {
        name: "reserved by another host",
        reply: Some(reply(0x2a, None, u32::MAX, 0x18)),
        ends: Err(Errno::Conflict),
        ..SAME
    },
    Row {
        name: "INQUIRY busy for a while",
        reply: Some(reply(0x12, None, 40, BUSY)),
        within_s: 30,
        ..SAME
    },
    Row {
        name: "page 83h busy for a while",
        reply: Some(reply(0x12, Some(0x83), 20, BUSY)),
        within_s: 30,
        ..SAME
    },
    Row {
        name: "page 80h not ready for a while",
        reply: Some(reply(0x12, Some(0x80), 5, 2)),
        within_s: 30,
        ..SAME
    },
    Row {
        name: "list of pages full for a while",
        reply: Some(reply(0x12, Some(0), 15, 0x28)),
        within_s: 30,
        ..SAME
    },
    Row {
        name: "page 83h busy, another disk",
        reply: Some(reply(0x12, Some(0x83), 20, BUSY)),
        within_s: 30,
        ..ANOTHER
    },
    Row {
        name: "INQUIRY busy for ever",
        reply: Some(reply(0x12, None, u32::MAX, BUSY)),
        ends: Err(Errno::TimedOut),
        says: UNSURE,
        within_s: 70,
        ..SAME
    },
    Row {
        name: "INQUIRY never ready",
        reply: Some(reply(0x12, None, u32::MAX, 2)),
        ends: Err(Errno::TimedOut),
        says: UNSURE,
        within_s: 70,
        ..SAME
    },
    Row {
        name: "page 83h never answered well",
        reply: Some(reply(0x12, Some(0x83), u32::MAX, 2)),
        ends: Err(Errno::TimedOut),
        says: UNSURE,
        within_s: 70,
        ..SAME
    },
    Row {
        name: "no unit any more",
        after: Disk { kind: 0x7f, ..OTHER },
        says: "",
        within_s: 30,
        ..ANOTHER
    },
];
