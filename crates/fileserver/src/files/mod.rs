//! files: inodes, directories and contents over the tree. No permissions, no protocol, no users.
//!
//! Invariants
//!  I1  A file's number is never given to another. Its version changes with every change of its
//!      contents and never has an earlier value again, also after a loss of power.
//!  I2  An entry is stored under the hash of its name and under its cookie, or under neither.
//!  I3  A file without a name is among the orphans until its contents and its inode are given back.
//!  I4  Blocks behind a file's end are zero, or its garbage: it does not grow over garbage.

mod backend;
mod check;
mod clear;
mod contents;
mod inode;
mod names;
mod paths;
mod reclaim;
mod repair;
mod serving;
mod temporary;
mod usage;

pub use backend::Files;
pub use check::Checked;
pub use contents::Reader;
pub(crate) use contents::{LoadMode, gather};
pub use inode::{Entry, Flags, Inode, Kind};
pub use names::{NAME_MAX, New};
pub use repair::Repairs;
pub use serving::Served;
pub use usage::Usage;

use crate::fault::{Fault, Stop};
use crate::orphans::InodeRef;
use crate::tree::{self, Key, Kind as Item};
use crate::volume::{Dump, Step, View, Volume};

/// A file's number.
pub type Ino = u64;

/// The root's.
pub const ROOT: Ino = 1;
/// Largest size of a file, bytes.
pub const SIZE_MAX: u64 = 1 << 60;

/// Reads an item of any bytes as the kind of its key.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn look_at_item(key: &Key, value: &[u8]) {
    match key.kind {
        k if k == Item::Inode as u8 => drop(Inode::decode(value)),
        k if k == Item::Name as u8 => drop(inode::decode_names(value)),
        k if k == Item::Entry as u8 => drop(inode::decode_entry(key.offset, value)),
        _ => drop(contents::decode_run(value)),
    }
}

/// A change of a file's attributes; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Append-only and the like.
    pub flags: Option<Flags>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// When contents changed.
    pub mtime_ns: Option<u64>,
    /// When it was read.
    pub atime_ns: Option<u64>,
    /// Bytes; longer than it was leaves a hole.
    pub size: Option<u64>,
    /// The user of the request.
    pub by: u32,
}

/// The file system of a volume at one moment.
pub(crate) struct VolumeFiles<'a, 's> {
    step: &'a mut Step<'s>,
}

impl VolumeFiles<'_, '_> {
    /// Wall clock, ns since 1970.
    pub fn now_ns(&self) -> u64 {
        self.step.now_ns()
    }

    /// Every dump, in the order of their numbers.
    pub fn dumps(&self) -> &[Dump] {
        self.step.dumps()
    }

    /// Attributes of a file.
    pub fn inode(&mut self, view: View, ino: Ino) -> Result<Inode, Stop> {
        let root = self.step.root(view)?;
        let key = Key::new(ino, Item::Inode, 0);
        match tree::get(self.step, root, &key, Inode::decode)? {
            Some(Some(inode)) => Ok(inode),
            Some(None) => Err(Fault::Corrupt(format!("attributes of file {ino}")).into()),
            None => Err(Fault::NotFound.into()),
        }
    }

    fn put_inode(&mut self, ino: Ino, inode: &Inode) -> Result<(), Stop> {
        self.put(&Key::new(ino, Item::Inode, 0), &inode.encode())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Stop> {
        let mut root = self.step.root(View::Live)?;
        tree::insert(self.step, &mut root, key, value)?;
        self.step.set_root(root);
        Ok(())
    }

    fn take(&mut self, key: &Key) -> Result<bool, Stop> {
        let mut root = self.step.root(View::Live)?;
        let had = tree::remove(self.step, &mut root, key)?;
        self.step.set_root(root);
        Ok(had)
    }

    /// Changes attributes: all of them or none.
    pub fn set(&mut self, ino: Ino, c: &Change) -> Result<(), Stop> {
        let mut inode = self.inode(View::Live, ino)?;
        if let Some(size) = c.size {
            if inode.kind == Kind::Dir && size != 0 {
                return Err(Fault::IsDir.into());
            }
            if inode.kind == Kind::File {
                self.resize(ino, &mut inode, size)?;
            }
            inode.muid = c.by;
        }
        let now = self.now_ns();
        inode.mode = c.mode.map_or(inode.mode, |m| m & 0o7777);
        if let Some(flags) = c.flags {
            self.mark(ino, &mut inode, flags)?;
        }
        inode.uid = c.uid.unwrap_or(inode.uid);
        inode.gid = c.gid.unwrap_or(inode.gid);
        inode.mtime_ns = c.mtime_ns.unwrap_or(inode.mtime_ns);
        inode.atime_ns = c.atime_ns.unwrap_or(inode.atime_ns);
        inode.ctime_ns = now;
        self.put_inode(ino, &inode)
    }
}

/// A file system on a volume. Clones share it; it never leaves its core.
#[derive(Clone)]
pub struct FileSystem {
    volume: Volume,
}

impl FileSystem {
    /// The file system of a volume; an empty volume gets a root that belongs to `uid` and `gid`.
    pub async fn mount(volume: Volume, uid: u32, gid: u32) -> Result<FileSystem, Fault> {
        let fs = FileSystem { volume };
        fs.native(|f| match f.inode(View::Live, ROOT) {
            Err(Stop::Fail(Fault::NotFound)) => f.make_root(uid, gid),
            found => found.map(drop),
        })
        .await?;
        fs.resume_temporary().await?;
        let reaper = fs.clone();
        fs.volume.spawn("fs-reap", async move { reaper.keep_reaping().await });
        Ok(fs)
    }

    /// The volume below.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// One atomic step: `op` may run several times until nothing that it needs is missing, and has
    /// done nothing but for the last time.
    pub async fn run<T>(
        &self,
        mut op: impl FnMut(&mut Files<'_, '_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        self.steps(|step| op(&mut Files::of_volume(step))).await
    }

    /// The same for what only files of a volume have.
    async fn native<T>(
        &self,
        mut op: impl FnMut(&mut VolumeFiles<'_, '_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        self.steps(|step| op(&mut VolumeFiles { step })).await
    }

    async fn steps<T>(
        &self,
        mut op: impl FnMut(&mut Step<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        loop {
            match self.volume.run(&mut op).await {
                Err(Fault::Unfinished(ino)) => self.reap(ino).await?,
                Err(Fault::Unsettled(ino)) => self.settle_for_dumps(ino).await?,
                done => {
                    while let Some(ino) = self.volume.inode_refs().unsettled() {
                        self.settle(ino).await?;
                    }
                    return done;
                }
            }
        }
    }

    /// Makes operations durable that ended before the call.
    pub async fn sync(&self) -> Result<(), Fault> {
        self.volume.sync().await
    }

    /// While the guard lives, a file that loses its name keeps its contents.
    pub fn hold(&self, ino: Ino) -> InodeRef {
        self.volume.inode_refs().hold(ino)
    }
}
