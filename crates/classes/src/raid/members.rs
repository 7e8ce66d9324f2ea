//! State of a running array, without any I/O: its disks, the states of their members, the abilities
//! of its volumes, and the records to be written.
//!
//! Invariants
//!  A1  A member is read only if it has everything; one that is being filled is written.
//!  A2  A disk that returns is taken as it is only if the records on the other disks still call
//!      it a member in order, its own does not call it a spare and is as new as when it left (one
//!      that is older is a copy). The volume must also be clean, which proves that nothing was
//!      written without it.
//!  A3  A volume with parity that lacks a member and may have been written when it was left does
//!      not start unless it is forced. The data of the missing member cannot be computed from
//!      parity that may be old. After a forced start that data is defined by the parity. Where no
//!      second parity exists, an error in it can never be detected.
//!  A4  While copies may differ or parity may be wrong, the records are marked dirty (or never
//!      initialised).
//!  A5  A volume with logs of partial parity that was left dirty is not offered before they have
//!      been replayed. Then its parity is right (A3 does not speak of it). One replay at a time:
//!      the next begins when the last has ended.
//!  A6  A member whose own record is two generations or more behind, though the newest calls it in
//!      order, is an older copy of itself. It is filled anew, unless a volume cannot do without it.

use super::model::{
    Array, Disk, DiskState, Level, Member, Migration, MigrationKind, SubdiskState, Volume,
    VolumeState,
};
use super::volume::map::{MEMBERS_MAX, Shape};
use super::volume::{Role, sweep};

/// The number of an attached disk; not used again.
pub(crate) type Tag = u32;

/// Everywhere.
pub(crate) const ALL: u64 = u64::MAX;

/// One volume, beside its description in the array.
#[derive(Clone, Debug)]
pub(crate) struct VolumeStatus {
    pub(crate) key: u32,
    /// It is offered.
    pub(crate) up: bool,
    /// Started although parity may be wrong (A3).
    pub(crate) forced: bool,
    /// It was started so, and parity defines the data of a missing member.
    pub(crate) accepted_parity: bool,
    /// Copies agree and parity is right below this byte of the volume.
    pub(crate) consistent_to: u64,
    /// Members being filled have everything below this byte of the volume.
    pub(crate) filled: u64,
    /// Its members were never synchronised.
    pub(crate) never_synced: bool,
    /// The reason why its last pass did not complete.
    pub(crate) halt: Option<sweep::PassHalt>,
    /// What becomes of its logs.
    pub(crate) replay: Replay,
    /// Why they were not believed.
    pub(crate) unread: Option<String>,
}

/// What becomes of the logs of a volume that has some, at its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replay {
    /// There are none, or they are of no use.
    None,
    /// They are to be replayed before it is offered (A5).
    Wanted,
    /// They are being replayed.
    Runs,
    /// They are, and the members have changed since it began: they are to be replayed again.
    Again,
    /// They were.
    Done,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct MemberSet {
    pub(crate) array: Array,
    /// As stored in the records on the disks.
    pub(crate) recorded: Array,
    /// By disk: which attached one it is.
    pub(crate) attached: Vec<Option<Tag>>,
    pub(crate) volume_status: Vec<VolumeStatus>,
    keys: u32,
}

fn is_good(state: SubdiskState) -> bool {
    matches!(state, SubdiskState::Active | SubdiskState::Uninitialized | SubdiskState::Resync)
}

impl MemberSet {
    /// An array that starts with the disks that are `attached`.
    pub(crate) fn start(array: Array, attached: Vec<Option<Tag>>) -> MemberSet {
        let recorded = array.clone();
        let mut set = MemberSet { array, recorded, attached, volume_status: Vec::new(), keys: 0 };
        set.attached.resize(set.array.disks.len(), None);
        for index in 0..set.array.disks.len() {
            if set.attached.get(index).copied().flatten().is_none() {
                set.mark_absent(index, DiskState::Missing);
            } else {
                set.mark_present(index);
            }
        }
        for index in 0..set.array.volumes.len() {
            set.open(index);
        }
        set
    }

    fn set_members(&mut self, disk: usize, state: SubdiskState) {
        for member in self.array.volumes.iter_mut().flat_map(|v| &mut v.members) {
            if member.disk == disk {
                member.state = state;
            }
        }
    }

