//! Sent frames.

use wire::aoe::{
    ATA_LEN, Address, BROADCAST, CONFIG_LEN, Config, HEADER_LEN, Header, Mac, SECTOR, command,
    directive,
};

use super::super::inflight::{ASK_TAG, Frame};
use super::super::path::Path;
use super::super::pool::{CoreDemand, TakeResult};
use super::op::{FramePlan, SectorRun, registers_of};
use super::{Engine, LOOK_NS, Target, Wire};

impl Engine {
    /// Does all due work, and sends the frames that may be sent.
    pub(in crate::sims::aoe) fn pump(&mut self, wire: &mut dyn Wire, now: u64) {
        if now >= self.due_ns {
            self.sweep(wire, now);
        }
        self.unblock(now);
        self.send_commands(wire, now);
        while let Some(target) = self.unsure.pop() {
            self.query_size(target, wire, now);
        }
        for target in 0..self.targets.len() {
            self.send_for(target, wire, now);
        }
    }

    /// E2
    pub(super) fn unblock(&mut self, now: u64) {
        if self.blocked.is_empty() {
            return;
        }
        if now < self.writes_from_ns {
            return self.set_due(self.writes_from_ns);
        }
        let mut at = 0;
        while let Some(&blocked) = self.blocked.get(at) {
            let Some(op) = self.ops.get_mut(blocked) else { break };
            let Some((first, end)) = op.span else { break };
            let ranges = self.targets.get(op.target).map(|t| &t.ranges);
            op.hold = ranges.and_then(|r| r.take(first, end));
            if op.hold.is_some() {
                self.blocked.remove(at);
                self.enqueue(blocked);
            } else {
                at += 1;
            }
        }
        if !self.blocked.is_empty() {
            self.set_due(now + LOOK_NS);
        }
    }

    pub(super) fn send_for(&mut self, target: usize, wire: &mut dyn Wire, now: u64) {
        loop {
            let is_full = self.inflight.is_full();
            let Some(t) = self.targets.get_mut(target) else { return };
            let demand = CoreDemand { core: self.core, held: t.out, share: t.share };
            // E6
            let may_go = |at: &&usize| {
                !t.doubtful || self.ops.get(**at).is_some_and(|op| op.is_identity_query)
            };
            let next = t.send_queue.iter().find(may_go).copied();
            let next = next.filter(|_| !is_full && t.has_credit());
            let next_op = next.and_then(|at| self.ops.get(at));
            let is_query = next_op.is_some_and(|op| op.is_identity_query);
            let path = choose(t, wire).or_else(|| any_path(t, wire).filter(|_| is_query));
            let Some((at, path)) = next.zip(path) else {
                if std::mem::take(&mut t.is_owed) {
                    t.credits.demand_met(demand);
                }
                return;
            };
            match t.credits.take(demand, t.buffers) {
                TakeResult::Taken => {}
                TakeResult::Later => return,
                TakeResult::Owed => {
                    t.is_owed = true;
                    return self.set_due(now + LOOK_NS);
                }
            }
            if std::mem::take(&mut t.is_owed) {
                t.credits.demand_met(demand);
            }
            if !self.send_one(at, (target, path), wire, now) {
                self.targets.get(target).into_iter().for_each(|t| t.credits.release());
                return;
            }
            let done = self.ops.get(at).is_none_or(|op| !op.has_unsent());
            if let Some(t) = self.targets.get_mut(target).filter(|_| done) {
                t.send_queue.retain(|other| *other != at);
            }
        }
    }

