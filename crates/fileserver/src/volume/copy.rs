//! The copier: a task for each leg of the WORM.
//!
//! ```text
//!   join -> wait for a dump that the leg lacks -> grant -> blocks by address -> flush
//!             ^                                     -> superblock -> flush -> done moves up --+
//!             +------------------------------------------------------------------------------+
//!   an error of the leg: it is behind; wait, longer each time, and join again
//! ```
//! Legs do not wait for each other, and only the space on the cache device depends on them. A block
//! that the cache device no longer has is read from another leg.

use bio::{Seg, Segs};
use schemars::JsonSchema;
use serde::Serialize;

use super::point::Dump;
use super::{Volume, worm};
use crate::fault::{Addr, Fault};

/// Bytes of one write. A device in memory takes the core for all of one.
const WRITE_BYTES: usize = 256 << 10;
/// Addresses of a dump examined between two chances for others: many may have no block.
const LOOKS: u32 = 64;
/// A leg is flushed after so much of it ...
const FLUSH_PART: u64 = 64;
/// ... but at least and at most so many bytes.
const FLUSH_BYTES: (u64, u64) = (1 << 20, 64 << 20);
/// Waits after errors, ns: at first and at most.
const RETRY_NS: (u64, u64) = (1_000_000_000, 60_000_000_000);

/// The remedy for a device of the WORM that is not copied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// It does not answer: when it does, copying continues.
    #[default]
    Repair,
    /// It is no device of a WORM: it can be made one.
    Replace,
    /// It holds something else: it can be made one if those contents may be lost.
    ReplaceByForce,
}

/// How a leg is doing.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "WormDevice")]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Everything below is on it for good.
    pub done: Addr,
    /// Blocks still to be copied; those of a dump that is there in part are not counted.
    pub behind: u64,
    /// How long ago the oldest dump that it lacks was taken, ns.
    pub lag_ns: u64,
    /// How long a read of a block takes there, ns; 0: none was needed yet.
    pub read_ns: u64,
    /// Blocks copied.
    pub copied: u64,
    /// Time that copying took, ns.
    pub busy_ns: u64,
    /// Why it is not being copied to.
    pub fault: Option<String>,
    /// The remedy for that.
    pub remedy: Remedy,
    /// How often a copy was broken off.
    pub faults: u64,
}

impl Report {
    /// The device holds nothing that can be read as a part of this WORM.
    pub(crate) fn is_of_other_contents(&self) -> bool {
        self.fault.is_some() && self.remedy != Remedy::Repair
    }

    /// It cannot be copied to.
    pub(super) fn failed(&mut self, fault: &Fault) {
        self.fault = Some(fault.to_string());
        self.remedy = match fault {
            Fault::Foreign(_) => Remedy::Replace,
            Fault::Corrupt(_) => Remedy::ReplaceByForce,
            _ => Remedy::Repair,
        };
    }
}

impl Volume {
    /// Copies dumps to a leg until the volume is closed.
    pub(super) async fn keep_copying(self, leg: usize) {
        let mut wait = RETRY_NS.0;
        while !self.0.closed.get() {
            let replaced = self.0.replaced.count();
            let copied = self.copy_next(leg).await;
            if let Some(r) = self.0.reports.borrow_mut().get_mut(leg) {
                r.faults += u64::from(copied.is_err());
                r.fault = None;
                if let Err(fault) = &copied {
                    r.failed(fault);
                }
            }
            match copied {
                Ok(()) => wait = RETRY_NS.0,
                Err(Fault::Fenced(_) | Fault::Closed) => return,
                Err(_) => {
                    // The state of the leg is read again before anything is written to it.
                    if let Some(place) = self.0.fence_slots.borrow_mut().get_mut(leg) {
                        *place = None;
                    }
                    self.0.replaced.after_or(&self.0.reactor, replaced, Some(wait)).await;
                    wait = match self.0.replaced.count() > replaced {
                        true => RETRY_NS.0,
                        false => (wait * 2).min(RETRY_NS.1),
                    };
                }
            }
        }
    }

    /// Whether dumps are copied to the legs.
    pub fn is_copying(&self) -> bool {
        self.0.copying.get()
    }

    /// Enables or disables copying; a dump that is copied in part continues there.
    pub fn set_copying(&self, on: bool) {
        self.0.copying.set(on);
        self.0.dumped.notify_all();
    }

    /// While nothing is to be copied.
    async fn wait_for_work(&self) {
        loop {
            let seen = self.0.dumped.count();
            if self.0.copying.get() || self.0.closed.get() {
                return;
            }
            self.0.dumped.after(seen).await;
        }
    }

    async fn copy_next(&self, leg: usize) -> Result<(), Fault> {
        let seated = self.0.fence_slots.borrow().get(leg).copied().flatten().is_some();
        if !seated {
            self.join(leg).await?;
        }
        let dump = loop {
            let seen = self.0.dumped.count();
            if self.0.closed.get() {
                return Ok(());
            }
            if let Some(dump) = self.next_for(leg).filter(|_| self.0.copying.get()) {
                break dump;
            }
            self.0.dumped.after(seen).await;
        };
        let before = self.0.reactor.now();
        // While nothing was to be copied another disk may have taken its place.
        if let Some(medium) = self.0.members.get(leg) {
            self.check_label(&**medium).await?;
        }
        let latest = self.latest_on(leg);
        self.extend(leg, dump.next, latest).await?;
        self.copy_blocks(leg, &dump).await?;
        let sb = self.fetch(dump.sb).await?;
        self.write_member(leg, dump.sb, sb.into()).await?;
        self.flush_member(leg).await?;
        self.write_own_entry(leg, dump.next, dump.sb, false).await?;
        if let Some(l) = self.0.state.borrow_mut().members.get_mut(leg) {
            l.done = dump.next;
        }
        if let Some(r) = self.0.reports.borrow_mut().get_mut(leg) {
            r.busy_ns += self.0.reactor.now() - before;
        }
        self.0.dumped.notify_all();
        Ok(())
    }

