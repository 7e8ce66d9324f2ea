//! Members that the records of a mirror count (M8, M10, M11 of `state`).

use super::{Member, Mirror, Role};
use crate::mirror::metadata::disk_flags;

impl Mirror {
    /// M10: a member's record is to be as new as the others'; `is_new` when it is already.
    pub(super) fn admit(&mut self, slot: usize, is_new: bool) {
        let Some(disk) = self.member(slot).map(|m| m.record.disk) else { return };
        if !self.counted.contains(&disk) && !is_new {
            self.bump_syncid();
            self.count_present();
        }
        self.counted.insert(disk);
    }

    /// M11; S1 of `settings`.
    pub(in crate::mirror) fn outdate_absent(&mut self) {
        self.bump_syncid();
        self.count_present();
    }

    pub(super) fn count_present(&mut self) {
        let copied = self.members().filter(|(_, m)| m.role != Role::Stale);
        self.counted = copied.map(|(_, m)| m.record.disk).collect();
    }

    /// The syncid grows: the records that are written next are newer than all others.
    pub(super) fn bump_syncid(&mut self) {
        self.bump = false;
        self.syncid = self.syncid.wrapping_add(1);
        self.syncid_bumps += 1;
        self.fork();
    }

    /// So many members are counted from now on (M10).
    pub(in crate::mirror) fn count_only(&mut self, all: u8) {
        if std::mem::replace(&mut self.all, all.max(1)) > all.max(1) {
            self.bump_syncid();
            self.count_present();
        }
    }

    /// One more is counted.
    pub(in crate::mirror) fn count_new(&mut self, disk: u32) {
        self.all = self.all.saturating_add(1);
        self.counted.insert(disk);
    }

    /// One is counted in the place of one that is away and has older records (M10). False: one
    /// that is away has records as new as those that are here.
    pub(in crate::mirror) fn count_instead(&mut self, disk: u32) -> bool {
        let is_present = |disk: &u32| self.members().any(|(_, m)| m.record.disk == *disk);
        let older = self.counted.iter().all(is_present);
        if older {
            self.counted.insert(disk);
        }
        older
    }

    /// True when every member there should be has arrived.
    pub(in crate::mirror) fn is_complete(&self) -> bool {
        if self.running {
            return self.members().count() >= usize::from(self.all);
        }
        // Broken and stale ones do not count (r306743, r341665): beside them the newest of all may
        // be missing. Those just labelled are old because nothing was copied to them yet.
        let is_new = |m: &Member| {
            let record = &m.record;
            let labelled = self.syncid <= 1 && record.has(disk_flags::FORCE_SYNC);
            self.is_current(record) || labelled
        };
        let used = self.members().filter(|(_, m)| self.misfit_reason(m).is_none() && is_new(m));
        used.count() >= usize::from(self.all)
    }

    /// M8
    pub(in crate::mirror) fn count_in(&mut self) {
        self.all = self.all.max(self.members().count() as u8);
    }
}
