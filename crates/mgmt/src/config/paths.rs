//! Paths in a configuration. Relative ones are below the folder of the file that has them,
//! regardless of the folder in which the daemon was started.

use super::types::Config;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Keys that name the files of TLS, in sections of targets, disks and file servers.
pub const TLS_FILE_KEYS: [&str; 4] = ["tls_ca", "tls_certificate", "tls_key", "tls_client_ca"];

/// The key of `[daemon]` that lists folders with files that are only read.
const READ_FOLDERS_KEY: &str = "sandbox_read_folders";

/// Keys of `[daemon]` that list folders.
const LIST_KEYS: [&str; 2] = ["sandbox_folders", READ_FOLDERS_KEY];

/// Keys of `[daemon]` that name a folder instead of a file.
const FOLDER_KEYS: [&str; 2] = ["state", "history"];

/// Other keys whose texts are paths, in every section.
const PATH_KEYS: [&str; 2] = ["path", "socket"];

/// Prefix of a text that names a file in any setting.
const FILE_PREFIX: &str = "file:";

/// Prefix of a text that names a credential.
const CREDENTIAL_PREFIX: &str = "credential:";

/// Prefix of the path of a socket in the texts and lists of [`SOCKET_KEYS`]. In other keys it
/// begins the name of an initiator.
const SOCKET_PREFIX: &str = "unix:";

/// Keys of targets, groups, disks and file servers that take addresses.
const SOCKET_KEYS: [&str; 8] =
    ["listen", "portals", "address", "linux", "linux_tls", "plan9", "plan9_tls", "console"];

/// Makes the paths absolute; `file` is where the configuration was read.
pub(super) fn make_absolute(config: Config, file: &str) -> Config {
    // Only a process without a working folder has no absolute path.
    let Ok(file) = std::path::absolute(file) else { return config };
    let Some(folder) = file.parent() else { return config };
    let Ok(mut value) = serde_json::to_value(&config) else { return config };
    walk(&mut value, "", &mut |_, prefix, text| {
        let path = absolute_path(folder, text.get(prefix.len()..).unwrap_or_default());
        *text = format!("{prefix}{}", path.display());
    });
    Config::deserialize(&value).unwrap_or(config)
}

/// Calls `visit` with the key, the prefix and the whole text of each path.
fn walk(value: &mut Value, key: &str, visit: &mut impl FnMut(&str, &str, &mut String)) {
    match value {
        Value::Object(fields) => {
            // The `state` of a target port group is no path.
            let others = fields.iter_mut().filter(|(key, _)| *key != "alua");
            others.for_each(|(key, v)| walk(v, key, visit));
        }
        Value::Array(list) => {
            let is_kept = SOCKET_KEYS.contains(&key) || LIST_KEYS.contains(&key);
            let key = if is_kept { key } else { "" };
            list.iter_mut().for_each(|v| walk(v, key, visit));
        }
        Value::String(text) => {
            let is_socket = SOCKET_KEYS.contains(&key) && text.len() > SOCKET_PREFIX.len();
            if text.starts_with(FILE_PREFIX) {
                visit(key, FILE_PREFIX, text);
            } else if is_socket && text.starts_with(SOCKET_PREFIX) {
                visit(key, SOCKET_PREFIX, text);
            } else if is_path(key) && !text.is_empty() && !is_credential(key, text) {
                visit(key, "", text);
            }
        }
        _ => {}
    }
}

/// Folders that contain images, devices, Unix sockets, state and history of the configuration; of a
/// symbolic link that of the file. Folders of files that are only read (TLS, secrets) are left out.
pub fn writable_folders(config: &Config) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let Ok(mut value) = serde_json::to_value(config) else { return folders };
    walk(&mut value, "", &mut |key, prefix, text| {
        let is_read = prefix == FILE_PREFIX || TLS_FILE_KEYS.contains(&key);
        if is_read || key == READ_FOLDERS_KEY {
            return;
        }
        let path = Path::new(text.get(prefix.len()..).unwrap_or_default());
        if is_folder(key) {
            folders.insert(path.to_owned());
        } else {
            let real = path.canonicalize();
            let path = real.as_deref().unwrap_or(path);
            folders.extend(path.parent().map(Path::to_owned));
        }
    });
    folders
}

