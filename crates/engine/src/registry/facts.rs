//! Facts about a session for lists: written by its core with plain stores, read by any thread.
//!
//! Invariant F1: every counter and every command's line has one writer, the session's core.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use bio::sync::Mutex;
use reactor::Address;

use super::latency::{LatencyHistogram, LatencyReading};
use crate::task::{CommandState, DEPTH_MAX};

/// One outstanding command for lists.
#[derive(Default)]
pub(crate) struct CommandEntry {
    /// Tag, opcode, state: zero when the place is free.
    packed: AtomicU64,
    since_ns: AtomicU64,
}

/// One outstanding command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandView {
    pub tag: u32,
    /// Operation code.
    pub opcode: u8,
    /// Where it is.
    pub state: CommandState,
    /// How long it has been here, ns.
    pub age_ns: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Commands that arrived.
    pub commands: u64,
    /// Commands that read the medium.
    pub reads: u64,
    /// Commands that wrote the medium.
    pub writes: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from the initiator.
    pub written_bytes: u64,
    /// Commands that ended otherwise than GOOD.
    pub errors: u64,
    /// Commands that task management ended.
    pub aborted: u64,
}

#[derive(Default)]
pub(crate) struct SessionCounters {
    pub commands: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub errors: AtomicU64,
    pub aborted: AtomicU64,
    pub depth_max: AtomicU64,
    /// Latencies of `reads`.
    pub read_latency: LatencyHistogram,
    /// Latencies of `writes`.
    pub write_latency: LatencyHistogram,
}

/// What holds a session's commands back.
#[derive(Default)]
pub(crate) struct FlowNotes {
    window: AtomicU32,
    share: AtomicU32,
    queued: AtomicU32,
    device: AtomicU32,
}

/// What holds a session's commands back, for lists.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct HeldBack {
    /// Commands that its transport lets it have open, as last reported.
    pub window: u32,
    /// Commands that it may have at a unit that has a limit.
    pub share: Option<u32>,
    /// Commands that are here and wait for the unit to have fewer.
    pub queued: u32,
    /// Number of the unit that they wait for, while there are any.
    pub device: Option<u32>,
}

/// Fixed and changing facts about one session.
pub struct SessionFacts {
    /// Number in this daemon; never reused.
    pub number: u64,
    /// Core that serves it.
    pub core: u32,
    pub driver: String,
    pub target: String,
    pub initiator: String,
    /// Port of the initiator as its transport names it (iSCSI: ISID).
    pub port_id: Vec<u8>,
    pub portal: Address,
    pub from: Address,
    /// Labels that the transport displays: digests, authentication.
    pub labels: Vec<(&'static str, String)>,
    /// When it logged in, ns of the cores' clock.
    pub since_ns: u64,
    pub(crate) group: Mutex<String>,
    pub(crate) closing: AtomicBool,
    pub(crate) session_counters: SessionCounters,
    pub(crate) flow: FlowNotes,
    pub(crate) command_entries: Box<[CommandEntry]>,
}

impl SessionFacts {
    pub(crate) fn new_command_entries() -> Box<[CommandEntry]> {
        (0..DEPTH_MAX).map(|_| CommandEntry::default()).collect()
    }

    /// The access group that it is in now.
    pub fn group(&self) -> String {
        self.group.lock().clone()
    }

    /// True when the session only waits for its last commands.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    pub fn counters(&self) -> Counters {
        let t = &self.session_counters;
        Counters {
            commands: t.commands.load(Relaxed),
            reads: t.reads.load(Relaxed),
            writes: t.writes.load(Relaxed),
            read_bytes: t.read_bytes.load(Relaxed),
            written_bytes: t.written_bytes.load(Relaxed),
            errors: t.errors.load(Relaxed),
            aborted: t.aborted.load(Relaxed),
        }
    }

    /// Latencies of its reads, from the arrival of a command to its answer.
    pub fn read_latency(&self) -> LatencyReading {
        self.session_counters.read_latency.read()
    }

    /// Latencies of its writes; the same.
    pub fn write_latency(&self) -> LatencyReading {
        self.session_counters.write_latency.read()
    }

    /// What holds its commands back now.
    pub fn held_back(&self) -> HeldBack {
        let f = &self.flow;
        let queued = f.queued.load(Relaxed);
        let some = |n: u32| (n > 0).then_some(n);
        HeldBack {
            window: some(f.window.load(Relaxed)).unwrap_or(DEPTH_MAX),
            share: some(f.share.load(Relaxed)),
            queued,
            device: (queued > 0).then(|| f.device.load(Relaxed)),
        }
    }

    #[inline]
    pub(crate) fn note_window(&self, window: u32) {
        self.flow.window.store(window, Relaxed);
    }

    /// `u32::MAX` when there is no limit.
    #[inline]
    pub(crate) fn note_share(&self, share: u32) {
        self.flow.share.store(if share == u32::MAX { 0 } else { share }, Relaxed);
    }

    pub(crate) fn note_queued(&self, device: u32) {
        self.flow.device.store(device, Relaxed);
        self.flow.queued.store(self.flow.queued.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(crate) fn note_unqueued(&self) {
        self.flow.queued.store(self.flow.queued.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Most commands that were outstanding at once.
    pub fn depth_max(&self) -> u64 {
        self.session_counters.depth_max.load(Relaxed)
    }

    /// The outstanding commands, oldest first.
    pub fn commands(&self, now_ns: u64) -> Vec<CommandView> {
        let mut all: Vec<CommandView> = self
            .command_entries
            .iter()
            .filter_map(|line| {
                let word = line.packed.load(Relaxed);
                Some(CommandView {
                    tag: (word >> 32) as u32,
                    opcode: (word >> 8) as u8,
                    state: CommandState::from_code(word as u8)?,
                    age_ns: now_ns.saturating_sub(line.since_ns.load(Relaxed)),
                })
            })
            .collect();
        all.sort_by_key(|c| std::cmp::Reverse(c.age_ns));
        all
    }

    #[inline]
    pub(crate) fn note(&self, slot: u32, tag: u32, opcode: u8, state: CommandState) {
        if let Some(line) = self.command_entries.get(slot as usize) {
            let word = u64::from(tag) << 32 | u64::from(opcode) << 8 | u64::from(state as u8);
            line.packed.store(word, Relaxed);
        }
    }

    /// How long the command of a place has been here, ns.
    #[inline]
    pub(crate) fn age(&self, slot: u32, now_ns: u64) -> u64 {
        let since =
            self.command_entries.get(slot as usize).map_or(now_ns, |l| l.since_ns.load(Relaxed));
        now_ns.saturating_sub(since)
    }

    #[inline]
    pub(crate) fn clear(&self, slot: u32) {
        if let Some(line) = self.command_entries.get(slot as usize) {
            line.packed.store(0, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn note_start(&self, slot: u32, now_ns: u64) {
        if let Some(line) = self.command_entries.get(slot as usize) {
            line.since_ns.store(now_ns, Relaxed);
        }
    }
}
