//! Cursor over segments, which are divided without a copy.

use bio::Seg;

pub(crate) struct SegCursor<'a> {
    segs: &'a [Seg],
    /// Offset in the first segment.
    at: usize,
}

impl<'a> SegCursor<'a> {
    pub fn new(segs: &'a [Seg]) -> SegCursor<'a> {
        SegCursor { segs, at: 0 }
    }

    /// Passes the next `len` bytes to `f`.
    pub fn take(&mut self, mut len: usize, mut f: impl FnMut(Seg)) {
        while len > 0 {
            let Some((first, rest)) = self.segs.split_first() else { return };
            let left = first.len() - self.at;
            if len < left {
                first.slice(self.at, len).into_iter().for_each(&mut f);
                self.at += len;
                return;
            }
            match self.at {
                0 => f(first.clone()),
                at => first.slice(at, left).into_iter().for_each(&mut f),
            }
            len -= left;
            (self.segs, self.at) = (rest, 0);
        }
    }
}
