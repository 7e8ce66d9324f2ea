//! Files and block devices. Opening and asking about them blocks: control path only.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::backend::locks;
use crate::closing;
use crate::sim::SimDisk;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, SeekFrom, StatxFlags};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Refuse writes.
    pub read_only: bool,
    /// Make the file when there is none.
    pub create: bool,
    /// Around the page cache (O_DIRECT): offsets, lengths and addresses must be aligned.
    pub direct: bool,
    /// Open the block device exclusively (O_EXCL): fails while another process or a mount has it.
    /// Ignored for files.
    pub exclusive: bool,
    /// Length in bytes to give the file; None leaves it.
    pub size: Option<u64>,
}

/// Which calls on a buffered file may be made in line instead of by another thread. Only the
/// poll port has the choice; io_uring tries the page cache in line for reads by itself. Short calls
/// on a file in memory are made in line by both, regardless of this setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// Reads that the page cache can serve at once.
    pub reads: bool,
    /// All writes. They stall the reactor when the kernel throttles writers.
    pub writes: bool,
}

/// The properties of a file, as the disks crate needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// A block device, not a file.
    pub is_block_device: bool,
    /// Opened around the page cache.
    pub is_direct: bool,
    pub is_read_only: bool,
    /// A file of a file system in memory (tmpfs, ramfs): a call copies, and waits for no device.
    pub is_in_memory: bool,
    /// Unit of addressing in bytes; for files the unit of direct I/O.
    pub logical_sector: u32,
    /// Unit that the medium writes without reading first, in bytes.
    pub physical_sector: u32,
    /// Alignment of memory in bytes; 1 when buffered.
    pub memory_align: u32,
    /// Major and minor number of the device itself (block device) or the one it is on (file).
    pub device: (u32, u32),
}

enum FileHandle {
    Kernel(OwnedFd),
    Simulated(Arc<SimDisk>),
    /// While the file is dropped.
    Closed,
}

struct FileInner {
    handle: FileHandle,
    path: PathBuf,
    facts: FileFacts,
    inline: AtomicU8,
}

impl Drop for FileInner {
    fn drop(&mut self) {
        let handle = std::mem::replace(&mut self.handle, FileHandle::Closed);
        if let FileHandle::Kernel(fd) = handle {
            closing::close(&self.path, fd);
        }
    }
}

fn closed() -> io::Error {
    rustix::io::Errno::BADF.into()
}

/// An open file or block device. Clones share the descriptor, which is closed with the last one
/// and the last operation under way.
#[derive(Clone)]
// Two counts: the outer one is this core's own, see `local`.
#[allow(clippy::redundant_allocation)]
pub struct File(Arc<Arc<FileInner>>);

const INLINE_READS: u8 = 1;
const INLINE_WRITES: u8 = 2;

