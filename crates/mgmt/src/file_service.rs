//! Files of file servers, as the page reads them: interface of the daemon.
//!
//! Any thread that may wait can make these calls at any time. They change nothing, and wait for
//! neither other commands nor the control thread. Permissions of files are not checked.

use crate::api::{Error, Kind, Result};
use serde_json::Value;

/// A file that is read from start to end, as it was when it was opened.
pub trait FileReader: Send {
    /// Its size, in bytes.
    fn size(&self) -> u64;

    /// Time of the last change of its contents, in nanoseconds since 1970.
    fn mtime_ns(&self) -> u64;

    /// The next bytes, a piece of bounded size; none at the end.
    ///
    /// # Errors
    /// The file has changed since it was opened, or cannot be read.
    fn read(&mut self) -> Result<Vec<u8>>;
}

/// Two files of one file server, compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileComparison {
    /// Size of the older and of the newer file, in bytes.
    pub sizes: [u64; 2],
    /// Times of their last change, in nanoseconds since 1970.
    pub mtimes_ns: [u64; 2],
    /// Position of the first byte that differs; `None`: no difference was found.
    pub first_difference: Option<u64>,
    /// Bytes of each file that were compared: of large files not all.
    pub compared: u64,
    /// Differences in the format of `diff -u`; `None`: a file is not text, or is too large.
    pub text: Option<String>,
}

/// See the module.
pub trait FileService: Send + Sync {
    /// Names of the file servers.
    fn servers(&self) -> Vec<String>;

    /// The answer of a verb that changes nothing: `dumps`, `history`, `ls` or `who`.
    ///
    /// # Errors
    /// Those of the verb; [`Kind::NotFound`]: there is no such file server.
    fn query(&self, server: &str, verb: &str, params: &Value) -> Result<Value>;

    /// Opens a file by its path: `/lib/profile`, or `/dump/2026/1121/lib/profile` of a dump.
    ///
    /// # Errors
    /// [`Kind::NotFound`]: there is no such file or file server.
    fn open(&self, server: &str, path: &str) -> Result<Box<dyn FileReader>>;

    /// Compares two files by their paths.
    ///
    /// # Errors
    /// Those of [`FileService::open`] and [`FileReader::read`].
    fn compare(&self, server: &str, old: &str, new: &str) -> Result<FileComparison>;
}

/// A daemon without file servers.
pub struct NoFiles;

fn none(server: &str) -> Error {
    let next = "Run `ashlar fs status` to see the file servers.";
    Error::new(Kind::NotFound, "read files", "there is no such file server").at(server).next(next)
}

impl FileService for NoFiles {
    fn servers(&self) -> Vec<String> {
        Vec::new()
    }

    fn query(&self, server: &str, _: &str, _: &Value) -> Result<Value> {
        Err(none(server))
    }

    fn open(&self, server: &str, _: &str) -> Result<Box<dyn FileReader>> {
        Err(none(server))
    }

    fn compare(&self, server: &str, _: &str, _: &str) -> Result<FileComparison> {
        Err(none(server))
    }
}
