//! A file system as it is served: on a volume, or in an image.

use super::{Checked, FileSystem, Files, Ino, Repairs};
use crate::fault::{Addr, Fault, Stop};
use crate::image::Image;
use crate::orphans::InodeRef;
use crate::volume::{Dump, Facts, GivenBack, ReadAhead, Report, View};

/// See the module. Clones share it; it never leaves its core.
#[derive(Clone)]
pub enum Served {
    /// Of our own.
    Volume(FileSystem),
    /// Of cwfs64x.
    Image(Image),
}

/// A call that both kinds have; `volume`: of the volume below the file system.
macro_rules! on_either {
    ($served:ident, volume $files:ident => $call:expr) => {
        match $served {
            Served::Volume(fs) => {
                let $files = fs.volume();
                $call
            }
            Served::Image($files) => $call,
        }
    };
    ($served:ident, $files:ident => $call:expr) => {
        match $served {
            Served::Volume($files) => $call,
            Served::Image($files) => $call,
        }
    };
}

impl From<FileSystem> for Served {
    fn from(fs: FileSystem) -> Served {
        Served::Volume(fs)
    }
}

impl From<Image> for Served {
    fn from(image: Image) -> Served {
        Served::Image(image)
    }
}

impl Served {
    /// The file system of a volume; for an image, an error with the text `what`.
    pub fn volume(&self, what: &'static str) -> Result<&FileSystem, Fault> {
        match self {
            Served::Volume(fs) => Ok(fs),
            Served::Image(_) => Err(Fault::Invalid(what)),
        }
    }

