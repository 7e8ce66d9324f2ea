//! Owner, group and mode of the file of a Unix socket: who of this machine may connect.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, lchown};
use std::path::Path;

use super::params::NbdParams;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// Highest mode: reading, writing and executing for all.
const MODE_MAX: u32 = 0o777;

/// Owner, group and mode of a socket's file; `None` keeps the value of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketFile {
    owner: Option<u32>,
    group: Option<u32>,
    mode: Option<u32>,
}

impl SocketFile {
    /// From the parameters of a target; an error names the wrong one.
    pub fn of(params: &NbdParams) -> Result<SocketFile, String> {
        let mode = match params.socket_mode.as_str() {
            "" => None,
            text => Some(mode(text)?),
        };
        Ok(SocketFile {
            owner: number("socket_owner", &params.socket_owner, "user", USERS)?,
            group: number("socket_group", &params.socket_group, "group", GROUPS)?,
            mode,
        })
    }

    /// Gives it to the socket at a path.
    pub fn apply(&self, path: &Path) -> io::Result<()> {
        if *self == SocketFile::default() {
            return Ok(());
        }
        let fails = |what: String, e: io::Error| {
            io::Error::new(e.kind(), format!("socket {}: {what}: {e}", path.display()))
        };
        // Another process may have put something else in its place.
        let kind = fs::symlink_metadata(path).map_err(|e| fails("inspect".into(), e))?.file_type();
        if !kind.is_socket() {
            let what = format!("socket {}: the path is not a socket any more", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if self.owner.is_some() || self.group.is_some() {
            let id_text = |id: Option<u32>| id.map_or(String::new(), |id| id.to_string());
            let what = format!("change owner to {}:{}", id_text(self.owner), id_text(self.group));
            lchown(path, self.owner, self.group).map_err(|e| fails(what, e))?;
        }
        if let Some(mode) = self.mode {
            let what = format!("change mode to {mode:04o}");
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|e| fails(what, e))?;
        }
        Ok(())
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= MODE_MAX && !digits.starts_with('+') => Ok(mode),
        _ => Err(format!("socket_mode = {text:?}: it must be octal, \"0\" to \"0777\"")),
    }
}

/// The number of a user or group: given itself, or by its name in `file`.
fn number(key: &str, given: &str, what: &str, file: &str) -> Result<Option<u32>, String> {
    if given.is_empty() {
        return Ok(None);
    }
    if let Ok(number) = given.parse::<u32>() {
        // -1 means "leave as it is" to the kernel.
        return match number {
            u32::MAX => Err(format!("{key} = {given:?}: no {what} has this number")),
            number => Ok(Some(number)),
        };
    }
    let text = fs::read_to_string(file).map_err(|e| format!("{key} = {given:?}: {file}: {e}"))?;
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(given)).then(|| fields.nth(1)?.parse().ok())?
    });
    let none = || format!("{key} = {given:?}: {file} has no such {what}; next: give its number");
    found.ok_or_else(none).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(owner: &str, group: &str, mode: &str) -> Result<SocketFile, String> {
        SocketFile::of(&NbdParams {
            socket_owner: owner.into(),
            socket_group: group.into(),
            socket_mode: mode.into(),
            ..NbdParams::default()
        })
    }

    #[test]
    fn owner_group_and_mode_are_parsed() {
        let all = |owner, group, mode| SocketFile { owner, group, mode };
        assert_eq!(of("", "", ""), Ok(SocketFile::default()));
        assert_eq!(of("root", "7", "0660"), Ok(all(Some(0), Some(7), Some(0o660))));
        assert_eq!(of("", "root", "0o777"), Ok(all(None, Some(0), Some(0o777))));
        for (bad, word) in [
            (of("no-such-user", "", ""), "/etc/passwd"),
            (of("", "no-such-group", ""), "/etc/group"),
            (of("4294967295", "", ""), "socket_owner"),
            (of("", "", "0888"), "octal"),
            (of("", "", "01777"), "0777"),
            (of("", "", "+77"), "octal"),
        ] {
            assert!(bad.clone().is_err_and(|e| e.contains(word)), "{bad:?}");
        }
    }
}
