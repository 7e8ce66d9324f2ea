//! A new device in the place of one that the WORM has lost.
//!
//! ```text
//!   look: is it ours, blank, large enough? do other legs have the lost one's dumps?
//!     -> commit: this device has nothing -> zeroes over the fence and the first superblock
//!     -> label -> the copier joins it and copies every dump
//! ```
//! Invariants
//!  R1  The label is written last: a device that was prepared in part is no device of the WORM.
//!  R2  A commit records that the device has nothing before it is labelled.
//!  R3  Data that only the lost device had is not given up here.
//!  R4  No superblock of this WORM is left on a device that was one before: `recover` would believe
//!      that it has those dumps.

use super::open::{flush, write};
use super::state::WORM_FIRST;
use super::worm::Label;
use super::{Options, Volume};
use crate::fault::{Addr, Fault};
use crate::medium::Medium;

/// A device is blank when so much at its beginning is zero, bytes.
pub const BLANK: u64 = 1 << 20;
/// Bytes looked at together.
const PIECE: usize = 64 << 10;

impl Options {
    /// Nothing is at the beginning of a device.
    pub async fn is_blank(&self, medium: &dyn Medium) -> Result<bool, Fault> {
        let seg = self.memory(PIECE).await?;
        for at in (0..BLANK.min(medium.size())).step_by(PIECE) {
            let io_fault = |e| Fault::Io(e, format!("{}: byte {at}", medium.name()));
            medium.read(at, seg.clone().into()).await.map_err(io_fault)?;
            if !seg.with(|b| b.iter().all(|b| *b == 0)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Volume {
    /// This server has its seat on a device of the WORM, which is copied to.
    pub fn is_joined(&self, leg: usize) -> bool {
        self.0.fence_slots.borrow().get(leg).copied().flatten().is_some()
    }

    /// Makes a device of the WORM of the device in that place. Without `force` it has to be blank.
    pub async fn replace(&self, o: &Options, leg: usize, force: bool) -> Result<(), Fault> {
        if self.0.replacing.replace(Some(leg)).is_some() {
            return Err(Fault::Refused("a device of the WORM is being replaced already".into()));
        }
        let done = self.prepare(o, leg, force).await;
        self.0.replacing.set(None);
        if done.is_ok() {
            self.0.replaced.notify_all();
        }
        done
    }

    async fn prepare(&self, o: &Options, leg: usize, force: bool) -> Result<(), Fault> {
        let Some(medium) = self.0.members.get(leg).cloned() else { return Ok(()) };
        self.may_replace(o, leg, force).await?;
        let (volume, block) = {
            let state = self.0.state.borrow();
            (state.layout.volume, state.layout.block)
        };
        if let Some(l) = self.0.state.borrow_mut().members.get_mut(leg) {
            (l.done, l.blocks) = (WORM_FIRST, medium.size() / u64::from(block));
        }
        if let Some(part) = self.0.partial.borrow_mut().get_mut(leg) {
            *part = 0;
        }
        // R2
        self.sync().await?;
        let wide = u64::from(block);
        // Without its label it is none, with any former role (R1).
        let mut cleared: Vec<Addr> = (0..=WORM_FIRST).collect();
        if force {
            // R4
            cleared.extend(self.0.state.borrow().dumps.iter().map(|d| d.sb));
        }
        for addr in cleared {
            write(o, &*medium, addr * wide, &vec![0; block as usize]).await?;
        }
        flush(&*medium).await?;
        let label = Label { volume, block, created_ns: (self.0.clock)() };
        write(o, &*medium, 0, &label.encode()).await?;
        flush(&*medium).await?;
        if let Some(r) = self.0.reports.borrow_mut().get_mut(leg) {
            r.fault = None;
        }
        Ok(())
    }

    async fn may_replace(&self, o: &Options, leg: usize, force: bool) -> Result<(), Fault> {
        let Some(medium) = self.0.members.get(leg).cloned() else { return Ok(()) };
        let name = medium.name().to_owned();
        if let Some(why) = &self.0.state.borrow().refused {
            return Err(why.clone());
        }
        let ours = match self.check_label(&*medium).await {
            Ok(()) => true,
            Err(fault @ (Fault::Foreign(_) | Fault::Corrupt(_))) => {
                // Another disk took its place before the copier noticed.
                if let Some(place) = self.0.fence_slots.borrow_mut().get_mut(leg) {
                    *place = None;
                }
                if let Some(r) = self.0.reports.borrow_mut().get_mut(leg) {
                    r.failed(&fault);
                }
                false
            }
            Err(fault) => return Err(fault),
        };
        if self.is_joined(leg) {
            return Err(Fault::Refused(format!("{name} is in use as a device of this WORM")));
        }
        if !force && ours {
            let what = "already a device of this WORM; copying continues automatically when it \
                        works again";
            return Err(Fault::Refused(format!("{name}: {what}; --force initialises it again")));
        }
        if !force && !o.is_blank(&*medium).await? {
            let what = "not blank; --force destroys its contents";
            return Err(Fault::Refused(format!("{name}: {what}")));
        }
        let (needs, has) = (self.blocks_needed(), medium.size() / self.block() as u64);
        if has < needs {
            let block = self.block() as u64;
            return Err(Fault::Refused(format!(
                "{name}: {} bytes, and the WORM needs {}",
                has * block,
                needs * block
            )));
        }
        // R3
        let state = self.0.state.borrow();
        let done = |i: usize| state.members.get(i).map_or(0, |l| l.done);
        let others = (0..self.0.members.len()).filter(|i| *i != leg).map(done).max().unwrap_or(0);
        if done(leg) > others.max(WORM_FIRST) {
            return Err(Fault::Refused(format!(
                "{name}: blocks {} to {} of the WORM were copied to it alone; attach it again, or \
                 go on from the newest dump of another device by `fs halt` and `fs recover \
                 --force`",
                others.max(WORM_FIRST),
                done(leg) - 1
            )));
        }
        Ok(())
    }

    /// Blocks of a device that holds all present blocks and the next dump.
    fn blocks_needed(&self) -> Addr {
        let state = self.0.state.borrow();
        let next = state.space.next();
        next + next / state.sums_per_block() as u64 + 4
    }
}