impl File {
    /// Opens `path`. Blocks.
    pub fn open(path: impl AsRef<Path>, how: OpenHow) -> io::Result<File> {
        let path = path.as_ref();
        let mut flags = OFlags::CLOEXEC;
        flags |= if how.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        flags.set(OFlags::CREATE, how.create);
        flags.set(OFlags::DIRECT, how.direct);
        let is_block = fs::stat(path)
            .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::BlockDevice);
        flags.set(OFlags::EXCL, how.exclusive && is_block);
        let fd = fs::open(path, flags, Mode::from_raw_mode(0o600))?;
        if let Some(size) = how.size {
            fs::ftruncate(&fd, size)?;
        }
        let facts = facts(&fd, how)?;
        Ok(File::wrap(FileHandle::Kernel(fd), path.to_path_buf(), facts))
    }

    /// A descriptor of any kind, for tests of calls that do not return.
    #[cfg(test)]
    pub(crate) fn of(fd: OwnedFd, path: &str) -> File {
        let model = fs::memfd_create(path, fs::MemfdFlags::CLOEXEC).unwrap();
        let facts = facts(&model, OpenHow::default()).unwrap();
        File::wrap(FileHandle::Kernel(fd), path.into(), FileFacts { is_in_memory: false, ..facts })
    }

    fn wrap(body: FileHandle, path: PathBuf, facts: FileFacts) -> File {
        let inline = if facts.is_direct { 0 } else { INLINE_READS };
        File(Arc::new(Arc::new(FileInner {
            handle: body,
            path,
            facts,
            inline: AtomicU8::new(inline),
        })))
    }

    /// A handle of its own on the same file: one for each core, so that counting operations under
    /// way does not move a cache line between cores.
    pub fn local(&self) -> File {
        File(Arc::new(Arc::clone(&self.0)))
    }

    /// Length now, in bytes.
    pub fn size(&self) -> io::Result<u64> {
        match &self.0.handle {
            // Also right for files; the file position is not used anywhere.
            FileHandle::Kernel(fd) => Ok(fs::seek(fd, SeekFrom::End(0))?),
            FileHandle::Simulated(disk) => Ok(disk.with(|d| d.size())),
            FileHandle::Closed => Err(closed()),
        }
    }

    /// Length of a file now, in bytes, as far as this machine knows it. No request is sent to the
    /// server of a network file system, so that a core may look. Zero for a block device of a real
    /// kernel.
    pub fn size_known(&self) -> io::Result<u64> {
        match &self.0.handle {
            FileHandle::Kernel(fd) => {
                let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
                Ok(fs::statx(fd, "", how, StatxFlags::SIZE)?.stx_size)
            }
            FileHandle::Simulated(disk) => Ok(disk.with(|d| d.size())),
            FileHandle::Closed => Err(closed()),
        }
    }

    /// Takes a shared lock on one byte (F_OFD_SETLK), held until the file is closed. It belongs to
    /// the open file: another [`File::open`] of the same path is another holder. Does not wait.
    pub fn share_byte(&self, at: u64) -> io::Result<()> {
        self.as_fd().map_or(Ok(()), |fd| locks::share(fd, at))
    }

    /// Releases the lock of [`File::share_byte`].
    pub fn release_byte(&self, at: u64) -> io::Result<()> {
        self.as_fd().map_or(Ok(()), |fd| locks::release(fd, at))
    }

    /// True when another open file or process has a lock on that byte.
    pub fn is_byte_held(&self, at: u64) -> io::Result<bool> {
        self.as_fd().map_or(Ok(false), |fd| locks::is_held(fd, at))
    }

    /// Cuts or extends a file to `size` bytes. Blocks.
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        match &self.0.handle {
            FileHandle::Kernel(fd) => Ok(fs::ftruncate(fd, size)?),
            FileHandle::Simulated(disk) => {
                disk.with(|d| d.set_size(size));
                Ok(())
            }
            FileHandle::Closed => Err(closed()),
        }
    }

    pub fn is_block_device(&self) -> bool {
        self.0.facts.is_block_device
    }

    /// Sector sizes and the like, as they were when it was opened.
    pub fn facts(&self) -> FileFacts {
        self.0.facts
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The descriptor, for ioctls on the control path. None in simulation.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.handle {
            FileHandle::Kernel(fd) => Some(fd.as_fd()),
            FileHandle::Simulated(_) | FileHandle::Closed => None,
        }
    }

    /// Changes which calls may be made in line.
    pub fn set_inline(&self, inline: Inline) {
        let bits = u8::from(inline.reads) * INLINE_READS + u8::from(inline.writes) * INLINE_WRITES;
        self.0.inline.store(bits, Ordering::Relaxed);
    }

    /// Which calls may be made in line. At first: reads, unless the file is direct.
    pub fn inline(&self) -> Inline {
        let bits = self.0.inline.load(Ordering::Relaxed);
        Inline { reads: bits & INLINE_READS != 0, writes: bits & INLINE_WRITES != 0 }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        match &self.0.handle {
            FileHandle::Kernel(fd) => fd.as_raw_fd(),
            // EBADF on a port of a real kernel.
            FileHandle::Simulated(_) | FileHandle::Closed => -1,
        }
    }

    /// None for a file of a real kernel.
    pub(crate) fn sim_disk(&self) -> Option<&Arc<SimDisk>> {
        match &self.0.handle {
            FileHandle::Kernel(_) | FileHandle::Closed => None,
            FileHandle::Simulated(disk) => Some(disk),
        }
    }

    pub(crate) fn simulated(disk: Arc<SimDisk>, name: &str) -> File {
        let shape = disk.shape();
        let facts = FileFacts {
            is_block_device: !shape.growable,
            is_direct: false,
            is_read_only: false,
            is_in_memory: false,
            logical_sector: shape.sector,
            physical_sector: shape.sector,
            memory_align: 1,
            device: (0, 0),
        };
        File::wrap(FileHandle::Simulated(disk), PathBuf::from(name), facts)
    }
}

/// Whether a byte of a file is stored, and for how many bytes from there on that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// It is; else it is in a hole.
    pub is_data: bool,
    /// Bytes, at least one up to the end of the file.
    pub len: u64,
}

impl Run {
    /// As one number that is the result of an operation.
    pub(crate) fn to_result(self) -> u64 {
        (self.len.min(u64::MAX >> 2) << 1) | u64::from(self.is_data)
    }

