//! The configurations applied, newest kept: `NUMBER-SECONDS.toml` in one folder, mode 0600.

use crate::api::{Error, Kind, Result};
use crate::config::{CONFIG_BYTES_MAX, Catalog, Config, read, write};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// One configuration kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Archived {
    /// Its number; grows with every one.
    pub number: u64,
    /// When it was applied, in seconds since 1970.
    pub applied_unix_s: u64,
    /// Size of its text, in bytes.
    pub bytes: u64,
    /// Where it is.
    pub path: String,
}

/// See the module.
pub struct Archive {
    folder: PathBuf,
    kept_max: usize,
}

impl Archive {
    /// An archive in `folder`, which is made when first needed, of the newest `kept`.
    pub fn new(folder: &Path, kept: u32) -> Archive {
        let kept = usize::try_from(kept).unwrap_or(usize::MAX).max(1);
        Archive { folder: folder.to_owned(), kept_max: kept }
    }

    fn fail(&self, e: std::io::Error) -> Error {
        Error::new(Kind::System, "archive", e).at(self.folder.display().to_string())
    }

    /// The archived configurations, oldest first. Files that are not ours are left out.
    ///
    /// # Errors
    /// [`Kind::System`] when the folder is there and cannot be read.
    pub fn list(&self) -> Result<Vec<Archived>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| self.fail(e))?,
        };
        let mut list: Vec<Archived> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name().into_string().ok()?;
                let (number, seconds) = name.strip_suffix(".toml")?.split_once('-')?;
                Some(Archived {
                    number: number.parse().ok()?,
                    applied_unix_s: seconds.parse().ok()?,
                    bytes: entry.metadata().ok()?.len(),
                    path: entry.path().display().to_string(),
                })
            })
            .collect();
        list.sort_by_key(|a| a.number);
        Ok(list)
    }

    /// Adds one and forgets the oldest beyond the number kept.
    ///
    /// # Errors
    /// [`Kind::System`].
    pub fn keep(&self, config: &Config) -> Result<Archived> {
        let mut folder = fs::DirBuilder::new();
        folder.recursive(true).mode(0o700);
        folder.create(&self.folder).map_err(|e| self.fail(e))?;
        let mut list = self.list()?;
        let number = list.last().map_or(0, |a| a.number) + 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let path = self.folder.join(format!("{number:06}-{now}.toml"));
        let partial = self.folder.join("partial");
        let text = write(config);
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&partial).map_err(|e| self.fail(e))?;
        file.write_all(text.as_bytes()).map_err(|e| self.fail(e))?;
        file.sync_all().map_err(|e| self.fail(e))?;
        fs::rename(&partial, &path).map_err(|e| self.fail(e))?;
        let archived = Archived {
            number,
            applied_unix_s: now,
            bytes: u64::try_from(text.len()).unwrap_or(u64::MAX),
            path: path.display().to_string(),
        };
        list.push(archived.clone());
        let beyond = list.len().saturating_sub(self.kept_max);
        for old in list.iter().take(beyond) {
            fs::remove_file(&old.path).map_err(|e| self.fail(e))?;
        }
        Ok(archived)
    }

    /// The newest one, if there is one that can be read.
    pub fn newest(&self, catalog: &Catalog) -> Option<Config> {
        let number = self.list().ok()?.last()?.number;
        self.load(number, catalog).ok()
    }

    /// The configuration of that number.
    ///
    /// # Errors
    /// [`Kind::NoHistory`], [`Kind::System`], and those of `read` when the file was edited.
    pub fn load(&self, number: u64, catalog: &Catalog) -> Result<Config> {
        let list = self.list()?;
        let Some(found) = list.iter().find(|a| a.number == number) else {
            let why = format!("no configuration {number} is kept");
            return Err(Error::new(Kind::NoHistory, "history", why));
        };
        if found.bytes > u64::try_from(CONFIG_BYTES_MAX).unwrap_or(u64::MAX) {
            let why = format!("longer than {CONFIG_BYTES_MAX} bytes");
            return Err(Error::new(Kind::Limit, "history", why).at(found.path.clone()));
        }
        let text = fs::read_to_string(&found.path).map_err(|e| self.fail(e))?;
        read(&text, &found.path, catalog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::catalog;
    use testkit::Folder;

    #[test]
    fn archive_keeps_the_newest_configurations() {
        let folder = Folder::new("archive");
        let archive = Archive::new(&folder, 3);
        assert_eq!(archive.list(), Ok(vec![]));
        let mut config = Config::default();
        for cores in 1..=5 {
            config.daemon.cores = Some(cores);
            archive.keep(&config).expect("kept");
        }
        let numbers: Vec<u64> = archive.list().expect("list").iter().map(|a| a.number).collect();
        assert_eq!(numbers, [3, 4, 5]);
        let loaded = archive.load(4, &catalog()).expect("number 4");
        assert_eq!(loaded.daemon.cores, Some(4));
        assert_eq!(archive.load(2, &catalog()).expect_err("gone").kind, Kind::NoHistory);
    }
}
