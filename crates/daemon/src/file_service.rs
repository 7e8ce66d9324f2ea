//! Files of the daemon's file servers, for the page.

use std::time::{Duration, Instant};

use fileserver::{FileServers, OpenFile, compare};
use mgmt::api::Result;
use mgmt::{FileComparison, FileReader, FileService};
use serde_json::Value;

use crate::errors::from_geom;

/// The operation that errors name.
const READ: &str = "read files";

/// Longest search for the smallest difference between two texts; after that, a larger one is shown.
const SEARCH_MAX: Duration = Duration::from_secs(2);

/// See the module.
pub struct ServedFiles(pub FileServers);

/// An open file of a file server.
struct ServedFile(OpenFile);

impl FileReader for ServedFile {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn mtime_ns(&self) -> u64 {
        self.0.mtime_ns()
    }

    fn read(&mut self) -> Result<Vec<u8>> {
        self.0.read().map_err(|e| from_geom(READ, self.0.path(), e))
    }
}

impl FileService for ServedFiles {
    fn servers(&self) -> Vec<String> {
        self.0.names()
    }

    fn query(&self, server: &str, verb: &str, params: &Value) -> Result<Value> {
        self.0.query(server, verb, params).map_err(|e| from_geom(READ, server, e))
    }

    fn open(&self, server: &str, path: &str) -> Result<Box<dyn FileReader>> {
        let file = self.0.open(server, path).map_err(|e| from_geom(READ, path, e))?;
        Ok(Box::new(ServedFile(file)))
    }

    fn compare(&self, server: &str, old: &str, new: &str) -> Result<FileComparison> {
        let open = |path: &str| self.0.open(server, path).map_err(|e| from_geom(READ, path, e));
        let (mut first, mut second) = (open(old)?, open(new)?);
        let search_end = || Instant::now().checked_add(SEARCH_MAX);
        let found = compare(&mut first, &mut second, search_end);
        let found = found.map_err(|e| from_geom(READ, server, e))?;
        Ok(FileComparison {
            sizes: [first.size(), second.size()],
            mtimes_ns: [first.mtime_ns(), second.mtime_ns()],
            first_difference: found.first_difference,
            compared: found.compared,
            text: found.text,
        })
    }
}
