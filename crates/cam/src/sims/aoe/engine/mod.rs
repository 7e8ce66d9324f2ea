//! Protocol engine of one core, without I/O: the frames that it sends, and its handling of answers.
//!
//! ```text
//!   command --cut--> frames --answer--> done when all its sectors are
//!                      |  timeout: its sectors are cut again, for another path
//!                      v
//!                    a copy without a command: an answer frees its tag, or its age does
//! ```
//! All guarantees here assume that no frame lives longer than `life` in the network and the target
//! together.
//!
//! Invariants
//!  E1  No two frames that may exist have the same tag.
//!  E2  A sector is not written while a frame that may write it, of an earlier command, may exist.
//!  E3  An answer counts once, for the command that the frame was sent for, and only from an
//!      address at which the same disk was found.
//!  E4  A command ends: answered, failed by the target, aborted, or at its deadline.
//!  E5  The frames of all cores together that wait for answers of a target are no more than its
//!      reported capacity. Those of one core are no more than its window, which follows losses.
//!  E6  A target that was silent may be another disk when it answers. No frame of a user's command
//!      is sent, or sent again, until CAM has found the disk to be the same (D11). A target is
//!      silent if it has answered nothing since a frame was sent that is overdue. A target may also
//!      be another disk if it announces itself unasked, as targets do at their start, or if it was
//!      not sent anything for [`QUIET_NS`]. There is no connection whose end would reveal it.
//!  E7  A target that the rules no longer use takes no new command of a user, but those under way
//!      end as others do. It stays until they have ended on all cores and no frame of it may exist.
//!      A target that is used again counts as newly found.

mod counts;
mod due;
mod op;
mod path_health;
mod receive;
mod target_command;
#[cfg(test)]
mod tests;
mod transmit;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bio::Segs;
use wire::aoe::{Address, Mac};

use self::op::{FramePlan, Op, frames_of, span};
use self::receive::Fingerprint;
use self::target_command::TargetCommand;
use super::inflight::InflightFrames;
use super::path::Path;
use super::pool::TargetCredits;
use super::ranges::Ranges;
use super::shared::{KnownTarget, KnownTargets};
use crate::ccb::{CamStatus, CcbId, Flags, Outcome, Registers};

pub(super) use self::counts::Counts;
pub(super) use self::path_health::UnusablePath;
pub(super) use self::target_command::{CommandReply, NoReply};

/// Most targets that are remembered; further ones are not seen.
pub(super) const TARGETS_MAX: usize = 1024;
/// Most ways to one target.
pub(super) const PATHS_MAX: usize = 32;
/// How long a WRITE whose sectors are taken waits before it looks again, ns.
const LOOK_NS: u64 = 500_000;

/// The interfaces, as the protocol sees them.
pub(super) trait Wire {
    /// How many there are.
    fn links(&self) -> usize;

    /// Most sectors in a frame of an interface; 0: it is down.
    fn sectors(&self, link: usize) -> u32;

    /// Its own address.
    fn mac(&self, link: usize) -> Mac;

    /// Sends a frame, with `len` bytes of `data` from `at` behind its header. It may be lost.
    fn send(&mut self, link: usize, head: &[u8], data: Option<(&Segs, usize, usize)>);
}

/// Settings by the administrator.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Longest life of a frame, ns.
    pub life_ns: u64,
    /// How long a command may take, ns.
    pub deadline_ns: u64,
    /// Most frames that wait for answers of a target.
    pub window: u32,
    /// Parts into which they are divided when more cores than one want them: one a core.
    pub shares: u32,
    /// Targets that are looked at; none given: all.
    pub targets: Vec<Address>,
}

impl Rules {
    /// Whether a target is used.
    pub(super) fn uses(&self, address: Address) -> bool {
        self.targets.is_empty() || self.targets.contains(&address)
    }
}

struct Target {
    address: Address,
    paths: Vec<Path>,
    /// The path of the next frame.
    next_path: usize,
    /// Frames that may wait there, of all cores, and most sectors of one.
    buffers: u32,
    sectors: u32,
    /// Frames of this core that may wait for answers, in 1/16.
    window: u32,
    threshold: u32,
    out: u32,
    credits: Arc<TargetCredits>,
    /// Places there that this core gets regardless of the demand of other cores.
    share: u32,
    /// E6: frames in a row that were not answered, and whether CAM has yet to check the identity.
    silent: u32,
    doubtful: bool,
    /// When it answered last, to any core, ns.
    last_answer_ns: Arc<AtomicU64>,
    /// This core is owed a place there.
    is_owed: bool,
    /// A command was not answered by its deadline: CAM has given the disk up in any state of the
    /// paths. The next answer counts as a newly found target.
    lost: bool,
    /// The window was made smaller then.
    shrunk_ns: u64,
    ranges: Arc<Ranges>,
    /// The first fingerprint of the disk.
    fingerprint: Option<Fingerprint>,
    /// The sectors that it reported last, and when they were requested last, ns.
    size: Option<u64>,
    sized_ns: u64,
    /// Commands with something to send, oldest first.
    send_queue: VecDeque<usize>,
}

