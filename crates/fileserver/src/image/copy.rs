//! The copier: blocks in state dump are written to the WORM.
//!
//! ```text
//!   look through the buckets -> blocks by address -> flush -> bits of a fake WORM -> flush
//!                             -> state read; when nothing else is left: the superblock, the same
//! ```
//! Only blocks that are durable on the cache device are copied, because an address is written once.
//! A block whose bit is set already was copied before the power cut, and must be the same.

use std::collections::BTreeSet;

use bio::Seg;

use super::Image;
use super::commit::{flush, write_at};
use super::format::{self, BLOCK, BUCKETS, BlockState, Bucket, Tag, once_bit};
use super::state::WORM;
use crate::fault::{Addr, Fault, Stop};

/// Blocks copied between two flushes.
const AT_ONCE: usize = 64;
/// Addresses found in one look through the buckets.
const QUEUE: usize = 1 << 16;
/// Bucket blocks examined in one step, which begins again for each that is not in memory.
const LOOK: u64 = 4;
/// Waits after an error, ns: at first and at most.
const RETRY_NS: (u64, u64) = (1_000_000_000, 60_000_000_000);

/// The right to copy; held by one task at a time.
pub(super) struct CopyGuard<'a>(&'a Image);

impl Drop for CopyGuard<'_> {
    fn drop(&mut self) {
        self.0.0.copying.set(false);
        self.0.0.gates_changed.notify_all();
    }
}

