//! The geom of an array: one thread decides about its disks, and offers its volumes.
//!
//! Every change of the disks or their records is a job, and jobs are done one after the other:
//!
//! ```text
//!   queue --> (a volume's gate shut and drained, if the job needs that) --> the state changes
//!         --> cores get the new tables --> records are written --> what waited continues
//! ```
//!
//! Invariants
//!  J1  The gate of a volume with copies or parity is open only while the records of all its disks
//!      mark it dirty. Without them the mark means nothing, and writes no record: it could
//!      only be torn, on a disk that no other speaks for.
//!  J2  A write that a disk failed is acknowledged when the records of the others mark it as
//!      removed. It is not acknowledged while none can be written.
//!  J3  A disk that a volume cannot do without is not dropped for an error.
//!  J4  Nothing is written for a loss that leaves no volume in use. The remaining disks are
//!      unchanged, and the disk is taken back as it is.
//!  J5  The most outdated record is written first. A record torn by a power cut is then never the
//!      newest, and the others' records describe its disk.
//!  J6  A member is filled only once all records mark it as being filled. When it has everything,
//!      and continues without the disk that it was filled from, that disk is not taken for the only
//!      one.
//!  J7  No record is marked clean before all that was written is stable on every disk that it calls
//!      one of the members. One that fails to make it so is removed first.
//!  J8  A volume with parity is clean when all parity is right, even if members are missing. None
//!      is owed, and no row was left in an unknown state (R4, R7, R8 of `volume::stripes`). A
//!      failed request of a member that had to stay is no reason to be dirty for longer. Its rows
//!      were put right, or their parity is paid. A failed flush is a reason, because the member may
//!      have lost anything. The same holds for volumes with copies, which a pass makes equal.
//!  J9  Whether a log is kept changes while the gate is shut and drained and the records are marked
//!      clean. No row is under way that it would have to contain, and one that is kept from then on
//!      is begun before a record is marked dirty (L3 of `volume::log`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bio::Errno;
use geom::{ConsumerId, GeomId, ProviderId, Topology};

use super::assemble::{Found, SetId};
use super::class::Tunables;
use super::members::{MemberSet, Tag};
use super::metadata::MetadataState;
use super::volume::replay::Replayed;
use super::volume::{FailureEffect, sweep};
use super::volumes::RunningVolume;
use crate::members::{EventLog, FailureId, GateNotice, Refusals, Throttle, Waiting};

/// Name of the class, and of its providers before the stroke.
pub(super) const NAME: &str = "raid";
/// How long an array whose records cannot be written waits before it tries again, ns.
pub(super) const SICK_NS: u64 = 1_000_000_000;
/// Limit of remembered disks that left, for contents and for causes of failure. Torn records of
/// older ones are refused, and the list does not show the cause of their failure.
pub(super) const LEFT_MAX: usize = 64;

