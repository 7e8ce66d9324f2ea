//! Empty lists of segments that keep their capacity: requests allocate none in steady state.

use std::cell::RefCell;

use bio::Segs;

/// Lists kept for the next requests; further ones are freed.
const LISTS_MAX: usize = 256;

/// See the module.
#[derive(Default)]
pub struct SegmentLists(RefCell<Vec<Segs>>);

impl SegmentLists {
    /// An empty list.
    pub fn take(&self) -> Segs {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a list.
    pub fn put(&self, mut segs: Segs) {
        segs.clear();
        let mut lists = self.0.borrow_mut();
        if lists.len() < LISTS_MAX {
            lists.push(segs);
        }
    }
}