const ONE: u32 = 16;
/// Frames in a row without an answer after which a target may be another disk.
const SILENT_MAX: u32 = 2;
/// How long after its last answer a target is taken to be the same disk still, ns.
const QUIET_NS: u64 = 2_000_000_000;

impl Target {
    /// Whether its window lets this core send one more frame.
    fn has_credit(&self) -> bool {
        self.out * ONE < self.window.max(ONE)
    }
}

/// See the module.
pub(super) struct Engine {
    rules: Rules,
    shared: Arc<KnownTargets>,
    core: usize,
    targets: Vec<Target>,
    ops: Vec<Op>,
    free: Vec<usize>,
    inflight: InflightFrames,
    commands: Vec<TargetCommand>,
    last_command: u64,
    /// WRITEs that wait for sectors.
    blocked: Vec<usize>,
    /// Nothing is due before, ns.
    due_ns: u64,
    /// Nothing is written before: frames of an earlier life may exist (E2).
    writes_from_ns: u64,
    ended: Vec<(CcbId, Address, Outcome)>,
    found: bool,
    /// Targets that have another size than before.
    resized: Vec<Address>,
    /// E6: targets to be reported to CAM.
    doubted: Vec<Address>,
    /// Indices of targets that did not find what should be on them.
    unsure: Vec<usize>,
    counts: Counts,
}

