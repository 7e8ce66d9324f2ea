//! What a mirror is, without any I/O: members, who of them is to be believed, and what their
//! records shall say.
//!
//! ```text
//!               arrive                     start                       rebuilt
//!   (absent) -----------> ARRIVED -----------------> SYNCHRONIZING -----------> ACTIVE
//!       ^                    |   \-- as new as the others, not dirty ------------^  |
//!       |                    |   \-- NOAUTOSYNC --> STALE -- rebuild -->            |
//!       +---- broken, left --+------------------------- an error, unplugged --------+
//! ```
//!
//! Invariants (geom.md 2.2, 5.2, 7)
//!  M1  Parameters and contents are those of the newest members by (genid, syncid), whatever the
//!      order of arrival. A member with a lower genid is broken and is not used; with a lower
//!      syncid it is rebuilt from its start.
//!  M2  Of several dirty newest members one is the master: the highest priority. The others are
//!      rebuilt: after a crash nobody knows which of the last writes each has.
//!  M3  Before the first write without a member that is only absent the syncid grows; when a
//!      member failed, the genid does, and the write that it failed is not acknowledged before.
//!  M4  The last ACTIVE member is never dropped.
//!  M5  A member that comes late is ACTIVE only if nothing was written without it and it is clean.
//!  M7  A mirror that starts after a crash without some of its members grows its syncid at once:
//!      what was being written may be on them and not here, or the other way round.
//!  M8  Who was forgotten and comes back is counted again: otherwise one of two members would look
//!      like a whole mirror, and start without the other, newer one.
//!  M9  With bitmaps a member that had everything when the power went is rebuilt only where they
//!      say so: the bits of all such members together.
//!  M6  A rebuild that was interrupted goes on where it was, if nothing was being written then.
//!  M10 The members whose records ever said one (genid, syncid) are no more than those records
//!      count: the syncid grows, in the same records, when fewer are counted, and when somebody
//!      comes who is rebuilt and perhaps not counted, for another one may be in his place who was
//!      not seen yet. Otherwise one that was forgotten, or never seen, and one that failed later
//!      would look like a whole mirror, and start without the newest.
//!  M11 Of two that bear one number, and are not one disk, the one that is used is the newer from
//!      then on: the syncid grows when a copy is seen, and when another disk comes with the number
//!      of one that was here. So a copy is rebuilt before it is used. Of two that look alike when
//!      nothing runs yet the first is taken: no record tells which of them it was.
//!  M12 Where records say who went on without whom (`lineage`), that counts and not the counters.
//!      Two that each went on without the other are not put together: nothing starts until
//!      the operator says which of them is kept, and the other is rebuilt from its start.
//!  M13 Of members alike in all else those with fewer events are rebuilt: by bitmaps when they lack
//!      one, from their start when they lack more, for then they were restored from a copy.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::age::{Newest, is_copied, is_dirty};
use super::bitmap::{Image, Shape};
use super::lineage::{Kin, Lineage};
use super::metadata::{Balance, Metadata, disk_flags, mirror_flags};

/// Members at most: what one word of bits can name.
pub(super) const MEMBERS_MAX: usize = 32;

/// What a member is to the mirror.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
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
    pub(super) fn word(self) -> &'static str {
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
pub(super) struct Member {
    /// Its record as it was found, or as it was written last.
    pub(super) record: Metadata,
    pub(super) role: Role,
    /// Size and sector size of its provider now, bytes.
    pub(super) provider_bytes: u64,
    pub(super) sector_bytes: u32,
    /// Its bitmap as it was found.
    pub(super) bits: Vec<u8>,
    /// Rebuilt only where bitmaps say so.
    pub(super) partial: bool,
}

/// How a member was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Gone: it may come back and is rebuilt then.
    Absent,
    /// It answered a request with an error: not used again until somebody says so.
    Broken,
}

