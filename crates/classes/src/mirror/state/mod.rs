//! State of a mirror, without any I/O: the members, their roles, and the content of their records.
//!
//! ```text
//!               arrive                     start                       rebuilt
//!   (absent) -----------> ARRIVED -----------------> SYNCHRONIZING -----------> ACTIVE
//!       ^                    |   \-- as new as the others, not dirty ------------^  |
//!       |                    |   \-- NOAUTOSYNC --> STALE -- rebuild -->            |
//!       +---- broken, left --+------------------------- an error, unplugged --------+
//! ```
//!
//! Invariants (docs/reference/geom.md 2.2, 5.2, 7)
//!  M1  Parameters and contents are those of the newest members by (genid, syncid), regardless of
//!      the order of arrival. A member with a lower genid is broken and is not used; with a lower
//!      syncid it is rebuilt from its start.
//!  M2  Of several dirty newest members one is the master: the highest priority. The others are
//!      rebuilt: after a crash it is not known which of the last writes each has.
//!  M3  Before the first write without a member that is only absent the syncid grows. When a member
//!      failed, the genid grows, and the failed write is not acknowledged before.
//!  M4  The last ACTIVE member is never dropped.
//!  M5  A member that arrives late is ACTIVE only if nothing was written without it and it is
//!      clean.
//!  M7  A mirror that starts after a crash without some of its members grows its syncid at once.
//!      The writes that were in flight may be on those members only, or on the present ones only.
//!  M8  A forgotten member that returns is counted again. Otherwise one of two members would look
//!      like a whole mirror, and start without the other, newer one.
//!  M9  With bitmaps a member that was complete when the power failed is rebuilt only where the
//!      bits are set: the bits of all such members together.
//!  M6  An interrupted rebuild continues where it stopped, if no write was in flight then.
//!  M10 The number of members whose records ever had one (genid, syncid) is at most the count in
//!      those records. The syncid grows, in the same records, when fewer are counted. It also grows
//!  when a member arrives that is rebuilt and perhaps not counted. Another one that was not seen
//!  yet may be in its place. Otherwise a member that was forgotten, or never seen, and one that
//!  failed later would look like a whole mirror, and start without the newest. M11 Of two different
//!  disks with the same number, the one in use is the newer from then on. The syncid grows when a
//!  copy is seen, and when another disk arrives with the number of a former member. So a copy is
//!  rebuilt before it is used. Of two that look alike when nothing runs yet the first is taken: no
//!  record distinguishes them. M12 Records of members that continued without others (`lineage`)
//!  take precedence over the counters. Two that each continued without the other are not combined.
//!  The mirror does not start until the operator selects the one to keep, and the other is rebuilt
//!  from its start. M13 Of members alike in all else those with fewer events are rebuilt. Bitmaps
//!  are used when they lack one event. They are rebuilt from their start when they lack more,
//!  because then they were restored from a copy.

mod counting;
mod records;
mod roles;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::bitmap::Image;
use super::lineage::Lineage;
use super::metadata::{Balance, Metadata};

/// Members at most: the bits of one word.
pub(in crate::mirror) const MEMBERS_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::mirror) enum Role {
    /// Found; the mirror has not started.
    Arrived,
    /// Has everything.
    Active,
    /// Being rebuilt.
    Synchronizing,
    /// Out of date, and not rebuilt unasked.
    Stale,
}

impl Role {
    /// As lists show it.
    pub(in crate::mirror) fn as_str(self) -> &'static str {
        match self {
            Role::Arrived => "NEW",
            Role::Active => "ACTIVE",
            Role::Synchronizing => "SYNCHRONIZING",
            Role::Stale => "STALE",
        }
    }
}

/// One member that is attached.
#[derive(Clone, Debug)]
pub(in crate::mirror) struct Member {
    /// Its record as it was found, or as it was written last.
    pub(in crate::mirror) record: Metadata,
    pub(in crate::mirror) role: Role,
    /// Size and sector size of its provider now, bytes.
    pub(in crate::mirror) provider_bytes: u64,
    pub(in crate::mirror) sector_bytes: u32,
    /// Its bitmap as it was found.
    pub(in crate::mirror) bits: Vec<u8>,
    /// Rebuilt only where bitmaps are set.
    pub(in crate::mirror) partial: bool,
}

