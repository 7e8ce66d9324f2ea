//! Backing store of a logical unit of the bare responder.

use std::fs::File;
use std::os::unix::fs::FileExt;

use bio::sync::Mutex;

use crate::error::Error;
use crate::servers::MEMORY_BYTES;

pub(super) const BLOCK: u64 = 512;

pub(super) enum Unit {
    /// Reads are answered from one buffer of zeroes, writes are dropped.
    Null,
    /// Every request's bytes are copied out of it and into it: the floor of a target that keeps
    /// data.
    Memory(Mutex<Vec<u8>>),
    /// One `pread` or `pwrite` a request, through the page cache.
    File(File, u64),
}

impl Unit {
    pub(super) fn memory() -> Unit {
        Unit::Memory(Mutex::new(vec![0u8; MEMORY_BYTES as usize]))
    }

    pub(super) fn file(path: &str) -> Result<Unit, Error> {
        let failed = |e| Error::system(path, e);
        let file = File::options().read(true).write(true).open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Unit::File(file, bytes))
    }

    pub(super) fn blocks(&self) -> u64 {
        match self {
            Unit::Null | Unit::Memory(_) => MEMORY_BYTES / BLOCK,
            Unit::File(_, bytes) => bytes / BLOCK,
        }
    }

    /// Fills `to` with the data at byte `at`; with zeroes where there is none.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        match self {
            Unit::Null => to.fill(0),
            Unit::Memory(memory) => {
                let memory = memory.lock();
                match usize::try_from(at).ok().and_then(|at| memory.get(at..at + to.len())) {
                    Some(bytes) => to.copy_from_slice(bytes),
                    None => to.fill(0),
                }
            }
            Unit::File(file, _) => {
                file.read_exact_at(to, at).map_err(|e| Error::system("read of the file", e))?;
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, at: u64, data: &[u8]) -> Result<(), Error> {
        match self {
            Unit::Null => {}
            Unit::Memory(memory) => {
                let mut memory = memory.lock();
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                if let Some(to) = memory.get_mut(at..at.saturating_add(data.len())) {
                    to.copy_from_slice(data);
                }
            }
            Unit::File(file, _) => {
                file.write_all_at(data, at).map_err(|e| Error::system("write of the file", e))?;
            }
        }
        Ok(())
    }

    /// SYNCHRONIZE CACHE.
    pub(super) fn flush(&self) -> Result<(), Error> {
        match self {
            Unit::File(file, _) => file.sync_data().map_err(|e| Error::system("fdatasync", e)),
            Unit::Null | Unit::Memory(_) => Ok(()),
        }
    }
}