/// Folders that contain the files of a configuration, or of a part of it, those that are only read
/// too. A symbolic link has its own folder and that of the file: another file may replace it.
pub fn readable_folders(part: &impl Serialize) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let Ok(mut value) = serde_json::to_value(part) else { return folders };
    walk(&mut value, "", &mut |key, prefix, text| {
        let path = Path::new(text.get(prefix.len()..).unwrap_or_default());
        if is_folder(key) {
            folders.insert(path.to_owned());
            return;
        }
        let real = path.canonicalize().ok();
        let both = [Some(path), real.as_deref()].into_iter().flatten();
        folders.extend(both.filter_map(Path::parent).map(Path::to_owned));
    });
    folders
}

/// Whether a key names a folder, in whose contents files are found.
fn is_folder(key: &str) -> bool {
    FOLDER_KEYS.contains(&key) || LIST_KEYS.contains(&key)
}

fn is_path(key: &str) -> bool {
    PATH_KEYS.contains(&key) || is_folder(key) || TLS_FILE_KEYS.contains(&key)
}

/// Whether a text names a credential of the service manager instead of a file of TLS.
fn is_credential(key: &str, text: &str) -> bool {
    TLS_FILE_KEYS.contains(&key) && text.starts_with(CREDENTIAL_PREFIX)
}

