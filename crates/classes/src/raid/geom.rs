//! The geom of an array: one thread decides about its disks, and offers its volumes.
//!
//! Whatever changes the disks or their records is a job, and jobs are done one after the other:
//!
//! ```text
//!   queue --> (a volume's gate shut and drained, if the job needs that) --> the state changes
//!         --> cores get the new tables --> records are written --> what waited goes on
//! ```
//!
//! Invariants
//!  J1  The gate of a volume with copies or parity is open only while the records of all its disks
//!      say that it is dirty. Without them the mark means nothing, and writes no record: it could
//!      only be torn, on a disk that no other speaks for.
//!  J2  A write that a disk failed is acknowledged when the records of the others say that it is
//!      out, and not at all while none can be written.
//!  J3  A disk that a volume cannot do without is not dropped for an error.
//!  J4  Nothing is written for a loss that leaves no volume in use: what is left is as it was, and
//!      the disk is taken back as it is.
//!  J5  The record that is most out of date is written first. What a power cut tears is then never
//!      the newest, and the others' records speak for it.
//!  J6  A member is filled only once all records say so: when it has everything, and goes on
//!      without the disk that it was filled from, that one does not believe to be alone.
//!  J7  No record says clean before all that was written is stable on every disk that it calls one
//!      of the members: one that fails to make it so goes first.
//!  J8  A volume with parity is clean when all parity is right, whoever is missing: none is owed,
//!      and none of its rows was left as nobody knows (R4, R7, R8 of `volume::rows`). What a member
//!      failed that had to stay is no reason to be dirty for longer: its rows were put right, or
//!      their parity is paid. What it failed to flush is: it may have lost anything. So it is of
//!      volumes with copies, which a pass brings in line.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bio::Errno;
use geom::{ConsumerId, GeomId, Grade, ProviderId, Topology};

use super::arrive::other_size;
use super::book::{Book, Found, Here, SetId};
use super::class::Tunables;
use super::model::DiskState;
use super::records::{self, Note, Work};
use super::set::{ALL, Replay, Set, Tag};
use super::ups::Up;
use super::volume::replay::Replayed;
use super::volume::{Leaves, pass};
use crate::members::{GateWord, Number, Said};

/// Name of the class, and of its providers before the stroke.
pub(super) const NAME: &str = "raid";
/// How long an array whose records cannot be written waits before it tries again, ns.
pub(super) const SICK_NS: u64 = 1_000_000_000;
/// Lines about disks that were refused, kept for lists; older ones go.
pub(super) const REFUSALS_MAX: usize = 16;
/// Disks that left of which it is known what they held, and that failed of which it is known how;
/// of older ones a torn record is refused, and the list does not say who failed them.
pub(super) const LEFT_MAX: usize = 64;

/// What an array's geom is told.
#[derive(Debug)]
pub(super) enum Told {
    Gate(u32, GateWord),
    /// A member failed a request.
    Failed {
        volume: u32,
        slot: usize,
        gone: bool,
        leaves: Leaves,
    },
    /// Of a row of this volume it is not known whether its parity is right.
    Uneven(u32),
    /// A member could not be read.
    Unread {
        volume: u32,
        slot: usize,
        gone: bool,
        mended: bool,
    },
    /// All accusations of a write that waits for the verdict have been told.
    Judge {
        volume: u32,
        number: Number,
    },
    /// The time since the last look is up: has anything been written?
    Idle(u32),
    /// The time to wait for further disks is up.
    Due,
    /// Every core knows the disks that there are; with true, no further ones are waited for.
    Launch(bool),
    /// Every core knows the disks that were attached before.
    Known(Tag),
    /// Records may be tried again.
    Well,
    /// What was written before could not be made durable by these: no record was written.
    Unsettled(Vec<(Tag, Errno)>),
    /// Records were written: who could not be, and why.
    Written {
        failed: Vec<(Tag, Errno)>,
        left: Option<Tag>,
    },
    /// A pass has come so far, bytes of the volume; flushed.
    Progress {
        volume: u32,
        round: u64,
        done: u64,
    },
    /// A pass has ended.
    Passed {
        volume: u32,
        round: u64,
        result: Result<(), pass::Halt>,
    },
    /// A volume's logs have been replayed, or why not.
    Replayed {
        volume: u32,
        result: Result<Replayed, String>,
    },
}