impl Engine {
    pub(super) fn new(core: usize, rules: Rules, shared: Arc<KnownTargets>, now: u64) -> Engine {
        Engine {
            writes_from_ns: now + rules.life_ns,
            rules,
            shared,
            core,
            targets: Vec::new(),
            ops: Vec::new(),
            free: Vec::new(),
            inflight: InflightFrames::new(core),
            commands: Vec::new(),
            last_command: 0,
            blocked: Vec::new(),
            due_ns: u64::MAX,
            ended: Vec::new(),
            found: false,
            resized: Vec::new(),
            doubted: Vec::new(),
            unsure: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Continues by other rules. Commands under way keep their deadline.
    pub(super) fn set_rules(&mut self, rules: Rules, now: u64) {
        let longer_ns = rules.life_ns.saturating_sub(self.rules.life_ns);
        self.rules = rules;
        if longer_ns > 0 {
            // E1, E2: frames may exist longer than was thought, also some that were given up.
            self.writes_from_ns = self.writes_from_ns.max(now + longer_ns);
            for place in 0..self.inflight.len() {
                if let Some(copy) = self.inflight.at(place).filter(|frame| frame.op.is_none()) {
                    copy.due_ns = copy.due_ns.saturating_add(longer_ns);
                }
            }
        }
        // E7
        let unused = self.targets.iter_mut().filter(|t| !self.rules.uses(t.address));
        unused.for_each(|t| t.lost = true);
        for at in 0..self.targets.len() {
            let known = self.targets.get(at).and_then(|t| self.shared.known(t.address));
            known.into_iter().for_each(|known| self.update_target(at, &known));
        }
        self.set_due(now);
    }

    /// E7: whether commands or frames of targets that are not used any more may exist.
    pub(super) fn is_draining(&mut self) -> bool {
        let Engine { targets, rules, ops, inflight, .. } = self;
        let is_left = |at: usize| targets.get(at).is_some_and(|t| !rules.uses(t.address));
        let has_op = ops.iter().any(|op| op.busy && is_left(op.target));
        let mut frames = 0..inflight.len();
        has_op || frames.any(|at| inflight.at(at).is_some_and(|frame| is_left(frame.target)))
    }

    /// An interface is used from now on, or not any more: the disks behind its paths are identified
    /// anew before a command is sent by them.
    pub(super) fn forget_paths(&mut self, link: usize, now: u64) {
        let paths = self.targets.iter_mut().flat_map(|t| &mut t.paths);
        paths.filter(|path| path.link == link).for_each(|path| path.forget(now));
        self.set_due(now);
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether a target was found, or returned, since the last call.
    pub(super) fn take_found(&mut self) -> bool {
        std::mem::take(&mut self.found)
    }

    /// A target that grew or shrank.
    pub(super) fn take_resized(&mut self) -> Option<Address> {
        self.resized.pop()
    }

    /// E6: a target that may be another disk than before.
    pub(super) fn take_doubted(&mut self) -> Option<Address> {
        self.doubted.pop()
    }

    /// E6: no frame of a user's command is sent to a target from now on.
    pub(super) fn doubt(&mut self, address: Address) {
        if let Some(t) = self.targets.iter_mut().find(|t| t.address == address) {
            t.doubtful = true;
        }
    }

    /// E6: marks a target to be reported to CAM.
    fn mark_doubtful(&mut self, target: usize) {
        let Some(t) = self.targets.get_mut(target) else { return };
        if !std::mem::replace(&mut t.doubtful, true) {
            self.doubted.push(t.address);
        }
    }

    /// Targets to which no user's frame is sent.
    pub(super) fn doubtful(&self) -> Vec<Address> {
        self.targets.iter().filter(|t| t.doubtful).map(|t| t.address).collect()
    }

    /// CAM knows the identity of a target, or does not want to know it. A disk that no path leads
    /// to any more is not the one that CAM has found: paths are probed anew.
    pub(super) fn trust(&mut self, address: Address, now: u64) {
        let Some(t) = self.targets.iter_mut().find(|t| t.address == address) else { return };
        if !t.paths.iter().any(|path| path.is_same) {
            return self.accept_replacement(address, now);
        }
        (t.doubtful, t.silent) = (false, 0);
        self.set_due(now);
    }

    /// CAM has found another disk at a target, and accepts it.
    pub(super) fn accept_replacement(&mut self, address: Address, now: u64) {
        let Some(t) = self.targets.iter_mut().find(|t| t.address == address) else { return };
        (t.fingerprint, t.size, t.doubtful, t.silent) = (None, None, false, 0);
        t.paths.iter_mut().for_each(|path| path.forget(now));
        self.set_due(now);
    }

    /// A command that has ended.
    pub(super) fn take_ended(&mut self) -> Option<(CcbId, Address, Outcome)> {
        self.ended.pop()
    }

    /// When something is to be done at the latest, ns.
    pub(super) fn due(&self) -> u64 {
        self.due_ns
    }

    /// Something is to be done by then.
    pub(super) fn schedule(&mut self, at: u64) {
        self.set_due(at);
    }

    fn set_due(&mut self, at: u64) {
        self.due_ns = self.due_ns.min(at);
    }

    /// Begins a command for a target; an answer at once when it cannot be.
    pub(super) fn begin(
        &mut self,
        (id, to): (CcbId, Address),
        registers: &Registers,
        (flags, is_query): (Flags, bool),
        data: &Segs,
        now: u64,
    ) -> Option<Outcome> {
        let Some(target) = self.target(to) else {
            return Some(Outcome::of(CamStatus::SelectionTimeout));
        };
        // E7
        if !(self.rules.uses(to) || is_query && self.shared.is_leaving()) {
            return Some(Outcome::of(CamStatus::NoHba));
        }
        let (shape, opcode, sectors) = match frames_of(registers, data.len()) {
            Ok(shaped) => shaped,
            Err(status) => return Some(Outcome::of(status)),
        };
        let at = self.free_op_slot();
        let Some(op) = self.ops.get_mut(at) else { return Some(Outcome::of(CamStatus::Busy)) };
        op.id = id;
        op.target = target;
        op.registers = Registers { command: opcode, ..*registers };
        op.frame_plan = shape;
        op.write = flags.has(Flags::OUT);
        op.is_identity_query = is_query;
        op.sectors = sectors;
        data.iter().for_each(|seg| op.data.push(seg.clone()));
        (op.next, op.left) = (0, sectors.max(1));
        op.deadline_ns = now + self.rules.deadline_ns;
        op.hold = None;
        op.busy = true;
        let deadline = op.deadline_ns;
        op.span = span(op);
        if !is_query {
            self.doubt_if_silent(target, now);
        }
        let op = self.ops.get_mut(at)?;
        if op.span.is_some() {
            self.blocked.push(at);
        } else {
            self.enqueue(at);
        }
        self.set_due(deadline);
        None
    }

    /// E6
    fn doubt_if_silent(&mut self, target: usize, now: u64) {
        let Some(t) = self.targets.get(target) else { return };
        if now.saturating_sub(t.last_answer_ns.load(Ordering::Relaxed)) >= QUIET_NS {
            self.mark_doubtful(target);
        }
    }

    /// The index of a target; another core may have found it.
    fn target(&mut self, address: Address) -> Option<usize> {
        if let Some(at) = self.targets.iter().position(|t| t.address == address) {
            return Some(at);
        }
        let known = self.shared.known(address)?;
        self.targets.push(target_at(address, &known));
        let at = self.targets.len() - 1;
        self.update_target(at, &known);
        Some(at)
    }

    fn update_target(&mut self, at: usize, known: &KnownTarget) {
        let (shares, window) = (self.rules.shares.max(1), self.rules.window);
        let Some(t) = self.targets.get_mut(at) else { return };
        let is_new = t.paths.is_empty();
        t.buffers = u32::from(known.buffers).max(1).min(window);
        t.share = (t.buffers / shares).max(1);
        t.sectors = if known.sectors == 0 { 2 } else { known.sectors.into() };
        t.window = match is_new {
            true => (t.buffers * ONE / 2).max(ONE),
            false => t.window.min(t.buffers * ONE),
        };
        for (link, mac) in &known.paths {
            if !t.paths.iter().any(|p| p.link == *link && p.mac == *mac) {
                t.paths.push(Path::new(*link, *mac));
            }
        }
    }

    fn free_op_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.ops.push(Op {
                id: CcbId::from_word(0),
                target: 0,
                registers: Registers::default(),
                frame_plan: FramePlan::Single,
                write: false,
                is_identity_query: false,
                sectors: 0,
                data: Segs::new(),
                next: 0,
                resend: Vec::new(),
                left: 0,
                deadline_ns: 0,
                span: None,
                hold: None,
                busy: false,
            });
            self.ops.len() - 1
        })
    }