    /// A disk is not there, or not to be used, from now on.
    pub(crate) fn mark_absent(&mut self, index: usize, state: DiskState) {
        let member = match state {
            DiskState::Failed | DiskState::Disabled => SubdiskState::Failed,
            _ => SubdiskState::None,
        };
        let Some(disk) = self.array.disks.get_mut(index) else { return };
        // What failed does not become merely absent.
        let known = matches!(disk.state, DiskState::Failed | DiskState::Disabled);
        if !known {
            disk.state = state;
            self.set_members(index, member);
        }
        if let Some(place) = self.attached.get_mut(index) {
            *place = None;
        }
    }

    /// A disk that is there: one that the records call missing has missed writes.
    fn mark_present(&mut self, index: usize) {
        let Some(disk) = self.array.disks.get_mut(index) else { return };
        if disk.state == DiskState::Missing {
            disk.state = DiskState::Active;
            self.set_members(index, SubdiskState::New);
            // Nothing can have been written to what cannot do without it.
            for volume in self.array.volumes.iter_mut().filter(|v| !v.level.redundant()) {
                for member in volume.members.iter_mut().filter(|m| m.disk == index) {
                    member.state = SubdiskState::Active;
                }
            }
        }
    }

    /// Initial internal state of a volume, from its description.
    fn open(&mut self, index: usize) {
        self.keys += 1;
        let key = self.keys;
        let Some(volume) = self.array.volumes.get_mut(index) else { return };
        let shape = Shape::of(volume);
        let redundant = volume.level.redundant();
        let dirty = volume.dirty;
        let raw = redundant && volume.uninitialized();
        let migration = volume.migration.take();
        let done = |kind| match migration {
            Some(m) if m.kind == kind => Some(shape.of_member(m.done)),
            _ => None,
        };
        let even = match (redundant, dirty) {
            (false, _) => ALL,
            (true, true) => 0,
            (true, false) if raw => done(MigrationKind::Init).unwrap_or(0),
            (true, false) => done(MigrationKind::Repair).unwrap_or(ALL),
        };
        let mut anew = dirty;
        for member in &mut volume.members {
            member.state = match member.state {
                SubdiskState::Stale | SubdiskState::New => {
                    anew = true;
                    SubdiskState::New
                }
                SubdiskState::Resync => SubdiskState::Active,
                SubdiskState::Uninitialized if !redundant => SubdiskState::Active,
                state => state,
            };
        }
        let filled = done(MigrationKind::Rebuild).filter(|_| !anew).unwrap_or(0);
        let logged = volume.log.is_some() && dirty && !raw;
        let replay = if logged { Replay::Wanted } else { Replay::None };
        let (up, forced, halt, unread) = (false, false, None, None);
        let as_it_is = false;
        let vol = VolumeStatus {
            key,
            up,
            forced,
            accepted_parity: as_it_is,
            consistent_to: even,
            filled,
            never_synced: raw,
            halt,
            replay,
            unread,
        };
        match self.volume_status.get_mut(index) {
            Some(old) => *old = vol,
            None => self.volume_status.push(vol),
        }
    }

    /// A further volume, at the end.
    pub(crate) fn add_volume(&mut self, volume: Volume) {
        self.array.volumes.push(volume);
        self.open(self.array.volumes.len() - 1);
    }

    /// Members have been added or removed: a running replay is repeated.
    pub(crate) fn replay_again(&mut self) {
        for vol in self.volume_status.iter_mut().filter(|vol| vol.replay == Replay::Runs) {
            vol.replay = Replay::Again;
        }
    }

    /// The logs of a volume have been replayed, or not. False when it is to be done again.
    pub(crate) fn replayed(&mut self, index: usize, why_not: Option<String>) -> bool {
        let Some(vol) = self.volume_status.get_mut(index) else { return false };
        if vol.replay != Replay::Runs {
            vol.replay = Replay::Wanted;
            return false;
        }
        vol.replay = if why_not.is_none() { Replay::Done } else { Replay::None };
        if why_not.is_none() {
            vol.consistent_to = ALL;
        }
        vol.unread = why_not;
        true
    }

    /// The index of a volume by its number.
    pub(crate) fn volume(&self, key: u32) -> Option<usize> {
        self.volume_status.iter().position(|vol| vol.key == key)
    }

    pub(crate) fn disk(&self, tag: Tag) -> Option<usize> {
        self.attached.iter().position(|own| *own == Some(tag))
    }

    /// The role of a volume's member in a slot; `None`: not used.
    pub(crate) fn role(&self, volume: usize, slot: usize) -> Option<(Tag, Role)> {
        let member = self.array.volumes.get(volume)?.members.get(slot)?;
        let tag = self.attached.get(member.disk).copied().flatten()?;
        match member.state {
            state if is_good(state) => Some((tag, Role::Good)),
            SubdiskState::Rebuild | SubdiskState::New => Some((tag, Role::Filling)),
            _ => None,
        }
    }

