//! Places of secrets: `file:PATH`, `credential:NAME` (systemd), or, discouraged, the text itself.

use crate::api::{Error, Kind, Result};
use std::path::PathBuf;

/// Longest secret, in bytes. Longer files are refused: they are not secrets.
pub const SECRET_BYTES_MAX: usize = 1024;

/// Shortest CHAP secret, in bytes. Shorter ones are refused.
pub const CHAP_BYTES_MIN: usize = wire::iscsi::SECRET_LEN_MIN;

/// Placeholder for a secret that is not shown. It is shorter than a secret may be, and a document
/// that contains it is refused.
pub const HIDDEN_SECRET: &str = "(hidden)";

/// Whether the configuration contains the secret itself.
pub fn is_literal(reference: &str) -> bool {
    !reference.starts_with("file:") && !reference.starts_with("credential:")
}

/// Whether only the daemon can read the secret: it is a credential, and this process has none.
pub fn is_out_of_reach(reference: &str) -> bool {
    reference.starts_with("credential:") && std::env::var_os("CREDENTIALS_DIRECTORY").is_none()
}

/// Whether a file of this mode keeps a secret from other users. The service manager may admit the
/// daemon to a credential by an access control list, whose mask is in the bits of the group.
fn is_private(reference: &str, mode: u32) -> bool {
    let foreign = if reference.starts_with("credential:") { 0o007 } else { 0o077 };
    mode & foreign == 0
}

/// The file a reference names; `None` for a literal.
///
/// # Errors
/// [`Kind::Secret`] when a credential is named and systemd passed none.
pub fn path(reference: &str) -> Result<Option<PathBuf>> {
    if let Some(path) = reference.strip_prefix("file:") {
        return Ok(Some(PathBuf::from(path)));
    }
    let Some(name) = reference.strip_prefix("credential:") else {
        return Ok(None);
    };
    let refused = |e| Error::new(Kind::Secret, "read secret", e).at(reference);
    bio::credential_path(name).map(Some).map_err(refused)
}

/// The secret behind a reference. A line end at the end of a file is not part of it.
///
/// # Errors
/// [`Kind::Secret`] when it cannot be read, is empty or longer than [`SECRET_BYTES_MAX`], or when
/// its file may be read by anyone but its owner.
pub fn resolve(reference: &str) -> Result<Vec<u8>> {
    let Some(path) = path(reference)? else {
        return Ok(reference.as_bytes().to_vec());
    };
    let refuse = |why: String| Error::new(Kind::Secret, "read secret", why).at(reference);
    let limit = u64::try_from(SECRET_BYTES_MAX + 2).unwrap_or(u64::MAX);
    let read = bio::read_source(&path, limit).map_err(|e| refuse(e.to_string()))?;
    let bio::Contents { bytes: mut secret, mode } = read;
    if !is_private(reference, mode) {
        let fix = format!("chmod 600 {}", path.display());
        let why = format!("mode is {:04o}: other users can read it", mode & 0o7777);
        return Err(refuse(why).next(format!("Run `{fix}`.")));
    }
    while secret.last().is_some_and(|&b| b == b'\n' || b == b'\r') {
        secret.pop();
    }
    match secret.len() {
        0 => Err(refuse("empty".to_owned())),
        n if n > SECRET_BYTES_MAX => Err(refuse(format!("longer than {SECRET_BYTES_MAX} bytes"))),
        _ => Ok(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secret_files_must_be_private_and_short() {
        let path = std::env::temp_dir().join(format!("ashlar-secret-{}", std::process::id()));
        std::fs::write(&path, "0123456789ab\n").expect("scratch file");
        let reference = format!("file:{}", path.display());
        let mode = |m| std::fs::set_permissions(&path, PermissionsExt::from_mode(m)).expect("mode");
        mode(0o644);
        let error = resolve(&reference).expect_err("others can read it");
        assert_eq!(error.kind, Kind::Secret);
        assert!(error.advice().contains("chmod 600"), "{error}");
        mode(0o600);
        assert_eq!(resolve(&reference), Ok(b"0123456789ab".to_vec()));
        std::fs::write(&path, vec![b'x'; 4096]).expect("scratch file");
        assert_eq!(resolve(&reference).expect_err("too long").kind, Kind::Secret);
        std::fs::remove_file(&path).expect("scratch file");
        assert_eq!(resolve(&reference).expect_err("gone").kind, Kind::Secret);
        let status = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(status.success());
        let error = resolve(&reference).expect_err("it would wait for a writer");
        assert!(error.to_string().contains("not a regular file"), "{error}");
        std::fs::remove_file(&path).expect("scratch FIFO");
    }

    #[test]
    fn credential_that_an_access_control_list_opens_to_the_daemon_is_private() {
        for (reference, mode, expected) in [
            ("credential:web", 0o100400, true),
            ("credential:web", 0o100440, true),
            ("credential:web", 0o100444, false),
            ("file:/etc/ashlar/web", 0o100600, true),
            ("file:/etc/ashlar/web", 0o100440, false),
        ] {
            assert_eq!(is_private(reference, mode), expected, "{reference} {mode:o}");
        }
    }

    #[test]
    fn literals_are_resolved_and_credential_paths_refused() {
        assert!(is_literal("swordfish") && !is_literal("file:/x") && !is_literal("credential:a"));
        assert_eq!(resolve("swordfish"), Ok(b"swordfish".to_vec()));
        assert_eq!(resolve("credential:../x").expect_err("slash").kind, Kind::Secret);
    }
}