fn absolute_path(folder: &Path, path: &str) -> PathBuf {
    // Of an absolute path nothing else is left; `./` is dropped.
    let path = Path::new(path);
    folder.join(path.strip_prefix(".").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, read};
    use super::{readable_folders, writable_folders};
    use crate::fake::catalog;
    use schemars::JsonSchema;
    use serde::Deserialize;

    #[test]
    fn relative_paths_are_below_the_folder_of_their_file() {
        let text = "[daemon]\nstate = 'st'\nsocket = '/run/a.sock'\n\
                    [[disk]]\nname = 'd0'\nkind = 'file'\npath = './images/d0'\n\
                    [[disk]]\nname = 'd1'\nkind = 'file'\npath = '/srv/d1'\n\
                    [[target]]\nname = 'iqn.2026-11.a:t'\ndriver = 'iscsi'\n\
                    listen = ['[::]:3260', 'unix:t.sock']\n\
                    chap = { user = 'u', secret = 'file:chap/u' }\n";
        let config = read(text, "/etc/ashlar/ashlar.toml", &catalog()).expect("well-formed");
        assert_eq!(config.daemon.state.as_deref(), Some("/etc/ashlar/st"));
        assert_eq!(config.daemon.socket.as_deref(), Some("/run/a.sock"));
        let path = |name: &str| config.disk(name).expect("a disk").params["path"].clone();
        assert_eq!((path("d0"), path("d1")), ("/etc/ashlar/images/d0".into(), "/srv/d1".into()));
        assert_eq!(config.target[0].listen, ["[::]:3260", "unix:/etc/ashlar/t.sock"]);
        let chap = config.target[0].chap.as_ref().expect("an account");
        assert_eq!(chap.secret, "file:/etc/ashlar/chap/u");
        let folder = std::env::current_dir().expect("a folder");
        let config = read(text, "ashlar.toml", &catalog()).expect("well-formed");
        assert_eq!(config.daemon.state, Some(folder.join("st").display().to_string()));
    }

    #[test]
    fn writable_folders_contain_no_files_that_are_only_read() {
        let text = "[daemon]\nstate = '/var/st'\nhistory = '/var/hi'\nsocket = '/run/x/a.sock'\n\
                    sandbox = true\nsandbox_folders = ['/opt/pool', 'more']\n\
                    [[disk]]\nname = 'd0'\nkind = 'file'\npath = 'images/d0'\n\
                    [[target]]\nname = 'iqn.2026-11.a:t'\ndriver = 'iscsi'\n\
                    listen = ['[::]:3260', 'unix:/srv/portals/t.sock']\n\
                    chap = { user = 'u', secret = 'file:/etc/chap/u' }\n";
        let config = read(text, "/etc/ashlar/ashlar.toml", &catalog()).expect("well-formed");
        let folders = writable_folders(&config);
        let folders: Vec<&str> = folders.iter().filter_map(|folder| folder.to_str()).collect();
        let expected = [
            "/etc/ashlar/images",
            "/etc/ashlar/more",
            "/opt/pool",
            "/run/x",
            "/srv/portals",
            "/var/hi",
            "/var/st",
        ];
        assert_eq!(folders, expected);
    }

    #[test]
    fn readable_folders_contain_those_of_secrets_and_certificates() {
        let text = "[daemon]\nstate = '/var/st'\nsandbox = true\n\
                    sandbox_read_folders = ['tls', '/srv/keys']\n\
                    [api]\nlisten = ['127.0.0.1:7320']\ntls_certificate = '/srv/api/a.pem'\n\
                    tls_key = 'credential:api.key'\n\
                    [[target]]\nname = 'iqn.2026-11.a:t'\ndriver = 'iscsi'\n\
                    listen = ['[::]:3260']\n\
                    chap = { user = 'u', secret = 'file:/srv/chap/u' }\n";
        let config = read(text, "/etc/ashlar/ashlar.toml", &catalog()).expect("well-formed");
        let folders = readable_folders(&config);
        let folders: Vec<&str> = folders.iter().filter_map(|folder| folder.to_str()).collect();
        let expected = ["/etc/ashlar/tls", "/srv/api", "/srv/chap", "/srv/keys", "/var/st"];
        assert_eq!(folders, expected);
        assert_eq!(writable_folders(&config).len(), 1, "only the state is changed");
    }

    #[test]
    fn target_port_groups_do_not_keep_paths_relative() {
        let text = "[[disk]]\nname = 'd0'\nkind = 'file'\npath = 'd0.img'\n\
                    [[target]]\nname = 'iqn.2026-11.a:t'\ndriver = 'iscsi'\n\
                    listen = ['[::]:3260']\nport_group = 'a'\n\
                    [[alua]]\nname = 'a'\nid = 7\nstate = 'standby'\n";
        let config = read(text, "/etc/ashlar/ashlar.toml", &catalog()).expect("well-formed");
        assert_eq!(config.disk("d0").expect("a disk").params["path"], "/etc/ashlar/d0.img");
        assert_eq!(config.alua.len(), 1);
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct RemoteParams {
        /// A server.
        address: String,
        /// A certificate.
        tls_ca: String,
        /// Addresses.
        linux: Vec<String>,
    }

    #[test]
    fn certificates_and_sockets_of_disks_are_below_that_folder() {
        let mut catalog = catalog();
        catalog.disks.push(Entry::of::<RemoteParams>("remote", "A disk elsewhere."));
        let disk = |address: &str| {
            let text = format!(
                "[[disk]]\nname = 'd'\nkind = 'remote'\naddress = '{address}'\n\
                 tls_ca = 'keys/ca.pem'\nlinux = ['unix:p.sock', '[::]:564']\n"
            );
            let config = read(&text, "/etc/ashlar/a.toml", &catalog).expect("well-formed");
            config.disk("d").expect("a disk").params.clone()
        };
        let params = disk("unix:nbd.sock");
        assert_eq!(params["tls_ca"], "/etc/ashlar/keys/ca.pem");
        assert_eq!(params["address"], "unix:/etc/ashlar/nbd.sock");
        assert_eq!(params["linux"][0], "unix:/etc/ashlar/p.sock");
        assert_eq!(params["linux"][1], "[::]:564");
        assert_eq!(disk("nbd.example:10809")["address"], "nbd.example:10809");
    }

    #[test]
    fn credentials_of_tls_are_no_paths() {
        let text = "[api]\nlisten = ['127.0.0.1:7320']\ntls_certificate = 'api.pem'\n\
                    tls_key = 'credential:api.key'\n\
                    [[disk]]\nname = 'd0'\nkind = 'file'\npath = 'credential:d0'\n";
        let config = read(text, "/etc/ashlar/a.toml", &catalog()).expect("well-formed");
        assert_eq!(config.api.tls_certificate.as_deref(), Some("/etc/ashlar/api.pem"));
        assert_eq!(config.api.tls_key.as_deref(), Some("credential:api.key"));
        let path = &config.disk("d0").expect("a disk").params["path"];
        assert_eq!(path, "/etc/ashlar/credential:d0", "a disk is a file");
    }
}