    fn roles(&self, volume: usize) -> impl Iterator<Item = Option<Role>> {
        let slots = self.array.volumes.get(volume).map_or(0, |v| v.members.len());
        (0..slots).map(move |slot| self.role(volume, slot).map(|(_, role)| role))
    }

    /// Slots of a volume's members that are being filled.
    pub(crate) fn filled(&self, volume: usize) -> Vec<usize> {
        let all = self.roles(volume).enumerate();
        all.filter(|(_, role)| *role == Some(Role::Filling)).map(|(slot, _)| slot).collect()
    }

    /// True when some member of a volume is being filled.
    pub(crate) fn is_filling(&self, volume: usize) -> bool {
        self.roles(volume).any(|role| role == Some(Role::Filling))
    }

    fn is_complete(&self, volume: usize) -> bool {
        self.roles(volume).all(|role| role == Some(Role::Good))
    }

    /// Whether the records mark a volume dirty, and list its absent members.
    pub(crate) fn is_recorded_dirty(&self, at: usize) -> bool {
        let (Some(now), Some(recorded)) =
            (self.array.volumes.get(at), self.recorded.volumes.get(at))
        else {
            return false;
        };
        let is_member_recorded = |(slot, member): (usize, &Member)| {
            let state = self.recorded.disks.get(member.disk).map(|disk| disk.state);
            let recorded = recorded.members.get(slot).map(|member| member.state);
            self.role(at, slot).is_some()
                || state != Some(DiskState::Active)
                || !recorded.is_some_and(is_good)
        };
        now.dirty && recorded.dirty && now.members.iter().enumerate().all(is_member_recorded)
    }

    /// Whether the data of a missing member of a volume can only be computed from parity that may
    /// be wrong (A3).
    pub(crate) fn is_doubtful(&self, index: usize) -> bool {
        let level = self.array.volumes.get(index).map(|volume| volume.level);
        let parity = matches!(level, Some(Level::Raid4 | Level::Raid5(_) | Level::Raid6(_)));
        let even = self.volume_status.get(index).is_none_or(|vol| vol.consistent_to == ALL);
        parity && !even && !self.is_complete(index)
    }

    /// A3: a volume that is offered though its parity may be wrong.
    pub(crate) fn accept_parity(&mut self, index: usize) {
        let volume = self.array.volumes.get(index);
        let parities = volume.map_or(0, |volume| Shape::of(volume).parities());
        let lost = self.roles(index).filter(|role| *role != Some(Role::Good)).count();
        let is_spent = self.is_doubtful(index) && lost >= parities;
        if let Some(vol) = self.volume_status.get_mut(index).filter(|_| is_spent) {
            (vol.consistent_to, vol.accepted_parity) = (ALL, true);
        }
    }

    /// Whether the data of a missing member of a volume may differ from the result of parity,
    /// though parity was accepted for it (A3).
    pub(crate) fn may_be_wrong(&self, index: usize) -> bool {
        let taken = self.volume_status.get(index).is_some_and(|vol| vol.accepted_parity);
        self.is_doubtful(index) || taken && !self.is_complete(index)
    }

    /// A volume's state by what its members are.
    pub(crate) fn state(&self, volume: usize) -> VolumeState {
        let Some(known) = self.array.volumes.get(volume) else { return VolumeState::Broken };
        let mut now = known.clone();
        for (slot, member) in now.members.iter_mut().enumerate() {
            if self.role(volume, slot).is_none() {
                member.state = member.state.min(SubdiskState::Failed);
            }
        }
        let even = self.volume_status.get(volume).is_none_or(|vol| vol.consistent_to == ALL);
        match now.state() {
            VolumeState::Optimal if !even => VolumeState::Suboptimal,
            state => state,
        }
    }

