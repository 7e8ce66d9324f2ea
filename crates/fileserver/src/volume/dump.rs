//! Taking a dump: the line moves up, nothing else.

use super::point::Dump;
use super::state::VolumeState;
use super::{SpaceWait, Volume};
use crate::fault::{Fault, Wait};

impl Volume {
    /// Freezes the tree as it is as the dump of `date` (20261121). When it returns the dump is
    /// durable on the cache device; [`Volume::copied`] reports when the WORM has it.
    pub async fn dump(&self, date: u32) -> Result<Dump, Fault> {
        if self.0.members.is_empty() {
            return Err(Fault::Invalid("a file system without a WORM has no dumps"));
        }
        let mut patience = SpaceWait::default();
        loop {
            // One at a time is committed.
            let seen = self.0.dumped.count();
            if self.0.state.borrow().pending.is_some() {
                self.0.dumped.after(seen).await;
                continue;
            }
            self.renew().await?;
            let frozen = {
                let mut state = self.0.state.borrow_mut();
                state.now_ns = (self.0.clock)();
                freeze(&mut state, date)?
            };
            match frozen {
                Some(dump) => {
                    self.sync().await?;
                    return Ok(dump);
                }
                None => self.make_space(Wait::Commit, &mut patience).await?,
            }
        }
    }

    /// Until a dump is on at least one device of the WORM, for good.
    pub async fn copied(&self, dump: &Dump) -> Result<(), Fault> {
        loop {
            let seen = self.0.dumped.count();
            {
                let state = self.0.state.borrow();
                if state.copied() >= dump.next {
                    return Ok(());
                }
                if let Some(why) = &state.refused {
                    return Err(why.clone());
                }
            }
            self.0.dumped.after(seen).await;
        }
    }

    /// Every dump that is committed.
    pub fn dumps(&self) -> Vec<Dump> {
        let state = self.0.state.borrow();
        state.dumps.iter().copied().filter(|d| d.number <= state.dumped).collect()
    }
}

/// None: its checksums need slots first.
fn freeze(s: &mut VolumeState, date: u32) -> Result<Option<Dump>, Fault> {
    if let Some(why) = &s.refused {
        return Err(why.clone());
    }
    let (sb, end) = (s.sb, s.space.next());
    let sums = (end - sb).div_ceil(s.sums_per_block() as u64);
    let next = end + sums;
    let blocks = s.members.iter().map(|l| l.blocks).min().unwrap_or(0);
    if next >= blocks {
        return Err(Fault::NoSpace("the WORM has no space for the end of a dump"));
    }
    if s.slots_for_dump() <= sums as usize + 1 {
        return Ok(None);
    }
    let number = s.dumps.last().map_or(0, |d| d.number) + 1;
    let serial = s.dumps.iter().rev().take_while(|d| d.date == date).count() as u32;
    let dump = Dump {
        number,
        date,
        serial,
        sb,
        end,
        next,
        root: s.root,
        time_ns: s.now_ns,
        ino: s.ino,
        change: s.change,
        epoch: s.epoch,
        chain: s.chain,
    };
    s.dumps.push(dump);
    s.pending = Some(dump);
    s.sb = next;
    s.space.freeze(next + 1);
    Ok(Some(dump))
}
