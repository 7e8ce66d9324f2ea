//! Roles of members: arrival, start, rebuild and loss (M1, M2, M4 to M7, M9, M13 of `state`).

use super::{Arrival, Fault, MEMBERS_MAX, Member, Mirror, Role};
use crate::mirror::age::{is_copied, is_dirty};
use crate::mirror::bitmap::Image;
use crate::mirror::lineage::Relation;
use crate::mirror::metadata::{Metadata, disk_flags, mirror_flags};

impl Mirror {
    /// A member was found. Before the start it is only taken in.
    pub(in crate::mirror) fn arrive(
        &mut self,
        record: Metadata,
        provider_bytes: u64,
        sector_bytes: u32,
    ) -> Arrival {
        let refused = |why: String| Arrival::Refused(why);
        if record.id != self.id {
            return refused(format!(
                "another mirror/{} exists (id {}, this one has {})",
                self.name, self.id, record.id
            ));
        }
        let twin = self.members().find(|(_, m)| m.record.disk == record.disk);
        if let Some((slot, twin)) = twin {
            let age = |r: &Metadata| (r.genid, r.syncid, r.lineage.events);
            let instead = !self.running && age(&record) > age(&twin.record);
            return if instead { Arrival::Instead(slot) } else { Arrival::Twin };
        }
        if record.has(disk_flags::INACTIVE) {
            return Arrival::Inactive;
        }
        let kin = record.lineage.relation_to(&self.lineage);
        let newer = match kin {
            Relation::Older => false,
            Relation::Newer => true,
            _ => (record.genid, record.syncid) > (self.genid, self.syncid),
        };
        if let Some(why) = self.too_late(&record, kin, newer).filter(|_| self.running) {
            return refused(why);
        }
        if newer {
            self.adopt_record(&record);
        } else if (record.genid, record.syncid) == (self.genid, self.syncid) {
            self.all = self.all.max(record.all);
            // One whose record was moving when the power failed has no bitmap (bitmap B4).
            if !self.running && self.bitmap.is_none() {
                self.bitmap = record.bitmap.map(Image::clear);
            }
        }
        if !self.fits(provider_bytes) {
            return refused(format!(
                "too small ({provider_bytes} bytes; the mirror has {}, and needs a sector more)",
                self.media_bytes
            ));
        }
        if let Some(why) = self.other_sectors(sector_bytes) {
            return refused(why);
        }
        let role = Role::Arrived;
        let (bits, partial) = (Vec::new(), false);
        let member = Member { record, role, provider_bytes, sector_bytes, bits, partial };
        if self.running
            && let Some(why) = self.misfit_reason(&member)
        {
            return refused(why);
        }
        let slot = match self.slots.len() < MEMBERS_MAX {
            true => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            false => match self.left.pop_front() {
                Some(slot) => slot,
                None => return refused(format!("a mirror has at most {MEMBERS_MAX} members")),
            },
        };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(member);
        }
        Arrival::In(slot)
    }

    /// The slot is empty.
    pub(in crate::mirror) fn vacate(&mut self, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot)
            && place.take().is_some()
        {
            self.left.push_back(slot);
        }
    }

    /// M5: decides the role of a member that joins a running mirror. It is called while no write is
    /// in flight, and not when the member arrives, because writes that begin in between may miss
    /// it.
    pub(in crate::mirror) fn place_late(&mut self, slot: usize) {
        let (top, auto) = (self.syncid, self.flags & mirror_flags::NOAUTOSYNC == 0);
        self.count_in();
        let disk = self.member(slot).map(|m| m.record.disk);
        let then = disk.and_then(|d| self.gone_at.get(&d)).copied().unwrap_or(0);
        // Nothing was written without it. Its syncid alone does not prove that: a mirror may have
        // had as many members as it expects, without this one.
        let same = then == self.begun && !self.dirty;
        let newest = self.newest();
        let Some(member) = self.member_mut(slot) else { return };
        let is_new = member.record.syncid == top;
        if same && newest.is_complete_in(member) && !is_dirty(member, true) {
            member.role = Role::Active;
            self.hold();
            return self.admit(slot, is_new);
        }
        member.partial = false;
        if !same || !newest.resumes(member, true) {
            member.record.sync_offset = 0;
        }
        let is_forced = member.record.has(disk_flags::FORCE_SYNC);
        member.role = if auto || is_forced { Role::Synchronizing } else { Role::Stale };
        if member.role == Role::Synchronizing {
            self.admit(slot, is_new);
        }
    }

    /// Why a member cannot be used beside the newest, if so.
    pub(super) fn misfit_reason(&self, member: &Member) -> Option<String> {
        let (record, genid) = (&member.record, self.genid);
        if record.genid < genid {
            return Some(format!(
                "this member failed once (genid {}, the newest is {genid})",
                record.genid
            ));
        }
        // The member counts may differ: a member may be added while not all others could be
        // updated.
        let same = record.media_bytes == self.media_bytes;
        if self.is_current(record) && !same {
            return Some(format!(
                "its record has a mirror of {} bytes, the others' {}: it was not written \
                 with them. `ashlar mirror clear` it, then `insert` adds it again",
                record.media_bytes, self.media_bytes
            ));
        }
        let bytes = member.provider_bytes;
        (!self.fits(bytes)).then(|| format!("too small for the mirror ({bytes} bytes)"))
    }

    /// Starts with the members there are. Returns the slots of those that are not used, with why.
    /// An error changes nothing.
    pub(in crate::mirror) fn start(&mut self) -> Result<Vec<(usize, String)>, String> {
        if self.is_split() {
            return Err("split brain: members of it were each used without the other".to_owned());
        }
        let out: Vec<(usize, String)> =
            self.members().filter_map(|(slot, m)| Some((slot, self.misfit_reason(m)?))).collect();
        let master = self.choose_master(&out)?;
        let counted = self.member(master).map_or(0, |m| m.record.lineage.events);
        self.lineage.events = counted;
        let newest = self.newest();
        out.iter().for_each(|(slot, _)| self.vacate(*slot));
        let (top, complete) = (self.syncid, self.is_complete());
        // r306743: a broken member counts as missing, and must not return as if it had not failed.
        let missing = self.members().count() < usize::from(self.all) || !out.is_empty();
        let auto = self.flags & mirror_flags::NOAUTOSYNC == 0;
        let failsync = self.flags & mirror_flags::NOFAILSYNC == 0;
        let torn = self.member(master).is_some_and(|m| is_dirty(m, failsync));
        self.gather_bits(&newest);
        let shape = self.shape();
        for slot in 0..self.slots.len() {
            let Some(member) = self.member_mut(slot) else { continue };
            let is_complete = newest.is_complete_in(member);
            let active = slot == master || is_complete && !is_dirty(member, failsync);
            if active {
                member.role = Role::Active;
                continue;
            }
            member.partial = shape.is_some() && newest.is_marked(member);
            if member.partial || !newest.resumes(member, failsync) {
                member.record.sync_offset = 0;
            }
            let is_forced = member.record.has(disk_flags::FORCE_SYNC);
            member.role = if auto || is_forced { Role::Synchronizing } else { Role::Stale };
        }
        self.count_in();
        self.dirty = false;
        self.bump |= missing || self.members().any(|(_, m)| m.role != Role::Active);
        self.running = true;
        self.hold();
        // M7: those that are missing may hold others of the last writes than the master.
        // M10: a member that is rebuilt may be counted in the place of an absent one.
        let is_old = |m: &Member| m.role == Role::Synchronizing && m.record.syncid != top;
        let replaces = !complete && self.members().any(|(_, m)| is_old(m));
        if torn && missing || replaces {
            self.bump_syncid();
        }
        self.count_present();
        Ok(out)
    }

    /// M2: the member whose contents are the mirror's.
    pub(super) fn choose_master(&self, out: &[(usize, String)]) -> Result<usize, String> {
        let failsync = self.flags & mirror_flags::NOFAILSYNC == 0;
        let used = |slot: &usize| !out.iter().any(|(o, _)| o == slot);
        let is_usable = |m: &Member| self.is_current(&m.record) && !is_copied(m);
        let usable = self.members().filter(|(slot, m)| used(slot) && is_usable(m));
        // The order is: most events (M13), clean, highest priority, first found.
        let best = usable.max_by_key(|(slot, m)| {
            let (events, priority) = (m.record.lineage.events, m.record.priority);
            (events, !is_dirty(m, failsync), priority, std::cmp::Reverse(*slot))
        });
        best.map(|(slot, _)| slot).ok_or_else(|| {
            "no member has all of the data: those present were being rebuilt; connect the one that \
             they were rebuilt from"
                .to_owned()
        })
    }

    /// A member is no longer there. `None`, and nothing changed, when it is the last ACTIVE one
    /// and stays (M4); otherwise whether records must be written before anything is acknowledged.
    pub(in crate::mirror) fn lose(
        &mut self,
        slot: usize,
        fault: Fault,
        gone: bool,
    ) -> Option<bool> {
        let role = self.member(slot)?.role;
        let others = self.in_role(Role::Active).into_iter().any(|s| s != slot);
        if role == Role::Active && !others && !gone {
            return None;
        }
        if let Some(member) = self.member(slot).filter(|_| !self.dirty) {
            self.gone_at.insert(member.record.disk, self.begun);
        }
        self.vacate(slot);
        match fault {
            Fault::Broken => {
                self.genid = self.genid.wrapping_add(1);
                self.fork();
                Some(true)
            }
            // While nothing is being written the bump can wait for the first write.
            Fault::Absent if !self.dirty => {
                self.bump = true;
                Some(false)
            }
            Fault::Absent => {
                self.syncid = self.syncid.wrapping_add(1);
                self.fork();
                Some(true)
            }
        }
    }

    /// Records the progress of a rebuild, bytes.
    pub(in crate::mirror) fn synced_to(&mut self, slot: usize, offset: u64) {
        if let Some(member) = self.member_mut(slot) {
            member.record.sync_offset = offset;
        }
    }

    /// No content of the member is trusted any more.
    pub(in crate::mirror) fn distrust(&mut self, slot: usize) {
        if let Some(member) = self.member_mut(slot) {
            member.record.sync_offset = 0;
            member.partial = false;
        }
    }

    /// A member is rebuilt.
    pub(in crate::mirror) fn synced(&mut self, slot: usize) {
        if let Some(member) = self.member_mut(slot) {
            member.partial = false;
            member.role = Role::Active;
            member.record.sync_offset = 0;
            member.record.disk_flags &= !(disk_flags::SYNCHRONIZING | disk_flags::FORCE_SYNC);
        }
        self.hold();
    }

    /// A member is to be rebuilt from the start.
    pub(in crate::mirror) fn rebuild(&mut self, slot: usize) {
        let Some(member) = self.member_mut(slot) else { return };
        let was = std::mem::replace(&mut member.role, Role::Synchronizing);
        member.partial = false;
        member.record.sync_offset = 0;
        member.record.disk_flags |= disk_flags::FORCE_SYNC;
        if was == Role::Stale {
            self.admit(slot, false);
        }
    }
}
