//! Table of target behaviours and their effects, one row each.

use super::BUSY;
use super::target::{Disk, OTHER, OWN, Reply};
use crate::iscsi::peer::{Odd, SECTOR};

/// When the disk is exchanged, and how.
#[derive(Clone, Copy, PartialEq)]
pub enum When {
    /// The target restarts.
    Restart,
    /// It restarts, and again during the query for its identity.
    RestartTwice,
    /// Only the connection is lost.
    Cut,
    /// While the session continues.
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
    /// Status that a host gets for that.
    pub host_status: &'static str,
    /// A unit attention that the host gets afterwards.
    pub attention: &'static str,
    /// The text of `status` only while it lasts; empty: nothing but that the target is lost.
    pub meanwhile: &'static str,
    /// Words of `status` about the disk afterwards; for [`CHANGED`], with both identities.
    pub status_text: &'static str,
    /// Its word then.
    pub severity: &'static str,
    /// The last error of the disk afterwards.
    pub last: &'static str,
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
    host_status: "GOOD",
    attention: "",
    meanwhile: "",
    status_text: "",
    severity: "OK",
    last: "",
    within_s: 5,
};

/// A host gets this of a lost disk, and of one that is not answered in time.
pub const GONE: &str = "02/04/03";
pub const LATE: &str = "0b/3e/02";
const CHANGED: &str = "a different disk answers (";
const UNSURE: &str = "identity not confirmed, perhaps a different disk (INQUIRY";

const BUSY_PAGE: &str = "INQUIRY of a page is not answered: BUSY (SCSI status 08)";
const NOT_READY_PAGE: &str = "INQUIRY of a page is not answered: LOGICAL UNIT IS IN PROCESS";

const ANOTHER: Row =
    Row { after: OTHER, host_status: GONE, status_text: CHANGED, severity: "FAILED", ..SAME };

impl Row {
    /// Another disk is there afterwards, or none.
    pub fn is_exchanged(&self) -> bool {
        self.host_status == GONE
    }

    /// The text of `status` about the disk afterwards.
    pub fn expected_status(&self) -> String {
        match self.status_text {
            CHANGED => {
                let (was, is) = (words(&self.before), words(&self.after));
                format!("{CHANGED}was {was}, now {is}); requests to da0 fail")
            }
            says => says.into(),
        }
    }
}

/// The identity of a disk in words.
fn words(disk: &Disk) -> String {
    let Disk { vendor, revision, serial, naa, sectors, kind } = disk;
    let mut words = format!("<{vendor} disk for tests {revision}>");
    if !serial.is_empty() {
        words.push_str(&format!(" serial {serial}"));
    }
    if *naa != 0 {
        words.push_str(&format!(" id {naa:x}"));
    }
    if *kind == 0 {
        words.push_str(&format!(" bytes {}", sectors * SECTOR));
    }
    words
}

const LIVE: Row = Row { when: When::Live, ..ANOTHER };
const NAMELESS: Disk = Disk { serial: "", naa: 0, ..OWN };
const LARGER: Disk = Disk { sectors: 128, ..NAMELESS };
const NAMELESS_LARGER: Row = Row { before: NAMELESS, after: LARGER, ..LIVE };

/// The query for the identity is never answered well.
const UNCONFIRMED: Row = Row {
    host_status: LATE,
    status_text: UNSURE,
    severity: "DEGRADED",
    last: "da0: WRITE of block 12: timed out",
    within_s: 70,
    ..SAME
};

fn usual() -> Odd {
    Odd::Usual
}