    /// Sends some sectors of a command; false when there is no space for a frame.
    pub(super) fn send_one(
        &mut self,
        at: usize,
        (target, path): (usize, usize),
        wire: &mut dyn Wire,
        now: u64,
    ) -> bool {
        let (Some(t), Some(op)) = (self.targets.get_mut(target), self.ops.get_mut(at)) else {
            return false;
        };
        t.next_path = path + 1;
        let Some(way) = t.paths.get_mut(path) else { return false };
        let most = wire.sectors(way.link).min(t.sectors);
        let most = if way.is_small(now) { most.min(2) } else { most };
        let piece = match op.resend.pop() {
            Some(piece) => piece,
            None => SectorRun { first: op.next, sectors: op.sectors - op.next, tries: 0 },
        };
        let is_new = piece.tries == 0;
        let sectors = match op.frame_plan {
            FramePlan::Split { .. } => piece.sectors.min(most.max(1)),
            FramePlan::Single => piece.sectors,
        };
        if is_new {
            op.next += sectors.max(1);
        } else if sectors < piece.sectors {
            let (first, rest) = (piece.first + sectors, piece.sectors - sectors);
            op.resend.push(SectorRun { first, sectors: rest, tries: piece.tries });
        }
        let rto = way.rto();
        let frame = Frame {
            is_identity_query: op.is_identity_query,
            command: None,
            target,
            path,
            op: Some(at),
            first: piece.first,
            sectors,
            tries: piece.tries + 1,
            sent_ns: now,
            due_ns: now + rto,
            hold: op.hold,
        };
        let Some(tag) = self.inflight.add(frame) else { return false };
        if let Some(hold) = op.hold {
            t.ranges.copy(hold);
        }
        (t.out, way.out) = (t.out + 1, way.out + 1);
        let header = Header::request(way.mac, wire.mac(way.link), t.address, command::ATA, tag);
        let mut head = [0; HEADER_LEN + ATA_LEN];
        let (h, a) = head.split_at_mut(HEADER_LEN);
        h.copy_from_slice(&header.encode());
        a.copy_from_slice(&registers_of(op, piece.first, sectors).encode());
        let (from, len) = (piece.first as usize * SECTOR, sectors as usize * SECTOR);
        wire.send(way.link, &head, op.write.then_some((&op.data, from, len)));
        self.counts.sent += 1;
        self.counts.resent += u64::from(!is_new);
        self.set_due(now + rto);
        true
    }

    /// Queries targets on all interfaces.
    pub(in crate::sims::aoe) fn discover(&mut self, wire: &mut dyn Wire) {
        for link in 0..wire.links() {
            self.send_config_query(link, BROADCAST, Address::ALL, wire);
        }
    }

    pub(super) fn send_config_query(
        &mut self,
        link: usize,
        to: Mac,
        address: Address,
        wire: &mut dyn Wire,
    ) {
        if wire.sectors(link) == 0 {
            return;
        }
        let header = Header::request(to, wire.mac(link), address, command::CONFIG, ASK_TAG);
        let mut head = [0; HEADER_LEN + CONFIG_LEN];
        let (h, c) = head.split_at_mut(HEADER_LEN);
        h.copy_from_slice(&header.encode());
        c.copy_from_slice(&Config::request(directive::READ, &[]).encode());
        wire.send(link, &head, None);
        self.counts.sent += 1;
    }
}

/// The next path that is up; one whose interface is up when none is.
pub(super) fn choose(target: &Target, wire: &dyn Wire) -> Option<usize> {
    let count = target.paths.len();
    let all = (0..count).map(|n| (target.next_path + n) % count);
    let fits = |at: &usize, up: bool| {
        let fits = |p: &Path| p.is_same && (p.is_up || !up) && wire.sectors(p.link) > 0;
        target.paths.get(*at).is_some_and(fits)
    };
    all.clone().find(|at| fits(at, true)).or_else(|| all.clone().find(|at| fits(at, false)))
}

/// A path for a question which disk is there, where none leads to the disk that was there.
fn any_path(target: &Target, wire: &dyn Wire) -> Option<usize> {
    let fits = |p: &Path| p.was_same && wire.sectors(p.link) > 0;
    let all = (0..target.paths.len()).map(|n| (target.next_path + n) % target.paths.len());
    all.into_iter().find(|at| target.paths.get(*at).is_some_and(fits))
}
