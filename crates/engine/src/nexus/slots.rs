//! The places of the commands of a session, and the state that a command keeps there
//! (`command/mod.rs`, C1 to C3).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::Waker;

use bio::{Origin, Segs};
use wire::scsi::{Asc, Command as Cdb, asc};

use crate::gate::naca;
use crate::nexus::transport::Command;
use crate::nexus::{ItNexus, Path};
use crate::plan::Plan;
use crate::task::{AbortHow, CommandState, TaskAttribute};

/// State shared by a conversation and its engine.
#[derive(Default)]
pub(crate) struct JobState {
    /// The command's session, and its place there.
    pub session: Weak<ItNexus>,
    /// Place and generation.
    pub slot_id: u64,
    /// Task management has ended the command.
    pub stop: Cell<bool>,
    /// Waker of the conversation; the awaited operation ends when the command is aborted.
    pub waker: RefCell<Option<Waker>>,
    /// Data for the initiator.
    pub reply: RefCell<Segs>,
}

impl JobState {
    /// The command is aborted.
    pub fn stop(&self) {
        self.stop.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// One command.
pub(crate) struct Slot {
    pub generation: u32,
    pub state: Option<CommandState>,
    pub tag: u32,
    pub path: Option<Rc<Path>>,
    /// Without a path: how the command ends.
    pub missing_lun_sense: Asc,
    /// Origin of its requests, for the layers below.
    pub origin: Origin,
    pub command: Cdb,
    pub opcode: u8,
    pub plan: Plan,
    pub attribute: TaskAttribute,
    pub expect_in: u32,
    pub expect_out: u32,
    pub wanted: u32,
    pub data_ready: bool,
    pub enabled: bool,
    /// Its number in the order of the unit; zero when it runs without one.
    pub entry: u64,
    /// NACA is set: its CHECK CONDITION establishes a contingent allegiance.
    pub naca: bool,
    /// The bits of its nexus's word that keep it from running: reservations of others.
    pub blocking_flags: u32,
    /// It is the command of the ACA attribute of an allegiance.
    pub aca: bool,
    /// Bytes of buffers that it was given to read into, or of its write data.
    pub buffer_bytes: usize,
    /// It waits for its turn at the unit (`qos/mod.rs`).
    pub queued: bool,
    /// Its cost in the layers below while it is there, since `began_ns`.
    pub inflight_cost: Option<u32>,
    pub began_ns: u64,
    pub abort: Option<AbortHow>,
    /// Its status was sent, it continues ([`crate::handlers::Job::respond_early`]).
    pub answered: bool,
    /// Write data, or the buffers to read into.
    pub data: Segs,
    /// Bytes that the command would move if the initiator took all of them.
    pub needed: u64,
    /// Bytes requested below: the dispatcher cuts a request at the end of a medium that shrank.
    pub requested_bytes: u64,
    /// State shared by a conversation and the engine.
    pub job_state: Option<Rc<JobState>>,
    /// Task management functions that wait for the end.
    pub waiters: Vec<u32>,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            generation: 0,
            state: None,
            tag: 0,
            path: None,
            missing_lun_sense: asc::LUN_NOT_SUPPORTED,
            origin: Origin::default(),
            command: Cdb::TestUnitReady,
            opcode: 0,
            plan: Plan::NOTHING,
            attribute: TaskAttribute::Simple,
            expect_in: 0,
            expect_out: 0,
            wanted: 0,
            data_ready: false,
            enabled: false,
            entry: 0,
            naca: false,
            blocking_flags: 0,
            aca: false,
            buffer_bytes: 0,
            queued: false,
            inflight_cost: None,
            began_ns: 0,
            abort: None,
            answered: false,
            data: Segs::new(),
            needed: 0,
            requested_bytes: 0,
            job_state: None,
            waiters: Vec::new(),
        }
    }

    /// Takes over the transport's description of a command; nothing is planned yet.
    pub(crate) fn begin(&mut self, command: &Command<'_>) {
        self.opcode = command.cdb.first().copied().unwrap_or(0);
        self.attribute = command.attribute;
        self.expect_in = command.expect_in;
        self.expect_out = command.expect_out;
        self.naca = naca(command.cdb);
        self.wanted = 0;
        self.needed = 0;
        self.plan = Plan::NOTHING;
        self.blocking_flags = 0;
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.path.as_ref().map_or(512, |p| p.device().block_bytes())
    }
}

