//! Read-modify-write of a part of a block, for requests that do not begin and end with blocks.
//!
//! ```text
//!   FETCH: READ of the block --GOOD--> SWAP: COMPARE AND WRITE --GOOD--> done
//!     ^                                  |
//!     +------------ MISCOMPARE ----------+  another write of the block was first
//! ```
//! COMPARE AND WRITE excludes every other write of the block, of any session, driver and core, so
//! no write is lost. There is no limit on the rounds: each one more is the success of another
//! write.

use std::rc::Rc;

use bio::Segs;
use wire::nbd::Request;

use super::session::{BlockSession, Frontend};

/// New data for a part of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patch {
    /// First byte within the block.
    pub skip: usize,
    pub bytes: Rc<[u8]>,
    /// The block as it was read, and as it is to become: the data of COMPARE AND WRITE.
    pub swap: Rc<[u8]>,
}

/// The part of a request that is done as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Blocks(u64),
    /// Bytes within one block.
    Bytes(u64),
}

/// The part that `at` begins of the `left` bytes from there on.
pub(crate) fn part(unit: u64, at: u64, left: u64) -> Part {
    let skip = at % unit;
    match skip == 0 && left >= unit {
        true => Part::Blocks(left / unit * unit),
        false => Part::Bytes((unit - skip).min(left)),
    }
}

/// The blocks that a range touches: first byte and bytes.
pub(crate) fn outer(unit: u64, at: u64, len: u64) -> (u64, u64) {
    let first = at / unit * unit;
    let last = at.saturating_add(len).div_ceil(unit).saturating_mul(unit);
    (first, last.saturating_sub(first))
}

/// The blocks that a range has in whole; None when there is none.
pub(crate) fn inner(unit: u64, at: u64, len: u64) -> Option<(u64, u64)> {
    let first = at.div_ceil(unit).checked_mul(unit)?;
    let last = at.saturating_add(len) / unit * unit;
    let len = last.checked_sub(first)?;
    (len > 0).then_some((first, len))
}

impl<F: Frontend> BlockSession<F> {
    /// Begins a piece that writes `bytes` at `at`, within one block, of a request that has several.
    pub fn start_patch(&self, request: Request, at: u64, bytes: Rc<[u8]>, parent: u32) {
        let unit = u64::from(self.device().block_bytes());
        let skip = usize::try_from(at % unit).unwrap_or(0);
        let patch = Patch { skip, bytes, ..Patch::default() };
        self.start_fetch(request, at - at % unit, unit, patch, parent);
    }

    /// The block has been read; false when that was not all of it.
    pub(super) fn fetched(&self, tag: u32, data: &Segs) -> bool {
        let unit = usize::try_from(self.device().block_bytes()).unwrap_or(0);
        if data.len() != unit {
            return false;
        }
        let swapped = self.with(tag, |p| {
            let Some(patch) = &mut p.patch else { return false };
            let mut swap = vec![0; 2 * unit];
            let (old, new) = swap.split_at_mut(unit);
            data.copy_to(0, old);
            new.copy_from_slice(old);
            let (skip, bytes) = (patch.skip, &patch.bytes);
            let fits = skip.checked_add(bytes.len()).and_then(|end| new.get_mut(skip..end));
            let fits = fits.map(|part| part.copy_from_slice(bytes)).is_some();
            patch.swap = swap.into();
            fits
        });
        swapped.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_range_in_order() {
        for (at, len, parts) in [
            (0, 4096, &[Part::Blocks(4096)][..]),
            (512, 512, &[Part::Bytes(512)]),
            (512, 4096, &[Part::Bytes(3584), Part::Bytes(512)]),
            (4095, 8194, &[Part::Bytes(1), Part::Blocks(8192), Part::Bytes(1)]),
        ] {
            let (mut from, mut got) = (at, Vec::new());
            while from < at + len {
                got.push(part(4096, from, at + len - from));
                let (Part::Blocks(n) | Part::Bytes(n)) = got[got.len() - 1];
                from += n;
            }
            assert_eq!((got.as_slice(), from), (parts, at + len));
        }
    }

    #[test]
    fn outer_and_inner_block_ranges_are_computed() {
        assert_eq!(outer(4096, 4095, 2), (0, 8192));
        assert_eq!(outer(4096, 4096, 4096), (4096, 4096));
        assert_eq!(inner(4096, 4095, 2), None);
        assert_eq!(inner(4096, 1, 8192), Some((4096, 4096)));
        assert_eq!(inner(4096, 100, 200), None);
        assert_eq!(inner(4096, u64::MAX, u64::MAX), None);
    }
}