/// How a disk was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// It is gone.
    Gone,
    /// It answered requests as if it were gone.
    Absent,
    /// It answered as if it were gone when it was to keep what it has, and its record: it may lack
    /// something that the others' records do not speak of.
    Unrecorded,
    /// It answered with an error.
    Broken,
    /// By wish of the administrator: it counts as failed.
    ByHand,
    /// By wish of the administrator, for good.
    Removed,
}

/// Something to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// A write waits: mark the volume.
    Dirty(u32),
    /// Nothing is written any more: take the mark away.
    Clean(u32),
    /// A disk was lost.
    Out(Tag, Loss),
    /// A disk that arrived is to be used.
    In(Tag),
    /// All records are written.
    Rewrite,
    /// A volume's pass is over.
    Passed(u32),
}

pub(super) enum Doing {
    Draining(Job, u32),
    Writing(Job),
}

/// A disk that is attached.
pub(super) struct Attached {
    pub(super) consumer: ConsumerId,
    pub(super) found: Found,
    pub(super) key: String,
    pub(super) name: String,
    pub(super) media_bytes: u64,
    /// It has grown, and no record is at its end yet.
    pub(super) grown: bool,
    pub(super) errors: u32,
    /// Generation of the record that is on it; none while it is not known, or torn.
    pub(super) holds: Option<u32>,
}

/// The geom.
pub(super) struct RaidGeom {
    pub(super) me: GeomId,
    pub(super) id: SetId,
    pub(super) sector: u32,
    /// Once it runs.
    pub(super) set: Option<Set>,
    pub(super) book: Option<Book>,
    pub(super) disks: BTreeMap<Tag, Attached>,
    /// By number of the volume.
    pub(super) ups: BTreeMap<u32, Up>,
    /// Highest generation seen.
    pub(super) above: u32,
    /// That of the record which was believed at the start.
    pub(super) believed: u32,
    /// Disks that left while it ran, by key, with the generations that they held.
    pub(super) left: VecDeque<(String, u32)>,
    /// Disks that failed while it ran, by key: of themselves, or by hand.
    pub(super) failed: VecDeque<(String, Loss)>,
    /// Disks whose records are being written.
    noted: Vec<Tag>,
    pub(super) fault: Option<String>,
    pub(super) story: Said,
    pub(super) refused: VecDeque<(String, String)>,
    /// Providers that were refused because a disk of their name in the records was there: it may
    /// have been on its way out. They are looked at again when a disk has gone.
    pub(super) twins: Vec<ProviderId>,
    pub(super) rate: Arc<AtomicU64>,
    /// Something is still to be done: verbs wait for it.
    pub(super) busy: Arc<AtomicU64>,
    pub(super) over: bool,
    pub(super) tags: Tag,
    pub(super) rounds: u64,
    pub(super) queue: VecDeque<Job>,
    pub(super) doing: Option<Doing>,
    /// It does not wait for further disks any more.
    pub(super) due: bool,
    pub(super) tunables: Tunables,
}

impl RaidGeom {
    pub(super) fn new(me: GeomId, id: SetId, sector: u32, tunables: Tunables) -> RaidGeom {
        RaidGeom {
            me,
            id,
            sector,
            set: None,
            book: None,
            disks: BTreeMap::new(),
            ups: BTreeMap::new(),
            above: 0,
            believed: 0,
            left: VecDeque::new(),
            failed: VecDeque::new(),
            noted: Vec::new(),
            fault: None,
            story: Said::default(),
            refused: VecDeque::new(),
            twins: Vec::new(),
            rate: Arc::new(AtomicU64::new(0)),
            busy: Arc::new(AtomicU64::new(0)),
            over: false,
            tags: 0,
            rounds: 0,
            queue: VecDeque::new(),
            doing: None,
            due: false,
            tunables,
        }
    }

