//! Dumps: the tree as it is stays for ever.
//!
//! ```text
//!   tidy     what another program left (once)                       clients continue
//!   freeze   from here on it is the dump's                          at once
//!   walk     its new blocks, from below: dirty -> dump              clients continue
//!   publish  year and day in the root of dumps, superblock at the
//!            address that the last one reserved: dump; header       one step
//!   sync     all of that is durable on the cache device
//! ```
//! If the power fails before `publish` is durable, the tree is unchanged and the dump does not
//! exist; after that it exists.

use super::Image;
use crate::fault::Fault;
use crate::volume::Dump;

/// Addresses that a dump needs behind the walk of the tree.
const NEEDED: u64 = 50;

/// The right to freeze the tree: other tasks wait.
pub(super) struct FreezeGuard<'a>(&'a Image);

impl Drop for FreezeGuard<'_> {
    fn drop(&mut self) {
        self.0.0.freezing.set(false);
        self.0.0.gates_changed.notify_all();
    }
}

/// Gates shut for clients, until it is dropped.
pub(super) struct HaltGuard<'a>(&'a Image);

impl Drop for HaltGuard<'_> {
    fn drop(&mut self) {
        self.0.0.halted.set(false);
        self.0.0.gates_changed.notify_all();
    }
}

impl Image {
    /// Clients wait, while it lives.
    pub(super) fn halt(&self) -> HaltGuard<'_> {
        self.0.halted.set(true);
        HaltGuard(self)
    }

    /// One tree is frozen at a time.
    pub(super) async fn lock_freezing(&self) -> FreezeGuard<'_> {
        while self.0.freezing.get() {
            let seen = self.0.gates_changed.count();
            self.0.gates_changed.after(seen).await;
        }
        self.0.freezing.set(true);
        FreezeGuard(self)
    }

    /// Freezes the tree as it is as the dump of `date` (20261121). When it returns the dump is
    /// durable on the cache device.
    pub async fn dump(&self, date: u32) -> Result<Dump, Fault> {
        if self.0.worm.is_none() {
            return Err(Fault::Invalid("a file system without a WORM has no dumps"));
        }
        let _turn = self.lock_freezing().await;
        let done = self.dump_now(date).await;
        // The blocks that were frozen are to be copied, for any result of the rest.
        self.0.idle.set(false);
        self.0.gates_changed.notify_all();
        let blocks = done?;
        let all = self.dumps().into_iter().filter(|d| d.date == date);
        let dump = all.max_by_key(|d| d.serial);
        let why = "the root of dumps does not name the dump";
        let dump = dump.ok_or(Fault::Corrupt(why.into()))?;
        self.0.state.borrow_mut().taken.insert(dump.number, blocks);
        Ok(dump)
    }

    /// Blocks that a dump has and none before it has; none: it was taken before the image was
    /// opened, and no record of it exists.
    pub fn blocks_of(&self, dump: &Dump) -> Option<u64> {
        self.0.state.borrow().taken.get(&dump.number).copied()
    }

    /// All of a dump is on the WORM for good: its superblock is, which is written last (I3). Each
    /// dump has one, and those that wait are those of the last dumps.
    pub fn is_copied(&self, dump: &Dump) -> bool {
        let state = self.0.state.borrow();
        state.dumps.iter().rev().take(state.supers.len()).all(|d| d.number != dump.number)
    }

    /// How many blocks the dump took.
    async fn dump_now(&self, date: u32) -> Result<u64, Fault> {
        self.check_space()?;
        self.tidy().await?;
        let (root, walked) = {
            let frozen = self.freeze();
            (frozen.root, self.walk(frozen.root).await?)
        };
        self.check_space()?;
        let published = match self.step(&mut |s| s.publish(root, date)).await {
            // A bucket was full of blocks that are to be copied.
            Err(Fault::NoSpace(_)) => {
                self.0.idle.set(false);
                self.copied().await?;
                self.step(&mut |s| s.publish(root, date)).await?
            }
            done => done?,
        };
        self.learn_dumps().await?;
        self.sync().await?;
        Ok(walked + published)
    }

    fn check_space(&self) -> Result<(), Fault> {
        let h = self.0.state.borrow().header;
        match h.fsize.saturating_add(NEEDED) <= h.wsize {
            true => Ok(()),
            false => Err(Fault::NoSpace("the WORM has no space for a dump")),
        }
    }
}
