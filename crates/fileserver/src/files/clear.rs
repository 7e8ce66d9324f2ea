//! Zeros in the middle of a file: whole blocks become holes.

use super::contents::RUN;
use super::{Ino, Kind, VolumeFiles};
use crate::fault::{Fault, Stop};
use crate::tree::Blocks;
use crate::volume::View;

/// Items of addresses that one step looks at.
const RUNS_PER_STEP: u64 = 64;

impl VolumeFiles<'_, '_> {
    /// Makes up to `len` bytes from `offset` on zero, and gives their blocks back; returns the
    /// number of bytes. Large ranges take several steps. Bytes behind the end of the file are zero.
    pub fn clear(&mut self, ino: Ino, offset: u64, len: u64, by: u32) -> Result<u64, Stop> {
        let mut inode = self.inode(View::Live, ino)?;
        if inode.kind == Kind::Dir {
            return Err(Fault::IsDir.into());
        }
        let wide = self.step.block() as u64;
        let wanted = offset.saturating_add(len).min(inode.size);
        if offset >= wanted {
            return Ok(len);
        }
        let end = wanted.min((offset / wide / RUN + RUNS_PER_STEP) * RUN * wide);
        let mut block = offset / wide;
        let scratch = self.scratch_for(ino, &inode)?;
        while block * wide < end {
            let n = block / RUN;
            let mut run = self.run_of(View::Live, ino, n)?;
            let before = run;
            while block / RUN == n && block * wide < end {
                let place = &mut run[(block % RUN) as usize];
                let from = offset.saturating_sub(block * wide).min(wide) as usize;
                let to = (end - block * wide).min(wide) as usize;
                *place = match *place {
                    0 => 0,
                    // The last block's rest is zero already.
                    old if from == 0 && (to == wide as usize || end == inode.size) => {
                        self.step.free(old);
                        0
                    }
                    old => self.zero_part(old, (from, to), scratch)?,
                };
                block += 1;
            }
            if run != before {
                self.put_run(ino, n, &run)?;
            }
        }
        self.contents_changed(ino, &mut inode, by)?;
        Ok(if end == wanted { len } else { end - offset })
    }

    /// A copy of a block with zeros from `from` to `to`; its address. The block is given back.
    pub(super) fn zero_part(
        &mut self,
        old: u64,
        (from, to): (usize, usize),
        scratch: bool,
    ) -> Result<u64, Stop> {
        let had = self.step.data(old)?;
        let (new, seg) = self.step.fresh_of(scratch)?;
        had.with(|b| seg.copy_from(0, b));
        seg.with_mut(|b| b[from..to].fill(0));
        self.step.free(old);
        Ok(new)
    }

    /// Whether there is anything at `offset`, and for how many bytes that is so, `len` at most.
    pub fn is_mapped(
        &mut self,
        view: View,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<(bool, u64), Stop> {
        let wide = self.step.block() as u64;
        let first = offset / wide;
        let run = self.run_of(view, ino, first / RUN)?;
        let is_stored = run[(first % RUN) as usize] != 0;
        let same =
            run[(first % RUN) as usize..].iter().take_while(|a| (**a != 0) == is_stored).count();
        let end = (first + same as u64) * wide;
        Ok((is_stored, (end - offset).min(len)))
    }
}