/// What became of a member that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// It is in this slot.
    In(usize),
    /// It is not used, and why.
    Refused(String),
    /// A member of this number is there: a copy, or the same disk come back before it was missed.
    Twin,
    /// A member of this number is in this slot, and is the older of the two (M11).
    Instead(usize),
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    pub(super) name: String,
    pub(super) id: u32,
    /// Members there are, attached or not.
    pub(super) all: u8,
    pub(super) genid: u32,
    pub(super) syncid: u32,
    /// What the records prove besides (M12, M13).
    pub(super) lineage: Lineage,
    pub(super) slice: u32,
    pub(super) balance: Balance,
    pub(super) media_bytes: u64,
    /// While it becomes smaller: bytes that those above have until the records say less (G4).
    pub(super) shown_bytes: u64,
    pub(super) sector_bytes: u32,
    pub(super) flags: u64,
    /// What may differ between members, if that is kept.
    pub(super) bitmap: Option<Image>,
    /// Made by hand: nothing is written to the members' last sectors.
    pub(super) manual: bool,
    pub(super) running: bool,
    /// Writes may have reached some members and not others.
    pub(super) dirty: bool,
    /// The syncid is to grow before the next write.
    pub(super) bump: bool,
    /// By slot.
    pub(super) slots: Vec<Option<Member>>,
    /// How often writes began since it runs, and how often they had when a member went that was
    /// not missing anything (by its number).
    begun: u64,
    gone_at: BTreeMap<u32, u64>,
    /// Numbers of members that are surely among those counted.
    counted: BTreeSet<u32>,
    /// How often the syncid grew for M7 or M10: until that is on record the old members could
    /// start without what is new.
    pub(super) renewed: u64,
    /// Slots that were left while the mirror ran, the longest free first: used again when there
    /// are no others, so that what is still said of one speaks of its tenant.
    left: VecDeque<usize>,
}

