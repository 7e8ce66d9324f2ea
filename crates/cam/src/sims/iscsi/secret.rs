//! Sources of a bus's secrets: `file:PATH`, `credential:NAME` (systemd), or the text itself.

use std::path::{Path, PathBuf};

/// Longest secret, bytes.
const SECRET_MAX: usize = 1024;

/// The secret behind a reference. A line end at the end of a file is not part of it.
pub(super) fn read(reference: &str) -> Result<Vec<u8>, String> {
    let path = if let Some(path) = reference.strip_prefix("file:") {
        PathBuf::from(path)
    } else if let Some(name) = reference.strip_prefix("credential:") {
        let folder = std::env::var_os("CREDENTIALS_DIRECTORY");
        let folder = folder.ok_or("systemd passed no credentials")?;
        let plain = !name.is_empty() && !name.contains('/') && name != "..";
        let name = Some(name).filter(|_| plain).ok_or("not the name of a credential")?;
        Path::new(&folder).join(name)
    } else {
        return Ok(reference.as_bytes().to_vec());
    };
    let secret = bio::read_regular(&path, SECRET_MAX as u64 + 2);
    let mut secret = secret.map_err(|e| format!("{}: {e}", path.display()))?;
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