#[derive(Debug)]
pub(super) enum Message {
    Gate(u32, GateNotice),
    Failed {
        volume: u32,
        slot: usize,
        gone: bool,
        leaves: FailureEffect,
    },
    /// Of a row of this volume it is not known whether its parity is right.
    RowInconsistent(u32),
    /// A member could not be read.
    Unread {
        volume: u32,
        slot: usize,
        gone: bool,
        mended: bool,
    },
    /// All failures of a write that waits for the decision have been sent.
    AllReported {
        volume: u32,
        number: FailureId,
    },
    /// The time since the last look is up: has anything been written?
    Idle(u32),
    /// The time to wait for further disks is up.
    Due,
    /// Every core knows the disks that there are; with true, no further ones are waited for.
    Launch(bool),
    /// Every core knows the disks that were attached before.
    CoresUpdated(Tag),
    /// Records may be tried again.
    RetryRecords,
    /// Earlier writes could not be made durable on these disks: no record was written.
    Unsettled(Vec<(Tag, Errno)>),
    /// Records were written; the disks whose record could not be written, with their errors.
    Written {
        failed: Vec<(Tag, Errno)>,
        left: Option<Tag>,
    },
    /// A pass has completed so many bytes of the volume, and flushed them.
    Progress {
        volume: u32,
        round: u64,
        done: u64,
    },
    /// A pass has ended.
    Passed {
        volume: u32,
        round: u64,
        result: Result<(), sweep::PassHalt>,
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
    /// It was removed.
    Gone,
    /// It answered requests as if it were missing.
    Absent,
    /// It answered as if it were missing to a flush or a write of its record. It may lack something
    /// that the others' records do not mention.
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
    /// A volume keeps a log of partial parity from now on, or none (J9).
    Policy(u32, bool),
}

pub(super) enum JobPhase {
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
    /// Of the last record that is known to have been on it whole.
    pub(super) held: Option<u32>,
}

pub struct RaidGeom {
    pub(super) me: GeomId,
    pub(super) id: SetId,
    pub(super) sector: u32,
    /// Once it runs.
    pub(super) set: Option<MemberSet>,
    pub(super) metadata: Option<MetadataState>,
    pub(super) disks: BTreeMap<Tag, Attached>,
    /// By number of the volume.
    pub(super) running_volumes: BTreeMap<u32, RunningVolume>,
    /// Highest generation found on a disk: the next records exceed it, and beyond their last.
    pub(super) highest_generation: u32,
    /// That of the record which was believed at the start.
    pub(super) start_generation: u32,
    /// The age of that record, for messages.
    pub(super) start_age: String,
    /// Disks that left while it ran, by key, with the generations that they held.
    pub(super) departed: VecDeque<(String, u32)>,
    /// Disks that failed while it ran, by key: of themselves, or by hand.
    pub(super) failed: VecDeque<(String, Loss)>,
    /// Disks whose records are being written, with the bytes that they have by those.
    pub(super) noted: Vec<(Tag, u64)>,
    pub(super) fault: Option<String>,
    /// The disk whose record is believed at a start that is forced, by its provider's name.
    pub(super) trusted_disk: Option<String>,
    /// The operator chose the half of a split array that runs.
    pub(super) forced: bool,
    pub(super) event_log: EventLog,
    pub(super) refused: Refusals,
    /// Providers that were refused because a disk of their name in the records was there: it may
    /// have been on its way out. They are looked at again when a disk was removed.
    pub(super) duplicates: Vec<ProviderId>,
    /// Rate and pause of passes over its volumes.
    pub(super) throttle: Arc<Throttle>,
    /// Something is still to be done: verbs wait for it.
    pub(super) busy: Arc<AtomicU64>,
    pub(super) over: bool,
    pub(super) tags: Tag,
    pub(super) rounds: u64,
    pub(super) queue: VecDeque<Job>,
    pub(super) job_phase: Option<JobPhase>,
    /// It does not wait for further disks any more.
    pub(super) due: bool,
    /// Key of a disk that `insert` is writing a record to: this array takes it, even if others know
    /// it.
    pub(super) awaited: Option<String>,
    pub(super) tunables: Tunables,
    /// Mirrors and arrays that wait for members, this one among them until it has started.
    pub(super) starting: Arc<Waiting>,
}

impl RaidGeom {
    pub(super) fn new(
        me: GeomId,
        id: SetId,
        sector: u32,
        (tunables, starting, throttle): (Tunables, Arc<Waiting>, Arc<Throttle>),
    ) -> RaidGeom {
        RaidGeom {
            me,
            id,
            sector,
            set: None,
            metadata: None,
            disks: BTreeMap::new(),
            running_volumes: BTreeMap::new(),
            highest_generation: 0,
            trusted_disk: None,
            forced: false,
            start_generation: 0,
            start_age: String::new(),
            departed: VecDeque::new(),
            failed: VecDeque::new(),
            noted: Vec::new(),
            fault: None,
            event_log: EventLog::default(),
            refused: Refusals::default(),
            duplicates: Vec::new(),
            throttle,
            busy: Arc::new(AtomicU64::new(0)),
            over: false,
            tags: 0,
            rounds: 0,
            queue: VecDeque::new(),
            job_phase: None,
            due: false,
            awaited: None,
            tunables,
            starting,
        }
    }

    pub(super) fn refuse(&mut self, t: &mut Topology, name: &str, why: &str) {
        self.refused.note(t, self.me, name, why);
    }

    /// A disk is released; with a reason it is refused.
    pub(super) fn detach_disk(&mut self, t: &mut Topology, tag: Tag, why: Option<&str>) {
        if let Some(disk) = self.disks.remove(&tag) {
            if let Some(held) = disk.holds.filter(|_| self.set.is_some()) {
                self.departed.retain(|(key, _)| *key != disk.key);
                if self.departed.len() == LEFT_MAX {
                    self.departed.pop_front();
                }
                self.departed.push_back((disk.key.clone(), held));
            }
            if let (Some(held), Some(_), Some(metadata)) =
                (disk.held, &self.set, &mut self.metadata)
            {
                metadata.add_departed(&disk.key, held);
            }
            if let Some(why) = why {
                self.refuse(t, &disk.name, why);
            }
            t.abandon(disk.consumer);
        }
        std::mem::take(&mut self.duplicates).into_iter().for_each(|twin| t.retaste(twin));
    }

    /// Disks are released, providers wither, all waiting requests end.
    pub(super) fn take_apart(t: &mut Topology, me: GeomId, g: &mut RaidGeom) {
        g.over = true;
        g.starting.remove(me);
        g.busy.store(0, Relaxed);
        g.queue.clear();
        let keys: Vec<u32> = g.running_volumes.keys().copied().collect();
        keys.into_iter().for_each(|key| g.stop_volume(t, key));
        for (_, disk) in std::mem::take(&mut g.disks) {
            t.leave(disk.consumer);
        }
        t.wither_geom(me, Errno::NxIo);
    }
}
