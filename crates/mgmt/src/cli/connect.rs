//! Selection of the daemon: its control socket, or the URL and credentials of a remote one, by the
//! options of a command and the variables of the environment.

use crate::api::{Error, Kind, Result};
use crate::client::{Client, default_socket};
use crate::remote::{Credentials, Remote};
use crate::verbs::{self, Entry};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The variable that replaces `--remote`. It has no effect if `--socket` is given.
const REMOTE: &str = "ASHLAR_REMOTE";

/// The variable that replaces `--ca`.
const CA: &str = "ASHLAR_CA";

/// Options that identify the client, and the variables that replace them. One of the options
/// replaces all of these variables.
const IDENTITY: [(&str, &str); 3] = [
    ("token-file", "ASHLAR_TOKEN_FILE"),
    ("certificate", "ASHLAR_CERTIFICATE"),
    ("key", "ASHLAR_KEY"),
];

/// The value of an option or of a variable, by its name.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Options of the connection, completed by variables.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    socket: Option<String>,
    remote: Option<String>,
    ca: Option<String>,
    token_file: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Selection {
    fn new(option: Lookup<'_>, variable: Lookup<'_>) -> Selection {
        let set = |name: &str| variable(name).filter(|text| !text.is_empty());
        let socket = option("socket");
        let by_variable = || set(REMOTE).filter(|_| socket.is_none());
        let remote = option("remote").or_else(by_variable);
        let is_identified = IDENTITY.iter().any(|(name, _)| option(name).is_some());
        let identity = |(name, other)| if is_identified { option(name) } else { set(other) };
        let [token_file, certificate, key] = IDENTITY.map(identity);
        let ca = option("ca").or_else(|| set(CA));
        Selection { socket, remote, ca, token_file, certificate, key }
    }

    fn credentials(&self) -> Credentials<'_> {
        Credentials {
            token_file: self.token_file.as_deref(),
            ca: self.ca.as_deref(),
            certificate: self.certificate.as_deref(),
            key: self.key.as_deref(),
        }
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The way to the daemon for a command with these options and parameters.
///
/// # Errors
/// [`Kind::Usage`] for options that contradict each other, and the errors of [`Remote::new`].
pub(super) fn client(option: Lookup<'_>, entry: &Entry, params: &Value) -> Result<Client> {
    let chosen = Selection::new(option, &environment);
    let with_key = |client: Client| client.with_request_key(option("idempotency-key"));
    if entry.name == "serve" {
        if let Some(url) = option("remote") {
            let next = "Run it there without --remote.";
            let error = Error::new(Kind::Usage, "serve", "the command starts a local daemon");
            return Err(error.at(url).next(next));
        }
    } else if let Some(url) = &chosen.remote {
        return Ok(with_key(Client::remote(Remote::new(url, &chosen.credentials())?)));
    }
    Ok(with_key(Client::new(&socket_path(chosen.socket.as_deref(), entry, params))))
}

/// The daemon's socket: the flag; $ASHLAR_SOCKET; the path in the configuration at hand, if there
/// is one; the default.
pub(super) fn socket_path(flag: Option<&str>, entry: &Entry, params: &Value) -> PathBuf {
    if let Some(path) = flag {
        return PathBuf::from(path);
    }
    // `serve` makes the socket and reads the file for itself.
    if entry.name == "serve" || std::env::var_os("ASHLAR_SOCKET").is_some() {
        return default_socket();
    }
    let typed = params.get("file").and_then(Value::as_str).map(str::to_owned);
    let files = typed.into_iter().chain([verbs::plan::default_file()]);
    let named = files.filter_map(|file| configured_socket(&file)).find(|path| path.exists());
    named.unwrap_or_else(default_socket)
}

/// `[daemon] socket` of a file, when there is such a file and it can be read so far.
pub(super) fn configured_socket(file: &str) -> Option<PathBuf> {
    let text = crate::config::read_text(Path::new(file)).ok()?;
    let document: toml_edit::DocumentMut = text.parse().ok()?;
    document.get("daemon")?.get("socket")?.as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(options: &[(&str, &str)], variables: &[(&str, &str)]) -> Selection {
        let of = |all: &[(&str, &str)], name: &str| {
            all.iter().find(|(of, _)| *of == name).map(|(_, text)| (*text).to_owned())
        };
        Selection::new(&|name| of(options, name), &|name| of(variables, name))
    }

    const VARIABLES: &[(&str, &str)] = &[
        ("ASHLAR_REMOTE", "https://a"),
        ("ASHLAR_CA", "ca.pem"),
        ("ASHLAR_TOKEN_FILE", "a.token"),
        ("ASHLAR_CERTIFICATE", ""),
    ];

    #[test]
    fn variables_replace_options_that_are_not_given() {
        let text = |text: &str| Some(text.to_owned());
        let of_variables = Selection {
            remote: text("https://a"),
            ca: text("ca.pem"),
            token_file: text("a.token"),
            ..Selection::default()
        };
        assert_eq!(selection(&[], VARIABLES), of_variables, "an empty one is absent");
        let options = [("remote", "https://b"), ("certificate", "b.pem")];
        let expected = Selection {
            remote: text("https://b"),
            token_file: None,
            certificate: text("b.pem"),
            ..of_variables
        };
        assert_eq!(selection(&options, VARIABLES), expected, "the token is another identity");
    }

    #[test]
    fn socket_option_takes_precedence_over_the_variable_of_a_remote_daemon() {
        assert_eq!(selection(&[("socket", "a.sock")], VARIABLES).remote, None);
        let both = selection(&[("socket", "a.sock"), ("remote", "https://b")], VARIABLES);
        assert_eq!(both.remote.as_deref(), Some("https://b"));
    }
}
