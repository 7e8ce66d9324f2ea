//! The fence: of two servers that reach one WORM, one writes.
//!
//! Every server has a seat on each device of the WORM: a block that it alone writes. A seat records
//! in which epoch its server owned the WORM and which addresses it may have written (its grant).
//! There is no lock and no command of a bus in it: blocks that are written and read are enough.
//!
//! ```text
//!   owner:      write seat (grant moved up) -> flush -> read all seats -> none higher? use it
//!   successor:  write seat (epoch higher)   -> flush -> read all seats -> begin above every grant
//! ```
//! The server that reads last sees the other, because both write before they read.
//!
//! Invariants
//!  N1  An address of a leg is written by the owner of an epoch only after two events. Its grant
//!      covers it there, and a look at all seats found no higher epoch.
//!  N2  A successor begins above every grant that it found after its own seat was durable. Later
//!      writes of an earlier owner are never part of the successor's data.
//!  N3  Changes are taken for [`LEASE_NS`] after a look at the fence; a successor waits longer than
//!      that before it takes any.

use std::cell::Cell;
use std::rc::Rc;

use bio::Seg;

use super::seal::{Decoder, Encoder};
use super::worm::{self, Kind};
use super::{Inner, Volume};
use crate::fault::{Addr, Fault};
use crate::medium::Medium;

/// Servers that may have a seat.
pub const FENCE_ENTRIES: u64 = 64;
/// First seat's address.
const FIRST: Addr = 2;
/// How long a look at the fence holds, ns.
pub const LEASE_NS: u64 = 2_000_000_000;
/// How long a successor waits, ns.
pub const WAIT_NS: u64 = LEASE_NS * 3 / 2;
/// How long a leg may take to show its seats when another one has, ns ...
const LOOK_NS: u64 = 500_000_000;
/// ... and so many times as long when none has, because there is no other leg to rely on.
const LATE_FACTOR: u64 = 3;
/// Looks in a row that none may answer.
const LOOKS: u32 = 7;
// An answer at the last moment still leaves a part of the lease.
const _: () = assert!(LOOK_NS * LATE_FACTOR < LEASE_NS);
/// Bytes of a name in a seat.
const NAME_MAX: usize = 200;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FenceReply {
    #[default]
    Waiting,
    Good,
    /// It answered with an error.
    Bad,
    /// It has not answered; a later answer is ignored.
    Late,
}

/// The identity of a server: chosen at random, once.
pub type Owner = [u8; 16];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FenceEntry {
    /// Its owner.
    pub owner: Owner,
    /// What people call it.
    pub name: String,
    /// In which epoch it owned the WORM.
    pub epoch: u32,
    /// It left in order, and writes no more.
    pub left: bool,
    /// Addresses below may have been written by it.
    pub grant: Addr,
    /// Where its first dump's superblock is, or will be.
    pub start: Addr,
    /// Superblock of the newest dump that this device has whole; 0 for none.
    pub latest: Addr,
}

impl FenceEntry {
    fn encode(&self) -> Vec<u8> {
        let mut body = Encoder::default();
        body.0.extend_from_slice(&self.owner);
        body.u32(self.epoch).u32(u32::from(self.left));
        body.u64(self.grant).u64(self.start).u64(self.latest);
        let mut end = self.name.len().min(NAME_MAX);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        body.0.extend_from_slice(&self.name.as_bytes()[..end]);
        body.0
    }

    fn decode(body: &[u8]) -> FenceEntry {
        let mut t = Decoder(body);
        let mut owner = Owner::default();
        for (to, b) in owner.iter_mut().zip(t.bytes(16)) {
            *to = *b;
        }
        let (epoch, left) = (t.u32(), t.u32() & 1 == 1);
        let (grant, start, latest) = (t.u64(), t.u64(), t.u64());
        let name = String::from_utf8_lossy(t.0).into_owned();
        FenceEntry { owner, name, epoch, left, grant, start, latest }
    }
}