impl Mirror {
    /// A mirror that has not started, as a first record describes it.
    pub(super) fn of(record: &Metadata) -> Mirror {
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
            shown_bytes: 0,
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
            renewed: 0,
            left: VecDeque::new(),
        };
        mirror.follow(record);
        mirror
    }

    /// Takes the parameters of a record over (M1).
    pub(super) fn follow(&mut self, record: &Metadata) {
        self.all = record.all;
        self.genid = record.genid;
        self.syncid = record.syncid;
        self.lineage = record.lineage.clone();
        self.slice = record.slice;
        self.balance = record.balance;
        self.media_bytes = record.media_bytes;
        self.sector_bytes = record.sector_bytes;
        self.flags = record.flags;
        self.bitmap = record.bitmap.map(Image::clear);
    }

    /// Attached members with their slots.
    pub(super) fn members(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.slots.iter().enumerate().filter_map(|(i, m)| Some((i, m.as_ref()?)))
    }

    /// The member in a slot.
    pub(super) fn member(&self, slot: usize) -> Option<&Member> {
        self.slots.get(slot)?.as_ref()
    }

    fn member_mut(&mut self, slot: usize) -> Option<&mut Member> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Slots of the members in a role.
    pub(super) fn in_role(&self, role: Role) -> Vec<usize> {
        self.members().filter(|(_, m)| m.role == role).map(|(i, _)| i).collect()
    }

    /// Why a provider with sectors of so many bytes cannot be a member, if it cannot.
    pub(super) fn other_sectors(&self, sector_bytes: u32) -> Option<String> {
        let fits = sector_bytes > 0 && self.sector_bytes.is_multiple_of(sector_bytes);
        (!fits).then(|| {
            format!(
                "its sectors have {sector_bytes} bytes, those of the mirror {}: it cannot write \
                 one of them",
                self.sector_bytes
            )
        })
    }

    /// A member was found. Before the start it is only taken in.
    pub(super) fn arrive(
        &mut self,
        record: Metadata,
        provider_bytes: u64,
        sector_bytes: u32,
    ) -> Arrival {
        let refused = |why: String| Arrival::Refused(why);
        if record.id != self.id {
            return refused(format!(
                "another mirror/{} is there (id {}, this one is {})",
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
            return refused(format!(
                "it was deactivated: `ashlar mirror activate {} PROVIDER` takes it in again",
                self.name
            ));
        }
        let kin = record.lineage.kin(&self.lineage);
        let newer = match kin {
            Kin::Older => false,
            Kin::Newer => true,
            _ => (record.genid, record.syncid) > (self.genid, self.syncid),
        };
        if let Some(why) = self.too_late(&record, kin, newer).filter(|_| self.running) {
            return refused(why);
        }
        if newer {
            self.follow(&record);
        } else if (record.genid, record.syncid) == (self.genid, self.syncid) {
            self.all = self.all.max(record.all);
            // One whose record was moving when the power went has none (bitmap B4).
            if !self.running && self.bitmap.is_none() {
                self.bitmap = record.bitmap.map(Image::clear);
            }
        }
        if !self.fits(provider_bytes) {
            return refused(format!(
                "it has {provider_bytes} bytes, fewer than the mirror's {} and a sector",
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
            && let Some(why) = self.misfit(&member)
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

    /// Nobody is in the slot any more.
    pub(super) fn vacate(&mut self, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot)
            && place.take().is_some()
        {
            self.left.push_back(slot);
        }
    }

    /// Bytes that are the same on all members, and are read from any.
    pub(super) fn held_bytes(&self) -> u64 {
        self.media_bytes.max(self.shown_bytes)
    }

    /// Whether a provider of so many bytes can be a member.
    pub(super) fn fits(&self, provider_bytes: u64) -> bool {
        let metadata = if self.manual { 0 } else { u64::from(self.sector_bytes) };
        let bitmap = self.shape().map_or(0, |s| u64::from(s.bytes));
        provider_bytes >= self.held_bytes().saturating_add(metadata).saturating_add(bitmap)
    }

    /// What the bitmaps look like, if there are any.
    pub(super) fn shape(&self) -> Option<Shape> {
        self.bitmap.as_ref().map(|image| image.shape)
    }

    /// M5: what a member is that comes to a mirror that runs: to be asked while no write is under
    /// way, and not when it arrives, for it may be missed by writes that begin in between.
    pub(super) fn place_late(&mut self, slot: usize) {
        let (top, auto) = (self.syncid, self.flags & mirror_flags::NOAUTOSYNC == 0);
        self.count_in();
        let disk = self.member(slot).map(|m| m.record.disk);
        let then = disk.and_then(|d| self.gone_at.get(&d)).copied().unwrap_or(0);
        // Nothing was written without it. Its syncid alone does not say so: a mirror may have had
        // as many members as it expects, and not this one among them.
        let same = then == self.begun && !self.dirty;
        let newest = self.newest();
        let Some(member) = self.member_mut(slot) else { return };
        let is_new = member.record.syncid == top;
        if same && newest.is_had_by(member) && !is_dirty(member, true) {
            member.role = Role::Active;
            self.hold();
            return self.admit(slot, is_new);
        }
        member.partial = false;
        if !same || !newest.resumes(member, true) {
            member.record.sync_offset = 0;
        }
        let asked = member.record.has(disk_flags::FORCE_SYNC);
        member.role = if auto || asked { Role::Synchronizing } else { Role::Stale };
        if member.role == Role::Synchronizing {
            self.admit(slot, is_new);
        }
    }

    /// M10: a member's record is to be as new as the others'; `is_new` when it is already.
    fn admit(&mut self, slot: usize, is_new: bool) {
        let Some(disk) = self.member(slot).map(|m| m.record.disk) else { return };
        if !self.counted.contains(&disk) && !is_new {
            self.renew();
            self.count_those_here();
        }
        self.counted.insert(disk);
    }

    /// M11; S1 of `settings`.
    pub(super) fn outdate_absent(&mut self) {
        self.renew();
        self.count_those_here();
    }

    fn count_those_here(&mut self) {
        let copied = self.members().filter(|(_, m)| m.role != Role::Stale);
        self.counted = copied.map(|(_, m)| m.record.disk).collect();
    }

    /// The syncid grows: the records that are written next are newer than all others.
    fn renew(&mut self) {
        self.bump = false;
        self.syncid = self.syncid.wrapping_add(1);
        self.renewed += 1;
        self.fork();
    }

    /// So many members are counted from now on (M10).
    pub(super) fn count_only(&mut self, all: u8) {
        if std::mem::replace(&mut self.all, all.max(1)) > all.max(1) {
            self.renew();
            self.count_those_here();
        }
    }

    /// One more is counted.
    pub(super) fn count_new(&mut self, disk: u32) {
        self.all = self.all.saturating_add(1);
        self.counted.insert(disk);
    }

    /// One is counted in the place of one that is away and has older records (M10). False: one
    /// that is away has records as new as those that are here.
    pub(super) fn count_instead(&mut self, disk: u32) -> bool {
        let is_here = |disk: &u32| self.members().any(|(_, m)| m.record.disk == *disk);
        let older = self.counted.iter().all(is_here);
        if older {
            self.counted.insert(disk);
        }
        older
    }

    /// True when every member there should be has arrived.
    pub(super) fn is_complete(&self) -> bool {
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
        let used = self.members().filter(|(_, m)| self.misfit(m).is_none() && is_new(m));
        used.count() >= usize::from(self.all)
    }

    /// Why a member cannot be used beside the newest, if so.
    fn misfit(&self, member: &Member) -> Option<String> {
        let (record, genid) = (&member.record, self.genid);
        if record.genid < genid {
            return Some(format!("it failed once (genid {}, the newest is {genid})", record.genid));
        }
        // How many they are may differ: a member may be taken in while not all could be told.
        let same = record.media_bytes == self.media_bytes;
        if self.is_current(record) && !same {
            return Some(format!(
                "its record says that the mirror has {} bytes, the others' {}: it was not written \
                 with them. `ashlar mirror clear` it, then `insert` takes it in anew",
                record.media_bytes, self.media_bytes
            ));
        }
        let bytes = member.provider_bytes;
        (!self.fits(bytes)).then(|| format!("it has {bytes} bytes, too few for the mirror"))
    }

    /// M8
    pub(super) fn count_in(&mut self) {
        self.all = self.all.max(self.members().count() as u8);
    }

    /// Starts with the members there are. Returns the slots of those that are not used, with why.
    /// An error changes nothing.
    pub(super) fn start(&mut self) -> Result<Vec<(usize, String)>, String> {
        if self.is_split() {
            return Err("split brain: members of it were each used without the other".to_owned());
        }
        let out: Vec<(usize, String)> =
            self.members().filter_map(|(slot, m)| Some((slot, self.misfit(m)?))).collect();
        let master = self.choose_master(&out)?;
        let counted = self.member(master).map_or(0, |m| m.record.lineage.events);
        self.lineage.events = counted;
        let newest = self.newest();
        out.iter().for_each(|(slot, _)| self.vacate(*slot));
        let (top, complete) = (self.syncid, self.is_complete());
        // r306743: one that is broken is missing, and must not come back as if nothing had been.
        let missing = self.members().count() < usize::from(self.all) || !out.is_empty();
        let auto = self.flags & mirror_flags::NOAUTOSYNC == 0;
        let failsync = self.flags & mirror_flags::NOFAILSYNC == 0;
        let torn = self.member(master).is_some_and(|m| is_dirty(m, failsync));
        self.gather_bits(&newest);
        let shape = self.shape();
        for slot in 0..self.slots.len() {
            let Some(member) = self.member_mut(slot) else { continue };
            let whole = newest.is_had_by(member);
            let active = slot == master || whole && !is_dirty(member, failsync);
            if active {
                member.role = Role::Active;
                continue;
            }
            member.partial = shape.is_some() && newest.is_marked(member);
            if member.partial || !newest.resumes(member, failsync) {
                member.record.sync_offset = 0;
            }
            let asked = member.record.has(disk_flags::FORCE_SYNC);
            member.role = if auto || asked { Role::Synchronizing } else { Role::Stale };
        }
        self.count_in();
        self.dirty = false;
        self.bump |= missing || self.members().any(|(_, m)| m.role != Role::Active);
        self.running = true;
        self.hold();
        // M7: those that are missing may hold others of the last writes than the master.
        // M10: who is rebuilt may be counted in the place of one that is not there.
        let is_old = |m: &Member| m.role == Role::Synchronizing && m.record.syncid != top;
        let replaces = !complete && self.members().any(|(_, m)| is_old(m));
        if torn && missing || replaces {
            self.renew();
        }
        self.count_those_here();
        Ok(out)
    }

    /// M9: the bits of all that had everything.
    fn gather_bits(&mut self, newest: &Newest) {
        let Some(mut image) = self.bitmap.take() else { return };
        let marked = self.members().filter(|(_, m)| newest.is_marked(m));
        marked.for_each(|(_, m)| image.join(&m.bits));
        self.bitmap = Some(image);
    }

    /// Bits may be cleared: what they name is the same on all that have everything, and nobody
    /// is rebuilt by them (bitmap B2). True when they were.
    pub(super) fn clear_bits(&mut self) -> bool {
        let kept = self.members().any(|(_, m)| m.partial);
        match &mut self.bitmap {
            Some(image) if !kept => {
                *image = Image::clear(image.shape);
                true
            }
            _ => false,
        }
    }

    /// M2: the member whose contents are the mirror's.
    fn choose_master(&self, out: &[(usize, String)]) -> Result<usize, String> {
        let failsync = self.flags & mirror_flags::NOFAILSYNC == 0;
        let used = |slot: &usize| !out.iter().any(|(o, _)| o == slot);
        let is_whole = |m: &Member| self.is_current(&m.record) && !is_copied(m);
        let whole = self.members().filter(|(slot, m)| used(slot) && is_whole(m));
        // Who has the most events (M13); a clean one first; then the highest priority; then the
        // one found first.
        let best = whole.max_by_key(|(slot, m)| {
            let (events, priority) = (m.record.lineage.events, m.record.priority);
            (events, !is_dirty(m, failsync), priority, std::cmp::Reverse(*slot))
        });
        best.map(|(slot, _)| slot).ok_or_else(|| {
            "no member has all of the data: those there are were being rebuilt; plug in the one \
             they were rebuilt from"
                .to_owned()
        })
    }

    /// A member is no longer there. `None`, and nothing changed, when it is the last ACTIVE one
    /// and stays (M4); otherwise whether records must be written before anything is acknowledged.
    pub(super) fn lose(&mut self, slot: usize, fault: Fault, gone: bool) -> Option<bool> {
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

    /// Writes begin: what the records shall say from now on.
    pub(super) fn begin_writes(&mut self) {
        if std::mem::take(&mut self.bump) {
            self.syncid = self.syncid.wrapping_add(1);
            self.fork();
        }
        if self.lineage.line == 0 {
            let all = self.members().map(|(_, m)| m.record.disk).collect::<Vec<_>>();
            self.lineage.fork(all.into_iter(), (self.genid, self.syncid));
        }
        self.lineage.events += 1;
        self.dirty = true;
        self.begun += 1;
    }

    /// Nothing is written any more.
    pub(super) fn end_writes(&mut self) {
        self.dirty = false;
        self.lineage.events += 1;
    }

    /// The mirror has so many bytes from now on. Its syncid grows: a member whose record the power
    /// cut came before, or that is away, is rebuilt.
    pub(super) fn size_to(&mut self, bytes: u64) {
        if self.media_bytes != bytes {
            self.shown_bytes = self.media_bytes.max(self.shown_bytes);
            self.media_bytes = bytes;
            self.renew();
            self.begun += 1;
        }
    }

    /// The size for which all members have room, bytes: whole sectors.
    pub(super) fn most(&self) -> u64 {
        let sector = u64::from(self.sector_bytes);
        let metadata = if self.manual { 0 } else { sector };
        let room = self.members().map(|(_, m)| m.provider_bytes).min().unwrap_or(0);
        let bitmap = self.shape().map_or(0, |s| u64::from(s.bytes));
        let most = room.saturating_sub(metadata).saturating_sub(bitmap);
        most - most % sector.max(1)
    }

    /// A rebuild has come so far, bytes.
    pub(super) fn synced_to(&mut self, slot: usize, offset: u64) {
        if let Some(member) = self.member_mut(slot) {
            member.record.sync_offset = offset;
        }
    }

    /// What a member has is not to be trusted anywhere.
    pub(super) fn distrust(&mut self, slot: usize) {
        if let Some(member) = self.member_mut(slot) {
            member.record.sync_offset = 0;
            member.partial = false;
        }
    }

    /// A member is rebuilt.
    pub(super) fn synced(&mut self, slot: usize) {
        if let Some(member) = self.member_mut(slot) {
            member.partial = false;
            member.role = Role::Active;
            member.record.sync_offset = 0;
            member.record.disk_flags &= !(disk_flags::SYNCHRONIZING | disk_flags::FORCE_SYNC);
        }
        self.hold();
    }

    /// A member is to be rebuilt from the start.
    pub(super) fn rebuild(&mut self, slot: usize) {
        let Some(member) = self.member_mut(slot) else { return };
        let was = std::mem::replace(&mut member.role, Role::Synchronizing);
        member.partial = false;
        member.record.sync_offset = 0;
        member.record.disk_flags |= disk_flags::FORCE_SYNC;
        if was == Role::Stale {
            self.admit(slot, false);
        }
    }

    /// What the record of a member shall say now. STALE ones keep theirs.
    pub(super) fn record(&self, slot: usize) -> Option<Metadata> {
        let member = self.member(slot)?;
        let old = &member.record;
        let mut flags = old.disk_flags & (disk_flags::FORCE_SYNC | disk_flags::CANDELETE);
        match member.role {
            Role::Active if self.dirty && self.flags & mirror_flags::NOFAILSYNC == 0 => {
                flags |= disk_flags::DIRTY;
            }
            Role::Active => {}
            Role::Synchronizing => {
                flags |= disk_flags::SYNCHRONIZING;
                if member.partial && self.bitmap.is_some() {
                    flags |= disk_flags::BITMAP_SYNC;
                }
                if self.dirty {
                    flags |= disk_flags::DIRTY;
                }
            }
            Role::Stale | Role::Arrived => return None,
        }
        Some(Metadata {
            all: self.all,
            genid: self.genid,
            syncid: self.syncid,
            slice: self.slice,
            balance: self.balance,
            media_bytes: self.media_bytes,
            sector_bytes: self.sector_bytes,
            flags: self.flags,
            disk_flags: flags,
            provider_bytes: member.provider_bytes,
            bitmap: self.shape(),
            lineage: self.lineage.clone(),
            ..old.clone()
        })
    }

    /// As lists show it.
    pub(super) fn state(&self) -> &'static str {
        let active = self.in_role(Role::Active).len();
        match self.running {
            false => "STARTING",
            true if active == usize::from(self.all) => "COMPLETE",
            true => "DEGRADED",
        }
    }
}
