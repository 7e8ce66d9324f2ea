//! Devices that grow while they are in use.
//!
//! ```text
//!   empty pages for the new slots -> flush -> header -> flush -> header again -> flush: they count
//! ```
//! A device of the WORM needs none of this: addresses go as far as it reaches.

use super::Volume;
use crate::fault::Fault;

impl Volume {
    /// The cache device's slots reach as far as it does, and the WORM's addresses as far as its
    /// smallest device; how many slots came.
    pub async fn grow(&self) -> Result<u64, Fault> {
        {
            let mut state = self.0.state.borrow_mut();
            let block = state.block() as u64;
            for (leg, medium) in state.legs.iter_mut().zip(&self.0.legs) {
                leg.blocks = medium.size() / block;
            }
        }
        let (old, seq) = {
            let state = self.0.state.borrow();
            (state.layout, state.seq)
        };
        let size = self.0.cache.size();
        let Some(new) = old.grown(size).filter(|_| !self.0.growing.replace(true)) else {
            return Ok(0);
        };
        let done = async {
            for i in old.pages_used()..new.pages_used() {
                let page = self.0.state.borrow().table.page(&new, i, seq);
                self.write_bytes(new.at(new.pages.0 + 2 * i as u64), &page).await?;
            }
            let header = new.encode();
            for at in [0, 1] {
                self.cache_flush().await?;
                self.write_bytes(new.at(at), &header).await?;
            }
            self.cache_flush().await
        };
        let done = done.await;
        self.0.growing.set(false);
        done?;
        let mut state = self.0.state.borrow_mut();
        state.layout = new;
        state.table.grow(&new);
        Ok(new.slots.1 - old.slots.1)
    }
}
