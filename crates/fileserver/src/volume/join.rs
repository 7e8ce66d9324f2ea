//! Join of a leg of the WORM: its owner and its part of the chain are checked before it is used.

use bio::Seg;

use super::point::Dump;
use super::worm::{self, Label};
use super::{Volume, fence};
use crate::fault::{Addr, Fault};
use crate::medium::Medium;

/// One block of a device, in memory of its own.
pub(super) async fn read_block(medium: &dyn Medium, addr: Addr, seg: Seg) -> Result<Seg, Fault> {
    let io_fault = |e| Fault::Io(e, format!("{}: block {addr}", medium.name()));
    medium.read(addr * seg.len() as u64, seg.clone().into()).await.map_err(io_fault)?;
    Ok(seg)
}

impl Volume {
    /// Takes a seat on a leg and finds out how far it is.
    pub(super) async fn join(&self, leg: usize) -> Result<(), Fault> {
        let Some(medium) = self.0.members.get(leg) else { return Ok(()) };
        let medium = &**medium;
        self.check_not_replacing(leg)?;
        let (volume, block, epoch) = {
            let state = self.0.state.borrow();
            (state.layout.volume, state.block(), state.epoch)
        };
        self.check_label(medium).await?;
        let memory = async || self.own_memory().await;
        let (taken, free) = fence::read_entries(medium, volume, block, memory).await?;
        if let Err(fault) = fence::check_entries(&taken, &self.0.owner, epoch) {
            return Err(self.refuse(fault));
        }
        let mine = taken.iter().find(|(_, s)| s.owner == self.0.owner).map(|(i, _)| *i);
        let place = mine.or(free).ok_or(Fault::NoSpace("all seats of the fence are taken"))?;
        // The progress that it shows may be in its cache only; progress known before it failed is
        // durable.
        let known = self.0.state.borrow().members.get(leg).map_or(0, |l| l.done);
        let done = self.progress(medium).await?.min(known);
        self.check_not_replacing(leg)?;
        let blocks = medium.size() / block as u64;
        if let Some(l) = self.0.state.borrow_mut().members.get_mut(leg) {
            (l.done, l.blocks) = (done, blocks);
        }
        if let Some(p) = self.0.fence_slots.borrow_mut().get_mut(leg) {
            *p = Some(place);
        }
        // Nothing above what it has may have been written in this epoch, as far as others need to
        // know.
        let granted = taken.iter().filter(|(i, _)| *i == place).map(|(_, s)| s.grant).max();
        // A part of a dump counts on the device that was granted it, and on no other in its place.
        if let Some(part) = self.0.partial.borrow_mut().get_mut(leg)
            && granted.is_none_or(|g| g < *part)
        {
            *part = 0;
        }
        let latest = self.latest_on(leg);
        self.write_own_entry(leg, granted.unwrap_or(0).max(done), latest, false).await?;
        self.0.dumped.notify_all();
        Ok(())
    }

    /// A device has the label of this WORM.
    pub(super) async fn check_label(&self, medium: &dyn Medium) -> Result<(), Fault> {
        let (volume, block) = {
            let state = self.0.state.borrow();
            (state.layout.volume, state.block())
        };
        let head = read_block(medium, 0, self.own_memory().await?).await?;
        let label = head.with(Label::decode).map_err(|why| {
            let is_blank = head.with(|b| b.iter().all(|b| *b == 0));
            let why = if is_blank { "its beginning is blank" } else { why };
            Fault::Foreign(format!("{} is not a device of a WORM: {why}", medium.name()))
        })?;
        if label.volume != volume || label.block as usize != block {
            let text = format!("{}: a device of another WORM", medium.name());
            return Err(Fault::Corrupt(text));
        }
        Ok(())
    }

    /// It is not being replaced just now.
    fn check_not_replacing(&self, leg: usize) -> Result<(), Fault> {
        match self.0.replacing.get() == Some(leg) {
            true => Err(Fault::Refused("it is being replaced".into())),
            false => Ok(()),
        }
    }

    /// How far a leg has the chain of this volume: superblocks are compared, the newest first. A
    /// leg on which dumps are missing that it had is behind; one that has others in their place is
    /// not touched.
    async fn progress(&self, medium: &dyn Medium) -> Result<Addr, Fault> {
        let (dumps, chain, volume) = {
            let state = self.0.state.borrow();
            (state.dumps.clone(), state.chain, state.layout.volume)
        };
        let committed = self.0.state.borrow().dumped;
        let mut after: Option<Dump> = None;
        for dump in dumps.iter().rev().filter(|d| d.number <= committed) {
            let wanted = after.map_or(chain, |d| d.chain);
            after = Some(*dump);
            let seg = read_block(medium, dump.sb, self.own_memory().await?).await?;
            match seg.with(|b| worm::superblock(b, volume, dump.sb)) {
                Ok((_, _, crc)) if crc == wanted => return Ok(dump.next),
                Ok((other, ..)) if other.number == dump.number && other.epoch >= dump.epoch => {
                    return Err(Fault::Corrupt(format!(
                        "{}: its dump {} is a different one: the copies differ, the mirror is \
                         split",
                        medium.name(),
                        dump.number
                    )));
                }
                _ => {}
            }
        }
        Ok(super::state::WORM_FIRST)
    }
}