/// All seats of a device: those taken, and the first free one. A seat fits a sector, so a loss of
/// power leaves the old one or the new one.
pub async fn read_entries(
    leg: &dyn Medium,
    volume: u64,
    block: usize,
    memory: impl AsyncFn() -> Result<Seg, Fault>,
) -> Result<(Vec<(u64, FenceEntry)>, Option<u64>), Fault> {
    let (mut taken, mut free) = (Vec::new(), None);
    for i in 0..FENCE_ENTRIES {
        let seg = memory().await?;
        let at = FIRST + i;
        let read = leg.read(at * block as u64, seg.clone().into()).await;
        read.map_err(|e| Fault::Io(e, format!("{}: seat {i} of the fence", leg.name())))?;
        let seat =
            seg.with(|b| worm::open(b, Kind::FenceEntry, volume, at).map(FenceEntry::decode));
        match (seat, free) {
            (Ok(seat), None) => taken.push((i, seat)),
            // They are taken in order: a hole is a seat that was damaged, and may be the highest.
            (Ok(_), Some(bad)) => {
                let text = format!("{}: seat {bad} of the fence cannot be read", leg.name());
                return Err(Fault::Corrupt(text));
            }
            (Err(_), None) => free = Some(i),
            (Err(_), Some(_)) => return Ok((taken, free)),
        }
    }
    Ok((taken, free))
}

/// Writes a seat, durably.
pub async fn write_entry(
    leg: &dyn Medium,
    volume: u64,
    place: u64,
    seat: &FenceEntry,
    seg: Seg,
    block: usize,
) -> Result<(), Fault> {
    let at = FIRST + place;
    seg.with_mut(|b| worm::seal(b, Kind::FenceEntry, volume, at, &seat.encode()));
    let io_fault = |e| Fault::Io(e, format!("{}: seat {place} of the fence", leg.name()));
    leg.write(at * block as u64, seg.into()).await.map_err(io_fault)?;
    leg.flush().await.map_err(io_fault)
}

/// The result of a look at a leg's seats for the owner of `epoch`.
pub fn check_entries(seats: &[(u64, FenceEntry)], owner: &Owner, epoch: u32) -> Result<(), Fault> {
    let other = |s: &FenceEntry| s.owner != *owner && s.epoch >= epoch;
    match seats.iter().map(|(_, s)| s).filter(|s| other(s)).max_by_key(|s| s.epoch) {
        Some(s) => Err(Fault::Fenced(format!("{} in epoch {}", s.name, s.epoch))),
        None => Ok(()),
    }
}

fn no_reply() -> Fault {
    let why = "no device of the WORM answers, so another server may have taken it";
    Fault::Io(bio::Errno::NxIo, why.into())
}

impl Volume {
    /// Looks at the fence until a look holds (N3): one may have taken as long as it would.
    pub(super) async fn renew(&self) -> Result<(), Fault> {
        for n in 0.. {
            {
                let state = self.0.state.borrow();
                if let Some(why) = &state.refused {
                    return Err(why.clone());
                }
                if self.0.members.is_empty() || self.0.reactor.now() < state.lease_until {
                    return Ok(());
                }
            }
            if n == LOOKS {
                break;
            }
            self.read_fence().await?;
        }
        Err(no_reply())
    }

