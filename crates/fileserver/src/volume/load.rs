//! Blocks on their way into memory.

use bio::Seg;
use reactor::Reactor;
use wire::iscsi::crc32c;

use super::point::Dump;
use super::table::Slot;
use super::{LENT_WAITS, Volume, worm};
use crate::ahead::{Ahead, Loader};
use crate::fault::{Addr, Fault};

/// Times that a block is looked for again because it moved while it was read.
const TRIES: usize = 4;
/// How often memory is waited for, and how long each time, ns.
const WAITS: usize = 1000;
/// See [`WAITS`].
const WAIT_NS: u64 = 1_000_000;
/// No memory became free in time.
const IN_USE: Fault = Fault::NoSpace("the block cache is full of blocks in use");
/// Slots that are left to what will be written; blocks of the WORM are kept in others.
const FILL_LEAVES: usize = 8;

/// How a block of the WORM proves itself.
#[derive(Clone, Copy)]
pub(super) enum BlockCheck {
    Sum(u32),
    Superblock,
    Sums,
}

impl BlockCheck {
    /// The fault of a block.
    pub fn fault(self, volume: u64, addr: Addr, b: &[u8]) -> Option<&'static str> {
        match self {
            BlockCheck::Sum(crc) => (worm::sum_of(b) != crc).then_some("its checksum is wrong"),
            BlockCheck::Superblock => worm::check_superblock(b, volume, addr).err(),
            BlockCheck::Sums => worm::sum(b, volume, addr, 0).err(),
        }
    }
}

impl Loader for Volume {
    fn ahead(&self) -> &Ahead {
        &self.0.ahead
    }

    fn reactor(&self) -> &Reactor {
        &self.0.reactor
    }

    fn is_closed(&self) -> bool {
        self.0.closed.get()
    }

    fn has(&self, addr: Addr) -> bool {
        self.0.state.borrow().frames.has(addr) || self.0.loads.has(addr)
    }

    async fn load(&self, addr: Addr) -> Result<(), Fault> {
        self.load(addr).await
    }
}

impl Volume {
    /// Loads a block, or waits for a load that is under way.
    pub(super) async fn load(&self, addr: Addr) -> Result<(), Fault> {
        self.load_after(addr, &mut 0).await
    }

    /// The same for an operation that has waited so many times for memory that unsent replies hold.
    /// The waits of all its loads together are bounded.
    pub(super) async fn load_after(&self, addr: Addr, waits: &mut usize) -> Result<(), Fault> {
        let Some(loading) = self.0.loads.begin(addr, waits).await else {
            let state = self.0.state.borrow();
            let fails = *waits >= LENT_WAITS && !state.frames.has(addr) && state.frames.is_lent();
            return if fails { Err(IN_USE) } else { Ok(()) };
        };
        let done = self.load_block(addr).await;
        *waits = loading.waits();
        done
    }

    async fn load_block(&self, addr: Addr) -> Result<(), Fault> {
        for _ in 0..TRIES {
            if self.0.state.borrow().frames.has(addr) {
                return Ok(());
            }
            let found = self.0.state.borrow_mut().table.find(addr);
            match found {
                Some((slot, crc)) => {
                    if self.load_slot(addr, slot, crc).await? {
                        return Ok(());
                    }
                }
                None => return self.load_worm(addr).await,
            }
        }
        Err(Fault::Corrupt(format!("block {addr} is not what was written to the cache device")))
    }

    /// Memory for a block that is loaded.
    pub(super) async fn memory(&self, addr: Addr) -> Result<Seg, Fault> {
        let (mut waits, mut lent_waits) = (0, self.0.loads.waits(addr));
        while waits < WAITS {
            if let Some(seg) = self.0.state.borrow().frames.memory() {
                return Ok(seg);
            }
            let is_evicted = self.evict_for(1);
            // Evicted memory may still have another holder.
            let is_free = is_evicted && self.0.state.borrow().frames.memory().is_some();
            // Memory of unsent replies is freed when they are sent: the operation waits for it.
            if is_free {
                continue;
            }
            let is_lent = self.is_lent(&mut lent_waits).await;
            self.0.loads.set_waits(addr, lent_waits);
            if is_lent {
                continue;
            }
            waits += 1;
            if !is_evicted {
                self.sync().await?;
            }
            if self.0.state.borrow().frames.memory().is_none() {
                self.0.reactor.sleep(WAIT_NS).await;
            }
        }
        Err(IN_USE)
    }

