//! Messages to the geom from its layers and tasks.

use std::sync::atomic::Ordering::Relaxed;

use geom::{GeomId, Topology};

use super::{Job, JobPhase, MirrorGeom, bit};
use crate::members::GateNotice;
use crate::mirror::level::Stage;
use crate::mirror::shared::{MemberFailure, Message, RebuildHalt};
use crate::mirror::state::Fault;

impl MirrorGeom {
    fn idle(&mut self, t: &mut Topology, me: GeomId) {
        self.watching = false;
        if !self.mirror.dirty {
            return;
        }
        let writes = self.shared.writes();
        if std::mem::replace(&mut self.written, writes) == writes {
            return self.push(t, me, Job::Clean);
        }
        let media_bytes = self.mirror.media_bytes;
        if self.mirror.bitmap.as_ref().is_some_and(|image| image.is_mostly_set(media_bytes)) {
            self.push(t, me, Job::Sweep);
        }
        self.watching = true;
        self.shared.post_after(self.shared.tunables.idle_ns, Message::Idle);
    }

    fn failed(&mut self, t: &mut Topology, me: GeomId, failed: MemberFailure) {
        let fault = if failed.gone { Fault::Absent } else { Fault::Broken };
        if self.suspect(failed.slot, fault)
            && let Some(job) = self.queue.pop_front()
        {
            self.urgent(t, me, job);
        }
    }

    /// A member is to be removed: its job is first in the queue. False when the member is already
    /// leaving.
    pub(super) fn suspect(&mut self, slot: usize, fault: Fault) -> bool {
        if self.mirror.member(slot).is_none() || self.suspects & bit(slot) != 0 {
            return false;
        }
        self.suspects |= bit(slot);
        self.queue.push_front(Job::Out { slot, fault, gone: false });
        true
    }

    pub(super) fn on_message(&mut self, t: &mut Topology, me: GeomId, message: Message) {
        match message {
            Message::Gate(GateNotice::WriteWaiting) => {
                self.write_waiting = true;
                self.go_on(t, me);
            }
            Message::Gate(GateNotice::Drained) => {
                self.drained = true;
                if let Some(JobPhase::Draining(job)) = self.job_phase {
                    self.job_phase = None;
                    self.carry_out(t, me, job);
                }
                self.go_on(t, me);
            }
            Message::Failed(failed) => self.failed(t, me, failed),
            Message::Mark => {
                self.queue_mark();
                self.go_on(t, me);
            }
            Message::AllReported(number) => {
                self.shared.set_reported(number);
                self.shared.release_decided(self.suspects);
            }
            Message::Idle => self.idle(t, me),
            Message::Due => self.due(t, me),
            Message::Launch => self.launch(t, me),
            Message::RetryRecords => {
                self.shared.records_failed.store(false, Relaxed);
                if self.unrecorded != 0 {
                    self.urgent(t, me, Job::Rewrite);
                }
                let growth = *self.shared.growth();
                if growth.stage == Stage::Recording {
                    self.push(t, me, Job::Grow(growth.round));
                }
            }
            Message::CoresUpdated(slot) => self.push(t, me, Job::In(slot)),
            Message::Copied(slot) => {
                self.push(t, me, Job::Rewrite);
                self.push(t, me, Job::Synced(slot));
            }
            Message::Verified(round) => self.verified(t, round),
            Message::Levelled(round) => self.levelled(t, me, round),
            Message::Written(failed) => self.written(t, me, failed),
            Message::Progress { slot, offset, round } => {
                if self.shared.is_wanted(slot, round) {
                    self.push(t, me, Job::Progress { slot, offset, round });
                }
            }
            Message::Rebuilt { slot, round, result } => {
                if !self.shared.is_wanted(slot, round) {
                    return;
                }
                match result {
                    Ok(()) => self.shared.finish_round(slot),
                    Err(_) => self.shared.want(slot, None),
                }
                match result {
                    Ok(()) => self.push(t, me, Job::Synced(slot)),
                    Err(RebuildHalt::Target(failed)) => self.failed(t, me, failed),
                    Err(RebuildHalt::Source) => {
                        self.unrebuildable.extend(self.mirror.member(slot).map(|m| m.record.disk));
                        self.failed(t, me, MemberFailure { slot, gone: true });
                    }
                }
            }
        }
    }
}