    pub(super) fn refuse(&mut self, t: &mut Topology, name: &str, why: &str) {
        if !self.refused.iter().any(|(who, said)| who == name && said == why) {
            t.remark(self.me, Grade::Degraded, &format!("{name} is refused: {why}"));
        }
        self.refused.retain(|(who, _)| who != name);
        if self.refused.len() == REFUSALS_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back((name.to_owned(), why.to_owned()));
    }

    /// A disk is let go of; with a reason it is refused.
    pub(super) fn let_go(&mut self, t: &mut Topology, tag: Tag, why: Option<&str>) {
        if let Some(disk) = self.disks.remove(&tag) {
            if let Some(held) = disk.holds.filter(|_| self.set.is_some()) {
                self.left.retain(|(key, _)| *key != disk.key);
                if self.left.len() == LEFT_MAX {
                    self.left.pop_front();
                }
                self.left.push_back((disk.key.clone(), held));
            }
            if let Some(why) = why {
                self.refuse(t, &disk.name, why);
            }
            t.abandon(disk.consumer);
        }
        std::mem::take(&mut self.twins).into_iter().for_each(|twin| t.retaste(twin));
    }

    /// Queues a job and goes on.
    pub(super) fn push(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if !self.queue.contains(&job) {
            self.queue.push_back(job);
        }
        self.go_on(t, me);
    }

    /// A job that comes before all others: the one that waits for a gate waits on behind it.
    pub(super) fn urgent(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        if let Some(Doing::Draining(waits, _)) = self.doing {
            self.doing = None;
            self.queue.push_front(waits);
        }
        self.queue.retain(|other| *other != job);
        self.queue.push_front(job);
        self.go_on(t, me);
    }

    pub(super) fn go_on(&mut self, t: &mut Topology, me: GeomId) {
        while self.doing.is_none() && !self.over {
            let Some(job) = self.next() else { break };
            let gate = match job {
                Job::Clean(key) => self.ups.get(&key).filter(|up| !up.drained).map(|_| key),
                _ => None,
            };
            match gate.and_then(|key| self.ups.get(&key)) {
                Some(up) => {
                    let (shared, key) = (up.shared.clone(), up.shared.key);
                    self.doing = Some(Doing::Draining(job, key));
                    shared.gate.shut();
                }
                None => self.carry_out(t, me, job),
            }
        }
        let replays = |set: &Set| set.vols.iter().any(|vol| vol.replay == Replay::Runs);
        let busy = self.doing.is_some() || !self.queue.is_empty();
        let busy = busy || self.set.as_ref().is_some_and(replays);
        self.busy.store(u64::from(busy && !self.over), Relaxed);
        self.tell(t, me);
    }

    fn next(&mut self) -> Option<Job> {
        if let Some(job) = self.queue.pop_front() {
            return Some(job);
        }
        // Somebody came while the gate was shut for something else.
        let knocked = self.ups.iter_mut().find(|(_, up)| up.knocked);
        let (key, up) = knocked?;
        up.knocked = false;
        Some(Job::Dirty(*key))
    }

    fn set_dirty(&mut self, key: u32, dirty: bool) -> bool {
        let Some(set) = &mut self.set else { return false };
        let Some(at) = set.volume(key) else { return false };
        let even = set.vols.get(at).is_none_or(|vol| vol.even == ALL || vol.raw);
        // J8
        let even = even && self.ups.get(&key).is_none_or(|up| up.shared.is_settled());
        // Who was left out by force is as it was until something is written.
        let even = even && (set.is_said_dirty(at) || set.vols.get(at).is_none_or(|v| !v.as_it_is));
        let Some(volume) = set.array.volumes.get_mut(at) else { return false };
        if !dirty && !even {
            return false;
        }
        std::mem::replace(&mut volume.dirty, dirty) != dirty
    }

