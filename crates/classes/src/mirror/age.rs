//! Choice of the valid members, by the evidence in their records (M12, M13 of `state`).

use super::lineage::{Lineage, Relation};
use super::metadata::{Metadata, disk_flags, mirror_flags};
use super::state::{Member, Mirror, Role};

impl Mirror {
    /// Why a member cannot be taken into a mirror that runs, if so.
    pub(super) fn too_late(&self, record: &Metadata, kin: Relation, newer: bool) -> Option<String> {
        let (name, genid, syncid) = (&self.name, self.genid, self.syncid);
        if kin == Relation::Apart {
            return Some(format!(
                "split brain: this member and the running ones were each used without the other. \
                 To keep the running ones: `ashlar mirror clear` it, then `ashlar mirror insert \
                 {name}` it. To keep this one: `ashlar mirror stop {name}`, then `ashlar mirror \
                 start {name} --keep` it"
            ));
        }
        if newer {
            return Some(format!(
                "newer (genid {}, syncid {}) than the running members (genid {genid}, syncid \
                 {syncid}): a stale mirror was started without this one. Stop the mirror, then \
                 start it with this member",
                record.genid, record.syncid
            ));
        }
        (record.genid < genid).then(|| {
            format!(
                "this member failed once (genid {}, the mirror's is {genid}): `ashlar mirror \
                 remove` or `forget`, then `insert` adds it again",
                record.genid
            )
        })
    }

    /// Whether a record counts as the newest do.
    pub(super) fn is_current(&self, record: &Metadata) -> bool {
        let kin = record.lineage.relation_to(&self.lineage);
        record.syncid == self.syncid && matches!(kin, Relation::Same | Relation::Unknown)
    }

    pub(super) fn newest(&self) -> NewestState {
        NewestState {
            syncid: self.syncid,
            lineage: self.lineage.clone(),
            slack: u64::from(self.flags & mirror_flags::NOFAILSYNC != 0),
        }
    }

    /// The counters grow: the line changes when an absent member has it (lineage L1).
    pub(super) fn fork(&mut self) {
        let active: Vec<u32> = self
            .members()
            .filter(|(_, m)| m.role == Role::Active)
            .map(|(_, m)| m.record.disk)
            .collect();
        if self.running && usize::from(self.lineage.held_by) > active.len() {
            self.lineage.fork(active.into_iter(), (self.genid, self.syncid));
        }
    }

    /// All that are ACTIVE have the line now, or will when their records are written.
    pub(super) fn hold(&mut self) {
        let active = u8::try_from(self.in_role(Role::Active).len()).unwrap_or(u8::MAX);
        self.lineage.held_by = self.lineage.held_by.max(active);
    }

    /// Whether two members each continued without the other (M12).
    pub(super) fn is_split(&self) -> bool {
        let all: Vec<&Lineage> = self.members().map(|(_, m)| &m.record.lineage).collect();
        all.iter()
            .enumerate()
            .any(|(i, a)| all.iter().skip(i + 1).any(|b| a.relation_to(b) == Relation::Apart))
    }

    /// M12: keeps the data of this member, before the start. Members that continued without it are
    /// rebuilt from their start.
    pub(super) fn keep(&mut self, slot: usize) {
        let Some(kept) = self.member(slot).map(|m| m.record.clone()) else { return };
        let all: Vec<Metadata> = self.members().map(|(_, m)| m.record.clone()).collect();
        self.adopt_record(&kept);
        self.genid = all.iter().map(|r| r.genid).max().unwrap_or(self.genid);
        self.syncid = all.iter().map(|r| r.syncid).max().unwrap_or(self.syncid).wrapping_add(1);
        for record in all.iter().filter(|r| r.lineage.relation_to(&kept.lineage) == Relation::Apart)
        {
            self.lineage.outrank(&record.lineage);
        }
        let (genid, syncid, lineage) = (self.genid, self.syncid, self.lineage.clone());
        for Member { record, .. } in self.slots.iter_mut().flatten() {
            match record.lineage.relation_to(&kept.lineage) {
                Relation::Same if record.syncid == kept.syncid => {
                    let events = record.lineage.events;
                    record.lineage = Lineage { events, ..lineage.clone() };
                    (record.genid, record.syncid) = (genid, syncid);
                }
                Relation::Apart => {
                    record.lineage = Lineage::default();
                    (record.genid, record.syncid, record.sync_offset) = (genid, 0, 0);
                    record.disk_flags |= disk_flags::FORCE_SYNC;
                }
                _ => {}
            }
        }
    }
}

/// The records of the newest members, with which the others are compared.
pub(super) struct NewestState {
    syncid: u32,
    lineage: Lineage,
    /// Events that may be lacking: with NOFAILSYNC one, for then members are taken as they are.
    slack: u64,
}

impl NewestState {
    fn is_like(&self, record: &Metadata, lacking: u64) -> bool {
        let kin = record.lineage.relation_to(&self.lineage);
        record.syncid == self.syncid
            && matches!(kin, Relation::Same | Relation::Unknown)
            && record.lineage.events.saturating_add(lacking) >= self.lineage.events
    }

    /// Has all of the mirror's data but, perhaps, that of the last moments before a crash.
    pub(super) fn is_complete_in(&self, member: &Member) -> bool {
        self.is_like(&member.record, self.slack) && !is_copied(member)
    }

    /// M6: whether the member's rebuild continues where it stopped. After a crash during writes it
    /// starts again: the copied part may have been written on other members since, and not on this
    /// one.
    pub(super) fn resumes(&self, member: &Member, failsync: bool) -> bool {
        let record = &member.record;
        let is_copied = record.has(disk_flags::SYNCHRONIZING);
        self.is_like(record, 0) && is_copied && !is_dirty(member, failsync)
    }

    /// Whether the member differs from the other complete members only where their bitmaps are set.
    /// That also holds if the power failed before the last event was in its record, because later
    /// writes are marked.
    pub(super) fn is_marked(&self, member: &Member) -> bool {
        let record = &member.record;
        let by_bits = record.has(disk_flags::BITMAP_SYNC) && !record.has(disk_flags::FORCE_SYNC);
        record.bitmap.is_some() && self.is_like(record, 1) && (!is_copied(member) || by_bits)
    }
}

/// One that was just taken in has nothing, regardless of its syncid.
pub(super) fn is_copied(member: &Member) -> bool {
    let record = &member.record;
    record.has(disk_flags::SYNCHRONIZING) || record.has(disk_flags::FORCE_SYNC)
}

pub(super) fn is_dirty(member: &Member, failsync: bool) -> bool {
    failsync && member.record.has(disk_flags::DIRTY)
}
