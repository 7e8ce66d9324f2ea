//! Due work: frames that were not answered, commands at their deadline, paths to be probed.

use std::sync::atomic::Ordering;

use wire::aoe::{ATA_LEN, Ata, HEADER_LEN, Header, command};
use wire::ata;

use super::super::inflight::Frame;
use super::super::path::{IDLE_NS, Path, QUERY_NS};
use super::op::SectorRun;
use super::{Engine, ONE, SILENT_MAX, Wire};
use crate::ccb::{CamStatus, Outcome};

impl Engine {
    /// Gives up overdue frames and commands at their deadline, and probes paths that are down.
    pub(super) fn sweep(&mut self, wire: &mut dyn Wire, now: u64) {
        let mut next = u64::MAX;
        for at in 0..self.inflight.len() {
            let Some(frame) = self.inflight.at(at).copied() else { continue };
            if frame.due_ns > now {
                next = next.min(frame.due_ns);
                continue;
            }
            match frame.op {
                Some(op) => next = next.min(self.handle_timeout(at, op, frame, now)),
                None => self.expire_copy(at),
            }
        }
        for at in 0..self.ops.len() {
            let Some(op) = self.ops.get(at).filter(|op| op.busy) else { continue };
            match op.deadline_ns <= now {
                true => {
                    if let Some(target) = self.targets.get_mut(op.target) {
                        target.lost = true;
                    }
                    self.end(at, Outcome::of(CamStatus::NotThere));
                }
                false => next = next.min(op.deadline_ns),
            }
        }
        self.due_ns = next.min(self.probe_down_paths(wire, now)).min(self.commands_due());
        if !self.ended.is_empty() {
            // Commands that ended just now may have left copies behind.
            self.set_due(now + self.rules.life_ns);
        }
    }

    /// A frame was not answered in time: its sectors are sent again, on another path if there is
    /// one. The frame becomes a copy that belongs to no command.
    pub(super) fn handle_timeout(&mut self, at: usize, op: usize, frame: Frame, now: u64) -> u64 {
        let life = self.rules.life_ns;
        let ends = frame.sent_ns + life;
        if let Some(copy) = self.inflight.at(at) {
            (copy.op, copy.due_ns) = (None, ends);
        }
        self.release_credit(frame.target, frame.path);
        let mut is_doubtful = false;
        if let Some(t) = self.targets.get_mut(frame.target) {
            t.silent += 1;
            let is_silent = t.last_answer_ns.load(Ordering::Relaxed) < frame.sent_ns;
            is_doubtful = is_silent || t.silent >= SILENT_MAX;
            if let Some(path) = t.paths.get_mut(frame.path) {
                path.timed_out(frame.sectors, now, life);
            }
            if now >= t.shrunk_ns {
                // Once a round trip, however many are missing.
                t.threshold = (t.window / 2).max(ONE);
                t.window = t.threshold;
                t.shrunk_ns = now + (now - frame.sent_ns);
            }
        }
        if is_doubtful {
            self.mark_doubtful(frame.target);
        }
        if let Some(op) = self.ops.get_mut(op) {
            let Frame { first, sectors, tries, .. } = frame;
            op.resend.push(SectorRun { first, sectors, tries });
        }
        self.enqueue(op);
        ends.max(now + 1)
    }

    /// A copy is too old to exist.
    pub(super) fn expire_copy(&mut self, at: usize) {
        let Some(frame) = self.inflight.remove(at) else { return };
        self.free_hold(&frame);
        self.command_frame_expired(&frame);
    }

    pub(super) fn free_hold(&mut self, frame: &Frame) {
        if let (Some(hold), Some(t)) = (frame.hold, self.targets.get(frame.target)) {
            t.ranges.release(hold);
        }
    }

    pub(super) fn probe_down_paths(&mut self, wire: &mut dyn Wire, now: u64) -> u64 {
        let mut next = u64::MAX;
        for target in 0..self.targets.len() {
            let used = self.targets.get(target).filter(|t| self.rules.uses(t.address));
            let Some(t) = used else { continue };
            // An idle target is in no hurry to have more paths.
            let idle = t.send_queue.is_empty() && t.out == 0 && t.paths.iter().any(Path::is_good);
            let address = t.address;
            for path in 0..t.paths.len() {
                let way = self.targets.get_mut(target).and_then(|t| t.paths.get_mut(path));
                let wants = |way: &&mut Path| !way.is_same || !way.is_up;
                let Some(way) = way.filter(wants) else { continue };
                let due = way.query_ns + if idle && way.is_same { IDLE_NS } else { 0 };
                if due > now {
                    next = next.min(due);
                    continue;
                }
                let (link, mac, known) = (way.link, way.mac, way.is_same);
                match known {
                    true => way.query_ns = now + QUERY_NS,
                    false => way.schedule_probe(now),
                }
                next = next.min(way.query_ns);
                match known {
                    true => self.send_config_query(link, mac, address, wire),
                    false => self.query_identity((target, path), wire, now),
                }
            }
        }
        next
    }

    /// Reads the sizes of all targets.
    pub(in crate::sims::aoe) fn query_sizes(&mut self, wire: &mut dyn Wire, now: u64) {
        (0..self.targets.len()).for_each(|target| self.query_size(target, wire, now));
    }

    /// Reads the size of a target, now and then.
    pub(super) fn query_size(&mut self, target: usize, wire: &mut dyn Wire, now: u64) {
        let used = self.targets.get_mut(target).filter(|t| self.rules.uses(t.address));
        let Some(t) = used else { return };
        let path = t.paths.iter().position(|p| p.is_good() && wire.sectors(p.link) > 0);
        if let Some(path) = path.filter(|_| now >= t.sized_ns + QUERY_NS) {
            t.sized_ns = now;
            self.query_identity((target, path), wire, now);
        }
    }

    /// Reads the identity of the disk behind a path.
    pub(super) fn query_identity(
        &mut self,
        (target, path): (usize, usize),
        wire: &mut dyn Wire,
        now: u64,
    ) {
        let Some(t) = self.targets.get(target) else { return };
        let Some(way) = t.paths.get(path).filter(|way| wire.sectors(way.link) > 0) else { return };
        let frame = Frame {
            is_identity_query: true,
            command: None,
            target,
            path,
            op: None,
            first: 0,
            sectors: 1,
            tries: 1,
            sent_ns: now,
            due_ns: now + self.rules.life_ns,
            hold: None,
        };
        let Some(tag) = self.inflight.add(frame) else { return };
        let header = Header::request(way.mac, wire.mac(way.link), t.address, command::ATA, tag);
        let identify = Ata { sectors: 1, command: ata::command::IDENTIFY, ..Ata::default() };
        let mut head = [0; HEADER_LEN + ATA_LEN];
        let (h, a) = head.split_at_mut(HEADER_LEN);
        h.copy_from_slice(&header.encode());
        a.copy_from_slice(&identify.encode());
        let link = way.link;
        wire.send(link, &head, None);
        self.counts.sent += 1;
        self.set_due(now + self.rules.life_ns);
    }
}
