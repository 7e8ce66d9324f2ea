//! Regular files that a configuration or a command names: opened without waiting, read in part.
//!
//! Invariants
//!  F1  Opening never waits: a FIFO is refused instead of waiting for its writer.
//!  F2  A device is not opened, because opening some devices has effects: its kind is looked at
//!      before, and again once it is open.

use std::ffi::OsString;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::read_ahead::read_source;

/// Opens a regular file for reading.
///
/// # Errors
/// Those of the system; `InvalidInput` for another kind of file.
pub fn open_regular(path: &Path) -> Result<(File, Metadata)> {
    open(path, FileType::is_file, "not a regular file")
}

/// Opens a regular file or a block device for reading.
///
/// # Errors
/// As [`open_regular`].
pub fn open_image(path: &Path) -> Result<(File, Metadata)> {
    let fits = |kind: &FileType| kind.is_file() || kind.is_block_device();
    open(path, fits, "neither a regular file nor a block device")
}

/// At most the first `max` bytes of a regular file.
///
/// # Errors
/// As [`open_regular`].
pub fn read_regular(path: &Path, max: u64) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    open_regular(path)?.0.take(max).read_to_end(&mut out)?;
    Ok(out)
}

/// Beginning of a text that names a credential of the service manager, instead of a path.
const CREDENTIAL: &str = "credential:";

/// The path of a credential that the service manager has passed to this process.
///
/// # Errors
/// `InvalidInput` for a name that is not one of a file, `NotFound` if no credentials were passed.
pub fn credential_path(name: &str) -> Result<PathBuf> {
    path_in(std::env::var_os("CREDENTIALS_DIRECTORY"), name)
}

fn path_in(folder: Option<OsString>, name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.contains('/') || name == ".." {
        return Err(Error::new(ErrorKind::InvalidInput, "a credential is named without slashes"));
    }
    let why = "systemd passed no credentials ($CREDENTIALS_DIRECTORY is not set)";
    let folder = folder.ok_or_else(|| Error::new(ErrorKind::NotFound, why))?;
    Ok(Path::new(&folder).join(name))
}

/// The path of a file that a text names: a path, or `credential:NAME`.
///
/// # Errors
/// Those of [`credential_path`].
pub fn named_path(text: &str) -> Result<PathBuf> {
    match text.strip_prefix(CREDENTIAL) {
        Some(name) => credential_path(name),
        None => Ok(PathBuf::from(text)),
    }
}

/// At most the first `max` bytes of a regular file that a text names, as [`named_path`].
///
/// # Errors
/// As [`named_path`] and [`read_source`].
pub fn read_named(text: &str, max: u64) -> Result<Vec<u8>> {
    Ok(read_source(&named_path(text)?, max)?.bytes)
}

fn open(path: &Path, fits: impl Fn(&FileType) -> bool, why: &str) -> Result<(File, Metadata)> {
    let checked = |about: Metadata| match fits(&about.file_type()) {
        true => Ok(about),
        false => Err(Error::new(ErrorKind::InvalidInput, why)),
    };
    // F2.
    checked(std::fs::metadata(path)?)?;
    // F1: a FIFO may have replaced the file meanwhile.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let about = checked(file.metadata()?)?;
    Ok((file, about))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// F1, F2.
    #[test]
    fn credentials_are_in_the_folder_of_the_service_manager() {
        let folder = || Some(OsString::from("/run/credentials/ashlar.service"));
        let path = path_in(folder(), "api.key").expect("a name");
        assert_eq!(path, Path::new("/run/credentials/ashlar.service/api.key"));
        for wrong in ["", "..", "../shadow", "/etc/shadow"] {
            let error = path_in(folder(), wrong).expect_err(wrong);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{wrong}");
        }
        assert_eq!(path_in(None, "api.key").expect_err("none").kind(), ErrorKind::NotFound);
        assert_eq!(named_path("keys/a.pem").expect("a path"), Path::new("keys/a.pem"));
        assert!(named_path("credential:a/b").is_err());
    }

    #[test]
    fn f1_fifo_devices_and_folders_are_refused_without_waiting() {
        let folder = std::env::temp_dir().join(format!("bio-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        let path = folder.join("file");
        std::fs::write(&path, "contents").expect("a scratch file");
        assert_eq!(read_regular(&path, 4).expect("readable"), b"cont");
        assert!(open_image(&path).is_ok_and(|(_, about)| about.len() == 8));
        let fifo = folder.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
        assert!(made.success());
        for other in [fifo.as_path(), folder.as_path(), Path::new("/dev/null")] {
            let error = read_regular(other, 4).expect_err("of another kind");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), "not a regular file");
            let error = open_image(other).expect_err("of another kind");
            assert_eq!(error.to_string(), "neither a regular file nor a block device");
        }
        let error = read_regular(&folder.join("none"), 4).expect_err("absent");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }
}
