//! Frames that are out, by tag.
//!
//! A tag is the core, a place, and how often the place was used. A place is free again when its
//! frame was answered or is too old to be, so no two frames that exist have one tag (E1).

use std::collections::VecDeque;

/// Frames that one core may have out, including copies that belong to no command any more.
pub(super) const FRAMES_MAX: usize = 512;

const SLOT_BITS: u32 = 9;
const USE_BITS: u32 = 17;

/// Most cores that tags can distinguish.
pub(super) const CORES_MAX: usize = 64;

/// The tag of our questions for targets: no frame has a place that was never used. Unsolicited
/// announcements of a target, as at its start, have tag 0.
pub(super) const ASK_TAG: u32 = 1;

/// A frame that is out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// It requests the identity of the disk behind its path.
    pub is_identity_query: bool,
    /// It carries an order: its number.
    pub command: Option<u64>,
    /// Index of the target.
    pub target: usize,
    /// Index of the path in it.
    pub path: usize,
    /// Its command; `None`: it has none any more, and is a copy that may still arrive.
    pub op: Option<usize>,
    /// First sector of the command that it carries, and how many.
    pub first: u32,
    pub sectors: u32,
    /// How often these sectors were sent.
    pub tries: u32,
    pub sent_ns: u64,
    /// When it is given up, ns.
    pub due_ns: u64,
    /// Sectors that it may still write.
    pub hold: Option<super::ranges::Hold>,
}

struct TagSlot {
    uses: u32,
    frame: Option<Frame>,
}

/// See the module.
pub(super) struct InflightFrames {
    core: u32,
    slots: Vec<TagSlot>,
    /// The one that was free longest first: so that it takes long until a tag is used again.
    free: VecDeque<u32>,
}

impl InflightFrames {
    pub(super) fn new(core: usize) -> InflightFrames {
        let core = u32::try_from(core % CORES_MAX).unwrap_or(0);
        InflightFrames { core, slots: Vec::new(), free: VecDeque::new() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == FRAMES_MAX
    }

    /// The tag that a frame is sent with; `None` when all places are taken.
    pub(super) fn add(&mut self, frame: Frame) -> Option<u32> {
        let at = match self.free.pop_front() {
            Some(at) => at,
            None if self.slots.len() < FRAMES_MAX => {
                self.slots.push(TagSlot { uses: 0, frame: None });
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let place = self.slots.get_mut(at as usize)?;
        // Never 0, which is the tag of unsolicited frames.
        place.uses = (place.uses % ((1 << USE_BITS) - 1)) + 1;
        place.frame = Some(frame);
        Some(self.core << (SLOT_BITS + USE_BITS) | place.uses << SLOT_BITS | at)
    }

    fn slot_of(&self, tag: u32) -> Option<usize> {
        let at = (tag & ((1 << SLOT_BITS) - 1)) as usize;
        let uses = tag >> SLOT_BITS & ((1 << USE_BITS) - 1);
        let place = self.slots.get(at)?;
        let own = tag >> (SLOT_BITS + USE_BITS) == self.core;
        (own && place.uses == uses && place.frame.is_some()).then_some(at)
    }

    pub(super) fn get(&self, tag: u32) -> Option<&Frame> {
        self.slots.get(self.slot_of(tag)?)?.frame.as_ref()
    }

    /// It was answered.
    pub(super) fn take(&mut self, tag: u32) -> Option<Frame> {
        let at = self.slot_of(tag)?;
        self.remove(at)
    }

    /// The place is free again.
    pub(super) fn remove(&mut self, at: usize) -> Option<Frame> {
        let frame = self.slots.get_mut(at)?.frame.take()?;
        self.free.push_back(u32::try_from(at).ok()?);
        Some(frame)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn at(&mut self, at: usize) -> Option<&mut Frame> {
        self.slots.get_mut(at)?.frame.as_mut()
    }
}
