//! Live ROD tokens, and the units that watch for writes to the data of the tokens.
//!
//! ```text
//!   make() --arm() of every range--> LIVE --write to it--> REVOKED --+
//!                                     |---DEL_TKN--------> DELETED --+--inactivity timeout--> end
//!                                     +---inactivity timeout---------+
//! ```
//!
//! Invariants
//!  K1  A token is accepted only byte for byte as it was made; 128 of its bytes are random.
//!  K2  A unit without live tokens pays one load for each write.
//!  K3  A range of a token is armed while no request can write to it; from then on a write to it
//!      first revokes the token.
//!  K4  There are at most [`TOKENS_MAX`] tokens, including dead ones that can still be reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bio::sync::{Mutex, MutexGuard};
use wire::scsi::{BlockRange, ROD_TOKEN_LEN, RodToken, RodType, Sense, asc};

use crate::unit::Device;

/// Tokens of the daemon; when there are as many, POPULATE TOKEN ends with INSUFFICIENT RESOURCES TO
/// CREATE ROD TOKEN.
pub(crate) const TOKENS_MAX: usize = 256;

/// Tokens for a unit's blocks.
#[derive(Default)]
pub(crate) struct Watch {
    live: AtomicU32,
    tokens: Mutex<Vec<Arc<Rod>>>,
}

impl Watch {
    fn tokens(&self) -> MutexGuard<'_, Vec<Arc<Rod>>> {
        self.tokens.lock()
    }

    /// Called before `blocks` from `lba` on are written (K2, K3).
    #[inline(always)]
    pub fn before_write(&self, lba: u64, blocks: u64) {
        if self.live.load(Ordering::Acquire) != 0 {
            self.revoke(lba, blocks);
        }
    }

    #[cold]
    fn revoke(&self, lba: u64, blocks: u64) {
        let end = lba.saturating_add(blocks);
        self.drop_if(|rod| {
            let armed = rod.armed.load(Ordering::Acquire);
            rod.ranges
                .iter()
                .take(armed)
                .any(|r| r.lba < end && lba < r.end().unwrap_or(u64::MAX) && r.blocks > 0)
        });
    }

    /// The medium may be another one.
    pub fn revoke_all(&self) {
        self.drop_if(|_| true);
    }

    fn drop_if(&self, dead: impl Fn(&Rod) -> bool) {
        let mut tokens = self.tokens();
        tokens.retain(|rod| {
            let dies = dead(rod);
            if dies {
                rod.revoked.store(true, Ordering::Release);
            }
            !dies
        });
        self.count(&tokens);
    }

    fn add(&self, rod: &Arc<Rod>) {
        let mut tokens = self.tokens();
        tokens.push(rod.clone());
        self.count(&tokens);
    }

    fn remove(&self, rod: &Rod) {
        let mut tokens = self.tokens();
        tokens.retain(|t| !std::ptr::eq(Arc::as_ptr(t), rod));
        self.count(&tokens);
    }

    fn count(&self, tokens: &[Arc<Rod>]) {
        self.live.store(u32::try_from(tokens.len()).unwrap_or(u32::MAX), Ordering::Release);
    }
}

/// A representation of data (ROD), which a token identifies.
pub(crate) struct Rod {
    pub token: Box<[u8; ROD_TOKEN_LEN]>,
    /// The unit.
    pub device: Arc<Device>,
    /// Its blocks, in this order.
    pub ranges: Vec<BlockRange>,
    id: u64,
    timeout_ns: u64,
    armed: AtomicUsize,
    revoked: AtomicBool,
    deleted: AtomicBool,
    users: AtomicU32,
    used_ns: AtomicU64,
}

impl Rod {
    /// The next range is that of the token from now on. The caller keeps others from writing there
    /// (K3).
    pub fn arm(&self) {
        self.armed.fetch_add(1, Ordering::AcqRel);
    }

    pub fn blocks(&self) -> u64 {
        self.ranges.iter().map(|r| u64::from(r.blocks)).sum()
    }

