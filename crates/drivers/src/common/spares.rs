//! Empty lists of segments that keep their capacity: requests allocate none in steady state.

use std::cell::RefCell;

use bio::Segs;

/// Lists kept for the next requests; further ones are given back.
const SPARES_MAX: usize = 256;

/// See the module.
#[derive(Default)]
pub(crate) struct Spares(RefCell<Vec<Segs>>);

impl Spares {
    /// A list, empty.
    pub fn take(&self) -> Segs {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes one back.
    pub fn put(&self, mut segs: Segs) {
        segs.clear();
        let mut spares = self.0.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(segs);
        }
    }
}