    /// One atomic step: `op` may run several times until nothing that it needs is missing, and has
    /// done nothing but for the last time.
    pub async fn run<T>(
        &self,
        mut op: impl FnMut(&mut Files<'_, '_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let image = match self {
            Served::Volume(fs) => return fs.run(op).await,
            Served::Image(image) => image,
        };
        loop {
            match image.run(|step| op(&mut Files::of_image(step))).await {
                Err(Fault::Unfinished(ino)) => image.shorten(ino).await?,
                done => {
                    image.reap();
                    return done;
                }
            }
        }
    }

    /// How much is read ahead.
    pub fn read_ahead(&self) -> ReadAhead {
        on_either!(self, volume fs => fs.read_ahead())
    }

    /// Sets the read-ahead; loads that are under way continue.
    pub fn set_read_ahead(&self, set: ReadAhead) {
        on_either!(self, volume fs => fs.set_read_ahead(set))
    }

    /// Sets whether the WORM is as fast as the cache device; see `State::fastworm`.
    pub fn set_fastworm(&self, set: bool) {
        on_either!(self, volume fs => fs.set_fastworm(set))
    }

    /// Sets the size of the block cache, bytes. [`Served::give_back_some`] frees what is beyond it.
    pub fn set_memory(&self, bytes: usize) {
        match self {
            Served::Volume(fs) => fs.volume().set_memory(bytes),
            Served::Image(image) => image.set_memory(bytes),
        }
    }

    /// Frees a part of the memory beyond the size of the block cache.
    pub fn give_back_some(&self) -> GivenBack {
        match self {
            Served::Volume(fs) => fs.volume().give_back_some(),
            Served::Image(image) => image.give_back_some(),
        }
    }

    /// Makes operations durable that ended before the call.
    pub async fn sync(&self) -> Result<(), Fault> {
        on_either!(self, fs => fs.sync().await)
    }

    /// While the guard lives, a file that loses its name keeps its contents.
    pub fn hold(&self, ino: Ino) -> InodeRef {
        match self {
            Served::Volume(fs) => fs.hold(ino),
            Served::Image(image) => image.inode_refs().hold(ino),
        }
    }

    /// Every dump.
    pub fn dumps(&self) -> Vec<Dump> {
        on_either!(self, volume fs => fs.dumps())
    }

    /// How it is doing.
    pub fn facts(&self) -> Facts {
        on_either!(self, volume fs => fs.facts())
    }

    /// How the devices of the WORM are doing.
    pub fn members(&self) -> Vec<Report> {
        on_either!(self, volume fs => fs.members())
    }

    /// Freezes the tree as it is as the dump of `date` (20261121).
    pub async fn dump(&self, date: u32) -> Result<Dump, Fault> {
        on_either!(self, volume fs => fs.dump(date).await)
    }

    /// Blocks that a dump has and none before it has. `None`: unknown, for a dump of an image that
    /// was taken before this was opened.
    pub fn blocks_of(&self, dump: &Dump) -> Option<u64> {
        match self {
            Served::Volume(_) => Some(dump.next - dump.sb),
            Served::Image(image) => image.blocks_of(dump),
        }
    }

    /// All of a dump is on a device of the WORM, by its own record.
    pub fn is_on(&self, dump: &Dump, leg: &Report) -> bool {
        match self {
            Served::Volume(_) => leg.done >= dump.next,
            Served::Image(image) => image.is_copied(dump),
        }
    }

    /// Until a dump is on the WORM for good.
    pub async fn copied(&self, dump: &Dump) -> Result<(), Fault> {
        match self {
            Served::Volume(fs) => fs.volume().copied(dump).await,
            Served::Image(image) => image.copied().await,
        }
    }

    /// Whether dumps are copied to the WORM.
    pub fn is_copying(&self) -> bool {
        on_either!(self, volume fs => fs.is_copying())
    }

    /// Reports whether they are.
    pub fn set_copying(&self, on: bool) {
        on_either!(self, volume fs => fs.set_copying(on))
    }

    /// Looks at everything that a view names.
    pub async fn check(&self, view: View, contents: bool) -> Result<Checked, Fault> {
        on_either!(self, fs => fs.check(view, contents).await)
    }

    /// Repairs the findings of a check of the live tree, a line each; the tree must not change
    /// meanwhile. With `dry`, which only an image supports, it reports the repairs and does
    /// nothing. `contents`: the tags of an image's blocks are checked too.
    pub async fn repair(&self, contents: bool, dry: bool) -> Result<Repairs, Fault> {
        match self {
            Served::Volume(_) if dry => Err(Fault::Invalid("--dry: use a check without --fix")),
            Served::Volume(fs) => fs.repair().await,
            Served::Image(image) => image.repair(contents, dry).await,
        }
    }

    /// The reason why the growth of a cache device cannot be used.
    pub fn cache_keeps_its_size(&self) -> Option<Fault> {
        match self {
            Served::Volume(_) => None,
            Served::Image(image) => image.cache_keeps_its_size(),
        }
    }

    /// Uses the space by which its devices have grown: a volume's cache device, an image's WORM.
    /// Returns the number of new blocks.
    pub async fn grow(&self) -> Result<u64, Fault> {
        on_either!(self, volume fs => fs.grow().await)
    }

    /// Sets the address of block `block` of a file; returns the previous one. In an image only a
    /// hole (0) is possible.
    pub async fn set_block_addr(&self, ino: Ino, block: u64, addr: Addr) -> Result<Addr, Fault> {
        match self {
            Served::Volume(fs) if !fs.volume().was_allocated(addr) => {
                Err(Fault::Invalid("that address was never written"))
            }
            Served::Volume(_) => self.run(|f| f.set_block_addr(ino, block, addr)).await,
            Served::Image(_) if addr != 0 => {
                Err(Fault::Invalid("in an image a block becomes a hole, and no other block"))
            }
            Served::Image(image) => image.make_hole(ino, block).await,
        }
    }

    /// Removes a name and its entry, and gives nothing back: `mend` does. False: there is no such
    /// name.
    pub async fn forget(&self, dir: Ino, name: &[u8]) -> Result<bool, Fault> {
        on_either!(self, fs => fs.forget(dir, name).await)
    }

    /// Everything is durable, and nothing is begun any more.
    pub async fn close(&self) -> Result<(), Fault> {
        on_either!(self, volume fs => fs.close().await)
    }
}