    /// Reads every leg at once, until one has answered or the time limit ends. Legs that answered
    /// before are waited for for a while; answers of others are used when they arrive.
    async fn read_fence(&self) -> Result<(), Fault> {
        let before = self.0.reactor.now();
        let looks: Vec<Rc<Cell<FenceReply>>> =
            self.0.members.iter().map(|_| Rc::default()).collect();
        let awaited = self.expected_replies();
        for (leg, look) in looks.iter().enumerate() {
            let (volume, look) = (self.clone(), look.clone());
            self.0.reactor.spawn("fs-fence", async move {
                let seen = volume.look_at(leg).await;
                volume.record_reply(leg, seen.is_ok());
                if look.get() == FenceReply::Waiting {
                    look.set(if seen.is_ok() { FenceReply::Good } else { FenceReply::Bad });
                }
                if look.get() == FenceReply::Good {
                    let mut state = volume.0.state.borrow_mut();
                    state.lease_until = state.lease_until.max(before + LEASE_NS);
                }
                if let Err(fault @ Fault::Fenced(_)) = seen {
                    volume.refuse(fault);
                }
                volume.0.fence_replied.notify_all();
            });
        }
        let volume = self.clone();
        let late: Vec<_> = looks.clone();
        self.0.reactor.spawn("fs-fence-late", async move {
            for _ in 0..LATE_FACTOR {
                volume.0.reactor.sleep(LOOK_NS).await;
                let is = |look: FenceReply| late.iter().any(|l| l.get() == look);
                if is(FenceReply::Good) || !is(FenceReply::Waiting) {
                    break;
                }
            }
            for (leg, look) in late.iter().enumerate() {
                if look.get() == FenceReply::Waiting {
                    look.set(FenceReply::Late);
                    volume.record_reply(leg, false);
                }
            }
            volume.0.fence_replied.notify_all();
        });
        loop {
            let seen = self.0.fence_replied.count();
            if let Some(why) = &self.0.state.borrow().refused {
                return Err(why.clone());
            }
            let is = |look: FenceReply| looks.iter().any(|l| l.get() == look);
            let waiting =
                looks.iter().zip(&awaited).any(|(l, w)| *w && l.get() == FenceReply::Waiting);
            if is(FenceReply::Good) && !waiting {
                return Ok(());
            }
            if !is(FenceReply::Good) && !is(FenceReply::Waiting) {
                return if is(FenceReply::Late) { Ok(()) } else { Err(no_reply()) };
            }
            self.0.fence_replied.after(seen).await;
        }
    }

    /// Legs whose answer is waited for: those that answered last time, or all if none did.
    fn expected_replies(&self) -> Vec<bool> {
        let silent = self.0.unresponsive.borrow();
        let all = silent.iter().all(|s| *s);
        silent.iter().map(|s| all || !s).collect()
    }

    fn record_reply(&self, leg: usize, answers: bool) {
        if let Some(s) = self.0.unresponsive.borrow_mut().get_mut(leg) {
            *s = !answers;
        }
    }

    /// Looks at the fence ahead of time while there is work, so that no operation waits for it.
    pub(super) async fn keep_lease(self) {
        let mut worked = 0;
        while !self.0.closed.get() && self.0.state.borrow().refused.is_none() {
            self.0.reactor.sleep(LEASE_NS / 2).await;
            let now = self.0.state.borrow().change;
            if now != worked {
                worked = now;
                // The next operation that needs the lease reports the failure.
                let _ = self.read_fence().await;
            }
        }
    }

    async fn look_at(&self, leg: usize) -> Result<(), Fault> {
        let Some(medium) = self.0.members.get(leg) else { return Ok(()) };
        let (volume, block, epoch) = {
            let state = self.0.state.borrow();
            (state.layout.volume, state.block(), state.epoch)
        };
        let (taken, _) =
            read_entries(&**medium, volume, block, async || self.own_memory().await).await?;
        check_entries(&taken, &self.0.owner, epoch)
    }

    /// Moves this server's grant on a leg up to `grant` (N1).
    pub(super) async fn extend(&self, leg: usize, grant: Addr, latest: Addr) -> Result<(), Fault> {
        self.write_own_entry(leg, grant, latest, false).await?;
        let looked = self.look_at(leg).await;
        if let Err(fault @ Fault::Fenced(_)) = looked {
            return Err(self.refuse(fault));
        }
        looked
    }

    pub(super) async fn write_own_entry(
        &self,
        leg: usize,
        grant: Addr,
        latest: Addr,
        left: bool,
    ) -> Result<(), Fault> {
        let Inner { members: legs, owner, name, fence_slots: places, start, .. } = &*self.0;
        let place = places.borrow().get(leg).copied().flatten();
        let (Some(medium), Some(place)) = (legs.get(leg), place) else {
            return Err(Fault::Invalid("a device of the WORM on which this server has no seat"));
        };
        let (volume, block, epoch) = {
            let state = self.0.state.borrow();
            (state.layout.volume, state.block(), state.epoch)
        };
        let seat = FenceEntry {
            owner: *owner,
            name: name.clone(),
            epoch,
            left,
            grant,
            start: start.get(),
            latest,
        };
        let seg = self.own_memory().await?;
        write_entry(&**medium, volume, place, &seat, seg, block).await
    }
}