impl Image {
    /// Waits for the right to copy.
    pub(super) async fn lock_copying(&self) -> CopyGuard<'_> {
        while self.0.copying.get() {
            let seen = self.0.gates_changed.count();
            self.0.gates_changed.after(seen).await;
        }
        self.0.copying.set(true);
        CopyGuard(self)
    }

    /// Copies until it is closed.
    pub(super) async fn keep_copying(self) {
        let mut wait = RETRY_NS.0;
        while !self.0.closed.get() {
            let seen = self.0.gates_changed.count();
            let rests = self.0.idle.get() || !self.0.copies.get();
            let copied = if rests { Ok(0) } else { self.copy_some().await };
            let (fault, n) = match copied {
                Ok(n) => (None, n),
                Err(fault) => (Some(fault.to_string()), 0),
            };
            let failed = fault.is_some();
            self.0.report.borrow_mut().faults += u64::from(failed);
            if failed || n > 0 {
                self.0.report.borrow_mut().fault = fault;
            }
            if failed {
                if self.0.state.borrow().refused.is_some() {
                    return;
                }
                self.0.reactor.sleep(wait).await;
                wait = (wait * 2).min(RETRY_NS.1);
            } else if n == 0 {
                wait = RETRY_NS.0;
                if let Err(fault) = self.settle().await {
                    self.0.report.borrow_mut().fault = Some(fault.to_string());
                }
                if rests && !self.0.closed.get() {
                    self.0.gates_changed.after(seen).await;
                }
            }
        }
    }

    /// Addresses in state dump, the lowest first, at most [`QUEUE`].
    async fn scan(&self) -> Result<BTreeSet<Addr>, Fault> {
        let mut out = BTreeSet::new();
        let msize = self.0.state.borrow().header.msize;
        for row in (0..msize).step_by((LOOK * BUCKETS) as usize) {
            let end = (row + LOOK * BUCKETS).min(msize);
            let mut look = |s: &mut super::Step<'_>| {
                let mut some = Vec::new();
                for row in (row..end).step_by(BUCKETS as usize) {
                    let at = s.header().bucket_at(row);
                    let block = s.read_block(at)?;
                    let block = s.checked(block, at, Tag::Buckets, at)?;
                    block.with(|b| {
                        for row in row..(row + BUCKETS).min(end) {
                            let dump = |e: &format::Entry| e.state == BlockState::Dump;
                            let bucket = Bucket::of(b, row);
                            let all = bucket.entries().map(|(_, e)| e).filter(dump);
                            some.extend(all.map(|e| e.addr));
                        }
                    });
                }
                Ok::<_, Stop>(some)
            };
            let some = self.step(&mut look).await?;
            let stuck = |a: &Addr| self.0.state.borrow().stuck.contains(a);
            some.into_iter().filter(|a| !stuck(a)).for_each(|a| keep_lowest(&mut out, a));
            self.0.reactor.yield_now().await;
        }
        // A superblock proves that all else is there, and the one before it (I3).
        let state = self.0.state.borrow();
        let first = state.supers.iter().copied().find(|a| out.contains(a));
        for addr in &state.supers {
            out.remove(addr);
        }
        if out.is_empty() {
            out.extend(first);
        }
        Ok(out)
    }

    /// Makes the states durable on the cache device: blocks that the WORM has keep their addresses.
    async fn settled_states(&self) -> Result<(), Fault> {
        if self.0.state.borrow().frames.dirty() > 0 || self.0.committing.get() {
            self.commit_now().await?;
        }
        Ok(())
    }

    /// Copies some blocks; how many.
    async fn copy_some(&self) -> Result<usize, Fault> {
        let _turn = self.lock_copying().await;
        self.copy_locked().await
    }

    async fn copy_locked(&self) -> Result<usize, Fault> {
        if self.0.queue.borrow().is_empty() {
            let found = self.scan().await?;
            if found.is_empty() {
                self.0.idle.set(true);
                self.0.gates_changed.notify_all();
                return Ok(0);
            }
            self.settled_states().await?;
            *self.0.queue.borrow_mut() = found;
        }
        let some: Vec<Addr> = {
            let mut queue = self.0.queue.borrow_mut();
            std::iter::from_fn(|| queue.pop_first()).take(AT_ONCE).collect()
        };
        let begun = self.0.reactor.now();
        self.copy(&some).await?;
        let mut report = self.0.report.borrow_mut();
        report.copied += some.len() as u64;
        report.busy_ns += self.0.reactor.now().saturating_sub(begun);
        Ok(some.len())
    }

    /// Waits until a block of a dump, which an operation wants to change, is on the WORM. A
    /// superblock is copied after all other blocks.
    pub(super) async fn copied_block(&self, addr: Addr) -> Result<(), Fault> {
        loop {
            let turn = self.lock_copying().await;
            let state = self.step(&mut |s| s.state(addr)).await?;
            match state {
                BlockState::Dump if self.0.state.borrow().stuck.contains(&addr) => {
                    let why = format!("block {addr} of a dump cannot be copied to the WORM");
                    return Err(Fault::Corrupt(why));
                }
                BlockState::Dump => {}
                BlockState::Dirty if self.0.state.borrow().since.is_some() => {
                    // It is about to be a dump's.
                    let seen = self.0.gates_changed.count();
                    drop(turn);
                    self.0.gates_changed.after(seen).await;
                    continue;
                }
                BlockState::Dump1 => {
                    let why = format!("block {addr} was left by a failed dump");
                    return Err(Fault::Corrupt(why));
                }
                _ => return Ok(()),
            }
            if self.0.state.borrow().supers.contains(&addr) {
                // It is last by its address.
                self.copy_locked().await?;
            } else {
                self.settled_states().await?;
                self.copy(&[addr]).await?;
            }
        }
    }

    /// Whether dumps are copied to the WORM.
    pub fn is_copying(&self) -> bool {
        self.0.copies.get()
    }

    /// Enables or disables copying; a copy that is under way continues.
    pub fn set_copying(&self, on: bool) {
        self.0.copies.set(on);
        self.0.gates_changed.notify_all();
    }

    /// Completes the work that waited for a superblock to be copied, or for a frozen tree.
    pub(super) async fn settle(&self) -> Result<(), Fault> {
        while !self.step(&mut |s| s.settle()).await? {
            self.0.reactor.yield_now().await;
        }
        Ok(())
    }

    /// Until nothing is left to copy.
    pub async fn copied(&self) -> Result<(), Fault> {
        while !self.0.idle.get() {
            if self.copy_some().await? == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn copy(&self, some: &[Addr]) -> Result<(), Fault> {
        let Some(worm) = &self.0.worm else { return Ok(()) };
        let mut new: Vec<Addr> = Vec::new();
        for addr in some {
            let Some((seg, written)) = self.step(&mut |s| cached(s, *addr)).await? else {
                continue;
            };
            if written {
                let stored = self.own_memory().await?;
                self.read_device(WORM | addr, &stored).await?;
                if seg.with(|a| stored.with(|b| a != b)) {
                    let mut state = self.0.state.borrow_mut();
                    state.stuck.push(*addr);
                    let why = format!("block {addr} of the WORM already has other contents");
                    return Err(Fault::Corrupt(why));
                }
                continue;
            }
            write_at(&**worm, *addr, seg.clone().into()).await?;
            self.0.state.borrow_mut().frames.drop_block(WORM | addr);
            new.push(*addr);
            self.0.reactor.yield_now().await;
        }
        flush(&**worm).await?;
        if self.0.state.borrow().shape.once {
            self.set_bits(&new).await?;
        }
        self.step(&mut |s| {
            for addr in some {
                if let Some((c, e)) = s.entry(*addr)?
                    && e.state == BlockState::Dump
                {
                    let to = if s.s.shape.fastworm { BlockState::None } else { BlockState::Read };
                    s.set_state(*addr, c, to)?;
                }
            }
            let most = some.iter().copied().max().unwrap_or(0);
            if most > s.header().wmax {
                s.set_header(|h| h.wmax = most)?;
            }
            Ok(())
        })
        .await?;
        self.0.state.borrow_mut().supers.retain(|a| !some.contains(a));
        Ok(())
    }

    /// They were written.
    async fn set_bits(&self, new: &[Addr]) -> Result<(), Fault> {
        let Some(worm) = &self.0.worm else { return Ok(()) };
        let raw = self.0.state.borrow().shape.raw;
        let mut at: Vec<Addr> = new.iter().map(|a| once_bit(raw, *a).0).collect();
        at.sort_unstable();
        at.dedup();
        for at in at {
            let old = self.step(&mut |s| s.read_block(WORM | at)).await?;
            let seg = self.own_memory().await?;
            old.with(|b| seg.copy_from(0, b));
            seg.with_mut(|b| {
                for (_, byte, mask) in new.iter().map(|a| once_bit(raw, *a)).filter(|p| p.0 == at) {
                    b[byte] |= mask;
                }
            });
            write_at(&**worm, at, seg.clone().into()).await?;
            // The next read sees the new block.
            self.0.state.borrow_mut().frames.drop_block(WORM | at);
        }
        flush(&**worm).await
    }
}

/// Adds an address to the lowest [`QUEUE`] ones. In a tree, that is the same work for each address:
/// sorting all at the end would take the core for milliseconds.
fn keep_lowest(addrs: &mut BTreeSet<Addr>, addr: Addr) {
    if addrs.len() >= QUEUE && addrs.last().is_some_and(|last| *last < addr) {
        return;
    }
    if addrs.insert(addr) && addrs.len() > QUEUE {
        addrs.pop_last();
    }
}

/// The cached copy of a block, and whether it is on the WORM; none: it is not in state dump any
/// more.
fn cached(s: &mut super::Step<'_>, addr: Addr) -> Result<Option<(Seg, bool)>, Stop> {
    let Some((c, _)) = s.entry(addr)?.filter(|(_, e)| e.state == BlockState::Dump) else {
        return Ok(None);
    };
    let seg = s.read_block(s.cached(addr, c))?;
    let written = s.s.shape.once && s.was_written(addr)?;
    debug_assert!(seg.len() == BLOCK);
    Ok(Some((seg, written)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_addresses_are_kept_for_a_scan() {
        let all = 2 * QUEUE as Addr + 7;
        let mut addrs = BTreeSet::new();
        for n in 0..all {
            keep_lowest(&mut addrs, n * 7919 % all);
            assert!(addrs.len() <= QUEUE);
        }
        assert!(addrs.iter().copied().eq(0..QUEUE as Addr));
        keep_lowest(&mut addrs, 0);
        assert_eq!(addrs.len(), QUEUE);
    }
}
