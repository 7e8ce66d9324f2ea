//! Orders: requests to a target other than the commands of its disk. They concern its config
//! string, the list of initiators that are admitted, and its reservation.
//!
//! ```text
//!   ordered --> out --no answer in time--> out again, by the next path --> ... --> deadline
//!                |  answered                                                          |
//!                +-----------> settled when none of its frames may exist any more <---+
//! ```
//! A frame that was thought lost may arrive after a later order and undo it, as with WRITEs (E2).
//! So an order ends when each of its frames was answered or is too old, and a target has one order
//! at a time.

use wire::aoe::{Header, Mac};

use super::super::inflight::Frame;
use super::super::path::QUERY_NS;
use super::transmit::choose;
use super::{Address, CamStatus, Engine, Wire};

/// Answer of a target: the body, or an error of [`wire::aoe::error`].
pub(in crate::sims::aoe) type CommandReply = Result<Vec<u8>, u8>;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sims::aoe) enum NoReply {
    /// There is no such target here.
    NoTarget,
    /// It has an order under way.
    Busy,
    /// Nothing arrived by the deadline.
    Silent,
}

impl NoReply {
    /// In CAM's words.
    pub(in crate::sims::aoe) fn status(self) -> CamStatus {
        match self {
            NoReply::NoTarget => CamStatus::NotThere,
            NoReply::Busy => CamStatus::Busy,
            NoReply::Silent => CamStatus::SelectionTimeout,
        }
    }
}

pub(super) struct TargetCommand {
    number: u64,
    target: usize,
    command: u8,
    payload: Vec<u8>,
    /// Frames that may exist.
    out: u32,
    tries: u32,
    again_ns: u64,
    deadline_ns: u64,
    reply: Option<CommandReply>,
    /// Nothing more is sent.
    pub(super) over: bool,
}

impl Engine {
    /// Begins an order: its number.
    pub(in crate::sims::aoe) fn begin_command(
        &mut self,
        to: Address,
        command: u8,
        body: Vec<u8>,
        now: u64,
    ) -> Result<u64, NoReply> {
        // E7
        let is_used = self.rules.uses(to);
        let target = self.target(to).filter(|_| is_used).ok_or(NoReply::NoTarget)?;
        if self.commands.iter().any(|order| order.target == target) {
            return Err(NoReply::Busy);
        }
        self.last_command += 1;
        let (number, deadline_ns) = (self.last_command, now + self.rules.deadline_ns);
        self.commands.push(TargetCommand {
            number,
            target,
            command,
            payload: body,
            out: 0,
            tries: 0,
            again_ns: now,
            deadline_ns,
            reply: None,
            over: false,
        });
        self.set_due(now);
        Ok(number)
    }

    /// Result of an order; `None` while it is not settled.
    pub(in crate::sims::aoe) fn take_reply(
        &mut self,
        number: u64,
    ) -> Option<Result<CommandReply, NoReply>> {
        let settled =
            |order: &TargetCommand| order.number == number && order.over && order.out == 0;
        let at = self.commands.iter().position(settled)?;
        let order = self.commands.swap_remove(at);
        Some(order.reply.ok_or(NoReply::Silent))
    }

    /// Our own addresses that reach a target, on the interfaces that lead to it.
    pub(in crate::sims::aoe) fn own(&mut self, to: Address, wire: &dyn Wire) -> Vec<Mac> {
        let Some(t) = self.target(to).and_then(|at| self.targets.get(at)) else {
            return Vec::new();
        };
        let mut all: Vec<Mac> =
            t.paths.iter().filter(|p| p.is_same).map(|p| wire.mac(p.link)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether an order is settled and was not taken yet.
    pub(in crate::sims::aoe) fn has_settled(&self) -> bool {
        self.commands.iter().any(|order| order.over && order.out == 0)
    }

    /// When something is to be done for orders, ns.
    pub(super) fn commands_due(&self) -> u64 {
        let open = self.commands.iter().filter(|order| !order.over);
        open.map(|order| order.again_ns.min(order.deadline_ns)).min().unwrap_or(u64::MAX)
    }

    pub(super) fn send_commands(&mut self, wire: &mut dyn Wire, now: u64) {
        for at in 0..self.commands.len() {
            let Some(order) = self.commands.get_mut(at).filter(|order| !order.over) else {
                continue;
            };
            if order.deadline_ns <= now {
                order.over = true;
            } else if order.again_ns <= now {
                self.send_command(at, wire, now);
            }
        }
    }

    fn send_command(&mut self, at: usize, wire: &mut dyn Wire, now: u64) {
        let Some(order) = self.commands.get_mut(at) else { return };
        let Some(t) = self.targets.get_mut(order.target) else { return };
        let Some(path) = choose(t, wire) else {
            order.again_ns = now + QUERY_NS;
            let again = order.again_ns;
            return self.set_due(again);
        };
        t.next_path = path + 1;
        let Some(way) = t.paths.get(path) else { return };
        // Longer and longer: its frames may take places of others.
        let wait = way.rto() << order.tries.min(8);
        order.again_ns = now + wait.min(self.rules.life_ns);
        order.tries += 1;
        let frame = Frame {
            is_identity_query: false,
            command: Some(order.number),
            target: order.target,
            path,
            op: None,
            first: 0,
            sectors: 0,
            tries: order.tries,
            sent_ns: now,
            due_ns: now + self.rules.life_ns,
            hold: None,
        };
        let again = order.again_ns;
        if let Some(tag) = self.inflight.add(frame) {
            order.out += 1;
            let from = wire.mac(way.link);
            let header = Header::request(way.mac, from, t.address, order.command, tag);
            let mut bytes = header.encode().to_vec();
            bytes.extend_from_slice(&order.payload);
            wire.send(way.link, &bytes, None);
            self.counts.sent += 1;
        }
        self.set_due(again);
    }

    /// An answer to an order; false when it is none.
    pub(super) fn command_answered(&mut self, header: &Header, body: &[u8]) -> bool {
        let Some(frame) = self.inflight.get(header.tag).copied() else { return false };
        let order = self.commands.iter_mut().find(|order| frame.command == Some(order.number));
        let Some(order) = order.filter(|order| order.command == header.command) else {
            return false;
        };
        let Some(t) = self.targets.get(frame.target) else { return false };
        // E3
        let from = t.paths.iter().any(|p| p.is_same && p.mac == header.from);
        if header.address != t.address || !from {
            self.counts.foreign += 1;
            return true;
        }
        self.inflight.take(header.tag);
        if order.reply.is_none() {
            order.reply = Some(match header.error {
                Some(error) => Err(error),
                None => Ok(body.to_vec()),
            });
        }
        order.over = true;
        order.out = order.out.saturating_sub(1);
        true
    }

    /// A frame of an order is too old to exist.
    pub(super) fn command_frame_expired(&mut self, frame: &Frame) {
        let order = self.commands.iter_mut().find(|order| frame.command == Some(order.number));
        if let Some(order) = order {
            order.out = order.out.saturating_sub(1);
        }
    }
}