    /// The state changes; then records are written, or nothing is left to do.
    pub(super) fn carry_out(&mut self, t: &mut Topology, me: GeomId, job: Job) {
        let mut settle = false;
        match job {
            Job::Dirty(key) => {
                let Some(up) = self.ups.get(&key) else { return };
                if up.shared.gate.is_open() {
                    return;
                }
                let set = self.set.as_ref();
                let volume = set.and_then(|set| set.array.volumes.get(set.volume(key)?));
                if volume.is_some_and(|volume| !volume.level.redundant()) {
                    return self.open(key);
                }
                self.set_dirty(key, true);
            }
            Job::Clean(key) => {
                if !self.set_dirty(key, false) {
                    // Copies may differ still: writes go on under the mark that is there.
                    return self.reopen(key);
                }
                settle = true;
            }
            Job::Out(tag, loss) => {
                if !self.lose(t, me, tag, loss) {
                    return;
                }
            }
            Job::In(tag) => {
                if !self.use_disk(t, me, tag) {
                    return;
                }
            }
            Job::Passed(key) => {
                let Some(set) = &mut self.set else { return };
                let Some(at) = set.volume(key) else { return };
                let made = set.vols.get(at).is_some_and(|vol| vol.even != ALL);
                let filled = set.filled(at).into_iter().fold(0, |all, slot| all | bit(slot));
                set.passed(at);
                self.ups.entry(key).and_modify(|up| up.fresh |= filled);
                let shut = self.ups.get(&key).is_some_and(|up| up.drained);
                if shut {
                    settle = self.set_dirty(key, false);
                }
                self.drop_unused();
                self.set_tables(t);
                if let Some(up) = self.ups.get(&key).filter(|_| made) {
                    up.shared.trust();
                }
            }
            Job::Rewrite => {
                self.drop_unused();
                self.set_tables(t);
            }
        }
        if self.over {
            return;
        }
        match self.notes(t) {
            Ok(notes) => {
                self.doing = Some(Doing::Writing(job));
                let logs = if let Job::Dirty(key) = job { self.logs(key) } else { Vec::new() };
                let calm = self.to_calm(job);
                settle |= !calm.is_empty();
                let of = t.geom_name(me).to_owned();
                records::write(t.switchboard(), me, Work { of, notes, settle, logs, calm });
            }
            Err(why) => {
                self.set_fault(t, Some(why));
                self.sicken(t, job);
            }
        }
    }

    fn drop_unused(&mut self) {
        let Some(set) = &mut self.set else { return };
        for index in (0..set.array.disks.len()).rev() {
            let here = set.here.get(index).copied().flatten().is_some();
            let gone = set.array.disks.get(index).map(|disk| disk.state);
            if !here && matches!(gone, Some(DiskState::Missing | DiskState::Failed)) {
                set.drop_disk(index);
            }
        }
    }

    /// What the disks' records shall say.
    fn notes(&mut self, t: &Topology) -> Result<Vec<Note>, String> {
        let (Some(set), Some(book)) = (&mut self.set, &mut self.book) else {
            return Ok(Vec::new());
        };
        let mut array = set.record();
        let mut here = Vec::new();
        for (index, tag) in set.here.iter().enumerate() {
            if let Some(disk) = tag.and_then(|tag| self.disks.get(&tag)) {
                let sectors = disk.media_bytes / u64::from(self.sector.max(1));
                here.push(Here { index, sectors, moved: disk.grown });
            }
        }
        let plans = book.write(&mut array, &here, self.above, self.sector);
        let plans = plans.map_err(|fault| fault.to_string())?;
        self.above = self.above.max(array.generation);
        set.array.generation = array.generation;
        set.said = array;
        let note = |(index, plan)| {
            let tag = set.here.get(index).copied().flatten()?;
            let disk = self.disks.get(&tag)?;
            // J5; a spare that takes a place last of all: who does not know it would not have it.
            let order = (disk.found.is_spare() && disk.holds.is_none(), disk.holds);
            Some((order, Note { tag, edge: t.edge(disk.consumer), plan }))
        };
        let mut notes: Vec<_> = plans.into_iter().filter_map(note).collect();
        notes.sort_by_key(|(order, _)| *order);
        let notes: Vec<Note> = notes.into_iter().map(|(_, note)| note).collect();
        self.noted = notes.iter().map(|note| note.tag).collect();
        Ok(notes)
    }

