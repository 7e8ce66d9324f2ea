//! Devices that grow while they are in use.
//!
//! ```text
//!   empty pages for the new slots -> flush -> header -> flush -> header again -> flush: they count
//! ```
//! A device of the WORM needs none of this: addresses extend to its end.

use super::Volume;
use crate::fault::Fault;

impl Volume {
    /// Waits while the device grows: the next program that opens it finds the state before or
    /// after.
    pub(super) async fn has_grown(&self) {
        loop {
            let seen = self.0.grown.count();
            if !self.0.growing.get() {
                return;
            }
            self.0.grown.after(seen).await;
        }
    }

    /// The cache device's slots reach as far as it does, and the WORM's addresses as far as its
    /// smallest device. Returns how many slots were added.
    pub async fn grow(&self) -> Result<u64, Fault> {
        if let Some(why) = &self.0.state.borrow().refused {
            return Err(why.clone());
        }
        if self.0.closed.get() {
            return Err(Fault::Closed);
        }
        {
            let mut state = self.0.state.borrow_mut();
            let block = state.block() as u64;
            for (leg, medium) in state.members.iter_mut().zip(&self.0.members) {
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
        self.0.grown.notify_all();
        done?;
        let mut state = self.0.state.borrow_mut();
        state.layout = new;
        state.table.grow(&new);
        Ok(new.slots.1 - old.slots.1)
    }
}
