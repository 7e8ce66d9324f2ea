//! Sources of a bus's secrets: `file:PATH`, `credential:NAME` (systemd), or the text itself.

use std::path::PathBuf;

/// Longest secret, bytes.
const SECRET_MAX: usize = 1024;

/// The secret behind a reference. A line end at the end of a file is not part of it.
pub(super) fn read(reference: &str) -> Result<Vec<u8>, String> {
    let path = if let Some(path) = reference.strip_prefix("file:") {
        PathBuf::from(path)
    } else if let Some(name) = reference.strip_prefix("credential:") {
        bio::credential_path(name).map_err(|e| e.to_string())?
    } else {
        return Ok(reference.as_bytes().to_vec());
    };
    let secret = bio::read_source(&path, SECRET_MAX as u64 + 2);
    let mut secret = secret.map_err(|e| format!("{}: {e}", path.display()))?.bytes;
    while secret.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        secret.pop();
    }
    match secret.len() {
        1..=SECRET_MAX => Ok(secret),
        n => Err(format!(
            "{}: bad length of a secret ({n} bytes, must be 1 to {SECRET_MAX})",
            path.display()
        )),
    }
}