    /// Records are written, but those of `failed`: which may be torn.
    fn note_held(&mut self, failed: &[Tag]) {
        let generation = self.set.as_ref().map(|set| set.array.generation);
        for tag in std::mem::take(&mut self.noted) {
            if let Some(disk) = self.disks.get_mut(&tag) {
                disk.holds = generation.filter(|_| !failed.contains(&tag));
                disk.grown &= failed.contains(&tag);
                if let Some(book) = &mut self.book {
                    book.written(&disk.key, !failed.contains(&tag), self.sector);
                }
            }
        }
    }

    /// A disk that came is used. False when nothing is to be written for it.
    fn use_disk(&mut self, t: &mut Topology, me: GeomId, tag: Tag) -> bool {
        let (Some(disk), Some(set), Some(book)) =
            (self.disks.get(&tag), &mut self.set, &mut self.book)
        else {
            return false;
        };
        let (found, key, media) = (disk.found.clone(), disk.key.clone(), disk.media_bytes);
        let outdated = disk.holds != Some(set.array.generation);
        book.enter(&found);
        self.above = self.above.max(if found.is_spare() { 0 } else { found.generation() });
        let mut grew = false;
        let trusted = match book.find(&set.array, &key) {
            Some(index) => {
                grew = other_size(set, index, media).is_some();
                book.name(&mut set.array, index, &key);
                set.arrive(index, tag, found.is_spare())
            }
            None => {
                let number = found.generation().wrapping_add(tag);
                let spare = book.new_disk(&key, number, media, self.sector);
                set.array.disks.push(spare);
                set.here.push(Some(tag));
                false
            }
        };
        let took = set.take_spares();
        set.replay_again();
        if let Some(disk) = self.disks.get_mut(&tag).filter(|_| grew) {
            disk.grown = true;
            self.note_size(tag);
        }
        self.halt_passes();
        self.start_volumes(t, me);
        self.start_passes();
        took || !trusted || outdated || grew
    }

    /// Records are written, but those of `failed`.
    pub(super) fn written(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        failed: Vec<(Tag, Errno)>,
        left: Option<Tag>,
    ) {
        let Some(Doing::Writing(job)) = self.doing.take() else { return };
        let torn: Vec<Tag> = failed.iter().map(|(tag, _)| *tag).collect();
        self.noted.retain(|tag| Some(*tag) != left);
        self.note_held(&torn);
        if left.is_some() {
            return self.put_off(t, me, job, &failed);
        }
        let some = self.disks.keys().any(|tag| !torn.contains(tag));
        if !some || self.blame(&failed) {
            self.sicken(t, job);
        } else {
            for up in self.ups.values_mut() {
                (up.unrecorded, up.fresh) = (0, 0);
                up.shared.sick.store(false, Relaxed);
            }
            self.set_tables(t);
            self.judged(t);
            self.finish(job, failed.is_empty());
            self.start_passes();
        }
        self.go_on(t, me);
    }

    /// J7: the volume is dirty still; who could not is out first.
    pub(super) fn unsettled(&mut self, t: &mut Topology, me: GeomId, failed: Vec<(Tag, Errno)>) {
        let Some(Doing::Writing(job)) = self.doing.take() else { return };
        self.noted.clear();
        if let Job::Clean(key) | Job::Passed(key) = job {
            // J8: one that stays may have lost what it was to keep.
            for (tag, _) in &failed {
                self.doubt_if_needed(t, *tag);
            }
            self.set_dirty(key, true);
            if let Some(set) = &mut self.set
                && let Some(at) = set.volume(key)
                && let Some(said) = set.said.volumes.get_mut(at)
            {
                said.dirty = true;
            }
        }
        self.put_off(t, me, job, &failed);
    }

    /// No record says what a job was to say: it is still to be done.
    fn put_off(&mut self, t: &mut Topology, me: GeomId, job: Job, failed: &[(Tag, Errno)]) {
        match self.blame(failed) {
            true => self.sicken(t, job),
            // Who was lost has left: the records alone are still to be written.
            false if matches!(job, Job::Out(..)) => self.queue.push_back(Job::Rewrite),
            false => self.queue.push_back(job),
        }
        self.go_on(t, me);
    }

