//! A WORM that grows while it is in use.
//!
//! ```text
//!   plain WORM:  header: it has so many blocks
//!   fake WORM:   bits of all blocks, behind those that it has then -> flush -> header
//! ```
//! The header records how far the WORM is used, and a fake one has its bits there. A larger device
//! has grown and the header does not record it yet, or the power failed before that was durable.
//! Then the bits at the old place are valid.
//!
//! A cache device cannot grow. The bucket of an address is its remainder by the number of buckets,
//! in the header, and the place of a block follows from bucket and number. With more buckets nearly
//! every block has another place, including those that no WORM has, and the format has no second
//! table for the move. A loss of power during it would leave places that no header describes.
//! Buckets have a fixed number of entries, and no program looks behind the cached blocks. A larger
//! cache device is made new from the WORM, with the last dump (`recover`).

use super::commit::{flush, write_at};
use super::format::{self, Header, Tag, once_size};
use super::state::WORM;
use super::{BLOCK, Image};
use crate::fault::{Addr, Fault};

/// See the module.
pub(super) const KEEPS_ITS_SIZE: Fault = Fault::Invalid(
    "the cache device has grown, but the number of its buckets is fixed in the header of an image: \
     `fs dump`, `fs halt` and `fs recover --force` create a larger one from the WORM",
);

impl Image {
    /// Why a cache device that would hold more if it were made now does not.
    pub fn cache_keeps_its_size(&self) -> Option<Fault> {
        let header = self.0.state.borrow().header;
        let new = Header::plan(self.0.first.size() / BLOCK as u64, header.wsize)?;
        (self.0.worm.is_some() && new.csize > header.csize).then_some(KEEPS_ITS_SIZE)
    }

    /// The WORM's addresses reach as far as its device does; returns how many were added. The cache
    /// device keeps the size in its header.
    pub async fn grow(&self) -> Result<u64, Fault> {
        let Some(worm) = &self.0.worm else {
            return Err(Fault::Invalid("a file system without a WORM does not grow"));
        };
        if let Some(why) = &self.0.state.borrow().refused {
            return Err(why.clone());
        }
        if self.0.closed.get() {
            return Err(Fault::Closed);
        }
        let raw = worm.size() / BLOCK as u64;
        if self.grown_to(raw).is_none() {
            return Ok(0);
        }
        // Bits are not written meanwhile.
        let _turn = self.lock_copying().await;
        let Some((old, new)) = self.grown_to(raw) else { return Ok(0) };
        if self.0.state.borrow().shape.once {
            self.move_bits(old, raw, new).await?;
        }
        self.step(&mut |s| s.set_header(|h| h.wsize = new)).await?;
        {
            let mut state = self.0.state.borrow_mut();
            (state.shape.worm, state.shape.raw) = (Some(new), raw);
        }
        self.commit_now().await?;
        Ok(new - old)
    }

    /// Blocks that it has and would have, if it may grow to a device of so many.
    fn grown_to(&self, raw: u64) -> Option<(u64, u64)> {
        let shape = self.0.state.borrow().shape;
        let old = shape.worm.filter(|_| shape.log.is_some())?;
        // New bits never overwrite the valid ones.
        let (new, least) = if shape.once { (once_size(raw), shape.raw) } else { (raw, old) };
        (new > old && new >= least).then_some((old, new))
    }

    /// Copies the bits of a fake WORM from `old` to `new`; no bit behind those is set.
    async fn move_bits(&self, old: u64, raw: u64, new: u64) -> Result<(), Fault> {
        let Some(worm) = &self.0.worm else { return Ok(()) };
        let had = self.0.state.borrow().shape.raw - old;
        for (i, at) in (new..raw).enumerate() {
            let (i, seg) = (i as Addr, self.own_memory().await?);
            if i < had {
                self.read_device(WORM | (old + i), &seg).await?;
                seg.with(|b| format::check_tag(b, Tag::Virgin, old + i))
                    .map_err(|why| Fault::Corrupt(format!("bits of the fake WORM: {why}")))?;
            } else {
                seg.with_mut(|b| b.fill(0));
            }
            if at + 1 == raw {
                // The tag of the last block is written last: it shows that all bits are there.
                seg.with_mut(|b| format::set_tag(b, Tag::File, 0));
                write_at(&**worm, at, seg.clone().into()).await?;
                flush(&**worm).await?;
            }
            seg.with_mut(|b| format::set_tag(b, Tag::Virgin, at));
            write_at(&**worm, at, seg.clone().into()).await?;
            self.0.state.borrow_mut().frames.drop_block(WORM | at);
        }
        flush(&**worm).await
    }
}
