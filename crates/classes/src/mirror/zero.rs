//! WRITE ZEROES on members that do not take it: they are written with zeroes.

use bio::{Bio, Errno, Flags, Op};
use geom::{Core, Flow};

use super::layer::{MirrorLayer, UNABLE};
use crate::members::{BLANK, zero_page};

/// Zeroes of one request.
const PIECE: u64 = 16 * BLANK;

impl MirrorLayer {
    /// A member does not take it.
    #[cold]
    pub(super) fn unable(&self, bio: &Bio, slot: u32, core: &Core) {
        let mut core_state = self.0.core_state(core.id() as usize);
        let bit = 1u32.checked_shl(slot).unwrap_or(0);
        *core_state.unable.entry(bio.id().to_word()).or_default() |= bit;
    }

    /// L6: writes zeroes to the members that did not take the request, as long as they are members.
    /// `None` when there is nothing to do, or `word` records that they failed.
    #[cold]
    pub(super) fn zero_others(&self, bio: &mut Bio, word: &mut u64, core: &Core) -> Option<Flow> {
        let at = core.id() as usize;
        let unable = self.0.core_state(at).unable.remove(&bio.id().to_word()).unwrap_or(0);
        *word &= !UNABLE;
        let table = self.0.core_state(at).table.clone();
        let (ranges, mut sent) = (bio.ranges().collect::<Vec<_>>(), false);
        for (slot, path) in table.all().filter(|(slot, _)| unable >> slot & 1 != 0) {
            let Some(zeroes) = zero_page() else {
                self.record_failure(bio, slot as u32, Errno::Io, core);
                *word |= 1 << slot;
                continue;
            };
            for range in &ranges {
                let (mut at, end) = (range.start, range.end);
                while at < end {
                    let len = PIECE.min(end - at);
                    let mut data = bio::Segs::new();
                    while (data.len() as u64) < len {
                        let some = BLANK.min(len - data.len() as u64) as usize;
                        if !zeroes.slice_into(0, some, &mut data) {
                            break;
                        }
                    }
                    core.fork(bio, path.edge, |child| {
                        child.op = Op::Write;
                        child.flags = child.flags.without(Flags::NO_HOLE);
                        (child.offset, child.length) = (at, len);
                        child.data = data;
                        child.mark = slot as u32;
                    });
                    (at, sent) = (at + len, true);
                }
            }
        }
        sent.then_some(Flow::Fork(*word))
    }
}