/// Parts of a freed command that its session and its unit still account for.
pub(crate) struct FreedCommand {
    /// Place and generation that it had.
    pub slot_id: u64,
    pub path: Option<Rc<Path>>,
    pub entry: u64,
    pub aca: bool,
    pub buffer_bytes: usize,
    /// It was below, with its cost there, or waited for its turn.
    pub turn: Option<Option<u32>>,
    pub waiters: Vec<u32>,
}

/// Places in the tag table: a power of two, more than twice the commands there can be.
const TAG_PLACES: usize = 512;

/// Commands of one session, recycled; found by place or by tag. Nothing here allocates once the
/// session has been as deep as it will be.
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Place + 1 by tag, open addressing, zero is empty.
    by_tag: Box<[u32; TAG_PLACES]>,
}

/// Place and generation in one word, for the layers below (C3).
pub(crate) fn slot_id_of(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}

fn tag_hash(tag: u32) -> usize {
    (tag.wrapping_mul(0x9E37_79B1) >> 16) as usize % TAG_PLACES
}

impl Slots {
    pub fn new() -> Slots {
        Slots { slots: Vec::new(), free: Vec::new(), by_tag: Box::new([0; TAG_PLACES]) }
    }

    /// A free place under `tag`, in state `state`; `None` when the tag is in the table. The caller
    /// keeps below the depth limit, so that the table has empty places and the search ends.
    pub fn take(&mut self, tag: u32, state: CommandState) -> Option<(u32, &mut Slot)> {
        let mut at = tag_hash(tag);
        while let Some(other) = self.by_tag.get(at)?.checked_sub(1) {
            if self.slots.get(other as usize).is_some_and(|s| s.tag == tag) {
                return None;
            }
            at = (at + 1) % TAG_PLACES;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            self.slots.len() as u32 - 1
        });
        if let Some(entry) = self.by_tag.get_mut(at) {
            *entry = place + 1;
        }
        let slot = self.slots.get_mut(place as usize)?;
        slot.state = Some(state);
        slot.tag = tag;
        Some((place, slot))
    }

    /// The place of a tag.
    pub fn find(&self, tag: u32) -> Option<u32> {
        let mut at = tag_hash(tag);
        for _ in 0..TAG_PLACES {
            let place = self.by_tag.get(at)?.checked_sub(1)?;
            if self.slots.get(place as usize).is_some_and(|s| s.tag == tag) {
                return Some(place);
            }
            at = (at + 1) % TAG_PLACES;
        }
        None
    }

    /// The command of a tag.
    pub fn by_tag(&mut self, tag: u32) -> Option<(u32, &mut Slot)> {
        let place = self.find(tag)?;
        Some((place, self.get_mut(place)?))
    }

    /// Takes the tag of a place out of the table, closing the gap behind it: the transport may use
    /// it again.
    pub fn forget_tag(&mut self, tag: u32, place: u32) {
        let mut hole = tag_hash(tag);
        loop {
            match self.by_tag.get(hole).and_then(|entry| entry.checked_sub(1)) {
                Some(found) if found == place => break,
                Some(_) => hole = (hole + 1) % TAG_PLACES,
                None => return,
            }
        }
        let mut at = hole;
        for _ in 0..TAG_PLACES {
            at = (at + 1) % TAG_PLACES;
            let entry = self.by_tag.get(at).copied().unwrap_or(0);
            let Some(slot) = entry.checked_sub(1).and_then(|p| self.slots.get(p as usize)) else {
                break;
            };
            let from = tag_hash(slot.tag);
            let stays =
                if hole <= at { hole < from && from <= at } else { hole < from || from <= at };
            if !stays {
                if let Some(e) = self.by_tag.get_mut(hole) {
                    *e = entry;
                }
                hole = at;
            }
        }
        if let Some(e) = self.by_tag.get_mut(hole) {
            *e = 0;
        }
    }

    pub fn get(&self, place: u32) -> Option<&Slot> {
        self.slots.get(place as usize)
    }

    pub fn get_mut(&mut self, place: u32) -> Option<&mut Slot> {
        self.slots.get_mut(place as usize)
    }

    /// The command that a word of [`slot_id_of`] means, if it is still there.
    pub fn by_slot_id(&mut self, word: u64) -> Option<(u32, &mut Slot)> {
        let (place, generation) = (word as u32, (word >> 32) as u32);
        let slot = self.slots.get_mut(place as usize)?;
        (slot.generation == generation && slot.state.is_some()).then_some((place, slot))
    }

    /// Frees a place whose tag is out of the table already. Buffers return to the pool; `emptied`
    /// is a list whose capacity later commands use.
    #[inline]
    pub fn free(&mut self, place: u32, emptied: Option<Segs>) -> Option<FreedCommand> {
        let slot = self.slots.get_mut(place as usize)?;
        let freed = FreedCommand {
            slot_id: slot_id_of(place, slot.generation),
            path: slot.path.take(),
            entry: slot.entry,
            aca: slot.aca,
            buffer_bytes: slot.buffer_bytes,
            turn: (slot.inflight_cost.is_some() || slot.queued).then_some(slot.inflight_cost),
            waiters: std::mem::take(&mut slot.waiters),
        };
        if let Some(emptied) = emptied {
            slot.data = emptied;
        }
        slot.data.clear();
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = None;
        slot.abort = None;
        slot.answered = false;
        slot.job_state = None;
        slot.needed = 0;
        slot.data_ready = false;
        slot.enabled = false;
        slot.entry = 0;
        slot.aca = false;
        slot.buffer_bytes = 0;
        slot.queued = false;
        slot.inflight_cost = None;
        self.free.push(place);
        Some(freed)
    }

    /// Place and generation of every command, with those that `wanted` picks.
    pub fn select(&self, mut wanted: impl FnMut(&Slot) -> bool) -> Vec<u64> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, s)| s.state.is_some() && wanted(s))
            .map(|(i, s)| slot_id_of(i, s.generation))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::SeededRandom;
    use std::collections::BTreeMap;
    use testkit::Seeds;

    /// C1 of command/mod.rs.
    #[test]
    fn tag_lookup_agrees_with_a_model_under_random_changes() {
        for seed in Seeds::of(1000) {
            let mut random = SeededRandom::new(seed);
            let mut slots = Slots::new();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for _ in 0..2000 {
                let tag = (random.below(100) as u32) << 24 | random.below(3) as u32;
                match model.remove(&tag) {
                    Some(place) => {
                        slots.forget_tag(tag, place);
                        slots.free(place, None);
                    }
                    None if model.len() < 128 => {
                        model.insert(tag, slots.take(tag, CommandState::Executing).unwrap().0);
                    }
                    None => {}
                }
                for (tag, place) in &model {
                    assert_eq!(slots.find(*tag), Some(*place), "seed {seed}");
                }
                assert_eq!(slots.find(tag).is_some(), model.contains_key(&tag), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_freed_place_returns_the_accounts_of_its_command_and_keeps_none() {
        let mut slots = Slots::new();
        let (place, slot) = slots.take(7, CommandState::Executing).unwrap();
        (slot.entry, slot.buffer_bytes, slot.queued) = (3, 4096, true);
        slots.forget_tag(7, place);
        let freed = slots.free(place, None).unwrap();
        assert_eq!((freed.entry, freed.buffer_bytes, freed.turn), (3, 4096, Some(None)));
        let (again, slot) = slots.take(8, CommandState::Executing).unwrap();
        assert_eq!((again, slot.entry, slot.buffer_bytes, slot.queued), (place, 0, 0, false));
    }

    #[test]
    fn c3_an_answer_to_the_former_command_of_a_slot_is_ignored() {
        let mut slots = Slots::new();
        let (place, _) = slots.take(7, CommandState::Executing).unwrap();
        let word = slot_id_of(place, slots.get(place).unwrap().generation);
        assert!(slots.by_slot_id(word).is_some());
        slots.forget_tag(7, place);
        slots.free(place, None);
        assert!(slots.by_slot_id(word).is_none());
        assert!(slots.take(8, CommandState::Executing).is_some());
        assert!(slots.take(8, CommandState::Executing).is_none());
        assert!(slots.by_slot_id(word).is_none());
    }
}