    /// Decodes the result of [`crate::Reactor::map`].
    pub fn of_result(result: u64) -> Run {
        Run { is_data: result & 1 != 0, len: result >> 1 }
    }
}

/// The run of the file system's extent map at `offset`; no data is read. If the file system has no
/// map, or cannot read it, the file counts as data throughout. Blocks if the map must be read.
pub(crate) fn map(fd: BorrowedFd<'_>, offset: u64) -> rustix::io::Result<Run> {
    run(offset, |from| fs::seek(fd, from))
}

/// `seek` is the file's lseek(2). Its position is used by no other call.
fn run(
    offset: u64,
    seek: impl Fn(SeekFrom) -> Result<u64, rustix::io::Errno>,
) -> rustix::io::Result<Run> {
    let rest = || Ok::<u64, rustix::io::Errno>(seek(SeekFrom::End(0))?.saturating_sub(offset));
    let (is_data, len) = match seek(SeekFrom::Data(offset)) {
        Ok(data) if data > offset => (false, data - offset),
        Ok(_) => match seek(SeekFrom::Hole(offset)) {
            Ok(hole) if hole > offset => (true, hole - offset),
            // No map of holes, or the file was cut between the two calls.
            _ => (true, rest()?),
        },
        // No data up to the end, or the end itself.
        Err(rustix::io::Errno::NXIO) => (false, rest()?),
        // EINVAL, EOPNOTSUPP and others: the file system has no map, but data can be read.
        Err(_) => (true, rest()?),
    };
    Ok(Run { is_data, len })
}

/// Unit of direct I/O assumed for a file whose file system reports none: right for every disk.
const SECTOR_UNKNOWN: u32 = 4096;

fn facts(fd: &OwnedFd, how: OpenHow) -> io::Result<FileFacts> {
    let stat = fs::fstat(fd)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_block = kind == FileType::BlockDevice;
    if !is_block && kind != FileType::RegularFile {
        let what = "neither a file nor a block device";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let (logical, physical, memory) = if is_block {
        let logical = fs::ioctl_blksszget(fd)?;
        (logical, fs::ioctl_blkpbszget(fd)?, logical)
    } else {
        let (offset, memory) = direct_units(fd);
        let block = u32::try_from(stat.st_blksize).unwrap_or(SECTOR_UNKNOWN);
        (offset, block.max(offset), memory)
    };
    let number = if is_block { stat.st_rdev } else { stat.st_dev };
    Ok(FileFacts {
        is_block_device: is_block,
        is_direct: how.direct,
        is_read_only: how.read_only,
        is_in_memory: !is_block && is_in_memory(fd),
        logical_sector: logical,
        physical_sector: physical,
        memory_align: if how.direct { memory } else { 1 },
        device: (fs::major(number), fs::minor(number)),
    })
}

/// Numbers of file systems in memory (statfs(2)).
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

fn is_in_memory(fd: &OwnedFd) -> bool {
    // If `fstatfs` fails, the file counts as stored on a device.
    fs::fstatfs(fd).is_ok_and(|s| IN_MEMORY.contains(&(s.f_type as u32)))
}

/// Alignment of offsets and of memory for direct I/O on a file (statx, Linux 6.1).
fn direct_units(fd: &OwnedFd) -> (u32, u32) {
    let wanted = StatxFlags::DIOALIGN;
    match fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted) {
        Ok(s) if s.stx_mask & wanted.bits() != 0 && s.stx_dio_offset_align > 0 => {
            (s.stx_dio_offset_align, s.stx_dio_mem_align.max(1))
        }
        _ => (SECTOR_UNKNOWN, SECTOR_UNKNOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn file_without_hole_support_is_all_data() {
        let answers = |data: Result<u64, Errno>, hole: Result<u64, Errno>| {
            let seek = move |from| match from {
                SeekFrom::Data(_) => data,
                SeekFrom::Hole(_) => hole,
                _ => Ok(8192),
            };
            run(4096, seek).map(|run| (run.is_data, run.len))
        };
        assert_eq!(answers(Ok(6144), Ok(8192)), Ok((false, 2048)));
        assert_eq!(answers(Ok(4096), Ok(6144)), Ok((true, 2048)));
        assert_eq!(answers(Err(Errno::NXIO), Ok(8192)), Ok((false, 4096)));
        for no_map in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::IO] {
            assert_eq!(answers(Err(no_map), Err(no_map)), Ok((true, 4096)));
            assert_eq!(answers(Ok(4096), Err(no_map)), Ok((true, 4096)));
        }
        assert_eq!(answers(Ok(4096), Err(Errno::NXIO)), Ok((true, 4096)));
    }
}