pub const fn reply(opcode: u8, page: Option<u8>, times: u32, status: u8) -> Reply {
    Reply { opcode, page, times, status, sense: (2, 4, 1), odd: usual }
}

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
    Row { name: "two restarts", when: When::RestartTwice, meanwhile: BUSY_PAGE, ..SAME },
    Row {
        name: "two restarts, another disk at the second",
        when: When::RestartTwice,
        meanwhile: BUSY_PAGE,
        ..ANOTHER
    },
    Row { name: "the connection is lost", when: When::Cut, ..SAME },
    Row { name: "the connection is lost, another disk", when: When::Cut, ..ANOTHER },
    Row { name: "INQUIRY data have changed", when: When::Live, attentions: &[(0x3f, 3)], ..SAME },
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
        when: When::Live,
        attentions: &[(0x2a, 9)],
        attention: "06/2a/09",
        after: Disk { sectors: 128, ..OWN },
        ..SAME
    },
    Row {
        name: "smaller, within",
        after: Disk { sectors: 32, ..OWN },
        attention: "06/2a/09",
        ..SAME
    },
    Row {
        name: "smaller, beyond",
        after: Disk { sectors: 32, ..OWN },
        sector: 40,
        host_status: "04/44/00",
        attention: "06/2a/09",
        last: "LOGICAL BLOCK ADDRESS OUT OF RANGE (5/21/00)",
        ..SAME
    },
    Row { name: "no names, same size", before: NAMELESS, after: NAMELESS, ..SAME },
    Row { name: "no names, another size", before: NAMELESS, after: LARGER, ..ANOTHER },
    Row {
        name: "no names, another size, capacity changed",
        attentions: &[(0x2a, 9)],
        ..NAMELESS_LARGER
    },
    Row {
        name: "no names, another size, LUNs have changed",
        attentions: &[(0x3f, 0x0e)],
        ..NAMELESS_LARGER
    },
    Row {
        name: "no names, another size, INQUIRY data have changed",
        attentions: &[(0x3f, 3)],
        ..NAMELESS_LARGER
    },
    Row {
        name: "reserved by another host",
        reply: Some(reply(0x2a, None, u32::MAX, 0x18)),
        host_status: "RESERVATION CONFLICT",
        last: "da0: WRITE of block 9: RESERVATION CONFLICT (SCSI status 18)",
        ..SAME
    },
    Row {
        name: "INQUIRY busy for a while",
        meanwhile: "INQUIRY is not answered: BUSY (SCSI status 08)",
        reply: Some(reply(0x12, None, 40, BUSY)),
        within_s: 30,
        ..SAME
    },
    Row {
        name: "page 83h busy for a while",
        meanwhile: BUSY_PAGE,
        reply: Some(reply(0x12, Some(0x83), 20, BUSY)),
        within_s: 30,
        ..SAME
    },
    Row {
        name: "page 80h not ready for a while",
        meanwhile: NOT_READY_PAGE,
        reply: Some(reply(0x12, Some(0x80), 5, 2)),
        within_s: 30,
        ..SAME
    },
    Row {
        name: "list of pages full for a while",
        meanwhile: "INQUIRY of a page is not answered: TASK SET FULL (SCSI status 28)",
        reply: Some(reply(0x12, Some(0), 15, 0x28)),
        within_s: 30,
        ..SAME
    },
    Row {
        name: "page 83h busy, another disk",
        meanwhile: BUSY_PAGE,
        reply: Some(reply(0x12, Some(0x83), 20, BUSY)),
        within_s: 30,
        ..ANOTHER
    },
    Row {
        name: "INQUIRY busy for ever",
        reply: Some(reply(0x12, None, u32::MAX, BUSY)),
        ..UNCONFIRMED
    },
    Row { name: "INQUIRY never ready", reply: Some(reply(0x12, None, u32::MAX, 2)), ..UNCONFIRMED },
    Row {
        name: "page 83h never answered well",
        reply: Some(reply(0x12, Some(0x83), u32::MAX, 2)),
        ..UNCONFIRMED
    },
    Row {
        name: "no unit any more",
        meanwhile: "the target has no such logical unit",
        after: Disk { kind: 0x7f, ..OTHER },
        status_text: "",
        severity: "OK",
        within_s: 30,
        ..ANOTHER
    },
];