/// How a member was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::mirror) enum Fault {
    /// Removed: it may return and is rebuilt then.
    Absent,
    /// It answered a request with an error: not used again until an operator requests it.
    Broken,
}

/// What became of a member that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::mirror) enum Arrival {
    /// It is in this slot.
    In(usize),
    /// It is not used, and why.
    Refused(String),
    /// It is not used: it was deactivated.
    Inactive,
    /// A member of this number is there: a copy, or the same disk that returned before its loss was
    /// noticed.
    Twin,
    /// A member of this number is in this slot, and is the older of the two (M11).
    Instead(usize),
}

/// See the module.
#[derive(Clone, Debug)]
pub(in crate::mirror) struct Mirror {
    pub(in crate::mirror) name: String,
    pub(in crate::mirror) id: u32,
    /// Members there are, attached or not.
    pub(in crate::mirror) all: u8,
    pub(in crate::mirror) genid: u32,
    pub(in crate::mirror) syncid: u32,
    /// The lineage of the mirror (M12, M13).
    pub(in crate::mirror) lineage: Lineage,
    pub(in crate::mirror) slice: u32,
    pub(in crate::mirror) balance: Balance,
    pub(in crate::mirror) media_bytes: u64,
    /// While it shrinks: the size of the provider until the records have the smaller one (G4).
    pub(in crate::mirror) offered_bytes: u64,
    pub(in crate::mirror) sector_bytes: u32,
    pub(in crate::mirror) flags: u64,
    /// The regions that may differ between members, if there is a bitmap.
    pub(in crate::mirror) bitmap: Option<Image>,
    /// Made by hand: nothing is written to the members' last sectors.
    pub(in crate::mirror) manual: bool,
    pub(in crate::mirror) running: bool,
    /// Writes may have reached some members and not others.
    pub(in crate::mirror) dirty: bool,
    /// The syncid is to grow before the next write.
    pub(in crate::mirror) bump: bool,
    pub(in crate::mirror) slots: Vec<Option<Member>>,
    /// How often writes began since it runs, and how often they had when a complete member was lost
    /// (by its number).
    begun: u64,
    gone_at: BTreeMap<u32, u64>,
    /// Numbers of members that are surely among those counted.
    counted: BTreeSet<u32>,
    /// How often the syncid grew for M7 or M10: until that is on record, the old members could
    /// start without the new data.
    pub(in crate::mirror) syncid_bumps: u64,
    /// Slots that became free while the mirror ran, the longest free first. They are reused only
    /// when there are no others, so that late messages about a slot refer to its present member.
    left: VecDeque<usize>,
}

impl Mirror {
    /// A mirror that has not started, as a first record describes it.
    pub(in crate::mirror) fn of(record: &Metadata) -> Mirror {
        let mut mirror = Mirror {
            name: record.name.clone(),
            id: record.id,
            all: 0,
            genid: 0,
            syncid: 0,
            lineage: Lineage::default(),
            slice: 0,
            balance: Balance::Load,
            media_bytes: 0,
            offered_bytes: 0,
            sector_bytes: 512,
            flags: 0,
            bitmap: None,
            manual: false,
            running: false,
            dirty: false,
            bump: false,
            slots: Vec::new(),
            begun: 0,
            gone_at: BTreeMap::new(),
            counted: BTreeSet::new(),
            syncid_bumps: 0,
            left: VecDeque::new(),
        };
        mirror.adopt_record(record);
        mirror
    }

    /// Attached members with their slots.
    pub(in crate::mirror) fn members(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.slots.iter().enumerate().filter_map(|(i, m)| Some((i, m.as_ref()?)))
    }

    pub(in crate::mirror) fn member(&self, slot: usize) -> Option<&Member> {
        self.slots.get(slot)?.as_ref()
    }

    pub(super) fn member_mut(&mut self, slot: usize) -> Option<&mut Member> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Slots of the members in a role.
    pub(in crate::mirror) fn in_role(&self, role: Role) -> Vec<usize> {
        self.members().filter(|(_, m)| m.role == role).map(|(i, _)| i).collect()
    }

    /// As lists show it.
    pub(in crate::mirror) fn state(&self) -> &'static str {
        let active = self.in_role(Role::Active).len();
        match self.running {
            false => "STARTING",
            true if active == usize::from(self.all) => "COMPLETE",
            true => "DEGRADED",
        }
    }
}