    fn enqueue(&mut self, at: usize) {
        let Some(op) = self.ops.get(at) else { return };
        if let Some(target) = self.targets.get_mut(op.target)
            && !target.send_queue.contains(&at)
        {
            target.send_queue.push_back(at);
        }
    }

    /// Ends a command of a target early: its frames that are out lose their command. False: there
    /// is no such command. Commands of two targets may have the same id.
    pub(super) fn abort(&mut self, (id, to): (CcbId, Address)) -> bool {
        let target = self.target(to);
        let fits = |op: &Op| op.busy && op.id == id && Some(op.target) == target;
        let Some(at) = self.ops.iter().position(fits) else { return false };
        self.forget(at);
        true
    }

    /// Ends all commands of a target.
    pub(super) fn reset(&mut self, to: Address, outcome: Outcome) {
        for at in 0..self.ops.len() {
            let Some(op) = self.ops.get(at).filter(|op| op.busy) else { continue };
            if self.targets.get(op.target).is_some_and(|t| t.address == to) {
                self.end(at, outcome);
            }
        }
    }

    fn end(&mut self, at: usize, outcome: Outcome) {
        let Some(op) = self.ops.get(at) else { return };
        let to = self.targets.get(op.target).map_or(Address::ALL, |t| t.address);
        self.ended.push((op.id, to, outcome));
        self.forget(at);
    }

    /// E3: its frames that are out belong to no command from now on.
    fn forget(&mut self, at: usize) {
        for place in 0..self.inflight.len() {
            let frame = self.inflight.at(place).filter(|frame| frame.op == Some(at));
            if let Some(frame) = frame {
                frame.op = None;
                frame.due_ns = frame.sent_ns + self.rules.life_ns;
                let (target, path) = (frame.target, frame.path);
                self.release_credit(target, path);
            }
        }
        let Some(op) = self.ops.get_mut(at) else { return };
        op.busy = false;
        op.data.clear();
        op.resend.clear();
        if let Some(target) = self.targets.get_mut(op.target) {
            target.send_queue.retain(|other| *other != at);
            if let Some(hold) = op.hold.take() {
                target.ranges.release(hold);
            }
        }
        self.blocked.retain(|other| *other != at);
        self.free.push(at);
    }

    /// A frame is not waited for any more.
    fn release_credit(&mut self, target: usize, path: usize) {
        if let Some(target) = self.targets.get_mut(target) {
            target.out = target.out.saturating_sub(1);
            target.credits.release();
            if let Some(path) = target.paths.get_mut(path) {
                path.out = path.out.saturating_sub(1);
            }
        }
    }
}

fn target_at(address: Address, known: &KnownTarget) -> Target {
    Target {
        address,
        paths: Vec::new(),
        next_path: 0,
        buffers: 1,
        sectors: 2,
        window: ONE,
        threshold: u32::MAX,
        out: 0,
        credits: known.credits.clone(),
        share: 1,
        silent: 0,
        doubtful: false,
        last_answer_ns: known.last_answer_ns.clone(),
        is_owed: false,
        lost: false,
        shrunk_ns: 0,
        ranges: known.ranges.clone(),
        fingerprint: None,
        size: None,
        sized_ns: 0,
        send_queue: VecDeque::new(),
    }
}