    /// Whether a volume can be offered.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(crate) fn can_start(&self, index: usize, name: &str) -> Result<(), String> {
        let (Some(volume), Some(vol)) =
            (self.array.volumes.get(index), self.volume_status.get(index))
        else {
            return Err("no such volume".into());
        };
        if volume.members.len() > MEMBERS_MAX {
            return Err(format!(
                "it has {} members; {MEMBERS_MAX} are possible",
                volume.members.len()
            ));
        }
        if self.state(index) == VolumeState::Broken {
            let present = self.roles(index).filter(|role| *role == Some(Role::Good)).count();
            let all = volume.members.len();
            return Err(format!(
                "{present} of its {all} members are present and complete: connect the others"
            ));
        }
        if self.is_doubtful(index) && !vol.forced {
            return Err(format!(
                "a member is missing and parity may be wrong, because writes were interrupted: \
                 connect the member, or start without it with `ashlar raid start --force {name}` \
                 and check its data"
            ));
        }
        Ok(())
    }

    /// Volumes that are up and would break without a disk.
    pub(crate) fn breaks(&self, index: usize) -> Vec<usize> {
        let mut without = self.clone();
        without.mark_absent(index, DiskState::Missing);
        let up = (0..self.volume_status.len())
            .filter(|at| self.volume_status.get(*at).is_some_and(|vol| vol.up));
        up.filter(|at| without.state(*at) == VolumeState::Broken).collect()
    }

    /// A disk of the array has arrived while it runs; `spare` when its own record calls it one, or
    /// is an older copy. True when it was taken as it is.
    pub(crate) fn arrive(&mut self, index: usize, tag: Tag, spare: bool) -> bool {
        if let Some(place) = self.attached.get_mut(index) {
            *place = Some(tag);
        }
        let recorded = self.recorded.disks.get(index).map(|disk| disk.state);
        let mut trusted = matches!(recorded, Some(DiskState::Active));
        let member = self.array.volumes.iter().flat_map(|v| &v.members).any(|m| m.disk == index);
        if let Some(disk) = self.array.disks.get_mut(index) {
            disk.state = if member { DiskState::Active } else { DiskState::Spare };
        }
        for at in 0..self.array.volumes.len() {
            let up = self.volume_status.get(at).is_some_and(|vol| vol.up);
            let clean = self.recorded.volumes.get(at).is_none_or(|volume| !volume.dirty)
                && self.volume_status.get(at).is_none_or(|vol| vol.consistent_to == ALL);
            let Some(volume) = self.array.volumes.get_mut(at) else { continue };
            let redundant = volume.level.redundant();
            for (slot, member) in volume.members.iter_mut().enumerate() {
                if member.disk != index {
                    continue;
                }
                let before = self.recorded.volumes.get(at).and_then(|v| v.members.get(slot));
                let before = before.filter(|m| m.disk == index).map(|m| m.state);
                let known = recorded == Some(DiskState::Active) && !spare;
                // A2; a volume that is not up was not written.
                member.state = match before {
                    Some(state) if is_good(state) && known && (clean || !up) => state,
                    _ if !redundant => SubdiskState::Active,
                    _ => SubdiskState::New,
                };
                if member.state == SubdiskState::New {
                    trusted = false;
                    if let Some(vol) = self.volume_status.get_mut(at) {
                        vol.filled = 0;
                        vol.halt = None;
                    }
                }
            }
        }
        trusted
    }

    /// Spares that are there take the places of disks that are not. True when one did.
    pub(crate) fn take_spares(&mut self) -> bool {
        let mut took = false;
        loop {
            let out = (0..self.array.disks.len()).find(|disk| self.needs_replacement(*disk));
            let Some(out) = out else { return took };
            let ends = self.array.volumes.iter().flat_map(|v| &v.members);
            let ends = ends.filter(|m| m.disk == out).map(|m| m.offset.saturating_add(m.bytes));
            let need = ends.max().unwrap_or(0);
            let fits = |(index, disk): &(usize, &Disk)| {
                let is_attached = self.attached.get(*index).copied().flatten().is_some();
                is_attached && disk.state == DiskState::Spare && disk.bytes >= need
            };
            let spare = self.array.disks.iter().enumerate().find(fits).map(|(index, _)| index);
            let Some(spare) = spare else { return took };
            self.replace(out, spare);
            took = true;
        }
    }

    /// A disk that is away, with a place in a volume that can do with another.
    fn needs_replacement(&self, disk: usize) -> bool {
        if self.attached.get(disk).copied().flatten().is_some() {
            return false;
        }
        let member = |v: &Volume| v.members.iter().any(|m| m.disk == disk);
        let mut of = (0..self.array.volumes.len())
            .filter(|at| self.array.volumes.get(*at).is_some_and(member))
            .peekable();
        // In all of its volumes: a place in one that is broken is kept for the disk itself.
        of.peek().is_some() && of.all(|at| self.state(at) >= VolumeState::Degraded)
    }

    fn replace(&mut self, out: usize, spare: usize) {
        if let Some(disk) = self.array.disks.get_mut(spare) {
            disk.state = DiskState::Active;
        }
        for (at, volume) in self.array.volumes.iter_mut().enumerate() {
            for member in volume.members.iter_mut().filter(|m| m.disk == out) {
                member.disk = spare;
                member.state = SubdiskState::New;
                if let Some(vol) = self.volume_status.get_mut(at) {
                    (vol.filled, vol.halt) = (0, None);
                }
            }
        }
        self.drop_disk(out);
    }

    /// A disk that is in no volume is not listed any more.
    pub(crate) fn drop_disk(&mut self, out: usize) {
        let used = self.array.volumes.iter().flat_map(|v| &v.members).any(|m| m.disk == out);
        if used || out >= self.array.disks.len() {
            return;
        }
        self.array.disks.remove(out);
        if out < self.attached.len() {
            self.attached.remove(out);
        }
        let members = self.array.volumes.iter_mut().flat_map(|v| &mut v.members);
        members.filter(|m| m.disk > out).for_each(|m| m.disk -= 1);
        // The last written state uses the old indexes: it is written anew before it is used.
        if out < self.recorded.disks.len() {
            self.recorded.disks.remove(out);
            for member in self.recorded.volumes.iter_mut().flat_map(|v| &mut v.members) {
                match member.disk.cmp(&out) {
                    std::cmp::Ordering::Greater => member.disk -= 1,
                    std::cmp::Ordering::Equal => member.disk = usize::MAX,
                    std::cmp::Ordering::Less => {}
                }
            }
        }
    }

    /// Where a pass over a volume has to begin; `None`: there is nothing to do.
    pub(crate) fn pass_from(&self, index: usize) -> Option<u64> {
        let (volume, vol) = (self.array.volumes.get(index)?, self.volume_status.get(index)?);
        if !vol.up || vol.halt.is_some() || !volume.level.redundant() {
            return None;
        }
        let parity = Shape::of(volume).parities() > 0;
        let filling = self.is_filling(index);
        let uneven =
            vol.consistent_to != ALL && (!parity || self.roles(index).all(|role| role.is_some()));
        match (filling, uneven) {
            (true, true) => Some(vol.filled.min(vol.consistent_to)),
            (true, false) => Some(vol.filled),
            (false, true) => Some(vol.consistent_to),
            (false, false) => None,
        }
    }

    /// A pass over a volume has reached this position.
    pub(crate) fn passed_to(&mut self, index: usize, done: u64) {
        let filling = self.is_filling(index);
        if let Some(vol) = self.volume_status.get_mut(index) {
            if filling {
                vol.filled = vol.filled.max(done);
            }
            if vol.consistent_to != ALL {
                vol.consistent_to = vol.consistent_to.max(done);
            }
        }
    }

    /// A pass over a volume has done all of it.
    pub(crate) fn passed(&mut self, index: usize) {
        let Some(volume) = self.array.volumes.get_mut(index) else { return };
        let attached = &self.attached;
        for member in &mut volume.members {
            let is_attached = attached.get(member.disk).copied().flatten().is_some();
            if is_attached && member.state >= SubdiskState::New {
                member.state = SubdiskState::Active;
            }
        }
        if let Some(vol) = self.volume_status.get_mut(index) {
            (vol.consistent_to, vol.filled, vol.never_synced) = (ALL, 0, false);
            (vol.forced, vol.accepted_parity) = (false, false);
        }
    }

    /// Copies or parity of a volume may differ anywhere from now on.
    pub(crate) fn mark_inconsistent(&mut self, index: usize) {
        let redundant = self.array.volumes.get(index).is_some_and(|v| v.level.redundant());
        if let Some(vol) = self.volume_status.get_mut(index).filter(|_| redundant) {
            (vol.consistent_to, vol.filled, vol.halt) = (0, 0, None);
        }
    }

    /// The array as it is to be recorded now.
    pub(crate) fn record(&self) -> Array {
        let mut array = self.array.clone();
        for (index, volume) in array.volumes.iter_mut().enumerate() {
            let Some(vol) = self.volume_status.get(index) else { continue };
            let shape = Shape::of(volume);
            let filling = self.is_filling(index);
            let uneven = vol.consistent_to != ALL;
            for member in &mut volume.members {
                member.state = match member.state {
                    SubdiskState::New if vol.up => SubdiskState::Rebuild,
                    SubdiskState::Active if vol.never_synced && uneven => {
                        SubdiskState::Uninitialized
                    }
                    state => state,
                };
            }
            // A4
            volume.dirty |= uneven && (filling || !vol.never_synced);
            volume.migration = match (filling && vol.up, uneven && vol.never_synced) {
                (true, _) => {
                    let done = shape.to_member(vol.filled);
                    Some(Migration { kind: MigrationKind::Rebuild, done })
                }
                (false, true) => {
                    let done = shape.to_member(vol.consistent_to);
                    Some(Migration { kind: MigrationKind::Init, done })
                }
                (false, false) => None,
            };
        }
        array
    }
}
