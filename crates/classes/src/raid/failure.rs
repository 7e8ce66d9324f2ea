//! Loss of disks: the disks that an array can do without, and the writes that wait for the
//! decision. The invariants are those of [`super::geom`]: J2 to J4.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;

use geom::{GeomId, Severity, Topology};

use super::geom::{Job, LEFT_MAX, Loss, Message, RaidGeom, SICK_NS};
use super::members::{MemberSet, Tag};
use super::model::DiskState;
use super::verbs::readd_command;
use super::volume::log::Log;
use super::volume::{Role, bit};

impl RaidGeom {
    /// A disk is lost. False when nothing is to be written for it: it stays, or no disk is left.
    pub(super) fn lose(&mut self, t: &mut Topology, me: GeomId, tag: Tag, loss: Loss) -> bool {
        let Some(set) = &self.set else { return false };
        let Some(index) = set.disk(tag) else {
            self.release_decided(t);
            return false;
        };
        if loss != Loss::Gone && self.is_needed(index) {
            match loss {
                // It has failed nothing.
                Loss::ByHand | Loss::Removed => self.release_decided(t),
                _ => self.keep_failed_disk(t, tag),
            }
            return false;
        }
        let slots = self.slots(tag);
        let state = match loss {
            Loss::Broken | Loss::ByHand => DiskState::Failed,
            _ => DiskState::Missing,
        };
        let disk = self.disks.get(&tag).filter(|_| state == DiskState::Failed);
        let why = disk.map(|disk| (disk.key.clone(), disk.name.clone())).map(|(key, name)| {
            self.note_failed(&key, loss);
            self.why_failed(&key, &name)
        });
        let Some(set) = &mut self.set else { return false };
        set.mark_absent(index, state);
        for (key, slot) in slots {
            let dirty = set.volume(key).and_then(|at| set.array.volumes.get(at));
            if let Some(up) = self.running_volumes.get_mut(&key)
                && dirty.is_some_and(|volume| volume.dirty)
            {
                up.unrecorded |= bit(slot);
            }
        }
        self.detach_disk(t, tag, why.as_deref());
        self.halt_passes();
        self.set.iter_mut().for_each(MemberSet::replay_again);
        let took = self.set.as_mut().is_some_and(MemberSet::take_spares);
        self.start_volumes(t, me);
        self.start_passes();
        if self.disks.is_empty() {
            t.remark(me, Severity::Failed, "its last disk has gone");
            Self::take_apart(t, me, self);
            return false;
        }
        // J4; and while nothing is written the record can wait for the first write.
        let dirty = self.set.iter().flat_map(|s| s.volume_status.iter().zip(&s.array.volumes));
        let written = dirty.filter(|(vol, _)| vol.up).any(|(_, volume)| volume.dirty);
        let any = !self.running_volumes.is_empty();
        let certain = matches!(loss, Loss::Gone | Loss::Absent);
        let needed = any && (written || took || !certain);
        if !needed {
            self.release_decided(t);
        }
        needed
    }

    fn note_failed(&mut self, key: &str, loss: Loss) {
        self.failed.retain(|(known, _)| known != key);
        if self.failed.len() == LEFT_MAX {
            self.failed.pop_front();
        }
        self.failed.push_back((key.to_owned(), loss));
    }

    /// Why a disk that failed is refused, and how it returns.
    pub(super) fn why_failed(&self, key: &str, name: &str) -> String {
        let known = self.failed.iter().find(|(failed, _)| failed == key);
        let what = match known.map(|(_, loss)| loss) {
            Some(Loss::ByHand) => "it was failed by hand, and failed no request",
            Some(_) => "it failed a request",
            None => "the records call it failed, by a request or by hand",
        };
        format!("{what}: {}", readd_command(name, &self.id.name()))
    }

    /// Whether a volume cannot do without a disk, nor without those that are known to be removed.
    pub(super) fn is_needed(&self, index: usize) -> bool {
        let Some(mut set) = self.set.clone() else { return false };
        for job in &self.queue {
            if let Job::Out(tag, Loss::Gone) = job
                && let Some(gone) = set.disk(*tag).filter(|gone| *gone != index)
            {
                set.mark_absent(gone, DiskState::Missing);
            }
        }
        !set.breaks(index).is_empty()
    }