    /// Those that failed what their records needed are out next; true when one has to stay.
    fn blame(&mut self, failed: &[(Tag, Errno)]) -> bool {
        let mut stays = false;
        for (tag, error) in failed {
            let index = self.set.as_ref().and_then(|set| set.disk(*tag));
            // Who was pulled in this moment has not failed.
            let loss = if *error == Errno::NxIo { Loss::Unrecorded } else { Loss::Broken };
            match index.map(|index| self.is_needed(index)) {
                Some(false) => self.queue.push_front(Job::Out(*tag, loss)),
                Some(true) => stays = true,
                None => {}
            }
        }
        stays
    }

    /// Records could not be written: nothing is acknowledged until they can.
    fn sicken(&mut self, t: &mut Topology, job: Job) {
        if self.ups.values().any(|up| !up.shared.sick.load(Relaxed)) {
            let why = "records could not be written: writes wait until they can";
            t.remark(self.me, Grade::Failed, why);
        }
        let keys: Vec<u32> = self.ups.keys().copied().collect();
        for key in keys {
            let Some(up) = self.ups.get_mut(&key) else { continue };
            up.shared.sick.store(true, Relaxed);
            up.knocked = false;
            let (open, unrecorded) = (up.shared.gate.is_open(), up.unrecorded);
            up.shared.refuse(unrecorded);
            up.shared.gate.turn_away();
            if !open && job == Job::Dirty(key) {
                self.set_dirty(key, false);
            }
        }
        self.after(t, SICK_NS, Told::Well);
    }

    /// Records are written: what waited goes on. With `whole` those of all.
    fn finish(&mut self, job: Job, whole: bool) {
        match job {
            Job::Dirty(key) if whole => self.open(key),
            // First those go whose record could not be written.
            Job::Dirty(key) => self.queue.push_back(Job::Dirty(key)),
            Job::Passed(key) => self.reopen(key),
            Job::Clean(key) => {
                let set = self.set.as_ref();
                let vol = set.and_then(|set| set.vols.get(set.volume(key)?));
                let even = vol.is_some_and(|vol| vol.even == ALL);
                if let Some(up) = self.ups.get(&key).filter(|_| even) {
                    up.shared.trust();
                }
            }
            Job::Out(..) | Job::In(_) | Job::Rewrite => {}
        }
    }

    /// J1: the records say dirty already, and who is away (J2). Otherwise who comes next has them
    /// written.
    fn reopen(&mut self, key: u32) {
        let said = self.set.as_ref().is_some_and(|set| {
            let at = set.volume(key);
            at.is_some_and(|at| set.is_said_dirty(at))
        });
        if said {
            self.open(key);
        }
    }

    fn open(&mut self, key: u32) {
        let Some(up) = self.ups.get_mut(&key) else { return };
        up.knocked = false;
        up.drained = false;
        up.shared.gate.open();
        if !std::mem::replace(&mut up.watching, true) {
            up.written = up.shared.writes();
            let (board, me) = (up.shared.board.clone(), up.shared.geom);
            records::after(board, me, self.tunables.idle_ns, Told::Idle(key));
        }
    }

    /// Disks are let go, providers wither, whatever waits ends.
    pub(super) fn take_apart(t: &mut Topology, me: GeomId, g: &mut RaidGeom) {
        g.over = true;
        g.busy.store(0, Relaxed);
        g.queue.clear();
        let keys: Vec<u32> = g.ups.keys().copied().collect();
        keys.into_iter().for_each(|key| g.stop_volume(t, key));
        for (_, disk) in std::mem::take(&mut g.disks) {
            t.leave(disk.consumer);
        }
        t.wither_geom(me, Errno::NxIo);
    }
}

/// A slot's bit.
pub(super) fn bit(slot: usize) -> u64 {
    1_u64.checked_shl(slot as u32).unwrap_or(0)
}