    /// False: it moved meanwhile, or is to be had from the WORM.
    async fn load_slot(&self, addr: Addr, slot: u32, crc: u32) -> Result<bool, Fault> {
        let seg = self.memory(addr).await?;
        let at = self.0.state.borrow().layout.slot_at(slot);
        let read = self.0.cache.read(at, seg.clone().into()).await;
        let mut state = self.0.state.borrow_mut();
        if state.table.find(addr) != Some((slot, crc)) {
            return Ok(false);
        }
        match read {
            Ok(()) if seg.with(crc32c) == crc => {
                if !state.frames.has(addr) {
                    state.frames.enter(addr, seg);
                }
                Ok(true)
            }
            _ if addr < state.copied() => {
                // A leg has it too: the slot was only a copy.
                state.table.forget(addr);
                state.emptied.push(slot);
                state.bad_slots += 1;
                Ok(false)
            }
            Ok(()) => Ok(false),
            Err(e) => Err(Fault::Io(e, format!("{}: block {addr}", self.0.cache.name()))),
        }
    }

    fn dump_of(&self, addr: Addr) -> Option<Dump> {
        let state = self.0.state.borrow();
        let i = state.dumps.partition_point(|d| d.next <= addr);
        state.dumps.get(i).copied().filter(|d| d.sb <= addr)
    }

    pub(super) async fn block_check(&self, addr: Addr) -> Result<BlockCheck, Fault> {
        let Some(dump) = self.dump_of(addr) else {
            return Err(Fault::Corrupt(format!(
                "block {addr} is in no dump and not on the cache device"
            )));
        };
        if addr == dump.sb {
            return Ok(BlockCheck::Superblock);
        }
        if addr >= dump.end {
            return Ok(BlockCheck::Sums);
        }
        let per = self.0.state.borrow().sums_per_block() as u64;
        let (at, i) = (dump.end + (addr - dump.sb) / per, ((addr - dump.sb) % per) as usize);
        loop {
            let seg = self.0.state.borrow_mut().frames.find(at);
            let Some(seg) = seg else {
                // A part of the load of the block that is checked.
                let mut waits = self.0.loads.waits(addr);
                let loaded = Box::pin(self.load_after(at, &mut waits)).await;
                self.0.loads.set_waits(addr, waits);
                loaded?;
                continue;
            };
            let volume = self.0.state.borrow().layout.volume;
            return match seg.with(|b| worm::sum(b, volume, at, i)) {
                Ok(Some(crc)) => Ok(BlockCheck::Sum(crc)),
                Ok(None) => Err(Fault::Corrupt(format!(
                    "block {addr} is referenced but is not part of dump {}",
                    dump.number
                ))),
                Err(why) => Err(Fault::Corrupt(format!("checksums in block {at}: {why}"))),
            };
        }
    }

    async fn load_worm(&self, addr: Addr) -> Result<(), Fault> {
        let proof = self.block_check(addr).await?;
        let volume = self.0.state.borrow().layout.volume;
        let (seg, bad) = self.read_members(addr, |b| proof.fault(volume, addr, b)).await?;
        if !bad.is_empty() {
            let (me, seg) = (self.clone(), seg.clone());
            let mended = async move { me.repair_members(addr, &seg, &bad).await };
            self.0.reactor.spawn("fs-mend", mended);
        }
        let mut state = self.0.state.borrow_mut();
        if !state.frames.has(addr) {
            state.frames.enter(addr, seg.clone());
        }
        drop(state);
        self.keep_cached(addr, seg);
        Ok(())
    }

    /// Legs that hold something else get what another has.
    async fn repair_members(&self, addr: Addr, seg: &Seg, bad: &[usize]) {
        let wide = self.block() as u64;
        // A leg without a seat of ours may be a foreign device in the place of a lost one.
        let joined = bad.iter().filter(|leg| self.is_joined(**leg));
        for leg in joined.filter_map(|i| self.0.members.get(*i)) {
            if leg.write(addr * wide, seg.clone().into()).await.is_ok() {
                self.0.state.borrow_mut().repaired += 1;
            }
        }
    }

    /// Keeps a block of the WORM on the cache device, when there is space and it is wanted.
    fn keep_cached(&self, addr: Addr, seg: Seg) {
        let slot = {
            let mut state = self.0.state.borrow_mut();
            let has_free_slots = state.slots_left() > state.table.len() / FILL_LEAVES;
            if state.fastworm || !has_free_slots || state.table.crc(addr).is_some() {
                return;
            }
            let Some((slot, _)) = state.table.take(1) else { return };
            slot
        };
        let volume = self.clone();
        self.0.reactor.spawn("fs-fill", async move {
            let at = volume.0.state.borrow().layout.slot_at(slot);
            let crc = seg.with(crc32c);
            let done = volume.0.cache.write(at, seg.clone().into()).await;
            let mut state = volume.0.state.borrow_mut();
            if done.is_ok() && state.table.crc(addr).is_none() && addr < state.copied() {
                let held = Slot { addr, crc };
                state.table.set(slot, held);
                state.fills.push((slot, held));
            } else {
                state.table.release(slot);
            }
        });
    }
}