    /// J3: the data of a failed request is on no other disk, or on some and not on others.
    fn keep_failed_disk(&mut self, t: &mut Topology, tag: Tag) {
        let name = self.disks.get(&tag).map_or("a disk", |disk| &disk.name);
        let why = format!("{name} failed a request, but stays: a volume needs it");
        t.remark(self.me, Severity::Failed, &why);
        for (key, slot) in self.slots(tag) {
            // First: a released request then sees that copies and parity may differ.
            match self.is_in_order(key, slot) {
                true => self.halt_pass(key),
                false => self.mark_inconsistent(t, key),
            }
            let Some(up) = self.running_volumes.get(&key) else { continue };
            up.shared.fail_waiting(bit(slot));
        }
        for (key, open) in self.open_slots() {
            if let Some(up) = self.running_volumes.get(&key) {
                up.shared.release(open);
            }
        }
        // Not at once: it would fail at once.
        self.after(t, SICK_NS, Message::RetryRecords);
    }

    /// J8: whether the failures of a member that stays left the rows of a volume in order.
    fn is_in_order(&self, key: u32, slot: usize) -> bool {
        let (Some(up), Some(set)) = (self.running_volumes.get(&key), &self.set) else {
            return false;
        };
        // A member that is being filled lacks the data that it failed.
        let good = set.volume(key).and_then(|at| set.role(at, slot));
        let good = good.is_some_and(|(_, role)| role == Role::Good);
        good && up.shared.shape.parities() > 0 && up.in_doubt & bit(slot) == 0
    }

    /// J8: a disk could not make its written data stable, and stays.
    pub(super) fn mark_doubtful_if_needed(&mut self, t: &mut Topology, tag: Tag) {
        let index = self.set.as_ref().and_then(|set| set.disk(tag));
        if index.is_some_and(|index| self.is_needed(index)) {
            self.slots(tag).into_iter().for_each(|(key, _)| self.mark_inconsistent(t, key));
        }
    }

    /// Copies or parity of a volume may differ anywhere.
    pub(super) fn mark_inconsistent(&mut self, t: &mut Topology, key: u32) {
        self.halt_pass(key);
        if let Some(up) = self.running_volumes.get_mut(&key) {
            up.in_doubt = 0;
        }
        let Some(set) = &mut self.set else { return };
        let Some(at) = set.volume(key) else { return };
        set.mark_inconsistent(at);
        if let (Some(up), Some(vol)) = (self.running_volumes.get(&key), set.volume_status.get(at)) {
            up.shared.consistent_to.store(vol.consistent_to, SeqCst);
            if let Some(log) = up.shared.log() {
                log.set_doubt();
                Log::write_doubt(&up.shared);
            }
            if set.is_doubtful(at) {
                let why = "its parity may be wrong for the missing data: dirty until all its disks \
                           are rebuilt";
                t.remark(self.me, Severity::Failed, &format!("{}: {why}", up.name));
            }
        }
    }

    /// Volumes and slots in which a disk is.
    fn slots(&self, tag: Tag) -> Vec<(u32, usize)> {
        let Some(set) = &self.set else { return Vec::new() };
        let Some(index) = set.disk(tag) else { return Vec::new() };
        let of = set.volume_status.iter().zip(&set.array.volumes);
        of.flat_map(|(vol, volume)| {
            let slots = volume.members.iter().enumerate().filter(|(_, m)| m.disk == index);
            slots.map(|(slot, _)| (vol.key, slot)).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Slots about which nothing has been decided, by volume.
    fn open_slots(&self) -> BTreeMap<u32, u64> {
        let mut open: BTreeMap<u32, u64> =
            self.running_volumes.iter().map(|(key, up)| (*key, up.unrecorded)).collect();
        for job in &self.queue {
            if let Job::Out(tag, _) = job {
                for (key, slot) in self.slots(*tag) {
                    *open.entry(key).or_default() |= bit(slot);
                }
            }
        }
        open
    }

    /// Releases the writes that do not wait for a member with a pending decision.
    pub(super) fn release_decided(&mut self, _: &Topology) {
        for (key, open) in self.open_slots() {
            if let Some(up) = self.running_volumes.get(&key) {
                up.shared.release(open);
            }
        }
    }
}
