//! A fake WORM: bits at its end record the blocks that were written.

use super::PAYLOAD;
use crate::fault::Addr;

/// A fake WORM on `blocks` blocks: how many of them are left to use. Behind them a bit for each
/// records that it was written.
pub fn once_size(blocks: u64) -> u64 {
    blocks.saturating_sub(blocks / (PAYLOAD as u64 * 8) + 1)
}

/// The other way round: on how many blocks a fake WORM of which so many can be used is.
pub fn once_raw(usable: u64) -> u64 {
    let mut raw = usable.saturating_add(1);
    while once_size(raw) < usable {
        raw += usable - once_size(raw);
    }
    raw
}

/// Where the bit of a block is: block, byte, mask.
pub fn once_bit(blocks: u64, addr: Addr) -> (Addr, usize, u8) {
    let per = PAYLOAD as u64 * 8;
    let bit = addr % per;
    (once_size(blocks) + addr / per, (bit / 8) as usize, 1 << (bit % 8))
}
