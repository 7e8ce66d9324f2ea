//! The files of one moment, on a volume or an image.

use bio::Seg;

use super::{Change, Entry, Ino, Inode, New, Reader, VolumeFiles};
use crate::fault::{Fault, Stop};
use crate::image;
use crate::tree::Key;
use crate::volume::{Dump, Step, View};

/// The file system at one moment; see [`super::Served::run`].
pub struct Files<'a, 's>(Backend<'a, 's>);

enum Backend<'a, 's> {
    Volume(VolumeFiles<'a, 's>),
    Image(&'a mut image::Step<'s>),
}

/// A call that both kinds have.
macro_rules! on_either {
    ($backend:expr, $files:ident => $call:expr) => {
        match $backend {
            Backend::Volume($files) => $call,
            Backend::Image($files) => $call,
        }
    };
}

/// The error for a function that only a volume has.
fn no_volume() -> Stop {
    Fault::Invalid("not supported in an image of cwfs64x").into()
}

impl<'a, 's> Files<'a, 's> {
    pub(super) fn of_volume(step: &'a mut Step<'s>) -> Files<'a, 's> {
        Files(Backend::Volume(VolumeFiles { step }))
    }

    pub(super) fn of_image(step: &'a mut image::Step<'s>) -> Files<'a, 's> {
        Files(Backend::Image(step))
    }

    fn native(&mut self) -> Result<&mut VolumeFiles<'a, 's>, Stop> {
        match &mut self.0 {
            Backend::Volume(f) => Ok(f),
            Backend::Image(_) => Err(no_volume()),
        }
    }

    /// Wall clock, ns since 1970.
    pub fn now_ns(&self) -> u64 {
        on_either!(&self.0, f => f.now_ns())
    }

    /// Every dump, in the order of their numbers.
    pub fn dumps(&self) -> &[Dump] {
        on_either!(&self.0, f => f.dumps())
    }

    /// Attributes of a file.
    pub fn inode(&mut self, view: View, ino: Ino) -> Result<Inode, Stop> {
        on_either!(&mut self.0, f => f.inode(view, ino))
    }

    /// Changes attributes: all of them or none.
    pub fn set(&mut self, ino: Ino, c: &Change) -> Result<(), Stop> {
        on_either!(&mut self.0, f => f.set(ino, c))
    }

    /// The file of a name; none: there is no such name.
    pub fn lookup(&mut self, view: View, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Stop> {
        on_either!(&mut self.0, f => f.lookup(view, dir, name))
    }

    /// At most `most` entries behind the cookie `after` (0: from the first).
    pub fn entries(
        &mut self,
        view: View,
        dir: Ino,
        after: u64,
        most: usize,
    ) -> Result<Vec<Entry>, Stop> {
        on_either!(&mut self.0, f => f.entries(view, dir, after, most))
    }

    /// The directory of a file and its name there; `None` for the root and for a file without a
    /// name.
    pub fn name(&mut self, view: View, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>, Stop> {
        on_either!(&mut self.0, f => f.name(view, ino))
    }

    /// Makes a file. [`Fault::Exists`] when the name is taken.
    pub fn create(&mut self, dir: Ino, name: &[u8], new: &New) -> Result<Ino, Stop> {
        on_either!(&mut self.0, f => f.create(dir, name, new))
    }

    /// Removes a name, and with the last one the file, as soon as it has no keeper.
    pub fn remove(&mut self, dir: Ino, name: &[u8], by: u32) -> Result<Ino, Stop> {
        on_either!(&mut self.0, f => f.remove(dir, name, by))
    }

    /// Gives a file another name, in the same directory or another. A file in its place is removed
    /// with `replace`; a directory only for a directory, and only when it is empty.
    pub fn rename(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new: &[u8],
        replace: bool,
        by: u32,
    ) -> Result<(), Stop> {
        match &mut self.0 {
            Backend::Volume(f) => f.rename(from, name, to, new, replace, by),
            Backend::Image(s) => s.rename((from, name), (to, new), replace, by),
        }
    }

    /// Adds up to `len` bytes from `offset` to `out`, as parts of blocks in memory; how many. Fewer
    /// at the end of the file only.
    pub fn read(
        &mut self,
        view: View,
        ino: Ino,
        offset: u64,
        len: usize,
        out: &mut Vec<Seg>,
    ) -> Result<usize, Stop> {
        match &mut self.0 {
            Backend::Volume(f) => f.read(view, ino, offset, len, out),
            Backend::Image(s) => s.read(view, ino, (offset, len), out),
        }
    }

    /// The same for a reader that may be sequential: then the next blocks are read ahead.
    pub fn read_on(
        &mut self,
        view: View,
        ino: Ino,
        range: (u64, usize),
        reader: &mut Reader,
        out: &mut Vec<Seg>,
    ) -> Result<usize, Stop> {
        on_either!(&mut self.0, f => f.read_on(view, ino, range, reader, out))
    }

    /// Writes `data` at `offset`. All of it or nothing. Its bytes are not taken back if the rest of
    /// a step fails: let it be the last of one.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[Seg], by: u32) -> Result<usize, Stop> {
        match &mut self.0 {
            Backend::Volume(f) => f.write(ino, offset, data, by),
            Backend::Image(s) => s.write(ino, Some(offset), data, by).map(|(_, n)| n),
        }
    }

    /// Writes `data` at the end; where that was, and how much.
    pub fn append(&mut self, ino: Ino, data: &[Seg], by: u32) -> Result<(u64, usize), Stop> {
        match &mut self.0 {
            Backend::Volume(f) => f.append(ino, data, by),
            Backend::Image(s) => s.write(ino, None, data, by),
        }
    }

    /// Makes up to `len` bytes from `offset` on zero; returns how many. Large ranges take several
    /// steps. Bytes behind the end of the file are zero.
    pub fn clear(&mut self, ino: Ino, offset: u64, len: u64, by: u32) -> Result<u64, Stop> {
        on_either!(&mut self.0, f => f.clear(ino, offset, len, by))
    }

    /// Whether there is anything at `offset`, and for how many bytes that is so, `len` at most.
    pub fn is_mapped(
        &mut self,
        view: View,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<(bool, u64), Stop> {
        on_either!(&mut self.0, f => f.is_mapped(view, ino, offset, len))
    }

    /// Blocks of a file and their addresses, the first `most`.
    pub fn blocks(&mut self, view: View, ino: Ino, most: usize) -> Result<Vec<(u64, u64)>, Stop> {
        on_either!(&mut self.0, f => f.blocks(view, ino, most))
    }

    /// Sets the address of a block of a file; returns the previous one.
    pub fn set_block_addr(&mut self, ino: Ino, block: u64, addr: u64) -> Result<u64, Stop> {
        self.native()?.set_block_addr(ino, block, addr)
    }

    /// An item of the tree.
    pub fn item(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Stop> {
        self.native()?.item(key)
    }

    /// Keys of the tree from one on.
    pub fn keys(&mut self, from: Key, most: usize) -> Result<Vec<Key>, Stop> {
        self.native()?.keys(from, most)
    }

    /// Changes an item of the tree directly, without keeping others consistent with it.
    pub fn set_item(&mut self, key: &Key, value: Option<&[u8]>) -> Result<(), Stop> {
        self.native()?.set_item(key, value)
    }
}
