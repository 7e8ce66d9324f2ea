//! Commands that end their session: I7 of [`super`].
//!
//! A target, or something on the path to it, may fail at one command and drop the connection each
//! time the command is sent again. Other commands that were under way are not the cause. A command
//! that was under way in [`SUSPECT_AFTER`] sessions that ended is sent with nothing beside it from
//! then on. A session that ends all the same was ended by that command. This costs the command one
//! of its tries, as do all failures that it causes. So it fails after [`SUSPECT_AFTER`]
//! sessions and its tries, and the others continue.
//!
//! Linux counts every session that ends against all commands that were under way, five of them;
//! FreeBSD against none, and tries for ever.

use std::collections::BTreeMap;

use wire::scsi::Lun;

use super::op::{Kind, Op, Task};
use super::{Engine, OPS_MAX};

/// Sessions that may end with a command under way before it is sent alone.
pub(super) const SUSPECT_AFTER: u8 = 2;

/// Key of a command that is sent again: its unit, and the number that it has with CAM.
type CommandKey = ([u8; 8], u64);

/// Those that are sent again, and how many sessions ended while they were under way.
#[derive(Default)]
pub(super) struct SuspectCommands(BTreeMap<CommandKey, u8>);

impl Op {
    pub(super) fn is_suspect(&self) -> bool {
        self.busy && self.session_losses >= SUSPECT_AFTER
    }

    fn is_out(&self) -> bool {
        self.busy && self.sent && self.kind == Kind::Command
    }
}

impl Engine {
    /// How many sessions ended with a command that is sent (again).
    pub(super) fn session_losses_of(&mut self, task: &Task) -> u8 {
        let ends = self.suspects.0.remove(&(task.lun, task.serial)).unwrap_or(0);
        self.suspect_count += usize::from(ends >= SUSPECT_AFTER);
        ends
    }

    /// A session has ended: counts this for each command that was under way.
    pub(super) fn suspect(&mut self) {
        self.poison_command = None;
        let mut culprit = None;
        for op in self.ops.iter_mut().filter(|op| op.is_out()) {
            let was_suspect = op.is_suspect();
            op.session_losses = op.session_losses.saturating_add(1);
            // It was sent alone.
            op.ended_last_session = was_suspect;
            self.suspect_count += usize::from(!was_suspect && op.session_losses >= SUSPECT_AFTER);
            if op.ended_last_session {
                culprit = Some(describe(&op.task, op.session_losses));
            }
        }
        self.counts.poisoned_sessions += u64::from(culprit.is_some());
        self.poison_command = culprit;
    }

    /// One that was sent is sent again.
    pub(super) fn remember(&mut self, at: usize) {
        let Some(op) = self.ops.get(at) else { return };
        // Entries of commands that CAM gave up are not removed otherwise.
        if self.suspects.0.len() >= OPS_MAX {
            self.suspects.0.clear();
        }
        self.suspects.0.insert((op.task.lun, op.task.serial), op.session_losses);
    }

    /// Whether a command may be sent beside those under way.
    pub(super) fn may_send(&self, op: &Op) -> bool {
        // There is none nearly always.
        if self.suspect_count == 0 {
            return true;
        }
        match op.is_suspect() {
            true => !self.ops.iter().any(Op::is_out),
            false => !self.ops.iter().any(|other| other.is_out() && other.is_suspect()),
        }
    }

    /// Which command ended the last session, and how many it was there for.
    pub(in crate::sims::iscsi) fn poison_command(&self) -> Option<&str> {
        self.poison_command.as_deref()
    }
}

fn describe(task: &Task, ends: u8) -> String {
    let lun = Lun::decode(task.lun).map_or(0, Lun::number);
    let cdb: Vec<String> = task.cdb.iter().map(|b| format!("{b:02x}")).collect();
    let cdb = cdb.join(" ");
    format!(
        "{ends} sessions have ended with this command under way, the last alone: {cdb} of LUN {lun}"
    )
}