    pub fn check_valid(&self) -> Result<(), Sense> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(Sense::new(asc::TOKEN_DELETED));
        }
        if self.revoked.load(Ordering::Acquire) {
            return Err(Sense::new(asc::TOKEN_REVOKED));
        }
        Ok(())
    }

    fn is_idle(&self, now: u64) -> bool {
        let idle = now.saturating_sub(self.used_ns.load(Ordering::Acquire));
        self.users.load(Ordering::Acquire) == 0 && idle >= self.timeout_ns
    }
}

/// A running write by a token: the token does not time out.
pub(crate) struct Use {
    pub rod: Arc<Rod>,
}

impl Use {
    fn new(rod: Arc<Rod>, now: u64) -> Use {
        rod.users.fetch_add(1, Ordering::AcqRel);
        rod.used_ns.store(now, Ordering::Release);
        Use { rod }
    }

    /// The end of it: the inactivity timeout begins anew.
    pub fn end(self, now: u64) {
        self.rod.used_ns.store(now, Ordering::Release);
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.rod.users.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(crate) enum Presented {
    Zero,
    /// A token that was made here.
    Rod(Use),
}

#[derive(Default)]
pub(crate) struct Tokens {
    all: Mutex<Vec<Arc<Rod>>>,
}

impl Tokens {
    fn all(&self, now: u64) -> MutexGuard<'_, Vec<Arc<Rod>>> {
        let mut all = self.all.lock();
        all.retain(|rod| {
            let stays = !rod.is_idle(now);
            if !stays {
                rod.device.watch().remove(rod);
            }
            stays
        });
        all
    }

    /// A token for `ranges` of a unit, watched from now on, of which no range is armed yet.
    pub fn make(
        &self,
        device: &Arc<Device>,
        ranges: Vec<BlockRange>,
        token: &RodToken,
        timeout_ns: u64,
        now: u64,
    ) -> Result<Use, Sense> {
        let mut all = self.all(now);
        if all.len() >= TOKENS_MAX || all.iter().any(|rod| rod.id == token.id) {
            return Err(Sense::new(asc::NO_ROD_TOKEN_RESOURCES));
        }
        let rod = Arc::new(Rod {
            token: Box::new(token.encode()),
            device: device.clone(),
            ranges,
            id: token.id,
            timeout_ns,
            armed: AtomicUsize::new(0),
            revoked: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            users: AtomicU32::new(0),
            used_ns: AtomicU64::new(now),
        });
        device.watch().add(&rod);
        let used = Use::new(rod.clone(), now);
        all.push(rod);
        Ok(used)
    }

    /// Removes a token that was never sent to an initiator.
    pub fn unmake(&self, rod: &Arc<Rod>, now: u64) {
        rod.device.watch().remove(rod);
        self.all(now).retain(|r| !Arc::ptr_eq(r, rod));
    }

    /// The data of a token (K1), if the initiator may know it: `sees` reports whether it addresses
    /// the unit.
    pub fn present(
        &self,
        token: &[u8; ROD_TOKEN_LEN],
        sees: impl Fn(&Arc<Device>) -> bool,
        now: u64,
    ) -> Result<Presented, Sense> {
        let (kind, id) = RodToken::parse(token)?;
        if kind == RodType::Zero {
            return Ok(Presented::Zero);
        }
        let all = self.all(now);
        let unknown = Sense::new(asc::TOKEN_UNKNOWN);
        let rod = all.iter().find(|r| r.id == id && sees(&r.device)).ok_or(unknown)?;
        // Without an early end: its duration does not reveal where they differ.
        let differs = rod.token.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differs != 0 {
            return Err(Sense::new(asc::TOKEN_CORRUPT));
        }
        rod.check_valid()?;
        Ok(Presented::Rod(Use::new(rod.clone(), now)))
    }

    /// The initiator does not need it any more.
    pub fn delete(&self, rod: &Arc<Rod>) {
        rod.deleted.store(true, Ordering::Release);
        rod.device.watch().remove(rod);
    }

    /// Tokens that are good, for units that the initiator addresses.
    pub fn list(&self, sees: impl Fn(&Arc<Device>) -> bool, now: u64) -> Vec<[u8; ROD_TOKEN_LEN]> {
        let all = self.all(now);
        let good = all.iter().filter(|r| r.check_valid().is_ok() && sees(&r.device));
        good.filter(|r| r.armed.load(Ordering::Acquire) == r.ranges.len())
            .map(|r| *r.token)
            .collect()
    }
}
