//! Folder of one test, removed with its value.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// See the module.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder. Each test of a program uses another name.
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ashlar-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