    fn next_for(&self, leg: usize) -> Option<Dump> {
        let state = self.0.state.borrow();
        let done = state.members.get(leg)?.done;
        let i = state.dumps.partition_point(|d| d.next <= done);
        state.dumps.get(i).copied().filter(|d| d.number <= state.dumped)
    }

    /// Superblock of the newest dump that a leg has; 0 for none.
    pub(super) fn latest_on(&self, leg: usize) -> Addr {
        let state = self.0.state.borrow();
        let done = state.members.get(leg).map_or(0, |l| l.done);
        let i = state.dumps.partition_point(|d| d.next <= done);
        i.checked_sub(1).and_then(|i| state.dumps.get(i)).map_or(0, |d| d.sb)
    }

    /// Copies the blocks and checksums of a dump, durably. Blocks that were durable before the leg
    /// failed are not copied again.
    async fn copy_blocks(&self, leg: usize, dump: &Dump) -> Result<(), Fault> {
        // Blocks on their way to a leg are held in the block cache, however long the leg takes.
        let share = self.0.state.borrow().frames.limit() / (8 * self.0.members.len());
        let most = (WRITE_BYTES / self.block()).min(share).max(1);
        let (mut run, mut first, mut n, mut len) = (Segs::default(), 0, 0, 0);
        let size = self.0.members.get(leg).map_or(0, |m| m.size());
        let between = (size / FLUSH_PART).clamp(FLUSH_BYTES.0, FLUSH_BYTES.1);
        let between = (between / self.block() as u64).max(1);
        let had = self.0.partial.borrow().get(leg).copied().unwrap_or(0);
        let from = if (dump.sb + 1..=dump.next).contains(&had) { had } else { dump.sb + 1 };
        let mut looks = 0;
        for addr in from..dump.next {
            looks += 1;
            if looks == LOOKS {
                looks = 0;
                self.0.reactor.yield_now().await;
            }
            let included = addr >= dump.end || self.dump_contains(dump, addr).await?;
            if len > 0 && (!included || len == most) {
                self.write_member(leg, first, std::mem::take(&mut run)).await?;
                len = 0;
                // A device in memory writes at once, and blocks in the block cache need no wait
                // either: this lets other tasks run.
                self.0.reactor.yield_now().await;
                self.wait_for_work().await;
                if n >= between {
                    self.make_durable(leg, addr, std::mem::take(&mut n)).await?;
                }
            }
            if !included {
                continue;
            }
            if len == 0 {
                first = addr;
            }
            run.push(self.fetch(addr).await?);
            (len, n) = (len + 1, n + 1);
        }
        if len > 0 {
            self.write_member(leg, first, run).await?;
        }
        self.make_durable(leg, dump.next, n).await
    }

    /// Makes the copied blocks below `addr` durable: `n` more blocks.
    async fn make_durable(&self, leg: usize, addr: Addr, n: u64) -> Result<(), Fault> {
        self.flush_member(leg).await?;
        if let Some(p) = self.0.partial.borrow_mut().get_mut(leg) {
            *p = addr;
        }
        if let Some(r) = self.0.reports.borrow_mut().get_mut(leg) {
            r.copied += n;
        }
        Ok(())
    }

    /// A dump's range has holes where something was made and deleted before it was taken.
    async fn dump_contains(&self, dump: &Dump, addr: Addr) -> Result<bool, Fault> {
        if self.0.state.borrow().table.slot(addr).is_some() {
            return Ok(true);
        }
        let per = self.0.state.borrow().sums_per_block() as u64;
        let (at, i) = (dump.end + (addr - dump.sb) / per, ((addr - dump.sb) % per) as usize);
        let sums = self.fetch(at).await?;
        let volume = self.0.state.borrow().layout.volume;
        let sum = sums.with(|b| worm::sum(b, volume, at, i));
        sum.map(|s| s.is_some())
            .map_err(|why| Fault::Corrupt(format!("checksums in block {at}: {why}")))
    }

    async fn fetch(&self, addr: Addr) -> Result<Seg, Fault> {
        loop {
            let found = self.0.state.borrow_mut().frames.find(addr);
            match found {
                Some(seg) => return Ok(seg),
                None => self.load(addr).await?,
            }
        }
    }

    async fn write_member(&self, leg: usize, addr: Addr, segs: Segs) -> Result<(), Fault> {
        let Some(medium) = self.0.members.get(leg) else { return Ok(()) };
        if let Some(why) = &self.0.state.borrow().refused {
            return Err(why.clone());
        }
        let io_fault = |e| Fault::Io(e, format!("{}: block {addr}", medium.name()));
        medium.write(addr * self.block() as u64, segs).await.map_err(io_fault)
    }

    async fn flush_member(&self, leg: usize) -> Result<(), Fault> {
        let Some(medium) = self.0.members.get(leg) else { return Ok(()) };
        medium.flush().await.map_err(|e| Fault::Io(e, format!("{}: flush", medium.name())))
    }
}
